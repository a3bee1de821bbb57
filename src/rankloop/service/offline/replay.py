"""Rebuild from the log what a ranker has learned, and compare the bits with what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from rankloop.core import codec
from rankloop.core.errors import InvalidParameter, RankloopError, UnknownName
from rankloop.core.learner import Learner
from rankloop.features.declarations import Sent
from rankloop.integrations.export import Engine, Exported, export
from rankloop.service.errors import UnknownVersion
from rankloop.service.offline.log_source import RankerView, open_log_source
from rankloop.service.ranking import model as models
from rankloop.service.ranking import spec_changes
from rankloop.service.ranking.feature_spec import column_names, declarations, is_sparse, listed, width_of
from rankloop.service.storage import lineage, open_database, rankers, schema, snapshots
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.snapshots import StoredState
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.training.fold import Fold
from rankloop.wire.rankers import Spec

TELL = 100  # outcomes between two reports of progress
Progress = Callable[[int, int], None]  # how many outcomes are done, and of how many


class LogTruncated(RankloopError):
    """Outcomes that the fold needs are not in the log any more."""


class State(NamedTuple):
    """A state that is stored, and where in the log it belongs."""

    name: str  # "fresh", "v3", "snapshot"
    seq: int
    state: bytes


class _Expected(NamedTuple):
    """The same without its bytes, which may be hundreds of megabytes, of two dozen versions: a digest of them."""

    name: str
    seq: int
    digest: bytes


class Compared(NamedTuple):
    """A stored state that replay came past."""

    name: str
    seq: int
    equal: bool


class Rebuilt(NamedTuple):
    """What came of a replay."""

    learner: Learner
    seq: int  # outcomes 0 … seq-1 are behind it
    start: str  # the stored state it began with
    start_seq: int
    learned: int  # outcomes that were learned
    failed: int  # those that the learner refused, as it did when they came
    compared: list[Compared]
    note: str

    @property
    def equal(self) -> bool:
        """Whether all stored states on the way were met bit for bit."""
        return all(one.equal for one in self.compared)


@contextmanager
def open_store(url: str) -> Iterator[Database]:
    """A store to look at; it must be there, and is not changed."""
    database = open_database(url)
    if isinstance(database, SQLite) and not Path(database.path).is_file():
        raise InvalidParameter(f"there is no store at {database.path}; give the file or URL that `rankloop serve` has")
    try:
        schema.require_current(database)
        yield database
    finally:
        database.close()


def rebuild(
    source: Database | Path,
    name: str,
    version: int | None = None,
    at: int | None = None,
    start: int | None = None,
    on_progress: Progress | None = None,
) -> Rebuilt:
    """Rebuild a version, or the state after `at` outcomes, or (neither) the newest; from a store, or from a folder that
    `rankloop export-log` wrote.

    From where its fold began, or from version `start`. Where outcomes in between are gone (retention, users who were
    erased), from the first state kept after them.
    """
    past = open_log_source(source)
    row = past.ranker(name)
    plan = past.look(name, lambda view: _plan(view, row, version, at, start))
    spec, changes = plan.spec, plan.changes
    learner = models.load_learner(spec, plan.start.state, f"{plan.start.name} of ranker {name!r}", changes)
    fold = Fold(row._replace(spec=spec), learner, plan.start.seq, changes=changes)
    learned = failed = 0
    compared = []
    waiting = list(plan.on_the_way)

    def compare() -> None:
        while waiting and waiting[0].seq == fold.learned:
            kept = waiting.pop(0)
            compared.append(Compared(kept.name, kept.seq, _digest(fold.state()[1]) == kept.digest))

    compare()
    total = plan.end - plan.start.seq
    for outcome in past.outcomes(name, plan.start.seq, plan.end):
        if outcome.seq != fold.learned:
            break
        if plan.epoch is not None and outcome.epoch != plan.epoch:
            outcome = outcome._replace(learn=False)
        try:
            learned += fold.learn(outcome)
        except MemoryError:
            raise
        except (Exception, SystemExit):  # the service passed it over, too
            failed += 1
        compare()
        if on_progress and (fold.learned - plan.start.seq) % TELL == 0:
            on_progress(fold.learned - plan.start.seq, total)
    if fold.learned < plan.end:
        raise LogTruncated(f"outcome {fold.learned:,} of ranker {name!r} was deleted meanwhile; start again")
    return Rebuilt(fold.learner, fold.learned, plan.start.name, plan.start.seq, learned, failed, compared, plan.note)


# -- from where to where -------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    start: State
    epoch: int | None  # learn outcomes of this one only; None: where learning began says it
    end: int
    on_the_way: list[_Expected]  # to compare with, in the order of the log
    note: str
    spec: Spec  # of the generation
    changes: list[RecordedChange]  # of the ranker's spec up to it


def _plan(view: RankerView, row: rankers.Ranker, version: int | None, at: int | None, start: int | None) -> _Plan:
    if version is not None and at is not None:
        raise InvalidParameter("give a version or a point of the log, not both")
    head, stored, note, epoch = view.head(), view.stored(), "", None
    origins = [one for one in stored if one.kind == "origin"]
    if not origins:
        note = "an earlier release made this ranker and did not note where learning began: taken as fresh at 0"
        origins, epoch = [StoredState("origin", 0, row.generation, row.epoch)], row.epoch
    known = {one.version: one for one in stored if one.kind == "version"}
    for number in (version, start):
        if number is not None and number not in known:
            has = ", ".join(map(str, known)) or "none"
            raise UnknownName(f"ranker {row.name!r} has no version {number}; it has {has}")

    if version is not None:
        wanted = known[version].generation
        origin = next((one for one in origins if one.generation == wanted), origins[0])
        end = known[version].seq
    else:
        if at is not None and not 0 <= at <= head:
            raise InvalidParameter(f"at is {at}; ranker {row.name!r} has outcomes 0 to {head}: give one of these")
        end = head if at is None else at
        origin = [one for one in origins if one.seq <= end or one is origins[0]][-1]

    first = "fresh" if origin is origins[0] or origin.epoch != origins[origins.index(origin) - 1].epoch else "rollback"
    changes = [one for one in view.changes() if one.generation <= (origin.generation or 0)]
    if changes and changes[-1].generation == origin.generation and not _fresh(changes[-1]):
        first = "changed"
    ours = [one for one in stored if one.kind != "origin" and origin.seq <= one.seq <= end]
    ours = [one for one in ours if one.generation == origin.generation or one.generation is None]
    states = [_Point(first, origin), *(_Point(_name(one), one) for one in sorted(ours, key=lambda one: one.seq))]
    begin = states[0]
    if start is not None:
        begin = next((one for one in states if one.name == f"v{start}"), begin)
        if begin.name != f"v{start}":
            raise InvalidParameter(
                f"version {start} does not lie before what is to be rebuilt, or another fold made it"
            )
    elif view.logged(origin.seq, end) < end - origin.seq:
        earlier = [one for one in states if version is None or one.seq < end]
        begin, gone = _after_the_gap(view, row.name, earlier, end)
        note = f"outcomes before {gone:,} are not all in the log any more: begun with {begin.name}"
    later = [one for one in states if one.seq >= begin.seq and one is not begin]

    def state(one: StoredState) -> bytes:
        return view.state(one) if one in stored else models.fresh_state(row.spec)

    # What a generation began with may be a state from before a change of the spec: it is stored as it was then.
    began = State(begin.name, begin.seq, state(begin.one))
    spec = _with(row.spec, changes[-1].after, first) if changes else spec_of(row.spec, began)
    met = [_Expected(p.name, p.seq, _digest(models.carried_bytes(spec, state(p.one), p.name, changes))) for p in later]
    return _Plan(began, epoch, end, met, note, spec, changes)


class _Point(NamedTuple):
    name: str
    one: StoredState

    @property
    def seq(self) -> int:
        return self.one.seq


def _fresh(change: RecordedChange) -> bool:
    """Whether nothing carried over a change of the spec."""
    return bool(spec_changes.differences(change.before, change.after))


def _name(one: StoredState) -> str:
    return "snapshot" if one.kind == "snapshot" else f"v{one.version}"


def _digest(state: bytes) -> bytes:
    return blake2b(state).digest()


def _after_the_gap(view: RankerView, name: str, states: list[_Point], end: int) -> tuple[_Point, int]:
    """The first state from which on nothing is missing in the log, and where what is there without a gap begins."""
    low, high = states[0].seq, end  # the log is whole from `high` on, not from `low` on
    while high - low > 1:
        middle = (low + high) // 2
        if view.logged(middle, end) == end - middle:
            high = middle
        else:
            low = middle
    for state in states:
        if state.seq >= high:
            return state, high
    raise LogTruncated(
        f"outcomes before {high:,} of ranker {name!r} are gone (retention, or users who were erased), and no version "
        f"between there and {end:,} was kept: there is nothing to begin with. A kept version can be had as it is: "
        "name it as the one to begin with"
    )


def spec_of(spec: Spec, start: State) -> Spec:
    """The spec that a state is of: learner, features and what else it hangs on may have changed at a reset."""
    _, meta = codec.loads(start.state, start.name)
    return _with(spec, models.stored_part(meta) or {}, start.name)


def served_spec(spec: Spec, start: State) -> Spec:
    """The spec that a state is served with: the present one if the state carries over to it, else its own."""
    own = spec_of(spec, start)
    before, after = (msgspec.to_builtins(models.fixed_part(one)) for one in (own, spec))
    return own if spec_changes.differences(before, after) else spec


def _with(spec: Spec, fixed: Mapping[str, Any], name: str) -> Spec:
    if "learner" not in fixed:
        raise RankloopError(f"{name} does not say which spec it belongs to")
    try:
        return msgspec.convert({**msgspec.to_builtins(spec), "width": 0, **fixed}, Spec)
    except msgspec.ValidationError as error:
        raise RankloopError(f"{name} belongs to a spec that cannot be read ({error})") from None


VersionChoice = int | Literal["live"] | None


def export_ranker(database: Database, row: rankers.Ranker, to: Engine, version: VersionChoice = None) -> Exported:
    """A version, or what is learned, as the last snapshot has it ("live"); None: what is served.

    The model is called after the ranker and the version: `shop-v3`, `shop-live-1200` after as many outcomes.
    """
    found, changes = database.read(lambda c: (_state(c, row, version), lineage.spec_changes(c, row.name)))
    spec = served_spec(row.spec, found)
    learner = models.load_learner(spec, found.state, f"{found.name} of ranker {row.name!r}", changes)
    normalization: Literal["query-minmax", "none"] = "none" if spec.normalization == "none" else "query-minmax"
    if is_sparse(spec) and (spec.width or to != "json"):
        rather = "which have no names" if spec.width else "more than an engine takes; export it to json"
        raise InvalidParameter(
            f"ranker {row.name!r} has {width_of(spec):,} hashed columns, {rather}. For an engine, make a ranker of "
            "features that the engine computes"
        )
    names = list(column_names(spec))
    computed = [one.name for one in declarations(spec) if not isinstance(one, Sent)]
    name = f"{row.name}-{found.name}"
    made = export(learner, names, to, name=name, normalization=normalization)
    if computed:
        made.notes.append(f"computed here from the catalog and the request, there by you: {listed(computed, 12)}")
    return made


def _state(connection: Connection, row: rankers.Ranker, version: VersionChoice) -> State:
    wanted = row.serving if version is None else version
    if wanted is None or wanted == "live":
        snapshot = snapshots.snapshot(connection, row.name)
        assert snapshot is not None  # every ranker has one from the start
        return State(f"live-{snapshot.seq}", snapshot.seq, snapshot.state)
    found = snapshots.version_state(connection, row.name, wanted)
    if found is None:
        has = ", ".join(str(one.version) for one in snapshots.versions(connection, row.name)) or "none"
        raise UnknownVersion(f"ranker {row.name!r} has no version {wanted}; it has {has}")
    return State(f"v{wanted}", *found)
