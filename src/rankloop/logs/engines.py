"""Impressions from logs of search engines: Elasticsearch, OpenSearch, Solr, and UBI queries.

A line holds a whole response. Clicks are in the same object (`clicks`) or in files of UBI events with its query id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankloop.core.errors import DataError, InvalidInput
from rankloop.core.files import ungzipped
from rankloop.logs.impressions import LoggedImpression, parse_found

Clicks = Mapping[str, Mapping[str, float]]  # query id -> item -> value of its click
SKIPPED = "extra_logging"  # an entry of the feature set that is not a feature

CLICK: Mapping[str, float] = {"click": 1.0}


def is_event(line: bytes) -> bool:
    """Whether a line of UBI is an event, not a query; quotes in strings are escaped."""
    return b'"action_name"' in line


def parse_action_values(text: str) -> dict[str, float]:
    """Parse values of actions, `click=0.3,purchase=1`; a name alone has value 1.

    >>> parse_action_values("click=0.3, purchase")
    {'click': 0.3, 'purchase': 1.0}
    """
    found: dict[str, float] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[name.strip()] = float(value) if value else 1.0
        except ValueError:
            raise InvalidInput(f"actions has {part!r}; give name=number, or a name") from None
        if not 0 <= found[name.strip()] <= 1:
            raise InvalidInput(f"actions has {part!r}; values are from 0 to 1")
    return found


def ubi_clicks(paths: Iterable[Path], values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the highest action value of each item of each query, from files of UBI events."""
    found: dict[str, dict[str, float]] = {}
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(ungzipped(file), 1):
                if is_event(line):
                    _add_event(f"{path}:{number}", line, values, found)
    return found


def _add_event(place: str, line: bytes, values: Mapping[str, float], found: dict[str, dict[str, float]]) -> None:
    try:
        event = json.loads(line)
        value = values.get(event["action_name"], 0.0)
        query, attributes = event.get("query_id"), event.get("event_attributes") or {}
        item = (attributes.get("object") or {}).get("object_id")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{place}: not a UBI event ({error})") from None
    if value > 0 and isinstance(query, str) and item is not None:
        items = found.setdefault(query, {})
        items[str(item)] = max(items.get(str(item), 0.0), value)


def parser(kind: str, clicks: Clicks) -> Callable[[bytes], LoggedImpression]:
    """Return the function that parses a line of such a file."""
    read = {"ltrlog": _ltrlog, "solr": _solr, "ubi": _ubi}[kind]

    def parse(line: bytes) -> LoggedImpression:
        try:
            return read(clicks, _object(line))
        except (AttributeError, TypeError, KeyError) as error:  # a value of another type than expected
            raise InvalidInput(f"not of the shape of {kind} ({error})") from None

    return parse


def _ltrlog(clicks: Clicks, answer: dict[str, Any]) -> LoggedImpression:
    """Parse a search response of Elasticsearch or OpenSearch whose hits have `fields._ltrlog`.

    >>> hit = {"_id": "7", "fields": {"_ltrlog": [{"log_entry1": [{"name": "title", "value": 9.5}, {"name": "body"}]}]}}
    >>> line = json.dumps({"query": "shoes", "clicks": ["7"], "hits": {"hits": [hit]}}).encode()
    >>> found = parser("ltrlog", {})(line)
    >>> found.items, found.features, found.clicks
    (['7'], [{'title': 9.5, 'body': 0.0}], [1.0])
    """
    hits = (answer.get("hits") or {}).get("hits")
    if not isinstance(hits, list):
        raise InvalidInput("not a search response: it has no hits.hits")
    ids, rows = [], []
    for hit in hits:
        ids.append(str(hit.get("_id")))
        row: dict[str, float] = {}
        for entry in (hit.get("fields") or {}).get("_ltrlog") or []:
            for logged in entry.values():
                # a feature that did not match has no value and counts as 0 in the engine
                row.update({one["name"]: one.get("value", 0.0) for one in logged if one.get("name") != SKIPPED})
        if not row:
            raise InvalidInput(f"hit {ids[-1]!r} has no fields._ltrlog; ask for it with ext.ltr_log in the search")
        rows.append(row)
    ext = (answer.get("ext") or {}).get("ubi") or {}
    return _list(answer, ids, rows, answer.get("query_id", ext.get("query_id")), clicks)


def _solr(clicks: Clicks, answer: dict[str, Any]) -> LoggedImpression:
    """Parse a response of Solr whose documents have `[features]`, dense or sparse.

    >>> line = b'{"query_id": "q1", "response": {"docs": [{"id": "a", "[features]": "t=1.5,u=0.0"}, '
    >>> line += b'{"id": "b", "[features]": "u=2"}]}}'
    >>> found = parser("solr", {"q1": {"b": 1.0}})(line)
    >>> found.items, found.features, found.clicks
    (['a', 'b'], [{'t': 1.5, 'u': 0.0}, {'t': 0.0, 'u': 2.0}], [0.0, 1.0])
    """
    documents = (answer.get("response") or {}).get("docs")
    if not isinstance(documents, list):
        raise InvalidInput("not a response of Solr: it has no response.docs")
    ids, rows = [], []
    for document in documents:
        ids.append(str(document.get("id")))
        values = document.get("[features]")
        if not isinstance(values, str):
            raise InvalidInput(f"document {ids[-1]!r} has no [features]; ask for it with fl=id,[features]")
        try:
            pairs = [one.partition("=") for one in values.split(",") if one]
            rows.append({name: float(value) for name, _, value in pairs})
        except ValueError:
            raise InvalidInput(f"document {ids[-1]!r}: [features] is {values!r:.60}; it is name=number,…") from None
    query = ((answer.get("responseHeader") or {}).get("params") or {}).get("q", "")
    return _list({"query": query, **answer}, ids, rows, answer.get("query_id"), clicks)


def _ubi(clicks: Clicks, query: dict[str, Any]) -> LoggedImpression:
    """Parse a query of UBI, with the ids of its results; without features.

    >>> line = b'{"query_id": "q1", "user_query": "shoes", "query_response_objects_ids": ["a", "b"], "client_id": "c"}'
    >>> parser("ubi", {"q1": {"b": 1.0}})(line).clicks
    [0.0, 1.0]
    """
    ids = query.get("query_response_objects_ids", query.get("query_response_hit_ids"))
    if not isinstance(ids, list):
        raise InvalidInput("not a query of UBI: it has no query_response_objects_ids")
    found = {"query": query.get("user_query", ""), "user": query.get("client_id")}
    return _list(found, [str(one) for one in ids], None, query.get("query_id"), clicks)


def _list(
    told: Mapping[str, Any], ids: Sequence[str], rows: Sequence[dict[str, float]] | None, query_id: Any, clicks: Clicks
) -> LoggedImpression:
    done: Mapping[str, float] = {}
    if isinstance(told.get("clicks"), list):
        done = {str(one): 1.0 for one in told["clicks"]}
    elif isinstance(query_id, str):
        done = clicks.get(query_id, {})
    else:
        raise InvalidInput("it has neither clicks nor a query_id to find them by; add one of them to the line")
    names = dict.fromkeys(name for row in rows or () for name in row)
    found: dict[str, Any] = {
        "query": told["query"] if isinstance(told.get("query"), str) else "",
        "items": list(ids),
        "clicks": [one for one in ids if one in done],
    }
    if rows is not None:
        found["features"] = [dict.fromkeys(names, 0.0) | row for row in rows]
    if isinstance(told.get("user"), str) and told["user"]:
        found["user"] = told["user"]
    made = parse_found(found)
    strange = [one for one in done if one not in made.items]
    if strange and "clicks" in told:
        raise InvalidInput(f"clicked but not shown: {strange[0]!r}; clicks are ids of items in the response")
    return made._replace(clicks=[done.get(item, 0.0) for item in made.items])


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"a line is an object, not {type(found).__name__}")
    return found
