"""Neural DBGD: Dueling Bandit Gradient Descent on a network's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    memo_of,
    require_choice,
    require_number,
    resolve_k,
)
from rankloop.core.rng import Rng, as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import dueling
from rankloop.kernels.interleaving import win_and_loss
from rankloop.learners.dueling import _duel
from rankloop.learners.models.network import NetworkModel
from rankloop.learners.neural.network_learner import NetworkLearner


@dataclass
class NeuralDBGD(NetworkLearner[NetworkModel]):
    """Try a random change of all weights on every list, mixed with the network as it is; keep a bit of it if it wins.

    One bit a list for thousands of weights: it hardly learns. Choose it only to compare with.

    Parameters
    ----------
    rate
        How far to go in a direction that won.
    delta
        How far away the exploring network is, in the space of all weights.
    mixing
        How the two rankings become one list: "probabilistic" or "team-draft".
    net, width, seed
        As in `OLRankNet`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = NeuralDBGD(rate=1.0, width=20)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Yisong Yue and Thorsten Joachims. Interactively optimizing information retrieval systems as a dueling bandits
    problem. ICML 2009; the neural baseline of paper 001. As in `DBGD` the winner is found exactly, and lists that
    someone else ordered compare nobody. The direction does not travel in the memo, which would be as large as the
    network: the number does from which it is drawn again.
    """

    rate: float = 0.1
    delta: float = 1.0
    mixing: Literal["probabilistic", "team-draft"] = "probabilistic"
    net: Any = "two-layer"
    width: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_number("delta", self.delta, 0, above=True)
        require_choice("mixing", self.mixing, _duel.MIXINGS)
        self.model_ = NetworkModel(self.net, self.width, self.seed)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list mixed from the network and a random change of it."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        rows, source = self.model_.rows(candidates), int(rng.integers(2**53))
        weights, frozen = self.model_.parameters(rows.shape[1])
        network = self.model_.networks(rows.shape[1])[0]
        changed = weights[0] + self.delta * _direction(source, weights.shape[1])
        scores = np.stack([network.forward(w, frozen[0], rows).scores for w in (weights[0], changed)])
        order, credit = _duel.mixed(scores, k, self.mixing, rng)
        return make_impression(candidates, order, {"source": np.array([float(source)]), "credit": credit})

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; nothing will be learned from it."""
        order = checked_order(candidates, order)
        self.model_.rows(candidates)
        return make_impression(candidates, order, {"source": np.array([-1.0]), "credit": np.zeros((order.size, 2))})

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """A step towards the exploring network, if it won."""
        clicks, rows = bernoulli_clicks(checked_values(self, impression, feedback), rng), self.model_.rows(impression)
        credit, source = memo_of(impression, "credit", impression.k, 2), memo_of(impression, "source", 1)[0]
        if not -1 <= source < 2**53 or source != int(source):
            raise InvalidInput(
                f"the impression's memo has {source} as 'source'; pass on the impression as rank made it"
            )
        if source < 0 or not clicks.any():
            return
        win, loss = win_and_loss(credit, clicks, 0)
        if not win[1] > loss[1]:
            return
        features = rows.shape[1]
        weights, frozen = self.model_.parameters(features)
        moved = weights + self.rate * _direction(int(source), weights.shape[1])
        network = self.model_.networks(features)[0]
        largest = float(np.abs(network.forward(moved[0], frozen[0], rows).scores).max())
        model = self.model_
        model.require_sound(largest, moved, type(self).__name__)
        model.features_, model.weights_, model.frozen_ = np.array([features]), moved, frozen
        model.events_ = model.events_ + 1

    def remap_memo(self, memo: Mapping[str, Array], columns: FeatureMap) -> dict[str, Array]:  # noqa: ARG002
        """The direction is drawn again from its number, which gives another one for other weights: nobody won."""
        return {**memo, "source": np.array([-1.0])} if "source" in memo else dict(memo)


def _direction(source: int, size: int) -> Array:
    """(p,) uniform on the unit sphere, the same for the same number."""
    found: Array = dueling.unit_rows(Rng(source).for_event("direction", 0).standard_normal((1, size)))[0]
    return found
