"""What an operator does to rankers: make, change, look at, pause, delete. Blocking: call in a thread."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from rankloop.core import registry
from rankloop.core.capabilities import Remaps
from rankloop.core.errors import InvalidParameter, RankloopError, UnknownName
from rankloop.core.learner import Learner
from rankloop.core.scaling import unwrapped
from rankloop.features import declarations as declared
from rankloop.service.control import users
from rankloop.service.control.actions import (
    Action,
    Done,
    change_ranker,
    difference,
    etag,
    matches,
    require_acknowledged,
    required,
    unknown,
)
from rankloop.service.errors import Conflict, NoSuchCatalog, OverLimit, UnknownRanker
from rankloop.service.ranking import feature_spec, spec_changes
from rankloop.service.ranking import model as models
from rankloop.service.ranking.feature_spec import catalog_warnings, declarations, is_sparse, unhashed_columns, width_of
from rankloop.service.ranking.model import fixed_part
from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.storage import catalog as stored_catalog
from rankloop.service.storage import events as stored_events
from rankloop.service.storage import experiments, impressions, lineage, outcomes, quarantine, rankers
from rankloop.service.storage import leases as stored_leases
from rankloop.service.storage import snapshots as stored_snapshots
from rankloop.service.storage.database import Connection
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.rewards import current_scale
from rankloop.service.storage.writer import in_batches
from rankloop.wire.calls import EventCounts
from rankloop.wire.experiments import Evidence
from rankloop.wire.rankers import Origin, RankerStatus, Spec, SpecChange, SpecChanges
from rankloop.wire.service import Erased

logger = logging.getLogger("rankloop")
CLEARING = 3.0  # seconds that a new ranker waits for what a deleted one of its name has left
COMPILING = "kernels are being compiled or loaded; until then answers are your order"


class _Wanted(NamedTuple):
    """A spec that may take the place of another, and what is needed for it."""

    before: rankers.Ranker | None
    spec: Spec
    state: bytes  # that a new generation begins with; empty: the last snapshot, carried over
    change: lineage.RecordedChange | None = (
        None  # of what learned states depend on; None: it stays, or the ranker is new
    )
    carries: bool = False  # whether impressions shown before are still learned
    place: tuple[int, int] = (0, 0)  # (generation, seq) of the last snapshot
    knows: int | None = 0  # outcomes in it
    answer: SpecChange | None = None


def put(
    engine: Engine,
    name: str,
    changes: SpecChanges,
    if_match: str | None = None,
    acknowledged: bool = False,
    require_catalog: Callable[[str], None] = lambda _: None,
    create: bool = True,
) -> tuple[RankerStatus, bool]:
    """Create a ranker, or change the given fields of an existing one (without `create`, it must exist); returns whether
    it is new. `require_catalog` raises if the caller may not use a catalog."""
    renamed = getattr(changes, "renamed", msgspec.UNSET) or {}

    def check(row: rankers.Ranker | None) -> _Wanted:
        if row is None and if_match is None and not create:
            raise unknown(engine, name)
        named = matches(row, name, if_match)
        spec = merged_spec(None if row is None else row.spec, changes, renamed)
        _check_catalog(row, spec, require_catalog)
        return _wanted(engine, row, spec, named or acknowledged, renamed)

    action = Action(engine, "put" if create else "patch", name, changes, if_match, acknowledged)
    return _change(action, engine, name, check)


def patch(
    engine: Engine,
    name: str,
    changes: SpecChanges,
    if_match: str | None = None,
    acknowledged: bool = False,
    require_catalog: Callable[[str], None] = lambda _: None,
) -> RankerStatus:
    """Change fields of a ranker that must exist."""
    return put(engine, name, changes, if_match, acknowledged, require_catalog, create=False)[0]


def _check_catalog(row: rankers.Ranker | None, spec: Spec, require: Callable[[str], None]) -> None:
    """Refuse a catalog that the caller may not use. One that the ranker has already stays: whoever pointed the ranker
    at it was allowed to."""
    if spec.catalog is not None and (row is None or spec.catalog != row.spec.catalog):
        require(spec.catalog)


def _check_fields(engine: Engine, row: rankers.Ranker | None, spec: Spec) -> None:
    """Refuse a catalog that does not exist, and features that cannot be computed from its fields. What the ranker has
    already is not refused: its status reports it."""
    if (catalog := spec.catalog) is None:
        return
    old = None if row is None or row.spec.catalog != catalog else row.spec
    parts = engine.database.read(lambda connection: stored_catalog.parts(connection, catalog))
    if old is None and not parts:
        names = list(engine.database.read(stored_catalog.by_name))
        raise NoSuchCatalog(
            f"{UnknownName.among('catalog', catalog, names or ['none yet'])}; "
            f"upload items first (PUT /v1/catalogs/{catalog}/items), or send [] there to make an empty catalog"
        )
    known = set() if old is None else {(one.kind, one.source) for one in feature_spec.catalog_fields(declarations(old))}
    for problem in feature_spec.catalog_problems(catalog, declarations(spec), parts):
        read = problem.read
        if problem.wrong and read is not None and (read.kind, read.source) not in known:
            raise InvalidParameter(problem.text)


def _wanted(
    engine: Engine, row: rankers.Ranker | None, spec: Spec, acknowledged: bool, renamed: Mapping[str, str]
) -> _Wanted:
    """Refuse what cannot be, with all that takes a learner: in a transaction it would stop everyone's writes."""
    width, sparse = width_of(spec), is_sparse(spec)
    if (whole := unhashed_columns(spec) if sparse else width) > engine.settings.max_features:
        raise OverLimit(f"{whole} features; the limit max_features is {engine.settings.max_features}")
    if sparse and width > engine.settings.max_width:
        raise OverLimit(f"{width} columns; the limit max_width is {engine.settings.max_width}")
    spec = complete(spec)
    _check_reward(spec)
    start = spec.parameters.get("init")
    if isinstance(start, list) and len(start) != width:
        raise InvalidParameter(f"init has {len(start)} weights, but the ranker has {width} features; give one each")
    state = models.fresh_state(spec)
    _check_fields(engine, row, spec)
    if row is None:
        return _Wanted(None, spec, state)
    name, answer = row.name, SpecChange(changed_fields(row.spec, spec))

    demoted = engine.database.read(experiments.demotions)
    require_acknowledged(row, spec, _demotion(row, demoted), acknowledged)
    change = state_change(row.spec, spec, renamed)
    if change is None:
        return _Wanted(row, spec, state, answer=answer)

    def read(
        connection: Connection,
    ) -> tuple[stored_snapshots.Snapshot, bool, list[lineage.RecordedChange], lineage.Generation]:
        snapshot = stored_snapshots.snapshot(connection, name)
        if snapshot is None:
            raise UnknownRanker(f"ranker {name!r} has been deleted")
        to_learn = outcomes.any_to_learn(connection, name, snapshot.seq)
        began = lineage.latest_generations(connection)[name][1]
        return snapshot, to_learn, lineage.spec_changes(connection, name), began

    snapshot, to_learn, earlier, began = engine.database.read(read)
    refused = spec_changes.differences(change.before, change.after)
    fresh = not to_learn and models.fresh_state(row.spec) == snapshot.state
    if refused and not fresh:
        raise Conflict(
            f"what ranker {name!r} has learned depends on its {refused}, and cannot be carried over to what is sent; "
            f"PUT a ranker of another name; or POST /v1/rankers/{name}/pause and /v1/rankers/{name}/reset, PUT again, "
            f"and POST /v1/rankers/{name}/resume"
        )
    if fresh:
        return _Wanted(row, spec, state, change, not refused, (snapshot.generation, snapshot.seq), 0, answer)
    engine.save_now(name)
    snapshot, _, earlier, began = engine.database.read(read)
    try:
        learner = models.load_learner(spec, snapshot.state, f"the state of ranker {name!r}", [*earlier, change])
    except InvalidParameter as error:
        raise Conflict(
            f"{error}. To begin from nothing, POST /v1/rankers/{name}/pause and /v1/rankers/{name}/reset, PUT again, "
            f"and POST /v1/rankers/{name}/resume"
        ) from None
    answer = describe_change(row.spec, spec, change, learner)
    place = snapshot.generation, snapshot.seq
    return _Wanted(row, spec, b"", change, True, place, began.outcomes(snapshot.seq), answer)


def _check_reward(spec: Spec) -> None:
    """Refuse a reward that could not raise the value of a click, or that would be mixed with values from 0 to 1."""
    if spec.reward is None:
        return
    if spec.click_value >= 1.0:
        raise InvalidParameter(
            f"click_reward is {spec.click_value:g}, so a {spec.reward.name} could not raise the value of a click; give "
            "a number below 1, or null for the default"
        )
    if isinstance(spec.reward.scale, float) and not spec.reward.scale < float("inf"):
        raise InvalidParameter(f"the scale of the reward is {spec.reward.scale}; give a finite number, or auto")
    if spec.interactions:
        raise InvalidParameter(
            f"interactions are values from 0 to 1, and reward is in {spec.reward.unit or 'a unit'}; leave out one"
        )


def _change(action: Action, engine: Engine, name: str, look: Any) -> tuple[RankerStatus, bool]:
    """Store what `look` wants; the status, and whether the ranker is new. Nobody waits for kernels: see `ready`."""

    def change(connection: Connection, wanted: _Wanted) -> Done | None:
        now, before, spec, answer = engine.clock(), wanted.before, wanted.spec, wanted.answer
        if before is None:
            if not rankers.add_ranker(connection, name, spec, wanted.state, now):
                return None
            experiments.reconcile(connection, name, now)
            return Done([True, None], made(spec))
        differences = difference(before.spec, spec)
        text = f"changed ({differences})" if differences else None  # the same spec again changes nothing
        if wanted.change is not None:
            outcomes.log_offset(connection, name, lock=True)
            if wanted.state and outcomes.any_to_learn(connection, name, wanted.place[1]):
                return None  # something has been learned meanwhile, or will be
            kept = None
            if not wanted.state:
                kept = stored_snapshots.keep_version(
                    connection, name, "before the change of features", now, at=wanted.place
                )
                if kept is None:
                    return None  # there is a newer snapshot
                text = f"{text}; what was learned is v{kept} and carries over"
                assert answer is not None
                answer = msgspec.structs.replace(answer, kept=kept)
            cause = lineage.Cause("changed", kept, kept, wanted.knows, wanted.change)
            stored_snapshots.replace_state(
                connection, name, wanted.state, now, reset=not wanted.carries, carry=wanted.carries, cause=cause
            )
        rankers.set_spec(connection, name, spec)
        experiments.reconcile(connection, name, now)
        return Done([False, msgspec.to_builtins(answer)], text)

    sum(in_batches(engine.writer, lambda c, limit: rankers.delete_remains(c, limit, name), _within(CLEARING)))
    created, answer = change_ranker(action, engine, name, look, change)
    engine.changed(name)
    engine.cycle()  # it is learned from now on rather than in a second
    found = status(engine, name)
    found.changed = None if answer is None else msgspec.convert(answer, SpecChange)
    return found, created


def status(engine: Engine, name: str) -> RankerStatus:
    """A ranker as it stands."""
    return _statuses(engine, [name])[0]


def statuses(engine: Engine) -> list[RankerStatus]:
    """All rankers."""
    return _statuses(engine, None)


def delete(engine: Engine, name: str, if_match: str | None = None) -> None:
    """Delete a ranker: it is gone when this returns, and what it leaves is deleted behind it."""

    def look(row: rankers.Ranker | None) -> None:
        matches(required(engine, row, name), name, if_match)

    def change(connection: Connection, _: None) -> Done | None:
        return Done(None, "deleted") if rankers.delete_ranker(connection, name, engine.clock()) else None

    change_ranker(Action(engine, "delete", name, if_match), engine, name, look, change)
    engine.changed(name)
    threading.Thread(target=_clear, args=(engine, name), name="rankloop-clearing", daemon=True).start()


def _clear(engine: Engine, name: str) -> None:
    try:
        rows = sum(
            in_batches(engine.writer, lambda c, limit: rankers.delete_remains(c, limit, name), lambda: engine.draining)
        )
        logger.info("ranker %s: what it left is deleted (%d rows)", name, rows)
    except (RankloopError, TimeoutError) as error:
        logger.warning("ranker %s: what it left will be deleted later: %s", name, error)


def set_learning(engine: Engine, name: str, learning: bool, if_match: str | None = None) -> RankerStatus:
    """Pause: feedback is still joined and kept, but not learned. Resume: what comes from now on is."""

    def look(row: rankers.Ranker | None) -> None:
        matches(required(engine, row, name), name, if_match)

    def change(connection: Connection, _: None) -> Done:
        rankers.set_learning(connection, name, learning)
        return Done(None, f"learning {'goes on' if learning else 'is paused'}")

    action = Action(engine, "resume" if learning else "pause", name, if_match)
    change_ranker(action, engine, name, look, change)
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
    if "init" not in spec.parameters and "@" not in spec.learner:
        with contextlib.suppress(InvalidParameter):  # it has no such parameter, or not with these others
            started = msgspec.structs.replace(spec, parameters={**spec.parameters, "init": "base"})
            models.make_learner(started)
            spec = started
    learner: Any = models.plain_learner(spec)
    parameters = {f.name: getattr(learner, f.name) for f in dataclasses.fields(learner) if f.init}
    plain = msgspec.json.decode(msgspec.json.encode(parameters))
    features = [declared.to_spec(one) for one in declarations(spec)]
    said = {"learner": registry.name_of(learner), "parameters": plain, "features": features}
    return msgspec.structs.replace(spec, **said, click_reward=spec.click_value)


# -- helpers -------------------------------------------------------------------------------------------------------


def _demotion(row: rankers.Ranker, demotions: dict[str, Evidence]) -> Evidence | None:
    """Why the guardrail has put a ranker into shadow, as long as it has one and is there."""
    return demotions.get(row.name) if row.spec.guardrail and row.spec.exposure == "shadow" else None


def _waits_for(live: LiveRanker | None) -> str | None:
    if live is None:
        return "this process has not loaded it yet, or cannot: its log says so"
    return None if live.compiled else COMPILING


def _origin(number: int, began: lineage.Generation, learned: int) -> Origin:
    return Origin(number, began.how, began.version, began.kept, began.created, max(0, learned - began.seq))


def _trouble(row: rankers.Ranker, live: LiveRanker | None, noted: tuple[int, str] | None) -> str | None:
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
        rows = rankers.list_rankers(connection)
        heads, opened = outcomes.log_offsets(connection), impressions.open_counts(connection)
        leases, snapshots = stored_leases.list_leases(connection), stored_snapshots.snapshot_positions(connection)
        demoted, began = experiments.demotions(connection), lineage.latest_generations(connection)
        trouble, now = quarantine.failure_texts(connection), engine.clock()
        events, sketches = stored_events.event_counts(connection, now), outcomes.reward_sketches(connection)
        wanted = [row for row in rows if names is None or row.name in names]
        used = any(row.spec.catalog for row in wanted)
        parts = stored_catalog.by_name(connection) if used else {}
        found = []
        for row in wanted:
            live = engine.rankers.get(row.name)
            snapshot = snapshots.get(row.name, (0, 0))[1]
            known = live.model.learned if live is not None and live.model is not None else 0
            fits = live is not None and live.row.generation == row.generation
            learned = max(known, snapshot) if fits else snapshot
            closed = heads.get(row.name, 0)
            found.append(
                RankerStatus(
                    name=row.name,
                    etag=etag(row),
                    spec=row.spec,
                    ready=live is not None and live.compiled,
                    waiting_for=_waits_for(live),
                    serving="live" if row.serving is None else f"v{row.serving}",
                    learning=row.learning,
                    closed_impressions=closed,
                    learned_impressions=learned,
                    unlearned_impressions=max(0, closed - learned),
                    model_impressions=began[row.name][1].outcomes(learned),
                    counter_impressions=None if (one := engine.rankers.counted.get(row.name)) is None else one.seq,
                    open_impressions=opened[row.name],
                    learner_process=leases.get(row.name, (None,))[0],
                    snapshot_impressions=snapshot,
                    created=row.created,
                    origin=_origin(*began[row.name], learned),
                    events=events.get(row.name) or EventCounts(),
                    reward_scale=current_scale(row.spec.reward, sketches.get(row.name)),
                    fallbacks=engine.metrics.counts("rank_fallbacks_total", "reason", ranker=row.name),
                    trouble=_trouble(row, live, trouble.get(row.name)),
                    model_age_seconds=None if live is None else live.age(now),
                    demoted=_demotion(row, demoted),
                    warnings=catalog_warnings(row.spec, parts),
                )
            )
        return found

    found = engine.database.read(read)
    if names and not found:
        raise unknown(engine, names[0])
    return found


# -- changes of a spec ---------------------------------------------------------------------------------------------


def merged_spec(present: Spec | None, changes: SpecChanges, renamed: Mapping[str, str]) -> Spec:
    """The spec after a request: what it leaves out keeps its value, and in a new ranker has its default.

    So do `parameters` that it leaves out, unless it names another learner, and `defaults` of features that stay.
    Where a reward is declared, or no longer, a click has its default value again.
    """
    given: dict[str, Any] = {
        name: value for name in Spec.__struct_fields__ if (value := getattr(changes, name)) is not msgspec.UNSET
    }
    if present is None:
        return Spec(**given)
    if given.get("learner", present.learner) != present.learner:
        present = msgspec.structs.replace(present, parameters={})
    if (present.reward is None) != (given.get("reward", present.reward) is None):
        present = msgspec.structs.replace(present, click_reward=None)
    if "parameters" in given:
        given["parameters"] = {**present.parameters, **given["parameters"]}
    if "features" in given and "defaults" not in given:
        there = {one if isinstance(one, str) else one.get("name") for one in given["features"]}
        known = {renamed.get(name, name): value for name, value in present.defaults.items()}
        given["defaults"] = {name: value for name, value in known.items() if name in there}
    return msgspec.structs.replace(present, **given)


def changed_fields(before: Spec, after: Spec) -> list[str]:
    """The fields that differ."""
    return [name for name in Spec.__struct_fields__ if getattr(before, name) != getattr(after, name)]


def state_change(before: Spec, after: Spec, renamed: Mapping[str, str]) -> RecordedChange | None:
    """The change of what learned states depend on; None if that stays."""
    old, new = (msgspec.to_builtins(fixed_part(one)) for one in (before, after))
    applied = _applied([one.name for one in declarations(before)], [one.name for one in declarations(after)], renamed)
    return None if old == new else RecordedChange(old, new, applied)


def describe_change(before: Spec, after: Spec, made: RecordedChange, learner: Learner) -> SpecChange:
    """What a request changed, for its answer; `learner` is the one that everything was carried over to."""
    old, new = ([one.name for one in declarations(spec)] for spec in (before, after))
    names = spec_changes.names_after(old, [made.renamed])
    carried = set(spec_changes.carried_features(made.before, made.after, made.renamed))
    plain = unwrapped(learner)
    rule: str | None = "everything: this learner does not use features"
    if plain.contextual:
        rule = plain.carries if isinstance(plain, Remaps) else None
        if made.before["normalization"] != made.after["normalization"]:
            rule = f"{rule}; {spec_changes.scaling_rule(made.before['normalization'], made.after['normalization'])}"
    return SpecChange(
        changed_fields(before, after),
        carried=[name for name in new if name in carried],
        renamed=made.renamed,
        added=[name for name in new if name not in carried],
        removed=[name for name, now in zip(old, names, strict=True) if now not in new],
        rule=rule,
    )


def _applied(before: list[str], after: list[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The renames that a change makes, by final names. What an earlier request made already is left out, so that the
    same request can be sent again."""
    final = {}
    for old, new in renamed.items():
        names = [old, new]
        while names[-1] in renamed and names[-1] not in names[:-1]:
            names.append(renamed[names[-1]])
        if names[-1] in names[:-1]:
            raise InvalidParameter(f"renamed goes in a circle at {old!r}; rename in two steps, over a third name")
        final[old] = next((name for name in names[1:] if name in after), new)
    applied = {old: new for old, new in final.items() if old in before}
    while done := [old for old, new in applied.items() if new in before and new not in applied]:
        for old in done:
            del applied[old]
    for old, new in final.items():
        if old in applied and new not in after:
            raise InvalidParameter(f"renamed says that {old!r} is {new!r} now, which is not among the features")
        if old not in before and new in after and new not in before and new not in applied.values():
            raise InvalidParameter(f"renamed has {old!r}, which is not a feature of the ranker; it has {before}")
    if len(set(applied.values())) < len(applied):
        raise InvalidParameter(f"renamed gives two features the same name: {dict(renamed)}")
    return applied
