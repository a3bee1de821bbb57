"""Who takes part in BubbleRank's experiments, and how large they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankloop.lab.runs.bandit_trial import Start

BUBBLE0, BUBBLEKL, KLUCB = "BubbleRank0", "BubbleRankKL", "CascadeKL-UCB"  # as section 5 calls them
BATCH, PRINTED, TOP = "BatchRank", "BatchRank, as printed", "TopRank"  # the last two are not in the paper
MODELS = ("CM", "PBM")  # of a source that has more
POWERS = (1, 2, 3, 4, 5)  # of 0.5: how often the last two positions are examined in the last experiment
SAFETY_ROUNDS = 100_000  # in which unsafe lists are counted


class Contender(NamedTuple):
    """A learner under the name that the paper gives it."""

    name: str
    learner: str
    more: Mapping[str, Any]  # parameters, beside the horizon
    start: Start = "given"
    horizon: bool = True  # is told how many rounds there will be

    def params(self, rounds: int) -> dict[str, Any]:
        """With the horizon, as the paper has it: δ = n⁻⁴ for BubbleRank."""
        return {**({"horizon": rounds} if self.horizon else {}), **self.more}


CONTENDERS = (
    Contender(BUBBLE0, "bubblerank", {}, "random"),
    Contender(BUBBLEKL, "bubblerank", {}, "warm"),
    Contender(KLUCB, "cascade-klucb", {}, horizon=False),
    Contender(BATCH, "batchrank", {"variant": "merge"}),
    Contender(PRINTED, "batchrank", {}),
    Contender(TOP, "toprank", {}),
)


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    models: tuple[str, ...]  # sources of click models
    rounds: int
    runs: int  # of each learner with each query and model
    lists: int  # random lists for BubbleRank0: its runs
    faint_rounds: int
    faint_runs: int

    def runs_of(self, name: str) -> int:
        """BubbleRank0 has a list a run; the other BatchRank is there to compare with, and slow."""
        return {BUBBLE0: self.lists, PRINTED: 1}.get(name, self.runs)


FULL = Scale(("generated",), rounds=10_000_000, runs=3, lists=10, faint_rounds=1_000_000, faint_runs=10)
QUICK = Scale(("generated?queries=4",), rounds=200_000, runs=2, lists=5, faint_rounds=1_000_000, faint_runs=2)
