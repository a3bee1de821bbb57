"""The click chain model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, maximize, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_models import CHAIN, ClickParameters


@dataclass
class ClickChain(ClickModel):
    """Users read from the top and continue with a probability that depends on the click and its relevance.

    Attraction is the probability of a click and, after the click, of relevance. `continuation` holds the probabilities
    after no click, after a click on an irrelevant document and after one on a relevant document.

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
    >>> model = ClickChain().given(shoes, attraction_=[0.5, 0.8], continuation_=[1.0, 0.8, 0.2])
    >>> model.examination_probabilities("shoes", ["a", "b"]).tolist()  # .5 · 1 + .5 (.5 · .8 + .5 · .2)
    [1.0, 0.75]

    Notes
    -----
    Guo, Liu, Kannan, Minka, Taylor, Wang & Faloutsos (2009), with the point estimate by expectation maximization of
    Chuklin, Markov & de Rijke (2015), section 3.7.
    """

    prior: float = 5.0
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "ccm"
    title: ClassVar[str] = "click chain"
    learned: ClassVar = {"attraction_": ("pairs",), "continuation_": (3,)}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        self.attraction_: Array = np.zeros(0)
        self.continuation_: Array = np.zeros(3)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        skipped, irrelevant, relevant = self.continuation_.tolist()
        after_click = irrelevant * (1.0 - self.attraction_) + relevant * self.attraction_
        return ClickParameters(CHAIN, self.attraction_, after_click, ONE, skipped, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)

        def update(attraction: Array, continuation: Array) -> tuple[Numbers, float]:
            total = counts.update(attraction, attraction, np.ascontiguousarray(continuation[::-1]))
            attracted, asked = counts.clicked + counts.satisfied, counts.examined + counts.asked
            continuation = share(counts.flow[::-1, 0], counts.flow[::-1, 1], 0.5, RANK_PRIOR)
            return (pooled(attracted, asked, self.prior), continuation), total

        start = (counts.initial_attraction(self.prior), np.array([0.9, 0.8, 0.2]))
        found, self.trace_ = maximize(update, start, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.continuation_ = found
