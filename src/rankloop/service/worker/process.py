"""What every process of a service has, whether it ranks or learns: settings, the store, its counts."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankloop.core import registry
from rankloop.core.errors import RankloopError
from rankloop.service.observability.history import History
from rankloop.service.observability.metrics import Metrics, process_files, process_memory
from rankloop.service.observability.position_counts import PositionCounts
from rankloop.service.observability.shared_reports import WRITE_EVERY, SharedReports
from rankloop.service.settings import Settings
from rankloop.service.storage import Writer, keys, open_database, schema
from rankloop.service.storage.log import Closing, new_id
from rankloop.service.storage.notifications import Notification
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.store_clock import LOOK_EVERY, StoreClock


class Process:
    """One process of a service.

    Parameters
    ----------
    settings
        Where the store is, and the limits.
    clock
        Time of day; tests move it. None: the store's, where it has one, so that all machines agree.
    """

    writer: Writer

    def __init__(self, settings: Settings, clock: Callable[[], float] | None = None) -> None:
        self.settings = settings
        self.machine = machine_name()
        self.worker = f"{self.machine}:{os.getpid()}:{new_id()[-6:]}"
        self.metrics = Metrics()
        self.position_counts = PositionCounts()
        self.history = History()
        self.database = open_database(settings.store, hurried=True)
        self.notifier = self.database.notifier()
        shared = StoreClock(self.database) if self.database.clock and clock is None else None
        self.clock: Callable[[], float] = clock or shared or time.time
        looking = Repeating("clock", LOOK_EVERY, shared.look, self.database, self.thread_failed) if shared else None
        self._looking = looking
        self._shared_clock = shared
        self.reports = SharedReports(self.database.name, self.machine, self.worker)
        self._writing = threading.Lock()
        self._sharing = Repeating("metrics", WRITE_EVERY, self._share, self.database, self.thread_failed)

    def open(self) -> None:
        """Bring the store up to date and open it for writing."""
        schema.migrate(self.database)
        if self._shared_clock is not None and self._looking is not None:
            self._shared_clock.look()
            self._looking.start()
        self.metrics.gauge("process_start_time_seconds", time.time())
        self.writer = Writer(
            self.database,
            feedback_kinds(),
            self._store_error,
            self.clock,
            all_durable=self.settings.durability == "everything",
            stalled_after=self.settings.store_timeout_ms / 1e3,
        )
        self._sharing.start()
        self.writer.do(lambda connection: keys.ensure_secret(connection, self.clock()))
        if self.settings.parsed_keys():
            self.writer.do(lambda connection: keys.remember(connection, self.clock()))

    def notify(self, notification: Notification) -> None:
        """Notify the processes of other machines, where the store can."""
        if self.notifier is not None:
            self.notifier.publish(notification)

    @property
    def is_notified(self) -> bool:
        """Whether notifications arrive, so that polling is only the safety net."""
        return self.notifier is not None and self.notifier.sound

    def close(self) -> None:
        """Commit what waits, and let go of the store."""
        if self.notifier is not None:
            self.notifier.stop()
        if self._looking is not None:
            self._looking.stop()
        self._sharing.stop()
        self.reports.remove()
        self.writer.close()
        self.database.close()

    def count_closed(self, closings: Sequence[Closing]) -> None:
        """Lists have become outcomes."""
        for closing in closings:
            name, kind, values, length = closing
            self.metrics.count("outcomes_total", ranker=name, kind=kind)
            self.position_counts.add(name, values, length)
            self.history.closed(closing)

    def collect(self) -> None:
        """Bring the metrics up to date with what is counted elsewhere."""
        self.position_counts.flush(self.metrics)
        if (files := process_files()) is not None:
            self.metrics.gauge("process_open_fds", files)
        commits = self.writer.commits if hasattr(self, "writer") else deque()  # it may not have begun
        while commits:
            count, seconds = commits.popleft()
            self.metrics.observe("store_commit_seconds", seconds)
            self.metrics.observe("store_batch_size", count)
        self.metrics.gauge("process_resident_memory_bytes", process_memory())

    def report(self) -> bytes:
        """This process's metrics, up to this moment; the other processes of the machine get the same."""
        self.collect()
        return self._share()

    def _share(self) -> bytes:
        """Write the metrics, as they were collected last, for the other processes of this machine."""
        with self._writing:  # or an older report might replace a newer one, and counters would go down
            report = self.metrics.report()
            self.reports.write(report)
        return report

    def thread_failed(self, name: str) -> None:
        """Count a failure of one of this process's threads."""
        self.metrics.count("thread_failures_total", thread=name)

    def _store_error(self, kind: str) -> None:
        self.metrics.count("store_errors_total", kind=kind)


class FeedbackKinds(dict[str, str]):
    """Learner -> the kind of feedback it takes; plugins are looked up when they are first requested."""

    def get(self, name: str, default: Any = None) -> Any:
        """The kind of a learner's feedback; `default` if no such learner is installed."""
        if name not in self:
            try:
                self[name] = registry.learner_class(name).feedback
            except (ImportError, RankloopError):
                return default
        return self[name]


def feedback_kinds() -> FeedbackKinds:
    """The kinds of the learners that are installed."""
    found = FeedbackKinds()
    for name in registry.LEARNERS:
        found.get(name)
    return found


def machine_name() -> str:
    """This machine since its boot, and the namespace of its processes: process numbers are unique within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        boot = "0"
    try:
        # Containers of one machine number their own processes.
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        space = "0"
    return f"{socket.gethostname()}/{boot}/{space}"
