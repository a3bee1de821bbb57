"""The simplified dynamic Bayesian network model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import ChainCounts, Numbers, Progress, check_options, climb, pooled
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.learner import require_flag
from rankloop.core.types import Array
from rankloop.kernels.click_models import CHAIN, ClickChances


@dataclass
class SimplifiedDBN(ClickModel):
    """Users read on until a clicked document satisfies them: attraction before the click, satisfaction after it.

    A document that looks good and disappoints has high attraction and low satisfaction; their product is a measure of
    relevance. It is the dynamic Bayesian network without users who lose patience.

    Parameters
    ----------
    prior
        How many looks at a pair count as known before: its attraction is drawn to the mean of all pairs as if it had
        been looked at that often and found average. Clicks and satisfaction in the same way.
    exact
        True maximises the likelihood, in which users may read on after their last click and find nothing. False is the
        published closed form, which takes the last click for satisfaction: faster, but it does not settle on the
        truth, however long the log.
    tolerance, iterations
        Expectation maximisation stops when no number moves by more than this in a round, or after so many rounds.

    Examples
    --------
    >>> from rankloop.clicks.pairs import Pairs
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

    def chances(self) -> ClickChances:
        """For kernels."""
        return ClickChances(CHAIN, self.attraction_, 1.0 - self.satisfaction_, ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=False)
        stay = np.array([0.0, 1.0, 1.0])

        def update(attraction: Array, satisfaction: Array) -> tuple[Numbers, float]:
            total = counts.take(attraction, satisfaction, stay)
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            return (attraction, pooled(counts.satisfied, counts.asked, self.prior)), total

        found: Numbers = counts.first_attraction(self.prior), pooled(*counts.last_clicks(), self.prior)
        if self.exact:
            found, self.trace_ = climb(update, found, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.satisfaction_ = found
