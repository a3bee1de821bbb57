"""Meta learning over step sizes: learners that track users whose taste changes (DM²L, M³L, NM²L, and over PDGD)."""

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
from rankloop.learners.pairwise._linear import CARRIES
from rankloop.learners.pairwise.pdgd import PDGD

BASES: dict[str, Any] = {"dbgd": DBGD, "mgd": MGD, "nsgd": NSGD, "pdgd": PDGD}
LOSSES = ("typical", "bound", "paper")
FIRST_HORIZON = 1024  # of the doubling where the horizon is not known


@dataclass
class Meta:
    """Experts that go the same way with different steps, weighed by how well they do; their mean ranks.

    A small step forgets too slowly when users change, a large one never settles. Here N experts share every update
    direction of a base learner, each with its own step size, and Hedge weighs them: after a change the large steps win,
    in quiet times the small ones. It costs a few vectors more than its base.

    Parameters
    ----------
    base
        "dbgd" (DM²L), "mgd" (M³L), "nsgd" (NM²L), or "pdgd": the papers' open question.
    base_parameters
        Parameters of the base learner; its own step size is not used.
    horizon
        How many events there will be, from which steps and weights follow; 0 if that is not known: then it starts with
        1024 and doubles, and at each doubling the experts start together from where they have come.
    reach
        Radius R of the ball in which the experts stay, and unit of the steps.
    finest
        The smallest step, as a share of Theorem 2's R √(5/T).
    losses
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
    Paper 004 (dueling bandits in non-stationary environments), Algorithms 2 and 3 and Theorem 2: the number of experts
    N = ⌈log2 √(1 + 4T/5)⌉ + 1, steps γ_i = 2^(i-1) R √(5/T), first weights π_i = (N + 1) / (i (i + 1) N), Hedge's rate
    α = 4/√T, losses -(d/δ)⟨u, w_i - w⟩: `finest=1, losses="paper"`, with an R that the paper does not tell (say,
    `reach=1`). Where our defaults differ, and why:

    - Losses. They reach 2dR/δ, but Hedge wants at most 1. Divided by this bound they are about 1/√d, for that is the
      cosine of a random direction and any other vector; so the typical size is 2dR/δ/√d. Over PDGD, whose gradient
      is the direction, the length of a gradient above 1 counts too.
    - R = 4δ. A ranker shorter than δ is hardly to be seen beside its changes w + δu, and every list is half random.
    - Steps start at an eighth of the theorem's. Its largest, 2R and more, replace an expert by whatever won last.

    Measured in docs/learners/dueling.md.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "dbgd"
    base_parameters: dict[str, Any] = field(default_factory=dict)
    horizon: int = 0
    reach: float = 4.0
    finest: float = 1 / 8
    losses: Literal["typical", "bound", "paper"] = "typical"

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = f"{CARRIES}, of every expert"

    def __post_init__(self) -> None:
        require_choice("base", self.base, tuple(BASES))
        require_whole("horizon", self.horizon, 0)
        require_number("reach", self.reach, 0, above=True)
        require_number("finest", self.finest, 0, above=True)
        require_choice("losses", self.losses, LOSSES)
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
        return _steps(int(self.horizon_[0]), self.reach, self.finest)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """As the base learner would with the mean of the experts."""
        found: Impression = self._base.rank(candidates, k, rng)
        return found

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """As the base learner would."""
        found: Impression = self._base.adopt(candidates, order)
        return found

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores of the mean."""
        found: Array = self._base.best(candidates, k)
        return found

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
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
        bound = 2.0 * self.reach * max(1.0, dueling.length(step))
        scale = {"typical": bound / sqrt(step.size), "bound": bound, "paper": delta / step.size}[self.losses]
        self.log_weights_, self.experts_, self._base.theta_ = dueling.track(
            self.log_weights_, experts, aggregate, step, self.rates, alpha, scale, self.reach
        )

    def _double(self) -> None:
        self.horizon_, self.rounds_ = self.horizon_ * 2.0, np.zeros(1)
        self.log_weights_ = _logs(first_weights(experts_for(int(self.horizon_[0]))))
        if self.experts_.size:
            self.experts_ = np.repeat(self.theta_[None, :], self.log_weights_.size, axis=0)

    def remap(self, columns: FeatureMap) -> None:
        """Every expert's weights in other columns."""
        self._base.remap(columns)
        self.experts_ = columns.weights(self.experts_)

    def remap_memo(self, memo: Mapping[str, Array], columns: FeatureMap) -> dict[str, Array]:
        """As the base learner's."""
        found: dict[str, Array] = dict(memo)
        return self._base.remap_memo(memo, columns) if hasattr(self._base, "remap_memo") else found

    def state(self) -> dict[str, Array]:
        """The experts, their weights, and what the base learner remembers."""
        inner = {f"base_{name}": value for name, value in self._base.state().items()}
        return {**state_of(self), **inner}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
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


@dataclass
class DM2L(Meta):
    """`Meta` over `DBGD`: DM²L.

    Parameters
    ----------
    base, base_parameters, horizon, reach, finest, losses
        As in `Meta`.

    Examples
    --------
    >>> DM2L(horizon=1000).rates.round(3)
    array([0.035, 0.071, 0.141, 0.283, 0.566, 1.131])
    >>> DM2L(horizon=1000, reach=1.0, finest=1.0, losses="paper").rates.round(3)  # as in the paper
    array([0.071, 0.141, 0.283, 0.566, 1.131, 2.263])

    Notes
    -----
    Paper 004, Algorithm 2. See `Meta`.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "dbgd"


@dataclass
class M3L(Meta):
    """`Meta` over `MGD`: M³L.

    Parameters
    ----------
    base, base_parameters, horizon, reach, finest, losses
        As in `Meta`.

    Examples
    --------
    >>> M3L(base_parameters={"candidates": 19}).base
    'mgd'

    Notes
    -----
    Paper 004, Algorithm 2 with MGD's directions. See `Meta`.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "mgd"


@dataclass
class NM2L(Meta):
    """`Meta` over `NSGD` with document space projection: NM²L.

    Parameters
    ----------
    base, base_parameters, horizon, reach, finest, losses
        As in `Meta`.

    Examples
    --------
    >>> NM2L().base
    'nsgd'

    Notes
    -----
    Paper 004, Algorithm 2 with the directions of NSGD-DSP. See `Meta`. These lie in the space of the documents shown,
    so a step changes a ranking more than one of DBGD of the same length: the steps are half as long.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "nsgd"
    finest: float = 1 / 16


@dataclass
class PM2L(Meta):
    """`Meta` over `PDGD`: tracks change with PDGD's gradient.

    Parameters
    ----------
    base, base_parameters, horizon, reach, finest, losses
        As in `Meta`.

    Examples
    --------
    >>> PM2L().base
    'pdgd'

    Notes
    -----
    The open question at the end of paper 004: experts with different rates share PDGD's gradient. See `Meta`. PDGD
    draws lists by their scores, and short weights leave them random: hence a larger ball.
    """

    base: Literal["dbgd", "mgd", "nsgd", "pdgd"] = "pdgd"
    reach: float = 10.0
    finest: float = 1 / 4


# -- Theorem 2 of paper 004 ----------------------------------------------------------------------------------------


def experts_for(horizon: int) -> int:
    """N = ⌈log2 √(1 + 4T/5)⌉ + 1.

    >>> experts_for(1000)
    6
    """
    return ceil(log2(sqrt(1.0 + 4.0 * horizon / 5.0))) + 1


def rates_for(horizon: int, reach: float) -> Array:
    """γ_i = 2^(i-1) R √(5/T)."""
    rates: Array = 2.0 ** np.arange(experts_for(horizon)) * reach * sqrt(5.0 / horizon)
    return rates


@lru_cache(maxsize=64)
def _steps(horizon: int, reach: float, finest: float) -> Array:
    """Kept, since every event asks for them; not to be written to."""
    steps: Array = finest * rates_for(horizon, reach)
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
