"""Sizes learned over the stream, and learners behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop import checks
from rankloop.core import capabilities, codec, registry
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.scaling import WIDTH, StandardizedLearner, StreamScaler, standardized, unwrapped
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.scaling import list_moments
from tests.kernels.inputs import SEEDS
from tests.reference import scaling as naive

LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("pairrank", {}),
    ("pairrank-paper", {"pairs": "matched"}),
    ("hybrid", {"init": "base"}),
    ("adaptive", {"fast_forget": 0.9, "past_models": 1}),
    ("pdgd", {"rate": 0.5}),
    ("greedy", {"pairs": "matched"}),
    ("dbgd", {}),
]
NOT_OURS = {"parameters_are_json"}  # its one parameter is a learner, which `registry` writes by name


def sized(seed: int, d: int = 4) -> Array:
    """(d,) sizes from a thousandth to a million."""
    return 10.0 ** np.random.default_rng([seed, 1]).uniform(-3, 6, d)


def some_lists(seed: int, count: int, d: int = 4) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.random((int(rng.integers(2, 7)), d)) * sized(seed, d) + 3 * sized(seed, d) for _ in range(count)]


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_a_standardized_learner_keeps_the_contract(name: str, parameters: dict[str, Any]) -> None:
    for check in checks.CHECKS:
        if check.__name__ not in NOT_OURS:
            check(lambda: standardized(registry.make(name, **parameters)))


@given(count=st.integers(1, 20), seed=SEEDS)
def test_the_scale_in_use_is_that_of_the_last_power_of_two(count: int, seed: int) -> None:
    lists, scaler, steps = some_lists(seed, count), StreamScaler(), 0
    for rows in lists:
        before, scaler = scaler, scaler.updated(*list_moments(rows))
        steps += scaler.middle is not before.middle
    middle, spread = naive.Stream([rows.tolist() for rows in lists]).scale()
    np.testing.assert_allclose(scaler.middle, middle, rtol=1e-12)
    np.testing.assert_allclose(scaler.spread, spread, rtol=1e-12)
    assert steps == count.bit_length()


def test_values_are_cut_while_little_is_known() -> None:
    scaler, rows = StreamScaler(), np.array([[0.0], [1.0]])
    for lists in range(70):
        expected = 1.0 if lists == 0 else 3.0 if lists < 64 else 1999999.0  # standard deviations
        assert scaler.scaled(np.array([[1e6], [0.0]])).max() == pytest.approx(expected / WIDTH)
        scaler = scaler.updated(*list_moments(rows))


def taught(learner: Any, rounds: int, seed: int = 3, d: int = 4) -> Any:
    """After rounds with users who click what a hidden line likes."""
    sizes, taste = sized(seed, d), np.random.default_rng([seed, 2]).normal(size=d)
    for t in range(rounds):
        rng = np.random.default_rng([seed, 3, t])
        rows = rng.random((8, d))
        shown = learner.rank(Candidates(f"q{t % 5}", features=rows * sizes + 3 * sizes), 4, rng)
        best = shown.order[np.argmax((rows @ taste)[shown.order])]
        learner.learn(shown, Feedback.clicks((shown.order == best).astype(float)), rng)
    return learner


@pytest.mark.parametrize("name", ["pairrank", "hybrid", "adaptive", "pdgd", "greedy"])
def test_the_size_of_features_does_not_matter(name: str) -> None:
    """Features multiplied and moved by powers of two and small whole numbers give the same lists, bit for bit."""
    plain, other = (standardized(registry.make(name)) for _ in range(2))
    for t in range(40):
        rng = np.random.default_rng(t)
        rows = rng.integers(0, 64, (8, 3)) / 64.0
        lists = [Candidates("q", features=rows), Candidates("q", features=rows * [1024.0, 0.5, 8.0] + [4.0, 2.0, 8.0])]
        shown = [
            learner.rank(candidates, 4, np.random.default_rng([1, t]))
            for learner, candidates in zip((plain, other), lists, strict=True)
        ]
        assert shown[0].order.tolist() == shown[1].order.tolist()
        for learner, one in zip((plain, other), shown, strict=True):
            learner.learn(one, Feedback.clicks((rows[one.order, 0] > 0.7).astype(float)), np.random.default_rng([2, t]))
    np.testing.assert_allclose(plain.theta_, other.theta_, rtol=1e-9)


@pytest.mark.parametrize("name", ["pairrank", "hybrid?init=base", "adaptive", "pdgd", "greedy"])
def test_a_step_of_the_scale_leaves_the_order_as_it_was(name: str) -> None:
    """Weights are carried over, so that scores differ by what is the same for all documents of a list."""
    kind, parameters = registry.parse_learner(name)
    learner = taught(standardized(registry.make(kind, **parameters)), 70)
    rng = np.random.default_rng(9)
    candidates = Candidates("unseen", features=(rng.random((10, 4)) + 3) * sized(3))
    before, scaler = learner.score(candidates), learner.scaler
    after = scaler
    while after.middle is scaler.middle:
        after = after.updated(*list_moments(np.asarray(candidates.features) * rng.uniform(0.5, 2.0, 4)))
    growth = after.growth(scaler)
    assert growth is not None
    assert np.abs(growth - 1).max() > 0.01
    learner.inner.rescale(growth)
    learner.scaler = after
    moved = learner.score(candidates) - before
    np.testing.assert_allclose(moved, moved[0], atol=1e-9)


def test_an_error_changes_nothing() -> None:
    learner = taught(standardized(registry.make("pairrank")), 7)
    before = codec.dumps(learner.state())
    shown = learner.rank(Candidates("q", features=np.ones((3, 4))), 3, np.random.default_rng(0))
    for feedback in (Feedback.clicks([1, 2, 3, 4]), Feedback.grades([1])):
        with pytest.raises(InvalidInput):
            learner.learn(shown, feedback, np.random.default_rng(0))
    broken = shown._replace(features=np.full((3, 4), np.nan))
    with pytest.raises(InvalidInput, match="not finite"):
        learner.learn(broken, Feedback.clicks([1, 0, 0]), np.random.default_rng(0))
    assert codec.dumps(learner.state()) == before


def test_it_is_saved_and_goes_on_bit_for_bit() -> None:
    learner = taught(standardized(registry.make("hybrid", init="base")), 9)
    again = registry.loads(registry.dumps(learner))
    assert isinstance(again, StandardizedLearner)
    assert unwrapped(again) == unwrapped(learner)
    assert codec.dumps(taught(again, 9).state()) == codec.dumps(taught(learner, 9).state())


def test_it_tells_what_its_learner_tells() -> None:
    """Callers look at the class, so that it must have what the learner has, and nothing else."""
    every = [one for one in vars(capabilities).values() if getattr(one, "_is_runtime_protocol", False)]
    assert len(every) == 6
    for name in ("pairrank", "hybrid", "adaptive", "pdgd", "dbgd", "rtopk"):
        plain, learner = registry.make(name), standardized(registry.make(name))
        assert [isinstance(learner, one) for one in every] == [isinstance(plain, one) for one in every], name
        assert learner.feedback == plain.feedback


def test_a_copy_follows_by_parts() -> None:
    """A published copy ranks as the one that learns, also past a step of the scale."""
    learner, copy = (standardized(registry.make("hybrid")) for _ in range(2))
    candidates = Candidates("q1", features=(np.random.default_rng(1).random((6, 4)) + 3) * sized(3))
    for rounds in (1, 2, 5):
        taught(learner, rounds)
        copy.apply_delta(learner.state_delta(5))
        one, other = (side.rank(candidates, 6, np.random.default_rng(2)) for side in (learner, copy))
        assert codec.dump_impression(one) == codec.dump_impression(other)


def test_a_trained_learner_is_not_standardized() -> None:
    learner = taught(registry.make("pairrank"), 2)
    with pytest.raises(InvalidParameter, match="already learned"):
        standardized(learner)
