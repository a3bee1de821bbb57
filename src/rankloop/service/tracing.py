"""Which request this is, whose key it came with and what it changed: known wherever its work is done, in any thread.

A request gets a `Trace` at the door. It travels in a context variable, which `asyncio.to_thread` carries along, so that
log lines (`logs`) and the audit list (`store.audit`) can say which request they belong to without it being handed on.
"""

from __future__ import annotations

import logging
import os
import re
import time
from contextvars import ContextVar
from itertools import count
from typing import NamedTuple, Protocol

_sane = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch  # nothing that could begin a line or a header of its own
_parent = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
logger = logging.getLogger("rankloop")


class Deed(NamedTuple):
    """Something that an operator did."""

    action: str  # a word: put, promote, …
    ranker: str | None
    text: str  # what it was, in a line


class Held(Protocol):
    """Something that a request has while it lasts."""

    def leave(self) -> None:
        """Give it back."""


class _Numbers:
    """Ids for requests that bring none: a beginning of this process's own, and a number."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another process than before, so another beginning."""
        self._own, self._next = os.urandom(6).hex(), count(1).__next__

    def new(self) -> str:
        return f"{self._own}-{self._next()}"


_numbers = _Numbers()
os.register_at_fork(after_in_child=_numbers.begin)


class Trace:
    """One request."""

    __slots__ = ("began", "deeds", "error", "held", "id", "key", "parent", "status", "trace_id")

    def __init__(self, sent: bytes | None = None, parent: bytes | None = None) -> None:
        self.began = time.perf_counter()
        # What the caller calls it, if that can stand in a log; whoever passes a request on wants to find it again.
        self.id = sent.decode("ascii") if sent is not None and _sane(sent) else _numbers.new()
        found = None if parent is None else _parent(parent)
        self.parent = parent if found else None  # W3C's traceparent, as it came
        self.trace_id = found[1].decode("ascii") if found else ""
        self.key = ""  # its name, once it was checked
        self.status = 0
        self.error = ""  # the word of the error that was answered
        self.deeds: list[Deed] = []
        self.held: list[Held] = []


current: ContextVar[Trace | None] = ContextVar("rankloop_request", default=None)


def did(action: str, ranker: str | None, text: str) -> None:
    """An operator has changed something: a line in the log, and one in the audit list if it was asked for by HTTP."""
    logger.info("%s", text if ranker is None else f"ranker {ranker}: {text}")
    trace = current.get()
    if trace is not None:
        trace.deeds.append(Deed(action, ranker, text))
