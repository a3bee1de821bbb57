"""Off-policy estimates by their definitions, list by list in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

Rows = Sequence[Sequence[float]]


def ips(
    clicks: Rows, ranks: Sequence[Sequence[int]], theta: Sequence[float], worth: Sequence[float], clip: float
) -> float:
    """Mean over lists of Σ clicks · min(θ_new / θ_old, clip) · worth of the new rank."""
    total = 0.0
    for row, places in zip(clicks, ranks, strict=True):
        for old, (click, new) in enumerate(zip(row, places, strict=True)):
            if new >= 0:
                total += click * min(theta[new] / theta[old], clip) * worth[new]
    return total / len(clicks)


def snips(
    clicks: Rows, ranks: Sequence[Sequence[int]], theta: Sequence[float], worth: Sequence[float], clip: float
) -> float:
    """The same, each new rank's clicks divided by the share of its items' examination that clipping left."""
    total = 0.0
    for rank in range(len(theta)):
        gained, kept, whole = 0.0, 0.0, 0
        for row, places in zip(clicks, ranks, strict=True):
            for old, (click, new) in enumerate(zip(row, places, strict=True)):
                if new == rank:
                    weight = theta[new] / theta[old]
                    gained += click * min(weight, clip) * worth[new]
                    kept += min(weight, clip) / weight
                    whole += 1
        total += gained / (kept / whole) if whole else 0.0
    return total / len(clicks)


def dr(
    clicks: Rows,
    ranks: Sequence[Sequence[int]],
    theta: Sequence[float],
    worth: Sequence[float],
    clip: float,
    attraction: Rows,
) -> float:
    """Σ what the model says of the new rank, and the clipped weight times what it missed at the old one."""
    slots = [
        (old, new, clicks[t][old], attraction[t][old])
        for t in range(len(clicks))
        for old, new in enumerate(ranks[t])
        if new >= 0
    ]
    scale = sum(c for _, _, c, _ in slots) / sum(theta[old] * a for old, _, _, a in slots)
    total = 0.0
    for old, new, click, a in slots:
        total += theta[new] * a * scale * worth[new]
        total += min(theta[new] / theta[old], clip) * (click - theta[old] * a * scale) * worth[new]
    return total / len(clicks)


def without(rows: Sequence[object], group: int, groups: int) -> list[object]:
    """The rows that are not in a group; row t is in group t mod groups."""
    return [row for t, row in enumerate(rows) if t % groups != group]


NO_CLIP = inf
