"""Lists kept to learn from again: a ring of bounded size, or all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array

FIRST = 16  # lists that there is room for at first; then twice as many whenever they are full


class Entry(NamedTuple):
    """One list, as `Lists` keeps it."""

    rows: Array
    size: Array
    labels: Array
    pairs: Array
    targets: Array
    query: Array


class Lists(NamedTuple):
    """C lists of at most K documents each; what is beyond a list's size is 0."""

    rows: Array  # (C, K, d) float32
    sizes: Array  # (C,)
    labels: Array  # (C, K) clicks
    pairs: Array  # (C, K, K) what "a was preferred to b" counts; 0: it was not
    targets: Array  # (members, C, K, K) noisy labels of the pairs for an ensemble, or empty
    queries: Array  # (C,) the query's fingerprint; of a slot that was never written 0

    @classmethod
    def empty(cls, members: int = 0) -> Lists:
        """Room for nothing."""
        noisy = np.zeros((members, 0, 0, 0))
        rows, whole = np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int64)
        return cls(rows, whole, np.zeros((0, 0)), np.zeros((0, 0, 0)), noisy, whole)

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
            np.zeros(C, np.int64),
        )
        if count:
            made.rows[:count, :length], made.sizes[:count] = self.rows, self.sizes
            made.labels[:count, :length], made.pairs[:count, :length, :length] = self.labels, self.pairs
            made.targets[:, :count, :length, :length] = self.targets
            made.queries[:count] = self.queries
        return made

    def entry(self, slot: int) -> Entry:
        """A copy of what stands in a slot."""
        parts = (*(whole[slot] for whole in self[:4]), self.targets[:, slot], self.queries[slot])
        return Entry(*(np.array(part) for part in parts))

    def put(self, slot: int, entry: Entry) -> None:
        """Write a list into a slot, in place."""
        self.sizes[slot], self.queries[slot] = entry.size, entry.query
        targets = self.targets[:, slot]
        for place, part in (
            (self.rows[slot], entry.rows),
            (self.labels[slot], entry.labels),
            (self.pairs[slot], entry.pairs),
            (targets, entry.targets),
        ):
            place[...] = 0.0
            place[tuple(slice(size) for size in part.shape)] = part

    def knows(self, query: int) -> bool:
        """Whether a list of this query is among them."""
        return bool((self.queries == query).any())
