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

from rankloop.core.types import Impression
from rankloop.service.storage import attention, deduplication, event_counts
from rankloop.service.storage.admin import stored_spec
from rankloop.service.storage.database import Appended, Connection, Contended, Row, marks
from rankloop.service.storage.joining import JoinedRanker, Mark, OpenImpression, judged, valid_parts
from rankloop.service.storage.rewards import RewardSketch
from rankloop.service.storage.times import ALPHABET, lately, where_id
from rankloop.wire.calls import FeedbackEvent, Receipt

_encode = msgspec.json.encode
CHANCE = 10  # bytes an id
AT_ONCE = 256  # ids; a call to the system for each would hand the interpreter to another thread
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
    malformed: str | None = None  # why it could not be read; `event` has the parts that could


class Closing(NamedTuple):
    """An impression that was closed: for the metrics, and to wake the learner."""

    ranker: str
    kind: str  # final, window, silent; ignored, attention: it has no outcome; `past` adds outcomes of kind logged
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


_KINDS = {
    name: kind
    for kind, names in {
        "text": "id ranker person request_id event_id impression_id status kind",
        "int8": "epoch number learn experiment viewed open seq",
        "float8": "created closes received",
        "bytea": "digest body answer shown credit notes feedback rewards",
    }.items()
    for name in names.split()
}


def _appended(table: str, columns: Iterable[str]) -> Appended:
    return Appended.to(table, {name: _KINDS[name] for name in columns})


IMPRESSIONS = _appended("impressions", (*NewImpression._fields, "open"))
EVENTS = _appended("events", ("event_id", "impression_id", "received", "status", "body"))
OUTCOMES = _appended(
    "outcomes", ["ranker", "seq", "impression_id", "kind", "learn", "feedback", "viewed", "created", "rewards"]
)


def add_impressions(connection: Connection, new: Sequence[NewImpression]) -> list[Stored]:
    """Append impressions; one whose request_id was answered before is not appended and gets the earlier answer."""
    before: dict[str, Stored] = {}
    rest: Sequence[NewImpression] = new
    if not connection.whole:
        asked = deduplication.asked(connection, new, lately(connection, min(one.created for one in new)))
        before = {own: Stored(answer, False, same) for own, (answer, same) in asked.items()}
        rest = deduplication.first([one for one in new if one.id not in before])
    # In this order, so that two processes that were asked the same never wait for each other in a ring.
    ordered = sorted(rest, key=lambda one: one.request_id or "") if len(rest) > 1 else rest
    values = [(*one[:9], int(one.learn), *one[10:], 1) for one in ordered]
    added = connection.append(IMPRESSIONS, values) if values else 0
    if added == len(new):
        return [Stored(one.answer, True, True) for one in new]
    there = {row[0] for row in connection.rows_in("SELECT id FROM impressions WHERE id", [one.id for one in new])}
    return [
        before.get(one.id) or (Stored(one.answer, True, True) if one.id in there else _earlier(connection, one))
        for one in new
    ]


def _earlier(connection: Connection, one: NewImpression) -> Stored:
    """The answer that was given to the same request_id before."""
    sql = "SELECT answer, digest FROM impressions WHERE ranker = ? AND request_id = ? ORDER BY id DESC LIMIT 1"
    found = connection.row(sql, one.ranker, one.request_id)
    if found is None:
        raise Contended("an impression that was in the way has gone")
    return Stored(bytes(found[0]), False, bytes(found[1]) == one.digest)


def discard_impressions(connection: Connection, ids: Sequence[str]) -> None:
    """Take back impressions whose answer was given up on: nobody has seen them. One that was asked for by a name may
    have been found by that meanwhile, and answered with by another process: it stays, as one that never came into view,
    until somebody says that it did."""
    where = f"open = 1 AND seen IS NULL AND viewed IS NULL AND attention IS NULL AND id IN ({marks(ids)})"
    connection.run(f"DELETE FROM impressions WHERE request_id IS NULL AND {where}", *ids)
    connection.run(f"UPDATE impressions SET viewed = 0 WHERE request_id IS NOT NULL AND {where}", *ids)


_SELECT = f"SELECT {OpenImpression.COLUMNS} FROM impressions"
OPEN = "impressions_open"  # the index of those that wait, by the end of their windows
COUNTED = 100_000  # open impressions that are counted at most: some tens of milliseconds


def add_events(connection: Connection, new: Sequence[NewEvent], now: float, kinds: dict[str, str]) -> Receipts:
    """Join events to their impressions; `kinds` says for each learner whether it takes clicks or grades."""
    ids = sorted({one.event.impression_id for one in new} - {""})
    which, bounds = where_id(connection, ids, now)
    rows = connection.rows_in(f"{_SELECT} WHERE {which}", ids, f"ORDER BY id{connection.lock_rows}", *bounds)
    impressions = {row[0]: OpenImpression(row) for row in rows}
    attention.load(connection, impressions.values())
    rankers = _rankers(connection, {one.ranker for one in impressions.values()}, kinds)
    # An impression of a ranker that the caller may not report on is the same as none.
    visible = [_visible(impressions.get(one.event.impression_id), one.rankers) for one in new]
    where = [one.ranker if one is not None else "" for one in visible]
    # An event is known for as long as its impression is kept; that its id was used for another, for a day at least.
    asked = [(ranker, one.event) for ranker, one in zip(where, new, strict=True) if ranker]
    known = deduplication.known(connection, asked, lately(connection, now))

    receipts, fresh, finals = [], [], []
    for (event, body, _, malformed), impression, name in zip(new, visible, where, strict=True):
        earlier = known.lists.setdefault((name, event.event_id), set())
        receipt = judged(event, impression, rankers, earlier, malformed)
        receipts.append(receipt)
        if receipt.status in ("accepted", "late"):
            earlier.add(event.impression_id)
            own = known.stored_as(connection, name, event.event_id)
            fresh.append((own, event.impression_id, now, receipt.status, body))
        if impression is None or (ranker := rankers.get(impression.ranker)) is None:
            continue
        if receipt.status == "accepted":
            impression.resolve(event.event_id)
            impression.join(event, ranker)
            impression.final = impression.final or event.final
            # A final event waits for corrections; a correction after the window closes what waited for it.
            if not impression.marks and (impression.final or not impression.open):
                impression.open, impression.closed = False, True
                finals.append((impression, "final" if impression.final else "window"))
        elif receipt.status == "rejected" and impression.correctable and ranker.learns(impression.epoch):
            kept = valid_parts(event, impression, ranker)
            receipt.kept = impression.mark(event.event_id, Mark(now, receipt.reason or "", kept))
    if fresh:
        fresh.sort()
        connection.doubtful = connection.append(EVENTS, fresh) < len(fresh)
        if connection.doubtful:  # another process was quicker, or the id was used for a list of long ago: look again
            raise Contended("the same event was stored by another process")
    closing = {one.id for one, _ in finals}
    changed = [one for one in impressions.values() if one.changed and one.id not in closing]
    if changed:
        columns = "seen = ?, viewed = ?, rewards = ?, attention = ?"
        updates = [(*_joined(one), one.attention, one.id) for one in changed]
        connection.many(f"UPDATE impressions SET {columns} WHERE id = ?", updates)
    attention.store(connection, changed)
    closings = _close(connection, finals, rankers, now)
    event_counts.add(connection, receipts, where, now)
    return Receipts(receipts, where, closings)


def _joined(one: OpenImpression) -> tuple[bytes | None, int | None, bytes | None]:
    """(seen, viewed, rewards) as they are stored."""
    return (
        None if one.seen is None else _encode(one.seen),
        one.viewed,
        None if one.rewards is None else _encode(one.rewards),
    )


def _visible(one: OpenImpression | None, allowed: frozenset[str] | None) -> OpenImpression | None:
    """The impression, if the caller may report on its ranker."""
    return one if one is not None and (allowed is None or one.ranker in allowed) else None


def close_windows(connection: Connection, now: float, kinds: dict[str, str], limit: int = 500) -> list[Closing]:
    """Close up to `limit` impressions whose attribution window has ended, of any ranker, the one that ended first
    first; silence is an outcome only if the ranker's spec says so, and not after a rejected event.

    Several processes may do so at once: each skips the rows that another has locked. An impression whose ranker was
    deleted while it was stored is marked to be erased, since nobody else knows of it, and is not returned.
    """
    skip = f"{connection.lock_rows} SKIP LOCKED" if connection.lock_rows else ""
    due = f"open = 1 AND closes <= ? ORDER BY closes, ranker LIMIT {limit}{skip}"
    sql = f"SELECT {OpenImpression.COLUMNS}, closes FROM impressions{connection.by(OPEN)} WHERE {due}"
    # Those that end at the same moment are in the order of their ids, whatever the index gives.
    rows = sorted(connection.rows(sql, now), key=lambda row: (row[-1], row[0]))
    impressions = [OpenImpression(row[:-1]) for row in rows]
    attention.load(connection, impressions)
    rankers = _rankers(connection, {one.ranker for one in impressions}, kinds)
    ending, silent, stray, waiting = [], [], [], []
    for one in impressions:
        known = rankers.get(one.ranker)
        if known is None:
            stray.append(one)
        elif one.marked and known.learns(one.epoch):
            # What is known for certain is learned; that nobody clicked is not. Then it waits for a correction.
            one.join_kept(known)
            evident = one.values("grades") if known.kind == "grades" else one.positive
            if evident:
                ending.append((one, "window"))
            else:
                waiting.append(one)
        elif one.unseen or (one.silent and (known.kind == "grades" or known.spec.silence == "ignore")):
            silent.append(one)
        else:
            ending.append((one, "silent" if one.silent else "window"))
    if stray:
        connection.many("UPDATE impressions SET open = 0, erase = 1 WHERE id = ?", [(one.id,) for one in stray])
    if silent or waiting:
        connection.many("UPDATE impressions SET open = 0 WHERE id = ?", [(one.id,) for one in (*silent, *waiting)])
    closings = _close(connection, ending, rankers, now)
    for kind, some in (("ignored", silent), ("attention", waiting)):
        closings += [Closing(one.ranker, kind, [], len(one.slots)) for one in some]
    return closings


def due(connection: Connection, now: float) -> bool:
    """Whether there are impressions whose attribution window has ended."""
    sql = f"SELECT 1 FROM impressions{connection.by(OPEN)} WHERE open = 1 AND closes <= ? LIMIT 1"
    return connection.row(sql, now) is not None


def _rankers(connection: Connection, names: Iterable[str], kinds: dict[str, str]) -> dict[str, JoinedRanker]:
    wanted = sorted(names)
    if not wanted:
        return {}
    sql = f"SELECT name, epoch, learning, spec, carried FROM rankers WHERE name IN ({marks(wanted)})"
    found = {}
    for name, epoch, learning, text, carried in connection.rows(sql, *wanted):
        spec = stored_spec(text)
        found[name] = JoinedRanker(int(epoch), bool(learning), spec, kinds.get(spec.learner, "clicks"), carried)
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
        sql = "UPDATE heads SET next_seq = next_seq + ? WHERE ranker = ? RETURNING next_seq, rewards"
        if (head := connection.row(sql, len(group), name)) is None:
            raise Contended(f"ranker {name!r} was deleted at this moment")
        after, rewarded = int(head[0]), ranker.spec.reward
        sketch = None if rewarded is None else RewardSketch.loads(head[1])
        for seq, (one, kind) in enumerate(group, after - len(group)):
            scale = None
            if sketch is not None and rewarded is not None and one.rewards is not None:
                sketch.add(reward or 0.0 for reward in one.rewards)
                scale = sketch.scale() if rewarded.scale == "auto" else rewarded.scale
            one.settle(ranker, scale)
            values = one.values(ranker.kind)
            told = one.seen is not None or ranker.kind == "clicks"  # no grades at all say nothing, unlike no clicks
            told = told and not one.unseen
            learn = int(told and one.learn and ranker.learning and ranker.learns(one.epoch))
            rewards = None if one.rewards is None else _encode([reward or 0.0 for reward in one.rewards])
            outcomes.append((name, seq, one.id, kind, learn, _encode(values), one.viewed, now, rewards))
            closed.append((*_joined(one), seq, one.id))
            closings.append(Closing(name, kind, values, len(one.slots)))
        if sketch is not None and any(one.rewards for one, _ in group):
            connection.run("UPDATE heads SET rewards = ? WHERE ranker = ?", sketch.dumps(), name)
    if by_ranker and connection.lock_rows:
        # A reset may have been committed between reading the ranker and locking its head: judge the events again.
        sql = f"SELECT name, epoch FROM rankers WHERE name IN ({marks(by_ranker)})"
        if dict(connection.rows(sql, *by_ranker)) != {name: rankers[name].epoch for name in by_ranker}:
            raise Contended("a ranker was reset at this moment")
    if outcomes:
        if connection.append(OUTCOMES, outcomes) < len(outcomes):
            raise Contended("an outcome of that number was stored by another process")
        columns = "seen = ?, viewed = ?, rewards = ?, open = 0, seq = ?, attention = NULL"
        connection.many(f"UPDATE impressions SET {columns} WHERE id = ?", closed)
        attention.delete(connection, [one.id for one, _ in ending if one.marked])
    return closings


# -- what learning reads -------------------------------------------------------------------------------------------


def outcomes_from(connection: Connection, ranker: str, seq: int, limit: int = 256) -> list[Outcome]:
    """The next outcomes of a ranker, in order, with the impressions they are about."""
    rows = next_outcomes(connection, "learn, feedback, viewed", ranker, seq, limit)
    lists = by_id(connection, "epoch, body, person", [row[1] for row in rows])
    found = []
    for number, own, learn, values, viewed in rows:
        epoch, body, person = lists.get(own, (0, None, None))
        told = None if body is None else bytes(body)
        to = None if viewed is None else int(viewed)
        found.append(Outcome(int(number), bool(learn), int(epoch), told, msgspec.json.decode(values), person, to))
    return found


def next_outcomes(connection: Connection, columns: str, ranker: str, seq: int, limit: int) -> list[Row]:
    """(seq, impression_id, columns) of the next outcomes of a ranker, in order.

    Their numbers have no gaps but where lists were deleted. So if all that there can be are among recent lists, the
    partitions of others need not be asked.
    """
    select = f"SELECT seq, impression_id, {columns} FROM outcomes WHERE"
    tail = f"ranker = ? AND seq >= ? ORDER BY seq LIMIT {limit}"
    if start := lately(connection, time.time()):
        head = connection.row("SELECT next_seq FROM heads WHERE ranker = ?", ranker)
        rows = connection.rows(f"{select} impression_id >= '{start}' AND {tail}", ranker, seq)
        if head is not None and len(rows) >= min(limit, head[0] - seq) and (not rows or rows[-1][0] < seq + len(rows)):
            return rows
    return connection.rows(f"{select} {tail}", ranker, seq)


def by_id(connection: Connection, columns: str, ids: Sequence[str]) -> dict[str, Row]:
    """Columns of the lists with these ids, of those that are there.

    Asked for in a statement of its own rather than in a join: a database that has to guess how many lists a join is
    about may read all of them instead. Of known ids it reads those, each in the partition that it lies in.
    """
    if not ids:
        return {}
    which, bounds = where_id(connection, ids, time.time())
    rows = connection.rows_in(f"SELECT id, {columns} FROM impressions WHERE {which}", ids, "", *bounds)
    return {row[0]: row[1:] for row in rows}


def heads(connection: Connection) -> dict[str, int]:
    """How many outcomes each ranker has."""
    return {name: int(seq) for name, seq in connection.rows("SELECT ranker, next_seq FROM heads")}


def reward_sketches(connection: Connection) -> dict[str, bytes]:
    """The `RewardSketch` of each ranker that has one."""
    rows = connection.rows("SELECT ranker, rewards FROM heads WHERE rewards IS NOT NULL")
    return {name: bytes(rewards) for name, rewards in rows}


def lock_head(connection: Connection, ranker: str) -> int | None:
    """How many outcomes a ranker has; none is added before the transaction ends. None if there is no such ranker."""
    row = connection.row(f"SELECT next_seq FROM heads WHERE ranker = ?{connection.lock_rows}", ranker)
    return None if row is None else int(row[0])


def to_learn(connection: Connection, ranker: str, seq: int) -> bool:
    """Whether any of the outcomes from `seq` on is to be learned."""
    sql = "SELECT 1 FROM outcomes WHERE ranker = ? AND seq >= ? AND learn = 1 LIMIT 1"
    return connection.row(sql, ranker, seq) is not None


def want(connection: Connection, ranker: str) -> int | None:
    """Ask whoever learns a ranker for a snapshot of all that is logged now: up to which outcome; None: no ranker."""
    sql = "UPDATE heads SET wanted = next_seq WHERE ranker = ? RETURNING wanted"
    row = connection.row(sql, ranker)
    return None if row is None else int(row[0])


def wanted(connection: Connection) -> dict[str, int]:
    """Up to which outcome someone waits for a snapshot, of each ranker."""
    return {name: int(seq) for name, seq in connection.rows("SELECT ranker, wanted FROM heads WHERE wanted > 0")}


def open_counts(connection: Connection) -> Counter[str]:
    """How many impressions of each ranker wait for feedback. If the store has more than `COUNTED` of them, the numbers
    are lower bounds: those whose windows end first are counted."""
    first = f"SELECT ranker FROM impressions{connection.by(OPEN)} WHERE open = 1 ORDER BY closes LIMIT {COUNTED}"
    rows = connection.rows(f"SELECT ranker, COUNT(*) FROM ({first}) AS waiting GROUP BY ranker")
    return Counter({name: int(count) for name, count in rows})


def oldest_open(connection: Connection) -> float | None:
    """When the oldest impression was made that waits for feedback; None if none does."""
    row = connection.row(f"SELECT MIN(created) FROM impressions{connection.by(OPEN)} WHERE open = 1")
    return None if row is None else row[0]


def reserve_numbers(connection: Connection, ranker: str, count: int) -> int | None:
    """The first of `count` impression numbers that nobody else will use; None if the ranker has gone."""
    sql = "UPDATE heads SET next_number = next_number + ? WHERE ranker = ? RETURNING next_number"
    row = connection.row(sql, count, ranker)
    return None if row is None else int(row[0]) - count


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
