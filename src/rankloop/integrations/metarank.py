"""Metarank: its messages as this service's calls, and its configuration as rankers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from rankloop.core.errors import InvalidInput
from rankloop.core.specs import duration_seconds
from rankloop.wire import calls

Id = Annotated[str, Meta(min_length=1, max_length=256)]
Value = str | bool | float | list[Any] | None


class MessageField(Struct):
    """A field of an item, a user or a request."""

    name: str
    value: Value


class Item(Struct):
    """An item of a request, with fields for this request."""

    id: Id
    fields: list[MessageField] | None = None
    relevancy: float | None = None  # sent by older releases; now a field
    label: float | None = None


class RankRequest(Struct):
    """A request to rank items."""

    id: Id
    items: Annotated[list[Item], Meta(min_length=1)]
    timestamp: str | float | None = None
    user: str | None = None
    session: str | None = None
    fields: list[MessageField] | None = None


class RankingEvent(RankRequest, tag_field="event", tag="ranking"):
    """An event: items were shown in this order."""


class InteractionEvent(Struct, tag_field="event", tag="interaction"):
    """An event: a user interacted with an item."""

    id: Id
    item: Id
    type: str
    timestamp: str | float | None = None
    ranking: str | None = None
    user: str | None = None
    session: str | None = None
    fields: list[MessageField] | None = None


class ItemEvent(Struct, tag_field="event", tag="item"):
    """An event: new fields of an item."""

    id: Id
    item: Id
    timestamp: str | float | None = None
    fields: list[MessageField] | None = None


class UserEvent(Struct, tag_field="event", tag="user"):
    """An event: new fields of a user."""

    id: Id
    user: Id
    timestamp: str | float | None = None
    fields: list[MessageField] | None = None


Event = RankingEvent | InteractionEvent | ItemEvent | UserEvent


class NamedValue(Struct):
    """A feature value in an explanation."""

    name: str
    value: float


class RankedItem(Struct, omit_defaults=True):
    """A ranked item."""

    item: str
    score: float
    features: list[NamedValue] | None = None


class RankAnswer(Struct):
    """The items, best first; `took` in milliseconds."""

    took: int
    items: list[RankedItem]


class FeedbackAnswer(Struct, rename="camel", omit_defaults=True):
    """The result of events, with problems in an additional field."""

    status: str
    accepted: int
    updated: int
    took_millis: int
    problems: list[str] = []


_request = msgspec.json.Decoder(RankRequest).decode
_event = msgspec.json.Decoder(Event).decode


def rank_request(body: bytes) -> RankRequest:
    """Decode a request to rank.

    >>> rank_request(b'{"id":"r1","timestamp":"1599391467000","user":"u","items":[{"id":"i3"}]}').items[0].id
    'i3'
    """
    return _request(body)


def event(raw: bytes) -> Event:
    """Decode an event."""
    found: Event = _event(raw)
    return found


def values(fields: list[MessageField] | None) -> dict[str, Any]:
    """Return fields by name; the last one of a name counts."""
    return {field.name: field.value for field in fields or () if field.value is not None}


def item_values(item: Item) -> dict[str, Any]:
    """Return the fields of an item in a request."""
    found = values(item.fields)
    if item.relevancy is not None:
        found.setdefault("relevancy", item.relevancy)
    return found


def translated(request: RankRequest, features: Sequence[str], has_catalog: bool) -> bytes:
    """The body of the service's own rank call; `features` are those that the ranker expects with each item."""
    fields = values(request.fields)
    query = fields.pop("query", "")
    ids = [item.id for item in request.items]
    asked: dict[str, Any] = {"ids": ids, "k": min(len(ids), 1000), "request_id": request.id, "query": str(query)[:512]}
    if user := request.user or request.session:
        asked["user"] = user[:512]
    if fields and has_catalog:
        asked["fields"] = fields
    if features:
        rows = [item_values(item) for item in request.items]
        asked["features"] = {name: [_as_number(name, row.get(name)) for row in rows] for name in features}
    return msgspec.json.encode(asked)


def _as_number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    raise InvalidInput(f"field {name!r} of an item is {value!r:.60}; the ranker takes it as a number")


def ranked(answer: calls.RankAnswer) -> list[RankedItem]:
    """The items of an answer with their scores; the baseline ranking has none, so its scores count down."""
    found = []
    for one in answer.items:
        score = float(len(answer.items) - one.position) if one.score is None else one.score
        features = None
        if isinstance(one.features, dict):
            features = [NamedValue(name, part.value) for name, part in one.features.items()]
        found.append(RankedItem(str(one.id), score, features))
    return found


Verdict = Literal["taken over", "approximated", "not there"]
MOST_LAST = 100  # clicks of a user that are remembered
MOST_FULL = 300  # columns; a matrix of more costs more than it tells
HASHED = 1000  # columns of a category whose values are not given
_ALIKE = "it is the same for all items of a list, so a linear ranker learns nothing from it; cross it with a field of "
_CROSS = 'items: {"kind": "category", "of": ["request.FIELD", "item.FIELD"], "buckets": 1000}'
ALIKE = _ALIKE + _CROSS


class Row(NamedTuple):
    """How a feature was imported."""

    feature: str
    type: str
    verdict: Verdict
    how: str


class Imported(NamedTuple):
    """A model of Metarank as a ranker."""

    model: str
    spec: dict[str, Any]
    rows: list[Row]


class _Taken(NamedTuple):
    declared: list[str | dict[str, Any]]
    verdict: Verdict = "taken over"
    how: str = ""


def imported(
    config: Any, catalog: str = "metarank", sent: Sequence[str] = (), model: str | None = None
) -> list[Imported]:
    """The models of a configuration (as YAML gives it) as rankers.

    Parameters
    ----------
    config
        With `features` and `models`; all else (state, source, api) is about Metarank itself.
    catalog
        Where items and users are kept.
    sent
        Item fields that requests bring with each item, beside `relevancy`: Metarank takes them from events or from
        requests, here a feature has one place.
    model
        Only this one.

    Examples
    --------
    >>> config = {
    ...     "features": [{"name": "ctr", "type": "rate", "top": "click", "bottom": "impression", "scope": "item",
    ...                   "bucket": "24h", "periods": [7, 30]}],
    ...     "models": {"default": {"type": "lambdamart", "weights": {"click": 1}, "features": ["ctr"]}},
    ... }
    >>> (found,) = imported(config)
    >>> [one["name"] for one in found.spec["features"]], found.spec["interactions"]
    (['ctr_7', 'ctr_30'], {'click': 1.0})
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("models"), Mapping):
        raise InvalidInput("no configuration of Metarank: it has no `models`; give the YAML file that Metarank reads")
    features = {one["name"]: one for one in _features(config.get("features"))}
    names = list(config["models"]) if model is None else [model]
    if model is not None and model not in config["models"]:
        raise InvalidInput(f"no model {model!r}; the configuration has {', '.join(config['models'])}")
    return [_model(name, config["models"][name], features, catalog, {"relevancy", *sent}) for name in names]


def _features(given: Any) -> list[Mapping[str, Any]]:
    if not isinstance(given, list):
        raise InvalidInput("no configuration of Metarank: `features` is no list")
    for one in given:
        if not isinstance(one, Mapping) or not {"name", "type"} <= set(one):
            raise InvalidInput(f"a feature is {one!r:.100}; features have a name and a type")
    return given


def _model(name: str, model: Any, features: Mapping[str, Mapping[str, Any]], catalog: str, sent: set[str]) -> Imported:
    if not isinstance(model, Mapping) or not isinstance(model.get("features", []), list):
        raise InvalidInput(f"model {name!r} is {model!r:.100}; a model has type, weights and features")
    declared: list[str | dict[str, Any]] = []
    rows = []
    for wanted in model.get("features", []):
        one = features.get(wanted)
        if one is None:
            raise InvalidInput(f"model {name!r} names feature {wanted!r}, which the configuration does not have")
        taken = _taken(one, sent)
        declared += taken.declared
        rows.append(Row(wanted, str(one["type"]), taken.verdict, taken.how))
    weights = {str(key): float(value) for key, value in (model.get("weights") or {"click": 1}).items()}
    highest = max(weights.values())
    if highest <= 0:
        raise InvalidInput(f"model {name!r}: no weight is above 0; give each interaction what it is worth")
    parameters = {"init": "base"}
    if sum(map(_columns, declared)) > MOST_FULL:
        parameters["confidence"] = "diagonal"
    spec: dict[str, Any] = {
        "learner": "pairrank",
        "parameters": parameters,
        "features": declared,
        "defaults": {one: 0.0 for one in declared if isinstance(one, str)},
        "catalog": catalog,
        "interactions": {key: max(0.0, value) / highest for key, value in weights.items()},
    }
    return Imported(name, spec, rows)


def _columns(declared: str | dict[str, Any]) -> int:
    """Return the number of columns of a feature."""
    return 1 if isinstance(declared, str) else len(declared.get("values", ())) or declared.get("buckets", 1)


def _taken(one: Mapping[str, Any], sent: set[str]) -> _Taken:
    kind = str(one["type"])
    if kind in _FIXED:
        return _FIXED[kind]
    if kind not in KINDS:
        return _Taken([], "not there", f"there is no counterpart to {kind!r}")
    scope, field = _source(one)
    if kind in ("number", "boolean") and scope == "item" and field in sent:
        return _Taken([field], "taken over", SENT)
    return KINDS[kind](one)


# -- sources -------------------------------------------------------------------------------------------------------


def _source(one: Mapping[str, Any], *keys: str) -> tuple[str, str]:
    """Return scope (item, user, session, ranking) and field of a feature's source."""
    for key in (*keys, "source", "field"):
        value = one.get(key)
        if isinstance(value, str):
            scope, dot, field = value.partition(".")
            return (scope, field) if dot else (str(one.get("scope", "item")), scope)
    return str(one.get("scope", "item")), str(one["name"])


def _ours(scope: str, field: str) -> str:
    return "query" if (scope, field) == ("ranking", "query") else f"request.{field}"


# -- fields --------------------------------------------------------------------------------------------------------


def _number(one: Mapping[str, Any]) -> _Taken:
    scope, field = _source(one)
    if scope != "item":
        return _Taken([], "not there", ALIKE)
    return _Taken([{"name": one["name"], "kind": "field", "of": f"item.{field}"}])


def _string(one: Mapping[str, Any]) -> _Taken:
    scope, field = _source(one)
    if scope != "item":
        return _Taken([], "not there", ALIKE)
    made = {"name": one["name"], "kind": "category", "of": f"item.{field}"}
    values = [str(value) for value in one.get("values") or ()]
    if not values:
        how = f"hashed into {HASHED:,} columns: it has no values"
        return _Taken([{**made, "buckets": HASHED}], "approximated", how)
    made["values"] = values
    if one.get("encode", "onehot") == "index":
        return _Taken([made], "approximated", "one column a value: the number of a value means nothing to a sum")
    return _Taken([made], "taken over", f"{len(values)} columns, one a value")


def _vector(one: Mapping[str, Any]) -> _Taken:
    field = _source(one)[1]
    cosine = f'{{"kind": "cosine", "of": "item.{field}", "to": "request.FIELD"}}'
    return _Taken([], "not there", f"the numbers of an embedding do not rank by themselves; compare two: {cosine}")


def _measured(one: Mapping[str, Any]) -> _Taken:
    scope, field = _source(one)
    if scope != "item":
        return _Taken([], "not there", ALIKE)
    return _Taken([], "not there", f"send it with the item as a number: the {one['type']} of {field}")


# -- counts --------------------------------------------------------------------------------------------------------


def _by(scope: str) -> list[str] | None:
    """Return the keys of a count; None if it is the same for all items."""
    if scope == "item":
        return ["item"]
    place, dot, field = scope.partition(".")
    if place == "item" and dot:
        return [scope]
    if place == "ranking" and dot:
        return ["item", _ours(place, field)]
    return None


def _of(interaction: Any) -> tuple[str, str]:
    if interaction == "click":
        return "clicks", ""
    return "rewards", f"all that is worth something counts, by its weight, not only {interaction!r}"


def _count(one: Mapping[str, Any]) -> _Taken:
    by = _by(str(one.get("scope", "item")))
    if by is None:
        return _Taken([], "not there", ALIKE)
    of, how = _of(one.get("interaction"))
    base = {"name": one["name"], "kind": "count", "of": of, "by": by}
    if one["type"] == "window_count":
        bucket = _duration(one.get("bucket", "24h"))
        made: list[str | dict[str, Any]] = [
            {**base, "name": f"{one['name']}_{n}", "window": _span(bucket * int(n))}
            for n in one.get("windows") or one.get("periods") or [1]
        ]
    else:
        made = [base]
    return _Taken(made, "approximated" if how else "taken over", how or "log(1 + count)")


def _rate(one: Mapping[str, Any]) -> _Taken:
    by = _by(str(one.get("scope", "item")))
    if by is None:
        return _Taken([], "not there", ALIKE)
    of, how = _of(one.get("top", "click"))
    if one.get("bottom", "impression") != "impression":
        how = "; ".join(filter(None, (how, f"for each look at the item, not for each {one['bottom']!r}")))
    bucket = _duration(one.get("bucket", "24h"))
    prior = (one.get("normalize") or {}).get("weight", 10)
    made: list[str | dict[str, Any]] = [
        {
            "name": f"{one['name']}_{n}",
            "kind": "rate",
            "of": of,
            "by": by,
            "window": _span(bucket * int(n)),
            "prior": float(prior),
        }
        for n in one.get("periods") or [7]
    ]
    return _Taken(made, "approximated" if how else "taken over", how or "and position bias is taken out")


def _interacted(one: Mapping[str, Any]) -> _Taken:
    fields = one.get("field", "item.id")
    fields = fields if isinstance(fields, list) else [fields]
    last = min(int(one.get("count", 10)), MOST_LAST)
    made: list[str | dict[str, Any]] = []
    for field in fields:
        of = str(field) if "." in str(field) else f"item.{field}"
        name = str(one["name"]) if len(fields) == 1 else f"{one['name']}_{of.partition('.')[2]}"
        made.append(
            {
                "name": name,
                "kind": "clicked",
                "of": of,
                "last": last,
                "window": _span(_duration(one.get("duration", "30d"))),
            }
        )
    parts = []
    if one.get("interaction", "click") != "click":
        parts.append(f"all clicks count, not only {one['interaction']!r}")
    if one.get("scope", "user") == "session":
        parts.append("by user; a session is one where requests have no user")
    share = "the share of the last clicks instead of their number"
    return _Taken(made, "approximated", "; ".join([*parts, share]))


def _field_match(one: Mapping[str, Any]) -> _Taken:
    _, item = _source(one, "itemField")
    scope, asked = _source({"source": one.get("rankingField", "ranking.query")})
    method = one.get("method") or {}
    kind = method.get("type", "term") if isinstance(method, Mapping) else str(method)
    made = {"name": one["name"], "kind": "text", "of": f"item.{item}", "to": _ours(scope, asked)}
    if kind == "bm25":
        return _Taken([{**made, "measure": "bm25"}], "approximated", "words as they stand, without a language's stems")
    how = "words instead of n-grams" if kind == "ngram" else "words as they stand, without a language's stems"
    return _Taken([{**made, "measure": "share"}], "approximated", f"the share of the query's words; {how}")


# -- the rest ------------------------------------------------------------------------------------------------------


def _item_age(one: Mapping[str, Any]) -> _Taken:
    made = {"name": one["name"], "kind": "age", "of": f"item.{_source(one)[1]}"}
    return _Taken([made], "taken over", "log of days; the field is a time, as text (RFC 3339)")


SENT = "sent with each item of a request; 0 where it is not"
_FIXED = {
    "relevancy": _Taken(["relevancy"], "taken over", SENT),
    "local_time": _Taken([], "not there", ALIKE),
    "referer": _Taken([], "not there", ALIKE),
    "ua": _Taken([], "not there", ALIKE),
    "position": _Taken([], "taken over", "no feature: the learner itself corrects position bias"),
    "random": _Taken([], "not there", "not needed: the learner explores by itself"),
    "diversity": _Taken([], "not there", "features are of one item; use quotas to limit items of a kind in a ranking"),
}
KINDS: dict[str, Callable[[Mapping[str, Any]], _Taken]] = {
    "number": _number,
    "boolean": _number,
    "string": _string,
    "vector": _vector,
    "word_count": _measured,
    "list_size": _measured,
    "interaction_count": _count,
    "window_count": _count,
    "rate": _rate,
    "interacted_with": _interacted,
    "field_match": _field_match,
    "item_age": _item_age,
}
TYPES = {*KINDS, *_FIXED}  # types of Metarank's features


def _span(seconds: int) -> str:
    """Return a duration as feature declarations write it.

    >>> _span(604800), _span(5400), _span(10)
    ('7d', '90m', '1m')
    """
    for unit, length in (("d", 86400), ("h", 3600)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{max(1, round(seconds / 60))}m"


def _duration(text: Any) -> int:
    found = duration_seconds(str(text))
    if not found:
        raise InvalidInput(f"{text!r} is not a duration; write 30m, 24h, 7d")
    return int(found)
