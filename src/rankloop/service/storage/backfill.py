"""Lists that were shown before the service was there: they join the log as outcomes, and are learned like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.storage.database import Connection, marks
from rankloop.service.storage.log import new_id
from rankloop.wire.calls import RankAnswer, RankedItem

PORTION = 500  # keys asked for at a time: databases bound the parameters of a statement
_encode = msgspec.json.encode


class PastList(NamedTuple):
    """A logged list that the ranker's learner has adopted."""

    key: str  # what it is known by; the same key is added once
    person: str | None
    items: list[str | int]  # that were shown, top first
    clicks: list[float]
    body: bytes  # codec.dump_impression


class Added(NamedTuple):
    """What became of a portion of lists."""

    lists: int
    clicks: int
    known: int


def known(connection: Connection, ranker: str, epoch: int, keys: Sequence[str]) -> set[str]:
    """Those of the keys whose lists are in the log already, and learned or to be learned."""
    row = connection.row("SELECT carried FROM rankers WHERE name = ?", ranker)
    oldest = epoch if row is None or row[0] is None else int(row[0])
    ids = {request_id(one, key): key for one in range(oldest, epoch + 1) for key in keys}
    found: set[str] = set()
    for first in range(0, len(ids), PORTION):
        some = list(ids)[first : first + PORTION]
        sql = f"SELECT request_id FROM impressions WHERE ranker = ? AND request_id IN ({marks(some)})"
        found.update(ids[row[0]] for row in connection.rows(sql, ranker, *some))
    return found


def add(connection: Connection, ranker: str, epoch: int, lists: Sequence[PastList], now: float) -> Added | None:
    """Append lists with their outcomes, all or none; those that are there already are left out.

    None if the ranker has been deleted, reset or paused since the lists were adopted: they would not be learned.
    """
    # The head first: whoever adds outcomes waits here, so no other call adds the same lists meanwhile.
    head = connection.row("UPDATE heads SET next_seq = next_seq WHERE ranker = ? RETURNING next_seq", ranker)
    row = connection.row("SELECT epoch, learning FROM rankers WHERE name = ?", ranker)
    if head is None or row is None or row[0] != epoch or not row[1]:
        return None
    there = known(connection, ranker, epoch, [one.key for one in lists])
    new = list({one.key: one for one in lists if one.key not in there}.values())
    sql = (
        "UPDATE heads SET next_seq = next_seq + ?, next_number = next_number + ? WHERE ranker = ? RETURNING next_number"
    )
    ((number,),) = connection.rows(sql, len(new), len(new), ranker)
    impressions, outcomes = [], []
    for place, one in enumerate(new):
        own, seq, values = new_id(now), int(head[0]) + place, _encode(one.clicks)
        items = [RankedItem(item, slot, None) for slot, item in enumerate(one.items, 1)]
        answer = _encode(RankAnswer(own, ranker, "logged", "shadow", False, items, request_id=one.key))
        made = (own, ranker, epoch, int(number) - len(new) + place, now, now, one.person)
        shown = (request_id(epoch, one.key), b"", 1, one.body, answer, _encode(one.items))
        impressions.append((*made, *shown, values, 0, seq))
        outcomes.append((ranker, seq, own, "logged", 1, values, now))
    columns = (
        "id, ranker, epoch, number, created, closes, person, request_id, digest, learn, body, answer, shown, seen, "
        "open, seq"
    )
    if new:
        connection.insert("impressions", columns, impressions)
        connection.insert("outcomes", "ranker, seq, impression_id, kind, learn, feedback, created", outcomes)
    return Added(len(new), sum(int(sum(one.clicks)) for one in new), len(lists) - len(new))


def request_id(epoch: int, key: str) -> str:
    """What the log knows a list by. After a reset the ranker has forgotten it, so it may come again."""
    return f"logged:{epoch}:{key}"
