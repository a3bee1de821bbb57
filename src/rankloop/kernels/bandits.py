"""What click bandits share: confidence bounds of click rates, expected clicks of a list, accounts of regret."""

from __future__ import annotations

import math

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.click_models import BROWSING, ClickParameters, after_click_at, examination_at
from rankloop.kernels.elementary import expm1, log

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
    `most` of its pairs are in the wrong order (`most` < 0: not counted)."""
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


TOLERANCE = 1e-12  # of the search; that a KL near 0 has few digits left costs more
MOST_STEPS = 100  # one after many observations, a handful after few


@jit
def kl_upper(rate: float, count: float, budget: float) -> float:
    """The largest q with count · KL(rate, q) ≤ budget, KL the divergence of Bernoulli rates; to 1e-10.

    Halley's method, from where the first terms of KL's Taylor series say. Equal counts give equal bits.
    """
    if budget <= 0.0 or rate >= 1.0:
        return max(min(rate, 1.0), 0.0)
    wanted = budget / count
    if rate <= 0.0:
        return -expm1(-wanted)
    here, left = 1.0 / rate, 1.0 / (1.0 - rate)
    # KL(rate, rate + x) = x² / (2 rate (1 - rate)) · (1 + second x + third x² + …), solved for x
    second, third = (2.0 / 3.0) * (left - here), 0.5 * (left * left - left * here + here * here)
    x = math.sqrt(2.0 * wanted * rate * (1.0 - rate))
    q = rate + x * (1.0 - x * (0.5 * second - x * (0.625 * second * second - 0.5 * third)))
    if not rate < q < 1.0:
        q = 0.5 * (rate + 1.0)
    for _ in range(MOST_STEPS):
        up, down = 1.0 / q, 1.0 / (1.0 - q)
        excess = rate * log(rate * up) + (1.0 - rate) * log((1.0 - rate) * down) - wanted
        slope = (q - rate) * up * down
        bend = (rate * up * up + (1.0 - rate) * down * down) / (2.0 * slope)
        step = excess / slope
        if step * bend < 0.5:  # else Newton's method, which a convex function leads home from the right
            step /= 1.0 - step * bend
        after = q - step
        if after >= 1.0:
            after = 0.5 * (q + 1.0)
        elif after <= rate:
            after = 0.5 * (q + rate)
        elif abs(step) * (step * bend) ** 2 <= TOLERANCE:  # what a step leaves, to third order
            return after
        if after >= 1.0 or after == q:  # there is no number nearer
            return after
        q = after
    return q


@jit
def kl_lower(rate: float, count: float, budget: float) -> float:
    """The smallest q with count · KL(rate, q) ≤ budget."""
    return 1.0 - kl_upper(1.0 - rate, count, budget)
