"""Adaptive: PairRank that notices when users change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankloop.core.capabilities import Report
from rankloop.core.learner import require_number
from rankloop.learners.composed import ConfidenceLearner
from rankloop.learners.models.drift import DriftDetection
from rankloop.learners.models.linear import CARRIES_CONFIDENCE, Init, LinearModel


@dataclass
class Adaptive(ConfidenceLearner[DriftDetection]):
    """PairRank whose model has rivals that forget or remember; one that predicts clicks better takes over.

    Choose it where tastes may change: by season, by fashion, between weekdays and weekends. While nothing changes its
    rankings are PairRank's, bit for bit. It costs about 1.3 to 1.5 times PairRank's time and 2 + past_models times its
    memory.

    Parameters
    ----------
    alpha, prior, forget, init, prior_strength
        As in `PairRank`, of the model that ranks while nothing changes.
    fast_forget
        Share of the old evidence that the forgetting rival keeps at each update; 1 switches it off.
    threshold
        The log-likelihood ratio at which a rival takes over: 2.5 is 12 times likelier. Higher follows changes later;
        lower follows changes that are none.
    past_models
        How many former models are kept, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from rankloop.core.types import Candidates, Feedback
    >>> rng = np.random.default_rng(1)
    >>> learner = Adaptive(prior=1.0)
    >>> shoes = Candidates("shoes", ["plain", "bright", "warm"], np.eye(3))
    >>> for liked in ["bright"] * 300 + ["warm"] * 300:
    ...     shown = learner.rank(shoes, 3, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, [liked]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.report().drift.alarms
    (array(['warm'], dtype='<U6'), 1)

    Notes
    -----
    Not from a paper. The model is `DriftDetection`, over PairRank's; the test is E. S. Page, Continuous Inspection
    Schemes, Biometrika 1954.
    """

    alpha: float = 0.2
    prior: float = 10.0
    forget: float = 1.0
    init: Init = "zero"
    prior_strength: float = 50.0
    fast_forget: float = 0.98
    threshold: float = 2.5
    past_models: int = 2

    carries: ClassVar[str] = f"{CARRIES_CONFIDENCE}; the same for its rivals"

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, 0)
        model = LinearModel(self.prior, self.forget, self.init, self.prior_strength)
        self.model_ = DriftDetection(model, self.fast_forget, self.threshold, self.past_models)

    def report(self) -> Report:
        """The changes that were noticed."""
        return Report(drift=self.model_.drift())

    @property
    def _alpha(self) -> float:
        return self.alpha
