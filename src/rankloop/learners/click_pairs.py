"""Click pairs: what clicks say about pairs of documents, and how much each pair counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.learner import checked_order, make_impression, memo_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import plackett_luce, preferences
from rankloop.learners.policies import Draw

RULES = {"adjacent": preferences.ADJACENT, "matched": preferences.MATCHED, "all": preferences.ALL}
UNSEEN_WEIGHT = 0.3  # of PDGD's ρ, for a pair in a fixed order whose lower document may not have been examined


class ClickPairs(NamedTuple):
    """Pairs of positions (better, worse) and their weights."""

    pairs: Array  # (m, 2)
    weights: Array  # (m,), `tempering` included
    tempering: float = 1.0


NO_PAIRS = ClickPairs(np.zeros((0, 2), np.int64), np.zeros(0))


def propensity_memo(scores: Array, draw: Draw) -> dict[str, Array]:
    """What `weighted_pairs` needs to know about a ranking that was drawn."""
    return {**_scores_memo(scores, draw.order), "shares": draw.swap_shares(), "doubt": np.array([UNSEEN_WEIGHT])}


def adopted(candidates: Candidates, scores: Array, order: Array, examine_next: bool) -> Impression:
    """The impression of a ranking that someone else chose; nothing was drawn, so its pairs count as in a fixed order.

    Pairs whose lower document may not have been examined do not count. They keep a learner's own certainty open to
    revision, but do harm if all rankings come from one source. With `examine_next`, neighbors are examined either way.
    """
    order = checked_order(candidates, order)
    near = 0.5 * (np.eye(order.size, k=1) + np.eye(order.size, k=-1)) * examine_next
    memo = {**_scores_memo(scores, order), "shares": near, "doubt": np.array([0.0])}
    return make_impression(candidates, order, memo)


def weighted_pairs(
    impression: Impression, clicks: Array, seen: int, rule: str, examine_next: bool, rng: np.random.Generator
) -> ClickPairs:
    """Pairs with propensity weights, tempered if they are all pairs.

    Pairs of m examined documents share documents, and all of them together hold 2/m of what as many independent pairs
    would.
    """
    pairs = untempered_pairs(impression, clicks, seen, rule, examine_next, rng)
    if rule != "all" or not len(pairs.pairs):
        return pairs
    return tempered(pairs, preferences.examined_count(clicks, examine_next, seen))


def untempered_pairs(
    impression: Impression, clicks: Array, seen: int, rule: str, examine_next: bool, rng: np.random.Generator
) -> ClickPairs:
    """Pairs with propensity weights, so that the ranking shown does not confirm itself.

    A pair counts its share ρ = P(R*) / (P(R) + P(R*)), R* being the ranking with the two swapped. A pair in a fixed
    order counts 1/2 if a click below shows that both were examined, else `UNSEEN_WEIGHT` times PDGD's ρ.
    """
    pairs = preferences.click_pairs(clicks, examine_next, seen, RULES[rule], rng.random(clicks.size))
    if len(pairs) == 0:
        return NO_PAIRS
    pairs, weights = preferences.drop_zero_weight(pairs, propensity_weights(impression, clicks, pairs), 1.0)
    return ClickPairs(pairs, weights)


def tempered(pairs: ClickPairs, examined: int) -> ClickPairs:
    """The pairs of so many examined documents, each counting 2/examined."""
    tempering = min(1.0, 2.0 / examined)
    return ClickPairs(pairs.pairs, pairs.weights * tempering, tempering)


def plain_pairs(clicks: Array, seen: int, rule: str, examine_next: bool, rng: np.random.Generator) -> ClickPairs:
    """Pairs that count the difference of their rewards, which is 1 for plain clicks."""
    pairs = preferences.click_pairs(clicks, examine_next, seen, RULES[rule], rng.random(clicks.size))
    return ClickPairs(pairs, preferences.differences(clicks, pairs))


def propensity_weights(impression: Impression, clicks: Array, pairs: Array) -> Array:
    """(m,) the weight ρ of each pair times the difference of its rewards."""
    k = len(impression.order)
    scores, rest = memo_of(impression, "scores", k), memo_of(impression, "rest", 1)[0]
    doubt, shares = memo_of(impression, "doubt", 1)[0], memo_of(impression, "shares", k, k)
    better = preferences.differences(clicks, pairs)
    return plackett_luce.debiased(scores, rest, doubt, shares, clicks, pairs, better)


def _scores_memo(scores: Array, order: Array) -> dict[str, Array]:
    return {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
