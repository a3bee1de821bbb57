"""What the paper on non-stationary dueling bandits says about its experiments (section 6.2), held against our runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankloop.lab.figures.learning import short_names
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers.evidence import Gap, claim_all, claim_higher, gaps
from rankloop.lab.papers.nonstationary_settings import DBGD, DM2L, M3L, MGD, NM2L, NSGD, PAIRS, PDGD
from rankloop.lab.runs.results import curves

MEASURE = "online.cndcg"
MILLISECONDS, BYTES = "ms_per_round", "state_bytes"
_DUELS = (DBGD, MGD, NSGD)  # the learners that the paper puts below its meta learner
_IN_TABLE = (DBGD, DM2L, MGD, M3L, NSGD, PDGD)  # all of Table 2 but NM²L
_LITTLE_TIME = 0.25  # of the base learner's: what we call ignorable
_LITTLE_MEMORY = 100_000  # bytes: less than a hundredth of a process that does nothing but import numpy


def claims(table: pa.Table) -> list[Claim]:
    """The paper's claims in its order, each with what these results say; labels are the paper's names."""
    return [*_improvement(table), *_order(table), *_costs(with_milliseconds(table))]


def with_milliseconds(table: pa.Table) -> pa.Table:
    """The table with a column of milliseconds a round, where it has rounds a second."""
    if MILLISECONDS in table.column_names:
        return table
    return table.append_column(MILLISECONDS, pc.divide(1000.0, table["rounds_per_second"]))


def _improvement(table: pa.Table) -> list[Claim]:
    where = "6.2, Table 2"
    single = [
        claim_higher(
            f"{PAIRS[base]} improves the cumulative NDCG of {base}",
            where,
            MEASURE,
            gaps(table, MEASURE, [PAIRS[base]], [base]),
        )
        for base in _DUELS
    ]
    together = [gap for base in _DUELS for gap in gaps(table, MEASURE, [PAIRS[base]], [base])]
    always = "The meta learner consistently improves each of the three: on every data set, for every user"
    return [*single, claim_all(always, where, together, lambda gap: gap.value > 0, "a higher mean")]


def _order(table: pa.Table) -> list[Claim]:
    where = "6.2, Table 2"
    best = gaps(table, MEASURE, [NM2L], _IN_TABLE)
    return [
        claim_all(
            f"{NM2L} achieves the largest cumulative NDCG on all data sets for all users",
            where,
            best,
            lambda gap: gap.value > 0,
            "a higher mean than the other learner of the table",
        ),
        claim_higher(
            f"{NSGD} always outperforms {MGD} and {DBGD}",
            where,
            MEASURE,
            gaps(table, MEASURE, [NSGD], [MGD, DBGD]),
        ),
        claim_higher(
            f"For perfect users {PDGD} is better than {NSGD}",
            where,
            MEASURE,
            gaps(table, MEASURE, [PDGD], [NSGD], users=["perfect"]),
        ),
        claim_higher(
            f"For informational users {PDGD} is worse than {NSGD}",
            where,
            MEASURE,
            gaps(table, MEASURE, [NSGD], [PDGD], users=["informational"]),
        ),
    ]


def _costs(table: pa.Table) -> list[Claim]:
    where = "6.2, Figure 1"
    more = [gap for base in _DUELS for gap in _more_time(table, base)]
    larger = [gap for base in _DUELS for gap in gaps(table, BYTES, [PAIRS[base]], [base])]
    return [
        claim_all(
            "The time that the meta learner takes is ignorable beside that of the learner below it",
            where,
            more,
            lambda gap: gap.value <= _LITTLE_TIME,
            f"at most {_LITTLE_TIME:.0%} more time a round, the simulated user's included,",
        ),
        claim_all(
            "The memory that the meta learner takes is ignorable",
            where,
            larger,
            lambda gap: gap.within(_LITTLE_MEMORY),  # the lists that NSGD-DSP keeps differ from run to run
            f"not surely more than {_LITTLE_MEMORY // 1000} kB more of state (bytes)",
        ),
    ]


def _more_time(table: pa.Table, base: str) -> list[Gap]:
    """By which share of the base learner's time a round the meta learner takes longer, in each (data, user)."""
    found = curves(table, MILLISECONDS)
    names = short_names(data for data, _, _ in found)
    return [
        Gap(
            f"{names[data]}, {user}",
            f"{PAIRS[base]} / {base} - 1",
            float(found[data, user, PAIRS[base]].mean[-1] / curve.mean[-1]) - 1.0,
            np.nan,
        )
        for (data, user, label), curve in found.items()
        if label == base and (data, user, PAIRS[base]) in found
    ]
