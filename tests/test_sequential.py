"""Confidence sequences: right at all times at once, narrower than the older ones, and as quick as predicted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array
from rankloop.evaluation.sequential import BETS, POINTS, ConfidenceSequence, samples_needed
from tests.reference import sequential as naive

Law = Callable[[np.random.Generator, int], Array]


def ternary(win: float, loss: float) -> Law:
    return lambda rng, n: rng.choice([1.0, 0.0, -1.0], size=n, p=[win, max(1.0 - win - loss, 0.0), loss])


def skewed(rng: np.random.Generator, n: int) -> Array:
    return np.where(rng.random(n) < 0.1, 0.93, -0.07)


def dependent(rng: np.random.Generator, n: int) -> Array:
    """Each value's size hangs on the one before; the mean given the past is .1 all the same."""
    found, size = np.empty(n), 0.9
    for i, up in enumerate(rng.random(n) < 0.5):
        found[i] = 0.1 + (size if up else -size)
        size = 0.1 if found[i] > 0.5 else 0.9
    return found


LAWS: dict[str, tuple[Law, float]] = {
    "even": (ternary(0.5, 0.5), 0.0),
    "seldom decided": (ternary(0.03, 0.01), 0.02),
    "one-sided": (ternary(0.2, 0.0), 0.2),
    "skewed": (skewed, 0.03),
    "uniform": (lambda rng, n: rng.uniform(-1, 1, n), 0.0),
    "never clicked": (ternary(0.0, 0.0), 0.0),
    "dependent": (dependent, 0.1),
}


def decided(watch: ConfidenceSequence, values: ArrayLike) -> int:
    """Add values; after how many of all that it has seen there was a verdict, or how many that are if there is none."""
    watch.add(values)
    return min((int(at) for at in watch.crossed_ if at), default=watch.n)


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_is_inside_at_all_times(law: str) -> None:
    """300 streams of 600, looked at after every value, alpha .2: a fixed-size interval would fail in most of them."""
    draw, mean = LAWS[law]
    rng, misses = np.random.default_rng(7), 0
    for _ in range(300):
        watch = ConfidenceSequence(0.2, against=mean)
        watch.add(draw(rng, 600))
        misses += watch.verdict != "undecided"
    assert misses <= 60  # Ville's inequality says 60 at most on average; its slack is what we rely on


@settings(max_examples=30)
@given(values=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=25))
def test_the_interval_is_the_plain_one(values: list[float]) -> None:
    watch = ConfidenceSequence(0.4)
    watch.add(values)
    low, high = watch.interval()
    plain = naive.interval(values, BETS.tolist(), 0.4)
    assert low == pytest.approx(plain[0], abs=1.1e-3)
    assert high == pytest.approx(plain[1], abs=1.1e-3)
    assert low <= watch.mean <= high


def test_portions_states_and_copies_do_not_matter() -> None:
    values = np.random.default_rng(5).uniform(-1, 1, 400)
    whole, parts = ConfidenceSequence(), ConfidenceSequence()
    whole.add(values)
    for portion in np.split(values, [1, 2, 100, 399]):
        parts.add(portion)
        again = ConfidenceSequence()
        again.load({name: array.tolist() for name, array in parts.state().items()})
        parts = again
    for name, array in whole.state().items():
        assert array.tobytes() == parts.state()[name].tobytes(), name
    assert (whole.n, whole.interval()) == (400, parts.interval())
    assert whole.mean == pytest.approx(values.mean())
    assert whole.variance == pytest.approx(values.var())
    copied = whole.state()
    copied["counts_"][:] = 0
    assert whole.counts_.sum() == pytest.approx(400)


def test_a_verdict_stays() -> None:
    watch = ConfidenceSequence()
    assert (watch.verdict, watch.interval(), watch.mean, watch.variance) == ("undecided", (-1.0, 1.0), 0.0, 0.0)
    assert decided(watch, [1.0] * 20) == 9
    assert watch.verdict == "above"
    watch.add([-1.0] * 500)
    assert watch.verdict == "above"  # it fell first
    assert watch.interval()[1] < 0.0
    assert watch.crossed_[0] == 9 < watch.crossed_[1]
    other = ConfidenceSequence()
    other.add([-1.0] * 20)
    assert other.verdict == "below"


@settings(max_examples=50)
@given(values=st.lists(st.floats(-1, 1), min_size=1, max_size=60), mean=st.floats(-0.9, 0.9))
def test_the_verdict_is_the_intervals(values: list[float], mean: float) -> None:
    """The first interval that does not hold `against` decides, and on which side it lies."""
    watch, looked = ConfidenceSequence(0.3, mean), ConfidenceSequence(0.3)
    watch.add(values)
    expected = "undecided"
    for value in values:
        looked.add(value)
        low, high = looked.interval()
        if expected == "undecided" and not low + 1e-9 < mean < high - 1e-9:
            expected = "above" if low > mean - 1e-6 else "below"
    assert watch.verdict == expected


@pytest.mark.parametrize(
    ("win", "loss", "power"), [(0.6, 0.4, 0.95), (0.2, 0.1, 0.95), (0.2, 0.1, 0.5), (0.9, 0.1, 0.95), (0.06, 0.03, 0.9)]
)
def test_as_many_as_predicted_are_enough(win: float, loss: float, power: float) -> None:
    """And not many times more than needed: with half of them, that power is clearly missed."""
    mean = win - loss
    needed = samples_needed(mean, win + loss - mean**2, power=power)
    assert needed is not None
    rng, runs = np.random.default_rng(6), 400
    within = half = 0
    for _ in range(runs):
        watch = ConfidenceSequence()
        taken = decided(watch, ternary(win, loss)(rng, needed))
        if watch.verdict == "above":
            within += 1
            half += taken <= needed // 2
    slack = 2.0 * np.sqrt(power * (1.0 - power) / runs)
    assert within / runs >= power - slack
    assert half / runs < power - slack


def test_bad_values_are_named() -> None:
    with pytest.raises(InvalidParameter, match="alpha is 0"):
        ConfidenceSequence(0)
    with pytest.raises(InvalidParameter, match=r"alpha is 1\.5"):
        ConfidenceSequence(1.5)
    with pytest.raises(InvalidParameter, match="against is -1"):
        ConfidenceSequence(against=-1)
    watch = ConfidenceSequence()
    for bad in ([1.5], [float("nan")], [[0.5]]):
        with pytest.raises(InvalidInput, match="from -1 to 1"):
            watch.add(bad)
    assert watch.n == 0
    with pytest.raises(InvalidInput, match="not that of a ConfidenceSequence"):
        watch.load({"counts_": np.zeros(POINTS)})
    for effect, variance in ((0.0, 0.5), (2.0, 0.5)):
        with pytest.raises(InvalidParameter, match="effect"):
            samples_needed(effect, variance)
    with pytest.raises(InvalidParameter, match="variance"):
        samples_needed(0.5, 0.9)
