"""Mixing and credit against the enumeration of every case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtrc

from rankloop.kernels import interleaving, ranking
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import interleaving as naive
from tests.reference.ranking import top_k

Case = TypeVar("Case", bound=Hashable)
DRAWS = 20_000
SOME = [  # two alike, two opposed, three, more rankers than positions, a ranker twice
    ([[0, 1, 2], [0, 1, 2]], 3),
    ([[0, 1, 2, 3], [3, 2, 1, 0]], 3),
    ([[0, 1, 2, 3], [1, 3, 0, 2], [0, 2, 1, 3]], 4),
    ([[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]], 2),
    ([[2, 0, 1, 3], [3, 1, 0, 2], [2, 0, 1, 3]], 2),
]


@st.composite
def some_rankings(draw: st.DrawFn, largest: int = 6) -> list[list[int]]:
    n = draw(st.integers(1, largest))
    return draw(st.lists(st.permutations(range(n)), min_size=2, max_size=5))


def fits(seen: Mapping[Case, int], law: Mapping[Case, Fraction]) -> bool:
    """Chi-square; no outcome that cannot be, and the deviations of those that can are what chance makes them."""
    draws = sum(seen.values())
    statistic = sum((seen.get(case, 0) - draws * float(p)) ** 2 / (draws * float(p)) for case, p in law.items())
    return set(seen) <= set(law) and (len(law) == 1 or chdtrc(len(law) - 1, statistic) > 0.001)


# -- rankings ------------------------------------------------------------------------------------------------------


@given(data=st.data(), n=st.integers(1, 20), rankers=st.integers(1, 4))
def test_rankings_sort_by_score_then_tie_then_list(data: st.DataObject, n: int, rankers: int) -> None:
    few = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e300, float("inf")])
    scores = data.draw(st.lists(st.lists(few, min_size=n, max_size=n), min_size=rankers, max_size=rankers))
    ties = data.draw(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=n, max_size=n))
    expected = [top_k(row, ties, n) for row in scores]
    assert interleaving.rankings(frozen(scores), frozen(ties)).tolist() == expected


@given(rankings=some_rankings())
def test_ranks_are_the_inverse(rankings: list[list[int]]) -> None:
    expected = [[ranking.index(d) for ranking in rankings] for d in range(len(rankings[0]))]
    assert interleaving.ranks_of(positions(rankings)).tolist() == expected


@pytest.mark.parametrize(
    ("rankings", "odd"),
    [
        ([[0, 1, 2], [2, 1, 0]], -1),
        ([[0, 1, 2], [2, 1, 2]], 1),
        ([[0, 1, 3], [2, 1, 2]], 0),
        ([[0, 1, 2], [-1, 1, 2]], 1),
    ],
)
def test_the_ranking_that_is_no_permutation_is_found(rankings: list[list[int]], odd: int) -> None:
    assert interleaving.odd_one(positions(rankings)) == odd


# -- lists ---------------------------------------------------------------------------------------------------------


@given(rankings=some_rankings(), seed=SEEDS, data=st.data())
def test_the_same_coins_mix_the_same_lists(rankings: list[list[int]], seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rankings[0])))
    tau = data.draw(st.integers(0, 4))
    coins = np.random.default_rng(seed).random((2, k))
    one, two, rows = frozen(coins[0]), frozen(coins), positions(rankings)
    order, team = interleaving.team_draft(rows, one, k)
    assert (order.tolist(), team.tolist()) == naive.team_draft(rankings, one.tolist(), k)
    order, credit = interleaving.probabilistic(rows, two, k, float(tau))
    assert order.tolist() == naive.probabilistic(rankings, coins.tolist(), k, tau)
    posterior = [[float(share) for share in row] for row in naive.posterior(rankings, order.tolist(), tau)]
    assert credit == pytest.approx(np.array(posterior), rel=1e-11)
    order, ranks, choices = interleaving.pairwise_preference(rows, one, k)
    assert order.tolist() == naive.pairwise_preference(rankings, one.tolist(), k)
    assert ranks.tolist() == [[ranking.index(d) for ranking in rankings] for d in order]
    assert choices.tolist() == [len(naive.choice_set(rankings, p + 1)) - p for p in range(k)]


@pytest.mark.parametrize(("rankings", "k"), SOME)
def test_team_draft_follows_its_law(rankings: list[list[int]], k: int) -> None:
    rng, rows = np.random.default_rng(1), positions(rankings)
    drawn = (interleaving.team_draft(rows, frozen(rng.random(k)), k) for _ in range(DRAWS))
    seen = Counter((tuple(order.tolist()), tuple(team.tolist())) for order, team in drawn)
    law = naive.team_draft_law(rankings, k)
    assert sum(law.values()) == 1
    assert fits(seen, law)


@pytest.mark.parametrize("tau", [0, 1, 3])
@pytest.mark.parametrize(("rankings", "k"), SOME)
def test_probabilistic_lists_follow_their_law(rankings: list[list[int]], k: int, tau: int) -> None:
    rng, rows = np.random.default_rng(2), positions(rankings)
    drawn = (interleaving.probabilistic(rows, frozen(rng.random((2, k))), k, float(tau)) for _ in range(DRAWS))
    seen = Counter(tuple(order.tolist()) for order, _ in drawn)
    law = naive.probabilistic_law(rankings, k, tau)
    assert sum(law.values()) == 1
    assert fits(seen, law)


@pytest.mark.parametrize(("rankings", "k"), SOME)
def test_pairwise_preference_lists_follow_their_law(rankings: list[list[int]], k: int) -> None:
    rng, rows = np.random.default_rng(3), positions(rankings)
    drawn = (interleaving.pairwise_preference(rows, frozen(rng.random(k)), k) for _ in range(DRAWS))
    seen = Counter(tuple(order.tolist()) for order, _, _ in drawn)
    law = naive.pairwise_preference_law(rankings, k)
    assert sum(law.values()) == 1
    assert fits(seen, law)


def test_the_smallest_and_the_largest_coins() -> None:
    """A coin of 0 and the last one below 1 stay within the list, however steep or flat the soft ranks are."""
    rows = positions([np.arange(200), np.arange(200)[::-1]])
    last = np.nextafter(1.0, 0.0)
    for coin in (0.0, last):
        for tau in (0.0, 1.0, 3.0, 30.0):
            order, credit = interleaving.probabilistic(rows, frozen(np.full((2, 200), coin)), 200, tau)
            assert sorted(order.tolist()) == list(range(200))
            assert np.isfinite(credit).all()
        for mixing in (interleaving.team_draft, interleaving.pairwise_preference):
            assert sorted(mixing(rows, frozen(np.full(200, coin)), 200)[0].tolist()) == list(range(200))


# -- credit --------------------------------------------------------------------------------------------------------


def shares_and_clicks(data: st.DataObject, rankers: int, clicked: int) -> tuple[list[list[float]], list[float]]:
    """A posterior of some list, some of its rows sure of one ranker, and that many clicks."""
    k = max(1, clicked + data.draw(st.integers(0, 2)))
    rng = np.random.default_rng(data.draw(SEEDS))
    shares = rng.dirichlet(np.full(rankers, 0.5), size=k)
    for p in range(k):
        if data.draw(st.booleans()):
            shares[p] = np.eye(rankers)[rng.integers(rankers)]
    clicks = rng.permutation([1.0] * clicked + [0.0] * (k - clicked))
    return shares.tolist(), clicks.tolist()


@settings(max_examples=8)
@pytest.mark.parametrize("rankers", [2, 3, 5])
@pytest.mark.parametrize("clicked", [0, 1, 2, 5])
@given(data=st.data())
def test_wins_and_losses_are_those_of_all_assignments(rankers: int, clicked: int, data: st.DataObject) -> None:
    shares, clicks = shares_and_clicks(data, rankers, clicked)
    against = data.draw(st.integers(0, rankers - 1))
    found = interleaving.win_and_loss(frozen(shares), frozen(clicks), against)
    assert found == pytest.approx(np.array(naive.win_and_loss(shares, clicks, against)), rel=1e-12, abs=1e-14)
    credit = interleaving.expected_clicks(frozen(shares), frozen(clicks))
    assert credit == pytest.approx(naive.expected_clicks(shares, clicks), rel=1e-12, abs=1e-14)


@given(rankings=some_rankings(), seed=SEEDS, data=st.data())
def test_pair_credit(rankings: list[list[int]], seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rankings[0])))
    clicks = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=k, max_size=k))
    coins = frozen(np.random.default_rng(seed).random(k))
    order, ranks, choices = interleaving.pairwise_preference(positions(rankings), coins, k)
    found = interleaving.pair_credit(positions(ranks), positions(choices), frozen(clicks))
    expected = [float(credit) for credit in naive.pair_credit(rankings, order.tolist(), clicks)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_list_that_could_not_be_drawn_has_no_infinite_weights() -> None:
    """Document 0 was the only choice for the first position, yet the memo says that it came second."""
    ranks, choices = positions([[1, 1], [0, 0]]), positions([1, 1])
    assert interleaving.pair_credit(ranks, choices, frozen([1, 0])).tolist() == [0.0, 0.0]
    ranks = positions([[1, 1], [2, 2], [0, 0]])
    assert np.isfinite(interleaving.pair_credit(ranks, positions([1, 1, 1]), frozen([0, 1, 0]))).all()


# -- two teams -----------------------------------------------------------------------------------------------------


@st.composite
def two_teams(draw: st.DrawFn, against_base: bool = False) -> tuple[list[int], list[int], int, int, int]:
    """Two rankings of n documents that keep a bound, or do not care, cut at k; n, displacement, k."""
    n = draw(st.integers(1, 10))
    k, displacement = draw(st.integers(1, n)), draw(st.sampled_from([0, 1, 2, 3, n]))
    rankings = [
        ranking.bounded_order(positions(draw(st.permutations(range(n)))), displacement, k).tolist() for _ in "ab"
    ]
    return rankings[0], list(range(k)) if against_base else rankings[1], n, displacement, k


@given(teams=two_teams(), data=st.data())
def test_two_team_draft(teams: tuple[list[int], list[int], int, int, int], data: st.DataObject) -> None:
    """As its definition; k different documents, none too far from its place, none left out that had to be shown."""
    first, second, n, displacement, k = teams
    coins = data.draw(st.lists(st.booleans(), min_size=k, max_size=k))
    uniforms = frozen([0.4999 if coin else 0.5 for coin in coins])
    order, owner = interleaving.two_team_draft(positions(first), positions(second), uniforms, n, displacement, k)
    expected = naive.two_team_draft(first, second, coins, displacement, k)
    assert (order.tolist(), owner.tolist()) == expected[:2]
    assert len(set(order.tolist())) == k
    assert all(abs(place - item) <= displacement for place, item in enumerate(order.tolist()))
    assert set(range(k - displacement)) <= set(order.tolist())


@given(teams=two_teams(against_base=True), data=st.data())
def test_against_the_base_order_nothing_is_forced(
    teams: tuple[list[int], list[int], int, int, int], data: st.DataObject
) -> None:
    first, second, _, displacement, k = teams
    coins = data.draw(st.lists(st.booleans(), min_size=k, max_size=k))
    order, owner, forced = naive.two_team_draft(first, second, coins, displacement, k)
    assert forced == []
    assert (order, owner) == naive.two_team_draft(first, second, coins, 10**6, k)[:2]


@given(teams=two_teams(), data=st.data())
def test_each_side_shows_what_it_wants_and_agreement_is_nobodys(
    teams: tuple[list[int], list[int], int, int, int], data: st.DataObject
) -> None:
    first, second, n, _, k = teams
    uniforms = frozen(data.draw(st.lists(st.floats(0, 0.999), min_size=k, max_size=k)))
    order, owner = interleaving.two_team_draft(positions(first), positions(second), uniforms, n, n, k)
    for p, (item, side) in enumerate(zip(order.tolist(), owner.tolist(), strict=True)):
        above = order[:p].tolist()
        for ranked in [first] * (side >= 0) + [second] * (side <= 0):
            assert item == next(d for d in ranked if d not in above)
    same = interleaving.two_team_draft(positions(first), positions(first), uniforms, n, n, k)
    assert same[0].tolist() == first
    assert not same[1].any()
