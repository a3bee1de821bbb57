"""Intervals of off-policy estimates: the textbook's, by user, and as often right as they say."""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest
from benchmarks.coverage import LOGS
from scipy.special import stdtrit

from rankloop.core.types import Array
from rankloop.evaluation.off_policy import RankMoves, bernstein, by_position, by_ranking
from rankloop.evaluation.position_bias import Examination, examination_from_swaps, swap_wins
from tests.kernels.inputs import some_lists

THETA = np.array([1.0, 0.6, 0.25, 0.1])
LIKED = np.array([0.3, 0.9, 0.5, 0.7])


def test_the_error_of_a_mean_is_the_textbooks() -> None:
    """Up to 200 lists each is a group of its own: the jackknife is s / √n, the interval Student's."""
    rng = np.random.default_rng(1)
    clicks = rng.integers(0, 2, (150, 3))
    ranks = np.array([rng.permutation(3) for _ in range(150)])
    weights = THETA[ranks] / THETA[:3]
    values, logged = (clicks * weights).sum(axis=1), clicks.sum(axis=1)
    new = by_position(RankMoves.of(clicks, ranks), Examination.known(THETA))["ips"]
    old = by_position(RankMoves.of(clicks, np.tile(np.arange(3), (150, 1))), Examination.known(THETA))["ips"]
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
    statistic = by_position(RankMoves.of(clicks, np.tile([1, 0], (40, 1))), Examination.known([1.0, 0.5]))["ips"]
    found = statistic.estimate()
    assert "5.0 effective" in found.warning
    assert statistic.means is not None
    assert (statistic.means == np.where(np.arange(40) < 5, 2.0, 0.0)).all()
    assert statistic.largest == pytest.approx(2.5)  # both clicked: 1/2 and 2
    half = bernstein(statistic.means, 2.5, 0.95)
    assert half == pytest.approx(sqrt(2 * statistic.means.var(ddof=1) * log(80) / 40) + 7 * 2.5 * log(80) / (3 * 39))
    assert found.high - found.value == pytest.approx(half)
    assert half > stdtrit(39, 0.975) * found.error


def shuffled(rng: np.random.Generator, N: int, K: int) -> Array:
    return np.argsort(rng.random((N, K)), axis=1)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """300 logs of 300 random lists: 95 % intervals, by position with examination known and harvested, and by list."""
    N, K, logs = 300, 4, 300
    held = dict.fromkeys(("known", "harvested", "difference", "list", "normalized", "robust"), 0)
    for seed in range(logs):
        rng = np.random.default_rng([3, seed])
        items, wanted = shuffled(rng, N, K), np.tile(np.argsort(-LIKED + 0.2 * rng.normal(size=K)), (N, 1))
        clicks = rng.random((N, K)) < THETA * LIKED[items]
        place = np.argsort(wanted, axis=1)  # (N, K) the new rank of each item
        ranks = np.take_along_axis(place, items, 1)
        truth = float((THETA * LIKED[wanted[0]]).sum())
        shares = 0.5 * (1 - np.eye(K))
        wins = np.array([swap_wins(clicks[g::200].sum(axis=0), shares) for g in range(200)])
        new, old = RankMoves.of(clicks, ranks), RankMoves.of(clicks, np.tile(np.arange(K), (N, 1)))
        sure, found = (
            by_position(new, Examination.known(THETA))["ips"],
            by_position(new, examination_from_swaps(wins))["ips"],
        )
        logged = by_position(old, Examination.known(THETA))["ips"]
        expected = float((THETA * LIKED[items]).sum() / N)
        same = (ranks == np.arange(K)).all(axis=1)
        model = 0.8 * THETA @ LIKED[wanted[0]], 0.8 * (THETA * LIKED[items]).sum(axis=1)
        listed = by_ranking(clicks.sum(axis=1), np.where(same, log(24), -inf), np.full(N, model[0]), model[1])
        for name, statistic, value in (
            ("known", sure, truth),
            ("harvested", found, truth),
            ("difference", sure.minus(logged), truth - expected),
            ("list", listed["ips"], truth),
            ("normalized", listed["snips"], truth),
            ("robust", listed["dr"], truth),
        ):
            estimate = statistic.estimate()
            held[name] += estimate.low <= value <= estimate.high
    rates = {name: count / logs for name, count in held.items()}
    for name in ("known", "harvested", "difference"):
        assert 0.915 < rates[name] < 0.985, rates
    for name in ("list", "normalized", "robust"):  # twelve lists in three hundred count: Hoeffding's, and told so
        assert rates[name] > 0.95, rates


@pytest.mark.parametrize(
    "log", ["30 users x 20 lists", "50 users, 20 lists on average", "300 lists, very heavy weights"]
)
@pytest.mark.slow
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
        found = by_ranking(rewards, one, most=3.0)[name].estimate()
        assert found.effective == pytest.approx(1.0)
        assert found.low == pytest.approx(0.0, abs=1e-6)
        assert found.high == pytest.approx(3.0)
        assert found.warning
    even = by_ranking(rewards, weights, most=3.0)["ips"]
    assert "lacks" in even.warning  # two hundred lists alike in weight: Student's, and told what is missing
    assert even.estimate().high < 1e-8


def test_lists_of_a_user_are_in_one_group_and_go_out_together() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 12, 90)
    rewards, weights = rng.random(90), rng.exponential(size=90)
    found = by_ranking(rewards, np.log(weights), users=users, groups=5)["ips"]
    assert found.units is not None
    assert all(np.unique(found.units.group[users == user]).size == 1 for user in range(12))
    for g in range(5):
        stay = found.units.group != g
        assert found.left_out[g] == pytest.approx((weights * rewards)[stay].mean())
    clicks, ranks, _ = some_lists(1, 90, 4)
    moves = RankMoves.of(clicks, ranks, users=users.tolist())
    assert moves.lists.tolist() == [(users == user).sum() for user in dict.fromkeys(users.tolist())]


def test_a_user_with_many_lists_is_one_witness() -> None:
    """Each list ten times over, by the same user: the error is that of the lists, not a third of it."""
    rng = np.random.default_rng(3)
    rewards, users = rng.random(40), np.repeat(np.arange(40), 10)
    once, often = (
        by_ranking(rewards, np.zeros(40))["ips"].estimate(),
        by_ranking(rewards.repeat(10), np.zeros(400), users=users),
    )
    found = often["ips"].estimate()
    assert (found.value, found.error, found.low, found.effective) == pytest.approx(
        (once.value, once.error, once.low, once.effective)
    )
    clicks, ranks, _ = some_lists(5, 60, 4)
    single = by_position(RankMoves.of(clicks, ranks), Examination.known(THETA))["ips"].estimate()
    tenfold = RankMoves.of(clicks.repeat(10, axis=0), ranks.repeat(10, axis=0), users=np.repeat(np.arange(60), 10))
    many = by_position(tenfold, Examination.known(THETA))["ips"].estimate()
    assert (many.value, many.error) == pytest.approx((single.value, single.error))
    assert many.effective <= 60
