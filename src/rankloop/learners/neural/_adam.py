"""Networks that follow the slope of a loss: Adam, held near its start, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rankloop.kernels import neural
from rankloop.learner import require_number
from rankloop.learners.neural._neural import NeuralRanker, Shapes
from rankloop.types import Array

Pulls = Callable[[int, Array], tuple[Array, float]]  # (member, scores) -> slope in each score, loss


@dataclass
class AdamRanker(NeuralRanker):
    """A network trained by Adam on a loss + (m·ridge/2)‖θ - θ₀‖².

    Parameters
    ----------
    rate
        Step size in units of the data: about how far one step moves the difference of two scores if all weights agree
        on the direction. Adam's own rate is this divided by √p ‖g_ij‖ of the first list.
    ridge
        How strongly to stay near the start, against the loss summed over all pairs; in units of the data.
    """

    rate: float = 0.1
    ridge: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("rate", self.rate, 0, above=True)
        require_number("ridge", self.ridge, 0)
        self.start_: Array = np.zeros((0, 0))  # (members, p) θ₀
        self.first_: Array = np.zeros((0, 0))  # (members, p) Adam's mean slope
        self.second_: Array = np.zeros((0, 0))  # (members, p) and its mean square
        self.steps_: Array = np.zeros(1, np.int64)  # Adam's steps so far

    def _shapes(self) -> Shapes:
        moved: Shapes = dict.fromkeys(("start_", "first_", "second_"), ("e", "p"))
        return {**super()._shapes(), **moved, "steps_": (1,)}


class Training:
    """Copies of what Adam moves. The learner does not change until `keep`."""

    def __init__(self, learner: AdamRanker, rows: Array, again: bool = False) -> None:
        """Go on from where the learner is, or `again` from its start; `rows` are the list that is learned from."""
        features, cold = rows.shape[1], learner.weights_.size == 0
        self.learner, self.features, self.nets = learner, features, learner._networks(features)
        begun, self.frozen = learner._begun(features)
        self.start = begun if cold else learner.start_
        self.unit = learner._unit(rows)
        fresh = cold or again
        self.weights = (self.start if fresh else begun).copy()
        self.first = np.zeros_like(begun) if fresh else learner.first_.copy()
        self.second = np.zeros_like(begun) if fresh else learner.second_.copy()
        self.steps = 0 if fresh else int(learner.steps_[0])
        # Were all of the p weights' slopes alike, a step of Adam would move a score gap by √p ‖g_ij‖ times its rate.
        self.rate = learner.rate / np.sqrt(self.nets[0].parameters * learner.width * self.unit)

    def step(self, rows: Array, pulls: Pulls, pairs: float) -> None:
        """One step of every member on rows (n, d); the ridge is shared out over so many `pairs`."""
        self.steps += 1
        hold = self.learner.width * self.learner.ridge * self.unit / pairs
        for e, net in enumerate(self.nets):
            forward = net.forward(self.weights[e], self.frozen[e], rows, learn=True)
            slope, loss = pulls(e, forward.scores)
            self.learner._require_sound(loss, slope)
            slopes = forward.gradient(slope)
            neural.adam(
                self.weights[e], self.first[e], self.second[e], slopes, self.start[e], hold, self.rate, self.steps
            )

    def keep(self, rows: Array, pulls: Pulls) -> None:
        """Hand what was learned to the learner, if the loss on `rows` is still sound."""
        for e, net in enumerate(self.nets):
            loss = pulls(e, net.forward(self.weights[e], self.frozen[e], rows).scores)[1]
            self.learner._require_sound(loss, self.weights[e])
        learner = self.learner
        learner.features_, learner.unit_ = np.array([self.features]), np.array([self.unit])
        learner.weights_, learner.frozen_, learner.start_ = self.weights, self.frozen, self.start
        learner.first_, learner.second_, learner.steps_ = self.first, self.second, np.array([self.steps])
        learner.events_ = learner.events_ + 1
