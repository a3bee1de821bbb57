"""Lists kept to learn from again: a ring of bounded size, or all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.types import Array

FIRST = 16  # lists that there is room for at first; then twice as many whenever they are full


class Lists(NamedTuple):
    """C lists of at most K documents each; what is beyond a list's size is 0."""

    rows: Array  # (C, K, d) float32
    sizes: Array  # (C,)
    labels: Array  # (C, K) clicks
    pairs: Array  # (C, K, K) what "a was preferred to b" counts; 0: it was not
    targets: Array  # (members, C, K, K) noisy labels of the pairs for an ensemble, or empty

    @classmethod
    def empty(cls, members: int = 0) -> Lists:
        """Room for nothing."""
        noisy = np.zeros((members, 0, 0, 0))
        return cls(np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros((0, 0, 0)), noisy)

    def with_room(self, slot: int, longest: int, features: int, most: int) -> Lists:
        """These lists, or larger copies that have slot `slot` and hold lists of `longest`; never more than `most`."""
        count, length = self.rows.shape[:2]
        if slot < count and longest <= length:
            return self
        C = count if slot < count else min(max(2 * count, FIRST), most)
        K = max(length, longest)
        members = self.targets.shape[0]
        made = Lists(
            np.zeros((C, K, features), np.float32),
            np.zeros(C, np.int64),
            np.zeros((C, K)),
            np.zeros((C, K, K)),
            np.zeros((members, C, K, K)),
        )
        if count:
            made.rows[:count, :length], made.sizes[:count] = self.rows, self.sizes
            made.labels[:count, :length], made.pairs[:count, :length, :length] = self.labels, self.pairs
            made.targets[:, :count, :length, :length] = self.targets
        return made

    def entry(self, slot: int) -> tuple[Array, Array, Array, Array, Array]:
        """A copy of what stands in a slot."""
        parts = (self.rows[slot], self.sizes[slot], self.labels[slot], self.pairs[slot], self.targets[:, slot])
        rows, sizes, labels, pairs, targets = (np.array(part) for part in parts)
        return rows, sizes, labels, pairs, targets

    def put(self, slot: int, rows: Array, sizes: Array, labels: Array, pairs: Array, targets: Array) -> None:
        """Write a list into a slot, in place."""
        for whole, part in ((self.rows, rows), (self.labels, labels), (self.pairs, pairs), (self.targets, targets)):
            place = whole[:, slot] if whole is self.targets else whole[slot]
            place[...] = 0.0
            place[tuple(slice(size) for size in part.shape)] = part
        self.sizes[slot] = sizes
