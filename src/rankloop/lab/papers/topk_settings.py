"""Who takes part in the experiments on top-k feedback, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

# Figures 1 to 3 (section 4.1): 20 items, 5 relevant, each grade flipped with a small probability, T = 10,000
WORLD = "corrupted?items=20&relevant=5&flip=0.1"
ROUNDS = 10_000
BLOCKS = (10, 50, 100, 200, 400)  # Figure 1; the paper calls 200 optimal
FEEDBACK = (1, 5, 10)  # Figure 2, at 200 blocks
FULL_INFORMATION = "FTPL, all grades"
FORMULA = "K by formula"
LEADER = "K by formula, leader below"
HARDER = ("corrupted?flip=0.4", "switching?every=1000", "alternating?flip=0")  # not in the paper
NUMERATORS = (0.001, 0.01, 0.1, 1.0, 10.0)  # of step and exploration, section 4.2: the best of each is taken

LISTNET, RANKSVM, KL, SQUARED, SMOOTH, RANDOM = (
    "ListNet, all grades",
    "RankSVM, top 2",
    "KL, top 1",
    "Squared, top 1",
    "SmoothDCG, top 1",
    "Random",
)
WEIGHTED = "Squared, top 1, weighted"  # ours
CONVEX = (RANKSVM, KL, SQUARED)


def blocks_label(blocks: int) -> str:
    """What Figure 1 calls a number of blocks."""
    return f"K = {blocks}"


def feedback_label(top: int) -> str:
    """What Figure 2 calls an amount of feedback."""
    return f"top {top}"


class Contender(NamedTuple):
    """A learner under the name that Figures 4 and 5 give it."""

    name: str
    learner: str
    params: dict[str, Any]
    tuned: tuple[str, ...]  # parameters of which the best of `NUMERATORS` is taken


# As printed: squared has all scores in its gradient, kl divides by the propensity throughout; mismatch is the paper's
CONTENDERS = (
    Contender(LISTNET, "listnet-full", {}, ("rate",)),
    Contender(RANKSVM, "rtopk", {"surrogate": "ranksvm", "top": 2}, ("rate", "explore")),
    Contender(KL, "rtopk", {"surrogate": "kl", "top": 1}, ("rate", "explore")),
    Contender(SQUARED, "rtopk", {"surrogate": "squared", "top": 1, "known": "exact"}, ("rate", "explore")),
    Contender(WEIGHTED, "rtopk", {"surrogate": "squared", "top": 1}, ("rate", "explore")),
    Contender(SMOOTH, "rtopk", {"surrogate": "smoothdcg", "top": 1}, ("rate", "explore")),
    Contender(RANDOM, "random", {}, ()),
)
TUNED = {contender.name: contender for contender in CONTENDERS if contender.tuned}


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    data: tuple[str, ...]  # of Figures 4 and 5
    rounds: int  # of each run there
    tuning_rounds: int  # of each run that tells which numerators are worth a longer look
    seeds: int
    item_seeds: int  # of Figures 1 to 3
    horizons: tuple[int, ...]  # of the table of slopes
    slope_seeds: int


# Yahoo's set has 19,944 queries of 24 documents, Yandex's 9,126 of 11 with 245 features: their shapes, fewer queries
_YAHOO = "synthetic:yahoo?queries=2000&vali=1&test=1"
_YANDEX = "synthetic:mslr?queries=3000&docs=11&features=245&vali=1&test=1"
_MSLR = "synthetic:mslr?queries=1000&docs=60&vali=1&test=1"
FULL = Scale(
    (_YAHOO, _YANDEX, _MSLR),
    rounds=100_000,
    tuning_rounds=10_000,
    seeds=5,
    item_seeds=20,
    horizons=(1000, 10_000, 100_000, 1_000_000),
    slope_seeds=3,
)
QUICK = Scale(
    (
        "synthetic:yahoo?queries=200&vali=1&test=1",
        "synthetic:mslr?queries=300&docs=11&features=245&vali=1&test=1",
        "synthetic:mq2007?queries=300&vali=1&test=1",
    ),
    rounds=20_000,
    tuning_rounds=5000,
    seeds=3,
    item_seeds=10,
    horizons=(1000, 10_000, 100_000),
    slope_seeds=2,
)
# of the surrogate regret: small enough for the best fixed ranker to be found exactly, many times
SMALL = "synthetic:mq2007?queries=200&docs=10&features=10&vali=1&test=1"
SMALL_RADIUS = 20.0
