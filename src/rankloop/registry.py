"""Name -> learner. A new learner is one file in `learners/` and one line here; everything else reads this table."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
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


LEARNERS: dict[str, Entry] = {
    "pairrank": Entry(
        "rankloop.learners.pairrank:PairRank", "pairwise", "explores only the pairs it is unsure of; the default"
    ),
    "pdgd": Entry("rankloop.learners.pdgd:PDGD", "pairwise", "Plackett-Luce sampling, unbiased pairwise gradient"),
    "greedy": Entry("rankloop.learners.greedy:Greedy", "pairwise", "RankNet on click pairs, no exploration"),
    "epsilon-greedy": Entry(
        "rankloop.learners.epsilon_greedy:EpsilonGreedy", "pairwise", "RankNet, a random document now and then"
    ),
    "offline-ranknet": Entry(
        "rankloop.learners.offline_ranknet:OfflineRankNet", "pairwise", "fitted on true grades: the ceiling", False
    ),
    "dbgd": Entry("rankloop.learners.dbgd:DBGD", "dueling", "tries a random change on every list, keeps what wins"),
    "mgd": Entry("rankloop.learners.mgd:MGD", "dueling", "DBGD with several changes at once"),
    "nsgd": Entry("rankloop.learners.nsgd:NSGD", "dueling", "MGD that avoids what lost; NSGD-DSP as it stands"),
    "dm2l": Entry("rankloop.learners.meta:DM2L", "dueling", "DBGD for users who change: experts with many steps"),
    "m3l": Entry("rankloop.learners.meta:M3L", "dueling", "MGD for users who change"),
    "nm2l": Entry("rankloop.learners.meta:NM2L", "dueling", "NSGD-DSP for users who change"),
    "pm2l": Entry("rankloop.learners.meta:PM2L", "dueling", "PDGD for users who change"),
    "bubblerank": Entry(
        "rankloop.learners.bubblerank:BubbleRank", "bandits", "a good list, safely improved; per query, no features"
    ),
    "cascade-klucb": Entry(
        "rankloop.learners.cascade_klucb:CascadeKLUCB", "bandits", "best for users who leave with the first click"
    ),
    "cascade-ucb1": Entry(
        "rankloop.learners.cascade_ucb1:CascadeUCB1", "bandits", "its simpler relative, to compare with"
    ),
    "toprank": Entry("rankloop.learners.toprank:TopRank", "bandits", "shuffles what is not known to differ"),
    "batchrank": Entry("rankloop.learners.batchrank:BatchRank", "bandits", "parts batches in stages; slow, to compare"),
    "rtopk": Entry("rankloop.learners.rtopk:RTopK", "grades", "learns from the grades of the first results only"),
    "rtopk-items": Entry("rankloop.learners.rtopk_items:RTopKItems", "grades", "the same for items without features"),
    "listnet-full": Entry("rankloop.learners.listnet_full:ListNetFull", "grades", "learns from all grades: a mark"),
    "ftpl-full": Entry("rankloop.learners.ftpl_full:FTPLFull", "grades", "the same for items without features"),
    "olranknet": Entry(
        "rankloop.learners.olranknet:OLRankNet", "neural", "a network that explores only the pairs it is unsure of"
    ),
    "ollambdarank": Entry(
        "rankloop.learners.ollambdarank:OLLambdaRank", "neural", "the same, pairs weighed by what they change of NDCG"
    ),
    "neural-pdgd": Entry("rankloop.learners.neural_pdgd:NeuralPDGD", "neural", "PDGD with a network"),
    "neural-dbgd": Entry("rankloop.learners.neural_dbgd:NeuralDBGD", "neural", "DBGD on a network's weights"),
    "lambdarank-labels": Entry(
        "rankloop.learners.lambdarank_labels:LambdaRankLabels",
        "neural",
        "a network told the true grades of every query shown: the skyline",
        False,
    ),
    "random": Entry("rankloop.learners.random_order:RandomOrder", "baselines", "uniformly random: the floor", False),
    "base": Entry("rankloop.learners.base_order:BaseOrder", "baselines", "keeps the order it is given", False),
}


def learner_class(name: str) -> type[Any]:
    """The class behind a name."""
    entry = LEARNERS.get(name)
    if entry is None:
        raise UnknownName.among("learner", name, LEARNERS)
    module, _, attribute = entry.path.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def make(name: str, **parameters: Any) -> Learner:
    """A fresh learner.

    >>> make("pdgd", rate=0.05)
    PDGD(rate=0.05, decay=0.9999977, plus_one=True)
    >>> make("pdgd", speed=1)
    Traceback (most recent call last):
    ...
    rankloop.errors.InvalidParameter: learner 'pdgd' has no parameter 'speed'; it has rate, decay, plus_one
    """
    cls = learner_class(name)
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
    """The registered name of a learner's class."""
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
                "that rankloop.learners.networks.register gave it"
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
