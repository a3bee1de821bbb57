"""The supervisor: it forks the ranking processes and the learning process, and restarts those that end or hang.

Every process sends heartbeats from where it works (an event loop, the main thread) by shared memory; one that sends
none for `watchdog_seconds` is killed.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rankloop.service.observability import logs
from rankloop.service.settings import Settings
from rankloop.service.training.hang_detection import CrashBreadcrumb
from rankloop.service.training.publication import socket_pairs

TICK = 0.1  # seconds between looks at the processes
LATE = 1.0  # seconds between two looks after which the whole machine is taken to have been stopped
SOON = 5.0  # seconds: a process that ends sooner after its start is restarted after growing pauses
PAUSE, LONGEST_PAUSE = 0.1, 5.0
_TIME = struct.Struct("d")
logger = logging.getLogger("rankloop")

Rank = Callable[[Settings, list[socket.socket], socket.socket | None, Callable[[], None]], None]
Learn = Callable[[Settings, list[socket.socket], CrashBreadcrumb, Callable[[], None]], None]


class Child:
    """A process that is restarted when it ends."""

    def __init__(self, name: str, run: Callable[[], None], heartbeats: mmap.mmap, place: int) -> None:
        self.name, self._run = name, run
        self._heartbeats, self._place = heartbeats, place
        self.pid = 0
        self.started = self.due = 0.0
        self.pause = PAUSE

    def start(self) -> None:
        """Fork it."""
        self._heartbeats[self._place : self._place + 8] = bytes(8)
        self.started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            self._run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except KeyboardInterrupt:
            code = 0
        except BaseException:
            logger.exception("%s failed", self.name)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def heartbeat(self) -> None:
        """Called in the process: it lives."""
        _TIME.pack_into(self._heartbeats, self._place, time.monotonic())

    @property
    def last_heartbeat(self) -> float:
        """When it sent its last heartbeat; 0 if it has not begun."""
        return float(_TIME.unpack_from(self._heartbeats, self._place)[0])


class Supervisor:
    """Starts the processes, and restarts them until it is stopped."""

    def __init__(self, settings: Settings, sockets: list[socket.socket], rank: Rank, learn: Learn) -> None:
        self._settings = settings
        heartbeats = mmap.mmap(-1, 4096)
        pairs = socket_pairs(settings.workers) if settings.learn else []
        self._breadcrumb = CrashBreadcrumb()
        self._rankers: list[Child] = []
        for i in range(settings.workers):
            end = pairs[i].ranker if pairs else None
            child = Child(f"ranking process {i + 1}", lambda: None, heartbeats, 8 * i)
            child._run = partial(rank, settings, sockets, end, child.heartbeat)
            self._rankers.append(child)
        self._learner: Child | None = None
        if pairs:
            ends = [pair.learner for pair in pairs]
            self._learner = child = Child("the learning process", lambda: None, heartbeats, 8 * settings.workers)
            child._run = partial(learn, settings, ends, self._breadcrumb, child.heartbeat)
        self._sockets = sockets
        self._stopping, self._signal = False, int(signal.SIGTERM)
        self._looked = self._resumed = 0.0  # monotonic: the last look; the end of the last pause
        self._code = 0

    def run(self) -> int:
        """Run until SIGTERM or Ctrl-C; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        gc.collect()
        gc.freeze()  # memory stays shared: no reference counts are written into it
        children = [*self._rankers, *([self._learner] if self._learner else [])]
        for child in children:
            child.start()
        while not self._stopping:
            self._notice_pause(time.monotonic())
            for child in children:
                self._look_after(child)
            time.sleep(TICK)
        logger.info(logs.STOPPING)
        self._end(self._rankers, self._signal)
        if self._learner is not None:
            self._end([self._learner], signal.SIGTERM)
        logger.info(logs.STOPPED)
        return self._code

    def _on_signal(self, number: int, _: Any) -> None:
        if self._stopping:  # a second signal: do not wait
            self._send(self._rankers, number)
        self._stopping, self._signal = True, number

    def _look_after(self, child: Child) -> None:
        now = time.monotonic()
        if child.pid == 0:
            if now >= child.due:
                child.start()
            return
        found, status = os.waitpid(child.pid, os.WNOHANG)
        if found == 0:
            self._kill_if_hanging(child, now)
            return
        code, child.pid = os.waitstatus_to_exitcode(status), 0
        if self._stopping:
            return
        if code == 0 and child in self._rankers:  # it was stopped itself: stop the others, too
            self._stopping = True
            return
        if not child.last_heartbeat and child.pause == PAUSE and code > 0:  # neither would the next one start
            logger.error("%s could not start", child.name)
            self._stopping, self._code = True, code
            return
        child.pause = min(2 * child.pause, LONGEST_PAUSE) if now - child.started < SOON else PAUSE
        child.due = now + child.pause
        logger.error(
            "%s ended (%s); it is started again",
            child.name,
            f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}",
        )

    def _notice_pause(self, now: float) -> None:
        """A pause of the machine stops this process, too: heartbeats that are missing then do not count."""
        if self._looked and now - self._looked > LATE:
            self._resumed = now
        self._looked = now

    def _kill_if_hanging(self, child: Child, now: float) -> None:
        limit = self._settings.watchdog_seconds
        if not limit or not child.last_heartbeat or now - max(child.last_heartbeat, self._resumed) < limit:
            return
        logger.error("%s has sent no heartbeat for %g s and is killed", child.name, limit)
        if child is self._learner:
            self._breadcrumb.mark_killed()
        os.kill(child.pid, signal.SIGKILL)

    @staticmethod
    def _send(children: list[Child], number: int) -> None:
        for child in children:
            if child.pid:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _end(self, children: list[Child], number: int) -> None:
        """Send a signal, and SIGKILL to those that do not end in time."""
        settings = self._settings
        self._send(children, number)
        deadline = time.monotonic() + settings.notice_seconds + settings.drain_seconds + 20.0
        for child in children:
            while child.pid:
                found, status = os.waitpid(child.pid, os.WNOHANG)
                if found:
                    child.pid = 0
                    code = os.waitstatus_to_exitcode(status)
                    self._code = self._code or (code if code > 0 else 0)
                elif time.monotonic() > deadline:
                    logger.error("%s does not end, and is killed", child.name)
                    os.kill(child.pid, signal.SIGKILL)
                    deadline = float("inf")
                else:
                    time.sleep(0.01)
