"""BubbleRank where fewer items are shown than there are, and where the candidates of a query change."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Candidates, Feedback
from rankloop.kernels.bandits import misordered_above
from rankloop.kernels.click_models import CASCADE, POSITION
from rankloop.lab.runs.compiled import QUERY, play
from rankloop.learners.bandits.bubblerank import BubbleRank
from tests.learners.bubbling import (
    EVEN,
    KEEP,
    ODD,
    RNG,
    SWAP,
    cascade,
    pairs,
    position_based,
    ranked,
    some,
    text,
)

# -- fewer positions than items ------------------------------------------------------------------------------------


def test_an_item_from_outside_takes_part_in_the_last_pair() -> None:
    learner, page = BubbleRank(), some("abcd")
    shown = ranked(learner, page, 2, EVEN, SWAP, 0.5)
    assert text(page, shown.order) == "ba"
    learner.learn(shown, Feedback.clicks([0, 0]), RNG)
    shown = ranked(learner, page, 2, ODD, SWAP, 0.7)  # the second of c and d is shown instead of b
    assert text(page, shown.order) == "ad"
    learner.learn(shown, Feedback.clicks([0, 1]), RNG)
    assert pairs(learner, "abcd") == {"bd": (-1, 1)}  # b was not shown, so it was not clicked
    shown = ranked(learner, page, 2, ODD, KEEP, 0.2)
    assert text(page, shown.order) == "ab"
    learner.learn(shown, Feedback.clicks([1, 0]), RNG)  # nobody looked, or nobody liked it: says nothing
    assert pairs(learner, "abcd") == {"bd": (-1, 1)}
    learner.learn(ranked(learner, page, 2, ODD, KEEP, 0.2), Feedback.clicks([0, 1]), RNG)
    assert pairs(learner, "abcd") == {"bd": (-1, 1), "bc": (1, 1)}
    assert text(page, learner.best(page, 4)) == "abcd"  # those outside stand as they came, whoever was tried first


def test_who_is_decided_against_challenges_no_more_until_someone_else_stands_last() -> None:
    learner, page = BubbleRank(delta=0.1), some("abcd")  # ten comparisons of ten decide
    chance = {item: np.exp(learner.log_propensity(page, np.array([0, i]))) for i, item in enumerate("abcd") if i}
    assert chance == pytest.approx({"b": 1 / 2, "c": 1 / 8, "d": 1 / 8})
    for _ in range(10):
        learner.learn(ranked(learner, page, 2, ODD, KEEP, 0.1), Feedback.clicks([0, 1]), RNG)  # b wins against c
    assert learner.log_propensity(page, np.array([0, 2])) == -np.inf
    assert np.exp(learner.log_propensity(page, np.array([0, 3]))) == pytest.approx(1 / 4)
    for _ in range(10):
        assert text(page, ranked(learner, page, 2, ODD, SWAP, 0.1).order) == "ad"
        learner.learn(ranked(learner, page, 2, ODD, KEEP, 0.1), Feedback.clicks([0, 1]), RNG)
    shown = ranked(learner, page, 2, ODD, SWAP, 0.1)  # nobody is left
    assert (text(page, shown.order), shown.memo["pairs"].tolist(), "outside" in shown.memo) == ("ab", [0, 0], False)
    learner.learn(shown, Feedback.clicks([1, 1]), RNG)
    for _ in range(10):
        learner.learn(ranked(learner, page, 2, EVEN, KEEP, 0.1), Feedback.clicks([0, 1]), RNG)  # b wins against a
    assert text(page, learner.best(page, 4)) == "bacd"
    assert text(page, ranked(learner, page, 2, ODD, SWAP, 0.1).order) == "bc"  # a has not met them


@pytest.mark.parametrize("kind", [CASCADE, POSITION])
def test_the_best_of_thirty_items_comes_up_from_the_end_to_the_top_of_ten(kind: int) -> None:
    attraction = np.append(np.linspace(0.25, 0.05, 29), 0.9)
    user = cascade(attraction) if kind == CASCADE else position_based(attraction, np.linspace(1.0, 0.4, 10))
    learner, page, everyone = BubbleRank(delta=1e-6), Candidates(QUERY, np.arange(30)), np.arange(30)
    outcome = play(learner, user, [400_000], 1, k=10, most=10**6)
    learned = learner.best(page, 30)
    assert learned[0] == 29
    assert outcome.harmful == 0
    assert misordered_above(attraction, learned, 10) < misordered_above(attraction, everyone, 10)
    assert sorted(learned.tolist()) == everyone.tolist()


def test_every_item_within_the_bound_has_its_chance_and_no_item_beyond() -> None:
    learner, page, rng = BubbleRank(max_items=9), Candidates(QUERY, np.arange(12)), np.random.default_rng(3)
    came = np.zeros(12, np.int64)
    for _ in range(1500):
        shown = learner.rank(page, 3, rng)
        came[shown.order] += 1
        learner.learn(shown, Feedback.clicks(np.zeros(3)), rng)
    assert came[3:9].min() > 30
    assert came[9:].max() == 0
    assert learner.best(page, 12).tolist() == list(range(12))


def test_a_memo_without_the_item_from_outside_is_refused() -> None:
    learner, page = BubbleRank(), some("abcd")
    shown = ranked(learner, page, 2, ODD, SWAP, 0.7)
    for broken in ({}, {"outside": shown.memo["outside"][:1]}):
        kept = {name: value for name, value in shown.memo.items() if name != "outside"}
        with pytest.raises(InvalidInput, match="outside"):
            learner.learn(shown._replace(memo={**kept, **broken}), Feedback.clicks([0, 1]), RNG)


# -- lists that change ---------------------------------------------------------------------------------------------


def test_feedback_that_comes_late_counts_for_the_pairs_of_its_own_list() -> None:
    learner, page = BubbleRank(), some("abc")
    one, two = ranked(learner, page, 3, EVEN, SWAP), ranked(learner, page, 3, EVEN, KEEP)
    learner.learn(two, Feedback.clicks([0, 0, 0]), RNG)
    other = ranked(learner, page, 3, ODD, SWAP)  # now the pair (2, 3)
    learner.learn(other, Feedback.clicks([1, 1, 0]), RNG)
    learner.learn(one, Feedback.clicks([1, 0, 0]), RNG)  # b a c was shown: b won against a
    assert pairs(learner, "abc") == {"bc": (-1, 1), "ab": (-1, 1)}
    assert learner.queries_.rounds(0) == 3


def taught(learner: BubbleRank, page: Candidates, liked: str, rounds: int) -> None:
    rng = np.random.default_rng(8)
    for _ in range(rounds):
        shown = learner.rank(page, page.n, rng)
        learner.learn(shown, Feedback.clicks(np.isin(shown.items, list(liked))), rng)


def test_an_item_that_is_gone_does_not_stand_between_the_others() -> None:
    learner = BubbleRank(horizon=10)
    taught(learner, some("axb"), "", 2)
    taught(learner, some("ab"), "b", 100)
    assert text(some("ab"), learner.best(some("ab"), 2)) == "ba"
    assert text(some("axb"), learner.best(some("axb"), 3)) == "bxa"  # x kept its place
    assert pairs(learner, "abx")["ab"][0] == -37


def test_a_new_item_stands_where_the_caller_put_it() -> None:
    learner = BubbleRank(horizon=10)
    taught(learner, some("abc"), "c", 300)
    assert text(some("abc"), learner.best(some("abc"), 3)) == "cab"
    page = some("xabyc")
    assert text(page, learner.best(page, 5)) == "xcayb"
    shown = ranked(learner, page, 5, ODD, KEEP, KEEP)
    learner.learn(shown, Feedback.clicks([0] * 5), RNG)
    assert text(some("cbayx"), learner.best(some("cbayx"), 5)) == "xcayb"  # now it has a place of its own


def test_where_a_query_is_full_the_item_learned_from_the_longest_ago_makes_room() -> None:
    learner = BubbleRank(horizon=10, max_items=3)
    taught(learner, some("abc"), "b", 100)
    taught(learner, some("bc"), "", 1)
    taught(learner, some("bcd"), "", 1)
    assert pairs(learner, "abcd").keys() <= {"bc", "bd", "cd"}
    page = some("dcba")  # a is new again, and the others stand as they do in the base list
    assert text(page, learner.best(page, 4)) == "bcda"
