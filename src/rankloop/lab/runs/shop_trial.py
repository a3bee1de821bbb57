"""Visits to the shop of `lab.worlds.shop`: lists by declared or by hand-made features, clicks, learning, counting."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.scaling import scaled
from rankloop.core.types import Array, Candidates
from rankloop.evaluation.metrics import ndcg
from rankloop.features.counters import CountedOutcome
from rankloop.features.pipeline import FeaturePipeline
from rankloop.lab.worlds.shop import DECLARED, READER, STATIC, Shop

Features = Literal["by hand", "declared", "static"]
K = 10


def visits(shop: Shop, learner: Learner, features: Features, count: int) -> Array:
    """(count,) NDCG@10, for the visitor of the moment, of the best list that the learner knew at each visit.

    `by hand`: the very numbers that visitors go by; `declared`: what a shop can declare, counts included; `static`:
    that without the counts. Counters take an outcome in after its list was made and clicked, never before.
    """
    streams = Rng(shop.seed)
    pipeline = FeaturePipeline.from_spec(STATIC if features == "static" else DECLARED)
    counters = pipeline.counters()
    found = np.empty(count)
    for t in range(count):
        visit = shop.at(t)
        view = None
        if features == "by hand":
            rows = visit.by_hand
        else:
            view = pipeline.context(visit.request, shop.table, shop.users, counters)
            rows = pipeline.rows(view)
        candidates = scaled(Candidates(visit.request.query, visit.request.ids, rows))
        found[t] = ndcg(visit.grades[learner.best(candidates, K)], K, visit.grades)
        shown = learner.rank(candidates, K, streams.for_event("rank", t))
        feedback = READER.react(visit.grades[shown.order], streams.for_event("user", t))
        learner.learn(shown, feedback, streams.for_event("learn", t))
        if view is not None and counters is not None:
            notes = pipeline.notes(view, shown.order, shown.memo)
            counters.fold(CountedOutcome(visit.request.time, feedback.values, notes))
    return found
