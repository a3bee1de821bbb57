"""Interleaving by counting every case, in fractions: what the papers define, with nothing clever.

A ranking is a list of documents, top first; ranks count from 1 as the papers do. A law maps every outcome to its
probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

Rankings = Sequence[Sequence[int]]
Law = dict[tuple[int, ...], Fraction]
TeamLaw = dict[tuple[tuple[int, ...], tuple[int, ...]], Fraction]


# -- team draft ----------------------------------------------------------------------------------------------------


def team_draft(rankings: Rankings, coins: Sequence[float], k: int) -> tuple[list[int], list[int]]:
    """The list and its teams; coin p says which of the rankers still to come in the round is next."""
    order: list[int] = []
    team: list[int] = []
    waiting = list(range(len(rankings)))
    left = 0
    for p in range(k):
        left = left or len(waiting)
        at = int(coins[p] * left)
        waiting[at], waiting[left - 1] = waiting[left - 1], waiting[at]
        left -= 1
        team.append(waiting[left])
        order.append(next(d for d in rankings[waiting[left]] if d not in order))
    return order, team


def team_draft_law(rankings: Rankings, k: int) -> TeamLaw:
    """(list, teams) -> probability: in every round each order of the rankers is as likely as any other."""
    law: TeamLaw = {((), ()): Fraction(1)}
    for p in range(k):
        longer: TeamLaw = {}
        for (order, team), chance in law.items():
            had_a_turn = team[p - p % len(rankings) :]
            free = [r for r in range(len(rankings)) if r not in had_a_turn]
            for r in free:
                key = ((*order, next(d for d in rankings[r] if d not in order)), (*team, r))
                longer[key] = longer.get(key, Fraction(0)) + chance / len(free)
        law = longer
    return law


def two_team_draft(
    first: Sequence[int], second: Sequence[int], coins: Sequence[bool], displacement: int, k: int
) -> tuple[list[int], list[int], list[int]]:
    """The list, who put each document there (1, -1, 0: nobody), and those that were shown because they had to be.

    A coin is there for each position: True lets the first side begin the round that starts there.
    """
    order: list[int] = []
    owner: list[int] = []
    forced: list[int] = []
    while len(order) < k:
        p = len(order)
        one, other = (next(d for d in ranking if d not in order) for ranking in (first, second))
        waiting = next(d for d in range(len(order) + 1) if d not in order)
        if waiting + displacement <= p:
            plan = [(waiting, 0)]
        elif one == other:
            plan = [(one, 0)]
        elif waiting + displacement == p + 1 and p + 1 < k and waiting not in (one, other):
            plan = [(waiting, 0)]
        else:
            plan = [(one, 1), (other, -1)] if coins[p] else [(other, -1), (one, 1)]
        if len(plan) == 1 and one != other:
            forced.append(waiting)
        for document, side in plan[: k - p]:
            order.append(document)
            owner.append(side)
    return order, owner, forced


# -- probabilistic -------------------------------------------------------------------------------------------------


def soft_ranks(ranking: Sequence[int], gone: Sequence[int], tau: int) -> dict[int, Fraction]:
    """P(d) ∝ 1 / rank(d)^τ over the documents that are not gone; ranks are those of the whole ranking."""
    weights = {d: Fraction(1, (j + 1) ** tau) for j, d in enumerate(ranking) if d not in gone}
    total = sum(weights.values())
    return {d: weight / total for d, weight in weights.items()}


def probabilistic(rankings: Rankings, coins: Sequence[Sequence[float]], k: int, tau: int) -> list[int]:
    """The list that the coins draw: coins[0] the rankers, coins[1] the documents, from the top of the ranker's list."""
    order: list[int] = []
    for p in range(k):
        ranking = rankings[int(coins[0][p] * len(rankings))]
        target, total = Fraction(coins[1][p]), Fraction(0)
        for d, chance in soft_ranks(ranking, order, tau).items():
            total += chance
            if target < total:
                order.append(d)
                break
    return order


def probabilistic_law(rankings: Rankings, k: int, tau: int) -> Law:
    """P(list) = Π over positions of the mean over rankers of P(d | what is left)."""
    law: Law = {(): Fraction(1)}
    for _ in range(k):
        longer: Law = {}
        for order, chance in law.items():
            for ranking in rankings:
                for d, share in soft_ranks(ranking, order, tau).items():
                    longer[*order, d] = longer.get((*order, d), Fraction(0)) + chance * share / len(rankings)
        law = longer
    return law


def posterior(rankings: Rankings, order: Sequence[int], tau: int) -> list[list[Fraction]]:
    """P(ranker | document, what was left) at each position, by Bayes with equal priors."""
    found = []
    for p, d in enumerate(order):
        likelihood = [soft_ranks(ranking, order[:p], tau)[d] for ranking in rankings]
        found.append([chance / sum(likelihood) for chance in likelihood])
    return found


def assignments(shares: Sequence[Sequence[float]], clicks: Sequence[float]) -> list[tuple[float, list[int]]]:
    """Every way to give the clicked positions to rankers: its probability and the clicks that each ranker then has."""
    clicked = [row for row, click in zip(shares, clicks, strict=True) if click]
    found = []
    for owners in product(range(len(shares[0])), repeat=len(clicked)):
        chance = math.prod(row[owner] for row, owner in zip(clicked, owners, strict=True))
        found.append((chance, [owners.count(r) for r in range(len(shares[0]))]))
    return found


def expected_clicks(shares: Sequence[Sequence[float]], clicks: Sequence[float]) -> list[float]:
    """Each ranker's mean number of clicks over all assignments."""
    ways = assignments(shares, clicks)
    return [math.fsum(chance * owned[r] for chance, owned in ways) for r in range(len(shares[0]))]


def win_and_loss(shares: Sequence[Sequence[float]], clicks: Sequence[float], against: int) -> list[list[float]]:
    """P(more clicks than ranker `against`) and P(fewer), summed over all assignments."""
    ways, rankers = assignments(shares, clicks), range(len(shares[0]))
    wins = [math.fsum(chance for chance, owned in ways if owned[r] > owned[against]) for r in rankers]
    losses = [math.fsum(chance for chance, owned in ways if owned[r] < owned[against]) for r in rankers]
    return [wins, losses]


# -- pairwise preference -------------------------------------------------------------------------------------------


def choice_set(rankings: Rankings, position: int) -> set[int]:
    """Ω: the documents that some ranker has at `position` (from 1) or higher."""
    return {d for ranking in rankings for d in ranking[:position]}


def pairwise_preference(rankings: Rankings, coins: Sequence[float], k: int) -> list[int]:
    """The list that the coins draw from those that may stand at each position, in the order in which they came up."""
    order: list[int] = []
    pool: list[int] = []
    for p in range(k):
        pool += [d for d in dict.fromkeys(ranking[p] for ranking in rankings) if d not in choice_set(rankings, p)]
        at = int(coins[p] * len(pool))
        order.append(pool[at])
        pool[at] = pool[-1]
        pool.pop()
    return order


def pairwise_preference_law(rankings: Rankings, k: int) -> Law:
    """Each position takes each document of Ω that is not shown yet with the same probability."""
    law: Law = {(): Fraction(1)}
    for p in range(k):
        longer: Law = {}
        for order, chance in law.items():
            free = choice_set(rankings, p + 1) - set(order)
            for d in free:
                longer[*order, d] = chance / len(free)
        law = longer
    return law


def pair_credit(rankings: Rankings, order: Sequence[int], clicks: Sequence[float]) -> list[Fraction]:
    """Σ over inferred pairs (a over b) of [ranker has a above b] / P(neither was shown before both could be)."""
    credit = [Fraction(0)] * len(rankings)
    if not any(clicks):
        return credit
    seen = max(p for p, click in enumerate(clicks) if click) + 2  # the one below the last click was looked at too
    first = {d: min(ranking.index(d) + 1 for ranking in rankings) for d in order}
    examined = list(zip(order, clicks, strict=True))[:seen]
    for a in (d for d, click in examined if click):
        for b in (d for d, click in examined if not click):
            both = max(first[a], first[b])
            if min(order.index(a), order.index(b)) + 1 < both:
                continue
            chance = Fraction(1)
            for x in range(min(first[a], first[b]), both):
                chance *= 1 - Fraction(1, len(choice_set(rankings, x) - set(order[: x - 1])))
            for r, ranking in enumerate(rankings):
                credit[r] += (ranking.index(a) < ranking.index(b)) / chance
    return credit
