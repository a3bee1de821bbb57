"""What a table of queries needs fast: ids as numbers, ids found among known ones, who was learned from last."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

PRIME = 2**31 - 1  # products of two numbers below it, and a code point, fit into 63 bits
BASES = 1_193_910_307, 748_239_553  # any two numbers below PRIME; drawn at random once
NONE = -1


@jit
def fingerprints(letters: Array, n: int) -> Array:
    """(n,) a negative number for each of n strings; `letters` (n·width,) holds their code points, 0 behind the last.

    Two polynomials modulo PRIME, 31 bits each: of 4.6e18 pairs of different ids one meets. The width does not matter.

    2³¹ is 1 modulo PRIME, so what lies above the lowest 31 bits may be added to them: no division but the last. Numbers
    so kept stay below 2³¹ / (1 - BASE / 2³¹), 4.9e9, and their products with a base within 63 bits.
    """
    width = letters.size // max(n, 1)
    codes = np.empty(n, np.int64)
    for i in range(n):
        begin, end = i * width, (i + 1) * width
        while end > begin and letters[end - 1] == 0:
            end -= 1
        one, two = 1, 1
        for j in range(begin, end):
            letter = int(letters[j]) + 1
            one = one * BASES[0] + letter
            two = two * BASES[1] + letter
            one = (one & PRIME) + (one >> 31)
            two = (two & PRIME) + (two >> 31)
        codes[i] = -1 - (((one % PRIME) << 31) | (two % PRIME))
    return codes


@jit
def match(known: Array, wanted: Array) -> Array:
    """(n,) the place of each of `wanted` in `known`, -1 where it is not there; no place is given twice.

    Lists mostly come in the order in which they came before, so each search begins behind the last find.
    """
    m = known.size
    places = np.full(wanted.size, NONE)
    taken = np.zeros(m, np.bool_)
    begin = 0
    for i in range(wanted.size):
        for step in range(m):
            place = begin + step
            if place >= m:
                place -= m
            if known[place] == wanted[i] and not taken[place]:
                places[i] = place
                taken[place] = True
                begin = place + 1 if place + 1 < m else 0
                break
    return places


@jit
def stamp(seen: Array, numbers: Array, mark: int) -> None:
    """Write `mark` into `seen` for each of `numbers` that is not -1, in place."""
    for number in numbers:
        if number != NONE:
            seen[number] = mark


@jit
def revisit(
    known: Array, seen: Array, wanted: Array, rounds: Array, older: Array, newer: Array, ends: Array, slot: int
) -> tuple[Array, Array, int]:
    """One round more of the query in `slot`, the newest now: its items' numbers, which have none yet, and how many.

    `match`, `touch` and `stamp` in one call, in place: a list is learned from in microseconds, and a call takes one.
    Where items are missing nothing is stamped yet: the query may have to move, and what it leaves behind is saved too.
    """
    touch(older, newer, ends, slot)
    rounds[slot] += 1
    numbers = match(known, wanted)
    fresh = numbers < 0
    missing = int(np.count_nonzero(fresh))
    if missing == 0:
        stamp(seen, numbers, rounds[slot])
    return numbers, fresh, missing


@jit
def touch(older: Array, newer: Array, ends: Array, slot: int) -> None:
    """Make `slot` the newest of the chain, in place; `ends` are its oldest and its newest. A new slot is no part yet.

    `older` and `newer` hold each slot's neighbors, -1 beyond the ends and for a slot that is no part of the chain.
    """
    if ends[1] == slot:
        return
    before, behind = older[slot], newer[slot]
    if before != NONE:
        newer[before] = behind
    elif ends[0] == slot:
        ends[0] = behind
    if behind != NONE:
        older[behind] = before
    older[slot], newer[slot] = ends[1], NONE
    if ends[1] != NONE:
        newer[ends[1]] = slot
    else:
        ends[0] = slot
    ends[1] = slot


@jit
def newest(older: Array, ends: Array, count: int) -> Array:
    """The `count` newest slots of a chain, or all if there are fewer; the newest last."""
    slots = np.empty(count, np.int64)
    slot, found = ends[1], 0
    while slot != NONE and found < count:
        found += 1
        slots[count - found] = slot
        slot = older[slot]
    return slots[count - found :]


@jit
def chain_ends(older: Array, newer: Array) -> tuple[int, int]:
    """The oldest and the newest slot of a chain through all slots, (-1, -1) if these are not the links of one."""
    n = older.size
    oldest = NONE
    for slot in range(n):
        if older[slot] == NONE:
            oldest = slot
    slot, before, steps = oldest, NONE, 0
    while slot != NONE and steps <= n:
        if not 0 <= slot < n or older[slot] != before:
            return NONE, NONE
        before, slot = slot, newer[slot]
        steps += 1
    if steps != n:
        return NONE, NONE
    return oldest, before


@jit
def move(array: Array, source: int, target: int, count: int) -> None:
    """Copy `count` entries to a place further to the left, or not overlapping, in place."""
    for i in range(count):
        array[target + i] = array[source + i]


@jit
def pack(array: Array, starts: Array, counts: Array, order: Array) -> int:
    """Push the blocks of `array` together, leftmost first (`order` sorts `starts`), in place; how much they take."""
    end = 0
    for at in order:
        move(array, starts[at], end, counts[at])
        end += counts[at]
    return end


@jit
def are_below(values: Array, starts: Array, sizes: Array) -> bool:
    """Whether no value of a block is as large as the block."""
    for slot in range(sizes.size):
        for i in range(sizes[slot]):
            if values[starts[slot] + i] >= sizes[slot]:
                return False
    return True


@jit
def are_permutations(values: Array, starts: Array, sizes: Array) -> bool:
    """Whether each block of `values` holds 0 … size-1, each once."""
    longest = 0
    for size in sizes:
        longest = max(longest, size)
    seen = np.full(longest, NONE)
    for slot in range(sizes.size):
        for i in range(sizes[slot]):
            value = values[starts[slot] + i]
            if not 0 <= value < sizes[slot] or seen[value] == slot:
                return False
            seen[value] = slot
    return True
