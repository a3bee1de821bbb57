"""Non-stationary dueling bandits (Lu et al., section 6): Table 2, Figure 1, and what the paper says of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankloop.lab.plots import paper_figures
from rankloop.lab.plots.tables import Ends
from rankloop.papers.claims import Claim, Higher, Spread, Within
from rankloop.papers.engine import Contender, Paper, PaperFigure, Part, curves

DBGD, MGD, NSGD, PDGD = "DBGD", "MGD", "NSGD-DSP", "PDGD"  # as Table 2 calls them
DM2L, M3L, NM2L = "DM²L", "M³L", "NM²L"
P_MGD, M3L_P = "P-MGD", "M³L over P-MGD"  # the paper does not tell which MGD it ran
DM2L_OURS, M3L_OURS, NM2L_OURS, PM2L_OURS = (f"{name} (rankloop)" for name in (DM2L, M3L, NM2L, "PM²L"))
BASES, METAS = (DBGD, MGD, P_MGD, NSGD), (DM2L, M3L, M3L_P, NM2L)
OURS_OVER = {DM2L_OURS: DBGD, M3L_OURS: MGD, NM2L_OURS: NSGD, PM2L_OURS: PDGD}
PAIRS = dict(zip(BASES, METAS, strict=True))
OVER = {meta: base for base, meta in PAIRS.items()} | OURS_OVER
SERVED, MILLISECONDS, BYTES = "online.cndcg", "ms_per_round", "state_bytes"
EVERY = 500  # rounds between two changes of taste in the second part
RATES = (0.01, 0.05, 0.2, 1.0)  # DBGD's there: the usual one, and what DM²L's experts have
LITTLE_TIME = 0.25  # of the base learner's: what we call ignorable
LITTLE_MEMORY = 100_000  # bytes: less than a hundredth of a process that does nothing but import numpy
TABLE_2 = "6.2, Table 2"

_SMALL = ("synthetic:mq2007?queries=300&vali=10&test=10", "synthetic:mslr?queries=200&vali=10&test=10&docs=60")
# fmt: off
MAIN = Part(
    "main",
    (
        Contender(DBGD, "dbgd@paper"),
        Contender(DM2L, "dm2l@paper", horizon=True),
        Contender(DM2L_OURS, "dm2l", horizon=True),
        Contender(MGD, "mgd@paper"),
        Contender(M3L, "m3l@paper", horizon=True),
        Contender(M3L_OURS, "m3l", ({"base_parameters": {"candidates": 9, "mixing": "team-draft"}},), horizon=True),
        Contender(P_MGD, "mgd@code"),
        Contender(M3L_P, "m3l@p-mgd", horizon=True),
        Contender(NSGD, "nsgd@dsp"),
        Contender(NM2L, "nm2l@paper", horizon=True),
        Contender(NM2L_OURS, "nm2l", horizon=True),
        Contender(PDGD, "pdgd@paper"),
        Contender(PM2L_OURS, "pm2l", horizon=True),
    ),
    tuple(f"synthetic:{name}&vali=10&test=10" for name in ("np2003?docs=1000", "mq2007?docs=41", "mq2008?docs=19",
        "mslr?docs=120", "yahoo?features=700")),
    rounds=1000, seeds=10,
    settings={"gamma": 0.995, "world": "swap?probability=0.3", "probes": ("memory",), "evaluations": 1},
    quick={"data": _SMALL, "users": ("perfect", "informational"), "rounds": 200, "seeds": 3},
)
TRACKING = Part(
    "tracking",
    (
        Contender(DM2L, "dm2l@paper", horizon=True),
        Contender(DM2L_OURS, "dm2l", horizon=True),
        *(Contender(f"{DBGD}, {rate:g}", f"dbgd?rate={rate}") for rate in RATES),
    ),
    _SMALL,
    rounds=2000, seeds=10, settings={"gamma": 0.995, "world": f"piecewise?every={EVERY}"}, takes_data=False,
    quick={"users": ("perfect",), "rounds": 1000, "seeds": 3},
)
CLAIMS: tuple[Claim, ...] = (
    Higher(f"{DM2L} improves the cumulative NDCG of {DBGD}", TABLE_2, SERVED, DM2L, DBGD),
    Higher(f"{M3L} improves that of {MGD}", TABLE_2, SERVED, (M3L, M3L_P), (MGD, P_MGD), matched=True),
    Higher(f"{NM2L} improves that of {NSGD}", TABLE_2, SERVED, NM2L, NSGD),
    Higher("The meta learner consistently improves each of the three: on every data set, for every user", TABLE_2,
        SERVED, METAS, BASES, matched=True, needed="all"),
    Higher(f"{MGD}'s cumulative NDCG is smaller than that of {DBGD} in several cases", TABLE_2, SERVED, DBGD, (MGD,
        P_MGD), needed="any"),
    Higher(f"{NSGD} always outperforms {MGD} and {DBGD}", TABLE_2, SERVED, NSGD, (MGD, P_MGD, DBGD), needed="all"),
    Higher(f"For perfect users {PDGD} is better than {NSGD} on all data sets", TABLE_2, SERVED, PDGD, NSGD,
        users="perfect", needed="all"),
    Higher(f"For informational users {PDGD} is worse than {NSGD} on all data sets", TABLE_2, SERVED, NSGD, PDGD,
        users="informational", needed="all"),
    Higher(f"{NM2L} achieves the largest cumulative NDCG on all data sets for all users", TABLE_2, SERVED, NM2L,
        (*BASES, DM2L, M3L, M3L_P, PDGD), needed="all"),
    Spread(f"The spread of {NM2L} over runs is comparable to that of {NSGD}: at most half as much again, as mean "
        "distance from the middle run", TABLE_2, SERVED, NM2L, NSGD, times=1.5, above=-np.inf, below=0.0),
    Within("The time that the meta learner takes is ignorable beside that of the learner below it: at most a quarter "
        "more, the simulated user's included", "6.2, Figure 1", MILLISECONDS, METAS, BASES, matched=True, relative=True,
        above=-np.inf, below=LITTLE_TIME),
    Within(f"The memory that the meta learner takes is ignorable: at most {LITTLE_MEMORY // 1000} kB more of state",
        "6.2, Figure 1", BYTES, METAS, BASES, matched=True, above=-np.inf, below=LITTLE_MEMORY),
    Higher("With rankloop's losses and steps the meta learner improves each of the three, and PDGD", "not in the paper",
        SERVED, tuple(OURS_OVER), tuple(OURS_OVER.values()), matched=True),
    Higher(f"Where tastes change at once, {DM2L} with rankloop's settings serves better than {DBGD} at each of four "
        "rates", "not in the paper", SERVED, DM2L_OURS, tuple(f"{DBGD}, {rate:g}" for rate in RATES), part="tracking"),
)
# fmt: on


def with_milliseconds(_: str, table: pa.Table) -> pa.Table:
    """A further column: milliseconds a round."""
    return table.append_column(MILLISECONDS, pc.divide(1000.0, table["rounds_per_second"]))


# fmt: off
PAPER = Paper(
    "nonstationary",
    "Shiyin Lu, Yuan Miao, Ping Yang, Yao Hu, Lijun Zhang: Non-Stationary Dueling Bandits for Online Learning to Rank",
    "Non-stationary dueling bandits, the experiment repeated",
    "Every base learner and the meta learner over it serve users of whom three in ten have all labels swapped. Base "
    "learners have the settings of their own papers, meta learners those of Theorem 2 (dm2l@paper and its kin) and "
    "rankloop's, which were chosen on other seeds; PM²L, over PDGD, is what the paper leaves as an open question. The "
    f"second part is not in the paper: every {EVERY} rounds all users have a new taste.",
    "1,000 rounds and 10 seeds on NP2003 (about 1,000 documents a query), MQ2007, MQ2008, MSLR-WEB10K and Yahoo's set.",
    (MAIN, TRACKING),
    CLAIMS,
    (
        PaperFigure("costs", "Figure 1: time a round and memory of the state, mean over data sets and users.",
            lambda results: paper_figures.costs(results, PAIRS)),
        curves("tracking", "NDCG of the lists shown while tastes change.", "online.window_ndcg", "tracking"),
    ),
    (
        Ends("Table 2: cumulative NDCG@10", SERVED, digits=1, over=OVER),
        Ends("Tastes that change at once: rounds to recover", "online.recovery", part="tracking", digits=0),
        Ends("Tastes that change at once: sum of 1 - NDCG", "online.regret", part="tracking", digits=0),
    ),
    (
        "Time is of the whole loop with the simulated user; whatever else the machine does makes it longer. Memory is "
        "the state that a learner keeps, where the paper gives that of the process: a meta learner keeps one weight "
        "vector for each expert.",
        "The paper's dynamic regret DR(T) counts duels lost against the best ranker of each round, which no run can "
        "know; the sum of 1 - NDCG told here is what the shown lists missed of the ideal list of their round. "
        "Recovery is the number of rounds until NDCG is back at 95 % of its level before a change: who has learned "
        "little has little to recover.",
    ),
    prepare=with_milliseconds,
)
# fmt: on
