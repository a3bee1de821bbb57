"""The second step of an upgrade, behind those who rank and learn: once no process of an earlier release is left."""

from __future__ import annotations

import logging
import threading
import time

from rankloop.service.storage import reshaping, schema
from rankloop.service.worker.process import Process

AGAIN = 300.0  # seconds after which what has failed is tried again
logger = logging.getLogger("rankloop")


class Upgrading:
    """Looks whether it can be taken, until it has been."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._settled, self._not_before = False, 0.0  # monotonic
        self._told: list[str] = []
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Take it if nobody is in the way. What takes minutes is done by a thread of its own: leases are kept here."""
        if self._settled or time.monotonic() < self._not_before:
            return
        behind = schema.contract(self._process.database)
        if behind and behind != self._told:
            logger.info(
                "%d processes of an earlier release run on the store (%s); the upgrade's second step waits for them",
                len(behind),
                ", ".join(behind[:3]),
            )
        self._told = behind
        if not behind:
            self._settled = True
            self._thread = threading.Thread(target=self._reshape, name="rankloop-reshape", daemon=True)
            self._thread.start()

    def _reshape(self) -> None:
        try:
            if not reshaping.reshape(self._process.database, self._process.clock()):
                self._not_before = time.monotonic() + AGAIN  # whoever is at it may die of it
                self._settled = False
        except reshaping.CannotPartition as error:
            logger.warning("%s", error)
        except Exception as error:  # a store that is away, a disk that is full: whatever it was, nothing is half done
            logger.warning("the log could not be partitioned: %s; it will be tried again", error)
            self._not_before = time.monotonic() + AGAIN
            self._settled = False
