"""A learner that hangs where it is told to: for services that are processes of their own, which import it by name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from rankloop.core.types import Array, Candidates, Feedback, Impression
from tests.service.misbehaving import Reverse

PLACE = "tests.service.hanging:HangsIn"


def _endless(number: int) -> int:
    """Machine code that ends in some centuries, and does not let go of the interpreter meanwhile."""
    while number != 0:
        number = number * 6364136223846793005 + 1442695040888963407
    return number


_spin: Any = numba.njit(_endless)


@dataclass
class HangsIn(Reverse):
    """Hangs in `where` (rank, learn, spin: learn without letting go, load) when a query is `hang`; `load` hangs with a
    state that has learned one outcome."""

    where: str = "learn"

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Any:
        if self.where == "rank" and candidates.query == "hang":
            time.sleep(3600)
        return super().rank(candidates, k, rng)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        if impression.query == "hang":
            if self.where == "learn":
                time.sleep(3600)
            if self.where == "spin":
                _spin(1)
        super().learn(impression, feedback, rng)

    def load(self, state: Mapping[str, Array]) -> None:
        if self.where == "load" and state["learned_"][0] == 1:
            time.sleep(3600)
        super().load(state)
