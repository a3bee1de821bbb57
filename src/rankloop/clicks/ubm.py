"""The user browsing model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import Progress, browse, check_options
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_models import BROWSING, ClickParameters


@dataclass
class UserBrowsing(ClickModel):
    """The position-based model with examination that depends on the last click.

    P(click) = examination[rank, last] · attraction, where `last` is the rank of the nearest click above, counted from
    1, or 0 where there is none.

    Parameters
    ----------
    prior
        Pseudo-examinations of each pair with the mean attraction of all pairs.
    tolerance, iterations
        Expectation maximization stops when no parameter changes by more than this, or after so many iterations.

    Examples
    --------
    Users who clicked the first document always examine the second, the others half of the time.

    >>> from rankloop.clicks.log import Pairs
    >>> shoes = Pairs.of(["shoes"] * 2, ["a", "b"])
    >>> model = UserBrowsing().given(shoes, attraction_=[0.5, 0.8], examination_=[[1.0, 0.0], [0.5, 1.0]])
    >>> model.conditional_probabilities("shoes", ["a", "b"], [1, 0]).tolist()
    [0.5, 0.8]
    >>> f"{model.expected_clicks('shoes', ['a', 'b']):.2f}"  # .5 + .8 (.5 · 1 + .5 · .5)
    '1.10'

    Notes
    -----
    Dupret & Piwowarski (2008), with the updates of Chuklin, Markov & de Rijke (2015), section 4.3. The largest
    examination is set to 1. Click probabilities are exact: a dynamic program over the last click, of k²/2 steps.
    """

    prior: float = 5.0
    tolerance: float = 1e-6
    iterations: int = 1000

    name: ClassVar[str] = "ubm"
    title: ClassVar[str] = "user browsing"
    learned: ClassVar = {"attraction_": ("pairs",), "examination_": ("ranks", "ranks")}

    def __post_init__(self) -> None:
        check_options(self.prior, self.tolerance, self.iterations)
        self.attraction_: Array = np.zeros(0)
        self.examination_: Array = np.zeros((0, 0))

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(BROWSING, self.attraction_, ONE, ONE, 1.0, self.examination_)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        found = browse(log, log.ranks, self.prior, self.tolerance, self.iterations, on_progress)
        attraction, examination, self.trace_ = found
        most = examination.max()
        self.attraction_, self.examination_ = attraction * most, examination / most
