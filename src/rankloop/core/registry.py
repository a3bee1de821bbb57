"""Name -> learner. A new learner is one file in `learners/` and one line here; everything else reads this table."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

from rankloop.core import codec, files, plugins
from rankloop.core.errors import CodecError, InvalidParameter, UnknownName
from rankloop.core.learner import Learner, params, plain
from rankloop.core.presets import PUBLISHED
from rankloop.core.saved_parameters import current_learner
from rankloop.core.scaling import standardized, unwrapped
from rankloop.core.specs import key_values


class Entry(NamedTuple):
    """A learner as lists show it; its module is imported only when it is made."""

    path: str  # module:class
    family: str  # the page in docs/ that tells about it
    summary: str
    learns: bool = True  # False for those that only set a mark to compare with
    params: Mapping[str, Any] = MappingProxyType({})  # of learners that are a class with other defaults


def _own(family: str, place: str, summary: str, learns: bool = True, **params: Any) -> Entry:
    return Entry(f"rankloop.learners.{family}.{place}", family, summary, learns, params)


LEARNERS: dict[str, Entry] = {
    "pairrank": _own(
        "pairwise",
        "pairrank:PairRank",
        "explores only the pairs it is unsure of; the default",
    ),
    "pairrank-paper": _own("pairwise", "pairrank_paper:PairRankPaper", "PairRank with exact refits, as published"),
    "hybrid": _own("pairwise", "hybrid:Hybrid", "pairrank that remembers the queries that come back"),
    "adaptive": _own("pairwise", "adaptive:Adaptive", "PairRank that notices when users change, and says so"),
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
    "dm2l": _own("dueling", "meta:Meta", "DBGD for users who change: experts with many steps", base="dbgd"),
    "m3l": _own("dueling", "meta:Meta", "MGD for users who change", base="mgd"),
    "nm2l": _own("dueling", "meta:Meta", "NSGD-DSP for users who change", base="nsgd", smallest_step=1 / 16),
    "pm2l": _own("dueling", "meta:Meta", "PDGD for users who change", base="pdgd", radius=10.0, smallest_step=1 / 4),
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
    "squarecb": _own("bandits", "squarecb:SquareCB", "a contextual bandit: one item, its reward, any features"),
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
    "olranknet-paper": _own("neural", "olranknet_paper:OLRankNetPaper", "olRankNet and olLambdaRank as published"),
    "perturbed-ensemble": _own("neural", "perturbed_ensemble:PerturbedEnsemble", "networks on noisy labels that vote"),
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


def resolved(name: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A plain learner and all parameters that are set of it; own ones win over the published ones.

    >>> resolved("mgd@paper", {"candidates": 19})
    ('mgd', {'candidates': 19, 'mixing': 'team-draft', 'rate': 0.03, 'delta': 1.0})
    >>> resolved("dm2l@paper", {})
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: learner 'dm2l@paper' needs horizon, which its source takes from the experiment; give it beside the name: 'dm2l@paper?horizon=…'
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
    """Whether `make` knows the name: ours, as published, that of another package, or `my.module:Mine`."""
    return name in LEARNERS or name in PUBLISHED or plugins.place_of(plugins.LEARNERS, name) is not None


def entry_of(name: str) -> Entry:
    """The entry of a learner: ours, plain or published, that of another package, or made up for `my.module:Mine`."""
    entry = LEARNERS.get(PUBLISHED[name].learner if name in PUBLISHED else name)
    if entry is not None:
        return entry
    if "@" in name:
        raise UnknownName.among("published learner", name, PUBLISHED)
    place = plugins.place_of(plugins.LEARNERS, name)
    if place is None:
        raise UnknownName.among("learner", name, [*LEARNERS, *plugins.installed(plugins.LEARNERS)])
    return Entry(place, "own", f"of {plugins.package_of(plugins.LEARNERS, name) or 'your own'}")


def differences(name: str) -> dict[str, tuple[Any, Any]]:
    """What a published configuration sets otherwise than our default: parameter -> (default, published).

    >>> differences("mgd@code")
    {'candidates': (9, 49), 'mixing': ('team-draft', 'probabilistic'), 'rate': (0.03, 0.01)}
    """
    published = PUBLISHED[name]
    defaults = params(make(published.learner))
    return {key: (defaults[key], value) for key, value in published.params.items() if defaults[key] != value}


# -- from names to learners and back -------------------------------------------------------------------------------


def learner_class(name: str) -> type[Any]:
    """The class behind a name."""
    found: Any = plugins.find(entry_of(name).path, "learner")
    if name not in LEARNERS and name not in PUBLISHED:
        _require_learner(name, found)
    cls: type[Any] = found
    return cls


def _require_learner(name: str, found: Any) -> None:
    """Refuse what another package or a file calls a learner and is none: it will be called."""
    rule = "a learner is a dataclass with feedback, contextual, rank, adopt, best, learn, state and load"
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise InvalidParameter(f"learner {name!r} is {found!r:.100}, not a dataclass; {rule}")
    wanted = ("feedback", "contextual", "rank", "adopt", "best", "learn", "state", "load")
    missing = [part for part in wanted if not hasattr(found, part)]
    if missing:
        raise InvalidParameter(f"learner {name!r} has no {', '.join(missing)}; {rule}")


def require_allowed(name: str, allow: Iterable[str] = ()) -> None:
    """Refuse a learner that a file or a request names, if a module would have to be imported that nobody has allowed.

    >>> require_allowed("strange.module:Thing")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    rankloop.core.errors.UnknownName: learner 'strange.module:Thing' is not imported, and to import it is to run it; ...
    """
    name, _ = parse_learner(name)
    if name in LEARNERS or name in PUBLISHED or name in plugins.installed(plugins.LEARNERS):
        return
    if not plugins.is_place(name):
        return
    if not plugins.allowed(name, allow):
        raise UnknownName(
            f"learner {name!r} is not imported, and to import it is to run it; if you trust it, import its module "
            f"first, set {plugins.ALLOW}={name}, or install a package that names it as entry point"
        )


def make(name: str, **parameters: Any) -> Learner:
    """A fresh learner, plain or as published; own parameters win over published ones. Parameters may also be part of
    the name, as in every command: `name?parameter=value&parameter=value`.

    >>> make("pdgd", rate=0.05)
    PDGD(rate=0.05, decay=0.9999977, init='zero', examine_next=True)
    >>> make("pdgd?rate=0.05&init=base")
    PDGD(rate=0.05, decay=0.9999977, init='base', examine_next=True)
    >>> make("mgd@paper", candidates=19)
    MGD(rate=0.03, delta=1.0, mixing='team-draft', dsp=False, radius=0.0, candidates=19)
    >>> make("pdgd", speed=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: learner 'pdgd' has no parameter 'speed'; it has rate, decay, ...
    """
    name, own = parse_learner(name)
    twice = sorted(own.keys() & parameters.keys())
    if twice:
        raise InvalidParameter(f"parameter {twice[0]!r} of learner {name!r} is given in the name and beside it")
    cls = learner_class(name)
    parameters = {**entry_of(name).params, **plain(resolved(name, {**own, **parameters})[1])}
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

    >>> parse_parameters("pairrank", ["alpha=.1", "explore=blocks", "examine_next=false"])
    {'alpha': 0.1, 'explore': 'blocks', 'examine_next': False}
    """
    parameters: dict[str, Any] = {}
    for key, value in key_values(texts, name).items():
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
    """The name of a learner's class: ours (the plain one of a published), of another package, or `my.module:Mine`."""
    path = f"{type(learner).__module__}:{type(learner).__qualname__}"
    same = {name: entry.params for name, entry in LEARNERS.items() if entry.path == path}
    if same:  # several names of one class differ by their parameters
        return max(same, key=lambda name: sum(getattr(learner, key) == value for key, value in same[name].items()))
    for name, point in plugins.installed(plugins.LEARNERS).items():
        if point.value == path:
            return name
    if type(learner).__module__ == "__main__" or not plugins.is_place(path):
        raise UnknownName(f"{path} is not registered, and no other process could find it; put it into a module")
    return path


def dumps(learner: Learner) -> bytes:
    """Everything a learner is, as bytes: name, parameters, state."""
    inner = unwrapped(learner)
    given = params(inner)
    for name, value in given.items():
        try:
            json.dumps(value)
        except TypeError:
            raise CodecError(
                f"parameter {name} is {value!r:.100}, which only this process knows; a network is saved by the name "
                "that rankloop.learners.models.networks.register gave it"
            ) from None
    own = name_of(inner)
    package = plugins.package_of(plugins.LEARNERS, own)
    meta = {"learner": own, "params": given} | ({} if package is None else {"package": package})
    if inner is not learner:
        meta["normalization"] = "stream"
    return codec.dumps(learner.state(), meta)


def loads(data: bytes, name: str = "these bytes", allow: Iterable[str] = ()) -> Learner:
    """The learner that `dumps` wrote; it goes on as if never interrupted, bit for bit.

    A file that names a class of its own, `my.module:Mine`, is loaded if that module is imported already, if `allow` or
    the variable RANKLOOP_ALLOW names it, or if an installed package does: a file alone imports nothing.
    """
    arrays, meta = codec.loads(data, name)
    if "learner" not in meta or "params" not in meta:
        raise CodecError(f"{name}: a rankloop file, but not a learner")
    if not is_learner(meta["learner"]):
        package = meta.get("package")
        remedy = f"pip install {package}" if package else "install the package that it comes from"
        raise UnknownName(f"{name} holds learner {meta['learner']!r}, which is not installed here: {remedy}")
    require_allowed(meta["learner"], allow)
    own, given = current_learner(meta["learner"], meta["params"])
    learner = make(own, **given)
    if "stream" in (meta.get("normalization"), meta.get("normalisation")):  # the latter in files of a18f45f
        learner = standardized(learner)
    learner.load(arrays)
    return learner


def save(learner: Learner, path: str | os.PathLike[str]) -> None:
    """Write a learner to a file, whole or not at all."""
    data = dumps(learner)
    try:
        files.write(path, data)
    except FileNotFoundError:
        raise CodecError(f"{path}: there is no such folder; make it first") from None


def load(path: str | os.PathLike[str], allow: Iterable[str] = ()) -> Learner:
    """Read a learner from a file; `allow` as in `loads`."""
    return loads(files.read_bytes(path), str(path), allow)
