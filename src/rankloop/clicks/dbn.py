"""The dynamic Bayesian network model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, climb, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_fits import SKIPPED, UNSATISFIED
from rankloop.kernels.click_models import CHAIN, ClickChances


@dataclass
class DynamicBayesian(ClickModel):
    """Users read from the top until a clicked document satisfies them, or until they lose patience.

    After each document that has not satisfied them they go on with `continuation`. With continuation 1 it is the
    simplified model.

    Parameters
    ----------
    prior
        How many looks at a pair count as known before: its attraction is drawn to the mean of all pairs as if it had
        been looked at that often and found average. Clicks and satisfaction in the same way.
    tolerance, iterations
        Expectation maximisation stops when no number moves by more than this in a round, or after so many rounds.

    Examples
    --------
    >>> from rankloop.clicks.pairs import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = DynamicBayesian().given(
    ...     shoes, attraction_=[0.5, 0.8], satisfaction_=[1.0, 0.1], continuation_=[0.9]
    ... )
    >>> model.examination_probabilities("shoes", ["a", "b"]).tolist()  # .9 of those who did not click
    [1.0, 0.45]

    Notes
    -----
    Chapelle & Zhang (2009). The published fit tries values for the continuation; here it is estimated with the others.
    """

    prior: float = 5.0
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "dbn"
    title: ClassVar[str] = "dynamic Bayesian network"
    learned: ClassVar = {"attraction_": ("pairs",), "satisfaction_": ("pairs",), "continuation_": (1,)}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        self.attraction_: Array = np.zeros(0)
        self.satisfaction_: Array = np.zeros(0)
        self.continuation_: Array = np.zeros(1)

    def chances(self) -> ClickChances:
        """For kernels."""
        go_on = float(self.continuation_[0])
        return ClickChances(CHAIN, self.attraction_, go_on * (1.0 - self.satisfaction_), ONE, go_on, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)

        def update(attraction: Array, satisfaction: Array, continuation: Array) -> tuple[Numbers, float]:
            total = counts.take(attraction, satisfaction, np.array([0.0, continuation[0], continuation[0]]))
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            satisfaction = pooled(counts.satisfied, counts.asked, self.prior)
            went_on, could = counts.flow[UNSATISFIED] + counts.flow[SKIPPED]
            return (attraction, satisfaction, share(np.array([went_on]), could, 0.5, RANK_PRIOR)), total

        attraction, satisfaction = counts.first_attraction(self.prior), pooled(*counts.last_clicks(), self.prior)
        start = (attraction, satisfaction, np.array([0.9]))  # anywhere inside
        found, self.trace_ = climb(update, start, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.satisfaction_, self.continuation_ = found
