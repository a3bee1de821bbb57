"""The processes of a service: those that rank, the one that learns, and this one, which watches over them.

It forks them from itself, once everything is imported, so that each begins at once and they share what does not change.
One that ends is started anew. So is one that stands still: every process gives a sign of life from where its work is
done (an event loop, the main thread), in shared memory; who does not for `watchdog_seconds` is killed.
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
from typing import Any

from rankloop.service.observability import logs
from rankloop.service.settings import Settings
from rankloop.service.training.hang_detection import CrashBreadcrumb
from rankloop.service.training.publication import socket_pairs

TICK = 0.1  # seconds between looks at the processes
LATE = 1.0  # seconds between two looks after which the whole machine is taken to have stood still
SOON = 5.0  # seconds: one that ends sooner after its start is started again less and less quickly
PAUSE, LONGEST = 0.1, 5.0  # before that: the first and the longest
_TIME = struct.Struct("d")
logger = logging.getLogger("rankloop")

Rank = Callable[[Settings, list[socket.socket], socket.socket | None, Callable[[], None]], None]
Learn = Callable[[Settings, list[socket.socket], CrashBreadcrumb, Callable[[], None]], None]


class Child:
    """A place for a process, and the process that is in it."""

    def __init__(self, name: str, run: Callable[[], None], life: mmap.mmap, place: int) -> None:
        self.name, self._run = name, run
        self._life, self._place = life, place
        self.pid = 0
        self.started = self.due = 0.0
        self.pause = PAUSE

    def start(self) -> None:
        """Fork it."""
        self._life[self._place : self._place + 8] = bytes(8)
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

    def beat(self) -> None:
        """In the process: I am alive."""
        _TIME.pack_into(self._life, self._place, time.monotonic())

    @property
    def beaten(self) -> float:
        """When it last gave a sign of life; 0 if it has not begun."""
        return float(_TIME.unpack_from(self._life, self._place)[0])


class Supervisor:
    """Starts the processes, and sees that they run until it is told to stop."""

    def __init__(self, settings: Settings, sockets: list[socket.socket], rank: Rank, learn: Learn) -> None:
        self._settings = settings
        life = mmap.mmap(-1, 4096)
        pairs = socket_pairs(settings.workers) if settings.learn else []
        self._breadcrumb = CrashBreadcrumb()
        self._rankers: list[Child] = []
        for i in range(settings.workers):
            end = pairs[i].ranker if pairs else None
            child = Child(f"process {i + 1} that ranks", lambda: None, life, 8 * i)
            child._run = self._ranking(rank, sockets, end, child)
            self._rankers.append(child)
        self._learner: Child | None = None
        if pairs:
            ends = [pair.learner for pair in pairs]
            self._learner = child = Child("the process that learns", lambda: None, life, 8 * settings.workers)
            child._run = lambda: learn(settings, ends, self._breadcrumb, child.beat)
        self._sockets = sockets
        self._stopping, self._signal = False, int(signal.SIGTERM)
        self._looked = self._resumed = 0.0  # monotonic: the last look; when this process last went on after a pause
        self._code = 0

    def _ranking(self, rank: Rank, sockets: list[socket.socket], end: socket.socket | None, child: Child) -> Any:
        return lambda: rank(self._settings, sockets, end, child.beat)

    def run(self) -> int:
        """Until SIGTERM or Ctrl-C; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told)
        gc.collect()
        gc.freeze()  # what is shared stays shared: nobody writes into it to count
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

    def _told(self, number: int, _: Any) -> None:
        if self._stopping:  # whoever says it twice does not want to wait
            self._tell(self._rankers, number)
        self._stopping, self._signal = True, number

    def _look_after(self, child: Child) -> None:
        now = time.monotonic()
        if child.pid == 0:
            if now >= child.due:
                child.start()
            return
        found, status = os.waitpid(child.pid, os.WNOHANG)
        if found == 0:
            self._watch(child, now)
            return
        code, child.pid = os.waitstatus_to_exitcode(status), 0
        if self._stopping:
            return
        if code == 0 and child in self._rankers:  # it was told to stop itself, and so are the others
            self._stopping = True
            return
        if not child.beaten and child.pause == PAUSE and code > 0:  # it has never run: neither would the next
            logger.error("%s could not begin", child.name)
            self._stopping, self._code = True, code
            return
        child.pause = min(2 * child.pause, LONGEST) if now - child.started < SOON else PAUSE
        child.due = now + child.pause
        logger.error("%s ended (%s); it is started anew", child.name, _why(code))

    def _notice_pause(self, now: float) -> None:
        """A pause of the machine stops this process, too: signs of life that are missing then are no one's fault."""
        if self._looked and now - self._looked > LATE:
            self._resumed = now
        self._looked = now

    def _watch(self, child: Child, now: float) -> None:
        limit = self._settings.watchdog_seconds
        if not limit or not child.beaten or now - max(child.beaten, self._resumed) < limit:
            return
        logger.error("%s has stood still for %g s and is killed", child.name, limit)
        if child is self._learner:
            self._breadcrumb.mark_killed()
        os.kill(child.pid, signal.SIGKILL)

    @staticmethod
    def _tell(children: list[Child], number: int) -> None:
        for child in children:
            if child.pid:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _end(self, children: list[Child], number: int) -> None:
        """A signal, and SIGKILL to those that do not hear it in time."""
        settings = self._settings
        self._tell(children, number)
        patience = time.monotonic() + settings.notice_seconds + settings.drain_seconds + 20.0
        for child in children:
            while child.pid:
                found, status = os.waitpid(child.pid, os.WNOHANG)
                if found:
                    child.pid = 0
                    code = os.waitstatus_to_exitcode(status)
                    self._code = self._code or (code if code > 0 else 0)
                elif time.monotonic() > patience:
                    logger.error("%s does not end, and is killed", child.name)
                    os.kill(child.pid, signal.SIGKILL)
                    patience = float("inf")
                else:
                    time.sleep(0.01)


def _why(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
