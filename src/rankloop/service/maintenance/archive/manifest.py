"""What an exported log must know beside its rows: whose it is, how far it goes, and the states that replay needs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from rankloop.core import files
from rankloop.core.errors import DataError, RankloopError
from rankloop.service.maintenance.archive.files import ranker_folder, sync
from rankloop.service.maintenance.archive.schema import VERSION
from rankloop.service.storage import admin, lineage, log, states
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.rewards import scale_of
from rankloop.wire.rankers import Spec

NAME = "_manifest.json"
STATES = "_states"


class Kept(msgspec.Struct, frozen=True):
    """A state: where a fold began, a version, or the last snapshot."""

    kind: Literal["origin", "version", "snapshot"]
    file: str
    generation: int | None  # null: an earlier release kept it
    seq: int
    epoch: int | None = None  # of an origin
    version: int | None = None  # of a version

    @property
    def stored(self) -> states.Stored:
        """As the store knows it."""
        return states.Stored(self.kind, self.seq, self.generation, self.epoch, self.version)


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
    changes: list[lineage.Change] = []  # of the spec

    @property
    def row(self) -> admin.Ranker:
        """As the store's row has it."""
        own = (self.ranker, self.spec, self.created, self.epoch, self.generation, self.revision, self.learning)
        return admin.Ranker(*own, self.serving)


def load(folder: Path, ranker: str) -> Manifest | None:
    """What the last export wrote down; None if none has ended yet."""
    path = ranker_folder(folder, ranker) / NAME
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

    row: admin.Ranker
    head: int
    states: list[Kept]
    reward_scale: float | None
    changes: list[lineage.Change]


def look(connection: Connection, name: str) -> Place | None:
    """All of one moment, so no state is ahead of the outcomes; None if there is no such ranker."""
    row = admin.ranker(connection, name)
    if row is None:
        return None
    found = [
        Kept(one.kind, f"{_named(one)}.rankloop", one.generation, one.seq, one.epoch, one.version)
        for one in states.stored(connection, name)
    ]
    scale = scale_of(row.spec.reward, log.reward_sketches(connection).get(name))
    return Place(row, log.heads(connection).get(name, 0), found, scale, lineage.changes(connection, name))


def write(database: Database, folder: Path, place: Place, outcomes: int) -> None:
    """Save the states that are not there yet, one at a time, then the manifest; what no manifest names goes."""
    own = ranker_folder(folder, place.row.name)
    beside = own / STATES
    beside.mkdir(parents=True, exist_ok=True)
    before = load(folder, place.row.name)
    known = {one.file: one for one in (before.states if before else []) if one.kind != "snapshot"}
    for one in place.states:
        if not (beside / one.file).exists():
            state = database.read(lambda c, one=one: states.state_of(c, place.row.name, one.stored))  # type: ignore[misc]
            if state is None:  # a newer snapshot has taken its place; versions go, too
                continue
            files.write(beside / one.file, state)
        known[one.file] = one
    sync(beside)
    row = place.row
    made = Manifest(
        VERSION, row.name, row.created, outcomes, row.epoch, row.generation, row.revision, row.learning, row.serving,
        row.spec, sorted(known.values(), key=lambda one: (one.seq, one.kind)), place.reward_scale, place.changes,
    )  # fmt: skip
    files.write(own / NAME, msgspec.json.format(msgspec.json.encode(made), indent=1))
    sync(own)
    for path in beside.glob("snapshot-*.rankloop"):
        if path.name not in known:
            path.unlink(missing_ok=True)


def _named(one: states.Stored) -> str:
    if one.kind == "snapshot":
        return f"snapshot-{one.generation}-{one.seq}"
    return f"v{one.version}" if one.kind == "version" else f"origin-{one.generation}"


def read_state(folder: Path, ranker: str, one: Kept) -> bytes:
    """The bytes of a state: of a file in the folder of the ranker's states, whatever the manifest names."""
    own = ranker_folder(folder, ranker) / STATES
    path = own / one.file
    if Path(one.file).name != one.file or path.resolve().parent != own.resolve():
        raise DataError(
            f"{own.parent / NAME}: state {one.file!r} is not the name of a file in {own}; restore the manifest, or "
            "export into another folder"
        )
    return files.read_bytes(path)
