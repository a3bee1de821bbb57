"""PDGD: Pairwise Differentiable Gradient Descent, linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.learner import (
    checked_order,
    checked_values,
    make_impression,
    memo_of,
    require,
    require_flag,
    require_number,
    resolve_k,
    rows_of,
    seen_of,
)
from rankloop.core.rng import Rng, as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import plackett_luce
from rankloop.kernels.click_loop import Rounds, pdgd_rounds
from rankloop.kernels.philox import uniforms
from rankloop.learners.composed import GradientLearner
from rankloop.learners.models.gradient import GradientModel
from rankloop.learners.models.linear import CARRIES, Init, base_weights, first_weights
from rankloop.learners.policies import PlackettLuce

BASE = 3.0  # initial weight of the baseline position: P ∝ (1 + position)⁻³ shows the first document first in 4 of 5
NOWHERE = np.empty(0, np.int64)  # positions in the baseline ranking, where that does not count


@dataclass
class PDGD(GradientLearner):
    """Show a sample of the Plackett-Luce model and follow an unbiased pairwise gradient of the clicks.

    Cheap (microseconds per event), one step size to choose, and unbiased: the pair weight ρ removes the preference for
    the order shown. It never stops exploring, most where scores are close, so early rankings are noisy; `pairrank`
    explores only where it is unsure. Choose it as the baseline to beat, or for very wide features.

    Parameters
    ----------
    rate
        Step size of the first update.
    decay
        Factor on the step size after every impression that had a pair.
    init
        "zero", "base" (the baseline ranking, a feature of its own with weight 3) or a list of weights.
    examine_next
        Take the document below the last click as examined.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = PDGD()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(50):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Harrie Oosterhuis and Maarten de Rijke. Differentiable Unbiased Online Learning to Rank. CIKM 2018, equations 5-11.
    Defaults are those of the published code. The gradient uses the scores of display time, which the impression's memo
    holds, so late feedback stays unbiased. Probabilities are over all candidates, not only those shown.
    """

    rate: float = 0.1
    decay: float = 0.9999977
    init: Init = "zero"
    examine_next: bool = True

    carries: ClassVar[str] = f"{CARRIES}; the step size stays"

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_number("decay", self.decay, 0, above=True)
        require(self.decay <= 1, "decay", self.decay, "must be at most 1")
        require_flag("examine_next", self.examine_next)
        self.model_ = GradientModel(self.init, BASE, self.rate)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The first k of a Plackett-Luce ranking, scored and drawn by one kernel."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        features, model = self._features(candidates), self.model_
        if self.init == "base":
            theta = model.theta_ if model.theta_.size else base_weights(features.shape[1], BASE)
            drawn = plackett_luce.draw_from_base(features, theta, rng.random(len(features)), k)
        else:
            drawn = plackett_luce.draw(features, model.weights(features), rng.random(len(features)), k)
        order, rows, scores, rest, chance = drawn
        return make_impression(candidates, order, {"scores": scores, "rest": np.array([rest])}, chance, rows)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The Plackett-Luce log-probability of an order."""
        return PlackettLuce().log_propensity(self.score(candidates), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of an order that someone else chose; its pairs count as if the present scores had drawn it."""
        order = checked_order(candidates, order)
        return make_impression(candidates, order, PlackettLuce().memo(self.score(candidates), order))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """One step along Σ ρ σ'(s_a - s_b)(x_a - x_b) over clicked a, examined unclicked b."""
        gradient = self.step(impression, feedback, rng)
        if gradient is not None:
            model = self.model_
            theta = model.theta_
            if theta.size == 0 and self.init != "zero":
                theta = first_weights(self.init, model.rows(impression), BASE)
            model.theta_ = plackett_luce.pdgd_step(theta, gradient, model.rate_[0])
            model.rate_ = model.rate_ * self.decay

    def step(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> Array | None:  # noqa: ARG002
        """(d,) the gradient, None if there is no pair. θ is left to the caller."""
        clicks = checked_values(self, impression, feedback)
        features, places = self._features(impression), impression.order if self.init == "base" else NOWHERE
        shown = memo_of(impression, "scores", clicks.size), memo_of(impression, "rest", 1)[0]
        seen = seen_of(impression, feedback)
        gradient = plackett_luce.pdgd_gradient_from_base(features, places, *shown, clicks, self.examine_next, seen)
        return gradient if gradient.size else None

    def _features(self, source: Candidates | Impression) -> Array:
        """The features alone: kernels know the baseline position, so no row is copied to append it."""
        width = self.theta_.size
        return rows_of(source, width - 1 if width and self.init == "base" else width)

    def compiled_rounds(self) -> Callable[[Rounds, int, Rng], None] | None:
        """What takes this learner through many rounds of a simulation at once: `rank` and `learn`, bit for bit."""
        if self.init != "zero":
            return None

        def loop(rounds: Rounds, first: int, streams: Rng) -> None:
            numbers = np.empty((rounds.queries.size, int(np.diff(rounds.offsets).max())))
            uniforms(streams.key("rank"), first, numbers)
            model = self.model_
            theta, rate = pdgd_rounds(rounds, numbers, model.theta_, model.rate_[0], self.decay, self.examine_next)
            model.theta_, model.rate_ = theta, np.array([rate])

        return loop
