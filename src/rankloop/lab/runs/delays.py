"""Feedback that comes late, out of order, twice, or never. The learner does not know."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.specs import known_name, number, only, parse_spec
from rankloop.core.types import Feedback, Impression


@dataclass
class Delays:
    """The mail between user and learner: what is posted in one round arrives in a later one, or does not.

    Parameters
    ----------
    mean
        Mean delay in rounds (geometric); 0 delivers at once. Different delays put feedback out of order.
    lost, duplicated
        Probability that a feedback never arrives; that it arrives a second time, with a delay of its own.

    Examples
    --------
    >>> mail = Delays(mean=3, lost=0.1, duplicated=0.1)
    >>> Delays(lost=2)
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: lost is 2; it is a probability and must lie between 0 and 1
    """

    mean: float = 0.0
    lost: float = 0.0
    duplicated: float = 0.0
    _waiting: list[tuple[int, int, Impression, Feedback]] = field(default_factory=list, init=False, repr=False)
    _posted: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.mean < float("inf"):
            raise InvalidParameter(f"mean is {self.mean!r}; a delay is a finite number of rounds, at least 0")
        for name in ("lost", "duplicated"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidParameter(
                    f"{name} is {getattr(self, name)!r}; it is a probability and must lie between 0 and 1"
                )

    def exchange(
        self, t: int, impression: Impression, feedback: Feedback, rng: np.random.Generator
    ) -> list[tuple[Impression, Feedback]]:
        """Post what happened in round t, and take out all that arrives in it, in order of arrival."""
        copies = int(rng.random() >= self.lost)
        copies += copies and int(rng.random() < self.duplicated)
        for _ in range(copies):
            wait = int(rng.geometric(1.0 / (1.0 + self.mean))) - 1
            heapq.heappush(self._waiting, (t + wait, self._posted, impression, feedback))
            self._posted += 1  # breaks ties in arrival: first posted, first delivered
        arrived = []
        while self._waiting and self._waiting[0][0] <= t:
            arrived.append(heapq.heappop(self._waiting)[2:])
        return arrived


def open_delays(spec: str) -> Delays | None:
    """The delays that `spec` describes: `none`, or `late?mean=5&lost=0.1&duplicated=0.05`.

    >>> open_delays("late?mean=5").mean
    5.0
    """
    name, options = parse_spec(spec)
    known_name(name, ("none", "late"), "delay")
    only(options, () if name == "none" else ("mean", "lost", "duplicated"), f"delay {name!r}")
    return None if name == "none" else Delays(*(number(options, key, 0.0) for key in ("mean", "lost", "duplicated")))
