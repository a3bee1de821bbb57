"""The log: impressions, events joined to them, and the outcomes that learning folds over.

Functions of a connection inside a transaction. They take many rows at once, because the writer commits many requests
together. An impression is open until a final event or the end of its window; then its feedback becomes one outcome
with the ranker's next sequence number. What is learned is a fold over outcomes and nothing else.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rankloop.service.store.database import Connection, Contended, marks
from rankloop.service.store.joining import JoinedRanker, OpenImpression, judged
from rankloop.service.wire.calls import FeedbackEvent, Receipt
from rankloop.service.wire.rankers import Spec
from rankloop.types import Impression

_encode = msgspec.json.encode
CHANCE = 10  # bytes an id
AT_ONCE = 256  # ids; a call to the system for each would hand the interpreter to another thread
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread
_ready: list[bytes] = []  # chance of the system's own that no id has used yet; `pop` is atomic
os.register_at_fork(after_in_child=_ready.clear)


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
    experiment: int | None = None  # the one it was mixed for
    credit: bytes | None = None
    viewed: int | None = None  # 0: it may never be shown, and nothing is learned from it unless an event says it was
    notes: bytes | None = None  # what counters will need of it


class Stored(NamedTuple):
    """The answer that counts: the new one, or the one given before to the same request_id."""

    answer: bytes
    fresh: bool
    same_request: bool


class NewEvent(NamedTuple):
    """An event to append. `kind` is decided by the ranker, so it is checked here, where the impression is known."""

    event: FeedbackEvent
    body: bytes
    rankers: frozenset[str] | None = None  # those the caller may report on; None: all


class Closing(NamedTuple):
    """An impression that was closed: for the metrics, and to wake the learner."""

    ranker: str
    kind: str  # final, window or silent; `past` adds outcomes of kind logged
    values: list[float]
    length: int


class Receipts(NamedTuple):
    """What became of a batch of events."""

    receipts: list[Receipt]
    rankers: list[str]  # of each event, "" where unknown
    closings: list[Closing]


class Outcome(NamedTuple):
    """One step of the fold."""

    seq: int
    learn: bool
    epoch: int
    body: bytes | Impression | None  # as stored, or decoded already; None once erased
    values: list[float]
    person: str | None = None  # whose list it was, as far as that was told
    viewed: int | None = None  # how many positions came into view; None: not reported


_COLUMNS = (
    "id, ranker, epoch, number, created, closes, person, request_id, digest, learn, body, answer, shown, experiment, "
    "credit, viewed, notes, open"
)
# One statement whatever the number of rows: it is prepared once, and RETURNING would cost a fifth more.
_ADD = f"INSERT INTO impressions ({_COLUMNS}) VALUES ({marks(_COLUMNS.split(','))}) ON CONFLICT DO NOTHING"


def add_impressions(connection: Connection, new: Sequence[NewImpression]) -> list[Stored]:
    """Append impressions; one whose request_id was answered before is not appended and gets the earlier answer."""
    # In this order, so that two processes that were asked the same never wait for each other in a ring.
    ordered = sorted(new, key=lambda one: one.request_id or "") if len(new) > 1 else new
    added = connection.many(_ADD, [(*one[:9], int(one.learn), *one[10:], 1) for one in ordered])
    if added == len(new):
        return [Stored(one.answer, True, True) for one in new]
    there = {row[0] for row in connection.rows_in("SELECT id FROM impressions WHERE id", [one.id for one in new])}
    return [Stored(one.answer, True, True) if one.id in there else _earlier(connection, one) for one in new]


def _earlier(connection: Connection, one: NewImpression) -> Stored:
    """The answer that was given to the same request_id before."""
    sql = "SELECT answer, digest FROM impressions WHERE ranker = ? AND request_id = ?"
    found = connection.row(sql, one.ranker, one.request_id)
    if found is None:
        raise Contended("an impression that was in the way has gone")
    return Stored(bytes(found[0]), False, bytes(found[1]) == one.digest)


def discard_impressions(connection: Connection, ids: Sequence[str]) -> None:
    """Take back impressions whose answer was given up on: nobody has seen them."""
    connection.run(f"DELETE FROM impressions WHERE open = 1 AND seen IS NULL AND id IN ({marks(ids)})", *ids)


_SELECT = f"SELECT {OpenImpression.COLUMNS} FROM impressions"
OPEN = "impressions_open"  # the index of those that wait


def add_events(connection: Connection, new: Sequence[NewEvent], now: float, kinds: dict[str, str]) -> Receipts:
    """Join events to their impressions; `kinds` says for each learner whether it takes clicks or grades."""
    ids = sorted({one.event.impression_id for one in new})
    rows = connection.rows_in(f"{_SELECT} WHERE id", ids, f"ORDER BY id{connection.lock_rows}")
    impressions = {row[0]: OpenImpression(row) for row in rows}
    rankers = _rankers(connection, {one.ranker for one in impressions.values()}, kinds)
    event_ids = sorted({one.event.event_id for one in new})
    sql = "SELECT event_id, impression_id FROM events WHERE event_id"
    known: dict[str, str] = dict(connection.rows_in(sql, event_ids))

    receipts, fresh, finals = [], [], []
    for event, body, allowed in new:
        impression = impressions.get(event.impression_id)
        if impression is not None and allowed is not None and impression.ranker not in allowed:
            impression = None  # to this caller there is no such impression
        receipt = judged(event, impression, rankers, known)
        receipts.append(receipt)
        if receipt.status in ("accepted", "late"):
            known[event.event_id] = event.impression_id
            fresh.append((event.event_id, event.impression_id, now, receipt.status, body))
        if receipt.status == "accepted" and impression is not None:
            impression.join(event, rankers[impression.ranker])
            if event.final:
                impression.open = False
                finals.append(impression)
    if fresh:
        fresh.sort()
        columns = "event_id, impression_id, received, status, body"
        added = connection.insert("events", columns, fresh, "ON CONFLICT DO NOTHING RETURNING event_id")
        if len(added) < len(fresh):  # another process has just stored one of them: look again
            raise Contended("the same event was stored by another process")
    changed = [one for one in impressions.values() if one.changed and one.open]
    if changed:
        updates = [(None if one.seen is None else _encode(one.seen), one.viewed, one.id) for one in changed]
        connection.many("UPDATE impressions SET seen = ?, viewed = ? WHERE id = ?", updates)
    closings = _close(connection, [(one, "final") for one in finals], rankers, now)
    where = [impressions[e.impression_id].ranker if e.impression_id in impressions else "" for e, *_ in new]
    return Receipts(receipts, where, closings)


def close_windows(
    connection: Connection, ranker: str, now: float, kinds: dict[str, str], limit: int = 500
) -> list[Closing]:
    """Close impressions whose window has ended; silence is an outcome only if the ranker says so."""
    due = f"ranker = ? AND open = 1 AND closes <= ? ORDER BY closes, id LIMIT {limit}"
    sql = f"{_SELECT}{connection.by(OPEN)} WHERE {due}"
    impressions = [OpenImpression(row) for row in connection.rows(f"{sql}{connection.lock_rows}", ranker, now)]
    if not impressions:
        return []
    rankers = _rankers(connection, {ranker}, kinds)
    ending, silent = [], []
    for one in impressions:
        known = rankers.get(one.ranker)
        ignored = known is None or known.kind == "grades" or known.spec.silence == "ignore"
        if one.unseen or (one.silent and ignored):
            silent.append(one)
        else:
            ending.append((one, "silent" if one.silent else "window"))
    if silent:
        connection.many("UPDATE impressions SET open = 0 WHERE id = ?", [(one.id,) for one in silent])
    closings = _close(connection, ending, rankers, now)
    return closings + [Closing(ranker, "ignored", [], len(one.slots)) for one in silent]


def due(connection: Connection, now: float) -> list[str]:
    """Rankers that have impressions whose window has ended."""
    sql = f"SELECT DISTINCT ranker FROM impressions{connection.by(OPEN)} WHERE open = 1 AND closes <= ?"
    return [row[0] for row in connection.rows(sql, now)]


def _rankers(connection: Connection, names: Iterable[str], kinds: dict[str, str]) -> dict[str, JoinedRanker]:
    wanted = sorted(names)
    if not wanted:
        return {}
    sql = f"SELECT name, epoch, learning, spec FROM rankers WHERE name IN ({marks(wanted)})"
    found = {}
    for name, epoch, learning, text in connection.rows(sql, *wanted):
        spec = msgspec.json.decode(text, type=Spec)
        found[name] = JoinedRanker(int(epoch), bool(learning), spec, kinds.get(spec.learner, "clicks"))
    return found


def _close(
    connection: Connection, ending: Sequence[tuple[OpenImpression, str]], rankers: dict[str, JoinedRanker], now: float
) -> list[Closing]:
    """Give closed impressions their outcomes, with consecutive numbers in each ranker's sequence."""
    by_ranker: dict[str, list[tuple[OpenImpression, str]]] = defaultdict(list)
    for one, kind in ending:
        by_ranker[one.ranker].append((one, kind))
    outcomes, closed, closings = [], [], []
    for name in sorted(by_ranker):  # always in this order, so that two processes never wait for each other in a ring
        group, ranker = by_ranker[name], rankers[name]
        sql = "UPDATE heads SET next_seq = next_seq + ? WHERE ranker = ? RETURNING next_seq"
        ((after,),) = connection.rows(sql, len(group), name)
        for seq, (one, kind) in enumerate(group, after - len(group)):
            one.settle(ranker)
            values = one.values(ranker.kind)
            told = one.seen is not None or ranker.kind == "clicks"  # no grades at all say nothing, unlike no clicks
            told = told and not one.unseen
            learn = int(told and one.learn and ranker.learning and one.epoch == ranker.epoch)
            outcomes.append((name, seq, one.id, kind, learn, _encode(values), one.viewed, now))
            closed.append((None if one.seen is None else _encode(one.seen), one.viewed, seq, one.id))
            closings.append(Closing(name, kind, values, len(one.slots)))
    if outcomes:
        connection.insert("outcomes", "ranker, seq, impression_id, kind, learn, feedback, viewed, created", outcomes)
        connection.many("UPDATE impressions SET seen = ?, viewed = ?, open = 0, seq = ? WHERE id = ?", closed)
    return closings


# -- what learning reads -------------------------------------------------------------------------------------------


def outcomes_from(connection: Connection, ranker: str, seq: int, limit: int = 256) -> list[Outcome]:
    """The next outcomes of a ranker, in order, with the impressions they are about."""
    rows = connection.rows(
        "SELECT o.seq, o.learn, i.epoch, i.body, o.feedback, i.person, o.viewed FROM outcomes o "
        "LEFT JOIN impressions i ON i.id = o.impression_id "
        f"WHERE o.ranker = ? AND o.seq >= ? ORDER BY o.seq LIMIT {limit}",
        ranker,
        seq,
    )
    return [
        Outcome(
            int(seq),
            bool(learn),
            int(epoch or 0),
            None if body is None else bytes(body),
            msgspec.json.decode(values),
            person,
            None if viewed is None else int(viewed),
        )
        for seq, learn, epoch, body, values, person, viewed in rows
    ]


def heads(connection: Connection) -> dict[str, int]:
    """How many outcomes each ranker has."""
    return {name: int(seq) for name, seq in connection.rows("SELECT ranker, next_seq FROM heads")}


def want(connection: Connection, ranker: str) -> int | None:
    """Ask whoever learns a ranker for a snapshot of all that is logged now: up to which outcome; None: no ranker."""
    sql = "UPDATE heads SET wanted = next_seq WHERE ranker = ? RETURNING wanted"
    row = connection.row(sql, ranker)
    return None if row is None else int(row[0])


def wanted(connection: Connection) -> dict[str, int]:
    """Up to which outcome someone waits for a snapshot, of each ranker."""
    return {name: int(seq) for name, seq in connection.rows("SELECT ranker, wanted FROM heads WHERE wanted > 0")}


def open_counts(connection: Connection) -> Counter[str]:
    """How many impressions of each ranker wait for feedback."""
    sql = f"SELECT ranker, COUNT(*) FROM impressions{connection.by(OPEN)} WHERE open = 1 GROUP BY ranker"
    rows = connection.rows(sql)
    return Counter({name: int(count) for name, count in rows})


def reserve_numbers(connection: Connection, ranker: str, count: int) -> int | None:
    """The first of `count` impression numbers that nobody else will use; None if the ranker has gone."""
    sql = "UPDATE heads SET next_number = next_number + ? WHERE ranker = ? RETURNING next_number"
    row = connection.row(sql, count, ranker)
    return None if row is None else int(row[0]) - count


# -- ids -----------------------------------------------------------------------------------------------------------


def new_id(now: float | None = None) -> str:
    """An impression's id, 26 letters and digits: 48 bits of milliseconds, so that inserts go to the end of an index; 80
    bits of chance, as keys are made of: whoever may report on his own list must not find out the ids of others.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    milliseconds = int((time.time() if now is None else now) * 1000) & (2**48 - 1)
    value = milliseconds << 80 | int.from_bytes(_chance(), "big")
    return "".join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def _chance() -> bytes:
    try:
        return _ready.pop()
    except IndexError:
        drawn = os.urandom(CHANCE * AT_ONCE)
        _ready.extend(drawn[at : at + CHANCE] for at in range(CHANCE, len(drawn), CHANCE))
        return drawn[:CHANCE]
