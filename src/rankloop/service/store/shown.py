"""The latest lists of a ranker, for people who watch it: what was shown and what became of it, not to whom."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rankloop.service.store.database import Connection


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
        "SELECT i.id, i.created, i.body, i.answer, i.seen, i.open, o.kind, COALESCE(o.learn, i.learn), i.viewed "
        "FROM impressions i LEFT JOIN outcomes o ON o.ranker = i.ranker AND o.seq = i.seq "
        "WHERE i.ranker = ? AND i.erase = 0 ORDER BY i.created DESC, i.id DESC LIMIT ?",
        ranker,
        limit,
    )
    return [
        Seen(i, at, bytes(body), bytes(answer), seen and msgspec.json.decode(seen), bool(opened), kind, bool(learn), to)
        for i, at, body, answer, seen, opened, kind, learn, to in rows
    ]


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
