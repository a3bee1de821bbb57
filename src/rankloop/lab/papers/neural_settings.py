"""Who takes part in the experiment with neural rankers, with which settings, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

Params = Mapping[str, Any]
Chosen = Mapping[tuple[str, str], Params]  # (data, contender) -> settings

RANKNET, LAMBDARANK, SKYLINE = "olRankNet", "olLambdaRank", "olLambdaRank GT"  # as the paper calls them
PAIRRANK, EPSILON = "PairRank", "ε-Greedy"
LINEAR_DBGD, NEURAL_DBGD, LINEAR_PDGD, NEURAL_PDGD = "Linear-DBGD", "Neural-DBGD", "Linear-PDGD", "Neural-PDGD"
OURS, BASELINES = (RANKNET, LAMBDARANK), (EPSILON, LINEAR_DBGD, NEURAL_DBGD, LINEAR_PDGD, NEURAL_PDGD, PAIRRANK)

USERS = ("perfect", "navigational", "informational")
CHOICE_SEED = 1000  # of the runs that settings are chosen by: none of those that count


@dataclass(frozen=True)
class Contender:
    """A learner under the name that the paper gives it; of its settings, the best on the vali part is used."""

    name: str
    learner: str
    settings: tuple[Params, ...]


def _rates(*rates: float) -> tuple[Params, ...]:
    return tuple({"rate": rate} for rate in rates)


# The paper's independent pairs, and all pairs weighed by their propensity; two rates each.
_NETS: tuple[Params, ...] = tuple(
    {**pairs, "rate": rate}
    for pairs, rate in product(
        ({"pairs": "matched", "debias": "none"}, {"pairs": "all", "debias": "propensity"}), (0.05, 0.2)
    )
)
# Four settings for everyone: the same chance to be tuned well.
CONTENDERS = (
    Contender(RANKNET, "olranknet", _NETS),
    Contender(LAMBDARANK, "ollambdarank", _NETS),
    Contender(
        PAIRRANK,
        "pairrank",
        tuple({"alpha": alpha, "prior": prior} for alpha, prior in product((0.1, 0.3), (10.0, 30.0))),
    ),
    Contender(LINEAR_PDGD, "pdgd", _rates(0.03, 0.1, 0.3, 1.0)),
    Contender(NEURAL_PDGD, "neural-pdgd", _rates(0.3, 1.0, 3.0, 10.0)),
    Contender(LINEAR_DBGD, "dbgd", _rates(0.01, 0.03, 0.1, 0.3)),
    Contender(NEURAL_DBGD, "neural-dbgd", _rates(0.03, 0.1, 0.3, 1.0)),
    Contender(EPSILON, "epsilon-greedy", _rates(0.001, 0.003, 0.01, 0.03)),
    Contender(SKYLINE, "lambdarank-labels", _rates(0.03, 0.1, 0.3, 1.0)),
)


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    data: tuple[str, ...]
    rounds: int
    seeds: int
    choice_rounds: int  # for choosing settings, one run each


FULL = Scale(
    (
        "synthetic:mq2007?relevance=nonlinear",
        "synthetic:mslr?relevance=strong",
        "synthetic:mslr?relevance=nonlinear",
    ),
    rounds=5000,
    seeds=10,
    choice_rounds=1000,
)
QUICK = Scale(
    ("synthetic:mq2007?relevance=strong&queries=300&vali=80&test=80&docs=30",), rounds=1000, seeds=2, choice_rounds=300
)
