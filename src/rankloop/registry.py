"""Name -> learner. A new learner is one file in `learners/` and one line here; everything else reads this table."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any, NamedTuple

from rankloop import codec
from rankloop.errors import CodecError, InvalidParameter, UnknownName
from rankloop.learner import Learner, params


class Entry(NamedTuple):
    """A learner as lists show it; its module is imported only when it is made."""

    path: str  # module:class
    family: str  # the page in docs/ that tells about it
    summary: str
    learns: bool = True  # False for those that only set a mark to compare with


def _own(family: str, place: str, summary: str, learns: bool = True) -> Entry:
    return Entry(f"rankloop.learners.{family}.{place}", family, summary, learns)


LEARNERS: dict[str, Entry] = {
    "pairrank": _own(
        "pairwise",
        "pairrank:PairRank",
        "explores only the pairs it is unsure of; the default",
    ),
    "pdgd": _own("pairwise", "pdgd:PDGD", "Plackett-Luce sampling, unbiased pairwise gradient"),
    "greedy": _own("pairwise", "greedy:Greedy", "RankNet on click pairs, no exploration"),
    "epsilon-greedy": _own("pairwise", "epsilon_greedy:EpsilonGreedy", "RankNet, a random document now and then"),
    "offline-ranknet": _own(
        "pairwise",
        "offline_ranknet:OfflineRankNet",
        "fitted on true grades: the ceiling",
        False,
    ),
    "dbgd": _own("dueling", "dbgd:DBGD", "tries a random change on every list, keeps what wins"),
    "mgd": _own("dueling", "mgd:MGD", "DBGD with several changes at once"),
    "nsgd": _own("dueling", "nsgd:NSGD", "MGD that avoids what lost; NSGD-DSP as it stands"),
    "dm2l": _own("dueling", "meta:DM2L", "DBGD for users who change: experts with many steps"),
    "m3l": _own("dueling", "meta:M3L", "MGD for users who change"),
    "nm2l": _own("dueling", "meta:NM2L", "NSGD-DSP for users who change"),
    "pm2l": _own("dueling", "meta:PM2L", "PDGD for users who change"),
    "bubblerank": _own(
        "bandits",
        "bubblerank:BubbleRank",
        "a good list, safely improved; per query, no features",
    ),
    "cascade-klucb": _own(
        "bandits",
        "cascade_klucb:CascadeKLUCB",
        "best for users who leave with the first click",
    ),
    "cascade-ucb1": _own("bandits", "cascade_ucb1:CascadeUCB1", "its simpler relative, to compare with"),
    "toprank": _own("bandits", "toprank:TopRank", "shuffles what is not known to differ"),
    "batchrank": _own("bandits", "batchrank:BatchRank", "parts batches in stages; slow, to compare"),
    "rtopk": _own("grades", "rtopk:RTopK", "learns from the grades of the first results only"),
    "rtopk-items": _own("grades", "rtopk_items:RTopKItems", "the same for items without features"),
    "listnet-full": _own("grades", "listnet_full:ListNetFull", "learns from all grades: a mark"),
    "ftpl-full": _own("grades", "ftpl_full:FTPLFull", "the same for items without features"),
    "olranknet": _own(
        "neural",
        "olranknet:OLRankNet",
        "a network that explores only the pairs it is unsure of",
    ),
    "ollambdarank": _own(
        "neural",
        "ollambdarank:OLLambdaRank",
        "the same, pairs weighed by what they change of NDCG",
    ),
    "neural-pdgd": _own("neural", "neural_pdgd:NeuralPDGD", "PDGD with a network"),
    "neural-dbgd": _own("neural", "neural_dbgd:NeuralDBGD", "DBGD on a network's weights"),
    "lambdarank-labels": _own(
        "neural",
        "lambdarank_labels:LambdaRankLabels",
        "a network told the true grades of every query shown: the skyline",
        False,
    ),
    "random": _own("baselines", "random_order:RandomOrder", "uniformly random: the floor", False),
    "base": _own("baselines", "base_order:BaseOrder", "keeps the order it is given", False),
}


# -- published configurations --------------------------------------------------------------------------------------


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
    "certainty": "probability",
    "pairs": "adjacent",
    "update": "refit",
    "loss": "sum",
    "debias": "none",
    "scale": "one",
}
_PAIRRANK_CODE: dict[str, Any] = {**_PAIRRANK_PAPER, "explore": "random", "pairs": "matched", "loss": "mean"}
_TEAM_DRAFT: dict[str, Any] = {"candidates": 9, "mixing": "team-draft"}
_NSGD: dict[str, Any] = {
    "candidates": 9,
    "mixing": "probabilistic",
    "rate": 0.01,
    "delta": 1.0,
    "memory": 60,
    "worst": 25,
}
_P_MGD: dict[str, Any] = {"candidates": 49, "mixing": "probabilistic"}
_THEOREM_2: dict[str, Any] = {"reach": 1.0, "finest": 1.0, "losses": "paper"}
_NET_PAPER: dict[str, Any] = {
    "update": "refit",
    "reinit": True,
    "steps": 20,
    "batch": 1024,
    "pairs": "adjacent",
    "debias": "none",
    "alpha": 0.1,
    "width": 100,
}
_SURROGATE: dict[str, Any] = {"rate": 0.01, "explore": 0.1, "mismatch": "gamma"}  # section 4.2: .01/t^(2/3), .1/t^(1/3)
_ONE_GRADE: dict[str, Any] = {**_SURROGATE, "top": 1}

PUBLISHED: dict[str, Published] = {
    "pairrank@paper": Published(
        "pairrank",
        {**_PAIRRANK_PAPER, "alpha": 0.1, "prior": 0.1, "ridge": 0.1},
        f"{_PAIRRANK}: Algorithm 1, Eq. (1), Definitions 1 and 2",
        "The paper tunes α over .1 … .0001 and does not tell λ: .1 and .1 are the released README's. Blocks shuffled: "
        "explore=random.",
    ),
    "pairrank@code": Published(
        "pairrank",
        # it adds λ‖θ‖² to the mean loss, and our ridge weighs ‖θ‖²/2
        {**_PAIRRANK_CODE, "alpha": 0.01, "prior": 0.5, "ridge": 1.0},
        "released code of PairRank, defaults of its command line: λ = .5, α = .01",
        "Mean loss + λ‖θ‖², some hundred times the paper's ridge after a few hundred pairs: θ stays short.",
    ),
    "pairrank@readme": Published(
        "pairrank",
        {**_PAIRRANK_CODE, "alpha": 0.1, "prior": 0.1, "ridge": 0.2},
        "released code of PairRank, the call in its README: λ = .1, α = .1",
        "As pairrank@code otherwise.",
    ),
    "greedy@paper": Published(
        "greedy",
        {"update": "sgd", "pairs": "adjacent"},
        f"{_PAIRRANK}: SGD RankNet, section 4.1",
        "Pairs as PairRank infers them; the paper tunes the rate.",
    ),
    "epsilon-greedy@paper": Published(
        "epsilon-greedy",
        {"update": "sgd", "pairs": "adjacent"},
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
        "R is not told: 1. Hedge's losses are not normalised, so its weights collapse on one expert after a few wins.",
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
        "olranknet",
        _NET_PAPER,
        f"{_NEURAL}: Algorithm 1 and section 5.1; 20 epochs of Adam, batch 1024, from a new start: its released code",
        "The paper tunes α, λ and the rate over .1 … .0001; rate, ridge and prior are in our units.",
    ),
    "ollambdarank@paper": Published(
        "ollambdarank", _NET_PAPER, f"{_NEURAL}: Algorithm 1 with LambdaRank's loss, section 5.1", "As olranknet@paper."
    ),
}


def resolved(name: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A plain learner and all parameters that are set of it; own ones win over the published ones.

    >>> resolved("mgd@paper", {"candidates": 19})
    ('mgd', {'candidates': 19, 'mixing': 'team-draft', 'rate': 0.03, 'delta': 1.0})
    >>> resolved("dm2l@paper", {})
    Traceback (most recent call last):
    ...
    rankloop.errors.InvalidParameter: learner 'dm2l@paper' needs horizon, which its source takes from the experiment; give it beside the name: 'dm2l@paper?horizon=…'
    """  # noqa: E501
    if "@" not in name:
        return name, dict(parameters)
    published = PUBLISHED.get(name)
    if published is None:
        raise UnknownName.among("published learner", name, PUBLISHED)
    missing = [need for need in published.needs if need not in parameters]
    if missing:
        spec = f"{name}?" + "&".join(f"{need}=…" for need in missing)
        raise InvalidParameter(
            f"learner {name!r} needs {' and '.join(missing)}, which its source takes from the experiment; give it "
            f"beside the name: {spec!r}"
        )
    return published.learner, {**deepcopy(published.params), **parameters}


def is_learner(name: str) -> bool:
    """Whether `make` knows the name, plain or published."""
    return name in LEARNERS or name in PUBLISHED


def entry_of(name: str) -> Entry:
    """The entry of a learner, plain or published."""
    plain = PUBLISHED[name].learner if name in PUBLISHED else name
    entry = LEARNERS.get(plain)
    if entry is None:
        if "@" in name:
            raise UnknownName.among("published learner", name, PUBLISHED)
        raise UnknownName.among("learner", name, LEARNERS)
    return entry


def differences(name: str) -> dict[str, tuple[Any, Any]]:
    """What a published configuration sets otherwise than our default: parameter -> (default, published).

    >>> differences("mgd@code")
    {'candidates': (9, 49), 'mixing': ('team-draft', 'probabilistic'), 'rate': (0.03, 0.01)}
    """
    published = PUBLISHED[name]
    defaults = params(learner_class(published.learner)())
    return {key: (defaults[key], value) for key, value in published.params.items() if defaults[key] != value}


# -- from names to learners and back -------------------------------------------------------------------------------


def learner_class(name: str) -> type[Any]:
    """The class behind a name."""
    module, _, attribute = entry_of(name).path.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def make(name: str, **parameters: Any) -> Learner:
    """A fresh learner, plain or as published; own parameters win over published ones.

    >>> make("pdgd", rate=0.05)
    PDGD(rate=0.05, decay=0.9999977, plus_one=True)
    >>> make("mgd@paper", candidates=19)
    MGD(rate=0.03, delta=1.0, mixing='team-draft', dsp=False, radius=0.0, candidates=19)
    >>> make("pdgd", speed=1)
    Traceback (most recent call last):
    ...
    rankloop.errors.InvalidParameter: learner 'pdgd' has no parameter 'speed'; it has rate, decay, plus_one
    """
    cls = learner_class(name)
    _, parameters = resolved(name, parameters)
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    for given in parameters:
        if given not in known:
            raise InvalidParameter(f"learner {name!r} has no parameter {given!r}; it has {', '.join(known) or 'none'}")
    try:
        learner: Learner = cls(**parameters)
    except TypeError as error:  # a string where a number belongs: comparisons in __post_init__ stumble over it
        raise InvalidParameter(f"learner {name!r} with {parameters}: {error}") from None
    return learner


def parse_parameters(name: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parameters from `name=value` texts, as a command line gives them; values are JSON or plain words.

    >>> parse_parameters("pairrank", ["alpha=.1", "explore=random", "plus_one=false"])
    {'alpha': 0.1, 'explore': 'random', 'plus_one': False}
    """
    parameters: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidParameter(f"parameter {text!r} of learner {name!r} is not of the form name=value")
        if key in parameters:
            raise InvalidParameter(f"parameter {key!r} of learner {name!r} stands twice; give it once")
        try:
            parameters[key] = json.loads(f"0{value}" if value.startswith(".") else value)  # people write .1
        except json.JSONDecodeError:
            parameters[key] = value
    return parameters


def parse_learner(spec: str, more: Iterable[str] = ()) -> tuple[str, dict[str, Any]]:
    """Name and parameters of `name?parameter=value&parameter=value`, with `more` parameter=value texts.

    >>> parse_learner("pairrank?alpha=0.1", ["prior=3"])
    ('pairrank', {'prior': 3, 'alpha': 0.1})
    """
    name, _, own = spec.partition("?")
    return name, parse_parameters(name, [*more, *filter(None, own.split("&"))])


def name_of(learner: Learner) -> str:
    """The registered name of a learner's class; that of a published configuration is the plain one."""
    path = f"{type(learner).__module__}:{type(learner).__qualname__}"
    for name, entry in LEARNERS.items():
        if entry.path == path:
            return name
    raise UnknownName(f"{path} is not registered; add a line to rankloop.registry.LEARNERS")


def dumps(learner: Learner) -> bytes:
    """Everything a learner is, as bytes: name, parameters, state."""
    given = params(learner)
    for name, value in given.items():
        try:
            json.dumps(value)
        except TypeError:
            raise CodecError(
                f"parameter {name} is {value!r:.100}, which only this process knows; a network is saved by the name "
                "that rankloop.learners.neural.networks.register gave it"
            ) from None
    return codec.dumps(learner.state(), {"learner": name_of(learner), "params": given})


def loads(data: bytes, name: str = "these bytes") -> Learner:
    """The learner that `dumps` wrote; it goes on as if never interrupted, bit for bit."""
    arrays, meta = codec.loads(data, name)
    if "learner" not in meta or "params" not in meta:
        raise CodecError(f"{name}: a rankloop file, but not a learner")
    learner = make(meta["learner"], **meta["params"])
    learner.load(arrays)
    return learner


def save(learner: Learner, path: str | os.PathLike[str]) -> None:
    """Write a learner to a file, whole or not at all."""
    data = dumps(learner)
    try:
        codec.write(path, data)
    except FileNotFoundError:
        raise CodecError(f"{path}: there is no such folder; make it first") from None


def load(path: str | os.PathLike[str]) -> Learner:
    """Read a learner from a file."""
    return loads(codec.read_bytes(path), str(path))
