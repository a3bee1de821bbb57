"""The dependent click model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import RANK_PRIOR, ChainCounts, Numbers, Progress, check_options, maximize, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import TABLE, ClickModel
from rankloop.core.learner import require_flag
from rankloop.core.types import Array
from rankloop.kernels.click_models import CHAIN, ClickParameters


@dataclass
class DependentClick(ClickModel):
    """The cascade model with several clicks: after a click at rank r, users stop with probability stop[r].

    The lab's navigational and informational users stop by grade instead of by rank: `rankloop.clicks.users`.

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
    >>> model = DependentClick().given(shoes, attraction_=[0.5, 0.8], stop_=[0.5, 1.0])
    >>> model.click_probabilities("shoes", ["a", "b"]).round(3).tolist()  # .8 · (1 - .5 · .5)
    [0.5, 0.6]

    Notes
    -----
    Guo, Liu & Wang (2009). Clicks at the last rank of a page say nothing about stopping and are left out; the closed
    form counts them as stops.
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

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(CHAIN, self.attraction_, np.ones_like(self.attraction_), 1.0 - self.stop_, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        counts = ChainCounts(log, by_rank=True)
        stay = np.array([0.0, 1.0, 1.0])

        def update(attraction: Array, stop: Array) -> tuple[Numbers, float]:
            total = counts.update(attraction, stop, stay)
            attraction = pooled(counts.clicked, counts.examined, self.prior)
            return (attraction, share(counts.satisfied, counts.asked, 0.5, RANK_PRIOR)), total

        found: Numbers = counts.initial_attraction(self.prior), share(*counts.last_clicks(), 0.5, RANK_PRIOR)
        if self.exact:
            found, self.trace_ = maximize(update, found, len(log), self.tolerance, self.iterations, on_progress)
        self.attraction_, self.stop_ = found
