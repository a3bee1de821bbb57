"""The rule of propensities: a learner need not know how likely its lists are, but what it says must be so."""

from __future__ import annotations

from itertools import permutations
from math import exp

import numpy as np

from rankloop.checks.rules import rule
from rankloop.checks.world import Factory, everything, some_candidates, taught
from rankloop.core.capabilities import KnowsPropensity


@rule
def propensities_are_probabilities(factory: Factory) -> None:
    """A `log_propensity` in a memo is a list's probability: those of all lists sum to 1, adopted lists have none."""
    for learner in (factory(), taught(factory)):
        for n, k in ((4, 3), (3, 3), (1, 1)):
            candidates = some_candidates(n, n)
            shown = learner.rank(candidates, k, np.random.default_rng(n))
            assert "log_propensity" not in learner.adopt(candidates, shown.order).memo, "an adopted list was not drawn"
            told = shown.memo.get("log_propensity")
            assert told is None or (told.shape == (1,) and -np.inf < told[0] <= 1e-12), f"log_propensity is {told}"
            if not isinstance(learner, KnowsPropensity):
                continue
            before = everything(learner)
            lists = [np.array(order) for order in permutations(range(n), k)]
            total = sum(exp(learner.log_propensity(candidates, order)) for order in lists)
            assert abs(total - 1.0) < 1e-9, f"the probabilities of all lists sum to {total}, not 1"
            assert told is not None, "rank leaves out of the memo what log_propensity knows"
            assert shown.memo["candidates"].tolist() == [n], "the memo does not say how many candidates there were"
            own = learner.log_propensity(candidates, shown.order)
            assert abs(own - told[0]) < 1e-9, f"the memo says {told[0]}, log_propensity {own}"
            assert everything(learner) == before, "log_propensity changed the learner"
