"""What it takes to learn a ranker, as a share of a core: outcomes that come a second, times seconds that each takes.

Not the time that was spent: a process with too much to do spends all it has, whatever that is, and would look as busy
as one that just manages.
"""

from __future__ import annotations

import math

SECONDS = 20.0  # over which the rate is smoothed
OUTCOMES = 200.0  # over which the time that one takes is
TELL = 0.1  # a change by this share is worth telling the others
LITTLE = 0.005  # of a core: below it none is


class Work:
    """Of one ranker."""

    def __init__(self) -> None:
        self._rate = self._cost = 0.0
        self._head, self._at, self._since = -1, 0.0, 0.0
        self._before = 0.0  # what whoever learned it before found
        self.told = 0.0  # what the others know

    def begin(self, load: float) -> None:
        """Someone else has measured it until now."""
        self._before = self.told = load

    def came(self, head: int, now: float) -> None:
        """So many outcomes are logged by now (monotonic)."""
        if self._head < 0:
            self._head, self._at, self._since = head, now, now
            return
        passed = now - self._at
        if passed <= 0:
            return
        share = 1.0 - math.exp(-passed / SECONDS)
        self._rate += share * ((head - self._head) / passed - self._rate)
        self._head, self._at = head, now

    def took(self, outcomes: int, seconds: float) -> None:
        """So many were learned, published and all in so many seconds."""
        if outcomes > 0:
            share = 1.0 if self._cost == 0.0 else 1.0 - math.exp(-outcomes / OUTCOMES)
            self._cost += share * (seconds / outcomes - self._cost)

    @property
    def load(self) -> float:
        """Of a core. What was measured elsewhere counts until it has been measured here for a while."""
        measured = self._rate * self._cost
        fresh = self._at - self._since < 2 * SECONDS
        return max(self._before, measured) if fresh else measured

    def news(self) -> float | None:
        """The load, if it is so different from what the others know that they should."""
        load = self.load
        return load if abs(load - self.told) > max(LITTLE, TELL * self.told) else None
