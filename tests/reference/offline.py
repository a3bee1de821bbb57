"""What a list has wrong, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def kendall_regret(grades: Sequence[float], order: Sequence[int]) -> int:
    """Pairs of documents, one at least shown, of which the one that stands higher has the lower grade."""
    place = {document: rank for rank, document in enumerate(order)}
    wrong = 0
    for a, b in combinations(range(len(grades)), 2):
        if a not in place and b not in place:
            continue
        above, beneath = (a, b) if place.get(a, len(grades)) < place.get(b, len(grades)) else (b, a)
        wrong += grades[above] < grades[beneath]
    return wrong
