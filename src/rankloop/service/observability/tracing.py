"""The id and the key of the current request, in a context variable that executors pass to their threads.

Log lines (`logs`) and the audit list (`storage.audit`) name the request by it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol

import msgspec

_sane = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch  # nothing that could begin a line or a header of its own
_parent = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch


class Held(Protocol):
    """Something that a request has while it lasts."""

    def leave(self) -> None:
        """Give it back."""


class Numbers:
    """Ids for requests that bring none: a beginning of this process's own, and a number."""

    own: str
    next: Callable[[], int]

    def begin(self) -> None:
        """Another process than before, so another beginning."""
        self.own, self.next = os.urandom(6).hex(), count(1).__next__


numbers = Numbers()
numbers.begin()
os.register_at_fork(after_in_child=numbers.begin)


class Trace(msgspec.Struct):
    """One request."""

    began: float  # perf_counter
    id: str
    parent: bytes | None = None  # W3C's traceparent, as it came
    trace_id: str = ""
    key: str = ""  # its name, once it was checked
    status: int = 0
    error: str = ""  # the word of the error that was answered
    idempotency_key: str = ""  # of an operator action; empty: none was sent
    held: list[Any] = []  # of `Held`
    private: str = ""  # the id of a user or an item in its path: no log line may contain it


def begun(sent: bytes | None = None, parent: bytes | None = None) -> Trace:
    """A request that brings an id or a trace of its own."""
    # What the caller calls it, if that can stand in a log; whoever passes a request on wants to find it again.
    own = sent.decode("ascii") if sent is not None and _sane(sent) else f"{numbers.own}-{numbers.next()}"
    found = None if parent is None else _parent(parent)
    trace = Trace(time.perf_counter(), own)
    if found:
        trace.parent, trace.trace_id = parent, found[1].decode("ascii")
    return trace


current: ContextVar[Trace | None] = ContextVar("rankloop_request", default=None)
