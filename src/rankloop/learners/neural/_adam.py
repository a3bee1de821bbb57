"""Networks that follow the slope of a loss: Adam or plain descent, held near their start, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import require_choice, require_number
from rankloop.core.types import Array
from rankloop.kernels import neural
from rankloop.learners.neural._neural import NeuralRanker, Shapes

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
    units
        "data": numbers are told in units that follow from the first list. "none": as the paper has them, so that
        `rate` is the optimiser's own and λ of the loss is `ridge`.
    optimiser
        "adam", or "descent", the paper's: plain steps on the loss summed over all pairs.
    """

    rate: float = 0.1
    ridge: float = 0.01
    units: Literal["data", "none"] = "data"
    optimiser: Literal["adam", "descent"] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("rate", self.rate, 0, above=True)
        require_number("ridge", self.ridge, 0)
        require_choice("units", self.units, ("data", "none"))
        require_choice("optimiser", self.optimiser, ("adam", "descent"))
        self.origin_: Array = np.zeros((0, 0))  # (members, p) θ₀
        self.first_: Array = np.zeros((0, 0))  # (members, p) Adam's mean slope
        self.second_: Array = np.zeros((0, 0))  # (members, p) and its mean square
        self.steps_: Array = np.zeros(1, np.int64)  # Adam's steps so far

    def _unit(self, rows: Array) -> float:
        return super()._unit(rows) if self.units == "data" else 1.0

    def _remap(self, columns: FeatureMap) -> None:
        inputs = self._inputs(columns)
        super()._remap(columns)
        self.origin_ = inputs.weights(self.origin_)
        self.first_, self.second_ = (inputs.weights(m, power=-p) for m, p in ((self.first_, 1), (self.second_, 2)))

    def _shapes(self) -> Shapes:
        moved: Shapes = dict.fromkeys(("origin_", "first_", "second_"), ("e", "p"))
        return {**super()._shapes(), **moved, "steps_": (1,)}


class Training:
    """Copies of what Adam moves. The learner does not change until `keep`."""

    def __init__(self, learner: AdamRanker, rows: Array, again: bool = False) -> None:
        """Go on from where the learner is, or `again` from its start; `rows` are the list that is learned from."""
        features, cold = rows.shape[1], learner.weights_.size == 0
        self.learner, self.features, self.nets = learner, features, learner._networks(features)
        begun, self.frozen = learner._begun(features)
        self.start = begun if cold else learner.origin_
        self.unit = learner._unit(rows)
        fresh = cold or again
        self.weights = (self.start if fresh else begun).copy()
        self.first = np.zeros_like(begun) if fresh else learner.first_.copy()
        self.second = np.zeros_like(begun) if fresh else learner.second_.copy()
        self.steps = 0 if fresh else int(learner.steps_[0])
        self.rate = learner.rate
        if learner.units == "data":
            # Were all of the p weights' slopes alike, a step of Adam would move a score gap by √p ‖g_ij‖ times its
            # rate; one of descent moves it by ‖g_ij‖² times its rate and the pull of the mean loss.
            square = learner.width * self.unit
            self.rate /= np.sqrt(self.nets[0].parameters * square) if learner.optimiser == "adam" else square

    def step(self, rows: Array, pulls: Pulls, pairs: float, pace: float = 1.0) -> None:
        """One step of every member on rows (n, d); the ridge is shared out over so many `pairs`.

        `pace` is what is left of the rate.
        """
        self.steps += 1
        hold = self.learner.width * self.learner.ridge * self.unit / pairs
        for e, net in enumerate(self.nets):
            forward = net.forward(self.weights[e], self.frozen[e], rows, learn=True)
            slope, loss = pulls(e, forward.scores)
            self.learner._require_sound(loss, slope)
            slopes = forward.gradient(slope)
            weights, start, rate = self.weights[e], self.start[e], self.rate * pace
            if self.learner.optimiser == "adam":
                neural.adam(weights, self.first[e], self.second[e], slopes, start, hold, rate, self.steps)
            else:
                whole = 1.0 if self.learner.units == "data" else pairs  # the paper's loss is a sum
                weights -= rate * whole * (slopes + hold * (weights - start))

    def keep(self, rows: Array, pulls: Pulls) -> None:
        """Hand what was learned to the learner, if the loss on `rows` is still sound."""
        for e, net in enumerate(self.nets):
            loss = pulls(e, net.forward(self.weights[e], self.frozen[e], rows).scores)[1]
            self.learner._require_sound(loss, self.weights[e])
        learner = self.learner
        learner.features_, learner.unit_ = np.array([self.features]), np.array([self.unit])
        learner.weights_, learner.frozen_, learner.origin_ = self.weights, self.frozen, self.start
        learner.first_, learner.second_, learner.steps_ = self.first, self.second, np.array([self.steps])
        learner.events_ = learner.events_ + 1
