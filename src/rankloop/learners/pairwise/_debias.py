"""What a pair of a shown list counts, so that the order shown does not confirm itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankloop.core.learner import memo_of, show
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import plackett_luce, preferences

DEBIASES = ("propensity", "plackett-luce", "none")
DOUBT = 0.3  # what is left of the weight of a pair in a fixed order whose lower document may not have been seen


def notes(
    scores: Array, order: Array, debias: str, shares: Callable[[], Array], doubt: float = DOUBT
) -> dict[str, Array]:
    """What `pair_weights` will need, for the memo; `shares` (k, k) of swapped lists is asked only where it is."""
    if debias == "none":
        return {}
    memo = {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
    if debias == "propensity":
        memo |= {"shares": shares(), "doubt": np.array([doubt])}
    return memo


def told(candidates: Candidates, scores: Array, order: Array, debias: str, examine_next: bool) -> Impression:
    """The impression of a list that someone else ordered; it was not drawn, so its pairs count as in a fixed order.

    Without the doubtful ones: they pull against the order, which is good where it is the learner's own certainty that
    must stay revisable, and harm where all lists come from one hand. Neighbors are not doubtful: with `examine_next`
    the one below a last click counts as seen, so both ways to prefer one of two are noticed.
    """
    near = 0.5 * (np.eye(order.size, k=1) + np.eye(order.size, k=-1)) * examine_next
    return show(candidates, order, notes(scores, order, debias, lambda: near, doubt=0.0))


def pair_weights(impression: Impression, clicks: Array, pairs: Array, debias: str) -> Array:
    """How much each pair counts: its share ρ = P(R*) / (P(R) + P(R*)), or 1 without debiasing; times the difference of
    the two rewards, which is 1 for plain clicks."""
    better = preferences.differences(clicks, pairs)
    if debias == "none":
        return better
    k = len(impression.order)
    scores, rest = memo_of(impression, "scores", k), memo_of(impression, "rest", 1)[0]
    if debias == "plackett-luce":
        return plackett_luce.swap_shares(scores, rest, pairs) * better
    doubt, shares = memo_of(impression, "doubt", 1)[0], memo_of(impression, "shares", k, k)
    return plackett_luce.debiased(scores, rest, doubt, shares, clicks, pairs, better)
