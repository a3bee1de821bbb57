"""How much a caller may ask for: so many requests a second, so many at a time, so many events about a list.

Counted in this process and nowhere else: with several processes (`workers`, machines) a caller may have as many times
that. Sharing the counts would put the store, or a wait for another process, into every request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rankloop.service.errors import TooMany


class Limits:
    """What a key may do at most; a bucket that holds a second's worth, filled at `rate`.

    Parameters
    ----------
    rate
        Requests a second; None: any number. As many may come at once, one at least.
    concurrency
        Requests at a time; None: any number.
    clock
        In seconds; tests move it.
    """

    def __init__(
        self, rate: float | None, concurrency: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.concurrency = rate, concurrency
        self._clock, self._last = clock, clock()
        self._most = self._left = max(rate or 0.0, 1.0)
        self._inside = 0

    def enter(self) -> None:
        """Count a request, or refuse it; `leave` when it has been answered."""
        if self.concurrency is not None and self._inside >= self.concurrency:
            raise TooMany(
                f"{self._inside} requests with this key are being answered, and it may have {self.concurrency} at a "
                "time; wait for one of them",
                1,
            )
        if self.rate is not None:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._last) * self.rate)
            self._last = now
            if self._left < 1.0:
                wait = (1.0 - self._left) / self.rate
                raise TooMany(f"the key sent may ask {self.rate:g} times a second; send less, or wait", math.ceil(wait))
            self._left -= 1.0
        self._inside += 1

    def leave(self) -> None:
        """It has been answered."""
        self._inside -= 1


class Counts:
    """How often something was asked for, of each of many; the one not asked for the longest is forgotten first.

    >>> counts = Counts(most=2, kept=2)
    >>> [counts.take("a"), counts.take("a"), counts.take("a"), counts.take("b")]
    [True, True, False, True]
    """

    def __init__(self, most: int, kept: int = 65_536) -> None:
        self._most, self._kept = most, kept
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether it may be asked for once more."""
        count = self._counts.pop(name, 0)
        if count < self._most:
            count += 1
            allowed = True
        else:
            allowed = False
        self._counts[name] = count  # now the youngest
        if len(self._counts) > self._kept:
            del self._counts[next(iter(self._counts))]
        return allowed
