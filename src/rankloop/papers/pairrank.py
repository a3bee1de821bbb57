"""PairRank (Jia et al., WWW 2021, section 4): Figures 3 to 7, and what the paper says of them."""

from __future__ import annotations

from itertools import product

import numpy as np

from rankloop.lab.plots import figures, paper_figures
from rankloop.lab.plots.cells import after, by_round, growth, mean_until, rise
from rankloop.lab.plots.tables import Ends
from rankloop.papers.claims import Claim, ForUser, Higher, Larger, Level, Within
from rankloop.papers.engine import Contender, Paper, PaperFigure, Part, TuningStep, curves

CONSERVATIVE, RANDOM, ONE_PASS = "PairRank_C", "PairRank_R", "PairRank_C, one pass"  # the last is ours
AS_PAPER, AS_CODE, OURS = "pairrank@paper", "pairrank@code", "PairRank (rankloop)"
PDGD, SGD, EPSILON, OFFLINE, DBGD = "PDGD", "SGD RankNet", "ε-greedy", "offline RankNet", "DBGD"
MGD, P_MGD = "MGD", "P-MGD"  # the paper does not tell which of the two it ran
PAIRRANKS, DUELS = (CONSERVATIVE, RANDOM), (DBGD, MGD, P_MGD)
BASELINES, PAIRWISE = (*DUELS, PDGD, SGD, EPSILON), (*PAIRRANKS, PDGD, SGD)
HELD_OUT, SERVED, COSINE, PAIRS = "offline.ndcg@10", "online.cndcg", "cosine", "online.misordered"

ALPHAS, LAMBDAS = (0.1, 0.01, 0.001, 0.0001), (0.1, 10.0)  # the paper's grid of α; λ: the released README's, and more
RATES = tuple({"rate": rate} for rate in (0.1, 0.01, 0.001))
RATES_AND_EPSILONS = tuple({**rate, "epsilon": epsilon} for rate, epsilon in product(RATES, (0.05, 0.1, 0.3)))
GRID = tuple({"alpha": alpha, "prior": value, "ridge": value} for value, alpha in product(LAMBDAS, ALPHAS))
CLOSE = {"probes": ("closeness",)}
BLOCKS = {"probes": ("closeness", "blocks")}

# fmt: off
MAIN = Part(
    "main",
    (
        Contender(CONSERVATIVE, "pairrank@paper", GRID, settings=BLOCKS),
        Contender(RANDOM, "pairrank@paper", ({"explore": "blocks"},), tuned_like=CONSERVATIVE, settings=CLOSE),
        Contender(ONE_PASS, "pairrank@paper", ({"update": "onepass"},), tuned_like=CONSERVATIVE, settings=CLOSE),
        Contender(AS_PAPER, "pairrank@paper", settings=CLOSE),
        Contender(AS_CODE, "pairrank@code", settings=CLOSE),
        Contender(OURS, "pairrank", settings=CLOSE),
        Contender(PDGD, "pdgd@paper", settings=CLOSE),
        Contender(DBGD, "dbgd@paper", settings=CLOSE),
        Contender(MGD, "mgd@paper", settings=CLOSE),
        Contender(P_MGD, "mgd@code", settings=CLOSE),
        Contender(SGD, "greedy@paper", RATES, settings=CLOSE),
        Contender(EPSILON, "epsilon-greedy@paper", RATES_AND_EPSILONS, settings=CLOSE),
        Contender(OFFLINE, "offline-ranknet"),
        Contender("random", "random"),
    ),
    ("synthetic:mslr?queries=500&docs=60", "synthetic:yahoo?queries=500&features=200"),
    rounds=1500, seeds=10, tuning=(TuningStep(300),),
    quick={"data": ("synthetic:mslr?queries=100&vali=40&test=40&docs=30&features=50",), "rounds": 400, "seeds": 3,
        "tuning": (TuningStep(150),)},
)
STEADY = {"world": "piecewise?every=1000000", "probes": ("misordered",)}
# Theorem 1 is about users who rank by a line: a taste that never changes gives grades without noise
THEORY = Part(
    "theory",
    (
        Contender(CONSERVATIVE, "pairrank@paper?update=onepass&pairs=all&alpha=0.01"),
        Contender("random", "random"),
    ),
    ("synthetic:mq2007?docs=10&features=10&queries=200&test=20",),
    rounds=50_000, seeds=5, users=("perfect",), settings=STEADY, takes_data=False,
    quick={"rounds": 5000, "seeds": 3},
)
CLAIMS: tuple[Claim, ...] = (
    Higher("Both PairRank variants end with a better ranker than all of DBGD, MGD, PDGD, SGD RankNet and ε-greedy",
        "4.2.1, Figure 3", HELD_OUT, PAIRRANKS, BASELINES),
    Higher("Conservative exploration (PairRank_C) gives a better ranker than random exploration (PairRank_R)",
        "4.2.1, Figure 3", HELD_OUT, CONSERVATIVE, RANDOM),
    Higher("DBGD and MGD end with worse rankers than SGD RankNet and both PairRank variants", "4.2.1, Figure 3",
        HELD_OUT, (*PAIRRANKS, SGD), DUELS),
    Higher("PDGD consistently outperforms DBGD and MGD", "4.2.1, Figure 3", HELD_OUT, PDGD, DUELS, needed="all"),
    Within("SGD RankNet performs comparably to PDGD: within .02 of NDCG@10", "4.2.1, Figure 3", HELD_OUT, SGD, PDGD,
        above=-0.02, below=0.02),
    Higher("ε-greedy suffers from exploring regardless of what it knows: worse than SGD RankNet and PDGD",
        "4.2.1, Figure 3", HELD_OUT, (SGD, PDGD), EPSILON),
    Within("With perfect users PairRank reaches its offline counterpart within thousands of impressions: less than "
        ".02 of NDCG@10 is missing", "4.2.1, Figure 3", HELD_OUT, CONSERVATIVE, OFFLINE, above=-0.02, users="perfect"),
    Higher("Both PairRank variants serve users better while they learn than DBGD, MGD, PDGD, SGD RankNet and ε-greedy",
        "4.2.2, Figure 4", SERVED, PAIRRANKS, BASELINES),
    Higher("PairRank_C serves users better than PairRank_R", "4.2.2, Figure 4", SERVED, CONSERVATIVE, RANDOM),
    Higher("SGD RankNet serves users better than PDGD, whose sampling distorts the lists", "4.2.2, Figure 4", SERVED,
        SGD, PDGD),
    Higher("Exploration that does not look at the model hurts: ε-greedy is below SGD RankNet", "4.2.2, Figure 4",
        SERVED, SGD, EPSILON),
    Level("All pairwise learners come closer to the offline model with more rounds", "4.2.3, Figure 5", COSINE,
        PAIRWISE, reading=rise(0.1), needed="most"),
    Higher("PairRank comes close to the offline model faster than PDGD and SGD RankNet", "4.2.3, Figure 5", COSINE,
        PAIRRANKS, (PDGD, SGD), reading=after(0.1)),
    Higher("PairRank ends closer to the offline model than PDGD and SGD RankNet", "4.2.3, Figure 5", COSINE, PAIRRANKS,
        (PDGD, SGD)),
    Higher("SGD RankNet, which has the offline model's objective, comes close to it faster than PDGD",
        "4.2.3, Figure 5", COSINE, SGD, PDGD, reading=after(0.1)),
    Higher("The rankers of DBGD and MGD are far from the offline model: farther than all pairwise learners' rankers",
        "4.2.3, Figure 5", COSINE, PAIRWISE, DUELS),
    Level("The size of the block at rank 1 falls to 1 within hundreds of rounds: to less than 1.5 by round 1,000",
        "4.2.4, Figure 6", "block_size@1", CONSERVATIVE, reading=by_round(1000), above=-np.inf, below=1.5),
    ForUser("The block at rank 1 shrinks slowest for navigational users, who click least", "4.2.4, Figure 6",
        "block_size@1", CONSERVATIVE, "navigational", 1.0, reading=mean_until(0.1)),
    Larger("The block at rank 10 shrinks much slower than that at rank 1", "4.2.4, Figure 6", "block_size@10",
        "block_size@1", CONSERVATIVE, reading=mean_until()),
    ForUser("At the early stages PairRank has fewer blocks for navigational users than for the others",
        "4.2.4, Figure 7b", "blocks", CONSERVATIVE, "navigational", -1.0, reading=mean_until(0.1)),
    Larger("Blocks are larger in the middle of the list than at the top and at the bottom (informational users)",
        "4.2.4, Figure 7a", "block_size@middle", ("block_size@1", "block_size@last"), CONSERVATIVE,
        users="informational", reading=mean_until()),
    Level("The number of mis-ordered pairs grows like log⁴ T at most: over the last decade up to T = 50,000 that is "
        "as T^0.40, where grades follow a line without noise", "3.3, Theorem 1", PAIRS, CONSERVATIVE, part="theory",
        reading=growth(), above=-np.inf, below=4 * float(np.log10(np.log(50_000) / np.log(5000)))),
)
PAPER = Paper(
    "pairrank",
    "Yiling Jia, Huazheng Wang, Stephen Guo, Hongning Wang: PairRank: Online Pairwise Learning to Rank by "
    "Divide-and-Conquer. WWW 2021",
    "PairRank, the experiment repeated",
    "PairRank_C and PairRank_R are pairrank@paper (Algorithm 1, disjoint adjacent pairs, refitted after every round) "
    "with the α and λ that did best on validation queries, the same for both; pairrank@paper and pairrank@code beside "
    "them are what was published, untuned, and PairRank (rankloop) is our default. PDGD, DBGD, MGD and P-MGD have "
    "their authors' settings, SGD RankNet and ε-greedy tuned ones. An offline RankNet on true grades is the ceiling.",
    "5,000 rounds and 20 seeds on MSLR-WEB10K (120 documents a query, 136 features) and Yahoo's set 1 (24, 700).",
    (MAIN, THEORY),
    CLAIMS,
    (
        curves("held-out", "Figure 3: quality of the learned ranker on held-out queries.", HELD_OUT),
        curves("served", "Figure 4: cumulative discounted NDCG of the lists that users were shown.", SERVED),
        curves("served-mean", "Figure 4 closer: mean NDCG of the lists shown so far.", "online.ndcg", log_x=True),
        curves("closeness", "Figure 5: cosine between a learner's weights and the offline model's.", COSINE,
            log_x=True),
        PaperFigure("block-sizes", f"Figure 6: size of {CONSERVATIVE}'s blocks by rank, mean over runs, band one "
            "standard error.", lambda results: paper_figures.block_sizes(results.tables["main"], CONSERVATIVE)),
        PaperFigure("block-profile", f"Figure 7a: size of {CONSERVATIVE}'s blocks by place, informational users.",
            lambda results: paper_figures.block_profile(results, CONSERVATIVE)),
        PaperFigure("block-counts", f"Figure 7b: number of {CONSERVATIVE}'s blocks, mean over runs, band one standard "
            "error.", lambda results: figures.by_user(results.tables["main"], "blocks",
                CONSERVATIVE, "blocks per ranking", log_x=True)),
        curves("pairs", "Theorem 1: mis-ordered pairs, summed over the rounds.", PAIRS, "theory", log_x=True),
    ),
    (
        Ends("Held-out NDCG@10 at the end", HELD_OUT),
        Ends("Cumulative NDCG at the end", SERVED, digits=1),
        Ends("Cosine to the offline model at the end", COSINE),
        Ends("Rounds a second", "rounds_per_second", digits=0),
    ),
    (
        "Smaller than the paper, so that all of it runs within an hour of a core: exact refits after every round, "
        "which four of the contenders make, take most of the time and ever more of it. Lists are of 60 documents "
        "where MSLR's have 120, 200 features where Yahoo's set has 700, 1,500 rounds where the paper has 5,000: ten "
        "seeds of these decide more claims than five of twice as many rounds.",
        "Theorem 1 is tried beside the experiment, in a world that has what it assumes: grades that follow a line "
        "without noise, users who click on all that is relevant and look at the whole list of ten. There one pass "
        "over all pairs stands in for the refit, which 50,000 rounds do not allow.",
    ),
)
# fmt: on
