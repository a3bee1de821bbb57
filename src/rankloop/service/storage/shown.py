"""The latest lists of a ranker, for people who watch it: what was shown and what became of it, not to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.storage import attention
from rankloop.service.storage.database import Connection
from rankloop.wire.calls import RejectedEvent

AMONG = 8  # times as many lists are looked at for those that count: after a reset the whole log would be, for none


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
    rewards: list[float | None] | None  # by slot, in the unit
    attention: list[RejectedEvent]  # that have not been corrected


def newest(connection: Connection, ranker: str, limit: int) -> list[Seen]:
    """The latest lists of a ranker, the newest first."""
    rows = connection.rows(
        "SELECT id, created, body, answer, seen, open, learn, viewed, seq, rewards, attention FROM impressions "
        "WHERE ranker = ? AND erase = 0 ORDER BY created DESC, id DESC LIMIT ?",
        ranker,
        limit,
    )
    closed = [(int(row[8]), row[0]) for row in rows if row[8] is not None]
    outcomes = _outcomes(connection, ranker, closed) if closed else {}
    rejected = attention.of(connection, [row[0] for row in rows if row[10]])
    found = []
    for own, at, body, answer, seen, opened, learn, to, _, rewards, _ in rows:
        kind, learned = outcomes.get(own, (None, learn))
        told, worth = (given and msgspec.json.decode(given) for given in (seen, rewards))
        state = (bool(opened), kind, bool(learned), to, worth, rejected.get(own, []))
        found.append(Seen(own, at, bytes(body), bytes(answer), told, *state))
    return found


def _outcomes(connection: Connection, ranker: str, closed: Sequence[tuple[int, str]]) -> dict[str, tuple[str, int]]:
    """(kind, learn) of the outcomes of lists: asked for by number, and where they lie."""
    at, seqs = connection.among([seq for seq, _ in closed])
    about, ids = connection.among([own for _, own in closed])
    rows = connection.rows(
        f"SELECT impression_id, kind, learn FROM outcomes WHERE ranker = ? AND seq {at} AND impression_id {about}",
        ranker,
        *seqs,
        *ids,
    )
    return {own: (kind, learn) for own, kind, learn in rows}


def latest_bodies(connection: Connection, ranker: str, epoch: int, limit: int) -> list[bytes]:
    """The latest lists of a ranker as it is since its last reset, whoever made them, the newest first."""
    order = "ORDER BY created DESC, id DESC LIMIT"
    newest = f"SELECT id, created, body, epoch, erase FROM impressions WHERE ranker = ? AND erase >= 0 {order} ?"
    sql = f"SELECT body FROM ({newest}) AS newest WHERE epoch = ? AND erase = 0 {order} ?"
    return [bytes(body) for (body,) in connection.rows(sql, ranker, limit * AMONG, epoch, limit)]


def newest_bodies(
    connection: Connection, ranker: str, epoch: int, since: float, limit: int
) -> list[tuple[float, bytes]]:
    """(when, what) of the latest lists that the learner made after `since`."""
    order = "ORDER BY created DESC LIMIT"
    recent = "ranker = ? AND erase >= 0 AND created > ?"
    newest = f"SELECT created, body, epoch, learn FROM impressions WHERE {recent} {order} ?"
    sql = f"SELECT created, body FROM ({newest}) AS newest WHERE epoch = ? AND learn = 1 {order} ?"
    rows = connection.rows(sql, ranker, since, limit * AMONG, epoch, limit)
    return [(created, bytes(body)) for created, body in rows]
