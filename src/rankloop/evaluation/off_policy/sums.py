"""What estimates need of a log, as sums: of constant size however long the log, and parts of it add up exactly.

Every list belongs to a group, by its user or else by its number, whoever reads it and in which portion. Sums are kept
for each group, of integers or of floats without rounding (`exact`). So a log read as a whole, in portions or by several
processes gives the same bits: estimates, and the jackknife over groups behind their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from rankloop.core.types import Array
from rankloop.evaluation.off_policy.exact import ExactSums, fold, grow
from rankloop.evaluation.off_policy.intervals import FEWEST, GROUPS, SUMS, Units
from rankloop.kernels.elementary import exps

BINS = 32  # points of a curve at most, and at least half as many
HEAVIEST = 1e100  # of a list; one that weighs more carries everything, and the effective number says so
_KEPT = 2**20  # users counted before equal ones are put together


def user_codes(users: Sequence[str | None]) -> Array:
    """(n,) a number for each user, the same wherever it is asked for; 0 for who is not known.

    64 bits of a hash: among a million users two are taken for one with a probability of 3 in 100 million.
    """
    found = {
        name: 0 if name is None else int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        for name in set(users)
    }
    return np.fromiter((found[name] for name in users), np.uint64, len(users))


def groups_of(seq: Array, users: Array) -> Array:
    """(n,) the group of each list: by its user, or by its number where that is not known."""
    found: Array = (np.where(users > 0, users, seq.astype(np.uint64)) % np.uint64(GROUPS)).astype(np.int64)
    return found


def weights_of(log_weights: Array, clip: float) -> Array:
    """(n,) what each list counts, with the same bits on every machine."""
    return np.minimum(exps(np.ascontiguousarray(log_weights, np.float64)), min(clip, HEAVIEST))


def divided(groups: int, K: int) -> int:
    """Into how many groups lists of K ranks go: all, half of them or the fewest, so that the sums stay small; each of
    these divides the one before, so what was summed in more groups can be put together."""
    return next((g for g in (groups, groups // 2) if g >= FEWEST and g * K * K <= SUMS), min(groups, FEWEST))


class UnitSums:
    """How many lists each group has, and whose; memory is 16 bytes a user."""

    def __init__(self) -> None:
        self.lists = np.zeros(GROUPS, np.int64)
        self._nobody = np.zeros(GROUPS, np.int64)  # lists whose user is not known: each a unit of its own
        self._users, self._counts = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._new: list[tuple[Array, Array]] = []

    def add(self, users: Array, group: Array) -> None:
        """Some lists."""
        self.lists += np.bincount(group, minlength=GROUPS)
        known = users > 0
        self._nobody += np.bincount(group[~known], minlength=GROUPS)
        if known.any():
            self._new.append(np.unique(users[known], return_counts=True))
            if sum(len(found) for found, _ in self._new) > _KEPT:
                self._gather()

    def merge(self, other: UnitSums) -> None:
        """All of another part of the log."""
        other._gather()
        self.lists += other.lists
        self._nobody += other._nobody
        self._new.append((other._users, other._counts))
        self._gather()

    def _gather(self) -> None:
        parts = [(self._users, self._counts), *self._new]
        users, place = np.unique(np.concatenate([found for found, _ in parts]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([count for _, count in parts]), len(users))
        self._users, self._counts, self._new = users, counts.astype(np.int64), []

    @property
    def by_user(self) -> bool:
        """Whether any user is known."""
        self._gather()
        return bool(self._users.size)

    def units(self, groups: int) -> tuple[Units, Array]:
        """What the jackknife works with, and which of so many groups have lists."""
        self._gather()
        lists = fold(self.lists, groups)
        there = lists > 0
        if not self.by_user:
            return Units.from_sums(lists[there], None, int(lists.sum())), there
        own = (self._users % np.uint64(groups)).astype(np.int64)
        squares = np.bincount(own, self._counts.astype(np.float64) ** 2, groups) + fold(self._nobody, groups)
        return Units.from_sums(lists[there], squares[there], self._users.size + int(self._nobody.sum())), there


class Curve:
    """Clicks by move along the log, in as many equal parts as fit, which get longer as it does."""

    def __init__(self, first: int, unit: int = 1) -> None:
        self._first, self._width, self._unit = first, 1, unit
        self._clicked, self._lists = np.zeros((BINS, 0, 0), np.int64), np.zeros(BINS, np.int64)

    def add(self, seq: Array, slot: Array, rank: Array, clicks: Array, K: int) -> None:
        """Lists `seq` (n,), their clicks (n, K) by slot, where the item of each stood and would stand."""
        self._reach(int(seq.max()))
        K = max(K, self._clicked.shape[-1])
        self._clicked = grow(self._clicked, K)
        part = (seq - self._first) // self._width
        self._lists += np.bincount(part, minlength=BINS)
        clicked = clicks > 0
        at = (np.broadcast_to(part[:, None], clicked.shape)[clicked] * K + slot[clicked]) * K + rank[clicked]
        self._clicked += _summed(at, clicks[clicked], BINS * K * K).reshape(BINS, K, K)

    def merge(self, other: Curve) -> None:
        """All of another part of the log."""
        self._widen(other._width)
        other._widen(self._width)
        K = max(self._clicked.shape[-1], other._clicked.shape[-1])
        self._clicked = grow(self._clicked, K) + grow(other._clicked, K)
        self._lists = self._lists + other._lists

    def values(self, looked: Array, worth: Array) -> list[float]:
        """What a list was worth in each part that has any."""
        K = self._clicked.shape[-1]
        weight = np.where(np.eye(K, dtype=np.bool_), 1.0, looked[None, :K] / looked[:K, None]) * worth[None, :K]
        total = np.where(self._clicked > 0, self._clicked * weight, 0.0).sum(axis=(1, 2))
        lists = self._lists * self._unit
        return [float(value / count) for value, count in zip(total, lists, strict=True) if count]

    def _reach(self, seq: int) -> None:
        width = self._width
        while (seq - self._first) // width >= BINS:
            width *= 2
        self._widen(width)

    def _widen(self, width: int) -> None:
        while self._width < width:
            self._width *= 2
            for name in ("_clicked", "_lists"):
                whole = getattr(self, name)
                pairs = whole.reshape(BINS // 2, 2, *whole.shape[1:]).sum(axis=1)
                setattr(self, name, np.concatenate([pairs, np.zeros_like(pairs)]))


def _summed(index: Array, counts: Array, size: int) -> Array:
    """(size,) integers summed by index; exact below 2^53."""
    return np.bincount(index, counts.astype(np.float64), size).astype(np.int64)


class PolicySums:
    """What a policy would have made of the lists.

    Clicks are integers. What is earned otherwise, from 0 to 1, is counted in parts of 1 / `unit`.
    """

    def __init__(self, first: int, unit: int = 1) -> None:
        self.unit = unit
        self.clicked = np.zeros((GROUPS, 0, 0), np.int64)  # clicks on items that go from a rank to a rank
        self.shown = np.zeros((GROUPS, 0, 0), np.int64)  # items that do
        self.attraction: ExactSums | None = None  # what a model says they attract
        self.curve = Curve(first, unit)
        self.weight, self.reward = ExactSums((GROUPS,)), ExactSums((GROUPS,))
        self.new, self.missed = ExactSums((GROUPS,)), ExactSums((GROUPS,))
        self.square = ExactSums((1,))
        self.heaviest, self.unclipped = 0.0, 0.0

    def add_moves(self, seq: Array, group: Array, clicks: Array, ranks: Array, attraction: Array | None) -> None:
        """Lists by position: clicks (n, K) by slot, the ranks (n, K) of their items, -1 beyond a list's end."""
        self._make_room(clicks.shape[1])
        G, K = self.clicked.shape[:2]
        there = ranks >= 0
        slot = np.broadcast_to(np.arange(clicks.shape[1]), clicks.shape)
        own = np.broadcast_to((group % G)[:, None], clicks.shape)
        cell = (own * K + slot) * K + ranks
        clicked = there & (clicks > 0)
        self.shown += np.bincount(cell[there], minlength=G * K * K).reshape(G, K, K)
        self.clicked += _summed(cell[clicked], clicks[clicked], G * K * K).reshape(G, K, K)
        self.curve.add(seq, slot, ranks, np.where(there, clicks, 0), K)
        if attraction is not None:
            if self.attraction is None:
                self.attraction = ExactSums((G, K, K))
            self.attraction.add(cell[there], attraction[there])

    def add_lists(
        self, group: Array, rewards: Array, log_weights: Array, clip: float, new: Array | None, shown: Array | None
    ) -> None:
        """Lists as a whole: rewards, the logarithms of their weights, and what a model says of both lists."""
        weights = weights_of(log_weights, clip)
        self.weight.add(group, weights)
        self.reward.add(group, weights * rewards)
        self.square.add(np.zeros_like(group), weights**2)
        self.heaviest = max(self.heaviest, float(weights.max(initial=0.0)))
        self.unclipped = max(self.unclipped, float(weights_of(log_weights, np.inf).max(initial=0.0)))
        if new is not None and shown is not None:
            self.new.add(group, new)
            self.missed.add(group, weights * (rewards - shown))

    def merge(self, other: PolicySums) -> None:
        """All of another part of the log."""
        K = max(self.clicked.shape[-1], other.clicked.shape[-1])
        for one in (self, other):
            one._make_room(K)
        self.clicked = self.clicked + other.clicked
        self.shown = self.shown + other.shown
        self.curve.merge(other.curve)
        for name in ("weight", "reward", "new", "missed", "square"):
            getattr(self, name).merge(getattr(other, name))
        if other.attraction is not None:
            if self.attraction is None:
                self.attraction = ExactSums(other.attraction.shape)
            self.attraction.merge(other.attraction)
        self.heaviest = max(self.heaviest, other.heaviest)
        self.unclipped = max(self.unclipped, other.unclipped)

    def _make_room(self, K: int) -> None:
        """For lists of K ranks; where that would be too much, in fewer groups."""
        K = max(K, self.clicked.shape[-1])
        G = divided(GROUPS, K)
        if self.clicked.shape != (G, K, K):
            self.clicked, self.shown = (fold(grow(one, K), G) for one in (self.clicked, self.shown))
            if self.attraction is not None:
                self.attraction = self.attraction.grown(K).folded(G)
