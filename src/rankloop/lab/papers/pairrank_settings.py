"""Who takes part in the PairRank experiment, with which settings, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankloop.lab.papers.pairrank_claims import CONSERVATIVE, DBGD, EPSILON, MGD, OFFLINE, PDGD, RANDOM, SGD

Params = Mapping[str, Any]
Chosen = Mapping[tuple[str, str], Params]  # (data, contender) -> settings

USERS = ("perfect", "navigational", "informational")
# The paper's rules: Algorithm 1, disjoint neighbours as pairs, Eq. (1) refitted after every click.
PAPER: Params = {
    "certainty": "probability",
    "pairs": "adjacent",
    "update": "refit",
    "debias": "none",
    "scale": "one",
}
ALPHAS = (0.1, 0.01, 0.001, 0.0001)  # the paper's grid
LAMBDAS = (0.1, 10.0)  # of θ and of M, which the paper gives one λ: the published README's, and a stronger one
GRID = tuple({**PAPER, "alpha": alpha, "prior": value, "ridge": value} for value in LAMBDAS for alpha in ALPHAS)
PROBES: Mapping[str, tuple[str, ...]] = {"pairrank": ("closeness", "blocks"), "offline-ranknet": (), "random": ()}
RATES = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class Contender:
    """A learner under the name that the paper gives it; of several settings, the best on the vali part is used.

    One that is `like` another takes what was chosen for that one and changes it by its own settings, so that the two
    differ in nothing else.
    """

    name: str
    learner: str
    settings: tuple[Params, ...] = ({},)
    like: str = ""


CONTENDERS = (
    Contender(CONSERVATIVE, "pairrank", tuple({"explore": "conservative", **paper} for paper in GRID)),
    Contender(RANDOM, "pairrank", ({"explore": "random"},), like=CONSERVATIVE),
    Contender("PairRank (rankloop)", "pairrank"),
    Contender(PDGD, "pdgd"),
    Contender(DBGD, "dbgd"),
    Contender(MGD, "mgd"),
    Contender(SGD, "greedy", tuple({"rate": rate} for rate in RATES)),
    Contender(EPSILON, "epsilon-greedy", tuple({"rate": rate} for rate in RATES)),
    Contender(OFFLINE, "offline-ranknet"),
    Contender("random", "random"),
)


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    data: tuple[str, ...]
    rounds: int
    seeds: int
    choice_rounds: int  # for choosing settings, one seed each
    refit_rounds: int  # for the comparison with the exact refit, on the first data set


FULL = Scale(("synthetic:mslr", "synthetic:yahoo"), 5000, 5, 1000, 500)
QUICK = Scale(
    ("synthetic:mslr?queries=200&vali=80&test=80&docs=60", "synthetic:yahoo?queries=200&vali=80&test=80&features=100"),
    rounds=1000,
    seeds=3,
    choice_rounds=300,
    refit_rounds=100,
)
