"""Plackett-Luce by the textbook product, in decimals wide enough that e^±1000 neither overflows nor vanishes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from itertools import permutations

from tests.reference.ranking import top_k

# Scores 1e3 apart differ by 870 digits in weight; the 40 digits kept are relative, and are more than a float has.
WIDE = Context(prec=40, Emin=-999_999, Emax=999_999)


def probability(scores: Sequence[float], ranking: Sequence[int]) -> Decimal:
    """P(the ranking starts with `ranking`) = Π e^s / Σ e^s over the documents of all n that are not placed yet."""
    with localcontext(WIDE):
        weights = [Decimal(score).exp() for score in scores]
        left = set(range(len(scores)))
        product = Decimal(1)
        for document in ranking:
            product *= weights[document] / sum(weights[i] for i in left)
            left.remove(document)
        return product


def distribution(scores: Sequence[float], k: int) -> dict[tuple[int, ...], float]:
    """The probability of every list of k documents."""
    return {ranking: float(probability(scores, ranking)) for ranking in permutations(range(len(scores)), k)}


def sample(scores: Sequence[float], uniforms: Sequence[float], k: int) -> list[int]:
    """The k highest s + g, with Gumbel noise g = -log(-log u), 0 < u < 1."""
    noisy = [s - math.log(-math.log(u)) for s, u in zip(scores, uniforms, strict=True)]
    return top_k(noisy, [0.0] * len(noisy), k)


def rest_weight(scores: Sequence[float], order: Sequence[int]) -> float:
    """log Σ e^s over the documents left out, summed as it stands."""
    with localcontext(WIDE):
        total = sum((Decimal(scores[i]).exp() for i in range(len(scores)) if i not in set(order)), Decimal(0))
        return float(total.ln()) if total else -math.inf


def swap_share(scores: Sequence[float], order: Sequence[int], a: int, b: int) -> float:
    """P(R*) / (P(R) + P(R*)) with both probabilities computed whole, over all n documents.

    `scores` are those of all n documents, `order` the shown ones, a and b two shown positions.
    """
    swapped = list(order)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    with localcontext(WIDE):
        shown, other = probability(scores, order), probability(scores, swapped)
        return float(other / (shown + other))


def pdgd_gradient(
    features: Sequence[Sequence[float]],
    scores: Sequence[float],
    order: Sequence[int],
    pairs: Sequence[Sequence[int]],
    better: Sequence[float],
) -> list[float]:
    """Σ difference · share · e^{s_a} e^{s_b} / (e^{s_a} + e^{s_b})² (x_a - x_b); features and scores of all."""
    gradient = [0.0] * len(features[0])
    for (a, b), difference in zip(pairs, better, strict=True):
        with localcontext(WIDE):
            weight_a, weight_b = Decimal(scores[order[a]]).exp(), Decimal(scores[order[b]]).exp()
            slope = float(weight_a * weight_b / (weight_a + weight_b) ** 2)
        share = swap_share(scores, order, a, b)
        for f, (x_a, x_b) in enumerate(zip(features[order[a]], features[order[b]], strict=True)):
            gradient[f] += difference * share * slope * (x_a - x_b)
    return gradient
