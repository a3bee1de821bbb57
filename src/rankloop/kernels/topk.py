"""Learning a linear ranker from the grades of the first positions only: what to show, and the gradient estimates.

Names follow the paper (Chaudhuri and Tewari 2017, section 3): the *leader* is the order by score, which is shown with
probability 1 - γ; else all orders are equally likely. A *propensity* is the probability that what was graded came to
stand where it stood.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, power
from rankloop.kernels.products import product
from rankloop.kernels.ranking import linear_scores, top_k

SQUARED, RANKSVM, KL, SMOOTHDCG = 0, 1, 2, 3
LARGEST_GAMMA = 0.5  # Algorithm 2, line 1
_FEW = 32  # positions up to which one pass with a sorted buffer beats sorting


class Rule(NamedTuple):
    """The parameters of `rtopk`, as its kernels take them."""

    surrogate: int  # SQUARED …
    top: int  # positions graded
    highest: float  # grade
    rate: float  # a of the step a/t^(2/3)
    explore: float  # b of γ = b/t^(1/3)
    relaxed: bool  # random_propensity="gamma"
    sampled: bool  # known="weighted"
    radius: float
    temperature: float


@jit
def gamma_of(rule: Rule, rounds: float) -> float:
    """The probability of a random list after so many rounds."""
    return min(LARGEST_GAMMA, rule.explore / power(rounds + 1.0, 1.0 / 3.0))


@jit
def propensities(leader: Array, shown: Array, n: int, gamma: float, pairs: bool, relaxed: bool) -> Array:
    """(r,) of the documents at the first r positions, or (r(r-1)/2,) of their pairs, (0,1), (0,2) … (1,2) …

    A pair counts as the leader's if the same two documents stand at these positions, in whatever order. `relaxed` puts
    γ where the leader has something else, which is the paper's practice; exact is γ times the chance of a random order.
    """
    r = shown.size
    if not pairs:
        found = np.empty(r)
        for a in range(r):
            chance = gamma / n
            found[a] = 1.0 - gamma + chance if leader[a] == shown[a] else gamma if relaxed else chance
        return found
    found = np.empty(r * (r - 1) // 2)
    at = 0
    for a in range(r):
        for b in range(a + 1, r):
            chance = 2.0 * gamma / (n * (n - 1.0))
            same = leader[a] == shown[a] and leader[b] == shown[b]
            turned = leader[a] == shown[b] and leader[b] == shown[a]
            found[at] = 1.0 - gamma + chance if same or turned else gamma if relaxed else chance
            at += 1
    return found


@jit
def known_weights(scores: Array, rule: Rule) -> Array:
    """(n,) each document's weight in the part of the gradient that needs no grade, once per document.

    The score itself (squared), exp(score) (kl), or the softmax of score/temperature (smoothdcg). exp is cut off one
    above the highest grade: the loss goes on from there as a straight line.
    """
    if rule.surrogate == SMOOTHDCG:
        return softmax(scores, rule.temperature)
    found = np.empty(scores.size)
    for i in range(scores.size):
        found[i] = exp(min(scores[i], rule.highest + 1.0)) if rule.surrogate == KL else scores[i]
    return found


@jit
def softmax(scores: Array, temperature: float) -> Array:
    """(n,) exp(score/temperature), adding up to 1."""
    found = np.empty(scores.size)
    largest = scores.max()
    total = 0.0
    for i in range(scores.size):
        found[i] = exp((scores[i] - largest) / temperature)
        total += found[i]
    for i in range(scores.size):
        found[i] /= total
    return found


@jit
def graded_part(features: Array, weights: Array, graded: Array, propensity: Array) -> Array:
    """(d,) the mean of weight · row / propensity over the graded documents: the known part from a sample of it."""
    found = np.zeros(features.shape[1])
    for a in range(graded.size):
        factor = weights[graded[a]] / (propensity[a] * graded.size)
        for j in range(found.size):
            found[j] += factor * features[graded[a], j]
    return found


@jit
def display(
    features: Array, theta: Array, rounds: float, numbers: Array, k: int, rule: Rule
) -> tuple[Array, Array, Array, Array]:
    """The k documents to show, and what learning from the grades of the first `top` of them will need.

    That is (r,) the weights of the graded (`known_weights`; for ranksvm their scores), their propensities, and (d,) the
    part of the gradient that needs no grade, summed over *all* candidates: Xᵀs, Xᵀexp(s) or Xᵀsoftmax(s/temperature);
    nothing for ranksvm. `numbers` (2n + 1,): the first decides whether to explore, n break ties among scores, n are the
    random order. One for both would not do: which of two equal documents leads must say nothing about random lists.
    """
    scores = linear_scores(features, theta)
    n, gamma = scores.size, gamma_of(rule, rounds)
    keys = numbers[n + 1 :]
    leader = top_k(scores, numbers[1 : n + 1], k)
    order = leader if numbers[0] >= gamma else top_k(keys, keys, k)
    graded = order[: min(rule.top, order.size)]
    propensity = propensities(leader, graded, n, gamma, rule.surrogate == RANKSVM, rule.relaxed)
    if rule.surrogate == RANKSVM:
        return order, scores[graded], propensity, np.zeros(0)
    weights = known_weights(scores, rule)
    if rule.sampled and rule.surrogate != SMOOTHDCG:
        return order, weights[graded], propensity, graded_part(features, weights, graded, propensity)
    return order, weights[graded], propensity, product(weights.reshape(1, -1), features)[0]


@jit
def adopted(features: Array, theta: Array, order: Array, rule: Rule) -> tuple[Array, Array, Array]:
    """What `display` says beside the order, of a list that someone else chose: graded documents count once each.

    The known part is that of the graded documents alone, so that the others are not taken for worthless; smoothdcg's
    softmax is over all candidates, whichever are graded.
    """
    scores = linear_scores(features, theta)
    graded = order[: min(rule.top, order.size)]
    if rule.surrogate == RANKSVM:
        return scores[graded], np.ones(graded.size * (graded.size - 1) // 2), np.zeros(0)
    weights, ones = known_weights(scores, rule), np.ones(graded.size)
    if rule.surrogate == SMOOTHDCG:
        return weights[graded], ones, product(weights.reshape(1, -1), features)[0]
    return weights[graded], ones, graded_part(features, weights, graded, ones)


@jit
def gradient(rows: Array, weights: Array, propensity: Array, known: Array, grades: Array, rule: Rule) -> Array:
    """(d,) an unbiased estimate of the gradient of the surrogate loss, from the grades of the first r positions.

    `rows` (r, d) are the graded documents; the rest is what `display` said of them. smoothdcg is a gain, so this is
    minus its gradient: going down the result goes up the gain.
    """
    r, surrogate = grades.size, rule.surrogate
    found = np.zeros(rows.shape[1])
    if surrogate == RANKSVM:
        at, share = 0, 2.0 / max(r * (r - 1), 1)
        for a in range(r):
            for b in range(a + 1, r):
                better, worse = (a, b) if grades[a] > grades[b] else (b, a)
                if grades[a] != grades[b] and 1.0 + weights[worse] > weights[better]:
                    factor = share / propensity[at]
                    for j in range(found.size):
                        found[j] += factor * (rows[worse, j] - rows[better, j])
                at += 1
        return found
    if surrogate != SMOOTHDCG:
        for j in range(found.size):
            found[j] = 2.0 * known[j] if surrogate == SQUARED else known[j]
    for a in range(r):
        if surrogate == SQUARED:
            factor = 2.0 * grades[a] / (propensity[a] * r)
        elif surrogate == KL:
            factor = exp(grades[a]) / (propensity[a] * r)
        else:
            factor = (power(2.0, grades[a]) - 1.0) * weights[a] / (rule.temperature * propensity[a] * r)
        for j in range(found.size):
            found[j] -= factor * (rows[a, j] - known[j] if surrogate == SMOOTHDCG else rows[a, j])
    return found


@jit
def descend(theta: Array, slope: Array, rate: float, radius: float) -> Array:
    """(d,) θ - rate · slope, shortened to `radius` where it is longer; an empty θ is all zeros."""
    found = np.empty(slope.size)
    largest = 0.0
    for j in range(slope.size):
        found[j] = (theta[j] if theta.size else 0.0) - rate * slope[j]
        largest = max(largest, abs(found[j]))
    square = 0.0
    for j in range(found.size):
        square += (found[j] / largest) ** 2 if largest > 0.0 else 0.0  # the sum of plain squares could overflow
    length = largest * np.sqrt(square)
    if length > radius:
        for j in range(found.size):
            found[j] = found[j] / length * radius
    return found


@jit
def learned(
    theta: Array,
    rounds: float,
    rows: Array,
    weights: Array,
    propensity: Array,
    known: Array,
    grades: Array,
    rule: Rule,
) -> Array:
    """(d,) θ after the grades of one list: a step a/t^(2/3) down the estimated gradient, and into the ball."""
    slope = gradient(rows, weights, propensity, known, grades, rule)
    return descend(theta, slope, rule.rate / power(rounds + 1.0, 2.0 / 3.0), rule.radius)


@jit
def listnet_display(features: Array, theta: Array, ties: Array, k: int) -> tuple[Array, Array]:
    """(k,) the documents of the highest scores, smaller ties first, and their scores."""
    scores = linear_scores(features, theta)
    if k <= _FEW:
        order = top_k(scores, ties, k)
    else:
        by_tie = np.argsort(ties, kind="mergesort")
        order = by_tie[np.argsort(-scores[by_tie], kind="mergesort")][:k]
    return order, scores[order]


@jit
def listnet_learned(
    theta: Array, rounds: float, rows: Array, scores: Array, grades: Array, rate: float, radius: float
) -> Array:
    """(d,) θ after a step rate/√t down the cross entropy between softmax(grades) and softmax(scores) of one list."""
    wanted, given = softmax(grades, 1.0), softmax(scores, 1.0)
    slope = np.zeros(rows.shape[1])
    for a in range(grades.size):
        for j in range(slope.size):
            slope[j] += (given[a] - wanted[a]) * rows[a, j]
    return descend(theta, slope, rate / np.sqrt(rounds + 1.0), radius)


@jit
def surrogate_loss(scores: Array, grades: Array, rule: Rule) -> float:
    """What a list of scores loses under all grades; smoothdcg is a gain and counts with a minus."""
    total = 0.0
    n = scores.size
    if rule.surrogate == SQUARED:
        for i in range(n):
            total += (scores[i] - grades[i]) ** 2
    elif rule.surrogate == RANKSVM:
        for i in range(n):
            for j in range(n):
                if grades[i] > grades[j]:
                    total += max(0.0, 1.0 + scores[j] - scores[i])
    elif rule.surrogate == KL:
        for i in range(n):
            total += kl_loss(scores[i], grades[i], rule.highest)
    else:
        weights = softmax(scores, rule.temperature)
        for i in range(n):
            total -= (power(2.0, grades[i]) - 1.0) * weights[i]
    return total


@jit
def kl_loss(score: float, grade: float, highest: float) -> float:
    """Of one document: e^R (R - s) - e^R + e^s, with e^s a straight line from one above the highest grade on."""
    cut = min(score, highest + 1.0)
    wanted, given = exp(grade), exp(cut)
    return float(wanted * (grade - score) - wanted + given * (1.0 + score - cut))
