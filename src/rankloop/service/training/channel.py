"""From the process that learns to those that rank on the same machine: what was learned, without the store.

A pair of sockets for each process that ranks, made before any of them is started, so that one that is started anew
finds its end again. A message is a few hundred bytes; the arrays lie in memory that has no name (memfd), whose
descriptor goes with the message: they are written once, however many rank. What comes back is a letter and how many
messages were read so far; a letter that is lost because nobody reads is made good by the next.
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
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rankloop.core.types import Array
from rankloop.service.training.fold import Publication

HELLO, ALL, WAKE, LOOK, READ = b"hawlr"  # I am new; send all, whole; learn; look at the store; I have read one
_WORD = struct.Struct("<BQ")  # a letter, and how many messages were read
UNREAD = 4  # messages that may lie in front of one who ranks; more would hold memory for one who does not read
LARGEST = 64 * 1024  # bytes of a message without its arrays
ALIGNED = 64
logger = logging.getLogger("rankloop")


class Link(NamedTuple):
    """The two ends between one process that ranks and the one that learns."""

    ranker: socket.socket
    learner: socket.socket


def links(count: int) -> list[Link]:
    """So many of them."""
    made = [Link(*socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(count)]
    for link in made:
        for end in link:
            end.setblocking(False)
    return made


class Outbox:
    """The learning end."""

    def __init__(self, ends: Sequence[socket.socket]) -> None:
        self._ends = list(ends)
        self._sent, self._read = [0] * len(self._ends), [0] * len(self._ends)

    def publish(self, news: Publication) -> bool:
        """Send it to all; False if one of them could not have it, so that the next must be whole."""
        memory, header = _written(news)
        try:
            fine = True
            for i, end in enumerate(self._ends):
                if self._sent[i] - self._read[i] >= UNREAD:
                    fine = False
                    continue
                try:
                    socket.send_fds(end, [header], [memory])
                    self._sent[i] += 1
                except OSError:  # full, for whatever reason
                    fine = False
            return fine
        finally:
            os.close(memory)

    def look(self) -> None:
        """Tell all that something was changed in the store."""
        for end in self._ends:
            with suppress(OSError):  # full: whoever does not read looks at the store by himself
                end.send(b"look")

    def serve(self, wake: Callable[[], None], look: Callable[[], None], everything: Callable[[], None]) -> None:
        """Hear what those who rank have to say, in a thread."""

        def work() -> None:
            while True:
                for end in select.select(self._ends, [], [])[0]:
                    with suppress(BlockingIOError):
                        self._heard(self._ends.index(end), end.recv(16), wake, look, everything)

        threading.Thread(target=work, name="rankloop-inbox", daemon=True).start()

    def _heard(self, i: int, word: bytes, wake: Any, look: Any, everything: Any) -> None:
        letter, self._read[i] = _WORD.unpack(word)
        try:
            if letter == WAKE:
                wake()
            elif letter == LOOK:
                look()
                wake()
            elif letter in (ALL, HELLO):
                if letter == HELLO:
                    self._sent[i] = 0
                everything()
        except Exception:
            logger.exception("what a ranking process asked for failed")


class Inbox:
    """The ranking end."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._count = end, 0

    def wake(self) -> None:
        """There is something to learn."""
        self._say(WAKE)

    def look(self) -> None:
        """Something was changed in the store."""
        self._say(LOOK)

    def hello(self) -> None:
        """Whoever was at this end before has gone."""
        self._say(HELLO)

    def want_all(self) -> None:
        """Send everything, whole."""
        self._say(ALL)

    def read(self, take: Callable[[Publication], bool], look: Callable[[], object] = lambda: None) -> None:
        """Take what has come, if anything has; `look` is called when something was changed in the store."""
        while True:
            try:
                header, descriptors, _, _ = socket.recv_fds(self._end, LARGEST, 1)
            except BlockingIOError:
                return
            if not descriptors:
                look()
                continue
            fine, self._count = False, self._count + 1
            for memory in descriptors:
                try:
                    fine = take(_read(memory, header))
                finally:
                    os.close(memory)
            self._say(READ if fine else ALL)

    def fileno(self) -> int:
        """For event loops."""
        return self._end.fileno()

    def _say(self, letter: int) -> None:
        with suppress(OSError):  # full: it has enough to read, and looks at the store every now and then anyway
            self._end.send(_WORD.pack(letter, self._count))


class _Header(msgspec.Struct, array_like=True):
    name: str
    generation: int
    learned: int
    base: int | None
    size: int
    arrays: list[tuple[str, str, list[int], int]]  # name, type, shape, where it begins


_decode = msgspec.msgpack.Decoder(_Header).decode


def _written(news: Publication) -> tuple[int, bytes]:
    """Memory with the arrays of a publication, and the message that says what is where."""
    places, at = [], 0
    for name, array in news.arrays.items():
        places.append((name, array.dtype.str, list(array.shape), at))
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    memory = _memory()
    os.ftruncate(memory, max(at, 1))
    room = mmap.mmap(memory, max(at, 1))
    for (_, _, shape, begin), array in zip(places, news.arrays.values(), strict=True):
        np.frombuffer(room, array.dtype, array.size, begin).reshape(shape)[...] = array
    header = _Header(news.name, news.generation, news.learned, news.base, at, places)
    return memory, msgspec.msgpack.encode(header)


def _read(memory: int, header: bytes) -> Publication:
    found = _decode(header)
    room = mmap.mmap(memory, max(found.size, 1), access=mmap.ACCESS_READ)
    arrays: dict[str, Array] = {}
    for name, kind, shape, begin in found.arrays:
        arrays[name] = np.frombuffer(room, np.dtype(kind), prod(shape), begin).reshape(shape)
    return Publication(found.name, found.generation, found.learned, found.base, arrays)


def _memory() -> int:
    """A descriptor of memory without a name, or of a file that has lost its own."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rankloop")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
