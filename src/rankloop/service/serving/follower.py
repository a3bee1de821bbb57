"""How a ranking worker follows the others: by notifications, and by looking regularly, as those may be lost."""

from __future__ import annotations

import logging
import threading
import time

from rankloop.service.access import Keys
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking.kernel_compilation import KernelCompiler
from rankloop.service.serving.live_rankers import LiveRankers
from rankloop.service.storage import keys, leases, outcomes
from rankloop.service.storage.notifications import LOG, NEWS, Notification
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import EssentialThread, RepeatingThread

NET = 10.0  # seconds between full refreshes while notifications arrive
logger = logging.getLogger("rankloop")


class Follower:
    """The threads that follow what other processes save and change."""

    def __init__(
        self, process: Process, known: Keys, rankers: LiveRankers, compiler: KernelCompiler, learning: Learning | None
    ) -> None:
        self._process, self._keys, self._rankers = process, known, rankers
        self._compiler, self._learning = compiler, learning
        self._turn = threading.Lock()
        self._looked = float("-inf")  # monotonic: the last full refresh
        every = process.settings.beat_seconds
        self._beating = RepeatingThread("refresh", every, self._beat, process.database, process.thread_failed)
        self._some = threading.Condition()
        self._notifications: dict[tuple[str, str], Notification] = {}  # the newest of each kind and ranker
        self._missed, self._stopping = False, threading.Event()
        self._thread = EssentialThread("following", self._work, self._stopping, process.thread_failed)

    def start(self) -> None:
        """Begin to follow."""
        self._beating.start()
        self._thread.start()
        if self._process.notifier is not None:
            channels = [NEWS] if self._learning is None else [NEWS, LOG]
            self._process.notifier.subscribe(self._process.worker, channels, self._hear, self.refresh_soon)

    def stop(self) -> None:
        """Stop following."""
        if self._process.notifier is not None:
            self._process.notifier.stop()
        self._beating.stop()
        with self._some:
            self._stopping.set()
            self._some.notify_all()
        self._thread.join(10.0)

    def dead_threads(self) -> list[str]:
        """The names of its threads that have ended without being told to."""
        return [one.name for one in (self._beating, self._thread) if one.dead]

    def refresh(self, whole: bool = True) -> None:
        """Send a heartbeat, then update the keys and all rankers (`whole`) or those with a deferred load."""
        process = self._process
        with self._turn:
            if self._learning is None:  # else the learning thread sends the heartbeat
                process.collect()
                process.writer.do(lambda c: leases.heartbeat(c, process.worker, process.machine, False))
                process.history.store(process.writer, process.clock())
            self._keys.refresh(process.database.read(keys.load_keys))
            if whole:
                self._looked = time.monotonic()
                self._rankers.sync()
                self._rankers.newer()
            else:
                self._rankers.newer(self._rankers.deferred())
            self._rankers.compare(process.database.read(outcomes.log_offsets))
            process.metrics.keep_rankers(self._rankers)
            for live in list(self._rankers.values()):
                if not live.compiled:
                    self._compiler.begin(live)

    def _beat(self) -> None:
        self.refresh(not self._process.is_notified or time.monotonic() - self._looked >= NET)

    def _hear(self, notification: Notification) -> None:
        if self._learning is not None:
            self._learning.on_notification(notification)
        if notification.kind != "outcomes":
            with self._some:
                self._notifications[notification.kind, notification.ranker] = notification
                self._some.notify_all()

    def refresh_soon(self) -> None:
        """Ask the thread to refresh; several calls before it does so cost one refresh."""
        with self._some:
            self._missed = True
            self._some.notify_all()

    def _work(self) -> None:
        while True:
            with self._some:
                self._some.wait_for(lambda: self._notifications or self._missed or self._stopping.is_set())
                if self._stopping.is_set():
                    break
                notifications, self._notifications = list(self._notifications.values()), {}
                missed, self._missed = self._missed, False
            try:
                if missed:
                    self.refresh()
                for notification in notifications:
                    self._follow(notification)
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("a notification could not be followed, the next refresh will: %s", error)
            except Exception:
                logger.exception("a notification could not be followed; the next refresh will")
        self._process.database.close_thread()

    def _follow(self, notification: Notification) -> None:
        with self._turn:
            if notification.kind == "changed":
                live = self._rankers.look(notification.ranker)
                if live is not None and not live.compiled:
                    self._compiler.begin(live)
            else:
                self._rankers.follow(notification)
