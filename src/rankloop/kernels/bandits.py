"""What the compiled loops of the click bandits share: what a list is worth, and what it cost not to show the best one.

A loop asks the two common users directly (`cascade`, `browse`), since handing a whole `ClickChances` to a function a
million times a second costs more than the click: each of its arrays is counted as used and as free again.
"""

from __future__ import annotations

from rankloop.kernels._jit import jit
from rankloop.types import Array

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
def charge(attraction: Array, shown: Array, missed: float, most: int, account: Array) -> None:
    """Add a shown list to `account`, in place: the clicks that it is expected to miss, and 1 to UNSAFE if more than
    `most` of its pairs stand the wrong way round (`most` < 0: nobody looks)."""
    account[REGRET] += missed
    if most >= 0 and misordered(attraction, shown) > most:
        account[UNSAFE] += 1.0
