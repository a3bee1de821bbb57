"""Naive twins of the kernels that learn a linear ranker from the grades of the first positions.

Written from section 3.2 of Chaudhuri and Tewari (2017) with the corrections of our notes: losses and their gradients in
the scores, document by document, and the estimates as sums over what was graded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Numbers = Sequence[float]
Rows = Sequence[Sequence[float]]


# -- losses and their gradients in the scores, from all grades -------------------------------------------------------


def softmax(scores: Numbers, temperature: float = 1.0) -> list[float]:
    largest = max(scores)
    raw = [math.exp((s - largest) / temperature) for s in scores]
    return [value / sum(raw) for value in raw]


HIGHEST = 4.0  # the grade from which on, plus one, kl is a straight line


def exp_cut(score: float) -> tuple[float, float]:
    """exp, and its slope; from HIGHEST + 1 on the tangent there."""
    over = max(0.0, score - HIGHEST - 1.0)
    slope = math.exp(score - over)
    return slope * (1.0 + over), slope


def loss(surrogate: str, scores: Numbers, grades: Numbers, temperature: float) -> float:
    n = len(scores)
    if surrogate == "squared":
        return math.fsum((s - r) ** 2 for s, r in zip(scores, grades, strict=True))
    if surrogate == "ranksvm":
        pairs = ((i, j) for i in range(n) for j in range(n) if grades[i] > grades[j])
        return math.fsum(max(0.0, 1.0 + scores[j] - scores[i]) for i, j in pairs)
    if surrogate == "kl":
        return sum(
            math.exp(r) * r - math.exp(r) * s - math.exp(r) + exp_cut(s)[0] for s, r in zip(scores, grades, strict=True)
        )
    gains = [2.0**r - 1.0 for r in grades]
    return -math.fsum(g * q for g, q in zip(gains, softmax(scores, temperature), strict=True))  # a gain


def slopes(surrogate: str, scores: Numbers, grades: Numbers, temperature: float) -> list[float]:
    """∇_s of the loss (for ranksvm a subgradient: a pair at the hinge counts as over)."""
    n = len(scores)
    if surrogate == "squared":
        return [2.0 * (s - r) for s, r in zip(scores, grades, strict=True)]
    if surrogate == "kl":
        return [exp_cut(s)[1] - math.exp(r) for s, r in zip(scores, grades, strict=True)]
    found = [0.0] * n
    if surrogate == "ranksvm":
        for i in range(n):
            for j in range(n):
                if grades[i] > grades[j] and 1.0 + scores[j] > scores[i]:
                    found[j] += 1.0
                    found[i] -= 1.0
        return found
    q = softmax(scores, temperature)
    for i in range(n):
        for j in range(n):
            one = q[i] * (i == j) - q[i] * q[j]
            found[j] -= (2.0 ** grades[i] - 1.0) * one / temperature
    return found


def times(weights: Numbers, rows: Rows) -> list[float]:
    """Xᵀ w."""
    return [sum(w * row[j] for w, row in zip(weights, rows, strict=True)) for j in range(len(rows[0]))]


# -- estimates from the first grades ---------------------------------------------------------------------------------


def propensity(leader: Sequence[int], shown: Sequence[int], at: Sequence[int], m: int, gamma: float) -> float:
    """The chance that the documents at positions `at`, as a set, come to stand there: exactly."""
    ways = math.prod(m - a for a in range(len(at))) / math.factorial(len(at))
    same = {leader[a] for a in at} == {shown[a] for a in at}
    return (1.0 - gamma) * same + gamma / ways


def estimate(
    surrogate: str,
    scores: Numbers,
    shown: Sequence[int],
    leader: Sequence[int],
    grade_of: Callable[[int], float],
    r: int,
    gamma: float,
    temperature: float,
    relaxed: bool,
    weighted: bool,
) -> list[float]:
    """The estimate of ∇_s from the grades of the documents at the first r positions of `shown`."""
    m = len(scores)
    found = [0.0] * m

    def divisor(*at: int) -> float:
        same = {leader[a] for a in at} == {shown[a] for a in at}
        return gamma if relaxed and not same else propensity(leader, shown, at, m, gamma)

    if surrogate == "ranksvm":
        pairs = [(a, b) for a in range(r) for b in range(a + 1, r)]
        for a, b in pairs:
            for i, j in ((shown[a], shown[b]), (shown[b], shown[a])):
                if grade_of(i) > grade_of(j) and 1.0 + scores[j] > scores[i]:
                    found[j] += 1.0 / divisor(a, b) / len(pairs)
                    found[i] -= 1.0 / divisor(a, b) / len(pairs)
        return found
    q = softmax(scores, temperature)
    for a in range(r):
        i = shown[a]
        share = 1.0 / divisor(a) / r
        if surrogate == "smoothdcg":
            for j in range(m):
                found[j] -= share * (2.0 ** grade_of(i) - 1.0) * (q[i] * (i == j) - q[i] * q[j]) / temperature
        elif surrogate == "squared":
            found[i] += share * 2.0 * ((scores[i] if weighted else 0.0) - grade_of(i))
        else:
            found[i] += share * ((exp_cut(scores[i])[1] if weighted else 0.0) - math.exp(grade_of(i)))
    if not weighted and surrogate == "squared":
        found = [f + 2.0 * s for f, s in zip(found, scores, strict=True)]
    if not weighted and surrogate == "kl":
        found = [f + exp_cut(s)[1] for f, s in zip(found, scores, strict=True)]
    return found


def descended(theta: Numbers, slope: Numbers, rate: float, radius: float) -> list[float]:
    moved = [t - rate * z for t, z in zip(theta, slope, strict=True)]
    length = math.sqrt(sum(v * v for v in moved))
    return [v * min(1.0, radius / length) for v in moved] if length else moved


def listnet_slopes(scores: Numbers, grades: Numbers) -> list[float]:
    return [given - wanted for given, wanted in zip(softmax(scores), softmax(grades), strict=True)]
