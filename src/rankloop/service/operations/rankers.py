"""What an operator does to rankers: make, change, promote, roll back, reset, pause. Blocking: call in a thread."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import Any

import msgspec

from rankloop import registry
from rankloop.errors import InvalidParameter
from rankloop.service.engine import Engine
from rankloop.service.errors import Conflict, OverLimit, UnknownRanker, UnknownVersion
from rankloop.service.ranking import model as models
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import admin, log, trials, troubles
from rankloop.service.store.database import Connection
from rankloop.service.wire.rankers import Erased, Guardrail, RankerStatus, Spec, VersionInfo

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

    def change(connection: Connection) -> Spec | None:
        if admin.add_ranker(connection, name, spec, state, now):
            trials.settle(connection, name, now)
            return None
        before = admin.ranker(connection, name, lock=True)
        assert before is not None
        old, new = models.fixed_part(before.spec), models.fixed_part(spec)
        if old != new:
            changed = ", ".join(key for key in old if old[key] != new[key])
            snapshot = admin.snapshot(connection, name)
            learned = log.heads(connection).get(name, 0) > (snapshot.seq if snapshot else 0)
            if learned or (snapshot is not None and not _is_fresh(before.spec, snapshot.state)):
                raise Conflict(
                    f"ranker {name!r} has learned with another {changed}, and what it learned would mean nothing with "
                    f"this one; PUT a ranker of another name, or POST /v1/rankers/{name}/reset and PUT again"
                )
            admin.change_spec(connection, name, spec)
            admin.replace_state(connection, name, state, now, reset=True)
        else:
            admin.change_spec(connection, name, spec)
        trials.settle(connection, name, now)
        return before.spec

    before = engine.writer.do(change)
    if before is None:
        terms = f"{spec.learner}, {len(spec.features)} features, exposure {spec.exposure}"
        logger.info("ranker %s: made (%s)", name, terms)
    else:
        logger.info("ranker %s: changed (%s)", name, _difference(before, spec) or "nothing")
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
    """Delete a ranker and all that belongs to it."""
    if not engine.writer.do(lambda connection: admin.delete_ranker(connection, name)):
        raise _unknown(engine, name)
    logger.info("ranker %s: deleted", name)
    engine.load(name)


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
    logger.info("ranker %s: v%d was kept", name, number)
    return next(version for version in versions(engine, name) if version.version == number)


def promote(engine: Engine, name: str, version: int | str | None, note: str) -> RankerStatus:
    """Serve a version: the given one, `live`, or (None) one made of what is learned now. Learning goes on behind it."""
    live = _live(engine, name)
    if version is None:
        version = _keep(engine, live, note or "promoted")
    number = None if version == "live" else int(version)

    def change(connection: Connection) -> None:
        row = admin.ranker(connection, name, lock=True)
        if row is None:
            raise _unknown(engine, name)
        if number is not None:
            _usable(connection, row, number)
        admin.set_serving(connection, name, number)
        trials.settle(connection, name, engine.clock())

    engine.writer.do(change)
    logger.info("ranker %s: serves %s", name, "live" if number is None else f"v{number}")
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

    def change(connection: Connection) -> int:
        row = admin.ranker(connection, name, lock=True)
        if row is None:
            raise _unknown(engine, name)
        wanted = _usable(connection, row, number)
        kept = admin.keep_version(connection, name, learned, state, note or f"before the rollback to v{number}", now)
        admin.replace_state(connection, name, wanted, now, reset=False)
        trials.settle(connection, name, now)
        return kept

    kept = engine.writer.do(change)
    logger.info("ranker %s: rolled back to v%d; what was is v%d", name, number, kept)
    engine.load(name)
    return status(engine, name)


def reset(engine: Engine, name: str, note: str = "") -> RankerStatus:
    """Forget what was learned; it is kept as a version. Feedback to lists shown before is late from now on."""
    _live(engine, name)
    learned, state = engine.current(name)
    now = engine.clock()

    def change(connection: Connection) -> int:
        row = admin.ranker(connection, name, lock=True)
        if row is None:
            raise _unknown(engine, name)
        kept = admin.keep_version(connection, name, learned, state, note or "before the reset", now)
        admin.replace_state(connection, name, models.fresh_state(row.spec), now, reset=True)
        trials.settle(connection, name, now)
        return kept

    kept = engine.writer.do(change)
    logger.info("ranker %s: reset; what was is v%d", name, kept)
    engine.load(name)
    return status(engine, name)


def set_learning(engine: Engine, name: str, learning: bool) -> RankerStatus:
    """Pause: feedback is still joined and kept, but not learned. Resume: what comes from now on is."""
    _live(engine, name)
    engine.writer.do(lambda connection: admin.set_learning(connection, name, learning))
    logger.info("ranker %s: learning %s", name, "goes on" if learning else "is paused")
    engine.load(name)
    return status(engine, name)


def erase_user(engine: Engine, user: str) -> Erased:
    """Forget a user."""
    if "\0" in user:
        raise InvalidParameter("a user is text; this one has the character NUL in it")
    erased = engine.writer.do(lambda connection: admin.erase_user(connection, user))
    logger.info("a user was forgotten: %d impressions, %d events", erased.impressions, erased.events)
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


def _usable(connection: Connection, row: admin.Ranker, number: int) -> bytes:
    """The state of a version, if there is one and it is of this spec: what cannot be loaded must not be stored."""
    wanted = admin.version_state(connection, row.name, number)
    if wanted is None:
        raise _no_version(connection, row.name, number)
    models.load_model(row.spec, 0, 0, wanted[1], f"version {number} of ranker {row.name!r}")
    return wanted[1]


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
