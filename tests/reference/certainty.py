"""PairRank's certain relation, its blocks as a graph, and its random lists as whole distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np

from rankloop.core.types import Array

Relation = Sequence[Sequence[bool]] | Array
Distribution = dict[tuple[int, ...], Fraction]


def margins(
    features: Array, theta: Array, inverse: Array, alpha: float, logit: bool, own: Sequence[float] = ()
) -> list[list[float]]:
    """How far pair (i, j) is above its bar for being certain, from the explicit pair vector x_ij (Definition 1).

    `own` are the variances of parts of the scores that belong to one document each.
    """
    rows = []
    for i, x_i in enumerate(features):
        row = []
        for j, x_j in enumerate(features):
            x_ij = x_i - x_j
            lead = float(x_ij @ theta)
            width = alpha * math.sqrt(float(x_ij @ inverse @ x_ij))
            if own:
                width = math.sqrt(width**2 + own[i] + own[j])
            row.append(lead - width if logit else 1 / (1 + math.exp(-lead)) - width - 1 / 2)
        rows.append(row)
    return rows


def blocks(certain: Relation) -> list[set[int]]:
    """Definition 2 as a graph, best block first.

    Documents whose order is uncertain are linked and connected components are found; then what stands between two
    members of a component (below the one, above the other) joins it, until nothing changes.
    """
    n = len(certain)
    component = list(range(n))

    def merge(i: int, j: int) -> None:
        old, new = component[i], component[j]
        for document in range(n):
            if component[document] == old:
                component[document] = new

    for i in range(n):
        for j in range(n):
            if i != j and not certain[i][j] and not certain[j][i]:
                merge(i, j)
    changed = True
    while changed:
        changed = False
        for i in range(n):
            for between in range(n):
                for j in range(n):
                    sandwiched = certain[i][between] and certain[between][j] and component[i] == component[j]
                    if sandwiched and component[between] != component[i]:
                        merge(between, i)
                        changed = True
    found = [{i for i in range(n) if component[i] == name} for name in set(component)]
    # Across blocks every pair is certain and all point the same way: count who is above to sort them.
    return sorted(found, key=lambda block: sum(certain[j][next(iter(block))] for j in range(n) if j not in block))


def shuffled_blocks(parts: Sequence[Sequence[int]], k: int) -> Distribution:
    """Every order of every block equally likely, written out whole and cut at k."""
    lists: list[tuple[int, ...]] = [()]
    for part in parts:
        lists = [head + tail for head in lists for tail in permutations(part)]
    found: Distribution = {}
    for ranking in lists:
        found[ranking[:k]] = found.get(ranking[:k], Fraction(0)) + Fraction(1, len(lists))
    return found


def topological_orders(certain: Relation, k: int, placed: tuple[int, ...] = ()) -> Distribution:
    """The law of: pick uniformly among the documents left that no document left is certainly above."""
    left = [i for i in range(len(certain)) if i not in placed]
    if not left or len(placed) == k:
        return {placed: Fraction(1)}
    free = [i for i in left if not any(certain[j][i] for j in left)]
    found: Distribution = {}
    for choice in free:
        for ranking, chance in topological_orders(certain, k, (*placed, choice)).items():
            found[ranking] = found.get(ranking, Fraction(0)) + chance / len(free)
    return found


def random_relation(n: int, certain_share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """(n, n) a relation that follows a random order of descending score, and that order (n,).

    The certain relation need not be transitive (with `certainty="probability"` it is not), so neither is this one.
    """
    order = rng.permutation(n)
    certain = np.zeros((n, n), dtype=np.bool_)
    for above in range(n):
        for below in range(above + 1, n):
            certain[order[above], order[below]] = rng.random() < certain_share
    return certain, order


def list_probability(certain: Relation, order: Sequence[int]) -> float:
    """P of a list when each position takes one of the documents without a certain predecessor left, uniformly."""
    left, probability = set(range(len(certain))), 1.0
    for document in order:
        free = [j for j in left if not any(certain[i][j] for i in left)]
        if document not in free:
            return 0.0
        probability /= len(free)
        left.remove(document)
    return probability
