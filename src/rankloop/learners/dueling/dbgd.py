"""Dueling Bandit Gradient Descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    bernoulli_clicks,
    checked_values,
    load_state,
    require_choice,
    require_flag,
    require_number,
    resolve_k,
    seen_of,
    state_of,
)
from rankloop.core.rng import Rng, as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels import dueling
from rankloop.kernels.click_loop import Rounds, dbgd_rounds
from rankloop.learners.dueling import _duel
from rankloop.learners.models.gradient import best_of
from rankloop.learners.models.linear import CARRIES


@dataclass
class DBGD:
    """Interleave the ranker with a random variation of it; take a small step towards the variation if it wins.

    Needs no click model and no gradient. It learns one bit per list, so `pdgd` and `pairrank` learn more from the same
    clicks. Choose it as a baseline, or inside `dm2l` for users who change.

    Parameters
    ----------
    rate
        Length of the step in a direction that won.
    delta
        Distance of the exploring ranker.
    mixing
        How two rankings become one: "probabilistic" interleaving is sensitive to every difference, "team-draft" only to
        what the two rankers put highest.
    dsp
        Document space projection: project a winning direction on the space of the examined documents.
    radius
        The weights stay in a ball of this radius; 0 is no limit.

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
    problem. ICML 2009; Algorithm 1 of paper 004. Probabilistic interleaving: Hofmann et al. 2011, τ = 3. DSP: Wang et
    al., SIGIR 2019. Differences: the winner is computed exactly over all assignments of the clicks, where published
    code samples them; a draw changes nothing. Nothing is learned from lists that someone else ordered.
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

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list mixed from the ranker and a random change of it."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        theta = _duel.weights_of(self.theta_, candidates)
        directions = dueling.unit_rows(rng.standard_normal((1, theta.size)))
        return _duel.duel(candidates, k, theta, directions, self.delta, self.mixing, rng)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        return _duel.no_duel(candidates, order, self.theta_.size)

    def best(self, candidates: Candidates, k: int) -> Array:
        return best_of(self.theta_, candidates, k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """A step towards the exploring ranker, if it won."""
        step = self.step(impression, feedback, as_rng(rng))
        if step is not None:
            self.theta_ = dueling.stepped(self.theta_, step, self.rate, self.radius)

    def step(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> Array | None:
        """(d,) where this feedback says to go, None to stay. θ is left to the caller."""
        clicks = bernoulli_clicks(checked_values(self, impression, feedback), rng)
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
        self.theta_ = columns.weights(self.theta_)

    def remap_memo(self, memo: Mapping[str, Array], columns: FeatureMap) -> dict[str, Array]:
        return {**memo, "directions": columns.weights(memo["directions"])} if "directions" in memo else dict(memo)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        load_state(self, state, {"theta_": ("d",)})
