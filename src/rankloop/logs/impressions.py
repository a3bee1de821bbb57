"""One logged impression: its fields, checked, and its candidates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.scaling import scaled
from rankloop.core.types import Candidates

FIELDS = ("query", "items", "features", "clicks", "shown", "propensity", "log_propensity", "time", "user", "id")
ITEM_FIELDS = ("id", "features")
Row = Mapping[str, float] | Sequence[float]


class LoggedImpression(NamedTuple):
    """What one user was shown and clicked.

    >>> parse_line(b'{"query": "shoes", "items": ["a", "b"], "features": [[0.1], [0.7]], "clicks": ["b"]}')
    LoggedImpression(query='shoes', items=['a', 'b'], features=[[0.1], [0.7]], clicks=[0.0, 1.0], log_propensity=None, user=None, id=None)
    """  # noqa: E501

    query: str
    items: list[Any]  # ids in the order shown, then candidates that were not shown
    features: list[Row] | None  # per item, by name or in order
    clicks: list[float]  # per shown item: 1 clicked, 0 not
    log_propensity: float | None = None  # log propensity of the production ranker
    user: str | None = None
    id: str | None = None


def parse_line(line: bytes) -> LoggedImpression:
    """Parse a line of JSON."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"a line is an object with {', '.join(FIELDS[:4])}, not {type(found).__name__}")
    return parse_found(found)


def parse_found(found: Mapping[str, Any]) -> LoggedImpression:
    """Make an impression from a JSON object."""
    _require_known(found, FIELDS, "field")
    for name in ("items", "clicks"):
        if not isinstance(found.get(name), list):
            raise InvalidInput(f"{name} is {found.get(name)!r:.60}; give a list")
    items, features = _items(found["items"], found.get("features"))
    shown = found.get("shown", len(items))
    if type(shown) is not int or not 1 <= shown <= len(items):
        raise InvalidInput(f"shown is {shown!r:.60}; it must be a whole number from 1 to the {len(items)} items")
    return LoggedImpression(
        _text("query", found.get("query", ""), 0),
        items,
        features,
        _flags(found["clicks"], items[:shown]),
        _chance(found.get("propensity"), found.get("log_propensity")),
        None if found.get("user") is None else _text("user", found["user"], 1),
        None if found.get("id") is None else _text("id", found["id"], 1),
    )


def from_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> LoggedImpression:
    """Make an impression from table rows, one per item; rows without a position were not shown."""
    shown: dict[int, Mapping[str, Any]] = {}
    others = []
    for row in rows:
        if row["position"] is None:
            if row["click"]:
                raise InvalidInput(f"item {row['item']!r} was clicked but has no position, so it was not shown")
            others.append(row)
            continue
        position = row["position"]
        if position in shown:
            raise InvalidInput(f"position {position} occurs twice in list {row['list']!r}")
        if row["click"] not in (0, 1):
            raise InvalidInput(f"click of item {row['item']!r} is {row['click']!r}; it must be 0 or 1")
        shown[position] = row
    if not shown:
        raise InvalidInput("no item has a position: nothing was shown")
    ordered = [shown[position] for position in sorted(shown)] + others
    first = rows[0]
    items, features = _items(
        [row["item"] for row in ordered], [[row[name] for name in names] for row in ordered] if names else None
    )
    by_name: list[Row] | None = None
    if features is not None:
        by_name = [dict(zip(names, row, strict=True)) for row in features]  # type: ignore[arg-type]
    user = first.get("user")
    return LoggedImpression(
        _text("query", "" if first["query"] is None else first["query"], 0),
        items,
        by_name,
        [float(shown[position]["click"]) for position in sorted(shown)],
        _chance(first.get("propensity"), first.get("log_propensity")),
        None if user is None else _text("user", str(user), 1),
    )


class CandidateBuilder:
    """Makes candidates of logged impressions: feature names, their order and scaling.

    Parameters
    ----------
    names
        In the order of the learner's features; by default those of the first impression.
    scale
        Scale each list as `rankloop.scaled` does.

    Examples
    --------
    >>> rows = [{"price": 2.0, "bm25": 7.5}, {"bm25": 3.0, "price": 1.0}]
    >>> CandidateBuilder(["bm25", "price"]).candidates(LoggedImpression("", ["a", "b"], rows, [0.0, 1.0])).features
    array([[1., 1.],
           [0., 0.]])
    """

    def __init__(self, names: Sequence[str] | None = None, scale: bool = True) -> None:
        self.names, self.scale = None if names is None else list(names), scale
        self.width = 0 if names is None else len(self.names or ())

    def candidates(self, one: LoggedImpression) -> Candidates:
        """Return the candidates of an impression."""
        if one.features is None:
            if self.width:
                raise InvalidInput("it has no features, unlike earlier ones")
            return Candidates(one.query, one.items)
        if self.names is None and isinstance(one.features[0], Mapping):
            self.names = list(one.features[0])
        rows = [self._row(item, row) for item, row in zip(one.items, one.features, strict=True)]
        try:
            table = np.array(rows, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"features are not a table of numbers ({error})") from None
        made = Candidates.without_copy(one.query, one.items, table)
        self.width = len(rows[0])  # only after the checks
        return scaled(made) if self.scale else made

    def _row(self, item: Any, row: Row) -> Sequence[float]:
        if isinstance(row, Mapping):
            names = self.names or []
            missing, unknown = [n for n in names if n not in row], [n for n in row if n not in names]
            if missing or unknown:
                parts = [f"lacks feature {missing[0]!r}"] if missing else []
                parts += [f"has unknown feature {unknown[0]!r}"] if unknown else []
                raise InvalidInput(f"item {item!r} {' and '.join(parts)}; the features are {', '.join(names[:12])}")
            return [row[name] for name in names]
        if self.width and len(row) != self.width:
            raise InvalidInput(f"item {item!r} has {len(row)} features, not {self.width}")
        return row


def _items(given: list[Any], features: Any) -> tuple[list[Any], list[Row] | None]:
    """Check ids and features."""
    if not given:
        raise InvalidInput("items is empty; give at least one")
    rows: Any = features
    if isinstance(given[0], dict):
        if features is not None:
            raise InvalidInput("features are given both beside items and in them; give them once")
        for item in given:
            if not isinstance(item, dict):
                raise InvalidInput(
                    f"items[{given.index(item)}] is {item!r:.60}, but items[0] is an object; use one form"
                )
            _require_known(item, ITEM_FIELDS, "field of an item")
        rows = [item.get("features") for item in given]
        given = [item.get("id") for item in given]
        if all(row is None for row in rows):
            rows = None
    if rows is not None:
        if not isinstance(rows, list) or len(rows) != len(given):
            length = f"{len(rows)} rows" if isinstance(rows, list) else f"{rows!r:.60}"
            raise InvalidInput(f"features are {length} for {len(given)} items; give one row per item")
        for item, row in zip(given, rows, strict=True):
            if not isinstance(row, dict | list) or type(row) is not type(rows[0]):
                raise InvalidInput(f"features of item {item!r} are {row!r:.60}; give numbers, all by name or all lists")
    whole = type(given[0]) is int
    for place, item in enumerate(given):
        if type(item) is not (int if whole else str):
            rule = "ids must all be strings or all be integers"
            raise InvalidInput(f"items[{place}] is {item!r:.60}; {rule}")
        if isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise InvalidInput(f"item {item} is beyond 64 bits")
        if not whole:
            _text("an id", item, 1, 256)
    if len(set(given)) < len(given):
        double = next(item for item in given if given.count(item) > 1)
        raise InvalidInput(f"item {double!r} occurs twice; ids must be unique")
    return given, rows


def _flags(clicks: list[Any], shown: list[Any]) -> list[float]:
    """Return clicks by position: from flags (0, 1, true, false; one per shown item), else from ids."""
    if len(clicks) == len(shown) and all(type(c) in (int, bool, float) and c in (0, 1) for c in clicks):
        return [float(c) for c in clicks]
    flags = [0.0] * len(shown)
    slots = {item: slot for slot, item in enumerate(shown)}
    for item in clicks:
        if isinstance(item, dict | list) or item not in slots:
            raise InvalidInput(f"clicked but not shown: {item!r:.60}; clicks are ids of shown items, or flags 0 and 1")
        flags[slots[item]] = 1.0
    return flags


def _chance(propensity: Any, logarithm: Any) -> float | None:
    for name, value in (("propensity", propensity), ("log_propensity", logarithm)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidInput(f"{name} is {value!r:.60}; give a number")
    if logarithm is not None:
        if propensity is not None:
            raise InvalidInput("both propensity and log_propensity are given; give one")
        if not -1e300 < logarithm <= 0:
            raise InvalidInput(f"log_propensity is {logarithm}; it must be finite and at most 0")
        return float(logarithm)
    if propensity is None:
        return None
    if not 0 < propensity <= 1:
        raise InvalidInput(f"propensity is {propensity}; it must be above 0 and at most 1")
    return math.log(propensity)


def _text(name: str, value: Any, least: int, most: int = 512) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise InvalidInput(f"{name} is {value!r:.60}; give text of {least} to {most} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        raise InvalidInput(f"{name} is {value!r:.60}; it has an invalid character (NUL or a lone surrogate)")
    return value


def _require_known(found: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in found:
        if name not in known:
            raise InvalidInput(f"{name!r} is not a {what}; there are {', '.join(known)}")
