"""Feature columns of items: numbers from a table, strings matched with those of a request."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


@jit
def fetch(block: Array, rows: Array, places: Array, columns: Array, found: Array) -> int:
    """Write column `places[j]` of `block` for each of `rows` (n,) into column `columns[j]` of `found` (n, d). A row or
    a place below 0 is NaN, as what is missing is in the block; how many were NaN."""
    gaps = 0
    for i in range(rows.size):
        row = rows[i]
        for j in range(places.size):
            value = np.nan
            if row >= 0 and places[j] >= 0:
                value = block[row, places[j]]
            if value != value:
                gaps += 1
            found[i, columns[j]] = value
    return gaps


@jit
def one_hot(offsets: Array, codes: Array, values: Array, found: Array) -> int:
    """Fill found (n, V) with 1 where candidate i has value v; how many of its codes are none of the values (V,)."""
    strange = 0
    for i in range(offsets.size - 1):
        for j in range(offsets[i], offsets[i + 1]):
            known = False
            for v in range(values.size):
                if values[v] == codes[j]:
                    found[i, v] = 1.0
                    known = True
                    break
            strange += not known
    return strange


@jit
def scatter(offsets: Array, columns: Array, found: Array) -> None:
    """Add 1 to found (n, d) at each candidate's columns."""
    for i in range(offsets.size - 1):
        for j in range(offsets[i], offsets[i + 1]):
            found[i, columns[j]] += 1.0


@jit
def overlap(offsets: Array, codes: Array, wanted: Array, jaccard: bool) -> Array:
    """(n,) the share of the `wanted` codes (m,) that each candidate has; `jaccard`: of all that either has."""
    found = np.zeros(offsets.size - 1)
    if wanted.size == 0:
        return found
    for i in range(found.size):
        both = 0
        for v in range(wanted.size):
            for j in range(offsets[i], offsets[i + 1]):
                if codes[j] == wanted[v]:
                    both += 1
                    break
        either = wanted.size
        if jaccard:
            either += offsets[i + 1] - offsets[i] - both
        found[i] = both / either
    return found


@jit
def crossed_lists(left_at: Array, left: Array, right_at: Array, right: Array, found_at: Array) -> tuple[Array, Array]:
    """Each candidate's pairs of a left and a right code, as two rows of codes; found_at (n + 1,) says where they go.

    A side that is the same for all candidates has one list: its offsets are (2,).
    """
    lefts, rights = np.empty(found_at[-1], np.uint64), np.empty(found_at[-1], np.uint64)
    for i in range(found_at.size - 1):
        a = i if left_at.size == found_at.size else 0
        b = i if right_at.size == found_at.size else 0
        at = found_at[i]
        for x in range(left_at[a], left_at[a + 1]):
            for y in range(right_at[b], right_at[b + 1]):
                lefts[at] = left[x]
                rights[at] = right[y]
                at += 1
    return lefts, rights


@jit
def word_match(
    rows: Array, starts: Array, lengths: Array, pool: Array, words: Array, idf: Array, usual: float, bm25: bool
) -> Array:
    """(n,) how well the texts of `rows` match a query's words (m,), codes of the same vocabulary, -1 of one unknown.

    Texts are sets of words: pool[starts[row] : starts[row] + lengths[row]]. Without `bm25`, the share of the query's
    words that a text has. With it, Σ idf · (k + 1) / (1 + k · (1 - b + b · length / usual)) over those it has, which is
    BM25 (Robertson and Zaragoza 2009, k = 1.2, b = 0.75) where a word counts once however often it stands there.
    """
    found = np.zeros(rows.size)
    for i in range(rows.size):
        start, length = starts[rows[i]], lengths[rows[i]]
        if start < 0:
            continue
        weight = 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * length / usual))
        for w in range(words.size):
            if words[w] < 0:
                continue
            for at in range(start, start + length):
                if pool[at] == words[w]:
                    found[i] += idf[w] * weight if bm25 else 1.0
                    break
        if not bm25 and words.size > 0:
            found[i] /= words.size
    return found
