"""Cascading bandits on one query: who was observed, how good each item may be, a compiled loop with a user.

`shows` (m,) counts how often an item was observed, `wins` (m,) how often it was clicked then.
"""

from __future__ import annotations

import math

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.bandits import cascade_clicks, charge, kl_upper, position_clicks
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, browse, cascade, expected_clicks, react
from rankloop.kernels.elementary import log
from rankloop.kernels.ranking import top_k

KL, KL_PUBLISHED, UCB1 = 0, 1, 2  # budget log t + 3 log log t; the published code's log t; the bound of UCB1
ABOVE = 1e9  # above every bound
MARGIN = 1e-9  # more than a bound may be wrong by


@jit
def observed(clicks: Array, last: bool, seen: int) -> int:
    """How many positions were looked at: down to the first click (or the `last`), all of them if there was none.

    Where it is known that the first `seen` came into view (-1: it is not), those in the place of all of them, and below
    the last click.
    """
    k = clicks.size
    known = k if seen < 0 else min(seen, k)
    end = 0
    for p in range(k):
        if clicks[p] > 0:
            end = p + 1
            if not last:
                return end
    return known if end == 0 or (seen >= 0 and end < known) else end


@jit
def count(numbers: Array, clicks: Array, shows: Array, wins: Array) -> None:
    """Count the observed items `numbers` (e,), top first, and the clicks on them, in place; -1 is unknown."""
    for p in range(numbers.size):
        if numbers[p] >= 0:
            shows[numbers[p]] += 1
            if clicks[p] > 0:
                wins[numbers[p]] += 1


@jit
def budget_of(kind: int, t: int) -> float:
    """What a bound may cost in round t, at least 0."""
    if kind == UCB1:
        return 1.5 * log(max(t - 1.0, 1.0))  # Kveton et al. 2015, section 3: c = √(1.5 log(t - 1) / T)
    grown = log(t)
    if kind == KL_PUBLISHED or t < 2:
        return grown
    return max(grown + 3.0 * log(grown), 0.0)


@jit
def bound(shows: int, wins: int, kind: int, budget: float) -> float:
    """The upper confidence bound of an item that was observed."""
    rate = wins / shows
    if kind == UCB1:
        return rate + math.sqrt(budget / shows)
    return kl_upper(rate, shows, budget)


@jit
def keys(numbers: Array, shows: Array, wins: Array, kind: int, t: int, found: Array) -> None:
    """Write each candidate's bound in round t into `found` (c,); `numbers` (c,) are -1 where it is not known.

    An item that was never observed may have any rate. In the published variant the first of them is above all others.
    """
    budget = budget_of(kind, t)
    unseen = 1.0 if kind == KL else ABOVE
    for c in range(numbers.size):
        i = numbers[c]
        if i >= 0 and shows[i] > 0:
            found[c] = bound(shows[i], wins[i], kind, budget)
        else:
            found[c] = unseen
            if kind == KL_PUBLISHED:
                unseen = 1.0


@jit
def rates(numbers: Array, shows: Array, wins: Array) -> Array:
    """(c,) each candidate's clicks an observation, 0 where there was none."""
    found = np.zeros(numbers.size)
    for c in range(numbers.size):
        i = numbers[c]
        if i >= 0 and shows[i] > 0:
            found[c] = wins[i] / shows[i]
    return found


@jit
def rise(shows: int, wins: int, highest: float) -> float:
    """How much a KL bound grows with a unit of budget at the most, when it is at `highest` now.

    KL is convex above the rate, so the bound is a concave function of the budget: it stays below its tangent.
    """
    away = highest - wins / shows
    return highest * (1.0 - highest) / (away * shows) if away > 0.0 else ABOVE * (1.0 - highest)


@jit
def parted(order: Array, bounds: Array, rises: Array, since: Array, budget: float) -> bool:
    """Whether items stand in the order of their bounds at `budget`, though those are `bounds` at earlier ones `since`.

    Each bound lies between what it was and its tangent; if these do not overlap, the order is the same.
    """
    for p in range(1, order.size):
        i = order[p]
        if bounds[order[p - 1]] <= bounds[i] + rises[i] * (budget - since[i]) + MARGIN:
            return False
    return True


@jit
def simulate(
    shows: Array,
    wins: Array,
    rounds: int,
    kind: int,
    last: bool,
    user: ClickParameters,
    coins: Array,
    user_coins: Array,
    k: int,
    top: int,
    best: float,
    most: int,
    account: Array,
) -> int:
    """Show lists of k to `user`, one for each row of `coins` (steps, m), which break ties, and of `user_coins`
    (steps, 1 or 2, k). The counts and `account` change in place; the rounds so far are returned.

    Only the bounds of items that were observed are worked out at once, the others when it might matter: the lists are
    those of requests, which work out all of them.
    """
    m, reader, attraction, examination = shows.size, user.kind, user.attraction, user.examination
    everyone, clicks, work = np.arange(m), np.zeros(k), np.zeros((3, k + 1))
    bounds, rises, since = np.zeros(m), np.zeros(m), np.zeros(m)
    known = False  # whether every item was observed, and its bound is known at some budget
    for step in range(coins.shape[0]):
        budget = budget_of(kind, rounds + 1)
        order = top_k(bounds, coins[step], m)
        if not known or kind == UCB1 or not parted(order, bounds, rises, since, budget):
            keys(everyone, shows, wins, kind, rounds + 1, bounds)
            order = top_k(bounds, coins[step], m)
            known = True
            for i in range(m):
                known = known and shows[i] > 0
                rises[i], since[i] = rise(shows[i], wins[i], bounds[i]) if shows[i] > 0 else 0.0, budget
        shown = order[:k]
        if reader == CASCADE:
            cascade(attraction, shown, user_coins[step], clicks)
            value = cascade_clicks(attraction, shown, top)
        elif reader == POSITION:
            browse(attraction, examination, False, shown, user_coins[step], clicks)
            value = position_clicks(attraction, examination, shown, top)
        else:
            react(user, shown, user_coins[step], clicks)
            value = expected_clicks(user, shown, top, work)
        charge(attraction, shown, best - value, most, account)
        seen = observed(clicks, last, -1)
        count(shown[:seen], clicks, shows, wins)
        rounds += 1
        if known and kind != UCB1:
            budget = budget_of(kind, rounds + 1)
            for p in range(seen):
                i = shown[p]
                bounds[i] = bound(shows[i], wins[i], kind, budget)
                rises[i], since[i] = rise(shows[i], wins[i], bounds[i]), budget
    return rounds
