"""The impressions of the log: appended by ranking, read by operators and by feedback of other systems.

Functions of a connection inside a transaction. They take many rows, because the writer commits many requests together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.storage.database import Connection, Contended, Insert, Row, marks, portions
from rankloop.service.storage.ids import id_condition, recent_prefix
from rankloop.service.storage.joining import list_rejected
from rankloop.wire.calls import RejectedEvent

OPEN = "impressions_open"  # the index of open impressions, by the end of their windows
COUNTED = 100_000  # open impressions that are counted at most, which takes some tens of milliseconds
EDGE = 60.0  # seconds around a full hour in which simultaneous requests may go to different partitions
PORTION = 256  # names per statement
OVERSAMPLE = 8  # times as many impressions are searched for those that count, so that a search ends


class NewImpression(NamedTuple):
    """An impression to append."""

    id: str
    ranker: str
    epoch: int
    number: int
    created: float
    closes: float
    person: str | None
    request_id: str | None
    digest: bytes
    learn: bool
    body: bytes
    answer: bytes
    shown: bytes
    experiment: int | None = None  # the one it was interleaved for
    credit: bytes | None = None
    viewed: int | None = None  # 0: it may never be shown, and is not learned unless an event reports a view
    notes: bytes | None = None  # inputs of feature counters


class StoredAnswer(NamedTuple):
    """The answer to a request: the new one, or the one given before to the same request_id."""

    answer: bytes
    fresh: bool
    same_request: bool


class ShownImpression(NamedTuple):
    """An impression as operators see it, without its user."""

    id: str
    created: float
    body: bytes
    answer: bytes
    feedback: list[float | None] | None
    open: bool
    kind: str | None  # of its outcome
    learn: bool
    viewed: int | None  # positions that came into view; None: not reported
    rewards: list[float | None] | None  # by position, in the unit
    rejected: list[RejectedEvent]  # that have not been corrected


class ImpressionRef(NamedTuple):
    """The fields of an impression that feedback of other systems needs."""

    id: str
    ranker: str
    items: frozenset[str]
    top: str
    viewed: int | None  # positions that came into view; 0: none has yet


COLUMN_TYPES = {
    name: kind
    for kind, names in {
        "text": "id ranker person request_id event_id impression_id status kind",
        "int8": "epoch number learn experiment viewed open seq",
        "float8": "created closes received",
        "bytea": "digest body answer shown credit notes feedback rewards",
    }.items()
    for name in names.split()
}


def log_insert(table: str, columns: Iterable[str]) -> Insert:
    """Make an insert statement for a table of the log."""
    return Insert.into(table, {name: COLUMN_TYPES[name] for name in columns})


_INSERT = log_insert("impressions", (*NewImpression._fields, "open"))


# -- appending -----------------------------------------------------------------------------------------------------


def add_impressions(connection: Connection, new: Sequence[NewImpression]) -> list[StoredAnswer]:
    """Append impressions; one whose request_id was answered before is not appended and gets the earlier answer."""
    before: dict[str, StoredAnswer] = {}
    rest: Sequence[NewImpression] = new
    if connection.partitioned:
        before = _answered(connection, new, recent_prefix(connection, min(one.created for one in new)))
        # Two of a batch may go to different partitions, whose unique indexes do not see each other: keep the first.
        fresh = [one for one in reversed(new) if one.id not in before]
        rest = list({(one.ranker, one.request_id or one.id, one.request_id is None): one for one in fresh}.values())
    # Sorted, so that two processes with the same requests do not deadlock.
    ordered = sorted(rest, key=lambda one: one.request_id or "") if len(rest) > 1 else rest
    values = [(*one[:9], int(one.learn), *one[10:], 1) for one in ordered]
    added = connection.append(_INSERT, values) if values else 0
    if added == len(new):
        return [StoredAnswer(one.answer, True, True) for one in new]
    there = {row[0] for row in connection.rows_in("SELECT id FROM impressions WHERE id", [one.id for one in new])}
    return [
        before.get(one.id)
        or (StoredAnswer(one.answer, True, True) if one.id in there else _earlier_answer(connection, one))
        for one in new
    ]


def _answered(connection: Connection, new: Sequence[NewImpression], start: str) -> dict[str, StoredAnswer]:
    """Return the earlier answers, by id, to requests that were sent before, among impressions from `start` on.

    A repeated request may go to another partition than the first. Requests around a full hour, where partitions end,
    lock their names, because simultaneous ones do not see each other.
    """
    named = [one for one in new if one.request_id is not None]
    if not named:
        return {}
    if any((one.created + EDGE) % 3600 < 2 * EDGE for one in named):
        connection.lock_names(f"{one.ranker}/{one.request_id}" for one in named)
    pairs = sorted({(one.ranker, one.request_id or "") for one in named})
    rows = connection.by_request("ranker, request_id, id, answer, digest", pairs, start)
    found = {(ranker, name): (own, bytes(answer), bytes(digest)) for ranker, name, own, answer, digest in rows}
    before = {}
    for one in named:
        own, answer, digest = found.get((one.ranker, one.request_id or ""), (one.id, b"", b""))
        if own != one.id:  # else it is stored already, by a commit whose acknowledgment was lost
            before[one.id] = StoredAnswer(answer, False, digest == one.digest)
    return before


def _earlier_answer(connection: Connection, one: NewImpression) -> StoredAnswer:
    sql = "SELECT answer, digest FROM impressions WHERE ranker = ? AND request_id = ? ORDER BY id DESC LIMIT 1"
    found = connection.row(sql, one.ranker, one.request_id)
    if found is None:
        raise Contended("the impression that prevented the insert was deleted")
    return StoredAnswer(bytes(found[0]), False, bytes(found[1]) == one.digest)


def discard_impressions(connection: Connection, ids: Sequence[str]) -> None:
    """Delete impressions whose caller gave up. One with a request_id may have answered a repeated request meanwhile: it
    stays, as one that never came into view until an event reports that it did."""
    where = f"open = 1 AND feedback IS NULL AND viewed IS NULL AND rejected IS NULL AND id IN ({marks(ids)})"
    connection.run(f"DELETE FROM impressions WHERE request_id IS NULL AND {where}", *ids)
    connection.run(f"UPDATE impressions SET viewed = 0 WHERE request_id IS NOT NULL AND {where}", *ids)


def reserve_numbers(connection: Connection, ranker: str, count: int) -> int | None:
    """Return the first of `count` impression numbers that no other process uses; None if the ranker is deleted."""
    sql = "UPDATE log_offsets SET next_number = next_number + ? WHERE ranker = ? RETURNING next_number"
    row = connection.row(sql, count, ranker)
    return None if row is None else int(row[0]) - count


# -- finding -------------------------------------------------------------------------------------------------------


def impressions_by_id(connection: Connection, columns: str, ids: Sequence[str]) -> dict[str, Row]:
    """Return columns of the impressions with these ids.

    A separate statement rather than a join: PostgreSQL may plan a join that reads all impressions.
    """
    if not ids:
        return {}
    which, bounds = id_condition(connection, ids, time.time())
    rows = connection.rows_in(f"SELECT id, {columns} FROM impressions WHERE {which}", ids, "", *bounds)
    return {row[0]: row[1:] for row in rows}


def find_impressions(
    connection: Connection, rankers: Iterable[str], names: Sequence[str]
) -> dict[str, list[ImpressionRef]]:
    """Return the impressions of these rankers by name: a request_id, which several rankers may share, or an id."""
    allowed, found = sorted(set(rankers)), dict[str, list[ImpressionRef]]()
    if not allowed:
        return found
    for some in portions(sorted(set(names)), PORTION):
        which, bounds = id_condition(connection, some, time.time())
        select = f"SELECT id, id, ranker, shown, viewed FROM impressions WHERE {which}"
        by_id = connection.rows_in(select, some, "", *bounds)
        for name, own, ranker, items, viewed in (*_requested(connection, allowed, some), *by_id):
            if ranker in allowed:
                ids = [str(item) for item in msgspec.json.decode(items)]
                one = ImpressionRef(own, ranker, frozenset(ids), ids[0], None if viewed is None else int(viewed))
                found.setdefault(name, []).append(one)
    return found


def _requested(connection: Connection, rankers: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Return the impressions with these request_ids: recent ones first, then those of names not found."""
    found: list[Row] = []
    for start in dict.fromkeys((recent_prefix(connection, time.time()), "")):
        there = {row[0] for row in found}
        names = [name for name in names if name not in there]
        if names:
            pairs = [(ranker, name) for ranker in rankers for name in names]
            found += connection.by_request("request_id, id, ranker, shown, viewed", pairs, start)
    return found


def open_counts(connection: Connection) -> Counter[str]:
    """Return the number of open impressions by ranker; lower bounds if there are more than `COUNTED` in all."""
    first = (
        f"SELECT ranker FROM impressions{connection.index_hint(OPEN)} WHERE open = 1 ORDER BY closes LIMIT {COUNTED}"
    )
    rows = connection.rows(f"SELECT ranker, COUNT(*) FROM ({first}) AS waiting GROUP BY ranker")
    return Counter({name: int(count) for name, count in rows})


def oldest_open(connection: Connection) -> float | None:
    """Return when the oldest open impression was made; None if there is none."""
    row = connection.row(f"SELECT MIN(created) FROM impressions{connection.index_hint(OPEN)} WHERE open = 1")
    return None if row is None else row[0]


# -- the latest ----------------------------------------------------------------------------------------------------


def latest_impressions(connection: Connection, ranker: str, limit: int) -> list[ShownImpression]:
    """Return the latest impressions of a ranker, the newest first."""
    rows = connection.rows(
        "SELECT id, created, body, answer, feedback, open, learn, viewed, seq, rewards, rejected FROM impressions "
        "WHERE ranker = ? AND erase = 0 ORDER BY created DESC, id DESC LIMIT ?",
        ranker,
        limit,
    )
    closed = [(int(row[8]), row[0]) for row in rows if row[8] is not None]
    outcomes = _outcome_kinds(connection, ranker, closed) if closed else {}
    rejected = list_rejected(connection, [row[0] for row in rows if row[10]])
    found = []
    for own, created, body, answer, feedback, is_open, learn, viewed, _, rewards, _ in rows:
        kind, learned = outcomes.get(own, (None, learn))
        values, amounts = (given and msgspec.json.decode(given) for given in (feedback, rewards))
        state = (bool(is_open), kind, bool(learned), viewed, amounts, rejected.get(own, []))
        found.append(ShownImpression(own, created, bytes(body), bytes(answer), values, *state))
    return found


def _outcome_kinds(
    connection: Connection, ranker: str, closed: Sequence[tuple[int, str]]
) -> dict[str, tuple[str, int]]:
    """Return (kind, learn) of the outcomes of impressions, found by number in their partitions."""
    at_seq, seqs = connection.in_values([seq for seq, _ in closed])
    about, ids = connection.in_values([own for _, own in closed])
    rows = connection.rows(
        f"SELECT impression_id, kind, learn FROM outcomes WHERE ranker = ? AND seq {at_seq} AND impression_id {about}",
        ranker,
        *seqs,
        *ids,
    )
    return {own: (kind, learn) for own, kind, learn in rows}


def latest_bodies(connection: Connection, ranker: str, epoch: int, limit: int) -> list[bytes]:
    """Return the latest impressions of an epoch, fallbacks too, the newest first."""
    order = "ORDER BY created DESC, id DESC LIMIT"
    newest = f"SELECT id, created, body, epoch, erase FROM impressions WHERE ranker = ? AND erase >= 0 {order} ?"
    sql = f"SELECT body FROM ({newest}) AS newest WHERE epoch = ? AND erase = 0 {order} ?"
    return [bytes(body) for (body,) in connection.rows(sql, ranker, limit * OVERSAMPLE, epoch, limit)]


def latest_learned_bodies(
    connection: Connection, ranker: str, epoch: int, since: float, limit: int
) -> list[tuple[float, bytes]]:
    """Return (created, body) of the latest impressions that the learner made after `since`."""
    order = "ORDER BY created DESC LIMIT"
    recent = "ranker = ? AND erase >= 0 AND created > ?"
    newest = f"SELECT created, body, epoch, learn FROM impressions WHERE {recent} {order} ?"
    sql = f"SELECT created, body FROM ({newest}) AS newest WHERE epoch = ? AND learn = 1 {order} ?"
    rows = connection.rows(sql, ranker, since, limit * OVERSAMPLE, epoch, limit)
    return [(created, bytes(body)) for created, body in rows]
