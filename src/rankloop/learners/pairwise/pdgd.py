"""PDGD: Pairwise Differentiable Gradient Descent, linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.capabilities import Parts
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    checked_values,
    cut,
    drawn,
    load_state,
    memo_of,
    require,
    require_flag,
    require_number,
    rows_of,
    seen_of,
    show,
    state_of,
)
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import plackett_luce
from rankloop.kernels.click_loop import Rounds, pdgd_rounds
from rankloop.kernels.philox import uniforms
from rankloop.learners.pairwise._linear import CARRIES, best_of, carried_over, parts_of, scores_of
from rankloop.learners.pairwise._start import Start, base_weights, first_weights, require_start, weights_now

BASE = 3.0  # weight of the base order: P ∝ (1 + position)⁻³, the caller's first document comes first in four of five

NOWHERE = np.empty(0, np.int64)  # places of documents where the base order does not count


@dataclass
class PDGD:
    """Show a sample of the Plackett-Luce model, and follow an unbiased pairwise gradient of the clicks.

    Cheap (microseconds an event), with one step size to choose, and unbiased: the pair weight ρ takes out the
    preference of the shown order. It explores everywhere for ever, most where scores are close, so early lists are
    noisy; `pairrank` explores only where it is unsure. Choose it as the baseline to beat, for very wide features, or
    when nothing is known about the users.

    Parameters
    ----------
    rate
        Step size of the first update.
    decay
        Factor on the step size after every round that had a pair.
    init
        "zero", "base" (the caller's order, a feature of its own with weight 3) or a list of weights, as in `PairRank`.
    examine_next
        Take the document below the last click as seen.

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
    Defaults are those of the published code: rate .1, decay .9999977, start at zero. The gradient uses the scores of
    display time, which travel in the impression's memo, so late feedback stays unbiased. Probabilities are over all
    candidates, not only the shown ones.
    """

    rate: float = 0.1
    decay: float = 0.9999977
    init: Start = "zero"
    examine_next: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = f"{CARRIES}; the step size stays"

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_number("decay", self.decay, 0, above=True)
        require(self.decay <= 1, "decay", self.decay, "must be at most 1")
        require_start(self.init)
        require_flag("examine_next", self.examine_next)
        self.theta_: Array = np.zeros(0)
        self.rate_: Array = np.array([self.rate])

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The first k of a Plackett-Luce ranking."""
        k = cut(candidates, k, rng)
        features, theta = self._rows(candidates), self.theta_
        if self.init == "base":
            theta = theta if theta.size else base_weights(features.shape[1], BASE)
            listed = plackett_luce.draw_from_base(features, theta, rng.random(len(features)), k)
        else:
            theta = weights_now(theta, self.init, features)
            listed = plackett_luce.draw(features, theta, rng.random(len(features)), k)
        order, rows, scores, rest, chance = listed
        return drawn(candidates, order, chance, {"scores": scores, "rest": np.array([rest])}, rows)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The Plackett-Luce probability of a list."""
        scores = self.score(candidates)
        return float(plackett_luce.log_probability(scores[order], plackett_luce.rest_weight(scores, order)))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; its pairs count as if the present scores had drawn it."""
        order = checked_order(candidates, order)
        return show(candidates, order, _memo(self.score(candidates), order))

    def parts(self, impression: Impression) -> Parts:
        """Rows with the base order where the learner starts from it, and their weights."""
        return parts_of(self.theta_, impression, self.init, BASE)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return best_of(self.theta_, candidates, k, self.init)

    def score(self, candidates: Candidates) -> Array:
        """(n,) x·θ, with the base order's part where the learner starts from it."""
        return scores_of(self.theta_, candidates, self.init, BASE)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """One step along Σ ρ σ'(s_a - s_b)(x_a - x_b) over clicked a, examined unclicked b."""
        gradient = self.step(impression, feedback, rng)
        if gradient is not None:
            theta = self.theta_
            if theta.size == 0 and self.init != "zero":
                theta = first_weights(self.init, rows_of(impression, 0, self.init == "base"), BASE)
            self.theta_ = plackett_luce.pdgd_step(theta, gradient, self.rate_[0])
            self.rate_ = self.rate_ * self.decay

    def step(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> Array | None:  # noqa: ARG002
        """(d,) the gradient, None if there is no pair. θ is left to the caller."""
        clicks = checked_values(self, impression, feedback)
        features, places = self._rows(impression), impression.order if self.init == "base" else NOWHERE
        shown = memo_of(impression, "scores", clicks.size), memo_of(impression, "rest", 1)[0]
        seen = seen_of(impression, feedback)
        gradient = plackett_luce.pdgd_gradient_from_base(features, places, *shown, clicks, self.examine_next, seen)
        return gradient if gradient.size else None

    def _rows(self, source: Candidates | Impression) -> Array:
        """The features alone: kernels know what the base order is, so no row is copied to have it as a column."""
        width = self.theta_.size
        return rows_of(source, width - 1 if width and self.init == "base" else width)

    def compiled_rounds(self) -> Callable[[Rounds, int, Rng], None] | None:
        """What takes this learner through many rounds of a simulation at once: `rank` and `learn`, bit for bit."""
        if self.init != "zero":
            return None

        def loop(rounds: Rounds, first: int, streams: Rng) -> None:
            numbers = np.empty((rounds.queries.size, int(np.diff(rounds.offsets).max())))
            uniforms(streams.key("rank"), first, numbers)
            self.theta_, rate = pdgd_rounds(rounds, numbers, self.theta_, self.rate_[0], self.decay, self.examine_next)
            self.rate_ = np.array([rate])

        return loop

    def rescale(self, growth: Array) -> None:
        """θ is carried over."""
        self.theta_ = carried_over(self.theta_, growth)

    def remap(self, columns: FeatureMap) -> None:
        """θ in other columns."""
        self.theta_ = columns.weights(self.theta_)

    def state(self) -> dict[str, Array]:
        """θ and the step size."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        load_state(self, state, {"theta_": ("d",), "rate_": (1,)})


def _memo(scores: Array, order: Array) -> dict[str, Array]:
    """What ρ is computed from: the scores of the shown, and the weight of the others."""
    return {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
