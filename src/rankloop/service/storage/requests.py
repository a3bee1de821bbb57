"""Lists by the names that callers gave their requests: what events of other systems are joined by, durably."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.storage.database import Connection, Row, portions
from rankloop.service.storage.times import lately, where_id

PORTION = 256  # names a statement


class Shown(NamedTuple):
    """A list, as far as someone who reports on it needs it."""

    id: str
    ranker: str
    items: frozenset[str]
    top: str
    viewed: int | None  # positions that came into view; 0: none has yet


def shown(connection: Connection, rankers: Iterable[str], names: Sequence[str]) -> dict[str, list[Shown]]:
    """The lists of these rankers for each name, which is the request_id that a list was asked for with, or its own
    impression_id. Several rankers may have been asked with the same."""
    allowed, found = sorted(set(rankers)), dict[str, list[Shown]]()
    if not allowed:
        return found
    for some in portions(sorted(set(names)), PORTION):
        which, bounds = where_id(connection, some, time.time())
        select = f"SELECT id, id, ranker, shown, viewed FROM impressions WHERE {which}"
        by_id = connection.rows_in(select, some, "", *bounds)
        for name, own, ranker, items, viewed in (*_asked(connection, allowed, some), *by_id):
            if ranker in allowed:
                ids = [str(item) for item in msgspec.json.decode(items)]
                one = Shown(own, ranker, frozenset(ids), ids[0], None if viewed is None else int(viewed))
                found.setdefault(name, []).append(one)
    return found


def _asked(connection: Connection, rankers: Sequence[str], names: Sequence[str]) -> list[Row]:
    """The lists that were asked for by these names. Most were a moment ago: where the log is cut by time, only names
    that are not of the last day are looked for in all of it."""
    found: list[Row] = []
    for start in dict.fromkeys((lately(connection, time.time()), "")):
        there = {row[0] for row in found}
        names = [name for name in names if name not in there]
        if names:
            pairs = [(ranker, name) for ranker in rankers for name in names]
            found += connection.by_request("request_id, id, ranker, shown, viewed", pairs, start)
    return found
