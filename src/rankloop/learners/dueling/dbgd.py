"""DBGD: Dueling Bandit Gradient Descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_values,
    cut,
    load_state,
    require_choice,
    require_flag,
    require_number,
    seen_of,
    state_of,
    tossed,
)
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import dueling
from rankloop.kernels.click_loop import Rounds, dbgd_rounds
from rankloop.learners.dueling import _duel
from rankloop.learners.pairwise._linear import CARRIES, best_of


@dataclass
class DBGD:
    """Try a random change of the ranker on every list, mixed with the ranker itself; keep a bit of it if it wins.

    Needs no model of clicks and no gradient, and is the ancestor of all learners that explore in model space. It
    learns from one bit a list, so it is slow: `pdgd` and `pairrank` learn more from the same clicks. Choose it as a
    baseline, or below `dm2l` where users change.

    Parameters
    ----------
    rate
        How far to go in a direction that won.
    delta
        How far away the exploring ranker is.
    mixing
        How the two rankings become one list: "probabilistic" sees every difference, "team-draft" shows only what the
        two rankers put highest.
    dsp
        Project a winning direction on the space of the documents that were looked at (document space projection): what
        no shown document could tell is left alone.
    radius
        Keep the weights in a ball of this radius; 0 is no limit.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = DBGD(rate=0.1)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Yisong Yue and Thorsten Joachims. Interactively optimizing information retrieval systems as a dueling bandits
    problem. ICML 2009; as in Algorithm 1 of paper 004, with probabilistic interleaving (Hofmann et al. 2011, τ = 3).
    The exploring ranker wins if, over all ways in which the list can have come about, it is more likely to own more of
    the clicks than to own fewer: computed exactly, where published code samples assignments. A draw changes nothing.
    rate and delta are the usual .01 and 1. DSP: Wang et al., Variance reduction in gradient exploration for online
    learning to rank, SIGIR 2019. Lists that someone else ordered (shadow exposure) compare nobody, so nothing is
    learned from them.
    """

    rate: float = 0.01
    delta: float = 1.0
    mixing: Literal["probabilistic", "team-draft"] = "probabilistic"
    dsp: bool = False
    radius: float = 0.0

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def __post_init__(self) -> None:
        require_number("rate", self.rate, 0, above=True)
        require_number("delta", self.delta, 0, above=True)
        require_choice("mixing", self.mixing, _duel.MIXINGS)
        require_flag("dsp", self.dsp)
        require_number("radius", self.radius, 0)
        self.theta_: Array = np.zeros(0)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """A list mixed from the ranker and a random change of it."""
        k = cut(candidates, k, rng)
        theta = _duel.weights_of(self.theta_, candidates)
        directions = dueling.unit_rows(rng.standard_normal((1, theta.size)))
        return _duel.duel(candidates, k, theta, directions, self.delta, self.mixing, rng)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; nothing will be learned from it."""
        return _duel.no_duel(candidates, order, self.theta_.size)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """A step towards the exploring ranker, if it won."""
        step = self.step(impression, feedback, rng)
        if step is not None:
            self.theta_ = dueling.stepped(self.theta_, step, self.rate, self.radius)

    def step(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> Array | None:
        """(d,) where this feedback says to go, None to stay. θ is left to the caller."""
        clicks = tossed(checked_values(self, impression, feedback), rng)
        rows, directions, credit = _duel.duel_of(impression, self.theta_.size)
        mean = dueling.winning_direction(directions, credit, clicks)
        if mean.size == 0:
            return None
        seen = seen_of(impression, feedback)
        return dueling.projected(mean, _duel.examined_rows(rows, clicks, seen)) if self.dsp else mean

    def compiled_rounds(self) -> Callable[[Rounds, int, Rng], None] | None:
        """What takes this learner through many rounds of a simulation at once: `rank` and `learn`, bit for bit.

        None for learners made of this one, and where directions are projected or lists are drafted.
        """
        if type(self) is not DBGD or self.dsp or self.mixing != "probabilistic":
            return None

        def loop(rounds: Rounds, first: int, streams: Rng) -> None:
            size, width = rounds.queries.size, rounds.features.shape[1]
            lengths = np.diff(rounds.offsets)
            drawn = _duel.Numbers(
                np.empty((size, width)), np.empty((size, int(lengths.max()))), np.empty_like(rounds.coins)
            )
            for b, n in enumerate(lengths[rounds.queries].tolist()):
                rng = streams.for_event("rank", first + b)
                rng.standard_normal(out=drawn.normals[b])
                rng.random(out=drawn.ties[b, :n])
                rng.random(out=drawn.coins[b, : 2 * min(n, rounds.orders.shape[1])])
            soft = _duel.soft_ranks_of_all(tuple(np.unique(lengths).tolist()))
            self.theta_ = dbgd_rounds(rounds, *drawn, soft, self.theta_, self.rate, self.delta, self.radius)

        return loop

    def remap(self, columns: FeatureMap) -> None:
        """θ in other columns."""
        self.theta_ = columns.weights(self.theta_)

    def remap_memo(self, memo: Mapping[str, Array], columns: FeatureMap) -> dict[str, Array]:
        """The directions that were compared, in other columns."""
        return {**memo, "directions": columns.weights(memo["directions"])} if "directions" in memo else dict(memo)

    def state(self) -> dict[str, Array]:
        """θ."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        load_state(self, state, {"theta_": ("d",)})
