"""Meta learning over step sizes (DM²L, M³L, NM²L, and the same over PDGD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, log2, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import clone, load_state, require, require_choice, require_number, require_whole, state_of
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import dueling
from rankloop.kernels.elementary import exps, log
from rankloop.learners.dueling.dbgd import DBGD
from rankloop.learners.dueling.mgd import MGD
from rankloop.learners.dueling.nsgd import NSGD
from rankloop.learners.models.linear import CARRIES
from rankloop.learners.pairwise.pdgd import PDGD

BASES: dict[str, Any] = {"dbgd": DBGD, "mgd": MGD, "nsgd": NSGD, "pdgd": PDGD}
LOSS_SCALES = ("typical", "bound", "paper")
FIRST_HORIZON = 1024  # of the doubling where the horizon is not known


@dataclass
class Meta:
    """Experts that share every update direction with different step sizes; their weighted mean ranks.

    A small step forgets too slowly when users change, a large one never settles. Hedge weights N experts by how well
    they do: after a change the large steps win, in quiet times the small ones. The learners `dm2l`, `m3l`, `nm2l` and
    `pm2l` are this class over DBGD, MGD, NSGD and PDGD.

    Parameters
    ----------
    base
        "dbgd" (DM²L), "mgd" (M³L), "nsgd" (NM²L), or "pdgd", the papers' open question.
    base_parameters
        Parameters of the base learner; its own step size is not used.
    horizon
        How many events there will be: steps and weights depend on it. 0 if unknown: it starts with 1024 and doubles,
        and at each doubling the experts restart from their mean.
    radius
        Radius R of the ball in which the experts stay, and unit of the steps. PDGD draws lists by scores, so `pm2l` has
        a larger one.
    smallest_step
        The smallest step, as a share of Theorem 2's R √(5/T).
    loss_scale
        What Hedge's losses are divided by: their "typical" size, at which weights follow the experts' merits; their
        "bound", at which a thousand rounds hardly change them; or nothing, as in the "paper", at which they collapse on
        one expert after a few wins.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = Meta(base="dbgd", horizon=1000)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(30):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.weights_.size
    (array(['liked'], dtype='<U5'), 6)

    Notes
    -----
    Lu et al. Non-stationary dueling bandits for online learning to rank (paper 004), Algorithms 2 and 3 and Theorem 2:
    N = ⌈log2 √(1 + 4T/5)⌉ + 1 experts, steps γ_i = 2^(i-1) R √(5/T), first weights (N + 1) / (i (i + 1) N), Hedge's
    rate α = 4/√T, losses -(d/δ)⟨u, w_i - w⟩. `dm2l@paper` and its relatives have all of it. Differences, measured in
    docs/learners/dueling.md:

    - Losses reach 2dR/δ, but Hedge wants at most 1; a random direction's cosine is about 1/√d, so they are divided by
      2R/√d. Over PDGD the length of a gradient above 1 counts, too.
    - R = 4δ: a shorter ranker is hardly visible beside its variations w + δu.
    - Steps start at 1/8 of the theorem's; its largest replace an expert by whatever won last.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "dbgd"
    base_parameters: dict[str, Any] = field(default_factory=dict)
    horizon: int = 0
    radius: float = 4.0
    smallest_step: float = 1 / 8
    loss_scale: Literal["typical", "bound", "paper"] = "typical"

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = f"{CARRIES}, of every expert"

    def __post_init__(self) -> None:
        require_choice("base", self.base, tuple(BASES))
        require_whole("horizon", self.horizon, 0)
        require_number("radius", self.radius, 0, above=True)
        require_number("smallest_step", self.smallest_step, 0, above=True)
        require_choice("loss_scale", self.loss_scale, LOSS_SCALES)
        require(isinstance(self.base_parameters, dict), "base_parameters", self.base_parameters, "must be an object")
        try:
            self._base = BASES[self.base](**self.base_parameters)
        except TypeError as error:
            raise InvalidParameter(f"base_parameters of base {self.base!r}: {error}") from None
        self.experts_: Array = np.zeros((0, 0))
        self.log_weights_: Array = _logs(first_weights(experts_for(self.horizon or FIRST_HORIZON)))
        self.rounds_: Array = np.zeros(1)  # since the horizon last doubled
        self.horizon_: Array = np.array([float(self.horizon or FIRST_HORIZON)])

    @property
    def theta_(self) -> Array:
        """(d,) the weighted mean of the experts, which ranks."""
        found: Array = self._base.theta_
        return found

    @property
    def weights_(self) -> Array:
        """(N,) how much each expert counts."""
        found: Array = exps(self.log_weights_)
        return found

    @property
    def rates(self) -> Array:
        """(N,) the experts' steps."""
        return _steps(int(self.horizon_[0]), self.radius, self.smallest_step)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        found: Impression = self._base.rank(candidates, k, rng)
        return found

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        found: Impression = self._base.adopt(candidates, order)
        return found

    def best(self, candidates: Candidates, k: int) -> Array:
        found: Array = self._base.best(candidates, k)
        return found

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Every expert takes its step, and the weights follow how well each stood before it."""
        step: Array | None = self._base.step(impression, feedback, rng)
        if step is not None:
            self._move(step)
        self.rounds_ = self.rounds_ + 1.0
        if not self.horizon and self.rounds_[0] >= self.horizon_[0]:
            self._double()

    def _move(self, step: Array) -> None:
        experts = self.experts_ if self.experts_.size else np.zeros((self.log_weights_.size, step.size))
        aggregate = self.theta_ if self.theta_.size else np.zeros(step.size)
        alpha, delta = 4.0 / sqrt(self.horizon_[0]), getattr(self._base, "delta", 1.0)
        bound = 2.0 * self.radius * max(1.0, dueling.length(step))
        scale = {"typical": bound / sqrt(step.size), "bound": bound, "paper": delta / step.size}[self.loss_scale]
        self.log_weights_, self.experts_, self._base.theta_ = dueling.track(
            self.log_weights_, experts, aggregate, step, self.rates, alpha, scale, self.radius
        )

    def _double(self) -> None:
        self.horizon_, self.rounds_ = self.horizon_ * 2.0, np.zeros(1)
        self.log_weights_ = _logs(first_weights(experts_for(int(self.horizon_[0]))))
        if self.experts_.size:
            self.experts_ = np.repeat(self.theta_[None, :], self.log_weights_.size, axis=0)

    def remap(self, columns: FeatureMap) -> None:
        self._base.remap(columns)
        self.experts_ = columns.weights(self.experts_)

    def remap_memo(self, memo: Mapping[str, Array], columns: FeatureMap) -> dict[str, Array]:
        found: dict[str, Array] = dict(memo)
        return self._base.remap_memo(memo, columns) if hasattr(self._base, "remap_memo") else found

    def state(self) -> dict[str, Array]:
        """The experts, their weights, and what the base learner remembers."""
        inner = {f"base_{name}": value for name, value in self._base.state().items()}
        return {**state_of(self), **inner}

    def load(self, state: Mapping[str, Array]) -> None:
        inner = {name.removeprefix("base_"): value for name, value in state.items() if name.startswith("base_")}
        outer = {name: value for name, value in state.items() if not name.startswith("base_")}
        fresh, base = clone(self), BASES[self.base](**self.base_parameters)
        base.load(inner)
        shapes: dict[str, tuple[str | int, ...]] = {"experts_": ("n", "d"), "log_weights_": ("m",), "rounds_": (1,)}
        load_state(fresh, outer, {**shapes, "horizon_": (1,)})
        wanted = (fresh.log_weights_.size, base.theta_.size)
        if fresh.experts_.size and fresh.experts_.shape != wanted:
            raise InvalidInput(f"state 'experts_' has shape {fresh.experts_.shape}; it must be {wanted}")
        self.experts_, self.log_weights_ = fresh.experts_, fresh.log_weights_
        self.rounds_, self.horizon_, self._base = fresh.rounds_, fresh.horizon_, base


# -- Theorem 2 of paper 004 ----------------------------------------------------------------------------------------


def experts_for(horizon: int) -> int:
    """N = ⌈log2 √(1 + 4T/5)⌉ + 1.

    >>> experts_for(1000)
    6
    """
    return ceil(log2(sqrt(1.0 + 4.0 * horizon / 5.0))) + 1


def rates_for(horizon: int, radius: float) -> Array:
    """γ_i = 2^(i-1) R √(5/T)."""
    rates: Array = 2.0 ** np.arange(experts_for(horizon)) * radius * sqrt(5.0 / horizon)
    return rates


@lru_cache(maxsize=64)
def _steps(horizon: int, radius: float, smallest_step: float) -> Array:
    """Cached and read-only: every event asks for them."""
    steps: Array = smallest_step * rates_for(horizon, radius)
    steps.setflags(write=False)
    return steps


def first_weights(count: int) -> Array:
    """π_1^i = (N + 1) / (i (i + 1) N).

    >>> first_weights(6).round(3)
    array([0.583, 0.194, 0.097, 0.058, 0.039, 0.028])
    """
    i = np.arange(1, count + 1)
    weights: Array = (count + 1.0) / (i * (i + 1.0) * count)
    return weights


def _logs(values: Array) -> Array:
    return np.array([log(value) for value in values])
