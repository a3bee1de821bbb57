"""Exports outcomes that are not exported yet, in portions, with the manifest and the states that a replay needs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from rankloop.core import files as core_files
from rankloop.core.errors import DataError, RankloopError
from rankloop.core.types import Array
from rankloop.service.errors import StoreUnavailable
from rankloop.service.maintenance.archive.columns import chunks
from rankloop.service.maintenance.archive.parquet import (
    VERSION,
    Writer,
    clear,
    files_of,
    lacking,
    last_list,
    lock,
    put_aside,
    ranker_folder,
    sync,
    table_of,
)
from rankloop.service.storage import lineage, rankers, snapshots
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.rewards import current_scale
from rankloop.wire.rankers import Spec

MANIFEST, STATES = "_manifest.json", "_states"
FILE_ROWS = 250_000  # lists of a file at most …
FILE_BYTES = 256 * 2**20  # … and bytes
DAY = 86_400
SLACK = 3600  # seconds that clocks of several machines may differ by without a day being torn into pieces
Progress = Callable[[int, int], None]  # outcomes looked at, and of how many
logger = logging.getLogger("rankloop")


class Kept(msgspec.Struct, frozen=True):
    """A state: where a fold began, a version, or the last snapshot."""

    kind: Literal["origin", "version", "snapshot"]
    file: str
    generation: int | None  # null: an earlier release kept it
    seq: int
    epoch: int | None = None  # of an origin
    version: int | None = None  # of a version

    @property
    def stored(self) -> snapshots.StoredState:
        """Its key in the store."""
        return snapshots.StoredState(self.kind, self.seq, self.generation, self.epoch, self.version)


class Manifest(msgspec.Struct, frozen=True):
    """A ranker as it was when the last export ended."""

    schema: int
    ranker: str
    created: float  # tells one ranker from another of the same name
    outcomes: int  # everything before this one has been looked at; files may be about later ones
    epoch: int
    generation: int
    revision: int
    learning: bool
    serving: int | None
    spec: Spec
    states: list[Kept]
    reward_scale: float | None = None  # that was in force
    changes: list[lineage.RecordedChange] = []  # of the spec

    @property
    def row(self) -> rankers.Ranker:
        """As a row of the store."""
        own = (self.ranker, self.spec, self.created, self.epoch, self.generation, self.revision, self.learning)
        return rankers.Ranker(*own, self.serving)


def load_manifest(folder: Path, ranker: str) -> Manifest | None:
    """Of the last export that has ended; None if there is none."""
    path = ranker_folder(folder, ranker) / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise RankloopError(f"{path}: cannot be read ({error}); restore it, or export into another folder") from None
    if found.schema > VERSION:
        raise RankloopError(f"{path}: schema {found.schema}; take the release that wrote it, this one reads {VERSION}")
    return found


class Place(msgspec.Struct, frozen=True):
    """A ranker at one moment: what is to be exported, and which states there are."""

    row: rankers.Ranker
    head: int
    states: list[Kept]
    reward_scale: float | None
    changes: list[lineage.RecordedChange]


def find_place(connection: Connection, name: str) -> Place | None:
    """All of one moment, so no state is ahead of the outcomes; None if there is no such ranker."""
    row = rankers.get_ranker(connection, name)
    if row is None:
        return None
    found = [
        Kept(one.kind, f"{_named(one)}.rankloop", one.generation, one.seq, one.epoch, one.version)
        for one in snapshots.stored_states(connection, name)
    ]
    scale = current_scale(row.spec.reward, stored_outcomes.reward_sketches(connection).get(name))
    return Place(
        row, stored_outcomes.log_offsets(connection).get(name, 0), found, scale, lineage.spec_changes(connection, name)
    )


def write_manifest(database: Database, folder: Path, place: Place, outcomes: int) -> None:
    """Save the states that are not there yet, one at a time, then the manifest; what no manifest names goes."""
    own = ranker_folder(folder, place.row.name)
    beside = own / STATES
    beside.mkdir(parents=True, exist_ok=True)
    before = load_manifest(folder, place.row.name)
    known = {one.file: one for one in (before.states if before else []) if one.kind != "snapshot"}
    for one in place.states:
        if not (beside / one.file).exists():
            state = database.read(lambda c, one=one: snapshots.load_state(c, place.row.name, one.stored))  # type: ignore[misc]
            if state is None:  # a newer snapshot has taken its place; versions go, too
                continue
            core_files.write(beside / one.file, state)
        known[one.file] = one
    sync(beside)
    row = place.row
    made = Manifest(
        VERSION, row.name, row.created, outcomes, row.epoch, row.generation, row.revision, row.learning, row.serving,
        row.spec, sorted(known.values(), key=lambda one: (one.seq, one.kind)), place.reward_scale, place.changes,
    )  # fmt: skip
    core_files.write(own / MANIFEST, msgspec.json.format(msgspec.json.encode(made), indent=1))
    sync(own)
    for path in beside.glob("snapshot-*.rankloop"):
        if path.name not in known:
            path.unlink(missing_ok=True)


def _named(one: snapshots.StoredState) -> str:
    if one.kind == "snapshot":
        return f"snapshot-{one.generation}-{one.seq}"
    return f"v{one.version}" if one.kind == "version" else f"origin-{one.generation}"


def read_state(folder: Path, ranker: str, one: Kept) -> bytes:
    """The bytes of a state: of a file in the folder of the ranker's states, whatever the manifest names."""
    own = ranker_folder(folder, ranker) / STATES
    path = own / one.file
    if Path(one.file).name != one.file or path.resolve().parent != own.resolve():
        raise DataError(
            f"{own.parent / MANIFEST}: state {one.file!r} is not the name of a file in {own}; restore the manifest, or "
            "export into another folder"
        )
    return core_files.read_bytes(path)


class FolderInUse(RankloopError):
    """Another process exports to the same folder."""


class Exported(NamedTuple):
    """What one run has added."""

    ranker: str
    rows: int
    files: int
    bytes: int
    outcomes: int  # the log is exported up to this one


def days(seconds: Array, current: int | None) -> Array:
    """(n,) the day of each time, counted from 1970; one that is less than an hour before the day of the one before it
    stays with that: clocks differ, and days are files.

    >>> days(np.array([10.0, 86410.0, 86390.0, 86420.0, 100.0]), None)
    array([0, 1, 1, 1, 0])
    """
    found = np.floor_divide(seconds, DAY).astype(np.int64)
    back = np.flatnonzero(np.diff(found, prepend=found[0] if current is None else current) < 0)
    for at in back.tolist():
        before = current if at == 0 else int(found[at - 1])
        assert before is not None
        stays = (found[at:] < before) & (seconds[at:] >= before * DAY - SLACK)
        run = int(np.argmin(stays)) if not stays.all() else stays.size
        found[at : at + run] = before
    return found


def export_ranker(
    database: Database,
    folder: Path,
    name: str,
    on_progress: Progress | None = None,
    aside: bool = False,
) -> Exported:
    """Add what is settled and lacking to a ranker's files; for whoever holds the folder's lock.

    With `aside`, files of another log under the same name are renamed; else they are a reason to refuse.
    """
    place = database.read(lambda c: find_place(c, name))
    if place is None:
        raise RankloopError(f"ranker {name!r} was deleted meanwhile; what was exported of it stays")
    before = load_manifest(folder, name)
    reason = _other(database, folder, place, before)
    if reason is not None:
        if not aside:
            raise RankloopError(
                f"{ranker_folder(folder, name)} {reason}; move that folder elsewhere, or export into another one"
            )
        logger.warning("%s %s; it is now %s", ranker_folder(folder, name), reason, put_aside(folder, name))
        before = None
    clear(folder, name)
    if before is None:
        write_manifest(database, folder, place, 0)  # so that files never lie there without saying whose they are
    wanted = list(lacking(files_of(folder, name), 0, place.head))
    total = sum(stop - start for start, stop in wanted)
    rows = files = size = done = 0
    for start, stop in wanted:
        for written, count, seq in _files(database, folder, name, start, stop):
            rows, files, size = rows + count, files + bool(written), size + written
            if on_progress:
                on_progress(done + seq - start, total)
        done += stop - start
    write_manifest(database, folder, place, place.head)
    return Exported(name, rows, files, size, place.head)


def _other(database: Database, folder: Path, place: Place, before: Manifest | None) -> str | None:
    """Why the files that are there are not of this ranker's log; None if they are. A ranker that was made again has
    another time of making; a store that was restored from a copy has the same, and other outcomes by the same numbers.
    """
    name = place.row.name
    if before is not None and before.created != place.row.created:
        made = datetime.fromtimestamp(before.created, UTC)
        return f"has the log of another ranker called {name!r}, made {made:%Y-%m-%d %H:%M} UTC and deleted since"
    known = files_of(folder, name)
    if not known:
        return None
    ahead = f"goes up to outcome {known[-1].end:,}, and the store up to {place.head:,}"
    last = last_list(known[-1]) if known[-1].end <= place.head else None
    if last is not None:
        stored = database.read(lambda c: stored_outcomes.impression_of(c, name, last[0]))
        if stored is None or stored == last[1]:
            return None
        ahead = f"has another list at outcome {last[0]:,} than the store"
    elif known[-1].end <= place.head:
        return None  # a file of nothing: all its lists had been deleted
    return f"is not of this store's past ({ahead}), as after a copy was restored"


def _files(database: Database, folder: Path, name: str, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Write first … end-1; (bytes of a finished file or 0, rows added, how far) as it goes on."""
    writer: Writer | None = None
    current: int | None = None
    try:
        for chunk in chunks(database, name, start, stop):
            table, day = table_of(chunk), days(chunk.plain["settled_at"], current)
            current = int(day[-1])
            cuts = [0, *(np.flatnonzero(np.diff(day)) + 1).tolist(), len(day)]
            for low, high in itertools.pairwise(cuts):
                text = f"{np.datetime64(int(day[low]), 'D')}"
                full = writer is not None and (writer.rows >= FILE_ROWS or writer.bytes >= FILE_BYTES)
                if writer is not None and (full or writer.day != text):
                    start = int(chunk.seq[low])
                    yield writer.finish(start).path.stat().st_size, 0, start
                    writer = None
                writer = writer or Writer(folder, name, text, start)
                writer.add(table.slice(low, high - low))
            yield 0, len(chunk), int(chunk.seq[-1]) + 1
        if writer is not None:
            yield writer.finish(stop).path.stat().st_size, 0, stop
            writer = None
    finally:
        if writer is not None:
            writer.give_up()


def export_log(
    database: Database,
    folder: Path,
    names: list[str],
    on_progress: Callable[[str, int, int], None] | None = None,
    aside: bool = False,
) -> list[Exported]:
    """Export rankers one after the other; refuses a folder that another process is exporting to. What is wrong with one
    keeps no other from being exported, and is told in the end."""
    found, wrong = [], []
    with lock(folder) as mine:
        if not mine:
            raise FolderInUse(f"another process is exporting to {folder}; wait for it, or take another folder")
        for name in names:
            told = None if on_progress is None else partial(on_progress, name)
            try:
                found.append(export_ranker(database, folder, name, told, aside))
            except StoreUnavailable:
                raise
            except RankloopError as error:
                if len(names) == 1:
                    raise
                wrong.append(f"{name}: {error}")
    if wrong:
        raise RankloopError(" | ".join(wrong))
    return found
