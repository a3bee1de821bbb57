"""What every process of a service has: settings, the store, a clock, metrics, and a limit of file descriptors."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankloop.core import registry
from rankloop.core.errors import RankloopError
from rankloop.service.observability.history import History
from rankloop.service.observability.metrics import Metrics, process_files, process_memory
from rankloop.service.observability.shared_reports import WRITE_EVERY, SharedReports
from rankloop.service.settings import Settings
from rankloop.service.storage import Writer, keys, open_database, schema
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.ids import new_id
from rankloop.service.storage.notifications import Notification
from rankloop.service.storage.outcomes import Closing
from rankloop.service.worker.threads import RepeatingThread

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CLOCK_EVERY = 5.0  # seconds between comparisons of the clocks
MAX_DESCRIPTORS = 65_536
RESERVED = 256  # descriptors that are not for connections: the store (three per thread that reads), the log, the clock


class Process:
    """One process of a service.

    Parameters
    ----------
    settings
        The store, and the limits.
    clock
        Time of day, for tests. None: the store's, if it has one, so that all machines agree.
    """

    writer: Writer

    def __init__(self, settings: Settings, clock: Callable[[], float] | None = None) -> None:
        self.settings = settings
        self.machine = machine_name()
        self.worker = f"{self.machine}:{os.getpid()}:{new_id()[-6:]}"
        self.metrics = Metrics()
        self.history = History()
        self.database = open_database(settings.store, time_limits=True)
        self.notifier = self.database.notifier()
        shared = StoreClock(self.database) if self.database.clock and clock is None else None
        self.clock: Callable[[], float] = clock or shared or time.time
        self._store_clock = shared
        self.reports = SharedReports(self.database.name, self.machine, self.worker)
        self._writing = threading.Lock()
        self._threads = [RepeatingThread("metrics", WRITE_EVERY, self._share, self.database, self.thread_failed)]
        if shared is not None:
            clock_thread = RepeatingThread("clock", CLOCK_EVERY, shared.compare, self.database, self.thread_failed)
            self._threads.append(clock_thread)

    def open(self) -> None:
        """Bring the store up to date and open it for writing."""
        schema.migrate(self.database)
        if self._store_clock is not None:
            self._store_clock.compare()
        self.metrics.gauge("process_start_time_seconds", time.time())
        self.writer = Writer(
            self.database,
            feedback_kinds(),
            self._store_error,
            self.clock,
            all_durable=self.settings.durability == "everything",
            stalled_after=self.settings.store_timeout_ms / 1e3,
        )
        for thread in self._threads:
            thread.start()
        self.writer.do(lambda connection: keys.ensure_secret(connection, self.clock()))
        if self.settings.parsed_keys():
            self.writer.do(lambda connection: keys.require_keys(connection, self.clock()))

    def notify(self, notification: Notification) -> None:
        """Notify the processes of other machines, where the store can."""
        if self.notifier is not None:
            self.notifier.publish(notification)

    @property
    def is_notified(self) -> bool:
        """Whether notifications arrive, so that polling is only the safety net."""
        return self.notifier is not None and self.notifier.sound

    def close(self) -> None:
        """Commit what waits, and close the store."""
        if self.notifier is not None:
            self.notifier.stop()
        for thread in self._threads:
            thread.stop()
        self.reports.remove()
        self.writer.close()
        self.database.close()

    def count_closed(self, closings: Sequence[Closing]) -> None:
        """Count impressions that have become outcomes."""
        for closing in closings:
            self.metrics.count("outcomes_total", ranker=closing.ranker, kind=closing.kind)
            self.history.closed(closing)

    def collect(self) -> None:
        """Bring the metrics up to date with what is counted elsewhere."""
        self.history.count_positions(self.metrics)
        if (files := process_files()) is not None:
            self.metrics.gauge("process_open_fds", files)
        commits = self.writer.commits if hasattr(self, "writer") else deque()  # it may not be open yet
        while commits:
            count, seconds = commits.popleft()
            self.metrics.observe("store_commit_seconds", seconds)
            self.metrics.observe("store_batch_size", count)
        self.metrics.gauge("process_resident_memory_bytes", process_memory())

    def report(self) -> bytes:
        """The metrics of this process as they are now; other processes of the machine read the same report."""
        self.collect()
        return self._share()

    def _share(self) -> bytes:
        """Write the metrics for the other processes of this machine."""
        with self._writing:  # an older report must not replace a newer one: counters would go down
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


class StoreClock:
    """The store's time of day, so that attribution windows end by one clock on all machines.

    Parameters
    ----------
    database
        Has a clock of its own.
    own
        This machine's clock; tests move it.
    """

    def __init__(self, database: Database, own: Callable[[], float] = time.time) -> None:
        self._database, self.own = database, own
        self.ahead = 0.0  # seconds by which the store's clock is ahead

    def __call__(self) -> float:
        return self.own() + self.ahead

    def compare(self) -> None:
        """Compare the clocks. The store read its own between question and answer; the known difference stays as long
        as it fits in between, so a slow network changes nothing."""
        before, there, after = self._database.read(self._ask)
        if not there - after <= self.ahead <= there - before:
            self.ahead = there - (before + after) / 2

    def _ask(self, connection: Connection) -> tuple[float, float, float]:
        connection.rows(self._database.clock)  # the transaction has begun and the statement is prepared
        before = self.own()
        ((there,),) = connection.rows(self._database.clock)
        return before, float(there), self.own()


def raise_descriptor_limit() -> None:
    """Take as many file descriptors as the system allows: the default is often 1,024."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """How many connections leave enough descriptors for the store: all but `RESERVED`, or half of few."""
    soft = MAX_DESCRIPTORS if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft < 0:  # no limit at all
        soft = MAX_DESCRIPTORS
    return max(soft - RESERVED, soft // 2)
