"""Click-through rates: the baselines for click models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.clicks.em import Progress, check_options, pooled, share
from rankloop.clicks.log import SessionLog
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core.types import Array
from rankloop.kernels.click_fits import shown_and_clicked
from rankloop.kernels.click_models import POSITION, ClickParameters


@dataclass
class GlobalRate(ClickModel):
    """Every document at every rank is clicked with the same probability: the share of clicks among all shown.

    >>> from rankloop.clicks.log import Page, SessionLog
    >>> log = SessionLog.from_pages([Page("monday", "shoes", ["a", "b"], [1, 0])])
    >>> GlobalRate().fit(log).click_probabilities("hats", ["c"]).tolist()
    [0.5]
    """

    name: ClassVar[str] = "ctr"
    title: ClassVar[str] = "click-through rate"
    learned: ClassVar = {"rate_": (1,)}

    def __post_init__(self) -> None:
        self.rate_: Array = np.zeros(1)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(POSITION, np.full(len(self.pairs) + 1, self.rate_[0]), ONE, ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:  # noqa: ARG002
        self.rate_ = share(log.clicks.sum(keepdims=True)[0], log.lengths.sum(keepdims=True), 0.5, 0.0)


@dataclass
class RankRate(ClickModel):
    """Each rank is clicked with its own probability, whatever document it shows.

    >>> from rankloop.clicks.log import Page, SessionLog
    >>> log = SessionLog.from_pages([Page("monday", "shoes", ["a", "b"], [1, 0])] * 9)
    >>> RankRate().fit(log).click_probabilities("hats", ["c", "d"]).round(3).tolist()
    [1.0, 0.0]
    """

    name: ClassVar[str] = "ctr-rank"
    title: ClassVar[str] = "click-through rate by rank"
    learned: ClassVar = {"rate_": ("ranks",)}

    def __post_init__(self) -> None:
        self.rate_: Array = np.zeros(0)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(POSITION, np.ones(len(self.pairs) + 1), ONE, ONE, 1.0, self.rate_.reshape(-1, 1))

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:  # noqa: ARG002
        self.rate_ = share(log.clicks.sum(axis=0), log.shows(), 0.5, 0.0)


@dataclass
class DocumentRate(ClickModel):
    """Each query-document pair is clicked with its own probability, at any rank.

    Parameters
    ----------
    prior
        Pseudo-impressions of each pair with the mean rate of all pairs.

    Examples
    --------
    >>> from rankloop.clicks.log import Page, SessionLog
    >>> log = SessionLog.from_pages([Page("monday", "shoes", ["a", "b"], [1, 0])] * 9)
    >>> DocumentRate(prior=1).fit(log).click_probabilities("shoes", ["b", "a", "c"]).tolist()
    [0.05, 0.95, 0.5]
    """

    prior: float = 5.0

    name: ClassVar[str] = "ctr-document"
    title: ClassVar[str] = "click-through rate by document"
    learned: ClassVar = {"attraction_": ("pairs",)}

    def __post_init__(self) -> None:
        check_options(self.prior)
        self.attraction_: Array = np.zeros(0)

    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels."""
        return ClickParameters(POSITION, self.attraction_, ONE, ONE, 1.0, TABLE)

    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:  # noqa: ARG002
        shows, clicked = shown_and_clicked(log.shown, log.lengths, log.clicks, 0, len(log.pairs))
        self.attraction_ = pooled(clicked, shows, self.prior)
