"""BubbleRank on one query: which neighbors are tried the other way round, what clicks say of them, better base lists.

Items are numbers. `s` and `n` hold one entry a pair of items i < j, at j (j - 1) / 2 + i: how many more clicks i got
than j, and how often exactly one of them was clicked, when the two were randomized. An item that is not known yet is
-1. `bar` is 4 log(1/δ): a pair is decided when s > 2 √(n log(1/δ)).
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.bandits import HARMFUL, cascade_clicks, charge, misordered_above, position_clicks
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, browse, cascade, expected_clicks, react
from rankloop.kernels.elementary import exp, log, log1p

KEPT, SWAPPED = 1, 2  # what the coin of a randomized pair said
LOG_2 = 0.6931471805599453


@jit
def bar_of(fixed: float, growth: float, t: int) -> float:
    """4 log(1/δ) in round t: `fixed`, or, where that is 0, `growth` · log(1 + t)."""
    return fixed if fixed > 0.0 else growth * log(1.0 + t)


@jit
def ahead(s: Array, n: Array, i: int, j: int, bar: float) -> bool:
    """Whether i is known to be better than j: s(i, j) > 2 √(n(i, j) log(1/δ))."""
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
def contenders(base: Array, k: int, s: Array, n: Array, bar: float) -> int:
    """How many items below the k positions of `base` are not decided against: the item at the last position is not
    known to be better."""
    found = 0
    for q in range(k, base.size):
        if not ahead(s, n, base[k - 1], base[q], bar):
            found += 1
    return found


@jit
def challenger(base: Array, k: int, s: Array, n: Array, bar: float, coin: float) -> int:
    """The place in `base` of the contender that a uniform number draws, -1 if there is none."""
    left = int(coin * contenders(base, k, s, n, bar))
    for q in range(k, base.size):
        if not ahead(s, n, base[k - 1], base[q], bar):
            if left == 0:
                return q
            left -= 1
    return -1


def tosses(m: int, k: int) -> int:
    """How many random numbers a list of k of m items takes: the parity's, each pair's, and that of the challenger."""
    return 1 + min(k + 1, m) // 2 + (k < m)


@jit
def randomize(base: Array, k: int, s: Array, n: Array, bar: float, coins: Array, flags: Array) -> tuple[int, int]:
    """Write into `flags` (k,) what becomes of the items at p and p + 1 of a base list (m,): 0, KEPT or SWAPPED. The
    parity is returned, and the place in `base` of the item that makes a pair with the last one shown, -1: none does.

    Every second pair takes part, from the parity on, unless the upper item is known to be better. Below the last
    position is a random contender. `coins` (tosses,) are uniform numbers.
    """
    parity, outside = 0 if coins[0] < 0.5 else 1, -1
    for p in range(k):
        flags[p] = 0
    for p in range(parity, k - 1, 2):
        if not ahead(s, n, base[p], base[p + 1], bar):
            flags[p] = SWAPPED if coins[1 + p // 2] < 0.5 else KEPT
    if k < base.size and (k - 1) % 2 == parity:
        outside = challenger(base, k, s, n, bar, coins[coins.size - 1])
        if outside >= 0:
            flags[k - 1] = SWAPPED if coins[1 + (k - 1) // 2] < 0.5 else KEPT
    return parity, outside


@jit
def log_chance(base: Array, listed: Array, order: Array, s: Array, n: Array, bar: float) -> float:
    """log P that `randomize` shows the candidates `order` (k,), -inf: never. `listed` (c,) are the candidates of the
    base list, `base` the numbers of the first of them. Both parities may give the same list: their chances are added.
    """
    place = np.empty(listed.size, np.int64)
    for q in range(listed.size):
        place[listed[q]] = q
    seats = place[order]  # where in the base list they stand who are shown
    first, second = _log_chance_of(base, seats, s, n, bar, 0), _log_chance_of(base, seats, s, n, bar, 1)
    most, least = max(first, second), min(first, second)
    if most == -np.inf:
        return -np.inf
    return most + log1p(exp(least - most)) - LOG_2


@jit
def _log_chance_of(base: Array, seats: Array, s: Array, n: Array, bar: float, parity: int) -> float:
    """The same where the parity is known."""
    k, chance = seats.size, 0.0
    if parity == 1 and seats[0] != 0:
        return -np.inf
    for p in range(parity, k - 1, 2):
        kept = seats[p] == p and seats[p + 1] == p + 1
        if not ahead(s, n, base[p], base[p + 1], bar):
            kept = kept or (seats[p] == p + 1 and seats[p + 1] == p)
            chance -= LOG_2
        if not kept:
            return -np.inf
    if (k - 1) % 2 != parity:  # the last position has had its pair, or is the only one and has none
        return chance
    free, last = contenders(base, k, s, n, bar), seats[k - 1]
    if free > 0:
        chance -= LOG_2
    if last != k - 1:
        if last < k or last >= base.size or ahead(s, n, base[k - 1], base[last], bar):
            return -np.inf
        chance -= log(free)
    return chance


@jit
def exchange(listed: Array, flags: Array, parity: int, shown: Array) -> None:
    """Write the first of a list into `shown` with its SWAPPED neighbors exchanged; done twice it is undone.
    Of a list with an item more than there are positions, that is the last."""
    k = shown.size
    for p in range(k):
        shown[p] = listed[p]
    for p in range(parity, flags.size, 2):
        if flags[p] == SWAPPED:
            shown[p] = listed[p + 1]
            if p + 1 < k:
                shown[p + 1] = listed[p]


@jit
def count(listed: Array, flags: Array, parity: int, clicks: Array, s: Array, n: Array) -> None:
    """Take in the clicks (k,) on a list that was shown instead of `listed` (k or k + 1,): randomized pairs of which
    exactly one was clicked count. The item without a position is not clicked: the other one was, so it was looked at.
    """
    k = clicks.size
    for p in range(parity, k, 2):
        if flags[p] == 0:
            continue
        i, j = listed[p], listed[p + 1]
        upper, lower = clicks[p] > 0, p + 1 < k and clicks[p + 1] > 0
        if upper == lower or i < 0 or j < 0:
            continue
        won = upper == (flags[p] == KEPT)  # whether that was i
        at = j * (j - 1) // 2 + i if i < j else i * (i - 1) // 2 + j
        s[at] += 1 if won == (i < j) else -1
        n[at] += 1


@jit
def improve(base: Array, places: Array, s: Array, n: Array, bar: float) -> int:
    """One pass down the base list, in place: neighbors change places where the lower one is known to be better.

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
def admitted(place: Array, listed: Array, fresh: Array, behind: int) -> Array:
    """(m,) a query's base list, with its fresh items put in; `listed` (w,) are numbers in the order of display time.

    A fresh item stands right behind the one that stood before it, or on top; the last one behind `behind`, if that is
    not -1. Those that had no room (-1) are left out.
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
            if q == listed.size - 1 and behind >= 0:
                above = behind
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
    place: Array,
    s: Array,
    n: Array,
    listed: Array,
    fresh: Array,
    behind: int,
    flags: Array,
    parity: int,
    clicks: Array,
    bar: float,
) -> None:
    """Learn from a list, in place: put fresh items into the base list, count the clicks, improve the base list."""
    base = admitted(place, listed, fresh, behind)
    count(listed, flags, parity, clicks, s, n)
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
    fixed: float,
    growth: float,
    user: ClickParameters,
    coins: Array,
    user_coins: Array,
    top: int,
    best: float,
    most: int,
    account: Array,
) -> int:
    """Show lists of k to `user`, one for each row of `coins` (steps, tosses) and of `user_coins` (steps, 1 or 2, k).
    The base list, `s`, `n` and `account` change in place; with `most` ≥ 0 HARMFUL counts the passes that left the base
    list with more pairs the wrong way round. The rounds so far are returned."""
    m, k, kind, attraction, examination = base.size, user_coins.shape[2], user.kind, user.attraction, user.examination
    flags, clicks, shown = np.zeros(k, np.int64), np.zeros(k), np.zeros(k, np.int64)
    listed = base if k == m else np.zeros(k + 1, np.int64)
    work, places = np.zeros((3, k + 1)), np.arange(k + 1)
    inside = places[:k]
    wrong = misordered_above(attraction, base, k)
    for step in range(coins.shape[0]):
        bar = bar_of(fixed, growth, rounds + 1)
        parity, outside = randomize(base, k, s, n, bar, coins[step], flags)
        if k < m:
            for p in range(k):
                listed[p] = base[p]
            if outside >= 0:
                places[k], listed[k] = outside, base[outside]
        exchange(listed, flags, parity, shown)
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
        count(listed, flags, parity, clicks, s, n)
        if improve(base, places if outside >= 0 else inside, s, n, bar) > 0 and most >= 0:
            before, wrong = wrong, misordered_above(attraction, base, k)
            if wrong > before:
                account[HARMFUL] += 1.0
        rounds += 1
    return rounds
