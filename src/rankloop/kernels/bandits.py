"""What the compiled loops of the click bandits share: what a list is worth, and what it cost not to show the best one.

A loop asks the two common users directly (`cascade`, `browse`), since handing a whole `ClickParameters` to a function a
million times a second costs more than the click: each of its arrays is counted as used and as free again.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.click_models import BROWSING, ClickParameters, after_click_at, examination_at

REGRET, UNSAFE, HARMFUL = 0, 1, 2  # places in an account


@jit
def cascade_clicks(attraction: Array, shown: Array, top: int) -> float:
    """Expected clicks of a CASCADE user in the first `top` positions: the chance that anything there attracts."""
    none = 1.0
    for r in range(min(top, shown.size)):
        none *= 1.0 - attraction[shown[r]]
    return 1.0 - none


@jit
def position_clicks(attraction: Array, examination: Array, shown: Array, top: int) -> float:
    """Expected clicks of a POSITION user in the first `top` positions."""
    total = 0.0
    for r in range(min(top, shown.size)):
        total += examination[min(r, examination.shape[0] - 1), 0] * attraction[shown[r]]
    return total


@jit
def misordered(attraction: Array, shown: Array) -> int:
    """How many pairs of a list stand with the less attractive document above."""
    pairs = 0
    for low in range(shown.size):
        for high in range(low):
            if attraction[shown[high]] < attraction[shown[low]]:
                pairs += 1
    return pairs


@jit
def misordered_above(attraction: Array, base: Array, k: int) -> int:
    """The same of a list of which k are shown, among the pairs whose upper document is one of these."""
    pairs = 0
    for high in range(k):
        for low in range(high + 1, base.size):
            if attraction[base[high]] < attraction[base[low]]:
                pairs += 1
    return pairs


@jit
def charge(attraction: Array, shown: Array, missed: float, most: int, account: Array) -> None:
    """Add a shown list to `account`, in place: the clicks that it is expected to miss, and 1 to UNSAFE if more than
    `most` of its pairs stand the wrong way round (`most` < 0: nobody looks)."""
    account[REGRET] += missed
    if most >= 0 and misordered(attraction, shown) > most:
        account[UNSAFE] += 1.0


@jit
def most_clicks(user: ClickParameters, top: int) -> float:
    """The most clicks that a list of `top` documents is expected to get from a CHAIN or BROWSING user, by looking
    through all lists, depth first, but those that begin in a way that cannot lead to more than was found."""
    m, remembers = user.attraction.size, user.kind == BROWSING
    ahead = _most_ahead(user, top)
    # At each depth, how likely each rank is to have the last click so far, counted from 1, and 0 for none; of a CHAIN
    # user only entry 0 is in use, how likely it is that the reader comes so far.
    state = np.zeros((top + 1, top + 1))
    value, chosen, used = np.zeros(top + 1), np.full(top, -1), np.zeros(m, np.bool_)
    by_attraction = np.argsort(-user.attraction)
    state[0, 0] = 1.0
    most, r = 0.0, 0
    while r >= 0:
        if r == top:
            most = max(most, value[r])
            r -= 1
            continue
        if chosen[r] >= 0:
            used[by_attraction[chosen[r]]] = False
        chosen[r] += 1
        while chosen[r] < m and used[by_attraction[chosen[r]]]:
            chosen[r] += 1
        if chosen[r] == m:
            chosen[r] = -1
            r -= 1
            continue
        document = by_attraction[chosen[r]]
        used[document] = True
        attraction, clicked = user.attraction[document], 0.0
        if remembers:
            for last in range(r + 1):
                click = state[r, last] * examination_at(user, r, last) * attraction
                clicked += click
                state[r + 1, last] = state[r, last] - click
            state[r + 1, r + 1] = clicked
        else:
            clicked = state[r, 0] * attraction
            stay = attraction * after_click_at(user, document, r) + (1.0 - attraction) * user.after_skip
            state[r + 1, 0] = state[r, 0] * stay
        value[r + 1] = bound = value[r] + clicked
        for last in range(r + 2):
            bound += state[r + 1, last] * ahead[r + 1, last]
        if bound > most:
            r += 1
    return most


@jit
def _most_ahead(user: ClickParameters, top: int) -> Array:
    """(top + 1, top + 1) no more clicks than these are expected from a rank on, given the last click above it: the most
    if a document could be shown twice, and chosen when it is known what was clicked."""
    ahead = np.zeros((top + 1, top + 1))
    for r in range(top - 1, -1, -1):
        for last in range(r + 1):
            for document in range(user.attraction.size):
                attraction = user.attraction[document]
                if user.kind == BROWSING:
                    click = examination_at(user, r, last) * attraction
                    value = click * (1.0 + ahead[r + 1, r + 1]) + (1.0 - click) * ahead[r + 1, last]
                else:
                    stay = attraction * after_click_at(user, document, r) + (1.0 - attraction) * user.after_skip
                    value = attraction + stay * ahead[r + 1, 0]
                ahead[r, last] = max(ahead[r, last], value)
    return ahead
