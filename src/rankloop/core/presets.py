"""Learners as they were published: name@source -> parameters, where they stand, and what to know about them.

`rankloop learners --published` prints this table with what each sets otherwise than our default. A name of it is
accepted wherever a learner is named; parameters given beside it win.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Published(NamedTuple):
    """A learner as somebody published it, under a name of its own: `pairrank@paper`."""

    learner: str
    params: dict[str, Any]
    source: str  # paper and place, or whose released code
    note: str  # what a reader of that source should know
    needs: tuple[str, ...] = ()  # parameters that the source derives from the experiment: to be given beside the name


_PAIRRANK = "Jia, Wang, Guo, Wang, PairRank, WWW 2021"
_NEURAL = "Jia, Wang, Learning Neural Ranking Models Online, WWW 2022"
_TOPK = "Chaudhuri, Tewari, Online LTR with Top-k Feedback, JMLR 2017"
_DRIFT = "Lu et al., Non-Stationary Dueling Bandits for OL2R (paper 004)"
_MGD = "Schuth, Oosterhuis, Whiteson, de Rijke, Multileave Gradient Descent, WSDM 2016"
_PDGD = "Oosterhuis, de Rijke, Differentiable Unbiased OL2R, CIKM 2018"

_PAIRRANK_PAPER: dict[str, Any] = {
    "explore": "conservative",
    "pairs": "adjacent",
    "update": "refit",
    "loss": "sum",
    "bound": 1.0,
    "examine_next": True,
}
_PAIRRANK_CODE: dict[str, Any] = {**_PAIRRANK_PAPER, "explore": "blocks", "pairs": "matched", "loss": "mean"}
_TEAM_DRAFT: dict[str, Any] = {"candidates": 9, "mixing": "team-draft"}
_NSGD: dict[str, Any] = {
    "candidates": 9,
    "mixing": "probabilistic",
    "rate": 0.01,
    "delta": 1.0,
    "memory": 60,
    "avoided": 25,
}
_P_MGD: dict[str, Any] = {"candidates": 49, "mixing": "probabilistic"}
_THEOREM_2: dict[str, Any] = {"radius": 1.0, "smallest_step": 1.0, "loss_scale": "paper"}
_NET_PAPER: dict[str, Any] = {
    "net": "two-layer",
    "width": 100,
    "seed": 0,
    "alpha": 0.01,
    "prior": 0.01,
    "rate": 0.001,
    "update": "refit",
    "restart": False,
    "loss": "ranknet",
}
_NET_NOTE = (
    "λ (prior), α and the rate are tuned over 0.1 … 0.0001 in the paper, the winners not printed: these are "
    "the middle of its grids."
)
_SURROGATE: dict[str, Any] = {
    "rate": 0.01,
    "explore": 0.1,
    "random_propensity": "gamma",
}  # section 4.2: .01/t^(2/3), .1/t^(1/3)
_ONE_GRADE: dict[str, Any] = {**_SURROGATE, "top": 1}

PUBLISHED: dict[str, Published] = {
    "pairrank@paper": Published(
        "pairrank-paper",
        {**_PAIRRANK_PAPER, "alpha": 0.1, "prior": 0.1, "ridge": 0.1},
        f"{_PAIRRANK}: Algorithm 1, Eq. (1), Definitions 1 and 2",
        "The paper tunes α over .1 … .0001 and does not tell λ: .1 and .1 are the released README's. Blocks shuffled: "
        "explore=blocks.",
    ),
    "pairrank@code": Published(
        "pairrank-paper",
        # it adds λ‖θ‖² to the mean loss, and our ridge weighs ‖θ‖²/2
        {**_PAIRRANK_CODE, "alpha": 0.01, "prior": 0.5, "ridge": 1.0},
        "released code of PairRank, defaults of its command line: λ = .5, α = .01",
        "Mean loss + λ‖θ‖², some hundred times the paper's ridge after a few hundred pairs: θ stays short.",
    ),
    "pairrank@readme": Published(
        "pairrank-paper",
        {**_PAIRRANK_CODE, "alpha": 0.1, "prior": 0.1, "ridge": 0.2},
        "released code of PairRank, the call in its README: λ = .1, α = .1",
        "As pairrank@code otherwise.",
    ),
    "greedy@paper": Published(
        "greedy",
        {"pairs": "adjacent"},
        f"{_PAIRRANK}: SGD RankNet, section 4.1",
        "Pairs as PairRank infers them; the paper tunes the rate.",
    ),
    "epsilon-greedy@paper": Published(
        "epsilon-greedy",
        {"pairs": "adjacent"},
        f"{_PAIRRANK}: ε-Greedy, section 4.1",
        "Pairs as PairRank infers them; the paper tunes the rate and ε.",
    ),
    "pdgd@paper": Published(
        "pdgd",
        {"rate": 0.1, "decay": 0.9999977},
        f"{_PDGD}: equations 5-11, and its released code",
        "Our default.",
    ),
    "dbgd@paper": Published(
        "dbgd",
        {"rate": 0.01, "delta": 1.0, "mixing": "probabilistic", "radius": 0.0},
        f"Yue, Joachims, ICML 2009, as in {_DRIFT}: Algorithm 1, and as released with P-MGD and PDGD",
        "Our default.",
    ),
    "mgd@paper": Published(
        "mgd",
        {**_TEAM_DRAFT, "rate": 0.03, "delta": 1.0},
        f"{_MGD}: MGD-M with team draft multileaving, η = .03",
        "Our default. The paper varies the number of candidates; nine and the current ranker share ten results.",
    ),
    "mgd@code": Published(
        "mgd",
        {**_P_MGD, "rate": 0.01, "delta": 1.0},
        "Oosterhuis, Schuth, de Rijke, Probabilistic MGD, ECIR 2016, as released: P-MGD",
        "The released code samples 10,000 assignments of clicks; ours are exact.",
    ),
    "nsgd@paper": Published(
        "nsgd",
        {**_NSGD, "dsp": False},
        "Wang, Langley, Kim, McCord-Snook, Wang, Efficient Exploration of Gradient Space, SIGIR 2018",
        "Without document space projection.",
    ),
    "nsgd@dsp": Published(
        "nsgd",
        {**_NSGD, "dsp": True},
        "Wang, Kim, McCord-Snook, Wu, Wang, Variance Reduction in Gradient Exploration, SIGIR 2019: NSGD-DSP",
        "Our default, and the baseline of paper 004.",
    ),
    "dm2l@paper": Published(
        "dm2l",
        {**_THEOREM_2},
        f"{_DRIFT}: Algorithms 2 and 3, Theorem 2 with δ = 1 (section 6.2)",
        "R is not told: 1. Hedge's losses are not normalized, so its weights collapse on one expert after a few wins.",
        ("horizon",),
    ),
    "m3l@paper": Published(
        "m3l",
        {**_THEOREM_2, "base_parameters": _TEAM_DRAFT},
        f"{_DRIFT}: Theorem 2, over MGD as in WSDM 2016 (mgd@paper)",
        "As dm2l@paper.",
        ("horizon",),
    ),
    "m3l@p-mgd": Published(
        "m3l",
        {**_THEOREM_2, "base_parameters": _P_MGD},
        f"{_DRIFT}: Theorem 2, over MGD as released (mgd@code)",
        "As dm2l@paper; the paper does not tell which MGD it ran over.",
        ("horizon",),
    ),
    "nm2l@paper": Published(
        "nm2l",
        {**_THEOREM_2},
        f"{_DRIFT}: Theorem 2, over NSGD-DSP (nsgd@dsp)",
        "As dm2l@paper.",
        ("horizon",),
    ),
    "bubblerank@paper": Published(
        "bubblerank",
        {},
        "Li et al., BubbleRank, UAI 2019: Algorithm 1 with δ = n⁻⁴",
        "The paper knows n, the horizon.",
        ("horizon",),
    ),
    "cascade-ucb1@paper": Published(
        "cascade-ucb1", {}, "Kveton et al., Cascading Bandits, ICML 2015: Algorithm 1, CascadeUCB1", "Our default."
    ),
    "cascade-klucb@paper": Published(
        "cascade-klucb",
        {"variant": "paper"},
        "Kveton et al., Cascading Bandits, ICML 2015: Algorithm 1, CascadeKL-UCB",
        "Our default.",
    ),
    "cascade-klucb@code": Published(
        "cascade-klucb",
        {"variant": "published"},
        "its published code",
        "Budget log t without 3 log log t; items that nobody has looked at come on top first.",
    ),
    "toprank@paper": Published(
        "toprank",
        {},
        "Lattimore, Kveton, Li, Szepesvari, TopRank, NeurIPS 2018: δ = 1/n",
        "The paper knows n.",
        ("horizon",),
    ),
    "batchrank@paper": Published(
        "batchrank",
        {"variant": "paper"},
        "Zoghi et al., Online LTR in Stochastic Click Models, ICML 2017: Algorithms 1-3",
        "The paper knows T.",
        ("horizon",),
    ),
    "batchrank@code": Published(
        "batchrank",
        {"variant": "merge"},
        "what BatchRank's authors benchmarked (RealMergeRankKL), known in outline",
        "The paper knows T.",
        ("horizon",),
    ),
    "rtopk@paper": Published(
        "rtopk",
        {**_SURROGATE, "surrogate": "ranksvm", "top": 2},
        f"{_TOPK}: Algorithm 2 with RankSVM, section 4.2",
        "The best of the paper's four surrogates. Its numerators are the best of .001 … 10 on its data; U is not told.",
    ),
    "rtopk@paper-kl": Published(
        "rtopk",
        {**_ONE_GRADE, "surrogate": "kl", "known": "weighted"},
        f"{_TOPK}: Algorithm 2 with KL, section 4.2",
        "As rtopk@paper.",
    ),
    "rtopk@paper-squared": Published(
        "rtopk",
        {**_ONE_GRADE, "surrogate": "squared", "known": "exact"},
        f"{_TOPK}: Algorithm 2 with squared loss, section 4.2",
        "As rtopk@paper.",
    ),
    "rtopk@paper-smoothdcg": Published(
        "rtopk",
        {**_ONE_GRADE, "surrogate": "smoothdcg", "temperature": 0.01},
        f"{_TOPK}: Algorithm 2 with SmoothDCG, section 4.2",
        "As rtopk@paper; we go up, as a gain wants it, where the paper's listing goes down.",
    ),
    "rtopk-items@paper": Published(
        "rtopk-items",
        {"top": 1, "below": "random", "blocks": 0, "epsilon": 0.0},
        f"{_TOPK}: Algorithm 1 with FTPL, K and ε of Corollary 10",
        "Below what is explored the paper allows any order; its figures are those of a random one.",
        ("horizon",),
    ),
    "listnet-full@paper": Published(
        "listnet-full", {"rate": 0.01}, f"{_TOPK}: the online ListNet of section 4.2", "η = .01/√t."
    ),
    "ftpl-full@paper": Published(
        "ftpl-full",
        {"epsilon": 0.0},
        f"{_TOPK}: FTPL with full information, Figure 3",
        "The paper knows T.",
        ("horizon",),
    ),
    "olranknet@paper": Published(
        "olranknet-paper",
        _NET_PAPER,
        f"{_NEURAL}: Algorithm 1 and section 5.1, by Adam as in the released code",
        _NET_NOTE,
    ),
    "olranknet@code": Published(
        "olranknet-paper",
        {**_NET_PAPER, "restart": True},
        "released code of Jia, Wang, WWW 2022: every refit from a new start, 20 epochs of Adam, batch 1024",
        _NET_NOTE,
    ),
    "ollambdarank@paper": Published(
        "olranknet-paper",
        {**_NET_PAPER, "loss": "lambdarank"},
        f"{_NEURAL}: Algorithm 1 with LambdaRank's loss, section 5.1",
        "As olranknet@paper.",
    ),
    "lambdarank-labels@paper": Published(
        "lambdarank-labels",
        {"growth": 0},
        f"{_NEURAL}: olLambdaRank GT of section 5.1",
        "A new model on all queries presented so far after every round, which takes long.",
    ),
}
