"""A network beside a line: what PairRank learns, and how far the network is believed on top of it."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import memo_of, require, require_choice, require_flag, require_number, require_whole
from rankloop.core.types import Array, Impression
from rankloop.kernels import preferences
from rankloop.learners.neural._adam import AdamRanker
from rankloop.learners.neural._gate import Evidence
from rankloop.learners.neural._neural import MOST, NeuralRanker, Shapes
from rankloop.learners.pairwise._linear import PAIR_RULES
from rankloop.learners.pairwise._start import Start, require_start
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.learners.query_table import query_hash

PREFIX = "line_"  # of what the line has learned, among the arrays of the state


@dataclass
class LinedRanker(AdamRanker):
    """A network that adds to the scores of a line, as much as a gate says; or a network alone.

    Parameters
    ----------
    line
        "pairrank": a line that learns as `PairRank` does, and a gate. "none": neither.
    init, prior_strength
        What the line knows at first, and how many clicks that is worth (`PairRank`).
    line_alpha
        Width of the line's part of the confidence interval.
    validate
        One query in so many never trains the network.
    pairs, debias, examine_next
        What both learn from: which pairs, what each counts, and whether the document below the last click was seen.
    """

    line: Literal["pairrank", "none"] = "pairrank"
    init: Start = "zero"
    prior_strength: float = 50.0
    line_alpha: float = 0.2
    validate: int = 8
    pairs: Literal["all", "matched", "adjacent"] = "all"
    debias: Literal["propensity", "none"] = "propensity"
    examine_next: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("line", self.line, ("pairrank", "none"))
        require_start(self.init)
        require(self.init == "zero" or self.line != "none", "init", self.init, 'needs line="pairrank"')
        require_number("prior_strength", self.prior_strength, 0, above=True)
        require_number("line_alpha", self.line_alpha, 0)
        require_whole("validate", self.validate, 2, MOST)
        require_choice("pairs", self.pairs, tuple(PAIR_RULES))
        require_choice("debias", self.debias, ("propensity", "none"))
        require_flag("examine_next", self.examine_next)
        self._set_evidence(Evidence.none())
        self._line = self._fresh_line()

    def gate(self, query: str) -> float:
        """How much of the network counts for a query, beside the line: what foretold lists of such queries best."""
        if self._line is None or self.weights_.size == 0:
            return float(self._line is None)
        return self._evidence().share(self._knows(query_hash(query)))

    @property
    def strange_gate(self) -> float:
        """How much of the network counts for queries that it was not trained on."""
        if self._line is None or self.weights_.size == 0:
            return float(self._line is None)
        return self._evidence().share(known=False)

    @property
    def line_weights(self) -> Array:
        """(d,) weights of the line, that of the base order last where it starts from it; empty: there are none yet."""
        return np.zeros(0) if self._line is None else self._line.theta_.copy()

    def remap(self, columns: FeatureMap) -> None:
        """Go on with features in other columns, network and line."""
        super().remap(columns)
        if self._line is not None:
            self._line.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of all that is learned."""
        line = {} if self._line is None else self._line.state()
        return {**super().state(), **{f"{PREFIX}{name}": array for name, array in line.items()}}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        twin = copy.copy(self)
        twin._line = self._fresh_line()
        if twin._line is not None:
            own = {name.removeprefix(PREFIX): array for name, array in state.items() if name.startswith(PREFIX)}
            twin._line.load(own)
            state = {name: array for name, array in state.items() if not name.startswith(PREFIX)}
        NeuralRanker.load(twin, state)
        vars(self).update(vars(twin))

    # -- for the learners ------------------------------------------------------------------------------------------

    @abstractmethod
    def _knows(self, query: int) -> bool:
        """Whether the network was trained on a query with this fingerprint, as far as it remembers."""

    def _fresh_line(self) -> PairRank | None:
        """The line, before it has learned: PairRank as it is by default, of the same pairs."""
        if self.line == "none":
            return None
        return PairRank(
            pairs=self.pairs,
            debias=self.debias,
            alpha=self.line_alpha,
            init=self.init,
            prior_strength=self.prior_strength,
            examine_next=self.examine_next,
        )

    def _evidence(self) -> Evidence:
        return Evidence(self.gains_, self.products_)

    def _set_evidence(self, evidence: Evidence) -> None:
        self.gains_, self.products_ = evidence

    def _foretold(self, impression: Impression, clicks: Array, rows: Array, pairs: Array, counts: Array) -> Evidence:
        """The evidence with what a list, which nobody has learned from yet, says of the network.

        Doubtful pairs, whose order was fixed and whose lower document may not have been seen, say nothing here.
        """
        if self._line is None or self.weights_.size == 0:
            return self._evidence()
        if self.debias == "propensity":
            shares = memo_of(impression, "shares", impression.k, impression.k)
            counts = preferences.propensity_weights(shares, np.zeros(len(pairs)), clicks, pairs)
        net = np.mean([member.scores for member in self._forward(rows)], axis=0)
        line, known = self._line._doubt(impression).scores, self._knows(query_hash(impression.query))
        return self._evidence().after(known, line, net, pairs, counts)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        d, base = int(self.features_[0]), self.init == "base"
        if self._line is not None and self.weights_.size and self._line.theta_.size != d + base:
            raise InvalidInput(
                f"state 'line_theta_' has {self._line.theta_.size} weights, but the network has {d} features; "
                "restore a state that one learner wrote, with the same start"
            )

    def _shapes(self) -> Shapes:
        return {**super()._shapes(), "gains_": self.gains_.shape, "products_": self.products_.shape}
