"""How far a ranker has moved from the caller's order, what it remembers of queries, what it noticed of users.

Nothing is kept for this where requests pass: whoever asks has the latest lists ranked anew, by what is believed now.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core import codec
from rankloop.core.capabilities import Follows, Remembers
from rankloop.core.learner import Learner
from rankloop.core.types import Array, Candidates, Impression, taken
from rankloop.service.observability.metrics import Metrics
from rankloop.service.ranking.exposure import best_order
from rankloop.service.ranking.model import Model, parts_of
from rankloop.wire.watch import DriftNoticed, Memory, Movement

LOOKED_AT = 100  # lists, unless another number is asked for
logger = logging.getLogger("rankloop")


class Moved(NamedTuple):
    """One list: what is believed of it now, against the base order of the same items."""

    displacement: float  # mean places
    pairs: int
    agreed: int  # of the pairs, those in the base order
    same_first: bool
    brought_up: float  # share of items that the base order has below the end of the list
    remembered: bool  # whether what is known of the query alone has a part in it


class Looked(NamedTuple):
    """The latest lists, and how many queries are remembered: None if this learner remembers none."""

    lists: list[Moved]
    remembered: int | None


def looked_at(model: Model, bodies: Sequence[bytes]) -> Looked:
    """What a model believes now of stored lists; one that it cannot tell of is left out. The lock is held list by list,
    so that whoever ranks waits for one of them at most."""
    found = [moved for body in bodies if (moved := _moved(model, codec.load_impression(body))) is not None]
    with model.looked_at() as learner:
        return Looked(found, learner.remembered if isinstance(learner, Remembers) else None)


def noticed(model: Model) -> DriftNoticed | None:
    """What a learner that follows its users has noticed."""
    with model.looked_at() as learner:
        return _noticed(learner)


def _noticed(learner: Learner) -> DriftNoticed | None:
    if not isinstance(learner, Follows):
        return None
    drift = learner.drift()
    return DriftNoticed(drift.alarms, drift.latest.tolist(), drift.since, drift.lists)


def told(ranker: str, version: str, looked: Looked, drift: DriftNoticed | None) -> Movement:
    """Means over the lists, for those who watch."""
    lists, count = looked.lists, len(looked.lists)
    pairs = sum(one.pairs for one in lists)
    memory = None
    if looked.remembered is not None:
        memory = Memory(looked.remembered, sum(one.remembered for one in lists) / count if count else None)
    return Movement(
        ranker=ranker,
        version=version,
        lists=count,
        displacement=sum(one.displacement for one in lists) / count if count else None,
        agreement=sum(one.agreed for one in lists) / pairs if pairs else None,
        same_first=sum(one.same_first for one in lists) / count if count else None,
        brought_up=sum(one.brought_up for one in lists) / count if count else None,
        memory=memory,
        drift=drift,
    )


def count(name: str, learner: Learner, metrics: Metrics, known: dict[str, int]) -> None:
    """Set a ranker's gauges; an alarm more than the last time, which `known` has by ranker, is logged."""
    drift = _noticed(learner)
    if drift is not None:
        metrics.gauge("drift_alarms", drift.alarms, ranker=name)
        if drift.alarms > known.get(name, drift.alarms):
            logger.warning("ranker %s: users have changed, at list %d of %d", name, drift.latest[-1], drift.lists)
        known[name] = drift.alarms
    if isinstance(learner, Remembers):
        metrics.gauge("remembered_queries", learner.remembered, ranker=name)


def _moved(model: Model, impression: Impression) -> Moved | None:
    with model.looked_at() as learner:
        try:
            best, remembered = _believed(learner, impression)
        except Exception:  # anybody's learner, perhaps of other features than the list: to look must not fail with it
            return None
    k = impression.k
    place = np.argsort(best)  # (k,) of each slot, by belief
    base = np.argsort(np.argsort(impression.order))  # and by the caller's order
    above = np.less.outer(base, base)
    return Moved(
        displacement=float(np.abs(place - base).mean()),
        pairs=k * (k - 1) // 2,
        agreed=int(np.count_nonzero(above & np.less.outer(place, place))),
        same_first=bool(base[best[0]] == 0),
        brought_up=float((impression.order >= k).mean()),
        remembered=remembered,
    )


def _believed(learner: Learner, impression: Impression) -> tuple[Array, bool]:
    """(k,) slots in the order that is believed best now, and whether the query's own part had a say in it."""
    parts = parts_of(learner, impression)
    if parts is not None:
        return np.lexsort((impression.order, -parts.scores())), bool(np.any(parts.own))
    by_base = np.argsort(impression.order)
    again = Candidates(impression.query, impression.items[by_base], taken(impression.features, by_base))
    return by_base[best_order(learner, again, impression.k, "full", 0)], False
