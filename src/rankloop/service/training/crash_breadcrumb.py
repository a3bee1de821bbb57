"""What the process that learns is doing right now, in memory that its supervisor shares and that outlives it.

Machine code that never ends holds the interpreter, so nobody in that process can notice. The supervisor can: it ends
the process, and the next one reads here which outcome of which ranker it was.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import msgspec

_FLAG, _LENGTH, _TEXT, _SIZE = 0, 1, 5, 4096


class Left(NamedTuple):
    """Where a process was when it was ended."""

    name: str
    what: str
    seq: int
    worker: str


class Slate:
    """Written at every outcome: some microseconds."""

    def __init__(self) -> None:
        self._room = mmap.mmap(-1, _SIZE)
        self.worker = ""  # whose it is; each process has its own copy of this

    def write(self, name: str, what: str, seq: int) -> None:
        """Begin with something."""
        text = msgspec.msgpack.encode((name, what, seq, self.worker))
        self._room[_TEXT : _TEXT + len(text)] = text
        self._room[_LENGTH:_TEXT] = len(text).to_bytes(4, "little")

    def wipe(self) -> None:
        """It is done."""
        self._room[_LENGTH:_TEXT] = bytes(4)

    def mark(self) -> None:
        """The process is going to be ended because it stands still."""
        self._room[_FLAG] = 1

    def left_behind(self) -> Left | None:
        """What the process before this hung in, if it was ended for that; asked once."""
        length = int.from_bytes(self._room[_LENGTH:_TEXT], "little")
        marked, self._room[_FLAG] = self._room[_FLAG], 0
        self._room[_LENGTH:_TEXT] = bytes(4)
        if not marked or not 0 < length <= _SIZE - _TEXT:
            return None
        return Left(*msgspec.msgpack.decode(self._room[_TEXT : _TEXT + length], type=tuple[str, str, int, str]))
