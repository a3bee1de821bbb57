"""The click chain model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, climb, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_models import CHAIN, ClickChances


@dataclass
class ClickChain(ClickModel):
    """Users read from the top; how likely they go on depends on whether they clicked and whether it was relevant.

    A document has one number, its attraction, which is the chance of a click and, after the click, that of being
    relevant. Users go on with `continuation`: after no click [0], after a click on an irrelevant [1] or a relevant
    document [2].

    Parameters
    ----------
    prior
        How many looks at a pair count as known before: its attraction is drawn to the mean of all pairs as if it had
        been looked at that often and found average.
    tolerance, iterations
        Expectation maximisation stops when no number moves by more than this in a round, or after so many rounds.

    Examples
    --------
    >>> from rankloop.clicks.pairs import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = ClickChain().given(shoes, attraction_=[0.5, 0.8], continuation_=[1.0, 0.8, 0.2])
    >>> model.examination_probabilities("shoes", ["a", "b"]).tolist()  # .5 · 1 + .5 (.5 · .8 + .5 · .2)
    [1.0, 0.75]

    Notes
    -----
    Guo, Liu, Kannan, Minka, Taylor, Wang & Faloutsos (2009). They keep a distribution for each document's relevance;
    this is the point estimate by expectation maximisation, as in Chuklin, Markov & de Rijke (2015), section 3.7. The
    click and the relevance after it are two draws with the same chance, so both enter the estimate of attraction.
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

    def chances(self) -> ClickChances:
        """For kernels."""
        skipped, irrelevant, relevant = self.continuation_.tolist()
        after_click = irrelevant * (1.0 - self.attraction_) + relevant * self.attraction_
        return ClickChances(CHAIN, self.attraction_, after_click, ONE, skipped, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)

        def update(attraction: Array, continuation: Array) -> tuple[Numbers, float]:
            total = counts.take(attraction, attraction, np.ascontiguousarray(continuation[::-1]))
            attracted, asked = counts.clicked + counts.satisfied, counts.examined + counts.asked
            continuation = share(counts.flow[::-1, 0], counts.flow[::-1, 1], 0.5, RANK_PRIOR)
            return (pooled(attracted, asked, self.prior), continuation), total

        start = (counts.first_attraction(self.prior), np.array([0.9, 0.8, 0.2]))  # anywhere inside
        found, self.trace_ = climb(update, start, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.continuation_ = found
