"""Learning from lists that someone else ordered: what PDGD and PairRank write down of them, and what they learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import pytest

from rankloop.checks.helpers import same_impression
from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import DRAWN, Learner, checked_order
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.evaluation.metrics import ndcg
from rankloop.kernels import preferences
from rankloop.learners.click_pairs import propensity_weights
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.pairwise.pdgd import PDGD
from tests.kernels.test_propensity import click_patterns

LISTS = [Candidates(features=np.random.default_rng(t).random((3 + t % 6, 4))) for t in range(30)]  # 3 to 8 documents


def own_and_adopted(learner: Learner) -> Iterator[tuple[Impression, Impression]]:
    """A list as rank made it and as adopt takes it, cold and after each round of learning."""
    for t, candidates in enumerate(LISTS):
        rng = np.random.default_rng(t)
        ranked = learner.rank(candidates, 5, rng)
        yield ranked, learner.adopt(candidates, ranked.order)
        learner.learn(ranked, Feedback.clicks(rng.integers(0, 2, ranked.k)), rng)


def undrawn(impression: Impression) -> Impression:
    """Without how likely it was: an adopted list was not drawn."""
    return impression._replace(memo={name: value for name, value in impression.memo.items() if name not in DRAWN})


def test_pdgd_writes_down_of_its_own_list_what_rank_did() -> None:
    """Bit for bit: PDGD's ρ knows only scores and order, so who chose the order makes no difference."""
    for ranked, adopted in own_and_adopted(PDGD()):
        assert same_impression(undrawn(ranked), adopted)


@pytest.mark.parametrize("explore", ["conservative", "blocks"])
@pytest.mark.parametrize("examine_next", [True, False])
def test_pairrank_writes_down_a_fixed_order(explore: Literal["conservative", "blocks"], examine_next: bool) -> None:
    """Scores and rest as rank has them; neighbors share alike where the one below a last click counts as seen."""
    for ranked, adopted in own_and_adopted(PairRank(explore=explore, examine_next=examine_next)):
        places = range(ranked.k)
        shares = [[0.5 if examine_next and abs(p - q) == 1 else 0.0 for q in places] for p in places]
        fixed = {"shares": np.array(shares), "doubt": np.zeros(1)}
        assert same_impression(adopted, ranked._replace(memo={**undrawn(ranked).memo, **fixed}))


def test_pairs_of_an_adopted_list_count_one_half_or_nothing() -> None:
    """One half above a further click and between neighbors; nothing where the lower may not have been seen."""
    learner = PairRank()
    shown, clicks = learner.adopt(LISTS[5], np.array([3, 0, 4, 1, 2])), np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    pairs = preferences.click_pairs(clicks, True, -1, preferences.ALL, clicks)
    weights = propensity_weights(shown, clicks, pairs)
    found = dict(zip(map(tuple, pairs.tolist()), weights.tolist(), strict=True))
    assert found == {(1, 0): 0.5, (1, 2): 0.5, (1, 4): 0.0, (3, 0): 0.0, (3, 2): 0.5, (3, 4): 0.5}


@pytest.mark.parametrize("examine_next", [True, False])
@pytest.mark.parametrize("stop", [0.0, 0.5, 1.0])
def test_adopted_lists_never_pull_against_their_order(stop: float, examine_next: bool) -> None:
    """All liked alike, every click pattern summed: what stands above is never pulled below what it was shown over.

    Nothing is pulled at all if users read everything; if they stop, the one below a last click may not have been seen,
    and the order is held a little: the careful side.
    """
    learner, k = PairRank(examine_next=examine_next), 4
    shown, pull = learner.adopt(Candidates(features=np.eye(k)), np.arange(k)), np.zeros((k, k))
    for pattern, chance in click_patterns(k, 0.4, stop):
        clicks = np.array(pattern)
        pairs = preferences.click_pairs(clicks, examine_next, -1, preferences.ALL, clicks)
        for (a, b), weight in zip(pairs, propensity_weights(shown, clicks, pairs), strict=True):
            pull[a, b] += chance * weight
    lean = np.triu(pull - pull.T)
    assert lean.min() >= -1e-15
    if stop == 0.0 or not examine_next:
        assert lean == pytest.approx(np.zeros((k, k)), abs=1e-15)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([], "order has shape (0,); give a list of at least one position"),
        ([[0, 1]], "order has shape (1, 2)"),
        (1, "order has shape ()"),
        ([[0], [1, 2]], "lists of different lengths"),
        (["a"], "order is of type <U1; positions must be whole numbers"),
        ([0.0], "order is of type float64"),
        ([2**70], "order is of type object"),
        ([0, 1, 2, 0], "order has 4 positions for 3 candidates; show each at most once"),
        ([0, 3], "order[1] is 3; positions count from 0 and must be below 3"),
        ([-1], "order[0] is -1"),
        (np.array([2**63], np.uint64), "order[0] is 9223372036854775808"),
        ([2, 0, 2], "position 2 stands twice in the order"),
    ],
)
def test_bad_orders_are_named(order: Array, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        checked_order(Candidates(items=["a", "b", "c"]), order)
    assert words in str(raised.value)


def test_a_good_order_is_copied_as_int64() -> None:
    order = np.array([2, 0], np.uint8)
    checked = checked_order(Candidates(items=["a", "b", "c"]), order)
    order[0] = 1
    assert checked.dtype == np.int64
    assert checked.tolist() == [2, 0]


@pytest.mark.parametrize("name", ["pairrank", "pdgd"])
@pytest.mark.parametrize("seed", range(3))
def test_shadow_learning_beats_the_order_it_watched(name: str, seed: int) -> None:
    """Users only ever see the base order, as much noise as truth, and click as navigational ones do."""
    rng = np.random.default_rng(seed)
    truth, queries, grades = rng.normal(size=5), [], []
    for _ in range(120):
        features = rng.random((20, 5))
        utility = features @ truth
        base = np.argsort(-utility - utility.std() * rng.normal(size=20))
        queries.append(Candidates(features=features[base]))
        grades.append(np.digitize(utility[base], np.sort(utility)[[12, 17]]))  # three of grade 2, five of grade 1
    learner, user = make(name), DependentClickUser.named("navigational", 2)
    for _ in range(1500):
        q = int(rng.integers(80))  # the others are held out
        shown = learner.adopt(queries[q], np.arange(10))
        learner.learn(shown, user.react(grades[q][shown.order], rng), rng)

    def held_out(orders: Callable[[Candidates], Array]) -> float:
        return float(np.mean([ndcg(grades[q][orders(queries[q])], 10, grades[q]) for q in range(80, 120)]))

    learned, watched = held_out(lambda query: learner.best(query, 10)), held_out(lambda _: np.arange(10))
    assert learned > watched + 0.1, f"NDCG@10 {learned:.3f} against {watched:.3f} of the base order"
