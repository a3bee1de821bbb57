"""TopRank on one query: which items are known to be worse than which, the blocks that follow, a compiled loop.

`s` and `n` hold one entry a pair of items i < j, at j (j - 1) / 2 + i: how many more clicks i got than j, and how often
exactly one of them was clicked, in lists where the two were in one block. An item that is not known yet is -1.
`bar` is log(c / δ).
"""

from __future__ import annotations

import math

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.bandits import cascade_clicks, charge, position_clicks
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, browse, cascade, expected_clicks, react
from rankloop.kernels.elementary import log

C = 4.0 * math.sqrt(2.0 / math.pi) / math.erf(math.sqrt(2.0))  # Lattimore et al. 2018, Algorithm 1: about 3.43


@jit
def decided(lead: float, count: float, bar: float) -> bool:
    """Whether a lead of so many clicks in so many comparisons settles a pair: lead ≥ √(2 count log(c √count / δ))."""
    if lead <= 0.0 or lead * lead < 2.0 * count * bar:  # cheap, and says no to almost all
        return False
    return lead * lead >= 2.0 * count * (bar + 0.5 * log(count))


@jit
def beats(s: Array, n: Array, i: int, j: int, bar: float) -> bool:
    """Whether i is known to be better than j."""
    if i < 0 or j < 0:
        return False
    at = j * (j - 1) // 2 + i if i < j else i * (i - 1) // 2 + j
    return decided(float(s[at]) if i < j else -float(s[at]), float(n[at]), bar)


@jit
def blocks(s: Array, n: Array, numbers: Array, bar: float, block: Array) -> None:
    """Write the block of each of the items `numbers` (c,) into `block` (c,), 0 on top: those that no item beats, then
    those that none of the rest beats, and so on. Where each of the rest is beaten in turn, they are one block."""
    c = numbers.size
    above = np.zeros((c, c), np.bool_)
    beaten = np.zeros(c, np.int64)
    for a in range(c):
        for b in range(c):
            if a != b and beats(s, n, numbers[a], numbers[b], bar):
                above[a, b] = True
                beaten[b] += 1
        block[a] = -1
    level, left = 0, c
    while left > 0:
        stuck = True
        for a in range(c):
            if block[a] < 0 and beaten[a] == 0:
                stuck = False
        for a in range(c):
            if block[a] < 0 and (beaten[a] == 0 or stuck):
                block[a] = level
                left -= 1
        for a in range(c):
            if block[a] == level:
                for b in range(c):
                    if above[a, b]:
                        beaten[b] -= 1
        level += 1


@jit
def shuffled(block: Array, coins: Array, order: Array) -> None:
    """Write the items into `order` (c,), block by block, by their `coins` (c,) inside a block."""
    for a in range(block.size):
        p = a
        while p > 0:
            above = order[p - 1]
            if block[above] < block[a] or (block[above] == block[a] and coins[above] <= coins[a]):
                break
            order[p] = above
            p -= 1
        order[p] = a


@jit
def update(s: Array, n: Array, numbers: Array, block: Array, clicks: Array, bar: float) -> bool:
    """Take in the clicks (k,) on a list; `numbers` (c,) are its items, then those that shared its last block but had no
    position, so they were not clicked; `block` (c,) is where they stood. In place; whether a pair was settled.

    A pair that is settled changes no more: the two never share a block again, but feedback may come late.
    """
    settled = False
    for p in range(clicks.size):
        i = numbers[p]
        if clicks[p] > 0 and i >= 0:
            for q in range(numbers.size):
                j = numbers[q]
                if j < 0 or block[q] != block[p] or q == p or (q < clicks.size and clicks[q] > 0):
                    continue
                at = j * (j - 1) // 2 + i if i < j else i * (i - 1) // 2 + j
                lead = float(s[at]) if i < j else -float(s[at])
                if decided(abs(lead), float(n[at]), bar):
                    continue
                s[at] += 1 if i < j else -1
                n[at] += 1
                if decided(lead + 1.0, float(n[at]), bar):
                    settled = True
    return settled


@jit
def net_wins(s: Array, numbers: Array, block: Array) -> Array:
    """(c,) how many clicks more than the others of its block each item got when the two were compared."""
    wins = np.zeros(numbers.size)
    for a in range(numbers.size):
        for b in range(a):
            i, j = numbers[a], numbers[b]
            if i >= 0 and j >= 0 and block[a] == block[b]:
                lead = float(s[j * (j - 1) // 2 + i]) if i < j else -float(s[i * (i - 1) // 2 + j])
                wins[a] += lead
                wins[b] -= lead
    return wins


@jit
def simulate(
    s: Array,
    n: Array,
    bar: float,
    user: ClickParameters,
    coins: Array,
    user_coins: Array,
    k: int,
    top: int,
    best: float,
    most: int,
    account: Array,
) -> None:
    """Show lists of k to `user`, one for each row of `coins` (steps, m) and of `user_coins` (steps, 1 or 2, k); `s`,
    `n` and `account` change in place."""
    m, kind, attraction, examination = coins.shape[1], user.kind, user.attraction, user.examination
    order, block, where, clicks = np.arange(m), np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(k)
    shown, work, everyone = order[:k], np.zeros((3, k + 1)), np.arange(m)
    blocks(s, n, everyone, bar, block)
    for step in range(coins.shape[0]):
        shuffled(block, coins[step], order)
        for p in range(m):
            where[p] = block[order[p]]
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
        if update(s, n, order, where, clicks, bar):
            blocks(s, n, everyone, bar, block)
