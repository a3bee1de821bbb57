"""Azure Personalizer: its messages, hashed features of any JSON, and its settings as a ranker."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from rankloop.core.errors import InvalidInput
from rankloop.core.specs import duration_seconds
from rankloop.core.types import SparseRows
from rankloop.features import hashing

MOST_ACTIONS = 50  # the limit of Personalizer
Id = Annotated[str, Meta(min_length=1, max_length=256)]


class Action(Struct):
    """An action; features are any JSON."""

    id: Id
    features: list[Any] | None = None


class RankRequest(Struct, rename="camel"):
    """A request to rank actions; unknown fields are ignored."""

    actions: Annotated[list[Action], Meta(min_length=1)]
    context_features: list[Any] | None = None
    excluded_actions: list[str] | None = None
    event_id: Id | None = None
    defer_activation: bool | None = False


class RankedAction(Struct, omit_defaults=True):
    """A ranked action, with its probability if known."""

    id: str
    probability: float | None = None


class RankResponse(Struct, rename="camel"):
    """The ranking and the action to be rewarded."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Struct):
    """The value of the action."""

    value: float


class PersonalizerError(Struct):
    """An error: BadRequest, ResourceNotFound, InternalServerError or an HTTP reason."""

    code: str
    message: str


class ErrorResponse(Struct):
    """An error response."""

    error: PersonalizerError


rank_request = msgspec.json.Decoder(RankRequest).decode


def reward_value(body: bytes) -> float:
    """The value of a reward call."""
    return _reward(body).value


_reward = msgspec.json.Decoder(RewardRequest).decode


def allowed(request: RankRequest) -> list[Action]:
    """Check a request and return the actions that may be first."""
    ids = [action.id for action in request.actions]
    if len(ids) > MOST_ACTIONS:
        raise InvalidInput(f"{len(ids)} actions; Personalizer takes at most {MOST_ACTIONS}: send fewer")
    if any("\0" in one for one in [*ids, request.event_id or ""]):
        raise InvalidInput("an id contains the character NUL; remove it")
    if len(set(ids)) < len(ids):
        double = next(one for one in ids if ids.count(one) > 1)
        raise InvalidInput(f"action {double!r} occurs twice; ids must be unique")
    excluded = set(request.excluded_actions or ())
    strange = sorted(excluded.difference(ids))
    if strange:
        raise InvalidInput(f"excludedActions names {strange[0]!r}, which is not among the actions")
    found = [action for action in request.actions if action.id not in excluded]
    if not found:
        raise InvalidInput("all actions are excluded; leave at least one")
    return found


def rows(request: RankRequest, actions: Sequence[Action], width: int) -> SparseRows:
    """Return the rows of actions: their features, also crossed with those of the context."""
    return crossed_rows(request.context_features, [(one.id, one.features) for one in actions], width)


def response(
    request: RankRequest, event_id: str, first: str, best: Sequence[str], chances: Mapping[str, float] | None
) -> RankResponse:
    """Return the response: `first`, then the others in the order of `best`; excluded actions keep their places.

    >>> asked = RankRequest([Action("a"), Action("b"), Action("c")], excluded_actions=["a"])
    >>> [one.id for one in response(asked, "e", "c", ["b", "c"], None).ranking]
    ['a', 'c', 'b']
    """
    others = iter([first, *(one for one in best if one != first)])
    excluded = set(request.excluded_actions or ())
    ranking = []
    for action in request.actions:
        if action.id in excluded:
            ranking.append(RankedAction(action.id, None if chances is None else 0.0))
        else:
            item = next(others)
            ranking.append(RankedAction(item, None if chances is None else min(1.0, max(0.0, chances[item]))))
    return RankResponse(ranking, event_id, first)


MOST_PAIRS = 2**20  # entries of one request's rows: more is a mistake, or an attack
DEEPEST = 32  # levels
OCTAVE = 4  # buckets a doubling of a number
SHRINK = 4.0  # asinh(27) is 4: numbers count about as much as categories, whatever their unit


def flattened(value: Any, name: str = "") -> tuple[list[str], list[str | bool | float]]:
    """Names and values of all that stands in a piece of JSON.

    A name is the way to the value; a list's elements share that of the list, but for numbers, which have places. A
    number counts twice: as a magnitude (asinh, so that a price of 1,000 does not outweigh everything else) and as the
    category of its size, a quarter of an octave wide, since what is liked is seldom the largest or the smallest. Null
    is nothing.

    >>> flattened([{"device": {"mobile": True}, "tags": ["new", "hot"]}])
    (['device.mobile', 'tags', 'tags'], [True, 'new', 'hot'])
    >>> flattened({"price": 20})  # doctest: +ELLIPSIS
    (['price', 'price~'], [0.922..., '17'])
    """
    names: list[str] = []
    values: list[str | bool | float] = []
    for path, leaf in _leaves(value, name, 0):
        if isinstance(leaf, bool | str):
            names.append(path)
            values.append(leaf)
        else:
            names += [path, f"{path}~"]
            values += [math.asinh(leaf) / SHRINK, _bucket(leaf)]
    return names, values


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, str | bool | float]]:
    if depth > DEEPEST:
        raise InvalidInput(f"features are nested more than {DEEPEST} levels deep; make them flatter")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            own = name if isinstance(inner, bool) or not isinstance(inner, int | float) else f"{name}.{i}"
            yield from _leaves(inner, own, depth + 1)
    elif value is not None:
        if isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) < float("inf"):
            raise InvalidInput(f"feature {name!r} is {value}; features must be finite")
        yield name, value


def _bucket(value: float) -> str:
    """The category of a number's size: the same for numbers within a quarter of an octave."""
    if value == 0:
        return "0"
    size = math.floor(OCTAVE * math.log2(abs(value)))
    return f"-{size}" if value < 0 else str(size)


def crossed_rows(context: Any, items: Sequence[tuple[str, Any]], width: int) -> SparseRows:
    """The rows of items (id, features): each item's own features, its id among them, and their crosses with the
    context's. What falls into one column adds up.

    >>> rows = crossed_rows({"day": "monday"}, [("a", {"type": "news"}), ("b", {"type": "sports"})], 1000).dense()
    >>> rows.sum(axis=1), int((rows[0] * rows[1]).sum())  # two features each and two crosses, and nothing in common
    (array([4., 4.]), 0)
    """
    names: list[str] = []
    values: list[str | bool | float] = []
    lengths = np.empty(len(items), np.int64)
    for i, (item, features) in enumerate(items):
        own, told = flattened(features)
        names += ["=id", *own]  # no name in JSON can be taken for it: names of features begin otherwise, or are paths
        values += [item, *told]
        lengths[i] = 1 + len(own)
    given = hashing.codes_of(*flattened(context))
    codes, counts = hashing.codes_of(names, values)
    if codes.size * (1 + given[0].size) > MOST_PAIRS:
        raise InvalidInput(
            f"{codes.size} features of items times {given[0].size} of the context are more than {MOST_PAIRS:,} "
            "crosses; send fewer of either"
        )
    crosses = hashing.crossed(codes, given[0])  # (features, context's)
    columns = hashing.columns(np.concatenate((codes[:, None], crosses), axis=1).ravel(), width)[0]
    weights = np.concatenate((np.ones(1), given[1]))
    starts = np.append(0, np.cumsum(lengths * weights.size))
    return SparseRows(starts, columns, (counts[:, None] * weights).ravel(), width)


WIDTH = 2**17  # columns that features are hashed into: plenty for ten thousand of them with their crosses


class Row(NamedTuple):
    """How a setting was imported."""

    setting: str
    value: str
    becomes: str


def imported(settings: Any, width: int = WIDTH) -> tuple[dict[str, Any], list[Row]]:
    """Return the spec of a ranker like a resource with these settings, and how each setting was imported.

    >>> spec, rows = imported({"rewardWaitTime": "PT5M", "learningMode": "Apprentice"})
    >>> spec["window_seconds"], spec["exposure"]
    (300.0, 'shadow')
    """
    if not isinstance(settings, Mapping):
        raise InvalidInput(f"settings are {type(settings).__name__}; give the object of GET /configurations/service")
    told = {"rewardWaitTime": "PT10M", "defaultReward": 0.0, "rewardAggregation": "earliest", "learningMode": "Online"}
    given: dict[str, Any] = {**told, **settings}
    rows: list[Row] = []

    def becomes(setting: str, text: str) -> None:
        rows.append(Row(setting, str(given[setting]), text))

    window = duration_seconds(given["rewardWaitTime"])
    if window is None:
        raise InvalidInput(f"rewardWaitTime is {given['rewardWaitTime']!r}, not a duration; write PT10M or P1D")
    becomes("rewardWaitTime", f"window_seconds = {window:g}")
    default = given["defaultReward"]
    if not isinstance(default, int | float) or not 0 <= default <= 1:
        raise InvalidInput(f"defaultReward is {default!r}; rewards are from 0 to 1 here: scale them all alike")
    becomes("defaultReward", f"default_reward = {default:g}")
    aggregation = str(given["rewardAggregation"]).lower()
    if aggregation not in ("earliest", "sum"):
        raise InvalidInput(f"rewardAggregation is {given['rewardAggregation']!r}; it is earliest or sum")
    learned = "learned at once" if aggregation == "earliest" else "added up to 1 until the window ends"
    becomes("rewardAggregation", f"reward_aggregation = {aggregation}: {learned}")
    mode = str(given["learningMode"]).lower()
    if mode not in ("online", "apprentice", "loggingonly"):
        raise InvalidInput(f"learningMode is {given['learningMode']!r}; it is Online, Apprentice or LoggingOnly")
    exposure = "full" if mode == "online" else "shadow"
    why = "" if mode == "online" else ": your first action is shown, and learned from"
    becomes("learningMode", f"exposure = {exposure}{why}")
    parameters: dict[str, Any] = {}
    if "explorationPercentage" in given:
        share = given["explorationPercentage"]
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InvalidInput(f"explorationPercentage is {share!r}; it is a share, from 0 to 1")
        parameters = {"gamma": 0.0, "epsilon": float(share)}
        becomes("explorationPercentage", f"epsilon = {share:g}, gamma = 0: a random action so often, for ever")
    else:
        given["explorationPercentage"] = "not given"
        becomes("explorationPercentage", "squarecb explores the less the more it knows")
    for name in settings:
        if name not in {row.setting for row in rows}:
            becomes(name, "not there: it is about Azure, or about how its models are trained")
    spec = {
        "learner": "squarecb",
        "parameters": parameters,
        "width": width,
        "normalization": "none",
        "k": 1,
        "exposure": exposure,
        "guardrail": None,
        "window_seconds": window,
        "default_reward": float(default),
        "reward_aggregation": aggregation,
    }
    return spec, rows
