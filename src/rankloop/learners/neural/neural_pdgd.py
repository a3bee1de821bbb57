"""Neural PDGD: Pairwise Differentiable Gradient Descent with a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.core.rng import as_rng
from rankloop.core.learner import checked_order, checked_values, make_impression, memo_of, require, require_flag, require_number, resolve_k, seen_of
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import plackett_luce, preferences
from rankloop.learners.neural._neural import NeuralRanker, Shapes


@dataclass
class NeuralPDGD(NeuralRanker):
    """PDGD whose scores come from a network: Plackett-Luce lists, the unbiased pairwise gradient, plain steps.

    The cheapest neural learner: one gradient an event, no memory of lists. It learns slowly, because it looks at each
    list once. Choose it as the neural baseline; `olranknet` learns more from the same clicks.

    Parameters
    ----------
    rate
        Step size of the first update in units of the data: a pull of 1 moves the difference of two scores by about
        this much.
    decay
        Factor on the step size after every round that had a pair.
    examine_next
        Take the document below the last click as seen.
    net, width, seed
        The network, its hidden units, and where it starts (`NeuralRanker`).

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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("rate", self.rate, 0, above=True)
        require_number("decay", self.decay, 0, above=True)
        require(self.decay <= 1, "decay", self.decay, "must be at most 1")
        require_flag("examine_next", self.examine_next)
        self.rate_: Array = np.array([float(self.rate)])

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The first k of a Plackett-Luce ranking."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        scores = self._scores(candidates)[0]
        order = plackett_luce.sample(scores, rng.random(scores.size), k)
        memo = _notes(scores, order)
        return make_impression(candidates, order, memo, plackett_luce.log_probability(memo["scores"], memo["rest"][0]))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """Of a Plackett-Luce ranking."""
        scores = self._scores(candidates)[0]
        return float(plackett_luce.log_probability(scores[order], plackett_luce.rest_weight(scores, order)))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; its pairs count as if the present scores had drawn it."""
        order = checked_order(candidates, order)
        return make_impression(candidates, order, _notes(self._scores(candidates)[0], order))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """One step along Σ ρ σ'(s_a - s_b)(∇s_a - ∇s_b) over clicked a, examined unclicked b."""
        clicks = checked_values(self, impression, feedback)
        pairs = preferences.click_pairs(
            clicks, self.examine_next, seen_of(impression, feedback), preferences.ALL, clicks
        )
        if len(pairs) == 0:
            return
        rows = self._rows(impression)
        scores, rest = memo_of(impression, "scores", impression.k), memo_of(impression, "rest", 1)
        pull = plackett_luce.pdgd_pulls(scores, rest[0], clicks, pairs)
        features, unit = rows.shape[1], self._unit(rows)
        weights, frozen = self._begun(features)
        network = self._networks(features)[0]
        slopes = network.forward(weights[0], frozen[0], rows, learn=True).gradient(pull)
        moved = weights + self.rate_[0] / (self.width * unit) * slopes
        self._require_sound(float(np.abs(network.forward(moved[0], frozen[0], rows).scores).max()), moved)
        self.features_, self.unit_, self.events_ = np.array([features]), np.array([unit]), self.events_ + 1
        self.weights_, self.frozen_, self.rate_ = moved, frozen, self.rate_ * self.decay

    def _shapes(self) -> Shapes:
        return {**super()._shapes(), "rate_": (1,)}


def _notes(scores: Array, order: Array) -> dict[str, Array]:
    """What ρ is computed from: the scores of the shown, and the weight of the others."""
    return {"scores": scores[order], "rest": np.array([plackett_luce.rest_weight(scores, order)])}
