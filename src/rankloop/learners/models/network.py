"""Networks that score documents, how they are trained, and how sure they are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.core.errors import Diverged, InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, require, require_number, require_whole, rows_of, state_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import listwise, neural
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models import networks
from rankloop.learners.models.networks import Forward, Network
from rankloop.learners.models.replay import Entry, Lists

LARGEST_FEATURE = 1e12  # anything larger would overflow float32 when squared and summed
MOST = 2**31 - 1  # of counts and seeds
EXPLODED = 1e3  # a mean loss at which scores are a thousand apart, in the wrong order
NO_LIMIT = 2**40
RETIRED = {"gains_", "products_"}  # of networks alone, as commit a18f45f saved them
CARRIES = (
    "all weights of a two-layer network but the inputs of removed features; a new feature's input weights start at 0; "
    "a network of another kind starts from nothing after a reset only"
)

Shapes = dict[str, tuple[str | int, ...]]
Pulls = Callable[[int, Array], tuple[Array, float]]  # (member, scores) -> slope in each score, loss
Units = Literal["data", "none"]


class NetworkModel:
    """A network, or an ensemble, with flat weights.

    Parameters
    ----------
    net
        "two-layer" (built in), "three-layer", a registered name, a `torch.nn.Module`, or a function that makes one from
        the number of features (`models.networks`).
    width
        m: hidden units of the built-in networks, an even number.
    seed
        Decides the initial weights only.
    members
        The size of the ensemble.
    units
        "data": rates and priors are in units of the first impression, mean ‖g_ij‖²/m; "none": plain numbers.
    rate
        Step size at first, of a learner whose step size changes.
    """

    def __init__(
        self, net: Any, width: int, seed: int, members: int = 1, units: Units = "data", rate: float | None = None
    ) -> None:
        networks.require_network(net)
        require_whole("width", width, 2, MOST)
        require(width % 2 == 0, "width", width, "must be even: the network starts as two mirrored halves")
        require_whole("seed", seed, 0, MOST)
        self.net, self.width, self.seed, self.members, self.units = net, width, seed, members, units
        self.first_rate = rate
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        if self.first_rate is not None:
            self.rate_: Array = np.array([float(self.first_rate)])
        self.features_: Array = np.zeros(1, np.int64)  # how many; 0 while nothing is learned
        self.weights_: Array = np.zeros((0, 0))  # (members, p)
        self.frozen_: Array = np.zeros((0, 0))  # (members, b) a module's buffers
        self.unit_: Array = np.ones(1)
        self.events_: Array = np.zeros(1, np.int64)  # impressions that taught something

    def rows(self, source: Candidates | Impression) -> Array:
        """(n, d) the features as float32."""
        rows = rows_of(source, int(self.features_[0]))
        if max(float(rows.max()), -float(rows.min())) > LARGEST_FEATURE:
            i, j = (int(v) for v in np.argwhere(np.abs(rows) > LARGEST_FEATURE)[0])
            raise InvalidInput(
                f"features[{i}, {j}] is {rows[i, j]}; a network takes features within ±{LARGEST_FEATURE:g}, and learns "
                "best from such in [0, 1]: normalize them"
            )
        return rows.astype(np.float32)

    def networks(self, features: int = 0) -> list[Network]:
        """The network of each member; they differ in their initial weights."""
        d = features or int(self.features_[0])
        return [networks.network(self.net, d, self.width, self.seed + e) for e in range(self.members)]

    def parameters(self, features: int) -> tuple[Array, Array]:
        """(members, p) weights and (members, b) buffers: those learned, or the initial ones."""
        if self.weights_.size:
            return self.weights_, self.frozen_
        fresh = self.networks(features)
        return np.stack([net.start() for net in fresh]), np.stack([net.frozen() for net in fresh])

    def forward(self, rows: Array) -> list[Forward]:
        """Each member's answer to rows (n, d)."""
        weights, frozen = self.parameters(rows.shape[1])
        return [net.forward(weights[e], frozen[e], rows) for e, net in enumerate(self.networks(rows.shape[1]))]

    def member_scores(self, source: Candidates | Impression) -> Array:
        """(members, n)."""
        return np.stack([forward.scores for forward in self.forward(self.rows(source))])

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) the mean of the members' scores."""
        return np.asarray(self.member_scores(source).mean(0))

    def unit(self, rows: Array) -> float:
        """Mean ‖g_ij‖²/m over the pairs of a first impression."""
        if self.weights_.size:
            return float(self.unit_[0])
        if self.units == "none":
            return 1.0
        found = self.forward(rows)[0].tangents()
        square = 2.0 * float(((found - found.mean(0)) ** 2).sum()) / max(len(rows) - 1, 1)
        return square if square > 0.0 and np.isfinite(square) else 1.0

    def module(self, member: int = 0) -> Any:
        """A copy of your own module with the learned weights."""
        if self.net == "two-layer" or self.weights_.size == 0:
            raise InvalidParameter("there is no module: nothing is learned yet, or net is 'two-layer', which has none")
        network: Any = self.networks()[member]
        return network.with_weights(self.weights_[member], self.frozen_[member])

    def require_sound(self, loss: float, weights: Array, learner: str) -> None:
        """Raise if learning diverged; nothing may have changed yet."""
        if not abs(loss) <= EXPLODED or not np.isfinite(weights).all():
            raise Diverged(
                f"{learner} diverged at event {int(self.events_[0]) + 1}: its loss is {loss:g}"
                f"{'' if np.isfinite(weights).all() else ', and weights are not finite'}; what was learned before is "
                "kept. Lower its rate, or check that features are normalized"
            )

    def remap(self, columns: FeatureMap) -> None:
        """Carry the first layer over to other columns."""
        if self.weights_.size == 0 or columns.identity:
            return
        if self.net != "two-layer":
            raise InvalidParameter(
                f"net is {networks.said(self.net)}; only a two-layer network can be carried over to other features, "
                "since it is unknown which weights of others belong to which feature"
            )
        if columns.nothing:
            self.reset()
        else:
            self._remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        twin = copy.copy(self)
        load_state(twin, {name: array for name, array in state.items() if name not in RETIRED}, self._shapes())
        twin._check_loaded()
        vars(self).update(vars(twin))

    def _remap(self, columns: FeatureMap) -> None:
        self.weights_ = self._inputs(columns).weights(self.weights_)
        self.features_ = np.array([columns.source.size])

    def _inputs(self, columns: FeatureMap) -> FeatureMap:
        """The same change for the flat weights: a block of input weights per hidden unit, then the last layer."""
        starts = np.arange(self.width)[:, None] * columns.before
        source = np.where(columns.source >= 0, starts + columns.source, -1).ravel()
        return FeatureMap(source, self.width * columns.before, np.tile(columns.scale, self.width))

    def _shapes(self) -> Shapes:
        shapes: Shapes = {"features_": (1,), "weights_": ("e", "p"), "frozen_": ("e", "b")}
        return {**shapes, "unit_": (1,), "events_": (1,), "rate_": (1,)}

    def _check_loaded(self) -> None:
        """Refuse a state whose arrays, of the right types and shapes, do not belong to this network."""
        d = int(self.features_[0])
        wanted = (self.members, self.networks(d)[0].size) if d > 0 else (0, 0)
        if self.weights_.shape != wanted:
            raise InvalidInput(
                f"state 'weights_' has shape {self.weights_.shape}, but this network has {wanted} with {d} features; "
                "load it into a learner with the same net and width"
            )


class AdamModel(NetworkModel):
    """A network trained by Adam on a loss + (m·ridge/2)‖θ - θ₀‖².

    Parameters
    ----------
    rate
        Step size. In units of the data it is about how far one step moves the difference of two scores if all weights
        agree on the direction: Adam's own rate is `rate` / √p ‖g_ij‖ of the first impression.
    ridge
        How strongly to stay near the initial weights, against the loss summed over all pairs.
    net, width, seed, members, units
        As in `NetworkModel`.
    """

    def __init__(self, net: Any, width: int, seed: int, rate: float, ridge: float, **more: Any) -> None:
        require_number("rate", rate, 0, above=True)
        require_number("ridge", ridge, 0)
        self.rate, self.ridge = rate, ridge
        super().__init__(net, width, seed, **more)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.origin_: Array = np.zeros((0, 0))  # (members, p) θ₀
        self.first_: Array = np.zeros((0, 0))  # (members, p) Adam's mean slope
        self.second_: Array = np.zeros((0, 0))  # (members, p) and its mean square
        self.steps_: Array = np.zeros(1, np.int64)  # Adam's steps so far

    def _remap(self, columns: FeatureMap) -> None:
        inputs = self._inputs(columns)
        super()._remap(columns)
        self.origin_ = inputs.weights(self.origin_)
        self.first_, self.second_ = (inputs.weights(m, power=-p) for m, p in ((self.first_, 1), (self.second_, 2)))

    def _shapes(self) -> Shapes:
        moved: Shapes = dict.fromkeys(("origin_", "first_", "second_"), ("e", "p"))
        return {**super()._shapes(), **moved, "steps_": (1,)}


class Training:
    """Copies of what Adam changes; the model does not change until `keep`."""

    def __init__(self, model: AdamModel, rows: Array, learner: str, restart: bool = False) -> None:
        """Continue from the model, or with `restart` from its initial weights; `rows` are those learned from."""
        features, cold = rows.shape[1], model.weights_.size == 0
        self.model, self.features, self.nets, self.learner = model, features, model.networks(features), learner
        begun, self.frozen = model.parameters(features)
        self.start = begun if cold else model.origin_
        self.unit = model.unit(rows)
        fresh = cold or restart
        self.weights = (self.start if fresh else begun).copy()
        self.first = np.zeros_like(begun) if fresh else model.first_.copy()
        self.second = np.zeros_like(begun) if fresh else model.second_.copy()
        self.steps = 0 if fresh else int(model.steps_[0])
        self.rate = model.rate
        if model.units == "data":
            # If all p weights had equal slopes, a step of Adam would move a score gap by √p ‖g_ij‖ times its rate.
            self.rate /= np.sqrt(self.nets[0].parameters * (model.width * self.unit))

    def step(self, rows: Array, pulls: Pulls, pairs: float, pace: float = 1.0) -> None:
        """One step of every member on rows (n, d); the ridge is divided by so many `pairs`, the rate times `pace`."""
        self.steps += 1
        hold = self.model.width * self.model.ridge * self.unit / pairs
        for e, net in enumerate(self.nets):
            forward = net.forward(self.weights[e], self.frozen[e], rows, learn=True)
            slope, loss = pulls(e, forward.scores)
            self.model.require_sound(loss, slope, self.learner)
            slopes, rate = forward.gradient(slope), self.rate * pace
            neural.adam(self.weights[e], self.first[e], self.second[e], slopes, self.start[e], hold, rate, self.steps)

    def keep(self, rows: Array, pulls: Pulls) -> None:
        """Write what was learned to the model, if the loss on `rows` is still sound."""
        for e, net in enumerate(self.nets):
            loss = pulls(e, net.forward(self.weights[e], self.frozen[e], rows).scores)[1]
            self.model.require_sound(loss, self.weights[e], self.learner)
        model = self.model
        model.features_, model.unit_ = np.array([self.features]), np.array([self.unit])
        model.weights_, model.frozen_, model.origin_ = self.weights, self.frozen, self.start
        model.first_, model.second_, model.steps_ = self.first, self.second, np.array([self.steps])
        model.events_ = model.events_ + 1


class Schedule(NamedTuple):
    """How a `PairNetwork` trains after each impression."""

    steps: int  # Adam steps, or with `refit` passes over all impressions
    batch: int  # impressions per step
    kept: int  # impressions that are replayed; unused with `refit`
    refit: bool = False  # train on all impressions so far: memory and time per event grow
    restart: bool = False  # begin each refit at the initial weights


class PairNetwork(AdamModel):
    """A network trained on the pairs of past impressions, with the covariance A of its gradients.

    A = λI + Σ g_ij g_ijᵀ/m over the pairs learned from; its diagonal is kept.

    Parameters
    ----------
    prior
        λ of A, as a number of pairs after which half of the first uncertainty is left; a plain number with
        units="none". None keeps no A.
    schedule
        How it trains.
    pair_rule
        What a pair counts in the loss beside its weight: `listwise.EQUAL`, or `listwise.RAW` for |ΔNDCG|.
    noise
        Standard deviation of the noise on the labels of an ensemble's members.
    """

    def __init__(
        self, *given: Any, prior: float | None, schedule: Schedule, pair_rule: int, noise: float = 0.0, **more: Any
    ) -> None:
        if prior is not None:
            require_number("prior", prior, 0, above=True)
        self.prior, self.schedule, self.pair_rule, self.noise = prior, schedule, pair_rule, noise
        super().__init__(*given, **more)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.spread_: Array = np.zeros((0, 0))  # (1, p) diagonal of A
        self.seen_: Array = np.zeros(1)  # pairs, by what they count
        self._set_lists(Lists.empty(self._noisy))

    def spread(self, rows: Array, unit: float | None = None) -> Array:
        """The diagonal of A."""
        if self.spread_.size:
            return self.spread_
        level = self._level(self.unit(rows) if unit is None else unit, rows.shape[1])
        return np.full((1, self.networks(rows.shape[1])[0].size), level)

    def knows(self, query: int) -> bool:
        """Whether the network was trained on a query with this hash, as far as it remembers."""
        return self._lists().knows(query)

    def update(
        self, rows: Array, clicks: Array, pairs: ClickPairs, size: int, query: int, rng: np.random.Generator, name: str
    ) -> None:
        """Train on the pairs of one impression, whose first `size` documents were examined, and on past ones."""
        training = Training(self, rows, name, restart=self.schedule.restart)
        spread = self.spread_
        if self.prior is not None:
            spread = self.spread(rows, training.unit) + self.forward(rows)[0].squares(pairs.pairs, pairs.weights)
        event = int(self.events_[0])
        slot, most = (event, NO_LIMIT) if self.schedule.refit else (event % self.schedule.kept, self.schedule.kept)
        lists = self._lists().with_room(slot, len(rows), rows.shape[1], most)
        before = lists.entry(slot)
        preferred = np.zeros((size, size))
        preferred[pairs.pairs[:, 0], pairs.pairs[:, 1]] = pairs.weights
        targets = 1.0 + self.noise * rng.standard_normal((self._noisy, size, size))
        lists.put(slot, Entry(rows[:size], np.array(size), clicks[:size], preferred, targets, np.array(query)))
        seen = self.seen_ + pairs.weights.sum()
        try:
            for chosen in self._batches(min(event + 1, most), slot, rng):
                batch, offsets = listwise.gathered(lists.rows, lists.sizes, chosen)
                training.step(batch, partial(self._pulls, lists, chosen, offsets), float(seen[0]))
            training.keep(rows[:size], partial(self._pulls, lists, np.array([slot]), np.array([0, size])))
        except BaseException:
            lists.put(slot, before)
            raise
        self._set_lists(lists)
        self.seen_, self.spread_ = seen, spread

    @property
    def _noisy(self) -> int:
        """How many members learn from labels of their own."""
        return self.members if self.members > 1 else 0

    def _level(self, unit: float, features: int) -> float:
        """λ, with which A begins."""
        prior = self.prior or 0.0
        return prior if self.units == "none" else prior * unit / self.networks(features)[0].parameters

    def _batches(self, kept: int, slot: int, rng: np.random.Generator) -> Iterator[Array]:
        """The impressions of each step: drawn from those kept, with the newest, or all of them in a random order."""
        for _ in range(self.schedule.steps):
            if self.schedule.refit:
                order = rng.permutation(kept)
                yield from (order[at : at + self.schedule.batch] for at in range(0, kept, self.schedule.batch))
            else:
                chosen = (rng.random(self.schedule.batch) * kept).astype(np.int64)
                chosen[0] = slot
                yield chosen

    def _pulls(self, lists: Lists, chosen: Array, offsets: Array, member: int, scores: Array) -> tuple[Array, float]:
        """The loss of impressions and its slope in their documents' scores."""
        targets = lists.targets[member] if len(lists.targets) else lists.pairs[:0]
        slope, loss, _ = listwise.pair_pulls(
            scores, offsets, chosen, lists.pairs, lists.labels, targets, self.pair_rule
        )
        return slope, loss

    def _remap(self, columns: FeatureMap) -> None:
        level, inputs = self._level(float(self.unit_[0]), columns.before), self._inputs(columns)
        super()._remap(columns)
        self._set_lists(self._lists()._replace(rows=columns.rows(self._lists().rows)))
        self.spread_ = inputs.weights(self.spread_ - level, power=-2) + level

    def _check_loaded(self) -> None:
        super()._check_loaded()
        p, longest = self.weights_.shape[1], self.rows_.shape[1]
        if self.sizes_.size and not 0 <= self.sizes_.min() <= self.sizes_.max() <= longest:
            raise InvalidInput(
                f"state 'sizes_' goes from {self.sizes_.min()} to {self.sizes_.max()}, not 0 to {longest}"
            )
        if self.rows_.size and self.rows_.shape[2] != self.features_[0]:
            raise InvalidInput(f"state 'rows_' has {self.rows_.shape[2]} features, not {self.features_[0]}")
        wanted = (0, 0) if p == 0 or self.prior is None else (1, p)
        if self.spread_.shape != wanted:
            raise InvalidInput(f"state 'spread_' has shape {self.spread_.shape}; it must be {wanted}")

    def _lists(self) -> Lists:
        return Lists(self.rows_, self.sizes_, self.labels_, self.pairs_, self.targets_, self.queries_)

    def _set_lists(self, lists: Lists) -> None:
        self.rows_, self.sizes_, self.labels_, self.pairs_, self.targets_, self.queries_ = lists

    def _shapes(self) -> Shapes:
        kept: Shapes = {"rows_": ("c", "k", "d"), "sizes_": ("c",), "labels_": ("c", "k"), "pairs_": ("c", "k", "k")}
        noisy: Shapes = {"targets_": (self._noisy, "c", "k", "k"), "queries_": ("c",)}
        return {**super()._shapes(), "spread_": ("s", "q"), "seen_": (1,), **kept, **noisy}
