"""The position-based model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import Progress, browse, check_options
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_models import POSITION, ClickChances


@dataclass
class PositionBased(ClickModel):
    """A document is clicked if its rank is looked at and it attracts: P(click) = examination[rank] · attraction.

    Whether a rank is looked at depends on nothing but the rank. The model to choose when position bias is what you
    want to know, and where users do not read line by line.

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
    >>> model = PositionBased().given(shoes, attraction_=[0.5, 0.8], examination_=[1.0, 0.5])
    >>> model.click_probabilities("shoes", ["b", "a"]).tolist(), model.expected_clicks("shoes", ["a", "b"])
    ([0.8, 0.25], 0.9)

    Notes
    -----
    Craswell et al. (2008) name it; the updates of expectation maximisation are those of Chuklin, Markov & de Rijke,
    Click Models for Web Search (2015), section 4.2.

    The likelihood cannot tell a document twice as attractive from a rank looked at twice as often. The largest
    examination is therefore set to 1 and attraction scaled with it: examination is relative to the rank looked at most.
    """

    prior: float = 5.0
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "pbm"
    title: ClassVar[str] = "position-based"
    learned: ClassVar = {"attraction_": ("pairs",), "examination_": ("ranks",)}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        self.attraction_: Array = np.zeros(0)
        self.examination_: Array = np.zeros(0)

    def chances(self) -> ClickChances:
        """For kernels."""
        return ClickChances(POSITION, self.attraction_, ONE, ONE, 1.0, self.examination_.reshape(-1, 1))

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        found = browse(log, 1, self.prior, self.tolerance, self.iterations, on_progress)
        attraction, examination, self.trace_ = found
        most = examination.max()
        self.attraction_, self.examination_ = attraction * most, examination[:, 0] / most
