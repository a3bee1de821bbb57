"""From the store to files: what is settled and not exported yet, in portions, whatever it is interrupted by."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import RankloopError
from rankloop.core.types import Array
from rankloop.service.errors import StoreUnavailable
from rankloop.service.maintenance.archive import manifest
from rankloop.service.maintenance.archive.columns import chunks
from rankloop.service.maintenance.archive.files import (
    Writer,
    clear,
    files_of,
    lacking,
    last_list,
    lock,
    put_aside,
    ranker_folder,
)
from rankloop.service.maintenance.archive.schema import table_of
from rankloop.service.storage import settled
from rankloop.service.storage.database import Database

FILE_ROWS = 250_000  # lists of a file at most …
FILE_BYTES = 256 * 2**20  # … and bytes
DAY = 86_400
SLACK = 3600  # seconds that clocks of several machines may differ by without a day being torn into pieces
Progress = Callable[[int, int], None]  # outcomes looked at, and of how many
logger = logging.getLogger("rankloop")


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
    since: float | None = None,
    until: float | None = None,
    on_progress: Progress | None = None,
    aside: bool = False,
) -> Exported:
    """Add what is settled and lacking to a ranker's files; for whoever holds the folder's lock.

    `since` and `until` (Unix times) bound it to what was settled between them. `aside`: files of another log under the
    same name are put aside, and this one begins anew; else they are a reason to refuse.
    """
    place = database.read(lambda c: manifest.look(c, name))
    if place is None:
        raise RankloopError(f"ranker {name!r} was deleted meanwhile; what was exported of it stays")
    before = manifest.load(folder, name)
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
        manifest.write(database, folder, place, 0)  # so that files never lie there without saying whose they are
    first = 0 if since is None else database.read(lambda c: settled.first_at(c, name, place.head, since))
    end = place.head if until is None else database.read(lambda c: settled.first_at(c, name, place.head, until))
    wanted = list(lacking(files_of(folder, name), first, end))
    total = sum(stop - start for start, stop in wanted)
    rows = files = size = done = 0
    for start, stop in wanted:
        for written, count, seq in _files(database, folder, name, start, stop):
            rows, files, size = rows + count, files + bool(written), size + written
            if on_progress:
                on_progress(done + seq - start, total)
        done += stop - start
    manifest.write(database, folder, place, max(end, before.outcomes if before else 0))
    return Exported(name, rows, files, size, end)


def _other(database: Database, folder: Path, place: manifest.Place, before: manifest.Manifest | None) -> str | None:
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
        stored = database.read(lambda c: settled.list_of(c, name, last[0]))
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
            table, day = table_of(chunk), days(chunk.settled, current)
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
    since: float | None = None,
    until: float | None = None,
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
                found.append(export_ranker(database, folder, name, since, until, told, aside))
            except StoreUnavailable:
                raise
            except RankloopError as error:
                if len(names) == 1:
                    raise
                wrong.append(f"{name}: {error}")
    if wrong:
        raise RankloopError(" | ".join(wrong))
    return found
