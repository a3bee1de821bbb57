"""Users, coins and lists of letters for the tests of BubbleRank."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters
from rankloop.lab.runs.compiled import QUERY
from rankloop.learners.bandits.bubblerank import BubbleRank

ONE, TABLE = np.ones(1), np.ones((1, 1))
RNG = np.random.default_rng(0)  # learn draws nothing


def cascade(attraction: Any) -> ClickParameters:
    values = np.array(attraction, dtype=np.float64)
    return ClickParameters(CASCADE, values, np.zeros(values.size), ONE, 1.0, TABLE)


def position_based(attraction: Any, examination: Any) -> ClickParameters:
    values = np.array(attraction, dtype=np.float64)
    return ClickParameters(POSITION, values, ONE, ONE, 1.0, np.array(examination, dtype=np.float64).reshape(-1, 1))


def some_user(kind: int, m: int, rng: np.random.Generator) -> ClickParameters:
    attraction = rng.uniform(0.05, 0.9, m)
    return cascade(attraction) if kind == CASCADE else position_based(attraction, np.sort(rng.uniform(0.3, 1, m))[::-1])


class Coins(np.random.Generator):
    """A generator that tosses what it is told."""

    def __init__(self, *tossed: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.tossed = list(tossed)

    def random(self, size: int) -> Array:  # type: ignore[override]
        assert size == len(self.tossed)
        return np.array(self.tossed)


EVEN, ODD = 0.1, 0.9  # the first coin: pairs from the first position on, or from the second
SWAP, KEEP = 0.1, 0.9  # those of the pairs


def ranked(learner: BubbleRank, candidates: Candidates, k: int, *coins: float) -> Impression:
    """A list by the coins: the parity's, one for each pair, and, with fewer positions than items, the draw's."""
    return learner.rank(candidates, k, Coins(*coins))


def pairs(learner: BubbleRank, items: str) -> dict[str, tuple[int, int]]:
    """Lead and comparisons of the pairs of a query's items that were ever compared, "ab": a's lead over b."""
    table = learner.queries_
    slot = table.find(QUERY)
    _, leads, duels = table.values(slot)
    numbers = table.numbers(slot, _codes(items)).tolist()
    found = {}
    for a, i in zip(items, numbers, strict=True):
        for b, j in zip(items, numbers, strict=True):
            if a < b and min(i, j) >= 0:
                at = max(i, j) * (max(i, j) - 1) // 2 + min(i, j)
                if duels[at]:
                    found[a + b] = (int(leads[at]) * (1 if i < j else -1), int(duels[at]))
    return found


def _codes(items: str) -> Array:
    from rankloop.learners.query_table import item_codes

    return item_codes(np.array(list(items)))


def some(items: str) -> Candidates:
    return Candidates(QUERY, list(items))


def text(candidates: Candidates, order: Array) -> str:
    return "".join(candidates.items[order])
