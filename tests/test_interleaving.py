"""Interleaving is fair, sees who is better, and scoring is a function of list and clicks.

Expectations are exact: every list that a method can draw, with its probability, from the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array, Impression
from rankloop.evaluation.interleaving import (
    METHODS,
    InterleavedRanking,
    Method,
    credit,
    interleave,
    preferences,
    rankings_from_scores,
)
from tests.kernels.inputs import SEEDS, positions
from tests.reference import interleaving as naive

Rankings = list[list[int]]
Clicks = Callable[[tuple[int, ...]], list[float]]  # the clicks on a list


def every_list(method: Method, rankings: Rankings, k: int, tau: int = 3) -> Iterator[tuple[float, InterleavedRanking]]:
    """All rankings that `interleave` can draw, and how likely each is."""
    if method == "team-draft":
        for (order, team), chance in naive.team_draft_law(rankings, k).items():
            memo = {"team": positions(team), "rankers": positions([len(rankings)])}
            yield float(chance), InterleavedRanking(method, positions(order), memo)
    elif method == "probabilistic":
        for order, chance in naive.probabilistic_law(rankings, k, tau).items():
            credit = [[float(share) for share in row] for row in naive.posterior(rankings, order, tau)]
            yield float(chance), InterleavedRanking(method, positions(order), {"credit": np.array(credit)})
    else:
        choices = [len(naive.choice_set(rankings, p + 1)) - p for p in range(k)]
        for order, chance in naive.pairwise_preference_law(rankings, k).items():
            ranks = [[ranking.index(d) for ranking in rankings] for d in order]
            yield (
                float(chance),
                InterleavedRanking(
                    method, positions(order), {"ranks": positions(ranks), "choices": positions(choices)}
                ),
            )


def expected(method: Method, rankings: Rankings, k: int, clicks: Clicks) -> tuple[Array, Array]:
    """(R,) mean credit, and (R,) mean win - loss against the first ranker."""
    earned, score = np.zeros(len(rankings)), np.zeros(len(rankings))
    for chance, mixed in every_list(method, rankings, k):
        clicked = clicks(tuple(mixed.order.tolist()))
        earned += chance * credit(mixed, clicked)
        score += chance * preferences(mixed, clicked).score
    return earned, score


def on(*relevant: int) -> Clicks:
    """The user who clicks the relevant documents, wherever they stand."""
    return lambda order: [float(d in relevant) for d in order]


small_rankings = st.integers(2, 4).flatmap(
    lambda n: st.lists(st.permutations(range(n)), min_size=2, max_size=3).map(lambda rows: [list(row) for row in rows])
)


# -- fairness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25)
@given(rankings=small_rankings, data=st.data())
def test_clicks_that_know_no_documents_prefer_nobody(method: Method, rankings: Rankings, data: st.DataObject) -> None:
    """Whatever positions are clicked, every ranker expects the same credit."""
    k = data.draw(st.integers(1, len(rankings[0])))
    clicks = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=k, max_size=k))
    earned, score = expected(method, rankings, k, lambda _: clicks)
    assert earned == pytest.approx(np.full(len(rankings), earned[0]), abs=1e-12)
    if method != "pairwise-preference":
        assert earned == pytest.approx(np.full(len(rankings), sum(clicks) / len(rankings)))
        assert score == pytest.approx(np.zeros(len(rankings)), abs=1e-12)


# -- who is better wins --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_better_ranker_wins(method: Method, k: int) -> None:
    """Documents 0 and 1 are relevant: the second ranker has them first, the first one last, the third in between.

    Between the first and the third team draft may call a draw: both have something else to show first.
    """
    earned, score = expected(method, [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4], [2, 0, 3, 1, 4]], k, on(0, 1))
    assert earned[1] > earned[2] >= earned[0]
    assert score[1] > 0
    if method != "team-draft":
        assert earned[2] > earned[0]
        assert score[2] > 0


@pytest.mark.parametrize("method", ["probabilistic", "pairwise-preference"])
def test_pareto_dominance_is_always_seen(method: Method) -> None:
    """If every relevant document stands at least as high, and one higher, the expected credit is higher.

    The second part of fidelity (Hofmann et al. 2013; Oosterhuis and de Rijke 2017), for all rankings of 4 documents.
    """
    first = [0, 1, 2, 3]
    for second in permutations(first):
        for relevant in ({0}, {1}, {3}, {0, 2}, {1, 2}, {1, 3}, {0, 1, 3}):
            moves = [second.index(d) - first.index(d) for d in relevant]
            if any(moves) and min(moves) >= 0:
                earned, _ = expected(method, [first, list(second)], 4, on(*relevant))
                assert earned[0] > earned[1] + 1e-9, (second, relevant)


def test_team_draft_misses_what_the_others_see() -> None:
    """The example of Hofmann et al. (2011): 2 stands higher in the second ranking, yet is as often the first's."""
    rankings = [[0, 1, 2], [1, 2, 0]]
    earned, score = expected("team-draft", rankings, 3, on(2))
    assert earned[0] == earned[1]
    assert score[1] == 0.0
    for method in METHODS[1:]:
        earned, score = expected(method, rankings, 3, on(2))
        assert earned[1] > earned[0]
        assert score[1] > 0


# -- lists ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["team-draft", "pairwise-preference"])
@given(rankings=small_rankings)
def test_no_document_stands_higher_than_some_ranker_has_it(method: Method, rankings: Rankings) -> None:
    """Considerateness: what is shown is never worse than what some ranker would have shown."""
    for _, mixed in every_list(method, rankings, len(rankings[0])):
        for p, d in enumerate(mixed.order.tolist()):
            assert min(ranking.index(d) for ranking in rankings) <= p


@pytest.mark.parametrize("method", METHODS)
def test_same_numbers_same_list_and_nothing_is_touched(method: Method) -> None:
    rankings = positions([np.random.default_rng(r).permutation(30) for r in range(4)])
    before = rankings.copy()
    one, two = (interleave(rankings, 10, np.random.default_rng(5), method) for _ in range(2))
    assert one.order.tolist() == two.order.tolist()
    assert all(value.tobytes() == two.memo[name].tobytes() for name, value in one.memo.items())
    assert len(set(one.order.tolist())) == one.k == 10
    assert (rankings == before).all()
    for value in (one.order, *one.memo.values()):
        assert value.dtype in (np.float64, np.int64)
        assert not np.shares_memory(value, rankings)


# -- scoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_memo_travels_with_an_impression(method: Method) -> None:
    rng = np.random.default_rng(2)
    mixed = interleave([rng.permutation(9) for _ in range(3)], 5, rng, method)
    impression = Impression("q", mixed.order, mixed.order, None, {**mixed.memo, "direction": np.ones(4)})
    read = codec.load_impression(codec.dump_impression(impression))
    again = InterleavedRanking(method, read.order, read.memo)
    for clicks in product([0.0, 1.0], repeat=5):
        assert credit(again, clicks).tolist() == credit(mixed, clicks).tolist()


@given(seed=SEEDS, rankers=st.integers(2, 5), against=st.integers(0, 1))
def test_wins_losses_and_ties(seed: int, rankers: int, against: int) -> None:
    """They are a law, the other way round they are swapped, and the mean lead is the difference in credit."""
    rng = np.random.default_rng(seed)
    rankings = [rng.permutation(12) for _ in range(rankers)]
    clicks = (rng.random(6) < 0.5).astype(float)
    for method in METHODS:
        mixed = interleave(rankings, 6, rng, method)
        found, earned = preferences(mixed, clicks, against), credit(mixed, clicks)
        assert found.win + found.loss + found.tie == pytest.approx(np.ones(rankers))
        for r in range(rankers):
            back = preferences(mixed, clicks, r)
            assert found.win[r] == pytest.approx(back.loss[against], abs=1e-14)
        if method != "probabilistic":
            assert np.sign(found.score).tolist() == np.sign((earned - earned[against]).round(9)).tolist()
        elif clicks.sum() == 1:
            assert found.score == pytest.approx(earned - earned[against])


def test_rankings_of_breaks_ties_at_random_but_for_all_alike() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(40):
        first, second = rankings_from_scores([[1.0, 1.0, 2.0], [0.0, 0.0, -1.0]], rng).tolist()
        assert first[0] == 2 == second[2]
        assert first[1:] == second[:2]
        seen.add(first[1])
    assert seen == {0, 1}


# -- bad input is named --------------------------------------------------------------------------------------------

GOOD = [[0, 1, 2], [2, 1, 0]]


@pytest.mark.parametrize(
    ("rankings", "words"),
    [
        ([[0, 1, 2], [2, 1, 1]], r"rankings\[1\] is \[2, 1, 1\]; it must hold each of 0 … 2 once"),
        ([[0, 1, 2], [3, 1, 0]], r"rankings\[1\] is \[3, 1, 0\]"),
        ([[0, -1, 2], [2, 1, 0]], r"rankings\[0\] is \[0, -1, 2\]"),
        ([[0, 1, 2], [1, 0]], "different lengths"),
        ([0, 1, 2], r"rankings has shape \(3,\)"),
        ([[0, 1, 2]], "at least two rankers"),
        ([[], []], "at least two rankers"),
        ([[0.0, 1.0], [1.0, 0.0]], "rankings is of type float64"),
        ([np.arange(50), np.zeros(50, int)], r"rankings\[1\] is \[0, .*\] …; it must hold"),
    ],
)
def test_rankings_that_are_none(rankings: list[list[int]], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        interleave(rankings, 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("clicks", "words"),
    [
        ([1, 0, 0], r"clicks have shape \(3,\) for 2 shown"),
        ([[1, 0]], r"clicks have shape \(1, 2\)"),
        ([-1, 0], "every value must be a finite number of at least 0"),
        ([float("nan"), 0], "every value must be a finite number"),
        (["yes"], "give a number for each position"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_clicks_that_do_not_fit(method: Method, clicks: list[float], words: str) -> None:
    mixed = interleave(GOOD, 2, np.random.default_rng(0), method)
    for scoring in (credit, preferences):
        with pytest.raises(InvalidInput, match=words):
            scoring(mixed, clicks)


@pytest.mark.parametrize("method", METHODS)
def test_a_memo_that_is_not_whole(method: Method) -> None:
    mixed = interleave(GOOD, 3, np.random.default_rng(0), method)
    for name, value in mixed.memo.items():
        for broken in (value[:0], value.astype(np.float32), -1 - value, value[None]):
            with pytest.raises(InvalidInput, match="is missing in the memo or not that of"):
                credit(mixed._replace(memo={**mixed.memo, name: broken}), [1])
        with pytest.raises(InvalidInput, match=f"'{name}' is missing in the memo"):
            credit(mixed._replace(memo={key: other for key, other in mixed.memo.items() if key != name}), [1])
    with pytest.raises(InvalidInput, match="memo"):
        credit(mixed._replace(order=mixed.order[:2]), [1])


# -- docs ----------------------------------------------------------------------------------------------------------
