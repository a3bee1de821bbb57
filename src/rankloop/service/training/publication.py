"""Sends what was learned from the learning process to the ranking processes of the same machine.

Each ranking process has a pair of sockets, made before any process starts, so that a restarted process finds its end
again. A message has a few hundred bytes; the arrays are in anonymous memory (memfd) whose descriptor goes with it, so
they are written once for all. Requests come back as a letter and the number of messages read so far.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple

import msgspec
import numpy as np

from rankloop.core.types import Array
from rankloop.service.training.fold import Publication

# Requests of a ranking process: started; send whole states; outcomes were logged; the store was changed; one was read.
STARTED, SEND_WHOLE, OUTCOMES_LOGGED, STORE_CHANGED, READ = b"hawlr"
_REQUEST = struct.Struct("<BQ")  # the letter, and how many messages were read
MAX_UNREAD = 4  # messages that may wait for a ranking process; more would hold memory for one that does not read
MAX_MESSAGE = 64 * 1024  # bytes without the arrays
ALIGNED = 64
logger = logging.getLogger("rankloop")


class SocketPair(NamedTuple):
    """The two ends between one ranking process and the learning process."""

    ranker: socket.socket
    learner: socket.socket


def socket_pairs(count: int) -> list[SocketPair]:
    """So many of them, which do not block."""
    pairs = [SocketPair(*socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(count)]
    for pair in pairs:
        for end in pair:
            end.setblocking(False)
    return pairs


class Publisher:
    """The end of the learning process."""

    def __init__(self, ends: Sequence[socket.socket]) -> None:
        self._ends = list(ends)
        self._sent, self._read = [0] * len(self._ends), [0] * len(self._ends)

    def publish(self, publication: Publication) -> bool:
        """Send it to all; False if one of them could not receive it, so that the next must be whole."""
        memory, header = encoded(publication)
        try:
            delivered = True
            for i, end in enumerate(self._ends):
                if self._sent[i] - self._read[i] >= MAX_UNREAD:
                    delivered = False
                    continue
                try:
                    socket.send_fds(end, [header], [memory])
                    self._sent[i] += 1
                except OSError:  # full, for whatever reason
                    delivered = False
            return delivered
        finally:
            os.close(memory)

    def store_changed(self) -> None:
        """Let all ranking processes read the store."""
        for end in self._ends:
            with suppress(OSError):  # full: a process that does not read looks at the store by itself
                end.send(b"look")

    def serve(
        self,
        outcomes_logged: Callable[[], None],
        store_changed: Callable[[], None],
        send_whole: Callable[[], None],
    ) -> None:
        """Answer requests, in a thread."""

        def answer(i: int, request: bytes) -> None:
            letter, self._read[i] = _REQUEST.unpack(request)
            if letter == STARTED:
                self._sent[i] = 0
            if letter == STORE_CHANGED:
                store_changed()
            if letter in (OUTCOMES_LOGGED, STORE_CHANGED):
                outcomes_logged()
            elif letter in (SEND_WHOLE, STARTED):
                send_whole()

        def work() -> None:
            while True:
                for end in select.select(self._ends, [], [])[0]:
                    try:
                        answer(self._ends.index(end), end.recv(16))
                    except BlockingIOError:
                        pass
                    except Exception:
                        logger.exception("a request of a ranking process failed")

        threading.Thread(target=work, name="rankloop-requests", daemon=True).start()


class Subscriber:
    """The end of a ranking process."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._count = end, 0

    def request(self, letter: int) -> None:
        """Send a request."""
        with suppress(OSError):  # full: it has enough to read, and looks at the store now and then anyway
            self._end.send(_REQUEST.pack(letter, self._count))

    def read(self, take: Callable[[Publication], bool], store_changed: Callable[[], object] = lambda: None) -> None:
        """Read all messages that have arrived."""
        while True:
            try:
                header, descriptors, _, _ = socket.recv_fds(self._end, MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            if not descriptors:
                store_changed()
                continue
            taken, self._count = False, self._count + 1
            for memory in descriptors:
                try:
                    taken = take(decoded(memory, header))
                finally:
                    os.close(memory)
            self.request(READ if taken else SEND_WHOLE)

    def fileno(self) -> int:
        """For event loops."""
        return self._end.fileno()


class _Header(msgspec.Struct, array_like=True):
    name: str
    generation: int
    learned: int
    base: int | None
    size: int
    arrays: list[tuple[str, str, list[int], int]]  # name, type, shape, offset


_decode = msgspec.msgpack.Decoder(_Header).decode


def encoded(publication: Publication) -> tuple[int, bytes]:
    """A descriptor of memory with the arrays, and the message that describes them."""
    places, at = [], 0
    for name, array in publication.arrays.items():
        places.append((name, array.dtype.str, list(array.shape), at))
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    memory = _memory()
    os.ftruncate(memory, max(at, 1))
    mapped = mmap.mmap(memory, max(at, 1))
    for (_, _, shape, begin), array in zip(places, publication.arrays.values(), strict=True):
        np.frombuffer(mapped, array.dtype, array.size, begin).reshape(shape)[...] = array
    header = _Header(publication.name, publication.generation, publication.learned, publication.base, at, places)
    return memory, msgspec.msgpack.encode(header)


def decoded(memory: int, header: bytes) -> Publication:
    """The publication of `encoded`; its arrays are read-only."""
    found = _decode(header)
    mapped = mmap.mmap(memory, max(found.size, 1), access=mmap.ACCESS_READ)
    arrays: dict[str, Array] = {}
    for name, kind, shape, begin in found.arrays:
        arrays[name] = np.frombuffer(mapped, np.dtype(kind), prod(shape), begin).reshape(shape)
    return Publication(found.name, found.generation, found.learned, found.base, arrays)


def _memory() -> int:
    """A descriptor of anonymous memory, or of a deleted file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rankloop")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
