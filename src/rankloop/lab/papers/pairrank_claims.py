"""What the PairRank paper says about its experiments (section 4.2), held against our runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rankloop.lab.figures.learning import short_names
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers.evidence import Gap, at, claim_all, claim_higher, gaps
from rankloop.lab.runs.probes import BLOCK_RANKS
from rankloop.lab.runs.results import Curve, curves

CONSERVATIVE, RANDOM = "PairRank_C", "PairRank_R"
PDGD, SGD, EPSILON, OFFLINE = "PDGD", "SGD RankNet", "ε-greedy", "offline RankNet"
DBGD, MGD = "DBGD", "MGD"
PAIRRANKS, DUELS = (CONSERVATIVE, RANDOM), (DBGD, MGD)
BASELINES = (*DUELS, PDGD, SGD, EPSILON)

_COMPARABLE = 0.02  # of NDCG@10: about the width of the lines that the paper calls comparable
_CLOSE = 0.02  # of NDCG@10, to the offline model
_ONE = 1.5  # a mean block size that rounds to 1
_HUNDREDS = 1000  # "after hundred rounds of interactions"
_EARLY = 0.1  # share of the rounds at which "faster" and "early" are claim_all


def claims(table: pa.Table) -> list[Claim]:
    """The paper's claims in its order, each with what these results say; labels are the paper's names."""
    return [*_offline(table), *_online(table), *_closeness(table), *_blocks(table)]


def _offline(table: pa.Table) -> list[Claim]:
    where, measure = "4.2.1, Figure 3", "offline.ndcg@10"
    comparable = gaps(table, measure, [SGD], [PDGD])
    ceiling = gaps(table, measure, [CONSERVATIVE], [OFFLINE], users=["perfect"])
    return [
        claim_higher(
            "Both PairRank variants end with a better ranker than all of DBGD, MGD, PDGD, SGD RankNet and ε-greedy",
            where,
            measure,
            gaps(table, measure, PAIRRANKS, BASELINES),
        ),
        claim_higher(
            "Conservative exploration (PairRank_C) gives a better ranker than random exploration (PairRank_R)",
            where,
            measure,
            gaps(table, measure, [CONSERVATIVE], [RANDOM]),
        ),
        claim_higher(  # ε-greedy is left out: the paper says that it is often below even MGD
            "DBGD and MGD end with worse rankers than SGD RankNet and both PairRank variants",
            where,
            measure,
            gaps(table, measure, [*PAIRRANKS, SGD], DUELS),
        ),
        claim_higher("PDGD consistently outperforms DBGD and MGD", where, measure, gaps(table, measure, [PDGD], DUELS)),
        claim_all(
            "SGD RankNet performs comparably to PDGD",
            where,
            comparable,
            lambda gap: gap.within(_COMPARABLE),
            f"within {_COMPARABLE} of NDCG@10 (and two standard errors)",
        ),
        claim_higher(
            "ε-greedy suffers from exploring regardless of what it knows: worse than SGD RankNet and PDGD",
            where,
            measure,
            gaps(table, measure, [SGD, PDGD], [EPSILON]),
        ),
        claim_all(
            "With perfect users PairRank reaches its offline counterpart within a few thousand impressions",
            where,
            ceiling,
            lambda gap: gap.value >= -_CLOSE,
            f"less than {_CLOSE} of NDCG@10 below the offline model",
        ),
    ]


def _online(table: pa.Table) -> list[Claim]:
    where, measure = "4.2.2, Figure 4", "online.cndcg"
    return [
        claim_higher(
            "Both PairRank variants serve users better while they learn than DBGD, MGD, PDGD, SGD RankNet and ε-greedy",
            where,
            measure,
            gaps(table, measure, PAIRRANKS, BASELINES),
        ),
        claim_higher(
            "PairRank_C serves users better than PairRank_R",
            where,
            measure,
            gaps(table, measure, [CONSERVATIVE], [RANDOM]),
        ),
        claim_higher(
            "SGD RankNet serves users better than PDGD, whose sampling distorts the lists",
            where,
            measure,
            gaps(table, measure, [SGD], [PDGD]),
        ),
        claim_higher(
            "Exploration that does not look at the model hurts: ε-greedy is below SGD RankNet",
            where,
            measure,
            gaps(table, measure, [SGD], [EPSILON]),
        ),
    ]


def _closeness(table: pa.Table) -> list[Claim]:
    where, measure = "4.2.3, Figure 5", "cosine"
    learners, names = (*PAIRRANKS, PDGD, SGD), short_names(table["data"].to_pylist())
    grown = [
        Gap(f"{names[data]}, {user}", f"{label}, end - early", *_change(curve))
        for (data, user, label), curve in curves(table, measure).items()
        if label in learners
    ]
    early = f", after {_EARLY:.0%} of the rounds"
    return [
        claim_higher(
            "All pairwise learners come closer to the offline model with more rounds",
            where,
            measure,
            [gap for gap in grown if np.isfinite(gap.value)],
            f", at the end against after {_EARLY:.0%} of the rounds",
        ),
        claim_higher(
            "PairRank comes close to the offline model faster than PDGD and SGD RankNet",
            where,
            measure,
            gaps(table, measure, PAIRRANKS, [PDGD, SGD], share=_EARLY),
            early,
        ),
        claim_higher(
            "PairRank ends closer to the offline model than PDGD and SGD RankNet",
            where,
            measure,
            gaps(table, measure, PAIRRANKS, [PDGD, SGD]),
        ),
        claim_higher(
            "SGD RankNet, which has the offline model's objective, comes close to it faster than PDGD",
            where,
            measure,
            gaps(table, measure, [SGD], [PDGD], share=_EARLY),
            early,
        ),
        claim_higher(
            "The rankers of DBGD and MGD are far from the offline model: farther than all pairwise learners' rankers",
            where,
            measure,
            gaps(table, measure, learners, DUELS),
        ),
    ]


def _change(curve: Curve) -> tuple[float, float]:
    """From the early checkpoint to the end, over seeds."""
    early = at(curve, _EARLY)
    changes = np.array([values[-1] - values[early] for values in curve.values.values()])
    changes = changes[np.isfinite(changes)]
    if changes.size == 0:
        return np.nan, np.nan
    return float(changes.mean()), float(changes.std(ddof=1) / np.sqrt(changes.size)) if changes.size > 1 else np.nan


def _blocks(table: pa.Table) -> list[Claim]:
    first, last = min(BLOCK_RANKS), max(BLOCK_RANKS)
    return [
        _falls_to_one(table, first),
        _navigational(
            table,
            f"block_size@{first}",
            f"The block at rank {first} shrinks slowest for navigational users, who click least",
            "4.2.4, Figure 6",
            sign=1.0,
        ),
        _larger(
            table,
            last,
            [first],
            f"The block at rank {last} shrinks much slower than that at rank {first}",
            "4.2.4, Figure 6",
        ),
        _navigational(
            table,
            "blocks",
            "At the early stages PairRank has fewer blocks for navigational users than for the others",
            "4.2.4, Figure 7b",
            sign=-1.0,
        ),
        _larger(
            table,
            "middle",
            [first, "last"],
            "Blocks are larger in the middle of the list than at the top and at the bottom",
            "4.2.4, Figure 7a",
        ),
    ]


def _falls_to_one(table: pa.Table, rank: int) -> Claim:
    expected = f"The size of the block at rank {rank} falls to 1 within hundreds of rounds"
    reached, good, settings = [], 0, 0
    sizes = curves(table, f"block_size@{rank}")
    names = short_names(data for data, _, _ in sizes)
    for (data, user, label), curve in sizes.items():
        if label == CONSERVATIVE:
            below = np.flatnonzero(curve.mean <= _ONE)
            settings += 1
            good += below.size > 0 and curve.rounds[below[0]] < _HUNDREDS
            when = f"by round {curve.rounds[below[0]]}" if below.size else f"not (it ends at {curve.mean[-1]:.3g})"
            reached.append(f"{names[data]}, {user}: {when}")
    if not settings:
        return Claim(expected, "no run of this report measures it", "not tested", "4.2.4, Figure 6")
    text = f"mean size at most {_ONE} before round {_HUNDREDS} in {good} of {settings} settings; {'; '.join(reached)}"
    return Claim(expected, text, "seen" if good == settings else "not seen", "4.2.4, Figure 6")


def _navigational(table: pa.Table, measure: str, expected: str, source: str, sign: float) -> Claim:
    """Navigational users against each of the others, by the mean over the checkpoints up to the early one."""
    found = {key: curve for key, curve in curves(table, measure).items() if key[2] == CONSERVATIVE}
    names = short_names(data for data, _, _ in found)
    made = []
    for (data, user, _), curve in found.items():
        slow = found.get((data, "navigational", CONSERVATIVE))
        if user != "navigational" and slow is not None:
            difference = sign * (_early_mean(slow) - _early_mean(curve))
            made.append(Gap(names[data], "navigational against " + user, difference, np.nan))
    order = "larger" if sign > 0 else "fewer"
    return claim_all(expected, source, made, lambda gap: gap.sure, f"{order} over the first {_EARLY:.0%} of the rounds")


def _larger(table: pa.Table, larger: int | str, smaller: list[int | str], expected: str, source: str) -> Claim:
    """The block at one rank against that at others, on average over the checkpoints."""
    found = curves(table, f"block_size@{larger}")
    names = short_names(data for data, _, _ in found)
    made = []
    for rank in smaller:
        others = curves(table, f"block_size@{rank}")
        for key, curve in found.items():
            if key[2] == CONSERVATIVE and key in others:
                difference = float(curve.mean.mean() - others[key].mean.mean())
                made.append(Gap(f"{names[key[0]]}, {key[1]}", f"rank {larger} - rank {rank}", difference, np.nan))
    return claim_all(expected, source, made, lambda gap: gap.sure, "a larger block on average over the checkpoints")


def _early_mean(curve: Curve) -> float:
    return float(curve.mean[: at(curve, _EARLY) + 1].mean())
