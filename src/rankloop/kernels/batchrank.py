"""BatchRank on one query: batches of items that share positions, the stages at which they are parted, a compiled loop.

A batch is known by its first position. Each item (m,) has its batch's `home`, the first position, DROPPED once it is
out of the race; its `span`, how many positions the batch has; its `stage`; and its `stamp`, the number under which its
counts began, which tells feedback on older lists. `shows` and `wins` count displays and clicks in the present stage.
"""

from __future__ import annotations

import math

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.bandits import cascade_clicks, charge, kl_lower, kl_upper, position_clicks
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, browse, cascade, expected_clicks, react
from rankloop.kernels.elementary import log

PAPER, MERGE = 0, 1  # the variant that its authors benchmarked is the second
DROPPED, NEW = -1, -2  # homes of items that have none


@jit
def needed(variant: int, stage: int, log_horizon: float, m: int) -> float:
    """How often each item of a batch must have been shown before the batch is looked at; m items in all."""
    longer = float(1 << (2 * stage))  # each stage is four times as long as the one before
    if variant == PAPER:
        return math.ceil(16.0 * longer * log_horizon)  # Zoghi et al. 2017: n_l = ⌈16 Δ_l⁻² log T⌉, Δ_l = 2^-l
    return 4.0 * longer * (log_horizon + log(m))  # log(L T) / Δ², Δ = 1/2 at birth, halved with each stage


@jit
def arrange(home: Array, span: Array, shows: Array, variant: int, coins: Array, order: Array) -> None:
    """Write the candidates (c,) into `order` (c,), batch by batch, each in random order; `coins` (2, c).

    Of a batch with more items than positions the least shown get one (PAPER), or random ones (MERGE). Those that get
    none stand behind all batches, and the dropped ones behind these.
    """
    _sort(home, shows, False, coins[1], order)
    if not _crowded(home, span, order):
        return
    if variant == PAPER:
        _sort(home, shows, True, coins[0], order)
    c, begin, seated = home.size, 0, 0
    while begin < c and home[order[begin]] >= 0:
        first, end = home[order[begin]], begin
        while end < c and home[order[end]] == first:
            end += 1
        places = min(span[order[begin]], end - begin)
        for a in range(begin, begin + places):  # past those who had no position in an earlier batch
            _move(order, a, seated)
            seated += 1
        for a in range(seated - places + 1, seated):
            p = a
            while p > seated - places and coins[1, order[p - 1]] > coins[1, order[a]]:
                p -= 1
            _move(order, a, p)
        begin = end


@jit
def _sort(home: Array, shows: Array, by_shows: bool, coins: Array, order: Array) -> None:
    """By home, then, if asked for, by displays, then by coin; the dropped ones are last, as they come."""
    for a in range(home.size):
        mine = home[a]
        p = a
        while p > 0:
            b = order[p - 1]
            if home[b] == mine:
                if mine < 0:
                    break
                more = shows[b] - shows[a] if by_shows else 0
                if more < 0 or (more == 0 and coins[b] <= coins[a]):
                    break
            elif mine < 0 or 0 <= home[b] < mine:
                break
            order[p] = b
            p -= 1
        order[p] = a


@jit
def _crowded(home: Array, span: Array, order: Array) -> bool:
    """Whether a batch has more items than positions; `order` is by home."""
    members = 0
    for p in range(home.size):
        members = members + 1 if p > 0 and home[order[p]] == home[order[p - 1]] else 1
        if home[order[p]] >= 0 and members > span[order[p]]:
            return True
    return False


@jit
def _move(order: Array, source: int, target: int) -> None:
    """Take an entry to a place further up; those in between move down."""
    mover = order[source]
    for p in range(source, target, -1):
        order[p] = order[p - 1]
    order[target] = mover


@jit
def seats(numbers: Array, home: Array, span: Array, shows: Array, stamp: Array, wins: Array, k: int) -> Array:
    """(5, c) home, span, shows, stamp and wins of each candidate; those that are not known (-1) are of the last batch,
    with nothing shown yet. A query without items is one batch with k positions."""
    last = 0
    found = np.zeros((5, numbers.size), np.int64)
    last_span, last_stamp = k, 0
    for i in range(home.size):
        if home[i] >= last:
            last, last_span, last_stamp = home[i], span[i], stamp[i]
    for c in range(numbers.size):
        i = numbers[c]
        if i >= 0:
            found[0, c], found[1, c], found[2, c] = home[i], span[i], shows[i]
            found[3, c], found[4, c] = stamp[i], wins[i]
        else:
            found[0, c], found[1, c], found[3, c] = last, last_span, last_stamp
    return found


@jit
def seat(home: Array, span: Array, stage: Array, stamp: Array, k: int) -> None:
    """Give every NEW item a seat in the last batch, in place; in a query without items in one batch with k
    positions."""
    last, member = 0, -1
    for i in range(home.size):
        if home[i] >= last:
            last, member = home[i], i
    for i in range(home.size):
        if home[i] == NEW:
            home[i] = last
            span[i] = span[member] if member >= 0 else k
            stage[i] = stage[member] if member >= 0 else 0
            stamp[i] = stamp[member] if member >= 0 else 0


@jit
def least_shown(home: Array, shows: Array, numbers: Array, least: Array) -> None:
    """Write into `least` (m,), at a batch's home, how often the least shown of its items `numbers` was shown; else
    -1."""
    for i in range(least.size):
        least[i] = -1
    for i in numbers:
        if i >= 0 and home[i] >= 0 and (least[home[i]] < 0 or shows[i] < least[home[i]]):
            least[home[i]] = shows[i]


@jit
def count(
    home: Array,
    stamp: Array,
    shows: Array,
    wins: Array,
    numbers: Array,
    stamps: Array,
    clicks: Array,
    variant: int,
    least: Array,
) -> None:
    """Take in the clicks (k,) on a list, in place; `numbers` (c,) are its items, then those that were there too but had
    no position, `stamps` (c,) are of display time. PAPER counts only the least shown of a batch. `least` is work
    space."""
    least_shown(home, shows, numbers, least)
    for p in range(clicks.size):
        i = numbers[p]
        if i >= 0 and home[i] >= 0 and stamp[i] == stamps[p] and (variant == MERGE or shows[i] == least[home[i]]):
            shows[i] += 1
            if clicks[p] > 0:
                wins[i] += 1


@jit
def ready(
    home: Array, stage: Array, shows: Array, numbers: Array, variant: int, log_horizon: float, least: Array
) -> int:
    """The home of a batch whose items `numbers` have all been shown often enough, -1 if there is none."""
    least_shown(home, shows, numbers, least)
    for i in numbers:
        if i >= 0 and home[i] >= 0 and least[home[i]] > 0:
            if least[home[i]] >= needed(variant, stage[i], log_horizon, home.size):
                return int(home[i])
            least[home[i]] = -1  # looked at
    return -1


@jit
def part(
    home: Array,
    span: Array,
    stage: Array,
    stamp: Array,
    shows: Array,
    wins: Array,
    clock: Array,
    numbers: Array,
    first: int,
    variant: int,
    log_horizon: float,
) -> None:
    """Look at the batch at `first`, in place: split it where the items above are known to be better, drop those that
    are known not to be among the best, or go to the next stage. Absent items go to the lower part."""
    members = np.empty(numbers.size, np.int64)
    c = 0
    for i in numbers:
        if i >= 0 and home[i] == first:
            members[c] = i
            c += 1
    members = members[:c]
    budget = log_horizon + 3.0 * log(log_horizon) if variant == PAPER else log_horizon + log(home.size)
    lower, upper = np.empty(c), np.empty(c)
    for a in range(c):
        rate = wins[members[a]] / shows[members[a]]
        lower[a] = kl_lower(rate, shows[members[a]], budget)
        upper[a] = kl_upper(rate, shows[members[a]], budget)
    best = np.argsort(-lower, kind="mergesort")
    positions = span[members[0]]
    dropped = 0
    cut = positions if c > positions else 0  # items that cannot reach the last position's bound are dropped
    parts = np.zeros(c, np.int64)  # how many cuts are above each of `best`
    cuts = 0
    if variant == MERGE and cut:
        dropped = _drop(home, members, lower, upper, best, cut)
    for a in range(1, min(positions, c)):  # a cut above `best[a]`?
        highest = 0.0
        for b in range(a, c):
            if home[members[best[b]]] != DROPPED:
                highest = max(highest, upper[best[b]])
        if lower[best[a - 1]] > highest:
            if variant == PAPER:
                parts[:] = 0
                cuts = 0
            cuts += 1
            parts[a:] = cuts
    if variant == PAPER and cuts == 0 and cut:
        dropped = _drop(home, members, lower, upper, best, cut)
    if cuts > 0:
        _found(home, span, stage, stamp, shows, wins, clock, members, best, parts, first, positions)
    elif variant == PAPER:
        clock[0] += 1
        for i in range(home.size):
            if home[i] == first:
                stage[i] += 1
                stamp[i] = clock[0]
                shows[i] = wins[i] = 0
    elif dropped == 0:
        for i in range(home.size):
            if home[i] == first:
                stage[i] += 1


@jit
def _drop(home: Array, members: Array, lower: Array, upper: Array, best: Array, cut: int) -> int:
    """Drop the items whose upper bound is below the `cut`-th best lower bound; how many."""
    dropped = 0
    for a in range(members.size):
        if upper[a] < lower[best[cut - 1]]:
            home[members[a]] = DROPPED
            dropped += 1
    return dropped


@jit
def _found(
    home: Array,
    span: Array,
    stage: Array,
    stamp: Array,
    shows: Array,
    wins: Array,
    clock: Array,
    members: Array,
    best: Array,
    parts: Array,
    first: int,
    positions: int,
) -> None:
    """Make batches of the parts of an old one, at stage 0 with fresh counts; the last one has the positions left."""
    final = parts[members.size - 1]
    begins = np.zeros(final + 2, np.int64)
    for a in range(members.size):
        begins[parts[a] + 1] = a + 1  # each part but the last has as many positions as items
    begins[final + 1] = positions
    there = np.full(home.size, final)  # who was not there goes to the last part
    for a in range(members.size):
        there[members[best[a]]] = parts[a]
    for i in range(home.size):
        if home[i] == first:
            mine = there[i]
            home[i] = first + begins[mine]
            span[i] = begins[mine + 1] - begins[mine]
            stage[i] = 0
            stamp[i] = clock[0] + 1 + mine
            shows[i] = wins[i] = 0
    clock[0] += final + 1


@jit
def update(
    home: Array,
    span: Array,
    stage: Array,
    stamp: Array,
    shows: Array,
    wins: Array,
    clock: Array,
    numbers: Array,
    stamps: Array,
    clicks: Array,
    variant: int,
    log_horizon: float,
) -> None:
    """Learn from a list, in place: give new items a seat, count, and look at every batch that is ready."""
    seat(home, span, stage, stamp, clicks.size)
    least = np.empty(home.size, np.int64)
    count(home, stamp, shows, wins, numbers, stamps, clicks, variant, least)
    first = ready(home, stage, shows, numbers, variant, log_horizon, least)
    while first >= 0:
        part(home, span, stage, stamp, shows, wins, clock, numbers, first, variant, log_horizon)
        first = ready(home, stage, shows, numbers, variant, log_horizon, least)


@jit
def simulate(
    home: Array,
    span: Array,
    stage: Array,
    stamp: Array,
    shows: Array,
    wins: Array,
    clock: Array,
    variant: int,
    log_horizon: float,
    user: ClickParameters,
    coins: Array,
    user_coins: Array,
    top: int,
    best: float,
    most: int,
    account: Array,
) -> None:
    """Show lists to `user`, one for each row of `coins` (steps, 2, m) and of `user_coins` (steps, 1 or 2, k); the
    batches and `account` change in place."""
    m, k, kind = home.size, user_coins.shape[2], user.kind
    attraction, examination = user.attraction, user.examination
    order, stamps, least = np.arange(m), np.zeros(m, np.int64), np.zeros(m, np.int64)
    shown, clicks, work = order[:k], np.zeros(k), np.zeros((3, k + 1))
    seat(home, span, stage, stamp, k)
    for step in range(coins.shape[0]):
        arrange(home, span, shows, variant, coins[step], order)
        for p in range(m):
            stamps[p] = stamp[order[p]]
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
        count(home, stamp, shows, wins, order, stamps, clicks, variant, least)
        first = ready(home, stage, shows, order, variant, log_horizon, least)
        while first >= 0:
            part(home, span, stage, stamp, shows, wins, clock, order, first, variant, log_horizon)
            first = ready(home, stage, shows, order, variant, log_horizon, least)
