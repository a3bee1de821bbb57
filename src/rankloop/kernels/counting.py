"""Counts by 64-bit key: an index of keys, rings of time buckets, rings of a user's last clicks.

The index is a table of row numbers with open addressing: `index` (2^m,) int32, -1 where it is free, at most half of it
in use. Keys are codes of `rankloop.kernels.hashing`, whose low bits are as good as any.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.hashing import spread


@jit
def _place(index: Array, keys: Array, key: np.uint64) -> Any:
    """Where in the index a key stands, or would."""
    mask = index.size - 1
    at = np.int64(spread(key) & np.uint64(mask))  # `int` would leave it unsigned, and sums with it floats
    while index[at] >= 0 and keys[index[at]] != key:
        at = (at + 1) & mask
    return at


@jit
def build_index(index: Array, keys: Array, size: int) -> None:
    """Put the first `size` keys, no two alike, into an empty index."""
    for row in range(size):
        index[_place(index, keys, keys[row])] = row


@jit
def find(index: Array, keys: Array, wanted: Array) -> Array:
    """(n,) int64 the row of each wanted key; -1 of one that is not there."""
    rows = np.empty(wanted.size, np.int64)
    for i in range(wanted.size):
        rows[i] = index[_place(index, keys, wanted[i])]
    return rows


@jit
def find_or_add(index: Array, keys: Array, size: int, wanted: Array) -> tuple[Array, int]:
    """(n,) the row of each wanted key, new ones at the end; and how many keys there are now. There must be room."""
    rows = np.empty(wanted.size, np.int64)
    for i in range(wanted.size):
        at = _place(index, keys, wanted[i])
        if index[at] < 0:
            index[at] = size
            keys[size] = wanted[i]
            size += 1
        rows[i] = index[at]
    return rows, size


@jit
def add(rows: Array, amounts: Array, numbers: Array, sums: Array, bucket: int) -> int:
    """Add amounts (n, c) to the time bucket of each row; how many came too late, their place taken by a newer bucket.

    `numbers` (rows, P) says which bucket each place of a ring holds, `sums` (rows, P, c) what is in it.
    """
    late, parts = 0, numbers.shape[1]
    place = bucket % parts
    for i in range(rows.size):
        row = rows[i]
        if numbers[row, place] > bucket:
            late += 1
            continue
        if numbers[row, place] < bucket:
            numbers[row, place] = bucket
            for c in range(amounts.shape[1]):
                sums[row, place, c] = 0.0
        for c in range(amounts.shape[1]):
            sums[row, place, c] += amounts[i, c]
    return late


@jit
def within(rows: Array, numbers: Array, sums: Array, bucket: int) -> Array:
    """(n, c) what each row has in the window that ends with `bucket`; 0 of the row -1."""
    parts, width = numbers.shape[1], sums.shape[2]
    found = np.zeros((rows.size, width))
    for i in range(rows.size):
        row = rows[i]
        if row < 0:
            continue
        for number in range(bucket - parts + 1, bucket + 1):  # the oldest first, whatever the ring's turn
            place = number % parts
            if numbers[row, place] == number:
                for c in range(width):
                    found[i, c] += sums[row, place, c]
    return found


@jit
def push(row: int, codes: Array, time: float, values: Array, times: Array, ends: Array) -> None:
    """Append codes (m,) to the ring of a row: `values` and `times` (rows, L), `ends` (rows,) all there ever were."""
    length = values.shape[1]
    for i in range(codes.size):
        at = ends[row] % length
        values[row, at] = codes[i]
        times[row, at] = time
        ends[row] += 1


@jit
def share_of_last(
    row: int, last: int, since: float, values: Array, times: Array, ends: Array, offsets: Array, codes: Array
) -> Array:
    """(n,) what share of the last `last` entries of a ring, after `since`, is among each candidate's codes.

    Candidate i has codes[offsets[i] : offsets[i + 1]]. 0 where the ring is empty, or of the row -1.
    """
    found = np.zeros(offsets.size - 1)
    if row < 0:
        return found
    length = values.shape[1]
    total = 0
    for back in range(min(last, length, ends[row])):
        at = (ends[row] - 1 - back) % length
        if times[row, at] < since:
            continue
        total += 1
        for i in range(found.size):
            for j in range(offsets[i], offsets[i + 1]):
                if codes[j] == values[row, at]:
                    found[i] += 1.0
                    break
    if total > 0:
        found /= total
    return found


@jit
def spread_amounts(offsets: Array, amounts: Array) -> Array:
    """(m, c) of each slot's amounts (k, c) as many copies as it has codes, which are offsets[i] : offsets[i + 1]."""
    found = np.empty((offsets[-1], amounts.shape[1]))
    for i in range(offsets.size - 1):
        for j in range(offsets[i], offsets[i + 1]):
            for c in range(amounts.shape[1]):
                found[j, c] = amounts[i, c]
    return found


@jit
def strengths(wins: Array, start: Array, steps: int) -> Array:
    """(K,) strengths of the Bradley-Terry model after `steps` rounds of Hunter's MM algorithm, the first one's 1.

    wins (K, K) are those of row over column, `start` (K,) where the climb begins. No BLAS: sums repeat bit for bit.
    """
    K = start.size
    found = start.copy()
    for _ in range(steps):
        for p in range(K):
            won, games = 0.0, 0.0
            for q in range(K):
                if q != p:
                    won += wins[p, q]
                    games += (wins[p, q] + wins[q, p]) / (found[p] + found[q])
            if won > 0.0 and games > 0.0:
                found[p] = won / games
        found /= found[0]
    return found
