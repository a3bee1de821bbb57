"""Sums of floats that do not hang on the order: exact until they are read, so parts of a log add up to the whole."""

from __future__ import annotations

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array

BITS = 24  # of a digit: a portion of half a billion of them still has an exact sum as a float
TOP = 1024  # all floats are below two to this


class ExactSums:
    """Many sums, each kept as digits of base 2^24 whatever the sizes of what is added.

    A float is a whole number times a power of two, so it is cut into digits without a rest. Digits add up as integers,
    in any order and from any number of processes; only `values` rounds, once.

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
            raise InvalidInput("a sum has a value that is not finite; nothing can be said about it")
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
        """Add all of another's sums of the same shape."""
        for place, digits in other._digits.items():
            self._digits[place] = self._digits[place] + digits if place in self._digits else digits.copy()

    def folded(self, groups: int) -> ExactSums:
        """The sums along the first axis put together, those of g with those of g + groups, g + 2 groups, …"""
        made = ExactSums((groups, *self.shape[1:]))
        made._digits = {place: fold(digits, groups) for place, digits in self._digits.items()}
        return made

    def grown(self, K: int) -> ExactSums:
        """With K in place of the last two lengths, 0 where nothing was."""
        made = ExactSums((*self.shape[:-2], K, K))
        made._digits = {place: grow(digits, K) for place, digits in self._digits.items()}
        return made

    def values(self) -> Array:
        """(shape) the sums, each rounded to the nearest float."""
        found = np.zeros(int(np.prod(self.shape)))
        if not self._digits:
            return found.reshape(self.shape)
        places = sorted(self._digits)
        digits = np.stack([self._digits[place].reshape(-1) for place in places])
        low = TOP - BITS * (places[-1] + 1)
        shifts = [TOP - BITS * (place + 1) - low for place in places]
        for cell in np.flatnonzero(digits.any(axis=0)).tolist():
            whole = sum(digit << shift for digit, shift in zip(digits[:, cell].tolist(), shifts, strict=True))
            found[cell] = whole * 2**low if low >= 0 else whole / 2**-low  # of integers: rounded once
        return found.reshape(self.shape)


def fold(array: Array, groups: int) -> Array:
    """(groups, …) from a number of groups that is a multiple of it: what is left of g when divided stays g's."""
    folded: Array = array.reshape(-1, groups, *array.shape[1:]).sum(axis=0)
    return folded


def grow(array: Array, K: int) -> Array:
    """(…, K, K) with zeros where nothing was."""
    more = [(0, 0)] * (array.ndim - 2) + [(0, K - array.shape[-2]), (0, K - array.shape[-1])]
    return np.pad(array, more)
