"""Neural rankers learned online (Jia and Wang, WWW 2022, section 5): Figures 3 to 6, and what is said of them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from rankloop.lab.datasets.lda import Projection, project
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots import figures, paper_figures
from rankloop.lab.plots.cells import Results, after, growth, mean_until, rise
from rankloop.lab.plots.figures import short_names
from rankloop.lab.plots.tables import Ends
from rankloop.papers.claims import Claim, Computed, ForUser, Higher, Level, Within
from rankloop.papers.engine import Contender, Paper, PaperFigure, Params, Part, TuningStep, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKNET, LAMBDARANK, SKYLINE = "olRankNet", "olLambdaRank", "olLambdaRank GT"  # as the paper calls them
PAIRRANK, EPSILON = "PairRank", "ε-Greedy"
LINEAR_DBGD, NEURAL_DBGD, LINEAR_PDGD, NEURAL_PDGD = "Linear-DBGD", "Neural-DBGD", "Linear-PDGD", "Neural-PDGD"
OURS, DBGDS = (RANKNET, LAMBDARANK), (LINEAR_DBGD, NEURAL_DBGD)
BASELINES = (EPSILON, *DBGDS, LINEAR_PDGD, NEURAL_PDGD, PAIRRANK)
NOT_DBGD = (EPSILON, LINEAR_PDGD, NEURAL_PDGD, PAIRRANK, *OURS)
HELD_OUT, SERVED, CERTAIN, PAIRS = "offline.ndcg@10", "online.cndcg", "certain@10", "online.misordered"
SEPARATED = 0.75  # of the documents nearest to their own grade's center: what we would call separated
FIGURE_4, FIGURE_5, FIGURE_6 = "5.2, Figure 4", "5.2, Figure 5", "5.2, Figure 6"


def _rates(*rates: float) -> tuple[Params, ...]:
    return tuple({"rate": rate} for rate in rates)


_NETS = _rates(0.025, 0.05, 0.1, 0.2)  # four settings for every contender: the same chance to be tuned well
# The paper has networks alone; replay makes thousands of rounds affordable
_ALONE = "olranknet-paper?update=replay&alpha=0.03&prior=100&rate=0.1"
_LAMBDA = f"{_ALONE}&loss=lambdarank"
_LINES = tuple({"alpha": alpha, "prior": prior} for alpha, prior in product((0.1, 0.3), (10.0, 30.0)))
_EPSILONS = tuple({"rate": rate, "epsilon": epsilon} for rate, epsilon in product((0.003, 0.03), (0.05, 0.2)))
_CERTAIN = {"probes": ("certain",)}
# fmt: off
MAIN = Part(
    "main",
    (
        Contender(RANKNET, _ALONE, _NETS, settings=_CERTAIN),
        Contender(LAMBDARANK, _LAMBDA, _NETS),
        Contender(PAIRRANK, "pairrank", _LINES),
        Contender(LINEAR_PDGD, "pdgd", _rates(0.03, 0.1, 0.3, 1.0)),
        Contender(NEURAL_PDGD, "neural-pdgd", _rates(0.3, 1.0, 3.0, 10.0)),
        Contender(LINEAR_DBGD, "dbgd", _rates(0.01, 0.03, 0.1, 0.3)),
        Contender(NEURAL_DBGD, "neural-dbgd", _rates(0.03, 0.1, 0.3, 1.0)),
        Contender(EPSILON, "epsilon-greedy", _EPSILONS),
        Contender(SKYLINE, "lambdarank-labels", _rates(0.3, 1.0, 3.0, 10.0), seeds=3),
    ),
    ("synthetic:mq2007?relevance=nonlinear&docs=25", "synthetic:mslr?relevance=strong&queries=500&docs=30",
        "synthetic:yahoo?relevance=nonlinear&queries=500&features=100"),
    rounds=1000, seeds=5, tuning=(TuningStep(200),),
    quick={"data": ("synthetic:mq2007?relevance=strong&queries=300&vali=60&test=60&docs=30",), "users": ("perfect",
        "navigational"), "rounds": 500, "seeds": 3, "tuning": (TuningStep(100),)},
)
# As published: refitted from a new start on all pairs after every round, which few rounds allow
PUBLISHED = Part(
    "published",
    (
        Contender("olranknet@paper", "olranknet@paper", settings=_CERTAIN),
        Contender("ollambdarank@paper", "ollambdarank@paper"),
        Contender("pairrank@paper", "pairrank@paper"),
        Contender(RANKNET, _ALONE),
        Contender(LAMBDARANK, _LAMBDA),
        Contender(PAIRRANK, "pairrank"),
    ),
    ("synthetic:mq2007?relevance=strong&queries=300&docs=20&vali=10&test=100",),
    rounds=150, seeds=5, takes_data=False, quick={"users": ("perfect",), "rounds": 50, "seeds": 2},
)
STEADY = {"world": "piecewise?every=1000000", "probes": ("misordered",)}
# The theorem is about users whose grades the network can follow: a taste that never changes, without noise
THEORY = Part(
    "theory",
    (
        Contender(RANKNET, _ALONE),
        Contender("random", "random"),
    ),
    ("synthetic:mq2007?docs=10&features=10&queries=200&test=20",),
    rounds=20_000, seeds=5, users=("perfect",), settings=STEADY, takes_data=False,
    quick={"rounds": 1000, "seeds": 2},
)
# fmt: on


def planes(results: Results) -> dict[str, Projection]:
    """The data sets of the experiment in the plane that tells their grades apart best."""
    names = short_names(dict.fromkeys(results.tables["main"]["data"].to_pylist()))
    return {name: project(open_split(data).train) for data, name in names.items()}


def separation(results: Results) -> tuple[str, bool]:
    """How many documents are nearest to the center of their own grade, each grade counting the same."""
    found = planes(results)
    said = [f"{name}: {plane.right:.0%} (guessing: {plane.chance:.0%})" for name, plane in found.items()]
    text = f"nearest to their own grade's center in the plane are, of {'; of '.join(said)}; less than {SEPARATED:.0%}"
    return text, all(plane.right < SEPARATED for plane in found.values())


def discriminants(results: Results) -> Figure:
    """Figure 3."""
    return paper_figures.scatter({name: (plane.points, plane.grades) for name, plane in planes(results).items()})


# fmt: off
CLAIMS: tuple[Claim, ...] = (
    Computed("A linear view of the data does not separate its grades", "5.1, Figure 3", separation),
    Higher("olRankNet and olLambdaRank end with a better ranker than all baselines", FIGURE_4, HELD_OUT, OURS,
        BASELINES),
    Higher("They have a worse start than PairRank", FIGURE_4, HELD_OUT, PAIRRANK, OURS, reading=after(0.02)),
    Higher("With more rounds they pass PairRank, and end above it", FIGURE_4, HELD_OUT, OURS, PAIRRANK),
    Higher("Linear and neural DBGD perform worst", FIGURE_4, HELD_OUT, NOT_DBGD, DBGDS),
    Higher("PDGD outperforms DBGD, linear and neural", FIGURE_4, HELD_OUT, (LINEAR_PDGD, NEURAL_PDGD), DBGDS,
        matched=True),
    Higher("A network does not help PDGD within these rounds: the linear one is better", FIGURE_4, HELD_OUT,
        LINEAR_PDGD, NEURAL_PDGD),
    Higher("olLambdaRank ends with a better ranker than olRankNet", FIGURE_4, HELD_OUT, LAMBDARANK, RANKNET),
    Within("olLambdaRank is at least as good as olRankNet late in the run: less than .01 of NDCG@10 is missing",
        FIGURE_4, HELD_OUT, LAMBDARANK, RANKNET, above=-0.01),
    Higher("The model that is told true grades (olLambdaRank GT) is above all", FIGURE_4, HELD_OUT, SKYLINE, (*OURS,
        *BASELINES)),
    Higher("olRankNet and olLambdaRank serve users better while they learn than all baselines", FIGURE_5, SERVED, OURS,
        BASELINES),
    Higher("PDGD serves navigational and informational users worse than they do", FIGURE_5, SERVED, OURS, (LINEAR_PDGD,
        NEURAL_PDGD), users=("navigational", "informational")),
    Higher("DBGD serves users worst", FIGURE_5, SERVED, NOT_DBGD, DBGDS),
    Within("Online the difference between olLambdaRank and olRankNet is not very significant: within 2 %", FIGURE_5,
        SERVED, LAMBDARANK, RANKNET, relative=True, above=-0.02, below=0.02),
    Level("The share of certain pairs in the first ten rises with the rounds", FIGURE_6, CERTAIN, RANKNET,
        reading=rise(0.02), needed="most"),
    ForUser("It rises slowest for navigational users, who click least", FIGURE_6, CERTAIN, RANKNET, "navigational",
        -1.0, reading=mean_until(0.2)),
    Level("The number of mis-ordered pairs grows like log² T at most: over the last decade up to T = 20,000 that is "
        "as T^0.23, where grades follow a line without noise", "4, Theorem 4.4", PAIRS, RANKNET, part="theory",
        reading=growth(), above=-np.inf, below=2 * float(np.log10(np.log(20_000) / np.log(2000)))),
    Higher("As published (refitted on all pairs from a new start), olRankNet and olLambdaRank end above PairRank as "
        "published", "5.2, Figure 4, untuned and short", HELD_OUT, ("olranknet@paper", "ollambdarank@paper"),
        "pairrank@paper", part="published"),
)
PAPER = Paper(
    "neural",
    "Yiling Jia, Hongning Wang: Learning Neural Ranking Models Online from Implicit User Feedback. WWW 2022",
    "Neural rankers learned online, the experiment repeated",
    "olRankNet and olLambdaRank against the paper's baselines, on generated worlds whose relevance no linear ranker "
    "can follow; everyone has four settings to be chosen from by validation queries. olLambdaRank GT is told true "
    "grades.",
    "5,000 rounds and 10 seeds on MSLR-WEB10K and Yahoo's set 1, five-fold cross-validation; give folds as data, "
    "`--data PATH?fold=1 --data PATH?fold=2 …`, and they are taken as clusters.",
    (MAIN, PUBLISHED, THEORY),
    CLAIMS,
    (
        PaperFigure("discriminants", "Figure 3: documents in the plane that tells grades apart best, linearly.",
            discriminants),
        curves("held-out", "Figure 4: quality of the learned ranker on held-out queries.", HELD_OUT),
        curves("served", "Figure 5: cumulative discounted NDCG of the lists that users were shown.", SERVED),
        PaperFigure("certain", f"Figure 6: share of {RANKNET}'s pairs in the first ten whose order is certain.",
            lambda results: figures.by_user(results.tables["main"], CERTAIN, RANKNET, figures.title_of(CERTAIN))),
        curves("published", "As published: held-out NDCG@10, untuned.", HELD_OUT, "published", log_x=True),
        curves("pairs", "Mis-ordered pairs, summed over the rounds.", PAIRS, "theory", log_x=True),
    ),
    (
        Ends("Held-out NDCG@10 at the end", HELD_OUT, digits=4),
        Ends("Cumulative NDCG at the end", SERVED, digits=1),
        Ends("Rounds a second", "rounds_per_second", digits=0),
        Ends("As published: held-out NDCG@10 at the end", HELD_OUT, part="published", digits=4),
    ),
    (
        "Smaller than the paper, so that all of it runs within an hour of a core: 1,000 rounds where the paper has "
        "5,000, lists of 30 documents where MSLR's have 120, 100 features where Yahoo's set has 700.",
        "The paper minimizes the loss over all pairs again after every round. In the main part networks go on from "
        "where they are, a few steps of Adam a round on lists drawn from the last 5,000, so that a round costs the "
        "same at the end as at the start; PairRank there is rankloop's, which weighs pairs by the propensities of its "
        "lists: a stronger rival than the paper's. The part called published has the paper's refits, on short lists "
        "and for a hundred and fifty rounds only, since each round takes longer than the one before.",
        "The theorem is tried in a world that has what it assumes: grades that follow a line without noise, perfect "
        "users, lists of ten that are shown whole.",
    ),
)
# fmt: on
