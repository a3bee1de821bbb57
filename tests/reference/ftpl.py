"""Naive twins of the kernels that follow the perturbed leader: one query's items, in plain Python.

Written from Algorithm 1 of Chaudhuri and Tewari (2017) and our notes on late and missing grades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


def gain(grade: float, measure: str) -> float:
    worth: dict[str, float] = {"dcg": 2.0**grade - 1.0, "precision": float(grade > 0), "sumloss": grade}
    return worth[measure]


def plan(m: int, top: int, horizon: int, blocks: int) -> tuple[int, int]:
    cells = math.ceil(m / top)
    wanted = blocks or round((m * (horizon / cells) ** 2) ** (1 / 3))
    count = max(1, min(wanted, horizon // cells))
    return count, max(horizon // count, cells)


@dataclass
class Items:
    """What is known of a query, item by item; estimates are means of what was told, each told gain of some weight."""

    top: int
    measure: str
    highest: float
    horizon: int = 0
    blocks: int = 0
    epsilon: float = 0.0
    random_below: bool = False
    block: int = 0
    place: int = 0
    planned: int = 0  # the horizon that is planned for
    count: int = 0
    length: int = 0
    past: int = 0
    told: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # item -> (weight, gain), old blocks
    waiting: list[tuple[str, float, float]] = field(default_factory=list)  # (item, weight, gain) of this block
    explored: set[str] = field(default_factory=set)  # in this block

    def start(self, m: int) -> tuple[int, int, int]:
        planned = self.planned or self.horizon or m * math.ceil(m / self.top)
        return planned, *((self.count, self.length) if self.length else plan(m, self.top, planned, self.blocks))

    def estimates(self, items: Sequence[str]) -> list[float]:
        known = {
            item: sum(w * g for w, g in self.told[item]) / sum(w for w, _ in self.told[item])
            for item in items
            if self.told.get(item)
        }
        usual = sum(known.values()) / len(known) if known else 0.0
        return [known.get(item, usual) for item in items]

    def arrange(self, items: Sequence[str], coins: Sequence[float], k: int) -> tuple[list[str], list[str]]:
        """The list, and the items in it that are to be explored."""
        m = len(items)
        _, count, length = self.start(m)
        left = [item for item in items if item not in self.explored]
        perturbing = dict(zip(items, coins[1 : m + 1], strict=True))
        choosing = dict(zip(items, coins[m + 1 :], strict=True))
        chosen: list[str] = []
        scores = {}
        scale = 1.0 / self.epsilon if self.epsilon else gain(self.highest, self.measure) * math.sqrt(m * count)
        for item, mean in zip(items, self.estimates(items), strict=True):
            scores[item] = self.past / length * mean + scale * perturbing[item]
        size, rounds = min(self.top, k), length - self.place
        if coins[0] < math.ceil(len(left) / size) / rounds:
            small = len(left) % size if coins[0] < 1 / rounds else 0  # the group that is not full, if there is one
            chosen = sorted(left, key=lambda item: -choosing[item])[: small or size]
            if self.random_below:
                scores = perturbing
        rest = sorted((item for item in items if item not in chosen), key=lambda item: -scores[item])
        return [*sorted(chosen, key=lambda item: choosing[item]), *rest][:k], chosen

    def observe(self, grades: dict[str, float], block: int, length: int, m: int) -> None:
        self.planned, self.count, self.length = self.start(m)
        for item, grade in grades.items():
            self.waiting.append((item, float(length), gain(grade, self.measure)))
            if block == self.block:
                self.explored.add(item)
        self.place += 1
        if self.place == self.length:
            for item, weight, value in self.waiting:
                self.told.setdefault(item, []).append((weight, value))
            self.waiting, self.explored = [], set()
            self.block, self.place, self.past = self.block + 1, 0, self.past + self.length
            while not self.horizon and self.past >= self.planned:
                self.planned *= 2
            self.count, self.length = plan(m, self.top, self.planned, self.blocks)
