"""BubbleRank (Li et al., UAI 2019, section 5): Figures 1 to 3, safety, and what the paper says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rankloop.clicks.bandit_models import fit_if_log, open_models
from rankloop.core.errors import DataError
from rankloop.lab.plots import paper_figures
from rankloop.lab.plots.cells import Results, growth
from rankloop.lab.plots.tables import Ends
from rankloop.lab.runs.bandit_trial import WARM_ROUNDS, BanditTrial
from rankloop.papers.claims import Claim, Higher, Level, Never, Steps, Straight
from rankloop.papers.engine import Contender, Paper, PaperFigure, Part, PlannedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUBBLE0, BUBBLEKL, KLUCB, BATCH = "BubbleRank0", "BubbleRankKL", "CascadeKL-UCB", "BatchRank"  # as section 5 has them
LOOSE, PRINTED, TOP = "BubbleRankKL, δ = 1/n", "BatchRank, as printed", "TopRank"  # not in the paper
MODELS = ("CM", "PBM")
NEAR = 0.15  # by how much less of a printed share is enough, on other queries
POWERS = (1, 2, 3, 4, 5)  # of 0.5: how often the last two positions are examined in the last experiment
LINEAR = 0.9  # growth over the last decade of rounds: 1 is linear, 0 is none
PAPERS_QUERY = "query 82523"  # of Figure 1
FIGURES_1_2, FIGURE_3 = "5, Figures 1 and 2", "5, Figure 3"


def bandit_trial(run: PlannedRun) -> BanditTrial:
    """A click bandit with one query of a click model."""
    name, params = run.learner
    if params.get("delta") == "1/n":
        params["delta"] = 1.0 / run.rounds
    source, _, query = run.data.rpartition("#")
    settings = {"models": source, **run.part.settings, **run.contender.settings}
    model, rounds, seed = run.user, run.rounds, run.seed
    return BanditTrial(
        run.contender.name, name, model=model, query=query, params=params, rounds=rounds, seed=seed, **settings
    )


def queries_of(part: Part) -> list[tuple[str, str]]:
    """Every query of every source, with CM and PBM if the source has them, else with all its models."""
    found: dict[tuple[str, str], str] = {}
    for source in part.data:
        users = open_models(source)
        for model in [model for model in MODELS if model in users] or users:
            for query in users[model]:
                if (query, model) in found:
                    raise DataError(f"{model} of query {query} stands in two of {', '.join(part.data)}; give each once")
                found[query, model] = source
    return [(f"{source}#{query}", model) for (query, model), source in found.items()]


# fmt: off
CONTENDERS = (
    Contender(BUBBLE0, "bubblerank@paper", horizon=True, seeds=10, settings={"start": "random"}),
    Contender(BUBBLEKL, "bubblerank@paper", horizon=True, settings={"start": "warm"}),
    Contender(LOOSE, "bubblerank", ({"delta": "1/n"},), settings={"start": "warm"}),
    Contender(KLUCB, "cascade-klucb@paper"),
    Contender(BATCH, "batchrank@code", horizon=True),
    Contender(PRINTED, "batchrank@paper", horizon=True),
    Contender(TOP, "toprank@paper", horizon=True),
)
# fmt: on
_SAFE = tuple(c if c.name == BUBBLE0 else replace(c, settings={"start": "warm"}) for c in CONTENDERS)
# fmt: off
REGRETS = Part(
    "regret",
    CONTENDERS,
    ("generated?queries=10",),
    rounds=10_000_000, seeds=3, users=MODELS, trial=bandit_trial, cells=queries_of,
    quick={"data": ("generated?queries=4",), "rounds": 200_000},
)
FAINT = Part(
    "examination",
    tuple(Contender(f"0.5^{i}", "bubblerank@paper", horizon=True, settings={"models": f"fading?power={i}"})
        for i in POWERS),
    ("fading",),
    rounds=1_000_000, seeds=10, users=("PBM",), settings={"top": 10}, takes_data=False, trial=bandit_trial,
    cells=lambda _: [("#fading", "PBM")], quick={"seeds": 3},
)
SAFETY = Part(
    "safety",
    _SAFE,
    REGRETS.data,
    rounds=100_000, seeds=3, users=MODELS, settings={"safety": True}, trial=bandit_trial, cells=queries_of,
    quick={"data": ("generated?queries=4",)},
)
# fmt: on


def _higher(text: str, model: str, high: str, low: str, times: float = 1.0) -> Higher:
    text, where = f"{text} in the {model}", FIGURES_1_2
    return Higher(text, where, "regret", high, low, part="regret", users=model, pooled=True, times=times)


def _learns(name: str, model: str) -> Level:
    text = f"{name} learns the best list in the {model}: regret grows slower than n^{LINEAR} over the last decade"
    where, low, high = FIGURES_1_2, -np.inf, LINEAR
    grown = Level(text, where, "regret", name, part="regret", users=model, reading=growth(), above=low, below=high)
    return replace(grown, pooled=True)


def _in(model: str, ours: int, theirs: int, less: float) -> list[Claim]:
    """What is said of both models, and the regrets that the paper prints."""
    printed = f"has {less:.0%} less regret than {BATCH} ({ours} and {theirs}; here, on other queries, at least"
    straight = f"The regret of {BUBBLE0} is linear in |V0| in the {model}"
    return [
        _learns(BATCH, model),
        _higher(f"{BUBBLE0} has a higher regret than {BATCH}", model, BUBBLE0, BATCH),
        _higher(f"{BUBBLEKL} has a lower regret than {BATCH}", model, BATCH, BUBBLEKL),
        _learns(BUBBLE0, model),
        _learns(BUBBLEKL, model),
        _higher(f"{BUBBLEKL} {printed} {less - NEAR:.0%} less)", model, BATCH, BUBBLEKL, 1 / (1 - less + NEAR)),
        Straight(straight, FIGURE_3, "regret", "wrong", BUBBLE0, part="regret", users=model),
    ]


# fmt: off
CLAIMS: tuple[Claim, ...] = (
    Higher(f"{KLUCB} learns the best list quickly in the CM: nobody has less regret there", FIGURES_1_2, "regret",
        (BUBBLE0, BUBBLEKL, BATCH), KLUCB, part="regret", users="CM", pooled=True, needed="all"),
    Level(f"{KLUCB} may have linear regret in the PBM: with some query it grows faster than n^{LINEAR}", FIGURES_1_2,
        "regret", KLUCB, part="regret", users="PBM", reading=growth(), above=LINEAR, needed="any"),
    _higher(f"{BATCH} has a much higher regret than {KLUCB}", "CM", BATCH, KLUCB),
    *_in("CM", 541, 1475, 0.63),
    *_in("PBM", 4409, 6833, 0.35),
    Steps("The regret doubles when the last position is examined half as often: 1.5 to 2.5 times as much for each "
        "halving, on average over four of them, at all ten positions", FIGURE_3, "regret",
        tuple(f"0.5^{i}" for i in POWERS), part="examination", above=float(np.log2(1.5)), below=float(np.log2(2.5))),
    Never("Any base list improves upon the one before it: no harmful change", "3.1", "harmful", (BUBBLE0, BUBBLEKL),
        part="safety", beside=False),
    Never("Exploration is cautious: items are at most one place from the base list, so no list has more than |V0| + "
        "K/2 pairs the wrong way round", "3.1", "unsafe", (BUBBLE0, BUBBLEKL), part="safety"),
)
# fmt: on


def _one_query(results: Results) -> Figure:
    """Figure 1: the paper's query if it is there, else the first."""
    names = [cell.data for cell in results.cells("regret", "regret")]
    chosen = PAPERS_QUERY if PAPERS_QUERY in names else names[0]
    return paper_figures.regret_over_time(results, "regret", chosen)


# fmt: off
PAPER = Paper(
    "bubblerank",
    "Chang Li, Branislav Kveton, Tor Lattimore, Ilya Markov, Maarten de Rijke, Csaba Szepesvári, Masrour Zoghi: "
    "BubbleRank: Safe Online Learning to Re-Rank via Implicit Click Feedback. UAI 2019",
    "BubbleRank, the experiments repeated",
    f"{BUBBLE0} starts from ten random lists, {BUBBLEKL} from the list that {KLUCB} has after {WARM_ROUNDS:,} rounds "
    f"of its own, whose regret does not count, as in the paper. {BATCH} is the variant that its authors benchmarked; "
    f"the one of their paper, {TOP} and δ = 1/n instead of n⁻⁴ are not in paper 002. Users follow generated click "
    "models unless some are given: a JSON file, what `rankloop clicks fit` wrote, or a raw click log, of which the 60 "
    "most frequent queries are taken. Nothing is tuned. Unsafe lists are counted in shorter runs.",
    "10 million rounds and 10 runs on 60 queries of the Yandex log with 10 documents each.",
    (REGRETS, FAINT, SAFETY),
    CLAIMS,
    (
        PaperFigure("one-query", "Figure 1: regret with one query. Bands are one standard error over runs.",
            _one_query),
        PaperFigure("all-queries", "Figure 2: regret, averaged over all queries. Bands are one standard error, "
            "queries are clusters.", lambda results: paper_figures.regret_over_time(results, "regret")),
        PaperFigure("hard", f"Figure 3: regret of {BUBBLE0} against |V0| (a dot is a run, a color a query, the line "
            "has the mean slope of the queries), and over time when the last two positions are seldom examined.",
            lambda results: paper_figures.regret_by_hardness(results, BUBBLE0)),
    ),
    (
        Ends("Regret at the end", "regret", part="regret", digits=0, pooled=True),
        Ends("Growth over the last decade, n^", "regret", part="regret", digits=2, pooled=True, reading=growth()),
        Ends("Regret by examination of the last position", "regret", part="examination", digits=0, pooled=True),
        Ends("Unsafe lists of 100,000", "unsafe", part="safety", digits=0, pooled=True),
        Ends("Harmful changes of the base list", "harmful", part="safety", digits=2, pooled=True,
            who=(BUBBLE0, BUBBLEKL, LOOSE)),
        Ends("Rounds a second", "rounds_per_second", part="regret", digits=0, pooled=True),
    ),
    ("Regret is exact: what the best list is expected to get at the first five positions less what the shown one is, "
        "by the click model's own probabilities; with seldom examined positions at all ten, where the best document "
        "starts. With single queries two documents may be so much alike that ten million rounds do not tell them "
        "apart, which costs little.",),
    convert=fit_if_log,
)
# fmt: on
