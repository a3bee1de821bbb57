"""What the neural learners share: a network by name, its weights as a flat array, scoring, state, and guarding."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rankloop.core.errors import Diverged, InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import checked_order, clone, load_state, make_impression, require, require_whole, resolve_k, rows_of, state_of
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels.ranking import top_k
from rankloop.learners.neural import networks
from rankloop.learners.neural.networks import Forward, Network

LARGEST = 1e12  # a feature beyond it would overflow float32 when squared and summed
MOST = 2**31 - 1  # of counts and seeds
EXPLODED = 1e3  # a mean loss that says that scores are a thousand apart, the wrong way round

Shapes = dict[str, tuple[str | int, ...]]


@dataclass
class NeuralRanker(ABC):
    """A network that scores documents; its weights are learned, kept flat, a row for each member of an ensemble.

    Parameters
    ----------
    net
        "two-layer" (the paper's, built in), "three-layer", a name that you registered, a `torch.nn.Module`, or a
        function that makes one from the number of features: see `rankloop.learners.neural.networks`.
    width
        m: hidden units of the built-in networks, an even number. With a network of your own it changes nothing that
        the units of the data do not take out again.
    seed
        Decides the weights to begin with, and nothing else.
    """

    net: Any = "two-layer"
    width: int = 100
    seed: int = 0

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = (
        "all weights of a two-layer network but the inputs of removed features; a new feature's input weights start at "
        "0; a network of another kind starts from nothing after a reset only"
    )

    def __post_init__(self) -> None:
        networks.require_network(self.net)
        require_whole("width", self.width, 2, MOST)
        require(self.width % 2 == 0, "width", self.width, "must be even: the network starts as two mirrored halves")
        require_whole("seed", self.seed, 0, MOST)
        self.features_: Array = np.zeros(1, np.int64)  # how many; 0 while nothing is learned
        self.weights_: Array = np.zeros((0, 0))  # (members, p)
        self.frozen_: Array = np.zeros((0, 0))  # (members, b) a module's buffers
        self.unit_: Array = np.ones(1)  # what rates and priors are told in: mean ‖g_ij‖²/m of the first list
        self.events_: Array = np.zeros(1, np.int64)  # lists that taught something

    @abstractmethod
    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list to show."""

    @abstractmethod
    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Take in what the user did."""

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; those of an ensemble are averaged."""
        scores = self.score(candidates)
        return top_k(scores, np.zeros(scores.size), resolve_k(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        """(n,) what the network says of each; an ensemble's members are averaged."""
        return np.asarray(self._scores(candidates).mean(0))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told."""
        self._rows(candidates)  # features that do not fit are refused here, not when the clicks come
        return make_impression(candidates, checked_order(candidates, order))

    def module(self, member: int = 0) -> Any:
        """A copy of your own module with what was learned in its weights."""
        if self.net == "two-layer" or self.weights_.size == 0:
            raise InvalidParameter("there is no module: nothing is learned yet, or net is 'two-layer', which has none")
        network: Any = self._networks()[member]
        return network.with_weights(self.weights_[member], self.frozen_[member])

    def remap(self, columns: FeatureMap) -> None:
        """Go on with features in other columns: those of the first layer follow them."""
        if self.weights_.size == 0 or columns.identity:
            return
        if self.net != "two-layer":
            raise InvalidParameter(
                f"net is {networks.said(self.net)}; only a two-layer network can be carried over to other features, "
                "since which weights belong to which feature is not known of others"
            )
        if columns.nothing:
            vars(self).update(vars(clone(self)))
        else:
            self._remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of all that is learned."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        twin = copy.copy(self)
        load_state(twin, state, self._shapes())
        twin._check_loaded()
        vars(self).update(vars(twin))

    # -- for the learners ------------------------------------------------------------------------------------------

    def _members(self) -> int:
        return 1

    def _remap(self, columns: FeatureMap) -> None:
        """Change the columns of what is learned, of a two-layer network that something carries over to."""
        self.weights_ = self._inputs(columns).weights(self.weights_)
        self.features_ = np.array([columns.source.size])

    def _inputs(self, columns: FeatureMap) -> FeatureMap:
        """The same change for the flat weights: a block of input weights per hidden unit, then the last layer."""
        starts = np.arange(self.width)[:, None] * columns.before
        source = np.where(columns.source >= 0, starts + columns.source, -1).ravel()
        return FeatureMap(source, self.width * columns.before, np.tile(columns.scale, self.width))

    def _shapes(self) -> Shapes:
        return {"features_": (1,), "weights_": ("e", "p"), "frozen_": ("e", "b"), "unit_": (1,), "events_": (1,)}

    def _check_loaded(self) -> None:
        """Refuse a state whose arrays, of the right types and shapes, do not belong to this network."""
        d = int(self.features_[0])
        wanted = (self._members(), self._networks(d)[0].size) if d > 0 else (0, 0)
        if self.weights_.shape != wanted:
            raise InvalidInput(
                f"state 'weights_' has shape {self.weights_.shape}, but this network has {wanted} with {d} features; "
                "load it into a learner with the same net and width"
            )

    def _networks(self, features: int = 0) -> list[Network]:
        """The network of each member; they differ in their start."""
        d = features or int(self.features_[0])
        return [networks.network(self.net, d, self.width, self.seed + e) for e in range(self._members())]

    def _rows(self, source: Candidates | Impression) -> Array:
        """(n, d) the features as float32, refused where they do not fit."""
        rows = rows_of(source, int(self.features_[0]))
        if max(float(rows.max()), -float(rows.min())) > LARGEST:
            i, j = (int(v) for v in np.argwhere(np.abs(rows) > LARGEST)[0])
            raise InvalidInput(
                f"features[{i}, {j}] is {rows[i, j]}; a network takes features within ±{LARGEST:g}, and learns best "
                "from such in [0, 1]: normalise them"
            )
        return rows.astype(np.float32)

    def _begun(self, features: int) -> tuple[Array, Array]:
        """(members, p) weights and (members, b) buffers: those learned, or those to begin with."""
        if self.weights_.size:
            return self.weights_, self.frozen_
        fresh = self._networks(features)
        return np.stack([net.start() for net in fresh]), np.stack([net.frozen() for net in fresh])

    def _forward(self, rows: Array) -> list[Forward]:
        """What each member says of rows (n, d)."""
        weights, frozen = self._begun(rows.shape[1])
        nets = self._networks(rows.shape[1])
        return [net.forward(weights[e], frozen[e], rows) for e, net in enumerate(nets)]

    def _scores(self, candidates: Candidates) -> Array:
        """(members, n)."""
        return np.stack([forward.scores for forward in self._forward(self._rows(candidates))])

    def _unit(self, rows: Array) -> float:
        """Mean ‖g_ij‖²/m over the pairs of a first list: what a plain number means to this data and this network."""
        if self.weights_.size:
            return float(self.unit_[0])
        tangents = self._forward(rows)[0].tangents()
        square = 2.0 * float(((tangents - tangents.mean(0)) ** 2).sum()) / max(len(rows) - 1, 1)
        return square if square > 0.0 and np.isfinite(square) else 1.0

    def _require_sound(self, loss: float, weights: Array) -> None:
        """Raise where learning ran away; nothing of the learner may have changed yet."""
        if not abs(loss) <= EXPLODED or not np.isfinite(weights).all():
            raise Diverged(
                f"{type(self).__name__} diverged at event {int(self.events_[0]) + 1}: its loss is {loss:g}"
                f"{'' if np.isfinite(weights).all() else ', and weights are not finite'}; what was learned before is "
                "kept. Lower its rate, or check that features are normalised"
            )
