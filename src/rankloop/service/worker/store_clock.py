"""The time of day that all who share a store agree on: the store's own.

A list says when its window ends by the clock of the machine that ranked it, and is closed by the clock of the one that
learns. If these differ by minutes, users' feedback is late before they could give it, or is learned minutes after it
should be. So every machine asks the database what time it is, and reckons with that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rankloop.service.storage.database import Connection, Database

LOOK_EVERY = 5.0  # seconds


class StoreClock:
    """This machine's clock, put right by how far the store's is ahead of it when last seen.

    Parameters
    ----------
    database
        Has a clock of its own.
    own
        This machine's; tests move it.
    """

    def __init__(self, database: Database, own: Callable[[], float] = time.time) -> None:
        self._database, self.own = database, own
        self.ahead = 0.0  # seconds by which the store's clock is ahead

    def __call__(self) -> float:
        return self.own() + self.ahead

    def look(self) -> None:
        """Compare the clocks. The store read its own somewhere between question and answer: what is known already
        stays as long as it fits in between, so a slow network moves nothing."""
        before, there, after = self._database.read(self._asked)
        if not there - after <= self.ahead <= there - before:
            self.ahead = there - (before + after) / 2

    def _asked(self, connection: Connection) -> tuple[float, float, float]:
        connection.rows(self._database.clock)  # the transaction has begun and the statement is known: half the way
        before = self.own()
        ((there,),) = connection.rows(self._database.clock)
        return before, float(there), self.own()
