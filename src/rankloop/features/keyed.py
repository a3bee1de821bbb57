"""Rows of arrays by 64-bit key, at most so many: what has not been touched for the longest goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rankloop.core.errors import CodecError
from rankloop.core.types import Array
from rankloop.kernels import counting

LEAST = 4096  # keys that there must be room for: one list brings up to a thousand
FIRST = 256  # rows that there is room for at first
_OWN: dict[str, Any] = {"keys": np.uint64, "owners": np.uint64, "touched": np.int64}


class KeyedRows:
    """Arrays with a row for each key, in memory that is bounded.

    When `capacity` is reached, the eighth that was touched the longest ago goes at once, so that making room costs the
    same for every key however many there are. Which keys go depends on the order of calls and on nothing else, so the
    same calls give the same bits.

    >>> rows = KeyedRows(4096, seen=((), np.float64))
    >>> there = rows.touch(np.array([7, 9, 7], np.uint64), 0)
    >>> np.add.at(rows["seen"], there, 1.0)
    >>> rows["seen"][rows.find(np.array([7, 9], np.uint64))], rows.find(np.array([8], np.uint64))
    (array([2., 1.]), array([-1]))
    """

    def __init__(self, capacity: int, **columns: tuple[tuple[int, ...], Any]) -> None:
        self.capacity = max(capacity, LEAST)
        self.size = 0
        self.evicted = 0  # keys that had to go so far
        self._turn = 0
        self._shapes = {**{name: ((), kind) for name, kind in _OWN.items()}, **columns}
        self._columns = {name: np.zeros((FIRST, *shape), kind) for name, (shape, kind) in self._shapes.items()}
        self._index = np.full(2 * FIRST, -1, np.int32)

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def find(self, keys: Array) -> Array:
        """(n,) the row of each key; -1 of one that is not there."""
        return counting.find(self._index, self._columns["keys"], keys)

    def touch(self, keys: Array, owner: int) -> Array:
        """(n,) the row of each key, made of zeros where it is new; `owner` is the user whom new ones belong to, or 0.

        Rows are good until the next call.
        """
        if self.size + keys.size > self.capacity:
            self._evict(min(self.capacity - self.capacity // 8, self.capacity - keys.size))
        self._make_room(self.size + keys.size)
        before = self.size
        rows, self.size = counting.find_or_add(self._index, self._columns["keys"], self.size, keys)
        self._columns["owners"][before : self.size] = owner
        self._turn += 1
        self._columns["touched"][rows] = self._turn
        return rows

    def forget(self, owner: int) -> int:
        """Take away the rows of a user; how many there were."""
        keep = np.flatnonzero(self._columns["owners"][: self.size] != np.uint64(owner))
        gone = self.size - keep.size
        if gone:
            self._keep(keep)
        return gone

    def state(self) -> dict[str, Array]:
        """Copies of everything, as plain arrays."""
        arrays = {name: array[: self.size].copy() for name, array in self._columns.items()}
        return {**arrays, "totals": np.array([self._turn, self.evicted], np.int64)}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`, bit for bit."""
        for name, (shape, kind) in self._shapes.items():
            given = state.get(name)
            if given is None or given.shape != (state["keys"].size, *shape) or given.dtype != np.dtype(kind):
                raise CodecError(f"the counters' {name!r} are not what this release keeps; count the log anew")
        self.size = int(state["keys"].size)
        self._columns = {name: np.ascontiguousarray(state[name]).copy() for name in self._shapes}
        self._turn, self.evicted = (int(v) for v in state["totals"])
        self._rebuild(max(FIRST, self.size))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self._index.nbytes + sum(array.nbytes for array in self._columns.values()))

    def _make_room(self, rows: int) -> None:
        room = self._columns["keys"].size
        if rows > room:
            self._rebuild(min(max(rows, 2 * room), self.capacity))

    def _evict(self, kept: int) -> None:
        # by key where two were touched together: which row they stand in depends on who came first, keys do not
        touched, keys = self._columns["touched"][: self.size], self._columns["keys"][: self.size]
        keep = np.sort(np.lexsort((keys, touched))[self.size - kept :])
        self.evicted += self.size - keep.size
        self._keep(keep)

    def _keep(self, rows: Array) -> None:
        self._columns = {name: array[rows] for name, array in self._columns.items()}
        self.size = rows.size
        self._rebuild(max(FIRST, rows.size))

    def _rebuild(self, room: int) -> None:
        """Arrays with so much room, and an index that is at most half full."""
        for name, array in self._columns.items():
            if len(array) < room:
                larger = np.zeros((room, *array.shape[1:]), array.dtype)
                larger[: self.size] = array[: self.size]
                self._columns[name] = larger
        self._index = np.full(1 << (2 * len(self._columns["keys"]) - 1).bit_length(), -1, np.int32)
        counting.build_index(self._index, self._columns["keys"], self.size)
