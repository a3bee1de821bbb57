"""What an operator does to rankers: make, change, look at, pause, delete. Blocking: call in a thread."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from rankloop import registry
from rankloop.errors import InvalidParameter, RankloopError
from rankloop.features import declarations as declared
from rankloop.service.engine import Engine
from rankloop.service.errors import Conflict, OverLimit
from rankloop.service.operations import revisions, users
from rankloop.service.operations._shared import Action, Done, changed, required, unknown
from rankloop.service.ranking import model as models
from rankloop.service.ranking.declared import declarations, is_sparse, named, width_of
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import admin, graves, lineage, log, states, trials, troubles
from rankloop.service.store.batches import in_batches
from rankloop.service.store.database import Connection
from rankloop.service.wire.experiments import Evidence
from rankloop.service.wire.rankers import Origin, RankerStatus, Spec, SpecChanges
from rankloop.service.wire.users import Erased

logger = logging.getLogger("rankloop")
CLEARING = 3.0  # seconds that a new ranker waits for what a deleted one of its name has left
COMPILING = "kernels are being compiled or loaded; until then answers are your order"


class _Wanted(NamedTuple):
    """A spec that may take the place of another, and what is needed for it."""

    before: admin.Ranker | None
    spec: Spec
    state: bytes  # of a learner that has learned nothing
    anew: bool  # whether it takes the place of what was learned
    seq: int  # of the last snapshot


def put(
    engine: Engine,
    name: str,
    spec: Spec,
    if_match: str | None = None,
    acknowledged: bool = False,
    require_catalog: Callable[[str], None] = lambda _: None,
) -> tuple[RankerStatus, bool]:
    """Make a ranker or change one; whether it is new. `require_catalog` raises if the caller may not use a catalog."""

    def look(row: admin.Ranker | None) -> _Wanted:
        knows = revisions.known(row, name, if_match)
        if row is not None and not spec.features and row.spec.features:
            raise InvalidParameter(
                f"features is empty, and ranker {name!r} has {len(row.spec.features)}: PUT replaces the whole spec. To "
                f"change some of it and keep the rest, PATCH /v1/rankers/{name} (Python: client.patch_ranker)"
            )
        _check_catalog(row, spec, require_catalog)
        return _wanted(engine, row, spec, knows or acknowledged)

    return _change(Action(engine, "put", name, spec, if_match, acknowledged), engine, name, look)


def patch(
    engine: Engine,
    name: str,
    changes: SpecChanges,
    if_match: str | None = None,
    acknowledged: bool = False,
    require_catalog: Callable[[str], None] = lambda _: None,
) -> RankerStatus:
    """Change some of a spec; what is not told stays. Another learner begins with its own parameters."""
    told = {field: value for field in Spec.__struct_fields__ if (value := getattr(changes, field)) is not msgspec.UNSET}

    def look(row: admin.Ranker | None) -> _Wanted:
        if row is None and if_match is None:
            raise unknown(engine, name)
        knows = revisions.known(row, name, if_match)
        present = required(engine, row, name).spec
        if told.get("learner", present.learner) != present.learner:
            present = msgspec.structs.replace(present, parameters={})
        spec = msgspec.structs.replace(present, **told)
        _check_catalog(row, spec, require_catalog)
        return _wanted(engine, row, spec, knows or acknowledged)

    return _change(Action(engine, "patch", name, changes, if_match, acknowledged), engine, name, look)[0]


def _check_catalog(row: admin.Ranker | None, spec: Spec, require: Callable[[str], None]) -> None:
    """Refuse a catalog that the caller may not use. One that the ranker has already stays: whoever pointed the ranker
    at it was allowed to."""
    if spec.catalogue is not None and (row is None or spec.catalogue != row.spec.catalogue):
        require(spec.catalogue)


def _wanted(engine: Engine, row: admin.Ranker | None, spec: Spec, acknowledged: bool) -> _Wanted:
    """Refuse what cannot be, with all that takes a learner: in a transaction it would stop everyone's writes."""
    width, sparse = width_of(spec), is_sparse(spec)
    if (whole := named(spec) if sparse else width) > engine.settings.max_features:
        raise OverLimit(f"{whole} features; the limit max_features is {engine.settings.max_features}")
    if sparse and width > engine.settings.max_width:
        raise OverLimit(f"{width} columns; the limit max_width is {engine.settings.max_width}")
    spec = complete(spec)
    start = spec.parameters.get("start")
    if isinstance(start, list) and len(start) != width:
        raise InvalidParameter(f"start has {len(start)} weights, but the ranker has {width} features; give one each")
    state = models.fresh_state(spec)
    if row is None:
        return _Wanted(None, spec, state, anew=True, seq=0)
    name = row.name

    def read(connection: Connection) -> tuple[Any, states.Snapshot | None, bool]:
        snapshot = states.snapshot(connection, name)
        to_learn = log.to_learn(connection, name, 0 if snapshot is None else snapshot.seq)
        return trials.demotions(connection), snapshot, to_learn

    demoted, snapshot, to_learn = engine.database.read(read)
    seq = 0 if snapshot is None else snapshot.seq
    revisions.require_acknowledged(row, spec, _demotion(row, demoted), acknowledged)
    old, new = models.fixed_part(row.spec), models.fixed_part(spec)
    if old == new:
        return _Wanted(row, spec, state, anew=False, seq=seq)
    if to_learn or (snapshot is not None and models.fresh_state(row.spec) != snapshot.state):
        parts = ", ".join(key for key in old if old[key] != new[key])
        raise Conflict(
            f"what ranker {name!r} has learned depends on its {parts}, and would mean nothing with what is sent; "
            f"PUT a ranker of another name; or POST /v1/rankers/{name}/pause and /v1/rankers/{name}/reset, PUT again, "
            f"and POST /v1/rankers/{name}/resume"
        )
    return _Wanted(row, spec, state, anew=True, seq=seq)


def _change(action: Action, engine: Engine, name: str, look: Any) -> tuple[RankerStatus, bool]:
    """Store what `look` wants; the status, and whether the ranker is new. Nobody waits for kernels: see `ready`."""

    def change(connection: Connection, wanted: _Wanted) -> Done | None:
        now, before, spec = engine.clock(), wanted.before, wanted.spec
        if before is None:
            if not admin.add_ranker(connection, name, spec, wanted.state, now):
                return None
            text: str | None = made(spec)
        else:
            if wanted.anew:
                log.lock_head(connection, name)
                if log.to_learn(connection, name, wanted.seq):
                    return None  # something has been learned meanwhile, or will be
            admin.change_spec(connection, name, spec)
            difference = revisions.difference(before.spec, spec)
            text = f"changed ({difference})" if difference else None  # the same spec again changes nothing
            if wanted.anew:
                came = lineage.Came("changed")
                states.replace_state(connection, name, wanted.state, now, reset=True, came=came)
        trials.settle(connection, name, now)
        return Done(before is None, text)

    sum(in_batches(engine.writer, lambda c, limit: graves.clear(c, limit, name), _within(CLEARING)))
    created: bool = changed(action, engine, name, look, change)
    engine.changed(name)
    engine.cycle()  # it is learned from now on rather than in a second
    return status(engine, name), created


def status(engine: Engine, name: str) -> RankerStatus:
    """A ranker as it stands."""
    return _statuses(engine, [name])[0]


def statuses(engine: Engine) -> list[RankerStatus]:
    """All rankers."""
    return _statuses(engine, None)


def delete(engine: Engine, name: str, if_match: str | None = None) -> None:
    """Delete a ranker: it is gone when this returns, and what it leaves is deleted behind it."""

    def look(row: admin.Ranker | None) -> None:
        revisions.known(required(engine, row, name), name, if_match)

    def change(connection: Connection, _: None) -> Done | None:
        return Done(None, "deleted") if graves.bury(connection, name, engine.clock()) else None

    changed(Action(engine, "delete", name, if_match), engine, name, look, change)
    engine.changed(name)
    threading.Thread(target=_clear, args=(engine, name), name="rankloop-clearing", daemon=True).start()


def _clear(engine: Engine, name: str) -> None:
    try:
        rows = sum(in_batches(engine.writer, lambda c, limit: graves.clear(c, limit, name), lambda: engine.draining))
        logger.info("ranker %s: what it left is deleted (%d rows)", name, rows)
    except (RankloopError, TimeoutError) as error:
        logger.warning("ranker %s: what it left will be deleted later: %s", name, error)


def set_learning(engine: Engine, name: str, learning: bool, if_match: str | None = None) -> RankerStatus:
    """Pause: feedback is still joined and kept, but not learned. Resume: what comes from now on is."""

    def look(row: admin.Ranker | None) -> None:
        revisions.known(required(engine, row, name), name, if_match)

    def change(connection: Connection, _: None) -> Done:
        admin.set_learning(connection, name, learning)
        return Done(None, f"learning {'goes on' if learning else 'is paused'}")

    action = Action(engine, "resume" if learning else "pause", name, if_match)
    changed(action, engine, name, look, change)
    engine.changed(name)
    return status(engine, name)


def erase_user(engine: Engine, user: str) -> Erased:
    """Erase what is stored under a user id."""
    action = Action(engine, "erase", None)
    erased = users.erase(engine.writer, user, engine.clock(), action.update, engine.settings.archive)
    action.log(users.summary(erased))
    return erased


def made(spec: Spec) -> str:
    """What the audit list says about a new ranker."""
    return f"made ({spec.learner}, {len(spec.features)} features, exposure {spec.exposure})"


def complete(spec: Spec) -> Spec:
    """The spec with every parameter of its learner and its features spelled out, and a published configuration by its
    plain learner: a later release may have other defaults. A learner that can start as the caller's ranker does, unless
    it is told otherwise: the order that candidates come in is that of someone who knows."""
    if "start" not in spec.parameters and "@" not in spec.learner:
        with contextlib.suppress(InvalidParameter):  # it has no such parameter, or not with these others
            started = msgspec.structs.replace(spec, parameters={**spec.parameters, "start": "base"})
            models.make_learner(started)
            spec = started
    learner: Any = models.plain_learner(spec)
    parameters = {f.name: getattr(learner, f.name) for f in dataclasses.fields(learner) if f.init}
    plain = msgspec.json.decode(msgspec.json.encode(parameters))
    features = [declared.plain(one) for one in declarations(spec)]
    return msgspec.structs.replace(spec, learner=registry.name_of(learner), parameters=plain, features=features)


# -- helpers -------------------------------------------------------------------------------------------------------


def _demotion(row: admin.Ranker, demotions: dict[str, Evidence]) -> Evidence | None:
    """Why the guardrail has put a ranker into shadow, as long as it has one and is there."""
    return demotions.get(row.name) if row.spec.guardrail and row.spec.exposure == "shadow" else None


def _waits_for(live: LiveRanker | None) -> str | None:
    if live is None:
        return "this process has not loaded it yet, or cannot: its log says so"
    return None if live.warm else COMPILING


def _origin(number: int, began: lineage.Beginning, learned: int) -> Origin:
    return Origin(number, began.how, began.version, began.kept, began.created, max(0, learned - began.seq))


def _trouble(row: admin.Ranker, live: LiveRanker | None, noted: tuple[int, str] | None) -> str | None:
    """Why a ranker does not rank or learn as it should, if that is so."""
    if live is not None and (trouble := live.trouble) is not None:
        return trouble
    return noted[1] if noted is not None and noted[0] == row.revision else None


def _within(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _statuses(engine: Engine, names: list[str] | None) -> list[RankerStatus]:
    engine.count_answered()

    def read(connection: Connection) -> list[RankerStatus]:
        rows = admin.rankers(connection)
        heads, opened = log.heads(connection), log.open_counts(connection)
        leases, snapshots = admin.leases(connection), states.snapshot_seqs(connection)
        demoted, began = trials.demotions(connection), lineage.latest(connection)
        trouble, now = troubles.texts(connection), engine.clock()
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
                    etag=revisions.etag(row),
                    spec=row.spec,
                    ready=live is not None and live.warm,
                    warming=_waits_for(live),
                    serving="live" if row.serving is None else f"v{row.serving}",
                    learning=row.learning,
                    outcomes=outcomes,
                    learned=learned,
                    knows=began[row.name][1].knows(learned),
                    lag=max(0, outcomes - learned),
                    counted=None if (one := engine.rankers.counted.get(row.name)) is None else one.seq,
                    open_impressions=opened[row.name],
                    learner_process=leases.get(row.name, (None,))[0],
                    snapshot_at=snapshot,
                    created=row.created,
                    origin=_origin(*began[row.name], learned),
                    counts=dict(live.counts) if live else {},
                    fallbacks=engine.metrics.counts("rank_fallbacks_total", "reason", ranker=row.name),
                    trouble=_trouble(row, live, trouble.get(row.name)),
                    model_age_seconds=None if live is None else live.age(now),
                    demoted=_demotion(row, demoted),
                )
            )
        return found

    found = engine.database.read(read)
    if names and not found:
        raise unknown(engine, names[0])
    return found
