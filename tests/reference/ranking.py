"""Scores and orders by their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations


def linear_scores(features: Sequence[Sequence[float]], theta: Sequence[float]) -> list[float]:
    """x·θ for each row; 0 with an empty θ."""
    if len(theta) == 0:
        return [0.0] * len(features)
    return [sum(value * weight for value, weight in zip(row, theta, strict=True)) for row in features]


def top_k(scores: Sequence[float], ties: Sequence[float], k: int) -> list[int]:
    """Sort everything, by score descending, then by tie ascending, and cut."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], ties[i]))[:k]


def bounded_order(preferred: Sequence[int], displacement: int, k: int) -> list[int]:
    """Position by position: who would come too late next time goes first, else the most wanted who is not too early."""
    left, order = list(preferred), []
    for position in range(min(k, len(preferred))):
        due = [item for item in left if item + displacement <= position]
        allowed = [item for item in left if item - displacement <= position]
        chosen = (due + allowed)[0]
        order.append(chosen)
        left.remove(chosen)
    return order


def epsilon_greedy_law(scores: Sequence[float], epsilon: Fraction, k: int) -> dict[tuple[int, ...], Fraction]:
    """The law of an ε-greedy list, written out: every order of the ties, every coin, every random document."""
    n = len(scores)
    law: dict[tuple[int, ...], Fraction] = {}
    ways = list(permutations(range(n)))
    for ties in ways:
        best = sorted(range(n), key=lambda i: (-scores[i], ties[i]))
        lists: dict[tuple[int, ...], Fraction] = {(): Fraction(1, len(ways))}
        for _ in range(min(k, n)):
            longer: dict[tuple[int, ...], Fraction] = {}
            for head, chance in lists.items():
                left = [i for i in best if i not in head]
                for i in left:
                    share = epsilon / len(left) + (1 - epsilon if i == left[0] else 0)
                    longer[(*head, i)] = longer.get((*head, i), Fraction(0)) + chance * share
            lists = longer
        for ranking, chance in lists.items():
            law[ranking] = law.get(ranking, Fraction(0)) + chance
    return law


def constrained_order(
    preferred: Sequence[int],
    groups: Sequence[Sequence[int]],
    most: Sequence[int],
    within: Sequence[int],
    taken: Sequence[Sequence[int]],
    slots: Sequence[int],
) -> tuple[list[int], list[bool]]:
    """Position by position: the most wanted whose group is not full under any quota that counts there, else the most
    wanted; and for each quota whether it ended up with too many that were not there before."""
    left, placed = list(preferred), dict[int, int]()

    def there(q: int, group: int) -> int:
        return taken[q][group] + sum(groups[q][item] == group and slot < within[q] for slot, item in placed.items())

    broken = [False] * len(most)
    for slot in slots:
        asked = [q for q in range(len(most)) if slot < within[q]]
        full = {(q, group) for q in asked for group in range(len(taken[q])) if there(q, group) >= most[q]}
        allowed = [item for item in left if not any((q, groups[q][item]) in full for q in asked)]
        chosen = (allowed or left)[0]
        for q in asked:
            broken[q] |= (q, groups[q][chosen]) in full
        left.remove(chosen)
        placed[slot] = chosen
    return list(placed.values()), broken
