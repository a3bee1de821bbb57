"""The position-based model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import Progress, browse, check_options
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_models import POSITION, ClickParameters


@dataclass
class PositionBased(ClickModel):
    """A document is clicked if its rank is examined and it attracts: P(click) = examination[rank] · attraction.

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
    >>> model = PositionBased().given(shoes, attraction_=[0.5, 0.8], examination_=[1.0, 0.5])
    >>> model.click_probabilities("shoes", ["b", "a"]).tolist(), model.expected_clicks("shoes", ["a", "b"])
    ([0.8, 0.25], 0.9)

    Notes
    -----
    Craswell et al. (2008), with the updates of Chuklin, Markov & de Rijke, Click Models for Web Search (2015), section
    4.2. Examination and attraction are identified up to a factor; the largest examination is set to 1.
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

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(POSITION, self.attraction_, ONE, ONE, 1.0, self.examination_.reshape(-1, 1))

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        found = browse(log, 1, self.prior, self.tolerance, self.iterations, on_progress)
        attraction, examination, self.trace_ = found
        most = examination.max()
        self.attraction_, self.examination_ = attraction * most, examination[:, 0] / most
