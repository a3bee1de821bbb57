"""What an operator does with what was learned: keep, promote, roll back, reset; and where it comes from. Blocking: call
in a thread."""

from __future__ import annotations

from typing import NamedTuple

from rankloop.core.errors import InvalidParameter
from rankloop.integrations.export import Engine as Target
from rankloop.integrations.export import Exported
from rankloop.service.control.actions import Action, Done, change_ranker, matches, required
from rankloop.service.control.rankers import status
from rankloop.service.errors import Conflict, NotLearned, UnknownRanker, UnknownVersion
from rankloop.service.offline.replay import VersionChoice, export_ranker
from rankloop.service.ranking import model as models
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import experiments, lineage, outcomes, rankers, snapshots
from rankloop.service.storage.database import Connection
from rankloop.wire.rankers import Generation, RankerStatus, VersionInfo


def versions(engine: Engine, name: str) -> list[VersionInfo]:
    """What has been kept, the newest first."""

    def read(connection: Connection) -> list[VersionInfo]:
        row = required(engine, rankers.get_ranker(connection, name), name)
        began = {one.generation: (number, one) for number, one in _numbered(connection, name)}
        found = []
        for one in snapshots.versions(connection, name):
            info = VersionInfo(one.version, one.seq, one.created, one.note, one.version == row.serving)
            if one.generation in began:
                info.generation, generation = began[one.generation]
                info.model_impressions = generation.outcomes(one.seq)
            found.append(info)
        return found

    return engine.database.read(read)


def lineage_of(engine: Engine, name: str) -> list[Generation]:
    """Where what the ranker knows comes from: its generations, the newest first."""

    def read(connection: Connection) -> list[Generation]:
        required(engine, rankers.get_ranker(connection, name), name)
        kept = snapshots.versions(connection, name)
        end, ended = outcomes.log_offsets(connection).get(name, 0), None
        found = []
        for number, one in reversed(_numbered(connection, name)):
            own = sorted(version.version for version in kept if version.generation == one.generation)
            found.append(Generation(number, one.how, one.version, one.kept, one.created, ended, end - one.seq, own))
            end, ended = one.seq, one.created
        return found

    return engine.database.read(read)


def exported(engine: Engine, name: str, to: Target, version: VersionChoice) -> Exported:
    """A version, or what is learned, as a search engine or a runtime takes it."""
    row = required(engine, engine.database.read(lambda connection: rankers.get_ranker(connection, name)), name)
    return export_ranker(engine.database, row, to, version)


def _numbered(connection: Connection, name: str) -> list[tuple[int, lineage.Generation]]:
    """The generations from 1 on: what the store counts by begins at the time the ranker was made."""
    return list(enumerate(lineage.generations(connection, name), 1))


def keep(engine: Engine, name: str, note: str, force: bool = False) -> VersionInfo:
    """Keep what is learned now as a version."""

    def look(row: rankers.Ranker | None) -> int:
        required(engine, row, name)
        return engine.save_now(name)

    def change(connection: Connection, acknowledged: int) -> Done:
        kept = _kept(connection, name, note, engine.clock(), acknowledged, force)
        return Done(kept.version, f"v{kept.version} was kept{kept.lacks}")

    action = Action(engine, "keep", name, note, force)
    number = change_ranker(action, engine, name, look, change)
    return next(version for version in versions(engine, name) if version.version == number)


def promote(
    engine: Engine,
    name: str,
    version: int | str | None,
    note: str,
    if_match: str | None = None,
    force: bool = False,
) -> RankerStatus:
    """Serve a version: the given one, `live`, or (None) one made of what is learned now. Learning goes on behind it."""

    def look(row: rankers.Ranker | None) -> int:
        row = required(engine, row, name)
        matches(row, name, if_match)
        if version is None:
            return engine.save_now(name)
        if version != "live":
            usable(engine, row, int(version))
        return 0

    def change(connection: Connection, acknowledged: int) -> Done | None:
        number: int | None = None
        now, lacks = engine.clock(), ""
        if version is None:
            number, lacks = _kept(connection, name, note or "promoted", now, acknowledged, force)
        elif version != "live":
            number = int(version)
            if not _there(connection, name, number):
                return None  # it has just been dropped as an old automatic version: look again, and refuse
        rankers.set_serving(connection, name, number)
        experiments.reconcile(connection, name, now)
        return Done(number, f"serves {'live' if number is None else f'v{number}'}{lacks}")

    change_ranker(Action(engine, "promote", name, version, note, if_match, force), engine, name, look, change)
    engine.changed(name)
    return status(engine, name)


class _Target(NamedTuple):
    """Where a rollback goes."""

    version: int
    knows: int | None  # outcomes in it
    large: bool
    acknowledged: int  # outcomes in the log when the rollback was decided


def rollback(
    engine: Engine,
    name: str,
    version: int | str | None,
    note: str,
    if_match: str | None = None,
    force: bool = False,
) -> RankerStatus:
    """Go back to a version, in serving and in learning; the state until now is kept as a version of its own.

    Outcomes that are not in the version that is kept are learned on top of the version that is gone back to. Without a
    version: the newest there is, so that a second rollback undoes the first.
    """
    if version == "live":
        raise InvalidParameter('rollback goes to a kept version; to serve what is learned, promote {"version": "live"}')

    def look(row: rankers.Ranker | None) -> _Target:
        row = required(engine, row, name)
        matches(row, name, if_match)
        kept = engine.database.read(lambda connection: snapshots.versions(connection, name))
        if not kept:
            raise Conflict(f"ranker {name!r} has no versions to go back to; POST /v1/rankers/{name}/versions keeps one")
        number = kept[0].version if version is None else int(version)
        large = len(usable(engine, row, number)) > snapshots.LARGE
        acknowledged = engine.save_now(name)
        # None if it has been dropped meanwhile, which `change` finds out.
        knows = next((one.model_impressions for one in versions(engine, name) if one.version == number), None)
        return _Target(number, knows, large, acknowledged)

    def change(connection: Connection, to: _Target) -> Done | None:
        newest = snapshots.versions(connection, name)[0].version if version is None else to.version
        if newest != to.version or not _there(connection, name, to.version):
            return None
        now = engine.clock()
        text = note or f"before the rollback to v{to.version}"
        kept = _kept(connection, name, text, now, to.acknowledged, force)
        found = None if to.large else snapshots.version_state(connection, name, to.version)
        cause = lineage.Cause("rollback", to.version, kept.version, to.knows)
        snapshots.replace_state(connection, name, b"" if found is None else found[1], now, reset=False, cause=cause)
        experiments.reconcile(connection, name, now)
        return Done(None, f"rolled back to v{to.version}; what was is v{kept.version}{kept.lacks}")

    change_ranker(Action(engine, "rollback", name, version, note, if_match, force), engine, name, look, change)
    engine.changed(name)
    return status(engine, name)


class _Fresh(NamedTuple):
    """What a reset begins with."""

    state: bytes
    acknowledged: int  # outcomes in the log when the reset was decided


def reset(engine: Engine, name: str, note: str = "", if_match: str | None = None, force: bool = False) -> RankerStatus:
    """Forget what was learned; it is kept as a version. Feedback to rankings shown before is late from now on.

    Outcomes that were acknowledged before the reset and are not in the version that is kept are learned afterwards.
    """

    def look(row: rankers.Ranker | None) -> _Fresh:
        row = required(engine, row, name)
        matches(row, name, if_match)
        return _Fresh(models.fresh_state(row.spec), engine.save_now(name))

    def change(connection: Connection, fresh: _Fresh) -> Done:
        now = engine.clock()
        kept = _kept(connection, name, note or "before the reset", now, fresh.acknowledged, force)
        cause = lineage.Cause("reset", None, kept.version)
        snapshots.replace_state(connection, name, fresh.state, now, reset=True, cause=cause)
        experiments.reconcile(connection, name, now)
        return Done(None, f"reset; what was is v{kept.version}{kept.lacks}")

    change_ranker(Action(engine, "reset", name, note, if_match, force), engine, name, look, change)
    engine.changed(name)
    return status(engine, name)


# -- helpers -------------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """A version that was just kept."""

    version: int
    lacks: str  # for the audit list: how many outcomes are not in it; empty if none


def _kept(connection: Connection, name: str, note: str, now: float, acknowledged: int, force: bool) -> _Kept:
    """Keep the last snapshot as a version, if it has all outcomes that were `acknowledged` when this was decided."""
    number, place = snapshots.keep_version(connection, name, note, now), snapshots.snapshot_position(connection, name)
    if number is None or place is None:
        raise UnknownRanker(f"ranker {name!r} has been deleted")
    missing = acknowledged - place[1]
    if missing <= 0:
        return _Kept(number, "")
    if not force:
        raise NotLearned(
            f"ranker {name!r} has learned {place[1]} of {acknowledged} acknowledged outcomes, so the version to keep "
            f"would lack {missing}; nothing was changed. Start a process that learns, or wait until `lag` is 0, and "
            'try again; or send {"force": true}: those outcomes stay in the log and are learned afterwards'
        )
    return _Kept(number, f", without {missing} of {acknowledged} acknowledged outcomes (forced)")


def _there(connection: Connection, name: str, number: int) -> bool:
    return any(one.version == number for one in snapshots.versions(connection, name))


def usable(engine: Engine, row: rankers.Ranker, number: int) -> bytes:
    """The state of a version, if there is one and it carries over to this spec: what cannot be loaded is not served."""

    def read(
        connection: Connection,
    ) -> tuple[tuple[int, bytes] | None, list[snapshots.Version], list[lineage.RecordedChange]]:
        state = snapshots.version_state(connection, row.name, number)
        return state, snapshots.versions(connection, row.name), lineage.spec_changes(connection, row.name)

    wanted, kept, changes = engine.database.read(read)
    if wanted is None:
        there = ", ".join(str(version.version) for version in kept) or "none"
        raise UnknownVersion(f"ranker {row.name!r} has no version {number}; it has {there}")
    models.load_learner(row.spec, wanted[1], f"version {number} of ranker {row.name!r}", changes)
    return wanted[1]
