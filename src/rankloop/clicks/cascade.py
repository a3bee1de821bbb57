"""The cascade model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import Progress, check_options, pooled
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_fits import shown_and_clicked
from rankloop.kernels.click_models import CASCADE, ClickParameters


@dataclass
class Cascade(ClickModel):
    """Users read from the top, click the first document that attracts them, and leave.

    A page with a second click has probability 0 and is counted as impossible in a score.

    Parameters
    ----------
    prior
        Pseudo-examinations of each pair with the mean attraction of all pairs.

    Examples
    --------
    >>> from rankloop.clicks.log import Pairs
    >>> model = Cascade().given(Pairs.of(["shoes"] * 2, ["a", "b"]), attraction_=[0.5, 0.8])
    >>> model.click_probabilities("shoes", ["b", "a"]).round(3).tolist()
    [0.8, 0.1]

    Notes
    -----
    Craswell et al. (2008). The maximum-likelihood estimate is clicks per examination, down to the first click.
    """

    prior: float = 5.0

    name: ClassVar[str] = "cm"
    title: ClassVar[str] = "cascade"
    learned: ClassVar = {"attraction_": ("pairs",)}

    def __post_init__(self) -> None:
        check_options(self.prior)
        self.attraction_: Array = np.zeros(0)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(CASCADE, self.attraction_, np.zeros_like(self.attraction_), ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:  # noqa: ARG002
        read, clicked = shown_and_clicked(log.shown, log.lengths, log.clicks, 1, len(log.pairs))
        self.attraction_ = pooled(clicked, read, self.prior)
