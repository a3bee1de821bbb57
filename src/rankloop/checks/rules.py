"""The contract of a learner, rule by rule. The docstring is the rule; a broken one raises `AssertionError`.

The rules of `adopt` have a file of their own, `adoption.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from rankloop.checks.world import (
    WIDTH,
    Factory,
    assert_finite,
    docstrings,
    everything,
    learns_from_a_cut,
    one_round,
    relevant_items,
    same_impression,
    same_state,
    some_candidates,
    some_feedback,
    taught,
)
from rankloop.clicks.users import DependentClickUser
from rankloop.core import codec
from rankloop.core.capabilities import Remaps
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import DRAWN, clone, params
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.evaluation.metrics import ndcg

Check = Callable[[Factory], None]
CHECKS: list[Check] = []


def rule(function: Check) -> Check:
    """Make a function one of the checks."""
    CHECKS.append(function)
    return function


@rule
def ranking_is_a_permutation_prefix(factory: Factory) -> None:
    """A ranking is k different positions of the candidate list, with the ids and rows that stand there."""
    for learner in (factory(), taught(factory)):
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
def rank_is_pure(factory: Factory) -> None:
    """rank and best change nothing, so any number of impressions can be open."""
    for learner in (factory(), taught(factory)):
        before = everything(learner)
        learner.rank(some_candidates(1), 5, np.random.default_rng(1))
        learner.best(some_candidates(2), 5)
        changed = [name for name, value in everything(learner).items() if before.get(name) != value]
        assert not changed, f"{', '.join(changed)} changed while ranking"


@rule
def inputs_are_untouched(factory: Factory) -> None:
    """Candidates, impression and feedback are the same after a round as before; read-only arrays are accepted."""
    learner = taught(factory)
    candidates = some_candidates(3)
    for array in (candidates.items, candidates.features):
        if array is not None:
            array.flags.writeable = False
    before = candidates.features.tobytes() if candidates.features is not None else b""
    shown = learner.rank(candidates, 5, np.random.default_rng(3))
    frozen = codec.dump_impression(shown)
    feedback = some_feedback(learner, shown, 3)
    feedback.values.flags.writeable = False
    learner.learn(shown, feedback, np.random.default_rng(4))
    assert candidates.features is None or candidates.features.tobytes() == before, "the candidates' features changed"
    assert codec.dump_impression(shown) == frozen, "the impression changed while learning from it"


@rule
def same_rng_same_result(factory: Factory) -> None:
    """The same random numbers give the same list and the same state, bit for bit."""
    assert same_state(taught(factory), taught(factory)), "two runs with the same random numbers ended differently"
    learner = taught(factory)
    one, other = (learner.rank(some_candidates(5), 5, np.random.default_rng(5)) for _ in range(2))
    assert same_impression(one, other), "the same random numbers gave two different lists"


@rule
def cold_start(factory: Factory) -> None:
    """A learner that has seen nothing ranks."""
    assert factory().rank(some_candidates(0), 3, np.random.default_rng(0)).k == 3
    assert factory().best(some_candidates(0), 3).size == 3


@rule
def short_lists(factory: Factory) -> None:
    """One candidate is enough, and k beyond the list shows it all."""
    for learner in (factory(), taught(factory)):
        for n, k in ((1, 1), (1, 10), (3, 10)):
            shown = learner.rank(some_candidates(1, n), k, np.random.default_rng(1))
            assert shown.k == n, f"{n} candidates with k = {k} gave {shown.k} positions"
            assert learner.best(some_candidates(1, n), k).size == n
            learner.learn(shown, some_feedback(learner, shown, 1), np.random.default_rng(2))


@rule
def feedback_may_be_cut(factory: Factory) -> None:
    """Feedback on the first m positions only is taken, any m up to k; who wants `top` grades refuses fewer by name."""
    learner = factory()
    for m in range(6):
        shown = learner.rank(some_candidates(m), 5, np.random.default_rng(m))
        whole = some_feedback(learner, shown, m)
        learns_from_a_cut(learner, shown, Feedback(whole.kind, whole.values[:m]), np.random.default_rng(m))
    assert_finite(learner)


@rule
def all_or_nothing_clicked(factory: Factory) -> None:
    """No click, and a click on everything, teach without harm: the state stays finite."""
    learner = factory()
    for t in range(20):
        shown = learner.rank(some_candidates(t), 5, np.random.default_rng(t))
        learner.learn(shown, Feedback(learner.feedback, np.full(5, float(t % 2))), np.random.default_rng(t))
    assert_finite(learner)


@rule
def many_open_out_of_order(factory: Factory) -> None:
    """Feedback may come long after other lists were shown, in any order, or never."""
    learner = factory()
    open_ = [learner.rank(some_candidates(t), 5, np.random.default_rng(t)) for t in range(10)]
    for t in (7, 2, 9, 0, 4):
        learner.rank(some_candidates(50 + t), 5, np.random.default_rng(t))
        learner.learn(open_[t], some_feedback(learner, open_[t], t), np.random.default_rng(t))
    assert_finite(learner)


@rule
def impression_survives_the_codec(factory: Factory) -> None:
    """Learning from an impression that went through bytes gives the same state, bit for bit."""
    direct, stored = taught(factory), taught(factory)
    shown = direct.rank(some_candidates(8), 5, np.random.default_rng(8))
    feedback = some_feedback(direct, shown, 8)
    direct.learn(shown, feedback, np.random.default_rng(9))
    stored.learn(codec.load_impression(codec.dump_impression(shown)), feedback, np.random.default_rng(9))
    assert same_state(direct, stored), "what learn needs does not all travel with the impression"


@rule
def unseen_queries_and_items(factory: Factory) -> None:
    """Queries and ids never met before, integers or strings, are ranked and learned from."""
    learner = taught(factory)
    new = Candidates("never seen", np.array(["a", "b", "c"]), np.random.default_rng(0).random((3, WIDTH)))
    shown = learner.rank(new, 2, np.random.default_rng(0))
    learner.learn(shown, some_feedback(learner, shown, 0), np.random.default_rng(0))
    assert learner.best(new, 3).size == 3


@rule
def state_is_plain_arrays(factory: Factory) -> None:
    """The state is numbers, flags and strings in arrays, and a copy: changing it does not change the learner."""
    learner = taught(factory)
    state = learner.state()
    for name, array in state.items():
        assert isinstance(array, np.ndarray), f"state {name!r} is {type(array).__name__}, not an array"
        assert array.dtype.kind in "biufU", f"state {name!r} has type {array.dtype}"
        assert name.endswith("_"), f"state {name!r} must end in _: what is learned does"
        if array.dtype.kind == "f":
            array[...] = 1e9
    fresh = taught(factory)
    assert same_state(learner, fresh), "state() handed out the learner's own arrays"


@rule
def restore_is_bit_exact(factory: Factory) -> None:
    """Save, load and go on ends in the same bits as never having stopped."""
    unbroken, stopped = taught(factory), taught(factory)
    arrays, _ = codec.loads(codec.dumps(stopped.state()))
    resumed = factory()
    resumed.load(arrays)
    for t in range(100, 110):
        one_round(unbroken, t)
        one_round(resumed, t)
    assert same_state(unbroken, resumed), "a restored learner went another way than one never interrupted"


@rule
def a_change_of_features_keeps_the_rest(factory: Factory) -> None:
    """A learner with `remap` is the same after the identity, and ranks as before if a feature is added, or refuses."""
    changed, before = taught(factory), taught(factory)
    if not isinstance(changed, Remaps):
        return
    assert changed.carries, "carries is empty: say in one line what carries over to other features"
    changed.remap(FeatureMap.of(np.arange(WIDTH), WIDTH))
    assert same_state(changed, before), "remap changed something though all features stayed where they were"
    try:
        changed.remap(FeatureMap.of([*range(WIDTH), -1], WIDTH))
    except InvalidParameter:  # a learner may not be able to with these parameters
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
def load_is_all_or_nothing(factory: Factory) -> None:
    """A state that does not fit is refused and leaves the learner as it was."""
    learner, untouched = taught(factory), taught(factory)
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
            told = {name: (value.dtype.str, value.shape) for name, value in state.items()}
            raise AssertionError(f"a state of {told} was taken, though it does not fit")
        assert same_state(learner, untouched), "a refused state still changed the learner"


@rule
def clone_is_fresh(factory: Factory) -> None:
    """A clone has the same parameters and has learned nothing."""
    learner = taught(factory)
    copy = clone(learner)
    assert params(copy) == params(learner), "the clone has other parameters"
    assert same_state(copy, factory()), "the clone has learned something already"


@rule
def parameters_survive_json(factory: Factory) -> None:
    """Parameters go through JSON and make an equal learner."""
    learner = factory()
    again = type(learner)(**json.loads(json.dumps(params(learner))))
    assert again == learner, f"{again} != {learner}"


@rule
def memory_is_bounded(factory: Factory) -> None:
    """The state does not grow with the events seen; one that must says why in `grows`, and grows no faster."""
    learner = taught(factory, 60)
    early = sum(array.nbytes for array in learner.state().values())
    for t in range(60, 180):
        one_round(learner, t)
    late = sum(array.nbytes for array in learner.state().values())
    reason = getattr(learner, "grows", "")
    assert isinstance(reason, str), f"grows is {reason!r}; it is the reason why the state grows, or empty"
    if not reason:
        assert late <= early, (
            f"the state grew from {early} to {late} bytes in 120 events; bound it, or say why in an attribute `grows`"
        )
    # three times the events: three times the bytes, twice that where room is made ahead
    assert late <= 6 * early, f"the state grew from {early} to {late} bytes in 120 events, faster than they came"


@rule
def bad_input_is_named(factory: Factory) -> None:
    """NaN, wrong width, double ids, no items, k = 0, feedback too long, of the wrong kind or not a number: named."""
    learner = taught(factory)
    rng = np.random.default_rng(0)
    good = learner.rank(some_candidates(0), 5, rng)
    rows = np.random.default_rng(0).random((3, WIDTH))
    holed = rows.copy()
    holed[1, 2] = np.nan
    other = "grades" if learner.feedback == "clicks" else "clicks"
    kind = learner.feedback

    def teach(feedback: Feedback) -> Callable[[], Any]:
        return lambda: learner.learn(good, feedback, rng)

    cases: list[tuple[str, str, Callable[[], Any]]] = [
        ("NaN", "features[1, 2] is nan", lambda: learner.rank(Candidates("q", features=holed), 2, rng)),
        ("double ids", "twice", lambda: learner.rank(Candidates("q", [1, 1, 2], rows), 2, rng)),
        ("no items", "at least one", lambda: learner.rank(Candidates("q", []), 2, rng)),
        ("k = 0", "k is 0", lambda: learner.rank(some_candidates(0), 0, rng)),
        ("too long", "at most one value a slot", teach(Feedback(kind, np.ones(6)))),
        ("wrong kind", f"learns from {kind!r}", teach(Feedback(other, np.ones(5)))),  # type: ignore[arg-type]
        ("NaN feedback", "finite", teach(Feedback(kind, np.array([np.nan])))),
    ]
    if learner.contextual:
        narrow = Candidates("q", features=rows[:, :2])
        cases.append(("wrong width", f"learned with {WIDTH}", lambda: learner.rank(narrow, 2, rng)))
        cases.append(("no features", "needs features", lambda: learner.rank(Candidates("q", [1, 2]), 2, rng)))
    before = {name: value.tobytes() for name, value in learner.state().items()}
    for what, words, call in cases:
        try:
            call()
            message = None
        except InvalidInput as error:
            message = str(error)
        assert message is not None, f"{what} was accepted"
        assert words in message, f"{what}: the message {message!r} does not say {words!r}"
    after = {name: value.tobytes() for name, value in learner.state().items()}
    assert before == after, "bad input changed the learner"


@rule
def a_broken_impression_is_refused(factory: Factory) -> None:
    """An impression that is not whole (rows missing, NaN, a memo cut or lost) is named and changes nothing."""
    learner = taught(factory)
    shown = learner.rank(some_candidates(4), 5, np.random.default_rng(4))
    feedback = Feedback(learner.feedback, np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
    assert shown.features is not None
    broken = [
        shown._replace(items=shown.items[:3]),
        shown._replace(features=shown.features[:2]),
        shown._replace(features=np.full_like(shown.features, np.nan)),
    ]
    for name, array in shown.memo.items():
        if name in DRAWN:  # told to others: learn does not look at it
            continue
        broken.append(shown._replace(memo={key: value for key, value in shown.memo.items() if key != name}))
        broken.append(shown._replace(memo={**shown.memo, name: array[:0]}))
    before = {name: value.tobytes() for name, value in learner.state().items()}
    for impression in broken:
        try:
            learner.learn(impression, feedback, np.random.default_rng(5))
        except InvalidInput:
            continue
        raise AssertionError(f"learned from an impression that is not whole: {impression}")
    after = {name: value.tobytes() for name, value in learner.state().items()}
    assert before == after, "a broken impression changed the learner"


@rule
def it_is_documented(factory: Factory) -> None:
    """The docstring says what it does, explains every parameter and has a runnable example."""
    learner = factory()
    text = docstrings(learner)
    assert ">>>" in text, "the docstring has no example"
    for name in params(learner):
        entry = re.search(rf"^[\w, ]*\b{name}\b[\w, ]*$", text, re.MULTILINE)
        assert entry, f"the docstring does not explain parameter {name!r} under Parameters"


@rule
def beats_random(factory: Factory) -> None:
    """After 300 rounds with perfect users (1,200 a query if it knows only ids), its best lists clearly beat random."""
    rng = np.random.default_rng(11)
    truth = rng.normal(size=WIDTH)
    queries = [Candidates(f"q{i}", features=rng.random((10, WIDTH))) for i in range(40)]
    grades = [relevant_items(candidates, truth) for candidates in queries]
    learner, user = factory(), DependentClickUser.named("perfect", 1)
    # Who knows only ids learns nothing about one query from another.
    rounds, learned_from = (300, 30) if learner.contextual else (7_200, 6)
    for t in range(rounds):
        q = t % learned_from  # the last ten are held out
        shown = learner.rank(queries[q], 5, np.random.default_rng([1, t]))
        seen = grades[q][shown.order]
        clicks = user.react(seen, np.random.default_rng([2, t]))
        told = clicks if learner.feedback == "clicks" else Feedback.grades(seen.astype(np.float64))
        learner.learn(shown, told, np.random.default_rng([3, t]))
    held_out = range(30, 40) if learner.contextual else range(learned_from)
    learned = float(np.mean([ndcg(grades[q][learner.best(queries[q], 5)], 5, grades[q]) for q in held_out]))
    chance = float(np.mean([ndcg(grades[q][rng.permutation(10)[:5]], 5, grades[q]) for q in held_out]))
    assert learned > chance + 0.15, f"NDCG@5 {learned:.3f} against {chance:.3f} by chance"
