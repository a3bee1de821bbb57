"""The checks of the learner contract. A check's docstring is its rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import permutations
from math import exp
from typing import Any

import numpy as np

from rankloop.checks.helpers import (
    WIDTH,
    Factory,
    assert_finite,
    assert_rejected,
    assert_unchanged,
    fresh_and_trained,
    learn_partial,
    play_round,
    same_impression,
    same_state,
    snapshot,
    some_candidates,
    some_feedback,
    trained,
)
from rankloop.clicks.users import DependentClickUser
from rankloop.core import codec
from rankloop.core.capabilities import Propensity, Remaps, report_of
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import DRAWN, clone, params
from rankloop.core.types import Array, Candidates, Feedback, SparseRows
from rankloop.evaluation.metrics import ndcg

Check = Callable[[Factory], None]
CHECKS: list[Check] = []


def rule(function: Check) -> Check:
    """Add a function to the checks."""
    CHECKS.append(function)
    return function


# -- rank and best -------------------------------------------------------------------------------------------------


@rule
def rank_returns_distinct_positions(factory: Factory) -> None:
    """A ranking is k different positions of the candidate list, with the ids and rows at these positions."""
    for learner in fresh_and_trained(factory):
        for seed in range(5):
            candidates = some_candidates(seed)
            shown = learner.rank(candidates, 5, np.random.default_rng(seed))
            for order in (shown.order, learner.best(candidates, 5)):
                assert order.shape == (5,), f"order has shape {order.shape}, not (5,)"
                assert order.dtype.kind == "i", f"order has type {order.dtype}, not integers"
                assert len(set(order.tolist())) == 5, f"positions repeat in {order.tolist()}"
                assert order.min() >= 0, f"positions below 0 in {order.tolist()}"
                assert order.max() < candidates.n, f"positions out of range in {order.tolist()}"
            assert (shown.items == candidates.items[shown.order]).all(), "items are not those at the positions shown"
            if shown.features is not None and candidates.features is not None:
                assert (shown.features == candidates.features[shown.order]).all(), "features are not the rows shown"


@rule
def rank_changes_nothing(factory: Factory) -> None:
    """rank and best change nothing, so any number of impressions can be open."""
    for learner in fresh_and_trained(factory):
        before = snapshot(learner)
        learner.rank(some_candidates(1), 5, np.random.default_rng(1))
        learner.best(some_candidates(2), 5)
        assert_unchanged(learner, before, "ranking")


@rule
def inputs_are_not_modified(factory: Factory) -> None:
    """Candidates, impression and feedback are the same after a round as before; read-only arrays are accepted."""
    learner, candidates = trained(factory), some_candidates(3)
    for array in (candidates.items, candidates.features):
        array.flags.writeable = False
    shown = learner.rank(candidates, 5, np.random.default_rng(3))
    before = codec.dump_impression(shown)
    feedback = some_feedback(learner, shown, 3)
    feedback.values.flags.writeable = False
    learner.learn(shown, feedback, np.random.default_rng(4))
    assert codec.dump_impression(shown) == before, "the impression changed while learning from it"


@rule
def results_depend_only_on_inputs(factory: Factory) -> None:
    """The same random numbers give the same list and the same state, bit for bit."""
    assert same_state(trained(factory), trained(factory)), "two runs with the same random numbers ended differently"
    learner = trained(factory)
    one, other = (learner.rank(some_candidates(5), 5, np.random.default_rng(5)) for _ in range(2))
    assert same_impression(one, other), "the same random numbers gave two different lists"


@rule
def short_lists(factory: Factory) -> None:
    """One candidate is enough, and k beyond the list shows all of it."""
    for learner in fresh_and_trained(factory):
        for n, k in ((1, 1), (1, 10), (3, 10)):
            shown = learner.rank(some_candidates(1, n), k, np.random.default_rng(1))
            assert shown.k == n, f"{n} candidates with k = {k} gave {shown.k} positions"
            assert learner.best(some_candidates(1, n), k).size == n
            learner.learn(shown, some_feedback(learner, shown, 1), np.random.default_rng(2))


@rule
def propensities_are_probabilities(factory: Factory) -> None:
    """A `log_propensity` in a memo is a list's probability: those of all lists sum to 1, adopted lists have none."""
    for learner in fresh_and_trained(factory):
        for n, k in ((4, 3), (3, 3), (1, 1)):
            candidates = some_candidates(n, n)
            shown = learner.rank(candidates, k, np.random.default_rng(n))
            assert "log_propensity" not in learner.adopt(candidates, shown.order).memo, "an adopted list was not drawn"
            noted = shown.memo.get("log_propensity")
            assert noted is None or (noted.shape == (1,) and -np.inf < noted[0] <= 1e-12), f"log_propensity is {noted}"
            if not isinstance(learner, Propensity):
                continue
            before = snapshot(learner)
            lists = [np.array(order) for order in permutations(range(n), k)]
            total = sum(exp(learner.log_propensity(candidates, order)) for order in lists)
            assert abs(total - 1.0) < 1e-9, f"the probabilities of all lists sum to {total}, not 1"
            assert noted is not None, "rank leaves log_propensity out of the memo"
            assert shown.memo["candidates"].tolist() == [n], "the memo does not have the number of candidates"
            own = learner.log_propensity(candidates, shown.order)
            assert abs(own - noted[0]) < 1e-9, f"the memo has {noted[0]}, log_propensity returns {own}"
            assert_unchanged(learner, before, "log_propensity")


# -- learn ---------------------------------------------------------------------------------------------------------


@rule
def learns_from_partial_feedback(factory: Factory) -> None:
    """Feedback on the first m positions is accepted, any m up to k; a learner with `top` grades rejects fewer."""
    learner = factory()
    for m in range(6):
        shown = learner.rank(some_candidates(m), 5, np.random.default_rng(m))
        learn_partial(learner, shown, some_feedback(learner, shown, m), m, np.random.default_rng(m))
    assert_finite(learner)


@rule
def learns_from_no_clicks_and_all_clicks(factory: Factory) -> None:
    """No click, and a click on everything, leave the state finite."""
    learner = factory()
    for t in range(20):
        shown = learner.rank(some_candidates(t), 5, np.random.default_rng(t))
        learner.learn(shown, Feedback(learner.feedback, np.full(5, float(t % 2))), np.random.default_rng(t))
    assert_finite(learner)


@rule
def learns_out_of_order(factory: Factory) -> None:
    """Feedback may come long after other lists were shown, in any order, or never."""
    learner = factory()
    open_ = [learner.rank(some_candidates(t), 5, np.random.default_rng(t)) for t in range(10)]
    for t in (7, 2, 9, 0, 4):
        learner.rank(some_candidates(50 + t), 5, np.random.default_rng(t))
        learner.learn(open_[t], some_feedback(learner, open_[t], t), np.random.default_rng(t))
    assert_finite(learner)


@rule
def learns_from_a_stored_impression(factory: Factory) -> None:
    """Learning from an impression that was serialized gives the same state, bit for bit."""
    direct, stored = trained(factory), trained(factory)
    shown = direct.rank(some_candidates(8), 5, np.random.default_rng(8))
    feedback = some_feedback(direct, shown, 8)
    direct.learn(shown, feedback, np.random.default_rng(9))
    stored.learn(codec.load_impression(codec.dump_impression(shown)), feedback, np.random.default_rng(9))
    assert same_state(direct, stored), "the impression does not contain everything that learn needs"


@rule
def learns_from_new_queries_and_items(factory: Factory) -> None:
    """Queries and ids that are new, integers or strings, are ranked and learned from."""
    learner = trained(factory)
    new = Candidates("never seen", np.array(["a", "b", "c"]), np.random.default_rng(0).random((3, WIDTH)))
    shown = learner.rank(new, 2, np.random.default_rng(0))
    learner.learn(shown, some_feedback(learner, shown, 0), np.random.default_rng(0))
    assert learner.best(new, 3).size == 3


@rule
def beats_random(factory: Factory) -> None:
    """After 300 rounds with perfect users (1,200 per query without features), its best lists clearly beat random."""
    rng = np.random.default_rng(11)
    truth = rng.normal(size=WIDTH)
    features = [rng.random((10, WIDTH)) for _ in range(40)]
    queries = [Candidates(f"q{i}", features=rows) for i, rows in enumerate(features)]
    grades = [np.asarray(rows @ truth >= np.sort(rows @ truth)[-3], dtype=np.int64) for rows in features]
    learner, user = factory(), DependentClickUser.named("perfect", 1)
    rounds, learned_from = (300, 30) if learner.contextual else (7_200, 6)
    for t in range(rounds):
        q = t % learned_from  # the last ten are held out
        shown = learner.rank(queries[q], 5, np.random.default_rng([1, t]))
        seen = grades[q][shown.order]
        clicks = user.react(seen, np.random.default_rng([2, t]))
        feedback = clicks if learner.feedback == "clicks" else Feedback.grades(seen.astype(np.float64))
        learner.learn(shown, feedback, np.random.default_rng([3, t]))
    held_out = range(30, 40) if learner.contextual else range(learned_from)
    learned = float(np.mean([ndcg(grades[q][learner.best(queries[q], 5)], 5, grades[q]) for q in held_out]))
    chance = float(np.mean([ndcg(grades[q][rng.permutation(10)[:5]], 5, grades[q]) for q in held_out]))
    assert learned > chance + 0.15, f"NDCG@5 {learned:.3f} against {chance:.3f} by chance"


# -- state and parameters ------------------------------------------------------------------------------------------


@rule
def state_is_plain_arrays(factory: Factory) -> None:
    """The state is numbers, flags and strings in arrays, and a copy: changing it does not change the learner."""
    learner = trained(factory)
    for name, array in learner.state().items():
        assert isinstance(array, np.ndarray), f"state {name!r} is {type(array).__name__}, not an array"
        assert array.dtype.kind in "biufU", f"state {name!r} has type {array.dtype}"
        assert name.endswith("_"), f"the name of state {name!r} must end in _"
        if array.dtype.kind == "f":
            array[...] = 1e9
    assert same_state(learner, trained(factory)), "state() returned the learner's own arrays"


@rule
def restored_learner_continues_bit_exactly(factory: Factory) -> None:
    """Save, load and continue ends in the same bits as never having stopped."""
    unbroken, stopped = trained(factory), trained(factory)
    arrays, _ = codec.loads(codec.dumps(stopped.state()))
    resumed = factory()
    resumed.load(arrays)
    for t in range(100, 110):
        play_round(unbroken, t)
        play_round(resumed, t)
    assert same_state(unbroken, resumed), "a restored learner differs from one never interrupted"


@rule
def load_rejects_invalid_state(factory: Factory) -> None:
    """A state that does not fit is rejected and leaves the learner as it was."""
    learner, untouched = trained(factory), trained(factory)
    good = learner.state()
    wrong: list[dict[str, Array]] = [{**good, "stranger_": np.zeros(1)}]
    for name, array in good.items():
        wrong.append({key: value for key, value in good.items() if key != name})
        wrong.append({**good, name: np.array(["x"])})
        wrong.append({**good, name: np.zeros((2, 3, 4), array.dtype)})
        if array.dtype == np.float64:
            wrong.append({**good, name: array.astype(np.float32)})
        if array.dtype.kind == "f" and array.size:
            wrong.append({**good, name: np.full(array.shape, np.nan)})
    for state in wrong:
        try:
            learner.load(state)
        except InvalidInput:
            pass
        else:
            shapes = {name: (value.dtype.str, value.shape) for name, value in state.items()}
            raise AssertionError(f"a state of {shapes} was accepted, though it does not fit")
        assert same_state(learner, untouched), "a rejected state changed the learner"


@rule
def state_size_is_bounded(factory: Factory) -> None:
    """The state does not grow with the events; a learner whose state does says why in `grows`, and grows no faster."""
    learner = trained(factory, 60)
    early = sum(array.nbytes for array in learner.state().values())
    for t in range(60, 180):
        play_round(learner, t)
    late = sum(array.nbytes for array in learner.state().values())
    reason = report_of(learner).grows
    assert isinstance(reason, str), f"grows is {reason!r}; it is the reason why the state grows, or empty"
    if not reason:
        assert late <= early, (
            f"the state grew from {early} to {late} bytes in 120 events; bound it, or say why in `Report.grows`"
        )
    # three times the events: three times the bytes, twice that where arrays double
    assert late <= 6 * early, f"the state grew from {early} to {late} bytes in 120 events, faster than they came"


@rule
def clone_has_learned_nothing(factory: Factory) -> None:
    """A clone has the same parameters and has learned nothing."""
    learner = trained(factory)
    copy = clone(learner)
    assert params(copy) == params(learner), "the clone has other parameters"
    assert same_state(copy, factory()), "the clone has learned something already"


@rule
def parameters_are_json(factory: Factory) -> None:
    """Parameters can be written as JSON, and make an equal learner."""
    learner = factory()
    again = type(learner)(**json.loads(json.dumps(params(learner))))
    assert again == learner, f"{again} != {learner}"


@rule
def parameters_are_documented(factory: Factory) -> None:
    """The docstring explains every parameter and has a runnable example."""
    learner = factory()
    text = "\n".join(cls.__doc__ or "" for cls in type(learner).__mro__[:-1])
    assert ">>>" in text, "the docstring has no example"
    for name in params(learner):
        entry = re.search(rf"^[\w, ]*\b{name}\b[\w, ]*$", text, re.MULTILINE)
        assert entry, f"the docstring does not explain parameter {name!r} under Parameters"


# -- features ------------------------------------------------------------------------------------------------------


@rule
def remap_keeps_what_was_learned(factory: Factory) -> None:
    """A learner with `remap` is the same after the identity, and ranks as before if a feature is added, or refuses."""
    changed, before = trained(factory), trained(factory)
    if not isinstance(changed, Remaps):
        return
    assert changed.carries, "carries is empty: say in one line what carries over to other features"
    changed.remap(FeatureMap.of(np.arange(WIDTH), WIDTH))
    assert same_state(changed, before), "remap changed something though all features stayed where they were"
    try:
        changed.remap(FeatureMap.of([*range(WIDTH), -1], WIDTH))
    except InvalidParameter:  # these parameters do not allow it
        assert same_state(changed, before), "remap refused and changed something"
        return
    again = factory()
    again.load(changed.state())
    assert same_state(again, changed), "the state after remap is not the one that load gives"
    candidates = some_candidates(3)
    rows = candidates.features
    assert isinstance(rows, np.ndarray)
    wider = Candidates(candidates.query, candidates.items, np.column_stack([rows, np.zeros(len(rows))]))
    found, expected = changed.best(wider, 5), before.best(candidates, 5)
    assert np.array_equal(found, expected), f"with a new feature the best are {found}, not {expected} as before"


@rule
def sparse_rows_equal_dense_rows(factory: Factory) -> None:
    """Sparse rows teach the same, bit for bit, as the same rows in a table, or are rejected, as `Report.sparse` has it.
    A learner that ranks by ids alone may take them either way."""
    one, other = trained(factory), trained(factory)
    for t in range(6):
        rng = np.random.default_rng(t)
        table = rng.random((12, WIDTH)) * (rng.random((12, WIDTH)) < 0.5)
        at, before = np.nonzero(table), snapshot(one)
        rows = SparseRows(np.concatenate(([0], np.cumsum(np.bincount(at[0], minlength=12)))), at[1], table[at], WIDTH)
        given, dense = Candidates("q", features=rows), Candidates("q", features=table)
        if one.contextual and not report_of(one).sparse:
            assert_rejected(one, "sparse rows", "sparse", partial(one.rank, given, 5, rng))
            return
        ranked = one.rank(given, 5, np.random.default_rng(t))
        assert isinstance(ranked.features, SparseRows), "the impression of sparse rows has dense ones"
        assert (ranked.features.dense() == table[ranked.order]).all(), "features are not the rows shown"
        assert_unchanged(one, before, "ranking sparse rows")
        same = other.rank(dense, 5, np.random.default_rng(t))
        assert (ranked.order == same.order).all(), "the list differs from that of the same rows as a table"
        assert (one.best(given, 5) == other.best(dense, 5)).all(), "best differs from that of the rows as a table"
        if t % 2:
            ranked, same = one.adopt(given, ranked.order), other.adopt(dense, same.order)
        shown, feedback = codec.load_impression(codec.dump_impression(ranked)), some_feedback(one, ranked, t)
        one.learn(shown, feedback, np.random.default_rng(t))
        other.learn(same, feedback, np.random.default_rng(t))
    assert same_state(one, other), "sparse rows gave another state than the same rows as a table"


# -- invalid input -------------------------------------------------------------------------------------------------


@rule
def invalid_input_is_rejected(factory: Factory) -> None:
    """NaN, wrong width, duplicate ids, no items, k = 0, feedback too long, of the wrong kind or not a number."""
    learner, rng = trained(factory), np.random.default_rng(0)
    shown = learner.rank(some_candidates(0), 5, rng)
    rows = np.random.default_rng(0).random((3, WIDTH))
    with_nan = rows.copy()
    with_nan[1, 2] = np.nan
    kind = learner.feedback
    other = "grades" if kind == "clicks" else "clicks"

    def ranked(*candidates: Any, k: int = 2) -> Callable[[], Any]:
        return lambda: learner.rank(Candidates(*candidates), k, rng)

    def taught(kind: Any, values: Any) -> Callable[[], Any]:
        return lambda: learner.learn(shown, Feedback(kind, np.asarray(values)), rng)

    cases: list[tuple[str, str, Callable[[], Any]]] = [
        ("NaN", "features[1, 2] is nan", ranked("q", None, with_nan)),
        ("duplicate ids", "twice", ranked("q", [1, 1, 2], rows)),
        ("no items", "at least one", ranked("q", [])),
        ("k = 0", "k is 0", ranked("q", None, rows, k=0)),
        ("too much feedback", "at most one value a slot", taught(kind, np.ones(6))),
        ("the wrong kind of feedback", f"learns from {kind!r}", taught(other, np.ones(5))),
        ("NaN feedback", "finite", taught(kind, [np.nan])),
    ]
    if learner.contextual:
        cases.append(("wrong width", f"learned with {WIDTH}", ranked("q", None, rows[:, :2])))
        cases.append(("no features", "needs features", ranked("q", [1, 2])))
    for what, text, call in cases:
        assert_rejected(learner, what, text, call)


@rule
def invalid_impression_is_rejected(factory: Factory) -> None:
    """An impression that is incomplete (rows missing, NaN, a memo cut or lost) is rejected and changes nothing."""
    learner, rng = trained(factory), np.random.default_rng(5)
    shown = learner.rank(some_candidates(4), 5, np.random.default_rng(4))
    feedback = Feedback(learner.feedback, np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
    assert shown.features is not None
    broken = [
        shown._replace(items=shown.items[:3]),
        shown._replace(features=shown.features[:2]),
        shown._replace(features=np.full_like(shown.features, np.nan)),
    ]
    for name in shown.memo.keys() - DRAWN:
        broken.append(shown._replace(memo={key: value for key, value in shown.memo.items() if key != name}))
        broken.append(shown._replace(memo={**shown.memo, name: shown.memo[name][:0]}))
    for one in broken:
        assert_rejected(learner, "an incomplete impression", "", partial(learner.learn, one, feedback, rng))


# -- adopt ---------------------------------------------------------------------------------------------------------


def an_order(seed: int, k: int = 5, n: int = 12) -> Array:
    """k of n positions in a random order; seed 0 is the baseline ranking, which shadow mode shows."""
    return np.random.default_rng(seed).permutation(n)[:k] if seed else np.arange(k)


@rule
def adopt_shows_the_given_order(factory: Factory) -> None:
    """adopt shows exactly the order it is given, with the query and copies of the ids and rows at these positions."""
    for learner in fresh_and_trained(factory):
        for seed, k in ((0, 5), (1, 5), (2, 1), (3, 12)):
            candidates, order = some_candidates(seed), an_order(seed, k)
            assert candidates.features is not None
            shown = learner.adopt(candidates, order)
            assert shown.order.dtype == np.int64, f"order has type {shown.order.dtype}, not int64"
            assert shown.order.tolist() == order.tolist(), f"{shown.order.tolist()} shown, not {order.tolist()}"
            assert shown.query == candidates.query, f"query {shown.query!r} shown, not {candidates.query!r}"
            assert (shown.items == candidates.items[order]).all(), "items are not those at the given positions"
            if shown.features is not None:
                assert (shown.features == candidates.features[order]).all(), "features are not the rows shown"
                assert not np.shares_memory(shown.features, candidates.features), "features are not copied"
            assert not np.shares_memory(shown.order, order), "the order is not copied: it may change before learn"


@rule
def adopt_changes_nothing(factory: Factory) -> None:
    """adopt changes neither the learner nor its arguments, and gives the same impression every time."""
    for learner in fresh_and_trained(factory):
        candidates, order = some_candidates(1), an_order(1)
        for array in (candidates.items, candidates.features, order):
            array.flags.writeable = False
        before = snapshot(learner)
        one, other = (learner.adopt(candidates, order) for _ in range(2))
        assert_unchanged(learner, before, "adopt")
        assert same_impression(one, other), "the same order gave two different impressions"


@rule
def learns_from_adopted_rankings(factory: Factory) -> None:
    """A serialized adopted impression is learned from, with feedback on any number of positions."""
    for learner in fresh_and_trained(factory):
        for seed in range(3):
            for m in range(6):
                adopted = learner.adopt(some_candidates(seed), an_order(seed))
                shown = codec.load_impression(codec.dump_impression(adopted))
                whole = some_feedback(learner, shown, 10 * seed + m)
                learn_partial(learner, shown, whole, m, np.random.default_rng(m))
        assert_finite(learner)


@rule
def adopted_rankings_give_the_same_state(factory: Factory) -> None:
    """Two equal learners that adopt the same lists and get the same feedback end in the same bits."""
    for one, other in ((factory(), factory()), (trained(factory), trained(factory))):
        for t in range(8):
            for learner in (one, other):
                shown = learner.adopt(some_candidates(t), an_order(t))
                learner.learn(shown, some_feedback(learner, shown, t), np.random.default_rng(t))
        assert same_state(one, other), "the same adopted lists and feedback gave two different states"


@rule
def adopts_its_own_ranking(factory: Factory) -> None:
    """The list that rank made can be adopted and learned from, also after more learning."""
    for learner in fresh_and_trained(factory):
        for seed in range(5):
            candidates = some_candidates(seed)
            ranked = learner.rank(candidates, 5, np.random.default_rng(seed))
            learner.learn(ranked, some_feedback(learner, ranked, seed), np.random.default_rng(seed))
            shown = learner.adopt(candidates, ranked.order)
            assert (shown.items == ranked.items).all(), "the adopted list is not the one that was ranked"
            learner.learn(shown, some_feedback(learner, shown, seed), np.random.default_rng(seed))
        assert_finite(learner)


@rule
def invalid_order_is_rejected(factory: Factory) -> None:
    """An order that is empty, a table, not integers, too long, out of range or repeated; wrong or missing features."""
    learner = trained(factory)
    rows = np.random.default_rng(0).random((3, WIDTH))
    good = Candidates("q", features=rows)
    cases: list[tuple[str, str, Candidates, Any]] = [
        ("an empty order", "at least one position", good, np.zeros(0, np.int64)),
        ("a table", "shape (1, 2)", good, np.array([[0, 1]])),
        ("positions that are not whole", "whole numbers", good, np.array([0.0, 1.5])),
        ("flags", "whole numbers", good, np.array([True, False])),
        ("too many positions", "4 positions for 3 candidates", good, np.array([0, 1, 2, 0])),
        ("a position beyond the list", "order[1] is 3", good, np.array([0, 3])),
        ("a position below 0", "order[0] is -1", good, np.array([-1, 0])),
        ("a repeated position", "position 2 stands twice", good, np.array([2, 0, 2])),
    ]
    if learner.contextual:
        cases.append(("wrong width", f"learned with {WIDTH}", Candidates("q", features=rows[:, :2]), np.arange(2)))
        cases.append(("no features", "needs features", Candidates("q", [1, 2]), np.arange(2)))
    for what, text, candidates, order in cases:
        assert_rejected(learner, what, text, partial(learner.adopt, candidates, order))
