"""What the paper on neural rankers learned online says about its experiments (section 5), held against our runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from rankloop.lab.data.lda import Projection
from rankloop.lab.figures.learning import short_names
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers.evidence import Gap, at, claim_all, claim_higher, gaps
from rankloop.lab.papers.neural_settings import (
    BASELINES,
    EPSILON,
    LAMBDARANK,
    LINEAR_DBGD,
    LINEAR_PDGD,
    NEURAL_DBGD,
    NEURAL_PDGD,
    OURS,
    PAIRRANK,
    RANKNET,
    SKYLINE,
)
from rankloop.lab.runs.results import Curve, curves

OFFLINE, ONLINE, CERTAIN = "offline.ndcg@10", "online.cndcg", "certain@10"
_OTHERS = (EPSILON, LINEAR_PDGD, NEURAL_PDGD, PAIRRANK, *OURS)  # all that are not DBGD
_START, _EARLY = 0.02, 0.2  # shares of the rounds: "at the beginning", and where users' shares of certain pairs differ
_SEPARATED = 0.75  # of the documents nearest to their own grade's centre: what we would call separated
_LITTLE = 0.02  # of the cumulative NDCG: "not very significant"


def claims(table: pa.Table, planes: Mapping[str, Projection]) -> list[Claim]:
    """The paper's claims in its order, each with what these results say; labels are the paper's names."""
    return [_separation(planes), *_offline(table), *_online(table), *_certain(table)]


def _separation(planes: Mapping[str, Projection]) -> Claim:
    expected, source = "A linear view of the data does not separate its grades", "5.1, Figure 3"
    if not planes:
        return Claim(expected, "no data set was looked at", "not tested", source)
    seen = "; ".join(
        f"{name}: {plane.right:.0%} of the documents nearest to their grade's centre (guessing: {plane.chance:.0%})"
        for name, plane in planes.items()
    )
    mixed = all(plane.right < _SEPARATED for plane in planes.values())
    return Claim(expected, f"{seen}; each grade counts the same", "seen" if mixed else "not seen", source)


def _offline(table: pa.Table) -> list[Claim]:
    where = "5.2, Figure 4"
    start = f", after {_START:.0%} of the rounds"
    return [
        claim_higher(
            "olRankNet and olLambdaRank end with a better ranker than all baselines",
            where,
            OFFLINE,
            gaps(table, OFFLINE, OURS, BASELINES),
        ),
        claim_higher(
            "They have a worse start than PairRank",
            where,
            OFFLINE,
            gaps(table, OFFLINE, [PAIRRANK], OURS, share=_START),
            start,
        ),
        claim_higher(
            "With more rounds they pass PairRank, and end above it",
            where,
            OFFLINE,
            gaps(table, OFFLINE, OURS, [PAIRRANK]),
        ),
        claim_higher(
            "Linear and neural DBGD perform worst",
            where,
            OFFLINE,
            gaps(table, OFFLINE, _OTHERS, [LINEAR_DBGD, NEURAL_DBGD]),
        ),
        claim_higher(
            "PDGD outperforms DBGD, linear and neural",
            where,
            OFFLINE,
            [*gaps(table, OFFLINE, [LINEAR_PDGD], [LINEAR_DBGD]), *gaps(table, OFFLINE, [NEURAL_PDGD], [NEURAL_DBGD])],
        ),
        claim_higher(
            "A network does not help PDGD within these rounds: the linear one is better",
            where,
            OFFLINE,
            gaps(table, OFFLINE, [LINEAR_PDGD], [NEURAL_PDGD]),
        ),
        claim_higher(
            "olLambdaRank ends with a better ranker than olRankNet",
            where,
            OFFLINE,
            gaps(table, OFFLINE, [LAMBDARANK], [RANKNET]),
        ),
        claim_all(
            "olLambdaRank is at least as good as olRankNet late in the run",
            where,
            gaps(table, OFFLINE, [LAMBDARANK], [RANKNET]),
            lambda gap: not gap._replace(value=-gap.value).sure,
            "not surely worse",
        ),
        claim_higher(
            "The model that is told true grades (olLambdaRank GT) is above all",
            where,
            OFFLINE,
            gaps(table, OFFLINE, [SKYLINE], [*OURS, *BASELINES]),
        ),
    ]


def _online(table: pa.Table) -> list[Claim]:
    where = "5.2, Figure 5"
    worse = gaps(table, ONLINE, OURS, [LINEAR_PDGD, NEURAL_PDGD], users=["navigational", "informational"])
    alike = _relative(table, ONLINE, LAMBDARANK, RANKNET)
    return [
        claim_higher(
            "olRankNet and olLambdaRank serve users better while they learn than all baselines",
            where,
            ONLINE,
            gaps(table, ONLINE, OURS, BASELINES),
        ),
        claim_higher(
            "PDGD serves navigational and informational users worse than they do",
            where,
            ONLINE,
            worse,
        ),
        claim_higher(
            "DBGD serves users worst",
            where,
            ONLINE,
            gaps(table, ONLINE, _OTHERS, [LINEAR_DBGD, NEURAL_DBGD]),
        ),
        claim_all(
            "Online the difference between olLambdaRank and olRankNet is not very significant",
            where,
            alike,
            lambda gap: gap.within(_LITTLE),
            f"within {_LITTLE:.0%} (and two standard errors)",
        ),
    ]


def _certain(table: pa.Table) -> list[Claim]:
    where = "5.2, Figure 6"
    found = {key: curve for key, curve in curves(table, CERTAIN).items() if key[2] == RANKNET}
    names = short_names(data for data, _, _ in found)
    rises, slower = [], []
    for (data, user, _), curve in found.items():
        rises.append(Gap(f"{names[data]}, {user}", "end - early", *_change(curve)))
        slow = found.get((data, "navigational", RANKNET))
        if user != "navigational" and slow is not None:
            difference = _level(curve) - _level(slow)
            slower.append(Gap(names[data], f"{user} - navigational", difference, np.nan))
    return [
        claim_higher(
            "The share of certain pairs in the first ten rises with the rounds",
            where,
            CERTAIN,
            rises,
            f", at the end against after {_START:.0%} of the rounds",
        ),
        claim_all(
            "It rises slowest for navigational users, who click least",
            where,
            slower,
            lambda gap: gap.sure,
            f"a lower share for them over the first {_EARLY:.0%} of the rounds",
        ),
    ]


def _change(curve: Curve) -> tuple[float, float]:
    """From the start to the end, over seeds."""
    changes = np.array([values[-1] - values[at(curve, _START)] for values in curve.values.values()])
    return float(changes.mean()), float(changes.std(ddof=1) / np.sqrt(changes.size)) if changes.size > 1 else np.nan


def _level(curve: Curve) -> float:
    """Mean over the checkpoints up to the early one."""
    return float(curve.mean[: at(curve, _EARLY) + 1].mean())


def _relative(table: pa.Table, measure: str, one: str, other: str) -> Sequence[Gap]:
    """Differences as shares of the other's value."""
    found = curves(table, measure)
    names = short_names(data for data, _, _ in found)
    made = []
    for gap, (data, user) in zip(
        gaps(table, measure, [one], [other]),
        [(d, u) for d, u, label in found if label == one and (d, u, other) in found],
        strict=True,
    ):
        level = float(found[data, user, other].mean[-1])
        setting = f"{names[data]}, {user}"
        made.append(Gap(setting, f"{one} / {other} - 1", gap.value / level, gap.error / level))
    return made
