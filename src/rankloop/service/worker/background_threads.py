"""Threads that a process needs for as long as it runs: an error ends one round of their work, never the thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Database

PAUSE = 1.0  # seconds before work that failed unexpectedly begins again
logger = logging.getLogger("rankloop")


def _uncounted(name: str) -> None:
    """Nobody counts the failures of this thread; they are in the log."""


class Essential:
    """A daemon thread that runs `work` until `stopping`.

    If `work` raises, or returns although nobody stopped it, that is logged and counted and `work` begins again. This
    includes `SystemExit`: code of a learner that raises it must not end a thread that serves all rankers.

    Parameters
    ----------
    name
        The thread's name is `rankloop-NAME`.
    work
        Runs until `stopping` is set or `replaced` is true.
    stopping
        Set by the owner before it expects `work` to return.
    failed
        Called with `name` at each failure, to count it.
    """

    def __init__(
        self, name: str, work: Callable[[], None], stopping: threading.Event, failed: Callable[[str], None] = _uncounted
    ) -> None:
        self.name = name
        self._work, self._stopping, self._failed = work, stopping, failed
        self._thread = self._new()
        self._left: set[threading.Thread] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end; at once if it was never started."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def ident(self) -> int | None:
        """The identifier of the thread that does the work now."""
        return self._thread.ident

    @property
    def replaced(self) -> bool:
        """Whether another thread has taken over the work of the calling one, which should end."""
        return threading.current_thread() in self._left

    def replace(self) -> None:
        """Let another thread go on: this one does not return from the code of a learner. It ends when it returns."""
        self._left.add(self._thread)
        self._thread = self._new()
        self._thread.start()

    def _new(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"rankloop-{self.name}", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                self._work()
                if self._stopping.is_set() or self.replaced:
                    break
                logger.error("thread %s ended without having been stopped; it begins again", self.name)
            except BaseException:
                logger.exception("thread %s failed; it begins again", self.name)
                if self.replaced:
                    break
            self._failed(self.name)
            if self._stopping.wait(PAUSE):
                break
        self._left.discard(threading.current_thread())


class Repeating:
    """Calls `work` every `seconds` from `start` to `stop`; a call that fails is logged and counted, and it goes on."""

    def __init__(
        self,
        name: str,
        seconds: float,
        work: Callable[[], object],
        database: Database,
        failed: Callable[[str], None] = _uncounted,
    ) -> None:
        self.name = name
        self._seconds, self._work, self._database, self._failed = seconds, work, database, failed
        self._stopping = threading.Event()
        self._thread = Essential(name, self._run, self._stopping, failed)

    def start(self) -> None:
        """Begin, with a pause."""
        self._thread.start()

    def stop(self, patience: float = 10.0) -> None:
        """End after the call under way."""
        self._stopping.set()
        self._thread.join(patience)

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def ident(self) -> int | None:
        """The identifier of the thread that does the work now."""
        return self._thread.ident

    def replace(self) -> None:
        """Let another thread go on: this one does not return from its call. It ends when it does."""
        self._thread.replace()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: for work that takes long."""
        return self._stopping.is_set()

    def dead_threads(self) -> list[str]:
        """The name of its thread, if that was started and has ended without being told to."""
        dead = self._thread.ident is not None and not self._thread.is_alive() and not self.stopping
        return [self.name] if dead else []

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds) and not self._thread.replaced:
            try:
                self._work()
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("%s: the store does not answer: %s", self.name, error)
            except BaseException:  # SystemExit, too: it would end the thread without a line in the log
                logger.exception("%s failed; it goes on in a moment", self.name)
                self._failed(self.name)
        self._database.forget()
