"""Null Space Gradient Descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, require_whole, resolve_k, state_of
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import dueling
from rankloop.kernels.interleaving import expected_clicks
from rankloop.kernels.products import row_products
from rankloop.learners.dueling import _duel
from rankloop.learners.dueling.mgd import MGD
from rankloop.learners.models.linear import CARRIES


@dataclass
class NSGD(MGD):
    """MGD that avoids directions that lost and prefers directions that matter for the query.

    It explores orthogonally to the worst directions that lost, takes from twice as many random directions those that
    change this query's scores most, and lets recent lists that it ranked wrongly decide between several winners. With
    `dsp` it is the strongest of the DBGD family.

    Parameters
    ----------
    memory
        How many losing directions to remember.
    avoided
        How many of them, those that lost by most clicks, to avoid.
    hard_lists
        How many lists on which the ranker lost are kept to decide between winners; 0 steps to the winners' mean.
    dsp
        Document space projection, on by default: NSGD-DSP, the baseline of paper 004.
    candidates, rate, delta, mixing, radius
        As in `MGD`.

    Examples
    --------
    >>> learner = NSGD(dsp=False)
    >>> learner.rank(Candidates(features=np.eye(3)), 2, np.random.default_rng(0)).memo["directions"].shape
    (9, 3)

    Notes
    -----
    Huazheng Wang, Ramsey Langley, Sonwoo Kim, Eric McCord-Snook and Hongning Wang. Efficient exploration of gradient
    space for online learning to rank. SIGIR 2018, Algorithm 1, with its memory 60, worst 25 and 9 of 2 (9 + 1)
    directions. A direction's deficit is the number of expected clicks by which its ranker lost.
    """

    rate: float = 0.01
    mixing: Literal["probabilistic", "team-draft"] = "probabilistic"
    dsp: bool = True
    memory: int = 60
    avoided: int = 25
    hard_lists: int = 10

    carries: ClassVar[str] = f"{CARRIES}; directions that lost and hard lists are forgotten"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("memory", 1), ("avoided", 0), ("hard_lists", 0)):
            require_whole(name, getattr(self, name), least)
        self.bad_: Array = np.zeros((0, 0))  # directions that lost, the oldest first
        self.deficits_: Array = np.zeros(0)  # by how many clicks
        self.hard_rows_: Array = np.zeros((0, 0))  # x_clicked - x_unclicked of lists on which θ lost, the oldest first
        self.hard_lists_: Array = np.zeros(0)  # which list a row belongs to
        self.lists_: Array = np.zeros(1)  # how many there have been

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list mixed from the ranker and the changes of it that have not failed and matter most here."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        theta = _duel.weights_of(self.theta_, candidates)
        tried = dueling.unit_rows(rng.standard_normal((2 * (self.candidates + 1), theta.size)))
        if self.avoided and len(self.bad_):
            keep = np.argsort(-self.deficits_, kind="stable")[: min(self.avoided, theta.size - 1)]
            tried = dueling.null_directions(tried, self.bad_[keep])
        assert candidates.features is not None  # weights_of has looked
        telling = np.abs(row_products(tried, candidates.features.mean(axis=0)))
        directions = tried[np.argsort(-telling, kind="stable")[: self.candidates]]
        return _duel.duel(candidates, k, theta, directions, self.delta, self.mixing, rng)

    def step(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> Array | None:
        """(d,) towards the best winner, None to stay; what lost is remembered. θ is left to the caller."""
        verdict = _duel.verdict_of(self, impression, feedback, self.theta_.size, rng)
        if verdict is None:
            return None
        winners = np.flatnonzero(verdict.win[1:] > verdict.loss[1:])
        step = self._towards(verdict, winners) if winners.size else None
        self._remember(verdict)
        if self.hard_lists and winners.size:
            self._keep_list(verdict.rows, verdict.clicks)
        return step

    def _towards(self, verdict: _duel.Verdict, winners: Array) -> Array:
        """The winner that has most of the hard lists' pairs right; while there are none, the winners' mean."""
        directions = verdict.directions[winners]
        chosen: Array = directions.sum(axis=0) / winners.size
        if winners.size > 1 and len(self.hard_rows_):
            theta = self.theta_ if self.theta_.size else np.zeros(directions.shape[1])
            right = dueling.right_pairs(self.hard_rows_, theta + self.delta * directions)
            chosen = directions[int(np.argmax(right))]
        if not self.dsp:
            return chosen
        return dueling.projected(chosen, _duel.examined_rows(verdict.rows, verdict.clicks, verdict.seen))

    def _remember(self, verdict: _duel.Verdict) -> None:
        """Keep the directions that lost."""
        lost = np.flatnonzero(verdict.loss[1:] > verdict.win[1:])
        if lost.size:
            owned = expected_clicks(verdict.credit, verdict.clicks)
            bad = self.bad_ if len(self.bad_) else np.zeros((0, verdict.rows.shape[1]))
            self.bad_ = np.concatenate([bad, verdict.directions[lost]])[-self.memory :]
            self.deficits_ = np.concatenate([self.deficits_, owned[0] - owned[1 + lost]])[-self.memory :]

    def _keep_list(self, rows: Array, clicks: Array) -> None:
        clicked = np.flatnonzero(clicks)
        skipped = np.flatnonzero(clicks[: clicked[-1] + 1] == 0)
        pairs = (rows[clicked][:, None, :] - rows[skipped][None, :, :]).reshape(-1, rows.shape[1])
        if len(pairs) == 0:
            return
        old = self.hard_rows_ if len(self.hard_rows_) else np.zeros((0, rows.shape[1]))
        self.lists_ = self.lists_ + 1
        lists = np.concatenate([self.hard_lists_, np.full(len(pairs), self.lists_[0])])
        recent = lists > self.lists_[0] - self.hard_lists
        self.hard_rows_, self.hard_lists_ = np.concatenate([old, pairs])[recent], lists[recent]

    def remap(self, columns: FeatureMap) -> None:
        if columns.identity:
            return
        super().remap(columns)
        self.bad_, self.deficits_ = np.zeros((0, 0)), np.zeros(0)
        self.hard_rows_, self.hard_lists_ = np.zeros((0, 0)), np.zeros(0)

    def state(self) -> dict[str, Array]:
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        widths = {name: np.asarray(state.get(name)).shape[1:] for name in ("bad_", "hard_rows_")}
        theta = np.asarray(state.get("theta_"))
        for name, width in widths.items():
            if len(np.asarray(state.get(name, np.zeros(0)))) and theta.size and width != theta.shape:
                raise InvalidInput(f"state {name!r} is {width} wide; it must be as wide as 'theta_' {theta.shape}")
        shapes: dict[str, tuple[str | int, ...]] = {"theta_": ("d",), "bad_": ("m", "b"), "deficits_": ("m",)}
        load_state(self, state, {**shapes, "hard_rows_": ("h", "w"), "hard_lists_": ("h",), "lists_": (1,)})
