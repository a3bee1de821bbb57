"""How far a ranker has moved from the baseline ranking, computed from the latest rankings when somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core import codec
from rankloop.core.capabilities import report_of
from rankloop.core.learner import Learner
from rankloop.core.types import Array, Candidates, Impression, taken
from rankloop.service.observability.metrics import Metrics
from rankloop.service.ranking.exposure import best_order
from rankloop.service.ranking.model import PublishedModel, score_terms
from rankloop.wire.monitoring import DriftNoticed, Memory, Movement

LATEST = 100  # rankings, unless another number is requested
logger = logging.getLogger("rankloop")


class _Moved(NamedTuple):
    """The current best order of one ranking against the baseline order of the same items."""

    displacement: float  # mean positions
    pairs: int
    agreed: int  # of the pairs, those in the baseline order
    same_first: bool
    brought_up: float  # share of items that the baseline order has below the end of the ranking
    remembered: bool  # whether the memory of the query contributes


def movement(ranker: str, model: PublishedModel, bodies: Sequence[bytes], live: PublishedModel) -> Movement:
    """Means over stored rankings, and the drift that the `live` model has noticed. Rankings that the model cannot order
    are left out. The lock is held for one ranking at a time."""
    found = [moved for body in bodies if (moved := _moved(model, codec.load_impression(body))) is not None]
    with model.locked() as learner:
        remembered = report_of(learner).remembered
    with live.locked() as learner:
        drift = _drift(learner)
    count, pairs, memory = len(found), sum(one.pairs for one in found), None
    if remembered is not None:
        memory = Memory(remembered, sum(one.remembered for one in found) / count if count else None)
    return Movement(
        ranker=ranker,
        version=model.label,
        lists=count,
        displacement=sum(one.displacement for one in found) / count if count else None,
        agreement=sum(one.agreed for one in found) / pairs if pairs else None,
        same_first=sum(one.same_first for one in found) / count if count else None,
        brought_up=sum(one.brought_up for one in found) / count if count else None,
        memory=memory,
        drift=drift,
    )


def set_gauges(name: str, learner: Learner, metrics: Metrics, known: dict[str, int]) -> None:
    """Set a ranker's gauges of memory and drift; log an alarm that is new since the last call, by ranker in `known`."""
    drift = _drift(learner)
    if drift is not None:
        metrics.gauge("drift_alarms", drift.alarms, ranker=name)
        if drift.alarms > known.get(name, drift.alarms):
            logger.warning("ranker %s: users have changed, at ranking %d of %d", name, drift.latest[-1], drift.lists)
        known[name] = drift.alarms
    remembered = report_of(learner).remembered
    if remembered is not None:
        metrics.gauge("remembered_queries", remembered, ranker=name)


def _drift(learner: Learner) -> DriftNoticed | None:
    drift = report_of(learner).drift
    if drift is None:
        return None
    return DriftNoticed(drift.alarms, drift.latest.tolist(), drift.since, drift.lists)


def _moved(model: PublishedModel, impression: Impression) -> _Moved | None:
    with model.locked() as learner:
        try:
            best, remembered = _best_slots(learner, impression)
        except Exception:  # any learner, perhaps of other features than the ranking
            return None
    k = impression.k
    place = np.argsort(best)  # (k,) of each slot, in the best order
    base = np.argsort(np.argsort(impression.order))  # and in the baseline order
    above = np.less.outer(base, base)
    return _Moved(
        displacement=float(np.abs(place - base).mean()),
        pairs=k * (k - 1) // 2,
        agreed=int(np.count_nonzero(above & np.less.outer(place, place))),
        same_first=bool(base[best[0]] == 0),
        brought_up=float((impression.order >= k).mean()),
        remembered=remembered,
    )


def _best_slots(learner: Learner, impression: Impression) -> tuple[Array, bool]:
    """(k,) slots in the current best order, and whether the memory of the query contributes to it."""
    parts = score_terms(learner, impression)
    if parts is not None:
        return np.lexsort((impression.order, -parts.scores())), bool(np.any(parts.own))
    by_base = np.argsort(impression.order)
    again = Candidates(impression.query, impression.items[by_base], taken(impression.features, by_base))
    return by_base[best_order(learner, again, impression.k, "full", 0)], False
