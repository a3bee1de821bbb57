"""Worlds that change: who gives which grades when, as a function of seed and round."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopError, UnknownName
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation.metrics import dcg
from rankloop.kernels.simulated_users import utilities
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.worlds.tastes import Tastes
from rankloop.lab.worlds.world import (
    Drift,
    Piecewise,
    Recurring,
    Round,
    Stationary,
    Swap,
    TasteWorld,
    World,
    change_points,
    open_world,
    parse_world,
)

TASTEFUL = ["piecewise?every=50", "drift?period=80", "recurring?every=30&tastes=3"]
EVERY = ["stationary", "swap", *TASTEFUL]


@pytest.fixture(scope="module")
def split() -> Split:
    return open_split("synthetic:mq2007?queries=60&vali=5&test=20")


def one_query(grades: list[int], highest: int = 0) -> Dataset:
    n = len(grades)
    return Dataset("one", np.eye(n), np.array(grades), np.array([0, n]), np.array(["a"]), scale=highest)


def rounds_of(world: World, rounds: int, seed: int = 0) -> list[Round]:
    streams = Rng(seed)
    return [world.at(t, streams.for_event("world", t)) for t in range(rounds)]


def histograms(grades: Array, offsets: Array) -> list[list[int]]:
    return [np.bincount(part, minlength=5).tolist() for part in np.split(grades, offsets[1:-1])]


# -- label swapping (paper 004) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grades", "highest", "swapped"),
    [
        ([0, 1, 1, 0, 0], 1, [1, 0, 0, 1, 1]),  # NP2003: y' = 1 - y
        ([0, 1, 2, 2, 0], 2, [0, 2, 1, 1, 0]),  # MQ2007, MQ2008: 0 stays
        ([0, 1, 2, 3, 4], 4, [0, 2, 1, 4, 3]),  # MSLR, Yahoo
        ([0, 1, 0, 1, 0], 4, [0, 2, 0, 2, 0]),  # a part without high grades is swapped by the scale of the whole set
        ([0, 1, 2, 3, 3], 3, [0, 2, 1, 3, 3]),  # no 4 to swap the 3 with
    ],
)
def test_swapping_by_hand(grades: list[int], highest: int, swapped: list[int]) -> None:
    data = one_query(grades, highest)
    (round_,) = rounds_of(Swap(data, k=3, probability=1.0), 1)
    assert round_.grades.tolist() == swapped
    assert round_.ideal == pytest.approx(dcg(sorted(swapped, reverse=True), 3))  # recomputed
    (round_,) = rounds_of(Swap(data, k=3, probability=0.0), 1)
    assert round_.grades.tolist() == grades == data.grades.tolist()  # and the data set itself is not touched
    assert round_.ideal == pytest.approx(dcg(sorted(grades, reverse=True), 3))


def test_all_documents_of_a_round_are_swapped_together_with_the_probability_asked_for(split: Split) -> None:
    rounds = rounds_of(Swap(split.train, probability=0.3), 20_000)
    data, swapped = split.train, 0
    where = {str(query): q for q, query in enumerate(data.queries)}
    for round_ in rounds:
        own = data.grades_of(where[round_.candidates.query])
        if (round_.grades != own).any():
            assert (round_.grades == np.array([0, 2, 1])[own]).all()
            swapped += 1
    relevant = np.mean([round_.ideal > 0 for round_ in rounds])  # a query of zeros only looks the same both ways
    assert swapped / len(rounds) == pytest.approx(0.3 * relevant, abs=4 * (0.21 / len(rounds)) ** 0.5)


def test_held_out_grades_under_swapping_are_those_of_most_rounds(split: Split) -> None:
    assert Swap(split.train).grades(split.test, 7) is split.test.grades
    swapped = Swap(split.train, probability=0.9).grades(split.test, 7)
    assert swapped.tolist() == np.array([0, 2, 1])[split.test.grades].tolist()


# -- tastes --------------------------------------------------------------------------------------------------------


def test_tastes_are_of_one_size_and_uncorrelated_with_those_before(split: Split) -> None:
    data = split.train
    means = np.add.reduceat(data.features, data.offsets[:-1]) / np.diff(data.offsets)[:, None]
    centred = data.features - np.repeat(means, np.diff(data.offsets), axis=0)
    for apart in (1, 3):
        tastes = Tastes(data, seed=4, apart=apart)
        liked = np.array([centred @ tastes[m] for m in range(6)])
        products = liked @ liked.T / len(data.grades)
        assert np.diag(products) == pytest.approx(np.ones(6))
        for distance in range(1, apart + 1):
            assert np.diag(products, distance) == pytest.approx(np.zeros(6 - distance), abs=1e-9)
    assert np.abs(np.diag(products, 4)).max() > 0.01  # further away, nothing is promised


def test_tastes_do_not_mind_the_scale_of_features(split: Split) -> None:
    """A feature measured in other units, or huge, is weighed so that the same documents are liked."""
    data, units = split.train, np.geomspace(1e-9, 1e90, split.train.width)
    scaled = Dataset("scaled", data.features * units, data.grades, data.offsets, data.queries)
    for t in (0, 60):
        own, other = (Piecewise(part, every=50).grades(part, t) for part in (data, scaled))
        assert (own == other).mean() > 0.999  # rounding may turn near ties


def test_features_that_say_nothing_within_queries_have_no_weight() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((40, 4))
    features[:, 1] = 7.0
    features[:, 2] = np.repeat(rng.random(8), 5)  # the same for all documents of a query
    data = Dataset("dull", features, np.zeros(40, int), np.arange(0, 41, 5), np.arange(8).astype(str))
    assert (Tastes(data, seed=0)[0] != 0).tolist() == [True, False, False, True]


def test_data_with_too_few_features_is_named() -> None:
    rng = np.random.default_rng(0)
    data = Dataset("flat", rng.random((40, 2)), np.zeros(40, int), np.arange(0, 41, 5), np.arange(8).astype(str))
    assert Recurring(data, tastes=2).taste(600).size == 2
    with pytest.raises(InvalidParameter, match=r"flat has no room for 3 different tastes: .* differ in 2 .*"):
        Recurring(data, tastes=3).taste(1200)
    same = Dataset("same", np.ones((40, 2)), np.zeros(40, int), np.arange(0, 41, 5), np.arange(8).astype(str))
    with pytest.raises(InvalidParameter, match="same has no room for 1 different tastes"):
        Piecewise(same).taste(0)


@pytest.mark.parametrize("spec", TASTEFUL)
def test_queries_keep_their_grades_only_who_has_them_changes(split: Split, spec: str) -> None:
    world = open_world(spec, split.train, k=5)
    expected = dict(zip(split.train.queries, histograms(split.train.grades, split.train.offsets), strict=True))
    for round_ in rounds_of(world, 300):
        assert np.bincount(round_.grades, minlength=5).tolist() == expected[round_.candidates.query]
        assert round_.ideal == pytest.approx(dcg(sorted(round_.grades, reverse=True), 5))
    for t in (0, 77, 1000):
        held_out = world.grades(split.test, t)
        assert histograms(held_out, split.test.offsets) == histograms(split.test.grades, split.test.offsets)


@pytest.mark.parametrize("spec", TASTEFUL)
def test_better_liked_documents_never_have_lower_grades(split: Split, spec: str) -> None:
    world = open_world(spec, split.train)
    assert isinstance(world, TasteWorld)
    for t, round_ in enumerate(rounds_of(world, 200)):
        assert round_.candidates.features is not None
        liked = utilities(round_.candidates.features, world.taste(t))
        assert (np.diff(round_.grades[np.argsort(-liked, kind="stable")]) <= 0).all()


@pytest.mark.parametrize("spec", EVERY)
def test_a_round_is_a_part_of_the_whole_of_its_time(split: Split, spec: str) -> None:
    """What `at` gives for one query, `grades` gives for all, bit for bit; but for a swap, which is the round's own."""
    world = open_world(spec.replace("swap", "swap?probability=0"), split.train)
    where = {str(query): q for q, query in enumerate(split.train.queries)}
    for t, round_ in enumerate(rounds_of(world, 120)):
        q = where[round_.candidates.query]
        whole = world.grades(split.train, t)[split.train.offsets[q] : split.train.offsets[q + 1]]
        assert round_.grades.tolist() == whole.tolist()


def test_held_out_data_must_have_the_same_features(split: Split) -> None:
    with pytest.raises(InvalidInput, match=r"one has 3 features, but .* the 46 of mq2007/train"):
        Piecewise(split.train).grades(one_query([0, 1, 0]), 0)


# -- when they change ----------------------------------------------------------------------------------------------


def test_piecewise_stays_within_a_segment_and_differs_across(split: Split) -> None:
    world = Piecewise(split.train, every=50)
    segments = [
        [world.grades(split.test, t).tolist() for t in (first, first + 20, first + 49)] for first in (0, 50, 100)
    ]
    for same in segments:
        assert same[0] == same[1] == same[2]
    assert segments[0][0] != segments[1][0] != segments[2][0] != segments[0][0]
    assert change_points("piecewise?every=50", 151).tolist() == [50, 100, 150]
    assert change_points("piecewise?every=50", 150).tolist() == [50, 100]


def test_drift_turns_by_the_angle_it_says(split: Split) -> None:
    world, data = Drift(split.train, period=100), split.train
    means = np.add.reduceat(data.features, data.offsets[:-1]) / np.diff(data.offsets)[:, None]
    centred = data.features - np.repeat(means, np.diff(data.offsets), axis=0)
    liked = {t: centred @ world.taste(t) for t in (100, 103, 150, 199, 200)}
    for later in (103, 150, 199, 200):
        expected = np.cos(np.pi / 2 * (later - 100) / 100)
        assert np.corrcoef(liked[100], liked[later])[0, 1] == pytest.approx(expected, abs=1e-9)
    steps = [np.corrcoef(centred @ world.taste(t), centred @ world.taste(t + 1))[0, 1] for t in range(95, 106)]
    assert min(steps) > 0.999  # nor does it jump where it comes to one taste and turns to the next
    assert change_points("drift?period=100", 1000).size == 0


def test_recurring_tastes_come_back_bit_for_bit(split: Split) -> None:
    world = Recurring(split.train, every=30, tastes=3)
    found = [world.grades(split.test, 30 * turn + 7) for turn in range(9)]
    for turn in range(6):
        assert found[turn].tobytes() == found[turn + 3].tobytes()
        assert world.taste(30 * turn).tobytes() == world.taste(30 * turn + 90).tobytes()
    different = [_agreement(found[i], found[j], split.test) for i in range(3) for j in range(i)]
    assert max(different) < 0.3
    assert change_points("recurring?every=30", 100).tolist() == [30, 60, 90]


def _agreement(one: Array, other: Array, data: Dataset) -> float:
    """Mean rank correlation of two gradings, over the queries that have different grades."""
    parts = zip(np.split(one, data.offsets[1:-1]), np.split(other, data.offsets[1:-1]), strict=True)
    return float(np.mean([spearmanr(a, b).statistic for a, b in parts if len(set(a)) > 1]))


# -- a function of the seed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", EVERY)
def test_same_seed_same_rounds_in_any_order(split: Split, spec: str) -> None:
    forwards = rounds_of(open_world(spec, split.train, seed=3), 200, seed=5)
    world, streams = open_world(spec, split.train, seed=3), Rng(5)
    for t in reversed(range(200)):
        again = world.at(t, streams.for_event("world", t))
        assert again.candidates is forwards[t].candidates
        assert again.grades.tobytes() == forwards[t].grades.tobytes()
        assert again.ideal == forwards[t].ideal


@pytest.mark.parametrize("spec", TASTEFUL)
def test_other_seeds_have_other_tastes_unless_the_spec_says_which(split: Split, spec: str) -> None:
    def grades(text: str, seed: int) -> list[int]:
        return list(open_world(text, split.train, seed=seed).grades(split.test, 0))

    assert grades(spec, 1) == grades(spec, 1) != grades(spec, 2)
    assert grades(f"{spec}&seed=2", 1) == grades(f"{spec}&seed=2", 5) == grades(spec, 2)


# -- by name -------------------------------------------------------------------------------------------------------


def test_specs(split: Split) -> None:
    kinds = [type(open_world(spec, split.train)) for spec in EVERY]
    assert kinds == [Stationary, Swap, Piecewise, Drift, Recurring]
    world = open_world("recurring?every=7&tastes=4", split.train, k=4, seed=9)
    assert isinstance(world, Recurring)
    assert (world.dataset, world.k, world.seed, world.every, world.tastes) == (split.train, 4, 9, 7, 4)
    assert parse_world("recurring?every=7&tastes=4&seed=2") == ("recurring", {"every": 7, "tastes": 4, "seed": 2})
    assert change_points("piecewise", 3500).tolist() == [1000, 2000, 3000]
    assert change_points("recurring", 1500).tolist() == [500, 1000]
    assert change_points("swap", 1500).size == change_points("stationary", 1500).size == 0


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("piecewize", UnknownName, "no world is called 'piecewize'; did you mean 'piecewise'"),
        (
            "stationary?every=3",
            InvalidParameter,
            "world 'stationary' has no option 'every'",
        ),
        ("drift?every=3", InvalidParameter, "world 'drift' has no option 'every'"),
        ("swap?every=3", InvalidParameter, "world 'swap' has no option 'every'"),
        ("swap?probability=1.5", InvalidParameter, r"probability is 1\.5"),
        ("swap?probability=nan", InvalidParameter, "probability is nan"),
        ("swap?probability=often", InvalidParameter, "probability is 'often'"),
        ("piecewise?every=0", InvalidParameter, "every is '0'"),
        ("piecewise?every=2.5", InvalidParameter, r"every is '2\.5'"),
        ("drift?period=-4", InvalidParameter, "period is '-4'"),
        ("recurring?tastes=1", InvalidParameter, "tastes is '1'"),
    ],
)
def test_bad_specs_are_named(split: Split, spec: str, error: type[RankloopError], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_world(spec)
    with pytest.raises(error, match=words):
        open_world(spec, split.train)
