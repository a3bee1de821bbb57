"""Sums that off-policy estimates need of a log: constant size, and parts of a log add up exactly.

Each impression belongs to a group, by its user or else by its number, so any portions give the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.evaluation.statistics import cr2_terms
from rankloop.kernels.elementary import exps

BITS = 24  # of a digit of `ExactSums`: a portion of half a billion of them has an exact sum as a float
TOP = 1024  # all floats are below 2^1024
BINS = 32  # points of a curve at most, and at least half as many
HEAVIEST = 1e100  # weights are clipped here, since a heavier ranking dominates anyway
GROUPS = 200  # of impressions, for the jackknife: its error is then known to 5 %
SUMS = 2_000_000  # size limit of the sums over groups, so that very long rankings make fewer groups
FEWEST = 20  # groups at least
_KEPT = 2**20  # users collected before equal ones are merged


def user_codes(users: Sequence[str | None]) -> Array:
    """Return (n,) a 64-bit hash of each user; 0 for unknown users."""
    found = {
        name: 0 if name is None else int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        for name in set(users)
    }
    return np.fromiter((found[name] for name in users), np.uint64, len(users))


def groups_of(seq: Array, users: Array) -> Array:
    """Return (n,) the group of each impression: by its user, or by its number if the user is unknown."""
    found: Array = (np.where(users > 0, users, seq.astype(np.uint64)) % np.uint64(GROUPS)).astype(np.int64)
    return found


def weights_of(log_weights: Array, clip: float) -> Array:
    """Return (n,) clipped importance weights, with the same bits on every machine."""
    return np.minimum(exps(np.ascontiguousarray(log_weights, np.float64)), min(clip, HEAVIEST))


def group_count(groups: int, K: int) -> int:
    """Return the number of groups for rankings of K positions; the smaller choices divide the larger ones."""
    return next((g for g in (groups, groups // 2) if g >= FEWEST and g * K * K <= SUMS), min(groups, FEWEST))


class Units(NamedTuple):
    """The independent units of a log, impressions or users, in groups for the jackknife."""

    group: Array  # (N,) group of each impression
    share: Array  # (G,) share of all impressions
    bias: float  # correction of the variance for groups of different sizes
    df: float  # degrees of freedom (`statistics.cr2_terms`)
    number: int  # of units

    @classmethod
    def of(cls, N: int, users: Array | Sequence[Hashable] | None, groups: int) -> Units:
        """Put N impressions into at most so many groups, all of one user into the same.

        >>> Units.of(5, ["ann", "bob", "ann", "cid", "bob"], 2).group
        array([0, 1, 0, 0, 1])
        """
        if users is None:
            G = max(1, min(groups, N))
            share = np.bincount(np.arange(N) % G, minlength=G) / N
            return cls(np.arange(N) % G, share, *_terms(share, [share]), N)
        given: list[Hashable] = np.asarray(users).tolist() if isinstance(users, np.ndarray) else list(users)
        if len(given) != N:
            raise InvalidInput(f"{len(given)} users for {N} impressions; give one each")
        numbers: dict[Hashable, int] = {}
        user = np.array([numbers.setdefault(one, len(numbers)) for one in given])
        G = max(1, min(groups, len(numbers)))
        lists = np.bincount(user).astype(np.float64)
        squares = np.bincount(np.arange(lists.size) % G, lists**2, G)
        share = np.bincount(user % G, minlength=G) / N
        # Correlation within users is unknown: take the fewer degrees of freedom of none and full.
        return cls(user % G, share, *_terms(share, [share, squares]), lists.size)

    @classmethod
    def from_sums(cls, lists: Array, squares: Array | None, number: int) -> Units:
        """Make units from impressions (G,) per group, and sums of squared impressions per user (None: no users)."""
        share = lists / lists.sum()
        working = [share] if squares is None else [share, squares]
        return cls(np.empty(0, np.int64), share, *_terms(share, working), number)

    @classmethod
    def equal(cls, G: int) -> Units:
        """Return groups of equal size."""
        return cls(np.arange(G), np.full(G, 1.0 / G), 1.0, G - 1.0, G)

    def summed(self, values: Array) -> Array:
        """Return (G,) sums over groups."""
        return np.bincount(self.group, values, self.share.size)


def _terms(share: Array, working: Sequence[Array]) -> tuple[float, float]:
    if share.size < 2:
        return 1.0, 1.0
    return min((cr2_terms(share, variances) for variances in working), key=lambda terms: terms[1])


class UnitSums:
    """Impressions per group and per user; memory is 16 bytes per user."""

    def __init__(self) -> None:
        self.lists = np.zeros(GROUPS, np.int64)
        self._nobody = np.zeros(GROUPS, np.int64)  # impressions of unknown users: each a unit of its own
        self._users, self._counts = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._new: list[tuple[Array, Array]] = []

    def add(self, users: Array, group: Array) -> None:
        """Add impressions."""
        self.lists += np.bincount(group, minlength=GROUPS)
        known = users > 0
        self._nobody += np.bincount(group[~known], minlength=GROUPS)
        if known.any():
            self._new.append(np.unique(users[known], return_counts=True))
            if sum(len(found) for found, _ in self._new) > _KEPT:
                self._gather()

    def merge(self, other: UnitSums) -> None:
        """Add another part of the log."""
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
        """Return the units of the jackknife, and which groups have impressions."""
        self._gather()
        lists = fold(self.lists, groups)
        there = lists > 0
        if not self.by_user:
            return Units.from_sums(lists[there], None, int(lists.sum())), there
        own = (self._users % np.uint64(groups)).astype(np.int64)
        squares = np.bincount(own, self._counts.astype(np.float64) ** 2, groups) + fold(self._nobody, groups)
        return Units.from_sums(lists[there], squares[there], self._users.size + int(self._nobody.sum())), there


class Curve:
    """Clicks by move along the log, in 16 to 32 bins of equal length that grows with the log."""

    def __init__(self, first: int, unit: int = 1) -> None:
        self._first, self._width, self._unit = first, 1, unit
        self._clicked, self._lists = np.zeros((BINS, 0, 0), np.int64), np.zeros(BINS, np.int64)

    def add(self, seq: Array, slot: Array, rank: Array, clicks: Array, K: int) -> None:
        """Add impressions `seq` (n,), clicks (n, K) by position, and old and new ranks of the items."""
        self._reach(int(seq.max()))
        K = max(K, self._clicked.shape[-1])
        self._clicked = grow(self._clicked, K)
        part = (seq - self._first) // self._width
        self._lists += np.bincount(part, minlength=BINS)
        clicked = clicks > 0
        at = (np.broadcast_to(part[:, None], clicked.shape)[clicked] * K + slot[clicked]) * K + rank[clicked]
        self._clicked += _summed(at, clicks[clicked], BINS * K * K).reshape(BINS, K, K)

    def merge(self, other: Curve) -> None:
        """Add another part of the log."""
        self._widen(other._width)
        other._widen(self._width)
        K = max(self._clicked.shape[-1], other._clicked.shape[-1])
        self._clicked = grow(self._clicked, K) + grow(other._clicked, K)
        self._lists = self._lists + other._lists

    def values(self, looked: Array, worth: Array) -> list[float]:
        """Return the value per impression of each bin that has any."""
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
    """Sum integers by index; exact below 2^53."""
    return np.bincount(index, counts.astype(np.float64), size).astype(np.int64)


class PolicySums:
    """Sums for the estimates of one policy; rewards from 0 to 1 are counted as integers in units of 1 / `unit`."""

    def __init__(self, first: int, unit: int = 1) -> None:
        self.unit = unit
        self.clicked = np.zeros((GROUPS, 0, 0), np.int64)  # clicks by old and new rank
        self.shown = np.zeros((GROUPS, 0, 0), np.int64)  # items by old and new rank
        self.attraction: ExactSums | None = None  # predicted attraction by old and new rank
        self.curve = Curve(first, unit)
        self.weight, self.reward = ExactSums((GROUPS,)), ExactSums((GROUPS,))
        self.new, self.missed = ExactSums((GROUPS,)), ExactSums((GROUPS,))
        self.square = ExactSums((1,))
        self.heaviest, self.unclipped = 0.0, 0.0

    def add_moves(self, seq: Array, group: Array, clicks: Array, ranks: Array, attraction: Array | None) -> None:
        """Add clicks (n, K) by position and the new ranks (n, K) of the items, -1 beyond the end."""
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
        """Add rewards and log weights of rankings, and predictions for the new and the shown ranking."""
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
        """Add another part of the log."""
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
        """Make room for rankings of K positions, with fewer groups if K is large."""
        K = max(K, self.clicked.shape[-1])
        G = group_count(GROUPS, K)
        if self.clicked.shape != (G, K, K):
            self.clicked, self.shown = (fold(grow(one, K), G) for one in (self.clicked, self.shown))
            if self.attraction is not None:
                self.attraction = self.attraction.grown(K).folded(G)


class ExactSums:
    """Exact sums of floats, as digits of base 2^24: order and grouping do not matter, only `values` rounds.

    >>> sums = ExactSums((2,))
    >>> sums.add(np.array([0, 0, 0, 1]), np.array([1e100, 1.0, -1e100, 0.1]))
    >>> sums.values()
    array([1. , 0.1])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._digits: dict[int, Array] = {}  # place -> (shape) int64

    def add(self, index: Array, values: Array) -> None:
        """Add each value to the sum at its flat index."""
        size = int(np.prod(self.shape))
        some = np.flatnonzero(values)
        index, rest = index[some], values[some].astype(np.float64)
        if rest.size == 0:
            return
        largest = float(np.abs(rest).max())
        if not np.isfinite(largest):
            raise InvalidInput("a value to be summed is not finite; check rewards and probabilities")
        place = (TOP - int(np.frexp(largest)[1])) // BITS
        while rest.size:
            unit = TOP - BITS * (place + 1)
            digit = np.trunc(np.ldexp(rest, -unit))
            found = np.bincount(index, digit, size).astype(np.int64).reshape(self.shape)
            self._digits[place] = self._digits[place] + found if place in self._digits else found
            rest = rest - np.ldexp(digit, unit)
            left = rest != 0.0
            if not left.all():
                index, rest = index[left], rest[left]
            place += 1

    def merge(self, other: ExactSums) -> None:
        """Add the sums of another of the same shape."""
        for place, digits in other._digits.items():
            self._digits[place] = self._digits[place] + digits if place in self._digits else digits.copy()

    def folded(self, groups: int) -> ExactSums:
        """Return the sums with groups g, g + groups, g + 2 groups, … of the first axis merged."""
        made = ExactSums((groups, *self.shape[1:]))
        made._digits = {place: fold(digits, groups) for place, digits in self._digits.items()}
        return made

    def grown(self, K: int) -> ExactSums:
        """Return the sums with the last two axes padded to length K."""
        made = ExactSums((*self.shape[:-2], K, K))
        made._digits = {place: grow(digits, K) for place, digits in self._digits.items()}
        return made

    def values(self) -> Array:
        """Return the sums, each rounded to the nearest float."""
        found = np.zeros(int(np.prod(self.shape)))
        if not self._digits:
            return found.reshape(self.shape)
        places = sorted(self._digits)
        digits = np.stack([self._digits[place].reshape(-1) for place in places])
        low = TOP - BITS * (places[-1] + 1)
        shifts = [TOP - BITS * (place + 1) - low for place in places]
        for cell in np.flatnonzero(digits.any(axis=0)).tolist():
            whole = sum(digit << shift for digit, shift in zip(digits[:, cell].tolist(), shifts, strict=True))
            found[cell] = whole * 2**low if low >= 0 else whole / 2**-low  # division of integers: rounded once
        return found.reshape(self.shape)


def fold(array: Array, groups: int) -> Array:
    """Merge the first axis into so many groups, by index modulo `groups`."""
    folded: Array = array.reshape(-1, groups, *array.shape[1:]).sum(axis=0)
    return folded


def grow(array: Array, K: int) -> Array:
    """Pad the last two axes with zeros to length K."""
    more = [(0, 0)] * (array.ndim - 2) + [(0, K - array.shape[-2]), (0, K - array.shape[-1])]
    return np.pad(array, more)
