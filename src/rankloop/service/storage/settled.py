"""What is settled, in bulk: outcomes with all that is kept of their lists, for whoever takes the log elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

from rankloop.service.storage.database import Connection
from rankloop.service.storage.log import by_id


class Settled(NamedTuple):
    """An outcome and its list, as the tables have them."""

    seq: int
    learn: int
    kind: str
    feedback: bytes
    viewed: int | None
    settled: float
    rewards: bytes | None
    id: str
    epoch: int
    number: int
    shown: float
    person: str | None
    request_id: str | None
    experiment: int | None
    credit: bytes | None
    body: bytes


_LIST = "id, epoch, number, created, person, request_id, experiment, credit, body, erase"


def rows(connection: Connection, ranker: str, first: int, end: int) -> list[Any]:
    """The outcomes first … end-1 whose lists are there, in order; plain tuples in the order of `Settled`.

    Lists of a user who asked to be forgotten are left out: what waits for a snapshot to be deleted has gone already
    for whoever makes a copy.
    """
    sql = (
        "SELECT seq, learn, kind, feedback, viewed, created, rewards, impression_id FROM outcomes "
        "WHERE ranker = ? AND seq >= ? AND seq < ? ORDER BY seq"
    )
    outcomes = connection.rows(sql, ranker, first, end)
    lists = by_id(connection, _LIST, [row[7] for row in outcomes])
    found = []
    for row in outcomes:
        shown = lists.get(row[7])
        if shown is not None and not shown[9]:
            found.append(row[:7] + shown[:9])
    return found


def list_of(connection: Connection, ranker: str, seq: int) -> str | None:
    """The id of the list that an outcome is about; None if it is not there."""
    row = connection.row("SELECT impression_id FROM outcomes WHERE ranker = ? AND seq = ?", ranker, seq)
    return None if row is None else str(row[0])
