"""How a ranking process follows the others: by notifications (`storage.notifications`), and by polling.

Notifications may get lost, so everything is read again now and then, and at each heartbeat while none arrive: with
SQLite, or while the connection is away.
"""

from __future__ import annotations

import logging
import threading
import time

from rankloop.service.access.keys import Keys
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking.kernel_compilation import KernelCompiler
from rankloop.service.serving.live_rankers import LiveRankers
from rankloop.service.storage import admin, keys, log
from rankloop.service.storage.notifications import LOG, NEWS, Notification
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import EssentialThread, RepeatingThread

NET = 10.0  # seconds between looks at everything, where notifications arrive
logger = logging.getLogger("rankloop")


class Follower:
    """The threads that keep up.

    Parameters
    ----------
    process
        The store, the settings, the counts, and the notifications.
    known
        The keys that requests are checked against.
    rankers
        What this process ranks with.
    compiler
        Compiles the kernels of rankers that are new.
    learning
        Of a process that learns, too; it is told what it should know.
    """

    def __init__(
        self, process: Process, known: Keys, rankers: LiveRankers, compiler: KernelCompiler, learning: Learning | None
    ) -> None:
        self._process, self._keys, self._rankers = process, known, rankers
        self._compiler, self._learning = compiler, learning
        self._turn = threading.Lock()
        self._looked = float("-inf")  # monotonic: when everything was last looked at
        every = process.settings.beat_seconds
        self._beating = RepeatingThread("refresh", every, self._beat, process.database, process.thread_failed)
        self._some = threading.Condition()
        self._notifications: dict[tuple[str, str], Notification] = {}  # the newest of each kind and ranker
        self._missed, self._stopping = False, threading.Event()
        self._thread = EssentialThread("following", self._work, self._stopping, process.thread_failed)

    def start(self) -> None:
        """Begin to look and to listen."""
        self._beating.start()
        self._thread.start()
        if self._process.notifier is not None:
            channels = [NEWS] if self._learning is None else [NEWS, LOG]
            self._process.notifier.subscribe(self._process.worker, channels, self._hear, self.refresh_soon)

    def stop(self) -> None:
        """Neither look nor listen any more."""
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
        """Say that this process lives, and keep up: keys, and all rankers (`whole`) or those that were put off."""
        process = self._process
        with self._turn:
            if self._learning is None:  # else its heartbeat tells
                process.collect()
                process.writer.do(lambda c: admin.beat(c, process.worker, process.machine, False))
                process.history.store(process.writer, process.clock())
            self._keys.refresh(process.database.read(keys.known))
            if whole:
                self._looked = time.monotonic()
                self._rankers.sync()
                self._rankers.newer()
            else:
                self._rankers.newer(self._rankers.put_off())
            self._rankers.compare(process.database.read(log.heads))
            process.metrics.keep_rankers(self._rankers)
            for live in list(self._rankers.values()):
                if not live.compiled:
                    self._compiler.begin(live)

    def _beat(self) -> None:
        self.refresh(not self._process.is_notified or time.monotonic() - self._looked >= NET)

    # -- notifications ---------------------------------------------------------------------------------------------

    def _hear(self, notification: Notification) -> None:
        if self._learning is not None:
            self._learning.on_notification(notification)
        if notification.kind != "outcomes":
            with self._some:
                self._notifications[notification.kind, notification.ranker] = notification
                self._some.notify_all()

    def refresh_soon(self) -> None:
        """Let the following thread look at everything. Several calls before it does so cost one look."""
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
                logger.warning("what another process told of was not read, the next look will find it: %s", error)
            except Exception:
                logger.exception("what another process told of could not be followed; the next look will find it")
        self._process.database.forget()

    def _follow(self, notification: Notification) -> None:
        with self._turn:
            if notification.kind == "changed":
                live = self._rankers.look(notification.ranker)
                if live is not None and not live.compiled:
                    self._compiler.begin(live)
            else:
                self._rankers.follow(notification)
