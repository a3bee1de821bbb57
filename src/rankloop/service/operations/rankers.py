"""What an operator does to rankers: make, change, promote, roll back, reset, pause. Blocking: call in a thread."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rankloop import registry
from rankloop.errors import InvalidParameter, RankloopError
from rankloop.service.engine import Engine
from rankloop.service.errors import Conflict, OverLimit, UnknownRanker, UnknownVersion
from rankloop.service.ranking import model as models
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import admin, forgetting, graves, log, trials, troubles
from rankloop.service.store.batches import in_batches
from rankloop.service.store.database import Connection
from rankloop.service.tracing import did
from rankloop.service.wire.rankers import Erased, Guardrail, RankerStatus, Spec, VersionInfo

P = TypeVar("P")
T = TypeVar("T")
TRIES = 5  # to change a ranker that others change at the same time
CLEARING = 3.0  # seconds that a new ranker waits for what a deleted one of its name has left
logger = logging.getLogger("rankloop")


def put(engine: Engine, name: str, spec: Spec) -> tuple[RankerStatus, bool]:
    """Make a ranker or change one; whether it is new."""
    if len(spec.features) > engine.settings.max_features:
        raise OverLimit(f"{len(spec.features)} features; the limit max_features is {engine.settings.max_features}")
    spec = complete(spec)
    start = spec.parameters.get("start")
    if isinstance(start, list) and len(start) != len(spec.features):
        raise InvalidParameter(
            f"start has {len(start)} weights, but the ranker has {len(spec.features)} features; give one each"
        )
    state, now = models.fresh_state(spec), engine.clock()
    sum(in_batches(engine.writer, lambda c, limit: graves.clear(c, limit, name), _within(CLEARING)))

    def make(connection: Connection) -> bool:
        made = admin.add_ranker(connection, name, spec, state, now)
        if made:
            trials.settle(connection, name, now)
        return made

    def replaced(row: admin.Ranker) -> tuple[int, int] | None:
        """What the spec would make meaningless: the snapshot (its generation and place) of one that has learned
        nothing. None if what was learned goes on meaning something."""
        old, new = models.fixed_part(row.spec), models.fixed_part(spec)
        if old == new:
            return None
        snapshot = engine.database.read(lambda c: admin.snapshot(c, name))
        if snapshot is None or not _is_fresh(row.spec, snapshot.state):
            raise _has_learned(name, old, new)
        return snapshot.generation, snapshot.seq

    def change(connection: Connection, row: admin.Ranker, fresh: tuple[int, int] | None) -> Spec:
        if fresh is not None:
            learned = log.heads(connection).get(name, 0) > fresh[1]
            if learned or admin.snapshot_seqs(connection).get(name) != fresh:
                raise _has_learned(name, models.fixed_part(row.spec), models.fixed_part(spec))
        admin.change_spec(connection, name, spec)
        if fresh is not None:
            admin.replace_state(connection, name, state, now, reset=True)
        trials.settle(connection, name, now)
        return row.spec

    before = None if engine.writer.do(make) else _changed(engine, name, replaced, change)
    if before is None:
        terms = f"{spec.learner}, {len(spec.features)} features, exposure {spec.exposure}"
        did("put", name, f"made ({terms})")
    elif changed := _difference(before, spec):  # a deploy script that sends the same again has done nothing
        did("put", name, f"changed ({changed})")
    engine.load(name)
    engine.cycle()  # it is learned from now on rather than in a second
    return status(engine, name), before is None


def status(engine: Engine, name: str) -> RankerStatus:
    """A ranker as it stands."""
    return _statuses(engine, [name])[0]


def statuses(engine: Engine) -> list[RankerStatus]:
    """All rankers."""
    return _statuses(engine, None)


def delete(engine: Engine, name: str) -> None:
    """Delete a ranker: it is gone when this returns, and what it leaves is deleted behind it."""
    if not engine.writer.do(lambda connection: graves.bury(connection, name, engine.clock())):
        raise _unknown(engine, name)
    did("delete", name, "deleted")
    engine.load(name)
    threading.Thread(target=_clear, args=(engine, name), name="rankloop-clearing", daemon=True).start()


def _clear(engine: Engine, name: str) -> None:
    try:
        rows = sum(in_batches(engine.writer, lambda c, limit: graves.clear(c, limit, name), lambda: engine.draining))
        logger.info("ranker %s: what it left is deleted (%d rows)", name, rows)
    except (RankloopError, TimeoutError) as error:
        logger.warning("ranker %s: what it left will be deleted later: %s", name, error)


def versions(engine: Engine, name: str) -> list[VersionInfo]:
    """What has been kept, the newest first."""

    def read(connection: Connection) -> list[VersionInfo]:
        row = admin.ranker(connection, name)
        if row is None:
            raise _unknown(engine, name)
        return [
            VersionInfo(*version, serving=version.version == row.serving)
            for version in admin.versions(connection, name)
        ]

    return engine.database.read(read)


def keep(engine: Engine, name: str, note: str) -> VersionInfo:
    """Keep what is learned now as a version."""
    number = _keep(engine, _live(engine, name), note)
    did("keep", name, f"v{number} was kept")
    return next(version for version in versions(engine, name) if version.version == number)


def promote(engine: Engine, name: str, version: int | str | None, note: str) -> RankerStatus:
    """Serve a version: the given one, `live`, or (None) one made of what is learned now. Learning goes on behind it."""
    live = _live(engine, name)
    if version is None:
        version = _keep(engine, live, note or "promoted")
    number = None if version == "live" else int(version)

    def usable(row: admin.Ranker) -> None:
        if number is not None:
            _usable(engine, row, number)

    def change(connection: Connection, row: admin.Ranker, _: None) -> None:
        if number is not None and number not in [one.version for one in admin.versions(connection, row.name)]:
            raise _no_version(connection, name, number)
        admin.set_serving(connection, name, number)
        trials.settle(connection, name, engine.clock())

    _changed(engine, name, usable, change)
    did("promote", name, f"serves {'live' if number is None else f'v{number}'}")
    engine.load(name)
    return status(engine, name)


def rollback(engine: Engine, name: str, version: int | str | None, note: str) -> RankerStatus:
    """Go back to a version, in serving and in learning; the state until now is kept as a version of its own.

    Without a version: the newest there is, so that a second rollback undoes the first.
    """
    _live(engine, name)
    if version == "live":
        raise InvalidParameter('rollback goes to a kept version; to serve what is learned, promote {"version": "live"}')
    known = versions(engine, name)
    if not known:
        raise Conflict(f"ranker {name!r} has no versions to go back to; POST /v1/rankers/{name}/versions keeps one")
    number = known[0].version if version is None else int(version)
    learned, state = engine.current(name)
    now = engine.clock()

    def change(connection: Connection, row: admin.Ranker, wanted: bytes) -> int:
        said = note or f"before the rollback to v{number}"
        kept = admin.keep_version(connection, row.name, learned, state, said, now)
        admin.replace_state(connection, name, wanted, now, reset=False)
        trials.settle(connection, name, now)
        return kept

    kept = _changed(engine, name, lambda row: _usable(engine, row, number), change)
    did("rollback", name, f"rolled back to v{number}; what was is v{kept}")
    engine.load(name)
    return status(engine, name)


def reset(engine: Engine, name: str, note: str = "") -> RankerStatus:
    """Forget what was learned; it is kept as a version. Feedback to lists shown before is late from now on."""
    _live(engine, name)
    learned, state = engine.current(name)
    now = engine.clock()

    def change(connection: Connection, row: admin.Ranker, fresh: bytes) -> int:
        kept = admin.keep_version(connection, row.name, learned, state, note or "before the reset", now)
        admin.replace_state(connection, name, fresh, now, reset=True)
        trials.settle(connection, name, now)
        return kept

    kept = _changed(engine, name, lambda row: models.fresh_state(row.spec), change)
    did("reset", name, f"reset; what was is v{kept}")
    engine.load(name)
    return status(engine, name)


def set_learning(engine: Engine, name: str, learning: bool) -> RankerStatus:
    """Pause: feedback is still joined and kept, but not learned. Resume: what comes from now on is."""
    _live(engine, name)
    engine.writer.do(lambda connection: admin.set_learning(connection, name, learning))
    did("resume" if learning else "pause", name, f"learning {'goes on' if learning else 'is paused'}")
    engine.load(name)
    return status(engine, name)


def erase_user(engine: Engine, user: str) -> Erased:
    """Forget a user."""
    if "\0" in user:
        raise InvalidParameter("a user is text; this one has the character NUL in it")
    erased = forgetting.erase_user(engine.writer, user)
    did("erase", None, f"a user was forgotten: {erased.impressions} impressions, {erased.events} events")
    return erased


def complete(spec: Spec) -> Spec:
    """The spec with every parameter of its learner spelled out, and a published configuration by its plain learner:
    a later release may have other defaults. A learner that can start as the caller's ranker does, unless it is told
    otherwise: the order that candidates come in is that of someone who knows."""
    if "start" not in spec.parameters and "@" not in spec.learner:
        with contextlib.suppress(InvalidParameter):  # it has no such parameter, or not with these others
            started = msgspec.structs.replace(spec, parameters={**spec.parameters, "start": "base"})
            models.make_learner(started)
            spec = started
    learner: Any = models.make_learner(spec)
    parameters = {f.name: getattr(learner, f.name) for f in dataclasses.fields(learner) if f.init}
    plain = msgspec.json.decode(msgspec.json.encode(parameters))
    return msgspec.structs.replace(spec, learner=registry.name_of(learner), parameters=plain)


# -- helpers -------------------------------------------------------------------------------------------------------


def _difference(before: Spec, after: Spec) -> str:
    """What a change of a spec was, in a line; what is long is only named."""
    said = []
    for field in Spec.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            long = isinstance(old, list | dict) or isinstance(new, list | dict)
            said.append(field if long else f"{field} {_word(old)} -> {_word(new)}")
    return ", ".join(said)


def _word(value: Any) -> str:
    if isinstance(value, Guardrail):
        return f"share {value.share:g} alpha {value.alpha:g}"
    return "off" if value is None else str(value)


def _is_fresh(spec: Spec, state: bytes) -> bool:
    return models.fresh_state(spec) == state


def _keep(engine: Engine, live: LiveRanker, note: str) -> int:
    name, now = live.row.name, engine.clock()
    learned, state = engine.current(name)
    return engine.writer.do(lambda connection: admin.keep_version(connection, name, learned, state, note, now))


def _live(engine: Engine, name: str) -> LiveRanker:
    live = engine.load(name)
    if live is None:
        raise _unknown(engine, name)
    return live


def _unknown(engine: Engine, name: str) -> UnknownRanker:
    error = UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    assert isinstance(error, UnknownRanker)
    return error


def _changed(
    engine: Engine, name: str, prepare: Callable[[admin.Ranker], P], change: Callable[[Connection, admin.Ranker, P], T]
) -> T:
    """Change a ranker with what `prepare` makes of it.

    A transaction stops everyone who writes, and learners may take their time, or hang: so `prepare`, which may ask one,
    comes first, and if someone else has changed the ranker meanwhile it is asked again.
    """
    for _ in range(TRIES):
        row = engine.database.read(lambda connection: admin.ranker(connection, name))
        if row is None:
            raise _unknown(engine, name)
        prepared = prepare(row)

        def work(connection: Connection, before: admin.Ranker = row, prepared: P = prepared) -> tuple[T] | None:
            current = admin.ranker(connection, name, lock=True)
            if current is None:
                raise _unknown(engine, name)
            return (change(connection, current, prepared),) if current.revision == before.revision else None

        done = engine.writer.do(work)
        if done is not None:
            return done[0]
    raise Conflict(f"ranker {name!r} was changed by others {TRIES} times meanwhile; try again")


def _usable(engine: Engine, row: admin.Ranker, number: int) -> bytes:
    """The state of a version, if there is one and it is of this spec: what cannot be loaded must not be stored."""

    def read(connection: Connection) -> bytes:
        wanted = admin.version_state(connection, row.name, number)
        if wanted is None:
            raise _no_version(connection, row.name, number)
        return wanted[1]

    state = engine.database.read(read)
    models.load_model(row.spec, 0, 0, state, f"version {number} of ranker {row.name!r}")
    return state


def _has_learned(name: str, old: dict[str, Any], new: dict[str, Any]) -> Conflict:
    changed = ", ".join(key for key in old if old[key] != new[key])
    return Conflict(
        f"ranker {name!r} has learned with another {changed}, and what it learned would mean nothing with "
        f"this one; PUT a ranker of another name, or POST /v1/rankers/{name}/reset and PUT again"
    )


def _within(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _no_version(connection: Connection, name: str, number: int) -> UnknownVersion:
    known = ", ".join(str(version.version) for version in admin.versions(connection, name)) or "none"
    return UnknownVersion(f"ranker {name!r} has no version {number}; it has {known}")


def _trouble(row: admin.Ranker, live: LiveRanker | None, noted: tuple[int, str] | None) -> str | None:
    """Why a ranker does not rank or learn as it should, if that is so."""
    if live is not None and live.broken is not None:
        return f"your order is shown: {live.broken}"
    return noted[1] if noted is not None and noted[0] == row.revision else None


def _statuses(engine: Engine, names: list[str] | None) -> list[RankerStatus]:
    engine.count_answered()

    def read(connection: Connection) -> list[RankerStatus]:
        rows = admin.rankers(connection)
        heads, opened = log.heads(connection), log.open_counts(connection)
        leases, snapshots = admin.leases(connection), admin.snapshot_seqs(connection)
        demoted, trouble = trials.demotions(connection), troubles.texts(connection)
        found = []
        for row in rows:
            if names is not None and row.name not in names:
                continue
            live = engine.rankers.get(row.name)
            snapshot = snapshots.get(row.name, (0, 0))[1]
            known = live.model.learned if live is not None and live.model is not None else 0
            fits = live is not None and live.row.generation == row.generation
            learned = max(known, snapshot) if fits else snapshot
            outcomes = heads.get(row.name, 0)
            found.append(
                RankerStatus(
                    name=row.name,
                    spec=row.spec,
                    serving="live" if row.serving is None else f"v{row.serving}",
                    learning=row.learning,
                    outcomes=outcomes,
                    learned=learned,
                    lag=max(0, outcomes - learned),
                    open_impressions=opened[row.name],
                    learner_process=leases.get(row.name, (None,))[0],
                    snapshot_at=snapshot,
                    created=row.created,
                    counts=dict(live.counts) if live else {},
                    trouble=_trouble(row, live, trouble.get(row.name)),
                    demoted=demoted.get(row.name) if row.spec.guardrail and row.spec.exposure == "shadow" else None,
                )
            )
        return found

    found = engine.database.read(read)
    if names and not found:
        raise _unknown(engine, names[0])
    return found
