"""Top-k feedback (Chaudhuri and Tewari, JMLR 2017, section 4): Figures 1 to 5, how regret grows, and what they say."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots import paper_figures
from rankloop.lab.plots.cells import Results, after, growth, rise
from rankloop.lab.plots.tables import Ends, Growth
from rankloop.lab.runs.grades_trial import GradesTrial
from rankloop.papers import observability
from rankloop.papers.claims import Claim, Halfway, Higher, Level
from rankloop.papers.engine import BANDS, Contender, Paper, PaperFigure, Part, PlannedRun, TuningStep, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures 1 to 3 (section 4.1): 20 items, 5 relevant, each grade flipped with a small probability, T = 10,000
WORLD = "corrupted?items=20&relevant=5&flip=0.1"
HARDER = ("corrupted?flip=0.4", "switching?every=1000", "alternating?flip=0")  # not in the paper
BLOCKS, FEEDBACK = (10, 50, 100, 200, 400), (1, 5, 10)  # Figures 1 and 2; the paper calls 200 blocks optimal
FULL, FORMULA, LEADER = "FTPL, all grades", "K by formula", "K by formula, leader below"
NUMERATORS = (0.001, 0.01, 0.1, 1.0, 10.0)  # of step and exploration, section 4.2: the best of each is taken
LISTNET, RANKSVM, KL = "ListNet, all grades", "RankSVM, top 2", "KL, top 1"
SQUARED, SMOOTH, RANDOM = "Squared, top 1", "SmoothDCG, top 1", "Random"
CONVEX = (RANKSVM, KL, SQUARED)
HORIZONS = (1000, 10_000, 100_000, 1_000_000)
SMALL = "synthetic:mq2007?queries=200&docs=10&features=10&vali=1&test=1"  # where the best ranker is found, many times
REGRET, NDCG = "average_regret", "online.ndcg"
LITTLE = 1e-3  # regret a round that is next to nothing
SLOPE = 2 / 3 + 0.03  # a slope over a decade is off by as much


def blocks(count: int) -> str:
    """What Figure 1 calls a number of blocks."""
    return f"K = {count}"


def grades_trial(measure: str, run: PlannedRun, at: tuple[int, ...] = ()) -> GradesTrial:
    """A compiled run; grades go up to the highest of a data set, to 1 for items."""
    name, params = run.learner
    if name.partition("@")[0] != "random":
        params = {"grades": 1 if measure == "items" else _highest(run.data), **params}
    if measure == "surrogate":
        params.pop("grades")
    checkpoints = tuple(t for t in at if t <= run.rounds)
    return GradesTrial(measure, name, run.data, params, run.rounds, run.seed, checkpoints)


@lru_cache(maxsize=32)
def _highest(data: str) -> int:
    return open_split(data).train.highest_grade


_PAPERS = "rtopk-items@paper"
# fmt: off
ITEMS = Part(
    "items",
    (
        *(Contender(blocks(count), f"{_PAPERS}?blocks={count}", horizon=True) for count in BLOCKS),
        *(Contender(f"top {top}", f"{_PAPERS}?blocks=200&top={top}", horizon=True) for top in FEEDBACK),
        Contender(FULL, "ftpl-full@paper", horizon=True),
        Contender(FORMULA, _PAPERS, horizon=True),
        Contender(LEADER, "rtopk-items", horizon=True),
    ),
    (WORLD,),
    rounds=10_000, seeds=20, users=("grader",), trial=partial(grades_trial, "items"), takes_data=False,
    quick={"seeds": 10},
)
SLOPES = Part(
    "slopes",
    (
        Contender("horizon unknown, top 1", "rtopk-items"),
        Contender("horizon unknown, top 5", "rtopk-items?top=5"),
        Contender("all grades", "ftpl-full"),
    ),
    (WORLD, *HARDER),
    rounds=HORIZONS[-1], seeds=10, users=("grader",), trial=partial(grades_trial, "items", at=HORIZONS),
    takes_data=False, quick={"rounds": 100_000, "seeds": 3},
)
SURROGATES = Part(
    "surrogates",
    tuple(
        Contender(f"{name}, {how}", f"rtopk?surrogate={name}&top={top}&random_propensity={how}&rate=0.01&radius=20")
        for name, top in (("squared", 1), ("kl", 1), ("ranksvm", 2)) for how in ("exact", "gamma")
    ),
    (SMALL,),
    rounds=HORIZONS[-1], seeds=10, users=("grader",), trial=partial(grades_trial, "surrogate", at=HORIZONS),
    takes_data=False, quick={"rounds": 100_000, "seeds": 3},
)
# fmt: on
_BOTH = tuple({"rate": rate, "explore": explore} for rate, explore in product(NUMERATORS, repeat=2))
# Yahoo's set has 19,944 queries of 24 documents, Yandex's 9,126 of 11 with 245 features: their shapes, fewer queries
# fmt: off
MAIN = Part(
    "main",
    (
        Contender(LISTNET, "listnet-full@paper", tuple({"rate": rate} for rate in NUMERATORS)),
        Contender(RANKSVM, "rtopk@paper", _BOTH),
        Contender(KL, "rtopk@paper-kl", _BOTH),
        Contender(SQUARED, "rtopk@paper-squared", _BOTH),
        Contender(SMOOTH, "rtopk@paper-smoothdcg", _BOTH),
        Contender("rtopk@paper, untuned", "rtopk@paper"),
        Contender("Squared, top 1 (rankloop)", "rtopk?surrogate=squared&top=1", _BOTH),
        Contender(RANDOM, "random"),
    ),
    ("synthetic:yahoo?queries=2000&vali=1&test=1&features=300",
        "synthetic:mslr?queries=3000&docs=11&features=245&vali=1&test=1",
        "synthetic:mslr?queries=1000&docs=60&vali=1&test=1"),
    rounds=100_000, seeds=10, users=("grader",), tuning=(TuningStep(10_000, 1, 5), TuningStep(50_000, 3)), tune_by=NDCG,
    trial=partial(grades_trial, "ndcg"),
    quick={"data": ("synthetic:yahoo?queries=200&vali=1&test=1&features=100",
        "synthetic:mslr?queries=300&docs=11&features=100&vali=1&test=1"), "rounds": 20_000, "seeds": 3,
        "tuning": (TuningStep(4000, 1, 4), TuningStep(10_000, 2))},
)
# fmt: on
FIGURES_4_5 = "4.2, Figures 4 and 5"
# fmt: off
CLAIMS: tuple[Claim, ...] = (
    Higher("With K = 200 blocks regret falls fastest at first: all other block counts are above it", "4.1, Figure 1",
        REGRET, tuple(blocks(count) for count in BLOCKS if count != 200), (blocks(200),), part="items",
        reading=after(0.05)),
    Higher("With K = 10 regret falls more slowly at first, and sharply later on: from a fifth of the rounds on by "
        "more than with K = 200", "4.1, Figure 1", REGRET, (blocks(200),), (blocks(10),), part="items",
        reading=rise(0.2)),
    Higher("With K = 400 most rounds explore, and regret is substantially worse than with any other", "4.1, Figure 1",
        REGRET, (blocks(400),), tuple(blocks(count) for count in BLOCKS if count != 400), part="items"),
    Higher("As more is graded, regret falls: top 1, 5, 10", "4.1, Figure 2", REGRET,
        *zip(*pairwise(f"top {top}" for top in FEEDBACK), strict=True), part="items", matched=True, needed="all"),
    *(Higher(f"{when}, full information is better than top-1 feedback", "4.1, Figure 3", REGRET, "top 1", FULL,
        part="items", reading=after(share))
        for when, share in (("From round 1,000 on", 0.1), ("At the end, too", 1.0))),
    Level(f"Top-1 feedback: regret under DCG grows like T^(2/3) at most, in any world: as T^{SLOPE:.2f} over the last "
        "decade", "2.7, Corollary 10", "regret", "horizon unknown, top 1", part="slopes", reading=growth(LITTLE),
        above=-np.inf, below=SLOPE),
    Level(f"Unbiased estimates: the regret of convex surrogates grows like T^(2/3) at most: as T^{SLOPE:.2f} over the "
        "last decade", "3.4, Theorem 19", "regret", ("squared, exact", "kl, exact", "ranksvm, exact"),
        part="surrogates", reading=growth(LITTLE), above=-np.inf, below=SLOPE),
    *(Higher(f"ListNet, with all grades, has the highest average NDCG throughout: after {share:.0%} of the rounds",
        FIGURES_4_5, NDCG, LISTNET, (*CONVEX, SMOOTH), reading=after(share), needed="all")
        for share in (0.1, 0.25, 0.5, 1.0)),
    Higher("RankSVM (top 2) does better than the other surrogates", FIGURES_4_5, NDCG, RANKSVM, (KL, SQUARED, SMOOTH)),
    Higher("KL does much better than Squared (Yahoo), or as well (Yandex)", FIGURES_4_5, NDCG, KL, SQUARED),
    Higher("All three convex surrogates do significantly better than random lists", FIGURES_4_5, NDCG, CONVEX, RANDOM,
        needed="all"),
    Halfway("All three are much closer to ListNet than to random lists", FIGURES_4_5, NDCG, CONVEX, RANDOM, LISTNET),
    Higher("SmoothDCG is poor: below the three convex surrogates", FIGURES_4_5, NDCG, CONVEX, SMOOTH),
)
# fmt: on


def _item_figure(labels: tuple[str, ...], results: Results) -> Figure:
    return paper_figures.some_curves(results.tables["items"], labels, REGRET)


_ITEM_FIGURES = {
    "blocks": ("Figure 1: average regret under DCG, top-1 feedback, by block count.", tuple(map(blocks, BLOCKS))),
    "feedback": ("Figure 2: 200 blocks, by the number of positions graded.", tuple(f"top {top}" for top in FEEDBACK)),
    "full": ("Figure 3: top-1 feedback against all grades.", ("top 1", FULL)),
    "ours": ("Not in the paper: the block count of Corollary 10.", (blocks(200), FORMULA, LEADER)),
}
# fmt: off
PAPER = Paper(
    "topk",
    "Sougata Chaudhuri, Ambuj Tewari: Online Learning to Rank with Top-k Feedback. JMLR 18, 2017",
    "Top-k feedback, the experiments repeated",
    "Figures 1 to 3: 20 items, block counts, amounts of feedback, full information; other items are relevant for each "
    "seed. Figures 4 and 5: four surrogates, ListNet with all grades and random lists on data sets, with step "
    "a/t^(2/3) and exploration b/t^(1/3) (ListNet: a/√t), a and b the best of .001 … 10 in runs with other seeds. "
    "Beside them what the paper proves and does not measure: the growth of regret. All runs are compiled.",
    "one seed of 10,000 rounds for items, and 200,000 (Yahoo) and 100,000 rounds (Yandex) on data sets.",
    (ITEMS, SLOPES, SURROGATES, MAIN),
    CLAIMS,
    (
        *(PaperFigure(name, f"{text} {BANDS}", partial(_item_figure, labels))
            for name, (text, labels) in _ITEM_FIGURES.items()),
        curves("ndcg", "Figures 4 and 5: average NDCG@10 of the lists shown so far.", NDCG, log_x=True),
    ),
    (
        Ends("Average regret under DCG after 10,000 rounds", REGRET, part="items"),
        Growth("Regret under DCG by rounds, mean over seeds", "regret", part="slopes", rounds=HORIZONS),
        Growth("Regret under SumLoss", "regret.sumloss", part="slopes", rounds=HORIZONS),
        Growth("Regret of the surrogate (10 documents of 10 features)", "regret", part="surrogates", rounds=HORIZONS),
        Ends("Average NDCG@10 of the same runs", NDCG, part="surrogates", digits=4),
        Ends("Average NDCG@10 at the end", NDCG, digits=4),
    ),
    (
        "In a round that explores, the paper allows any order below the items explored. Its figures are those of a "
        f"random one, and so are ours but for '{LEADER}', where the perturbed leader stands there.",
        "Regret is against the best fixed ranking of the rounds so far, or the best fixed ranker in a ball, found by "
        "convex optimization. 2/3 is what the paper proves, 1 is no learning. Where the world changes, regret can be "
        "below 0: a learner that follows beats any fixed ranking. With random_propensity=gamma, the paper's practice, "
        "estimates are biased: Theorem 19 does not cover it, and the surrogate's regret need not stay below T^(2/3).",
        "Theorem 21: under NDCG top-1 feedback cannot even tell two adversaries apart that have the same expected "
        "grades and another best ranking, so regret is linear for any learner; docs/observability.md has the two.",
    ),
    observability.tables,
)
# fmt: on
