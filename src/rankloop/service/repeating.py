"""A thread that does something every so often, whatever becomes of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rankloop.service.errors import StoreUnavailable
from rankloop.service.store.database import Database

logger = logging.getLogger("rankloop")


class Repeating:
    """Calls `work` every `seconds` from `start` to `stop`; what goes wrong is told, and it goes on."""

    def __init__(self, name: str, seconds: float, work: Callable[[], object], database: Database) -> None:
        self._name, self._seconds, self._work, self._database = name, seconds, work, database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rankloop-{name}", daemon=True)

    def start(self) -> None:
        """Begin, with a pause."""
        self._thread.start()

    def stop(self, patience: float = 10.0) -> None:
        """End after the call under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=patience)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop: for work that takes long."""
        return self._stopping.is_set()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._work()
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("%s: the store does not answer: %s", self._name, error)
            except Exception:
                logger.exception("%s failed; it goes on in a moment", self._name)
        self._database.forget()
