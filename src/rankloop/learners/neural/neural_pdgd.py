"""Neural PDGD: Pairwise Differentiable Gradient Descent with a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    seen_of,
)
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import plackett_luce, preferences
from rankloop.learners.models.network import NetworkModel
from rankloop.learners.neural.network_learner import NetworkLearner
from rankloop.learners.policies import PlackettLuce


@dataclass
class NeuralPDGD(NetworkLearner[NetworkModel]):
    """PDGD whose scores come from a network: Plackett-Luce rankings, the unbiased pairwise gradient, plain steps.

    The cheapest neural learner: one gradient per event, no replay. It learns slowly, because it uses each impression
    once. Choose it as the neural baseline; `olranknet` learns more from the same clicks.

    Parameters
    ----------
    rate
        Step size of the first update in units of the data: a pull of 1 moves the difference of two scores by about
        this much.
    decay
        Factor on the step size after every impression that had a pair.
    examine_next
        Take the document below the last click as examined.
    net, width, seed
        As in `OLRankNet`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = NeuralPDGD(width=20)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(50):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Harrie Oosterhuis and Maarten de Rijke. Differentiable Unbiased Online Learning to Rank. CIKM 2018, equations 5-11;
    the neural baseline of paper 001. The weights of pairs come from the scores of display time, which travel in the
    memo; the gradient of the scores is that of the network at the moment of learning. Published code has a rate of .1
    on raw gradients, which means another thing for every network.
    """

    rate: float = 1.0
    decay: float = 0.9999977
    examine_next: bool = True
    net: Any = "two-layer"
    width: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_number("decay", self.decay, 0, above=True)
        require(self.decay <= 1, "decay", self.decay, "must be at most 1")
        require_flag("examine_next", self.examine_next)
        self.model_ = NetworkModel(self.net, self.width, self.seed, rate=self.rate)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The first k of a Plackett-Luce ranking."""
        k, policy = resolve_k(candidates, k), PlackettLuce()
        scores = self.score(candidates)
        order = policy.draw(scores, k, as_rng(rng))
        memo = policy.memo(scores, order)
        chance = plackett_luce.log_probability(memo["scores"], memo["rest"][0])
        return make_impression(candidates, order, memo, chance)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The Plackett-Luce log-probability of an order."""
        return PlackettLuce().log_propensity(self.score(candidates), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of an order that someone else chose; its pairs count as if the present scores had drawn it."""
        order = checked_order(candidates, order)
        return make_impression(candidates, order, PlackettLuce().memo(self.score(candidates), order))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """One step along Σ ρ σ'(s_a - s_b)(∇s_a - ∇s_b) over clicked a, examined unclicked b."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        pairs = preferences.click_pairs(clicks, self.examine_next, seen, preferences.ALL, clicks)
        if len(pairs) == 0:
            return
        model, rows = self.model_, self.model_.rows(impression)
        scores, rest = memo_of(impression, "scores", impression.k), memo_of(impression, "rest", 1)
        pull = plackett_luce.pdgd_pulls(scores, rest[0], clicks, pairs)
        features, unit = rows.shape[1], model.unit(rows)
        weights, frozen = model.parameters(features)
        network = model.networks(features)[0]
        slopes = network.forward(weights[0], frozen[0], rows, learn=True).gradient(pull)
        moved = weights + model.rate_[0] / (self.width * unit) * slopes
        largest = float(np.abs(network.forward(moved[0], frozen[0], rows).scores).max())
        model.require_sound(largest, moved, type(self).__name__)
        model.features_, model.unit_, model.events_ = np.array([features]), np.array([unit]), model.events_ + 1
        model.weights_, model.frozen_, model.rate_ = moved, frozen, model.rate_ * self.decay
