"""Who is in a learner now, and who hangs in it: for learners that are asked in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

HANGING = 3  # threads that may hang in a ranker's learner before it is not asked any more


class InFlight:
    """Who is in a learner now, and who hangs in it."""

    def __init__(self) -> None:
        self._asked: set[int] = set()  # impressions whose thread is in the learner
        self._given_up: set[int] = set()  # those of them that nobody waits for any more
        self._asking = threading.Lock()

    @contextmanager
    def asked(self, number: int) -> Iterator[None]:
        """While a thread asks the learner to rank for impression `number`."""
        with self._asking:
            self._asked.add(number)
        try:
            yield
        finally:
            with self._asking:
                self._asked.discard(number)
                self._given_up.discard(number)

    def given_up(self, number: int) -> None:
        """Nobody waits for impression `number`; a thread that has not begun, or has come back, does not hang."""
        with self._asking:
            if number in self._asked:
                self._given_up.add(number)

    @property
    def hanging(self) -> int:
        """How many threads hang in the learner."""
        return len(self._given_up)
