"""The cascade model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks._em import Progress, check_options, pooled
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_fits import shown_and_clicked
from rankloop.kernels.click_models import CASCADE, ClickChances


@dataclass
class Cascade(ClickModel):
    """Users read from the top, click the first document that attracts them, and leave.

    The model behind many bandits. It cannot explain a second click: such pages have probability 0, and are counted as
    impossible in a score.

    Parameters
    ----------
    prior
        How many looks at a pair count as known before: its attraction is drawn to the mean of all pairs as if it had
        been looked at that often and found average.

    Examples
    --------
    >>> from rankloop.clicks.pairs import Pairs
    >>> model = Cascade().given(Pairs.of(["shoes"] * 2, ["a", "b"]), attraction_=[0.5, 0.8])
    >>> model.click_probabilities("shoes", ["b", "a"]).round(3).tolist()
    [0.8, 0.1]

    Notes
    -----
    Craswell et al. (2008). The maximum-likelihood estimate is closed: clicks among looks, where all documents down to
    the first click were looked at. Later clicks do not count.
    """

    prior: float = 5.0

    name: ClassVar[str] = "cm"
    title: ClassVar[str] = "cascade"
    learned: ClassVar = {"attraction_": ("pairs",)}

    def __post_init__(self) -> None:
        check_options(self.prior)
        self.attraction_: Array = np.zeros(0)

    def chances(self) -> ClickChances:
        """For kernels."""
        return ClickChances(CASCADE, self.attraction_, np.zeros_like(self.attraction_), ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:  # noqa: ARG002
        read, clicked = shown_and_clicked(log.shown, log.lengths, log.clicks, 1, len(log.pairs))
        self.attraction_ = pooled(clicked, read, self.prior)
