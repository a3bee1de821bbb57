"""BubbleRank on one query: which neighbours are tried the other way round, what clicks say of them, better base lists.

Items are numbers. `s` and `n` hold one entry a pair of items i < j, at j (j - 1) / 2 + i: how many more clicks i got
than j, and how often exactly one of them was clicked, when the two were randomised. An item that is not known yet is
-1. `bar` is 4 log(1/δ): a pair is decided when s > 2 √(n log(1/δ)).
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import jit
from rankloop.kernels.bandits import HARMFUL, cascade_clicks, charge, misordered, position_clicks
from rankloop.kernels.click_models import CASCADE, POSITION, ClickChances, browse, cascade, expected_clicks, react
from rankloop.kernels.elementary import log
from rankloop.types import Array

KEPT, SWAPPED = 1, 2  # what the coin of a randomised pair said


@jit
def bar_of(horizon: float, t: int) -> float:
    """4 log(1/δ) in round t: δ = horizon⁻⁴, or (1 + t)⁻⁴ where no horizon (0) is given."""
    return 16.0 * log(horizon) if horizon > 0 else 16.0 * log(1.0 + t)


@jit
def ahead(s: Array, n: Array, i: int, j: int, bar: float) -> bool:
    """Whether i is better than j for sure: s(i, j) > 2 √(n(i, j) log(1/δ))."""
    if i < 0 or j < 0:
        return False
    if i < j:
        at = j * (j - 1) // 2 + i
        lead = float(s[at])
    else:
        at = i * (i - 1) // 2 + j
        lead = -float(s[at])
    return lead > 0.0 and lead * lead > bar * n[at]


@jit
def randomise(listed: Array, s: Array, n: Array, bar: float, parity: int, coins: Array, flags: Array) -> None:
    """Write into `flags` (w - 1,) what becomes of the neighbours at p and p + 1 of a base list (w,): 0, KEPT or
    SWAPPED.

    Every second pair takes part, from `parity` on, unless the upper item is better for sure. `coins` (w // 2,).
    """
    for p in range(flags.size):
        flags[p] = 0
    for p in range(parity, listed.size - 1, 2):
        if not ahead(s, n, listed[p], listed[p + 1], bar):
            flags[p] = SWAPPED if coins[p // 2] < 0.5 else KEPT


@jit
def exchange(listed: Array, flags: Array, shown: Array) -> None:
    """Write the first of a list into `shown` (k,) with its SWAPPED neighbours exchanged; done twice it is undone."""
    k = shown.size
    for p in range(k):
        shown[p] = listed[p]
    for p in range(flags.size):
        if flags[p] == SWAPPED:
            if p < k:
                shown[p] = listed[p + 1]
            if p + 1 < k:
                shown[p + 1] = listed[p]


@jit
def count(listed: Array, flags: Array, clicks: Array, s: Array, n: Array) -> None:
    """Take in the clicks (k,) on a list that was shown instead of `listed` (w,): randomised pairs of which exactly one
    was clicked count. An item that had no position (k < w) is not clicked: the other one was, so it was looked at."""
    k = clicks.size
    for p in range(flags.size):
        if flags[p] == 0:
            continue
        i, j = listed[p], listed[p + 1]
        where_i, where_j = (p + 1, p) if flags[p] == SWAPPED else (p, p + 1)
        clicked_i, clicked_j = where_i < k and clicks[where_i] > 0, where_j < k and clicks[where_j] > 0
        if clicked_i == clicked_j or i < 0 or j < 0:
            continue
        at = j * (j - 1) // 2 + i if i < j else i * (i - 1) // 2 + j
        s[at] += 1 if clicked_i == (i < j) else -1
        n[at] += 1


@jit
def improve(base: Array, places: Array, s: Array, n: Array, bar: float) -> int:
    """One pass down the base list, in place: neighbours change places where the lower one is better for sure.

    Only the items at `places`, ascending, take part: who stands between two of them was not there and stays where it
    is. How many changed places.
    """
    swaps = 0
    for q in range(places.size - 1):
        high, low = places[q], places[q + 1]
        if ahead(s, n, base[low], base[high], bar):
            base[high], base[low] = base[low], base[high]
            swaps += 1
    return swaps


@jit
def base_list(place: Array, numbers: Array) -> Array:
    """(c,) candidates in the order of a query's base list; `numbers` (c,) are the items' numbers, -1: not known.

    `place` (m,) says where each item stands in the base list. Unknown candidates stand where the caller put them; the
    known ones fill the other positions.
    """
    candidate = np.full(place.size, -1)
    for c in range(numbers.size):
        if numbers[c] >= 0:
            candidate[place[numbers[c]]] = c
    listed = np.arange(numbers.size)
    free = 0
    for c in candidate:
        if c >= 0:
            while numbers[free] < 0:
                free += 1
            listed[free] = c
            free += 1
    return listed


@jit
def admitted(place: Array, listed: Array, fresh: Array) -> Array:
    """(m,) a query's base list, with its fresh items put in; `listed` (w,) are numbers in the order of display time.

    A fresh item stands right behind the one that stood before it, or on top. Those that had no room (-1) are left out.
    """
    m = place.size
    base = np.full(m, -1)
    new = np.zeros(m, np.bool_)
    for q in range(listed.size):
        if listed[q] >= 0 and fresh[q]:
            new[listed[q]] = True
    old = np.full(m, -1)
    for i in range(m):
        if not new[i]:
            old[place[i]] = i
    size = 0
    for i in old:
        if i >= 0:
            base[size] = i
            size += 1
    above = -1
    for q in range(listed.size):
        i = listed[q]
        if i < 0:
            continue
        if fresh[q]:
            at = 0
            if above >= 0:
                while base[at] != above:
                    at += 1
                at += 1
            for p in range(size, at, -1):
                base[p] = base[p - 1]
            base[at] = i
            size += 1
        above = i
    return base


@jit
def update(
    place: Array, s: Array, n: Array, listed: Array, fresh: Array, flags: Array, clicks: Array, bar: float
) -> None:
    """Learn from a list, in place: put fresh items into the base list, count the clicks, improve the base list."""
    base = admitted(place, listed, fresh)
    count(listed, flags, clicks, s, n)
    there = np.zeros(place.size, np.bool_)
    for i in listed:
        if i >= 0:
            there[i] = True
    places = np.empty(place.size, np.int64)
    members = 0
    for p in range(base.size):
        if there[base[p]]:
            places[members] = p
            members += 1
    improve(base, places[:members], s, n, bar)
    for p in range(base.size):
        place[base[p]] = p


@jit
def simulate(
    base: Array,
    s: Array,
    n: Array,
    rounds: int,
    horizon: float,
    user: ClickChances,
    coins: Array,
    user_coins: Array,
    top: int,
    best: float,
    most: int,
    account: Array,
) -> int:
    """Show lists of k to `user`, one for each row of `coins` (steps, min(k + 1, m) // 2) and of `user_coins`
    (steps, 1 or 2, k). The base list, `s`, `n` and `account` change in place; with `most` ≥ 0 HARMFUL counts the
    passes that left the base list with more pairs the wrong way round. The rounds so far are returned."""
    k, kind, attraction, examination = user_coins.shape[2], user.kind, user.attraction, user.examination
    listed = base[: k + 1]
    flags, clicks, shown = np.zeros(listed.size - 1, np.int64), np.zeros(k), np.zeros(k, np.int64)
    work, places = np.zeros((3, k + 1)), np.arange(listed.size)
    wrong = misordered(attraction, base)
    for step in range(coins.shape[0]):
        bar = bar_of(horizon, rounds + 1)
        randomise(listed, s, n, bar, rounds % 2, coins[step], flags)
        exchange(listed, flags, shown)
        if kind == CASCADE:
            cascade(attraction, shown, user_coins[step], clicks)
            value = cascade_clicks(attraction, shown, top)
        elif kind == POSITION:
            browse(attraction, examination, False, shown, user_coins[step], clicks)
            value = position_clicks(attraction, examination, shown, top)
        else:
            react(user, shown, user_coins[step], clicks)
            value = expected_clicks(user, shown, top, work)
        charge(attraction, shown, best - value, most, account)
        count(listed, flags, clicks, s, n)
        if improve(base, places, s, n, bar) > 0 and most >= 0:
            before, wrong = wrong, misordered(attraction, base)
            if wrong > before:
                account[HARMFUL] += 1.0
        rounds += 1
    return rounds
