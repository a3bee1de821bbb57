"""The dynamic Bayesian network model, and its simplified form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, maximize, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.learner import require_flag
from rankloop.core.types import Array
from rankloop.kernels.click_fits import SKIPPED, UNSATISFIED
from rankloop.kernels.click_models import CHAIN, ClickParameters


@dataclass
class DynamicBayesian(ClickModel):
    """Users read from the top until a clicked document satisfies them, or until they lose patience.

    After each document that has not satisfied them they continue with probability `continuation`.

    Parameters
    ----------
    prior
        Pseudo-examinations of each pair with the mean attraction of all pairs.
    tolerance, iterations
        Expectation maximization stops when no parameter changes by more than this, or after so many iterations.

    Examples
    --------
    >>> from rankloop.clicks.log import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = DynamicBayesian().given(
    ...     shoes, attraction_=[0.5, 0.8], satisfaction_=[1.0, 0.1], continuation_=[0.9]
    ... )
    >>> model.examination_probabilities("shoes", ["a", "b"]).tolist()  # .9 of those who did not click
    [1.0, 0.45]

    Notes
    -----
    Chapelle & Zhang (2009). The continuation probability is estimated with the other parameters.
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

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        go_on = float(self.continuation_[0])
        return ClickParameters(CHAIN, self.attraction_, go_on * (1.0 - self.satisfaction_), ONE, go_on, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)

        def update(attraction: Array, satisfaction: Array, continuation: Array) -> tuple[Numbers, float]:
            total = counts.update(attraction, satisfaction, np.array([0.0, continuation[0], continuation[0]]))
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            satisfaction = pooled(counts.satisfied, counts.asked, self.prior)
            went_on, could = counts.flow[UNSATISFIED] + counts.flow[SKIPPED]
            return (attraction, satisfaction, share(np.array([went_on]), could, 0.5, RANK_PRIOR)), total

        attraction, satisfaction = counts.initial_attraction(self.prior), pooled(*counts.last_clicks(), self.prior)
        start = (attraction, satisfaction, np.array([0.9]))
        found, self.trace_ = maximize(update, start, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.satisfaction_, self.continuation_ = found


@dataclass
class SimplifiedDBN(ClickModel):
    """The dynamic Bayesian network without abandonment: users read on until a clicked document satisfies them.

    Parameters
    ----------
    prior
        Pseudo-examinations of each pair with the mean attraction of all pairs.
    exact
        False uses the published closed form, which takes the last click for the end of the session; it is faster but
        inconsistent.
    tolerance, iterations
        Expectation maximization stops when no parameter changes by more than this, or after so many iterations.

    Examples
    --------
    >>> from rankloop.clicks.log import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = SimplifiedDBN().given(shoes, attraction_=[0.5, 0.8], satisfaction_=[0.9, 0.1])
    >>> model.examination_probabilities("shoes", ["a", "b"]).tolist()
    [1.0, 0.55]

    Notes
    -----
    Chapelle & Zhang (2009), section 5; the closed form is theirs.
    """

    prior: float = 5.0
    exact: bool = True
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "sdbn"
    title: ClassVar[str] = "simplified DBN"
    learned: ClassVar = {"attraction_": ("pairs",), "satisfaction_": ("pairs",)}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        require_flag("exact", self.exact)
        self.attraction_: Array = np.zeros(0)
        self.satisfaction_: Array = np.zeros(0)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(CHAIN, self.attraction_, 1.0 - self.satisfaction_, ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)
        stay = np.array([0.0, 1.0, 1.0])

        def update(attraction: Array, satisfaction: Array) -> tuple[Numbers, float]:
            total = counts.update(attraction, satisfaction, stay)
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            return (attraction, pooled(counts.satisfied, counts.asked, self.prior)), total

        found: Numbers = counts.initial_attraction(self.prior), pooled(*counts.last_clicks(), self.prior)
        if self.exact:
            found, self.trace_ = maximize(update, found, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.satisfaction_ = found
