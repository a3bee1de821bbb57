"""Lists by the names that callers gave their requests: what events of other systems are joined by, durably."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.store.database import Connection, marks

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
    wanted = sorted(set(names))
    for first in range(0, len(wanted), PORTION):
        some = wanted[first : first + PORTION]
        by_request = (
            f"SELECT request_id, id, ranker, shown, viewed FROM impressions{connection.by('impressions_request')} "
            f"WHERE ranker IN ({marks(allowed)}) AND request_id IN ({marks(some)})"
        )
        by_id = f"SELECT id, id, ranker, shown, viewed FROM impressions WHERE id IN ({marks(some)})"
        for row in (*connection.rows(by_request, *allowed, *some), *connection.rows(by_id, *some)):
            name, own, ranker, items, viewed = row
            if ranker in allowed:
                ids = [str(item) for item in msgspec.json.decode(items)]
                one = Shown(own, ranker, frozenset(ids), ids[0], None if viewed is None else int(viewed))
                found.setdefault(name, []).append(one)
    return found
