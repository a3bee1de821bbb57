"""Off-policy estimates: unbiased by enumeration, intervals that hold, warnings where nothing can be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import inf, log, prod, sqrt
from typing import Any

import numpy as np
import pytest
from benchmarks.coverage import LOGS
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from rankloop import offpolicy
from rankloop.errors import InvalidInput, InvalidParameter
from rankloop.examination import Examination, harvest, known, swap_wins
from rankloop.kernels import certainty, plackett_luce
from rankloop.offpolicy import Moves, by_list, by_position, gains, intervals
from rankloop.offpolicy.intervals import Statistic
from rankloop.types import Array
from tests.kernels.inputs import SEEDS, frozen, pair_rows, positions
from tests.kernels.test_propensity import random_relation
from tests.reference import certainty as naive_certainty
from tests.reference import offpolicy as naive
from tests.reference import plackett_luce as naive_plackett_luce

THETA = np.array([1.0, 0.6, 0.25, 0.1])
LIKED = np.array([0.3, 0.9, 0.5, 0.7])


def click_patterns(chances: Sequence[float]) -> Iterator[tuple[Array, float]]:
    """Every way to click on independent slots, with its probability."""
    for flags in product([0, 1], repeat=len(chances)):
        yield np.array(flags), prod(p if flag else 1 - p for p, flag in zip(chances, flags, strict=True))


def some_lists(seed: int, N: int, K: int) -> tuple[Array, Array, Array]:
    """Clicks, ranks and attractions of lists, some of them shorter than K."""
    rng = np.random.default_rng(seed)
    clicks, ranks, attraction = rng.integers(0, 2, (N, K)), np.full((N, K), -1), rng.random((N, K))
    for t in range(N):
        length = int(rng.integers(1, K + 1))
        ranks[t, :length] = rng.permutation(length)
    return np.where(ranks >= 0, clicks, 0), ranks, attraction


# -- by position ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", ["clicks", "dcg", "reciprocal"])
@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_by_position_is_unbiased(order: tuple[int, ...], gain: offpolicy.Gain) -> None:
    """All click patterns of position-based users: the mean estimate is what the other order gets."""
    ranks, worth = np.array([order]), gains(gain, 4)
    truth = float((THETA[list(order)] * LIKED * worth[list(order)]).sum())
    mean = 0.0
    for clicks, chance in click_patterns(THETA * LIKED):
        mean += chance * by_position(Moves.of(clicks[None], ranks), known(3 * THETA), gain)["ips"].value
    assert mean == pytest.approx(truth, rel=1e-12)


@given(seed=SEEDS, N=st.integers(1, 9), K=st.integers(1, 4), clip=st.sampled_from([0.7, 1.2, 3.0, inf]))
def test_by_position_is_its_definition(seed: int, N: int, K: int, clip: float) -> None:
    clicks, ranks, attraction = some_lists(seed, N, K)
    clicks[0, 0] = 1  # without any click the model's scale is 0/0 in the plain version
    found = by_position(Moves.of(clicks, ranks, attraction), known(THETA), "dcg", clip)
    plain: tuple[Any, ...] = (clicks.tolist(), ranks.tolist(), THETA.tolist(), gains("dcg", 4).tolist(), clip)
    assert found["ips"].value == pytest.approx(naive.ips(*plain), rel=1e-12)
    assert found["snips"].value == pytest.approx(naive.snips(*plain), rel=1e-12)
    modelled: tuple[Any, ...] = (*plain, attraction.tolist())
    assert found["dr"].value == pytest.approx(naive.dr(*modelled), rel=1e-12, abs=1e-12)
    if clip == inf:
        assert found["snips"].value == pytest.approx(found["ips"].value, rel=1e-12)
        assert found["dr"].value == pytest.approx(found["ips"].value, rel=1e-12, abs=1e-12)


@given(seed=SEEDS, N=st.integers(2, 9), groups=st.integers(2, 9))
def test_left_out_is_the_estimate_without_a_group(seed: int, N: int, groups: int) -> None:
    clicks, ranks, attraction = some_lists(seed, N, 4)
    clicks[:, 0] = 1
    found = by_position(Moves.of(clicks, ranks, attraction, groups), known(THETA), clip=1.2)
    G = min(N, groups)
    for g in range(G):
        rest = [naive.without(rows.tolist(), g, G) for rows in (clicks, ranks, attraction)]
        plain: tuple[Any, ...] = (rest[0], rest[1], THETA.tolist(), [1.0] * 4, 1.2)
        modelled: tuple[Any, ...] = (*plain, rest[2])
        assert found["ips"].left_out[g] == pytest.approx(naive.ips(*plain), rel=1e-9)
        assert found["snips"].left_out[g] == pytest.approx(naive.snips(*plain), rel=1e-9)
        assert found["dr"].left_out[g] == pytest.approx(naive.dr(*modelled), rel=1e-9, abs=1e-12)


def test_what_was_logged_is_worth_what_it_got() -> None:
    """Whatever the examination, known or not: items that stay where they are count 1."""
    clicks, ranks, _ = some_lists(3, 20, 4)
    stay = np.where(ranks >= 0, np.arange(4), -1)
    for looked in (THETA, np.array([1.0, np.nan, np.nan, np.nan])):
        found = by_position(Moves.of(clicks, stay), Examination(looked))["ips"]
        assert found.value == pytest.approx(clicks.sum() / 20)
        assert found.effective == pytest.approx(clicks.sum())
        assert not found.warning


def test_clipping_loses_clicks_and_the_others_make_up_for_it() -> None:
    """With expected clicks in the place of clicks estimates are their own means: only ips is too low."""
    rng = np.random.default_rng(0)
    ranks = np.array([rng.permutation(4) for _ in range(50)])
    alike, liked = np.full((50, 4), 0.4), rng.random((50, 4))
    for attraction, exact in ((alike, ("snips", "dr")), (liked, ("dr",))):
        truth = float((THETA[ranks] * attraction).sum() / 50)
        found = by_position(Moves.of(THETA * attraction, ranks, attraction), known(THETA), clip=1.0)
        assert found["ips"].value < 0.8 * truth
        cut = 1 - found["ips"].value / truth
        assert all(found[name].warning.startswith(f"clipping took {cut:.1%}") for name in ("ips", "snips", "dr"))
        assert found["model"].value == pytest.approx(truth)
        for name in exact:
            assert found[name].value == pytest.approx(truth), name
    wrong = by_position(Moves.of(THETA * liked, ranks, alike), known(THETA), clip=1.0)
    assert abs(wrong["dr"].value - truth) < abs(wrong["ips"].value - truth)


def test_examination_that_is_not_known_is_told() -> None:
    clicks, ranks = np.array([[0, 1, 0]] * 4), np.array([[0, 2, 1]] * 4)
    found = by_position(Moves.of(clicks, ranks), Examination(np.array([1.0, 0.5, np.nan])))["ips"].estimate()
    assert "not known" in found.warning
    assert (found.low, found.high) == (-inf, inf) or np.isnan(found.value)
    unclicked = by_position(Moves.of(clicks, np.array([[2, 1, 0]] * 4)), Examination(np.array([1, 0.5, np.nan])))
    assert unclicked["ips"].value == 1.0  # nobody clicked what moves to or from the unknown rank


# -- intervals -----------------------------------------------------------------------------------------------------


def test_the_error_of_a_mean_is_the_textbooks() -> None:
    """Up to 200 lists each is a group of its own: the jackknife is s / √n, the interval Student's."""
    rng = np.random.default_rng(1)
    clicks = rng.integers(0, 2, (150, 3))
    ranks = np.array([rng.permutation(3) for _ in range(150)])
    weights = THETA[ranks] / THETA[:3]
    values, logged = (clicks * weights).sum(axis=1), clicks.sum(axis=1)
    new = by_position(Moves.of(clicks, ranks), known(THETA))["ips"]
    old = by_position(Moves.of(clicks, np.tile(np.arange(3), (150, 1))), known(THETA))["ips"]
    for statistic, sample in ((new, values), (old, logged), (new.minus(old), values - logged)):
        found = statistic.estimate(0.9)
        error = sample.std(ddof=1) / sqrt(150)
        assert found.value == pytest.approx(sample.mean())
        assert found.error == pytest.approx(error)
        assert found.high - found.value == pytest.approx(stdtrit(149, 0.95) * error)
        assert found.high + found.low == pytest.approx(2 * found.value)
    assert new.effective == pytest.approx((clicks * weights).sum() ** 2 / (clicks * weights**2).sum())


def test_few_clicks_get_a_wider_interval_and_a_warning() -> None:
    clicks = np.zeros((40, 2))
    clicks[:5, 1] = 1
    statistic = by_position(Moves.of(clicks, np.tile([1, 0], (40, 1))), known([1.0, 0.5]))["ips"]
    found = statistic.estimate()
    assert "5.0 effective" in found.warning
    assert statistic.means is not None
    assert (statistic.means == np.where(np.arange(40) < 5, 2.0, 0.0)).all()
    assert statistic.largest == pytest.approx(2.5)  # both clicked: 1/2 and 2
    half = intervals.bernstein(statistic.means, 2.5, 0.95)
    assert half == pytest.approx(sqrt(2 * statistic.means.var(ddof=1) * log(80) / 40) + 7 * 2.5 * log(80) / (3 * 39))
    assert found.high - found.value == pytest.approx(half)
    assert half > stdtrit(39, 0.975) * found.error


def test_one_list_says_nothing() -> None:
    found = by_position(Moves.of(np.array([[1, 0]]), np.array([[1, 0]])), known([1.0, 0.5]))["ips"].estimate()
    assert (found.value, found.low, found.high) == (0.5, -inf, inf)


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 2])
def test_levels_are_probabilities(level: float) -> None:
    with pytest.raises(InvalidParameter, match="level"):
        Statistic(1.0, np.ones(3), 100.0).estimate(level)


# -- examination from swaps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["plackett-luce", "topological"])
def test_swaps_tell_examination_whatever_the_items(law: str) -> None:
    """Every list and every click: the wins of two ranks are exactly as their examination."""
    n, k = 4, 3
    scores, certain = frozen([0.5, -1.0, 0.0, 2.0]), random_relation(4, 0.3, np.random.default_rng(2))
    wins = np.zeros((k, k))
    pairs = pair_rows(list(permutations(range(k), 2)))
    for order in permutations(range(n), k):
        if law == "topological":
            probability = naive_certainty.list_probability(certain, order)
            shares = certainty.topological_swap_shares(certain, positions(order))
        else:
            probability = float(naive_plackett_luce.probability(scores.tolist(), order))
            shares = np.zeros((k, k))
            rest = plackett_luce.rest_weight(scores, positions(order))
            shares[pairs[:, 0], pairs[:, 1]] = plackett_luce.swap_shares(frozen(scores[list(order)]), rest, pairs)
        for clicks, chance in click_patterns(THETA[:k] * LIKED[list(order)]) if probability else ():
            wins += probability * chance * swap_wins(clicks, shares)
    for p, q in permutations(range(k), 2):
        if wins[p, q]:
            assert wins[p, q] / wins[q, p] == pytest.approx(THETA[p] / THETA[q], rel=1e-9)
    assert harvest(wins[None]).values == pytest.approx(THETA[:k], rel=1e-9)


@given(seed=SEEDS, K=st.integers(2, 6))
def test_harvest_finds_strengths_of_any_size(seed: int, K: int) -> None:
    """Wins as the model says, with any number of games: the strengths themselves; without a group, from the rest."""
    rng = np.random.default_rng(seed)
    theta = np.append(1.0, np.exp(rng.normal(size=K - 1) * 2))
    games = rng.random((3, K, K)) + 0.05
    games = games + np.swapaxes(games, 1, 2)
    wins = games * theta[:, None] / (theta[:, None] + theta)
    assert harvest(wins).values == pytest.approx(theta, rel=1e-6)
    noisy = wins * np.exp(0.1 * rng.normal(size=wins.shape))
    found = harvest(noisy)
    assert found.left_out is not None
    for g in range(3):
        assert found.left_out[g] == pytest.approx(harvest(np.delete(noisy, g, 0).sum(0)[None]).values, rel=1e-6)


def test_ranks_that_no_swap_connects_are_not_known() -> None:
    wins = np.zeros((1, 4, 4))
    wins[0, 0, 1], wins[0, 1, 0] = 4.0, 2.0
    wins[0, 2, 3], wins[0, 3, 2] = 3.0, 3.0  # known against each other, not against the first
    found = harvest(wins).values
    assert found[:2].tolist() == pytest.approx([1.0, 0.5])
    assert np.isnan(found[2:]).all()
    wins[0, 1, 2] = 1.0  # one way only: rank 2 was never clicked where rank 1 could have been
    assert np.isnan(harvest(wins).values[2:]).all()
    wins[0, 2, 1] = 1.0
    assert np.isfinite(harvest(wins).values).all()


# -- by list -------------------------------------------------------------------------------------------------------


def cascade(order: Sequence[int]) -> Iterator[tuple[float, float]]:
    """(reward, probability) of users who leave after a click, worth 1/rank: not position-based at all."""
    left = 1.0
    for rank, item in enumerate(order, 1):
        yield 1.0 / rank, left * LIKED[item]
        left *= 1 - LIKED[item]
    yield 0.0, left


def test_by_list_is_unbiased_whatever_users_do_and_dr_whatever_the_model_says() -> None:
    """Two Plackett-Luce policies, every list, cascade users, and a model that is plainly wrong."""
    lists = list(permutations(range(4)))
    old, new = ([naive_plackett_luce.probability(s, order) for order in lists] for s in ([0, 1, 2, 0], [1.5, 0, 0, 1]))
    says = {order: sum(order[:2]) / 5 for order in lists}
    weights = np.array([log(float(b / a)) for a, b in zip(old, new, strict=True)])
    truth = sum(float(p) * reward * q for p, order in zip(new, lists, strict=True) for reward, q in cascade(order))
    told = sum(float(p) * says[order] for p, order in zip(new, lists, strict=True))
    ips = dr = mean = 0.0
    for p, order, weight in zip(old, lists, weights, strict=True):
        for reward, q in cascade(order):
            found = by_list(np.array([reward]), np.array([weight]), np.array([told]), np.array([says[order]]))
            ips += float(p) * q * found["ips"].value
            dr += float(p) * q * found["dr"].value
            mean += float(p) * q * found["weights"].value
    assert ips == pytest.approx(truth)
    assert dr == pytest.approx(truth)
    assert mean == pytest.approx(1.0)
    assert abs(told - truth) > 0.1


def test_self_normalised_is_a_weighted_mean_and_its_error_the_ratios() -> None:
    rng = np.random.default_rng(5)
    rewards, weights = rng.integers(0, 3, 150).astype(float), rng.exponential(size=150)
    found = by_list(rewards, np.log(weights))["snips"].estimate()
    ratio = (weights * rewards).sum() / weights.sum()
    assert found.value == pytest.approx(ratio)
    left_out = [np.average(np.delete(rewards, t), weights=np.delete(weights, t)) for t in range(150)]
    assert found.error == pytest.approx(sqrt(149 / 150 * ((left_out - np.mean(left_out)) ** 2).sum()))
    linear = np.sqrt((weights**2 * (rewards - ratio) ** 2).sum()) / weights.sum()
    assert found.error == pytest.approx(linear, rel=0.05)
    assert found.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    clipped = by_list(rewards, np.log(weights), clip=1.0)["ips"]
    assert clipped.value == pytest.approx((np.minimum(weights, 1) * rewards).mean())
    assert "clipped" in clipped.warning


def test_lists_that_never_come_up_are_told() -> None:
    """The log shows one of two lists only; the new policy shows both alike: half of the weight is lacking."""
    found = by_list(np.ones(500), np.full(500, log(0.5)))
    assert found["weights"].value == 0.5
    assert "lacking" in found["ips"].warning
    assert "lacking" in found["snips"].estimate().warning
    fair = by_list(np.ones(500), np.where(np.arange(500) % 2 == 0, log(2.0), -inf))
    assert not fair["ips"].warning


# -- they hold -----------------------------------------------------------------------------------------------------


def shuffled(rng: np.random.Generator, N: int, K: int) -> Array:
    return np.argsort(rng.random((N, K)), axis=1)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """300 logs of 300 random lists: 95 % intervals, by position with examination known and harvested, and by list."""
    N, K, logs = 300, 4, 300
    held = dict.fromkeys(("known", "harvested", "difference", "list", "normalised", "robust"), 0)
    for seed in range(logs):
        rng = np.random.default_rng([3, seed])
        items, wanted = shuffled(rng, N, K), np.tile(np.argsort(-LIKED + 0.2 * rng.normal(size=K)), (N, 1))
        clicks = rng.random((N, K)) < THETA * LIKED[items]
        place = np.argsort(wanted, axis=1)  # (N, K) the new rank of each item
        ranks = np.take_along_axis(place, items, 1)
        truth = float((THETA * LIKED[wanted[0]]).sum())
        shares = 0.5 * (1 - np.eye(K))
        wins = np.array([swap_wins(clicks[g::200].sum(axis=0), shares) for g in range(200)])
        new, old = Moves.of(clicks, ranks), Moves.of(clicks, np.tile(np.arange(K), (N, 1)))
        sure, found = by_position(new, known(THETA))["ips"], by_position(new, harvest(wins))["ips"]
        logged = by_position(old, known(THETA))["ips"]
        expected = float((THETA * LIKED[items]).sum() / N)
        same = (ranks == np.arange(K)).all(axis=1)
        model = 0.8 * THETA @ LIKED[wanted[0]], 0.8 * (THETA * LIKED[items]).sum(axis=1)
        listed = by_list(clicks.sum(axis=1), np.where(same, log(24), -inf), np.full(N, model[0]), model[1])
        for name, statistic, value in (
            ("known", sure, truth),
            ("harvested", found, truth),
            ("difference", sure.minus(logged), truth - expected),
            ("list", listed["ips"], truth),
            ("normalised", listed["snips"], truth),
            ("robust", listed["dr"], truth),
        ):
            estimate = statistic.estimate()
            held[name] += estimate.low <= value <= estimate.high
    rates = {name: count / logs for name, count in held.items()}
    for name in ("known", "harvested", "difference"):
        assert 0.915 < rates[name] < 0.985, rates
    for name in ("list", "normalised", "robust"):  # twelve lists in three hundred count: Hoeffding's, and told so
        assert rates[name] > 0.95, rates


@pytest.mark.parametrize(
    "log", ["30 users x 20 lists", "50 users, 20 lists on average", "300 lists, very heavy weights"]
)
def test_intervals_by_user_hold_the_truth(log: str) -> None:
    """In 93 to 97 % of 2,000 logs; where weights are very heavy, in no less."""
    for held in LOGS[log].held(2000).values():
        assert held.right >= 0.93
        assert held.right <= 0.97 or LOGS[log].heavy > 1.0
        assert held.naive is not None
        assert held.naive < 0.9 or not LOGS[log].by_user


def test_a_list_that_carries_all_weight_says_nothing() -> None:
    """Student's interval was [2.02e-9, 2.12e-9] for a log like this one: what is known is that rewards are 0 to 3."""
    rewards, weights = np.ones(1000), np.full(1000, -60.0)
    weights[::5] = -20.0 + np.arange(200) * 1e-9
    one = weights.copy()
    one[1:] = -60.0
    for name in ("ips", "snips"):
        found = by_list(rewards, one, most=3.0)[name].estimate()
        assert found.effective == pytest.approx(1.0)
        assert found.low == pytest.approx(0.0, abs=1e-6)
        assert found.high == pytest.approx(3.0)
        assert found.warning
    even = by_list(rewards, weights, most=3.0)["ips"]
    assert "lacking" in even.warning  # two hundred lists alike in weight: Student's, and told what is missing
    assert even.estimate().high < 1e-8


@pytest.mark.parametrize(
    ("lists", "heavy", "student"), [(40, 1, True), (20, 1, False), (400, 90, False), (400, 250, True)]
)
def test_students_interval_is_carried_by_enough_lists(lists: int, heavy: int, student: bool) -> None:
    """By 30 of equal weight, by 100 if those are not half of all: `heavy` lists have a weight, the others none."""
    weights = np.zeros(lists) if heavy == 1 else np.where(np.arange(lists) < heavy, log(lists / heavy), -inf)
    rewards = np.random.default_rng(0).integers(0, 2, lists).astype(float)
    statistic = by_list(rewards, weights, most=1.0)["snips"]
    assert statistic.carried == student
    found = statistic.estimate()
    half = intervals.hoeffding(found.effective, 1.0, 0.95)
    if student:
        assert found.high - found.value < half
    else:
        assert found.high == pytest.approx(min(found.value + half, 1.0))
        assert "effective observations" in found.warning


def test_lists_of_a_user_are_in_one_group_and_go_out_together() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 12, 90)
    rewards, weights = rng.random(90), rng.exponential(size=90)
    found = by_list(rewards, np.log(weights), users=users, groups=5)["ips"]
    assert found.units is not None
    assert all(np.unique(found.units.group[users == user]).size == 1 for user in range(12))
    for g in range(5):
        stay = found.units.group != g
        assert found.left_out[g] == pytest.approx((weights * rewards)[stay].mean())
    clicks, ranks, _ = some_lists(1, 90, 4)
    moves = Moves.of(clicks, ranks, users=users.tolist())
    assert moves.lists.tolist() == [(users == user).sum() for user in dict.fromkeys(users.tolist())]


def test_a_user_with_many_lists_is_one_witness() -> None:
    """Each list ten times over, by the same user: the error is that of the lists, not a third of it."""
    rng = np.random.default_rng(3)
    rewards, users = rng.random(40), np.repeat(np.arange(40), 10)
    once, often = (
        by_list(rewards, np.zeros(40))["ips"].estimate(),
        by_list(rewards.repeat(10), np.zeros(400), users=users),
    )
    found = often["ips"].estimate()
    assert (found.value, found.error, found.low, found.effective) == pytest.approx(
        (once.value, once.error, once.low, once.effective)
    )
    clicks, ranks, _ = some_lists(5, 60, 4)
    single = by_position(Moves.of(clicks, ranks), known(THETA))["ips"].estimate()
    tenfold = Moves.of(clicks.repeat(10, axis=0), ranks.repeat(10, axis=0), users=np.repeat(np.arange(60), 10))
    many = by_position(tenfold, known(THETA))["ips"].estimate()
    assert (many.value, many.error) == pytest.approx((single.value, single.error))
    assert many.effective <= 60


def test_one_user_says_nothing_however_many_lists() -> None:
    found = by_list(np.random.default_rng(0).random(300), np.zeros(300), users=["ann"] * 300)["ips"].estimate()
    assert (found.low, found.high) == (-inf, inf)
    with pytest.raises(InvalidInput, match="2 users for 3 lists"):
        by_list(np.ones(3), np.zeros(3), users=["a", "b"])


# -- what is wrong is named ----------------------------------------------------------------------------------------


def test_bad_input_is_named() -> None:
    moves = Moves.of(np.ones((3, 2)), np.tile([1, 0], (3, 1)))
    with pytest.raises(InvalidInput, match=r"shape \(3, 2\) and ranks \(2, 2\)"):
        Moves.of(np.ones((3, 2)), np.ones((2, 2), int))
    with pytest.raises(InvalidInput, match="examination knows 1 ranks, but lists have 2"):
        by_position(moves, known([1.0]))
    with pytest.raises(InvalidInput, match="without 5 groups, lists have 3"):
        by_position(moves, Examination(np.ones(2), np.ones((5, 2))))
    with pytest.raises(InvalidParameter, match="clip is 0"):
        by_position(moves, known([1.0, 1.0]), clip=0)
    with pytest.raises(InvalidParameter, match="gain is 'likes'"):
        gains("likes", 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="rewards have shape"):
        by_list(np.ones(3), np.ones(2))
    for values in ([], [[1.0]], [1.0, -1.0], [1.0, inf]):
        with pytest.raises(InvalidParameter, match="examination"):
            known(values)


def test_very_long_lists_take_fewer_groups() -> None:
    rng = np.random.default_rng(0)
    ranks = np.array([rng.permutation(400) for _ in range(250)])
    moves = Moves.of(np.ones((250, 400)), ranks)
    assert moves.lists.size * moves.old.size <= intervals.SUMS
    assert moves.shown.sum() == 250 * 400
    theta = np.exp(-np.arange(400) / 100)
    assert by_position(moves, known(theta))["ips"].value == pytest.approx((theta[ranks] / theta).sum() / 250)
