"""How a run follows a world that changes: NDCG by window, and rounds until it recovers from a change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rankloop.core.types import Array

WINDOWS = 50  # of a run, about
RECOVERED = 0.95  # of the level before a change: as good as recovered


def window_ends(rounds: int, changes: Array, count: int = WINDOWS) -> Array:
    """(w,) the rounds after which about `count` windows of even length end; none of them spans a change.

    With as many changes as windows, all are of one length.

    >>> window_ends(100, np.array([40]), 5), window_ends(100, np.arange(100), 4)
    (array([ 20, 40, 60, 80, 100]), array([ 25, 50, 75, 100]))
    """
    bounds = [0, *(int(change) for change in changes if len(changes) < count), rounds]
    ends: list[float] = []
    for begin, end in pairwise(bounds):
        windows = min(max(1, round(count * (end - begin) / rounds)), end - begin)
        ends += np.linspace(begin, end, windows + 1)[1:].round().tolist()
    return np.unique(np.array(ends, dtype=np.int64))


def window_means(values: Array, ends: Array) -> Array:
    """(w,) the mean of the values, one a round, in each window.

    >>> window_means(np.array([0.0, 1.0, 0.5, 0.5, 0.2]), np.array([2, 5]))
    array([0.5, 0.4])
    """
    begins = np.concatenate([[0], ends[:-1]])
    means: Array = np.add.reduceat(values, begins) / (ends - begins)
    return means


def recovery(means: Array, ends: Array, changes: Sequence[int] | Array, share: float = RECOVERED) -> float:
    """Rounds after a change until NDCG is back at `share` of its level before, the mean over changes.

    The level before is that of the last quarter of the windows since the previous change. NDCG is back where the first
    window begins that reaches its share; without recovery, all rounds up to the next change count. NaN without changes.

    >>> ends = np.array([10, 20, 30, 40, 50, 60, 70, 80])
    >>> recovery(np.array([0.6, 0.8, 0.3, 0.7, 0.77, 0.8, 0.2, 0.4]), ends, [20, 60])  # back after 20; not within 20
    20.0
    """
    begins = np.concatenate([[0], ends[:-1]])
    bounds = [0, *(change for change in changes if change < ends[-1]), ends[-1]]
    taken = []
    for since, change, until in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before = means[(begins >= since) & (ends <= change)]
        if before.size == 0:
            continue
        level = before[-max(1, before.size // 4) :].mean()
        back = begins[(begins >= change) & (ends <= until) & (means >= share * level)]
        taken.append((back[0] if back.size else until) - change)
    return float(np.mean(taken)) if taken else float("nan")


def tracking_measures(ndcg: Array, ends: Array, changes: Array) -> dict[str, Array]:
    """NDCG window by window, and recovery as it stands at the end of each; the latter only if no window spans a change.

    >>> sorted(tracking_measures(np.full(100, 0.5), np.arange(10, 101, 10), np.array([50])))
    ['online.recovery', 'online.window_ndcg']
    """
    means = window_means(ndcg, ends)
    found = {"online.window_ndcg": means}
    if len(changes) and np.isin(changes, ends).all():
        so_far = [recovery(means[: i + 1], ends[: i + 1], changes) for i in range(len(ends))]
        found["online.recovery"] = np.array(so_far)
    return found
