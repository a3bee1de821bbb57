"""The latest lists of a ranker, for people who watch it: what was shown and what became of it, not to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.store.database import Connection, marks


class Seen(NamedTuple):
    """A list as someone who watches may see it; not whose it was."""

    id: str
    created: float
    body: bytes
    answer: bytes
    seen: list[float | None] | None
    open: bool
    kind: str | None  # of its outcome
    learn: bool
    viewed: int | None  # positions that came into view; None: not reported


def newest(connection: Connection, ranker: str, limit: int) -> list[Seen]:
    """The latest lists of a ranker, the newest first."""
    rows = connection.rows(
        "SELECT id, created, body, answer, seen, open, learn, viewed, seq FROM impressions "
        "WHERE ranker = ? AND erase = 0 ORDER BY created DESC, id DESC LIMIT ?",
        ranker,
        limit,
    )
    closed = [(int(row[8]), row[0]) for row in rows if row[8] is not None]
    outcomes = _outcomes(connection, ranker, closed) if closed else {}
    found = []
    for own, at, body, answer, seen, opened, learn, to, _ in rows:
        kind, learned = outcomes.get(own, (None, learn))
        told = seen and msgspec.json.decode(seen)
        found.append(Seen(own, at, bytes(body), bytes(answer), told, bool(opened), kind, bool(learned), to))
    return found


def _outcomes(connection: Connection, ranker: str, closed: Sequence[tuple[int, str]]) -> dict[str, tuple[str, int]]:
    """(kind, learn) of the outcomes of lists: asked for by number, and where they lie."""
    seqs, ids = zip(*closed, strict=True)
    rows = connection.rows(
        "SELECT impression_id, kind, learn FROM outcomes "
        f"WHERE ranker = ? AND seq IN ({marks(seqs)}) AND impression_id IN ({marks(ids)})",
        ranker,
        *seqs,
        *ids,
    )
    return {own: (kind, learn) for own, kind, learn in rows}


def latest_bodies(connection: Connection, ranker: str, epoch: int, limit: int) -> list[bytes]:
    """The latest lists of a ranker as it is since its last reset, whoever made them, the newest first."""
    sql = (
        "SELECT body FROM impressions WHERE ranker = ? AND epoch = ? AND erase = 0 "
        "ORDER BY created DESC, id DESC LIMIT ?"
    )
    return [bytes(body) for (body,) in connection.rows(sql, ranker, epoch, limit)]


def newest_bodies(
    connection: Connection, ranker: str, epoch: int, since: float, limit: int
) -> list[tuple[float, bytes]]:
    """(when, what) of the latest lists that the learner made after `since`."""
    sql = (
        "SELECT created, body FROM impressions WHERE ranker = ? AND created > ? AND epoch = ? AND learn = 1 "
        f"ORDER BY created DESC LIMIT {limit}"
    )
    return [(created, bytes(body)) for created, body in connection.rows(sql, ranker, since, epoch)]
