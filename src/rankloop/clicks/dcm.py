"""The dependent click model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, climb, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import TABLE, ClickModel
from rankloop.core.learner import require_flag
from rankloop.core.types import Array
from rankloop.kernels.click_models import CHAIN, ClickChances


@dataclass
class DependentClick(ClickModel):
    """The cascade model with second clicks: after a click at rank r users leave with stop[r], else they read on.

    Users who click nothing read everything. The lab's navigational and informational users stop by grade instead of by
    rank: `rankloop.clicks.users`.

    Parameters
    ----------
    prior
        How many looks at a pair count as known before: its attraction is drawn to the mean of all pairs as if it had
        been looked at that often and found average.
    exact
        True maximises the likelihood, in which users may read on after their last click and find nothing. False is the
        published closed form, which takes the last click for the end: faster, but it does not settle on the truth,
        however long the log.
    tolerance, iterations
        Expectation maximisation stops when no number moves by more than this in a round, or after so many rounds.

    Examples
    --------
    >>> from rankloop.clicks.pairs import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = DependentClick().given(shoes, attraction_=[0.5, 0.8], stop_=[0.5, 1.0])
    >>> model.click_probabilities("shoes", ["a", "b"]).round(3).tolist()  # .8 · (1 - .5 · .5)
    [0.5, 0.6]

    Notes
    -----
    Guo, Liu & Wang (2009); the closed form is their estimate. From the last rank of a page nobody can go on: clicks
    there tell nothing about stopping, and are left out (the closed form counts them as stops).
    """

    prior: float = 5.0
    exact: bool = True
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "dcm"
    title: ClassVar[str] = "dependent click"
    learned: ClassVar = {"attraction_": ("pairs",), "stop_": ("ranks",)}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        require_flag("exact", self.exact)
        self.attraction_: Array = np.zeros(0)
        self.stop_: Array = np.zeros(0)

    def chances(self) -> ClickChances:
        """For kernels."""
        return ClickChances(CHAIN, self.attraction_, np.ones_like(self.attraction_), 1.0 - self.stop_, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=True)
        stay = np.array([0.0, 1.0, 1.0])

        def update(attraction: Array, stop: Array) -> tuple[Numbers, float]:
            total = counts.take(attraction, stop, stay)
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            return (attraction, share(counts.satisfied, counts.asked, 0.5, RANK_PRIOR)), total

        found: Numbers = counts.first_attraction(self.prior), share(*counts.last_clicks(), 0.5, RANK_PRIOR)
        if self.exact:
            found, self.trace_ = climb(update, found, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.stop_ = found
