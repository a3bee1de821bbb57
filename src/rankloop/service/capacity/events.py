"""A clock, and stations where jobs wait in line for a server: all that a discrete-event simulation is made of.

What happens next happens at the time it is due, in the order it was planned where two are due at once; so a run is a
function of its seed. Tests hold a station against the formulas of queueing theory (M/M/1, M/D/c).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class Clock:
    """What is due, and when.

    >>> clock, seen = Clock(), []
    >>> clock.after(2.0, seen.append, "late"); clock.after(1.0, seen.append, "soon"); clock.run(5.0)
    >>> seen, clock.now
    (['soon', 'late'], 5.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._planned = 0

    def after(self, seconds: float, action: Action, *arguments: Any) -> None:
        """Do something in so many seconds."""
        self._planned += 1
        heapq.heappush(self._due, (self.now + seconds, self._planned, action, arguments))

    def run(self, until: float) -> None:
        """Until then; what is due later stays."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until:
            self.now, _, action, arguments = pop(due)
            action(*arguments)
        self.now = until


class Station:
    """So many servers and one line; a job takes a server for a time and then says that it is done."""

    def __init__(self, clock: Clock, servers: int) -> None:
        self._clock, self.servers = clock, servers
        self._free = servers
        self._line: deque[tuple[float, Action, tuple[Any, ...]]] = deque()
        self.busy = 0.0  # server-seconds begun so far
        self.open = True

    @property
    def waiting(self) -> int:
        """Jobs in line."""
        return len(self._line)

    def take(self, seconds: float, done: Action, *arguments: Any) -> None:
        """Join the line."""
        if self._free and self.open:
            self._begin(seconds, done, arguments)
        else:
            self._line.append((seconds, done, arguments))

    def _begin(self, seconds: float, done: Action, arguments: tuple[Any, ...]) -> None:
        self._free -= 1
        self.busy += seconds
        self._clock.after(seconds, self._end, done, arguments)

    def _end(self, done: Action, arguments: tuple[Any, ...]) -> None:
        self._free += 1
        done(*arguments)
        self.reopen()

    def reopen(self) -> None:
        """Serve whoever waits; after `open` was set to True again, too."""
        while self._line and self._free and self.open:
            self._begin(*self._line.popleft())


class Lock:
    """One holder at a time, the others in line; held until it is given back."""

    def __init__(self) -> None:
        self._held = False
        self._line: deque[tuple[Action, tuple[Any, ...]]] = deque()

    def take(self, then: Action, *arguments: Any) -> None:
        """Go on when it is ours."""
        if self._held:
            self._line.append((then, arguments))
        else:
            self._held = True
            then(*arguments)

    def give(self) -> None:
        """To whoever is next."""
        if self._line:
            then, arguments = self._line.popleft()
            then(*arguments)
        else:
            self._held = False
