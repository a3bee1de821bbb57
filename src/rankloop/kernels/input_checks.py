"""Checks of input: feedback values, finite rows, the size of a JSON document."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def filled(values: Array, k: int, most: float) -> tuple[Array, bool]:
    """(k,) the values with 0 for slots that were not reported, and whether all are numbers from 0 to `most`."""
    whole = np.zeros(k)
    fine = True
    for p in range(values.size):
        whole[p] = values[p]
        fine = fine and 0.0 <= values[p] <= most
    return whole, fine


@jit
def all_finite(rows: Array) -> bool:
    """Whether every number of a table is finite."""
    fine = True
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):  # no early way out: compiled, several numbers are looked at at once
            fine &= abs(rows[i, j]) < np.inf
    return fine


@jit
def filled_beside(values: Array, rows: Array, most: float) -> tuple[Array, bool, bool]:
    """What `filled` says of the values for the rows (k, d), and whether all rows are finite: one call for both."""
    whole, fine = filled(values, rows.shape[0], most)
    return whole, fine, all_finite(rows)


_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
_ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = ord("["), ord("]"), ord("{"), ord("}")
_A, _C, _I = ord("a"), ord("c"), ord("i")


@jit
def entry_counts(document: Array, most_entries: int, most_values: int) -> tuple[int, int]:
    """Entries of the longest array of candidates, and values in the whole document; stops where either is too many.

    An array of candidates is one at the top, or one that the object at the top has under `candidates`, `ids`, `items`
    or `actions`. `document` (n,) uint8 need not be valid JSON.
    """
    depth = longest = entries = 0
    values = 1
    counted = -1  # the depth of the array of candidates that is open
    begin = end = 0  # of the last string in the object at the top
    i, n = 0, document.size
    while i < n:
        letter = document[i]
        if letter == _QUOTE:
            start = i + 1
            i = start
            while i < n and document[i] != _QUOTE:
                i += 2 if document[i] == _BACKSLASH else 1
            if depth == 1:
                begin, end = start, i
        elif letter == _COMMA:
            values += 1
            if depth == counted:
                entries += 1
                longest = max(longest, entries)
            if longest > most_entries or values > most_values:
                break
        elif letter == _ARRAY:
            depth += 1
            size = end - begin
            first = document[begin] if size > 0 and begin < n else _QUOTE
            if depth == 1 or (
                depth == 2
                and (
                    (size == 10 and first == _C)
                    or (size == 3 and first == _I)
                    or (size == 5 and first == _I)
                    or (size == 7 and first == _A)
                )
            ):
                counted, entries = depth, 1
                longest = max(longest, 1)
        elif letter == _OBJECT:
            depth += 1
        elif letter in (_ARRAY_END, _OBJECT_END):
            if depth == counted:
                counted = -1
            depth -= 1
        i += 1
    return longest, values
