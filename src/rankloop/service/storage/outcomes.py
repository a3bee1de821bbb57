"""The outcomes of the log: closed impressions with their feedback, numbered per ranker. Learning is a fold over them.

Functions of a connection inside a transaction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rankloop.core.types import Impression
from rankloop.service.storage import joining
from rankloop.service.storage.database import Connection, Contended, Row, marks
from rankloop.service.storage.ids import new_id, recent_prefix
from rankloop.service.storage.impressions import OPEN, impressions_by_id, log_insert
from rankloop.service.storage.joining import JoinedRanker, OpenImpression
from rankloop.service.storage.rewards import RewardSketch
from rankloop.wire.calls import RankAnswer, RankedItem
from rankloop.wire.rankers import Spec

PORTION = 500  # keys per statement
_encode = msgspec.json.encode
_INSERT = log_insert(
    "outcomes", ["ranker", "seq", "impression_id", "kind", "learn", "feedback", "viewed", "created", "rewards"]
)


class Closing(NamedTuple):
    """An impression that was closed: for the metrics, and to wake the learner."""

    ranker: str
    kind: str  # final, window, silent; ignored, attention: it has no outcome
    values: list[float]
    length: int


class Outcome(NamedTuple):
    """One step of the fold."""

    seq: int
    learn: bool
    epoch: int
    body: bytes | Impression | None  # as stored, or decoded; None once erased
    values: list[float]
    person: str | None = None
    viewed: int | None = None  # positions that came into view; None: not reported


class ExportedOutcome(NamedTuple):
    """An outcome and its impression, as the tables have them."""

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


class AdoptedImpression(NamedTuple):
    """An impression from before the service, adopted by the ranker's learner."""

    key: str  # the same key is added once
    person: str | None
    items: list[str | int]  # in the order shown
    clicks: list[float]
    body: bytes  # codec.dump_impression


class Backfilled(NamedTuple):
    """The result of adding logged impressions."""

    lists: int
    clicks: int
    known: int


# -- closing impressions -------------------------------------------------------------------------------------------


def close_windows(connection: Connection, now: float, kinds: dict[str, str], limit: int = 500) -> list[Closing]:
    """Close up to `limit` impressions whose attribution window has ended, oldest end first. No feedback becomes an
    outcome only if the spec says so, and never after a rejected event.

    Several processes may do so at the same time: each skips rows that another has locked. An impression whose ranker
    was deleted while it was stored is marked to be erased.
    """
    skip = f"{connection.lock_rows} SKIP LOCKED" if connection.lock_rows else ""
    ended = f"open = 1 AND closes <= ? ORDER BY closes, ranker LIMIT {limit}{skip}"
    sql = f"SELECT {OpenImpression.COLUMNS}, closes FROM impressions{connection.index_hint(OPEN)} WHERE {ended}"
    rows = sorted(connection.rows(sql, now), key=lambda row: (row[-1], row[0]))  # ties in the order of ids
    impressions = [OpenImpression(row[:-1]) for row in rows]
    joining.load_rejected(connection, impressions)
    rankers = load_rankers(connection, {one.ranker for one in impressions}, kinds)
    ending, silent, stray, waiting = [], [], [], []
    for one in impressions:
        known = rankers.get(one.ranker)
        if known is None:
            stray.append(one)
        elif one.had_rejected and known.learns(one.epoch):
            # Positive feedback is learned; without any, the impression waits for a correction.
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
    closings = close(connection, ending, rankers, now)
    for kind, some in (("ignored", silent), ("attention", waiting)):
        closings += [Closing(one.ranker, kind, [], len(one.positions)) for one in some]
    return closings


def any_window_ended(connection: Connection, now: float) -> bool:
    """Return whether there are open impressions whose attribution window has ended."""
    sql = f"SELECT 1 FROM impressions{connection.index_hint(OPEN)} WHERE open = 1 AND closes <= ? LIMIT 1"
    return connection.row(sql, now) is not None


def load_rankers(connection: Connection, names: Iterable[str], kinds: dict[str, str]) -> dict[str, JoinedRanker]:
    """Return what joining needs of rankers."""
    wanted = sorted(names)
    if not wanted:
        return {}
    sql = f"SELECT name, epoch, learning, spec, carried FROM rankers WHERE name IN ({marks(wanted)})"
    found = {}
    for name, epoch, learning, text, carried in connection.rows(sql, *wanted):
        spec = msgspec.json.decode(text, type=Spec)
        found[name] = JoinedRanker(int(epoch), bool(learning), spec, kinds.get(spec.learner, "clicks"), carried)
    return found


def joined_columns(one: OpenImpression) -> tuple[bytes | None, int | None, bytes | None]:
    """Return (feedback, viewed, rewards) as they are stored."""
    return (
        None if one.feedback is None else _encode(one.feedback),
        one.viewed,
        None if one.rewards is None else _encode(one.rewards),
    )


def close(
    connection: Connection, ending: Sequence[tuple[OpenImpression, str]], rankers: dict[str, JoinedRanker], now: float
) -> list[Closing]:
    """Give impressions their outcomes, numbered consecutively per ranker."""
    by_ranker: dict[str, list[tuple[OpenImpression, str]]] = defaultdict(list)
    for one, kind in ending:
        by_ranker[one.ranker].append((one, kind))
    outcomes, closed, closings = [], [], []
    for name in sorted(by_ranker):  # sorted against deadlocks
        group, ranker = by_ranker[name], rankers[name]
        sql = "UPDATE log_offsets SET next_seq = next_seq + ? WHERE ranker = ? RETURNING next_seq, reward_sketch"
        if (offsets := connection.row(sql, len(group), name)) is None:
            raise Contended(f"ranker {name!r} was deleted at this moment")
        after, reward_spec = int(offsets[0]), ranker.spec.reward
        sketch = None if reward_spec is None else RewardSketch.loads(offsets[1])
        for seq, (one, kind) in enumerate(group, after - len(group)):
            scale = None
            if sketch is not None and reward_spec is not None and one.rewards is not None:
                sketch.add(reward or 0.0 for reward in one.rewards)
                scale = sketch.scale() if reward_spec.scale == "auto" else reward_spec.scale
            one.finish(ranker, scale)
            values = one.values(ranker.kind)
            evidence = one.feedback is not None or ranker.kind == "clicks"  # missing grades are no evidence
            evidence = evidence and not one.unseen
            learn = int(evidence and one.learn and ranker.learning and ranker.learns(one.epoch))
            rewards = None if one.rewards is None else _encode([reward or 0.0 for reward in one.rewards])
            outcomes.append((name, seq, one.id, kind, learn, _encode(values), one.viewed, now, rewards))
            closed.append((*joined_columns(one), seq, one.id))
            closings.append(Closing(name, kind, values, len(one.positions)))
        if sketch is not None and any(one.rewards for one, _ in group):
            connection.run("UPDATE log_offsets SET reward_sketch = ? WHERE ranker = ?", sketch.dumps(), name)
    if by_ranker and connection.lock_rows:
        # A reset may have been committed between reading the ranker and locking its offsets: try again.
        sql = f"SELECT name, epoch FROM rankers WHERE name IN ({marks(by_ranker)})"
        if dict(connection.rows(sql, *by_ranker)) != {name: rankers[name].epoch for name in by_ranker}:
            raise Contended("a ranker was reset at this moment")
    if outcomes:
        if connection.append(_INSERT, outcomes) < len(outcomes):
            raise Contended("an outcome of that number was stored by another process")
        columns = "feedback = ?, viewed = ?, rewards = ?, open = 0, seq = ?, rejected = NULL"
        connection.many(f"UPDATE impressions SET {columns} WHERE id = ?", closed)
        joining.delete_rejected(connection, [one.id for one, _ in ending if one.had_rejected])
    return closings


# -- reading -------------------------------------------------------------------------------------------------------


def outcomes_from(connection: Connection, ranker: str, seq: int, limit: int = 256) -> list[Outcome]:
    """Return the next outcomes of a ranker, in order, with their impressions."""
    rows = next_outcomes(connection, "learn, feedback, viewed", ranker, seq, limit)
    impressions = impressions_by_id(connection, "epoch, body, person", [row[1] for row in rows])
    found = []
    for number, own, learn, values, viewed in rows:
        epoch, body, person = impressions.get(own, (0, None, None))
        stored = None if body is None else bytes(body)
        to = None if viewed is None else int(viewed)
        found.append(Outcome(int(number), bool(learn), int(epoch), stored, msgspec.json.decode(values), person, to))
    return found


def next_outcomes(connection: Connection, columns: str, ranker: str, seq: int, limit: int) -> list[Row]:
    """Return (seq, impression_id, columns) of the next outcomes of a ranker, in order.

    Numbers have gaps only where impressions were deleted. So if the recent partitions have all numbers, the others are
    not read.
    """
    select = f"SELECT seq, impression_id, {columns} FROM outcomes WHERE"
    tail = f"ranker = ? AND seq >= ? ORDER BY seq LIMIT {limit}"
    if start := recent_prefix(connection, time.time()):
        end = connection.row("SELECT next_seq FROM log_offsets WHERE ranker = ?", ranker)
        rows = connection.rows(f"{select} impression_id >= '{start}' AND {tail}", ranker, seq)
        if end is not None and len(rows) >= min(limit, end[0] - seq) and (not rows or rows[-1][0] < seq + len(rows)):
            return rows
    return connection.rows(f"{select} {tail}", ranker, seq)


def export_outcomes(connection: Connection, ranker: str, first: int, end: int) -> list[Any]:
    """Return the outcomes first … end-1 as tuples in the order of `ExportedOutcome`, without those of erased users."""
    sql = (
        "SELECT seq, learn, kind, feedback, viewed, created, rewards, impression_id FROM outcomes "
        "WHERE ranker = ? AND seq >= ? AND seq < ? ORDER BY seq"
    )
    outcomes = connection.rows(sql, ranker, first, end)
    columns = "id, epoch, number, created, person, request_id, experiment, credit, body, erase"
    impressions = impressions_by_id(connection, columns, [row[7] for row in outcomes])
    found = []
    for row in outcomes:
        impression = impressions.get(row[7])
        if impression is not None and not impression[9]:
            found.append(row[:7] + impression[:9])
    return found


def impression_of(connection: Connection, ranker: str, seq: int) -> str | None:
    """Return the id of an outcome's impression; None if it is deleted."""
    row = connection.row("SELECT impression_id FROM outcomes WHERE ranker = ? AND seq = ?", ranker, seq)
    return None if row is None else str(row[0])


def count_outcomes(connection: Connection, name: str, first: int, end: int) -> int:
    """Return how many of the outcomes first … end-1 are still in the log."""
    sql = "SELECT COUNT(*) FROM outcomes WHERE ranker = ? AND seq >= ? AND seq < ?"
    ((count,),) = connection.rows(sql, name, first, end)
    return int(count)


def any_to_learn(connection: Connection, ranker: str, seq: int) -> bool:
    """Return whether any of the outcomes from `seq` on is to be learned."""
    sql = "SELECT 1 FROM outcomes WHERE ranker = ? AND seq >= ? AND learn = 1 LIMIT 1"
    return connection.row(sql, ranker, seq) is not None


# -- offsets -------------------------------------------------------------------------------------------------------


def log_offsets(connection: Connection) -> dict[str, int]:
    """Return the number of outcomes of each ranker."""
    return {name: int(seq) for name, seq in connection.rows("SELECT ranker, next_seq FROM log_offsets")}


def log_offset(connection: Connection, ranker: str, lock: bool = False) -> int | None:
    """Return the number of outcomes of a ranker, None if it is deleted. With `lock`, none is added until the
    transaction ends."""
    suffix = connection.lock_rows if lock else ""
    row = connection.row(f"SELECT next_seq FROM log_offsets WHERE ranker = ?{suffix}", ranker)
    return None if row is None else int(row[0])


def reward_sketches(connection: Connection) -> dict[str, bytes]:
    """Return the `RewardSketch` of each ranker that has one."""
    rows = connection.rows("SELECT ranker, reward_sketch FROM log_offsets WHERE reward_sketch IS NOT NULL")
    return {name: bytes(sketch) for name, sketch in rows}


def request_snapshot(connection: Connection, ranker: str) -> int | None:
    """Ask the learning worker for a snapshot of the whole log; return its number of outcomes, None if deleted."""
    sql = "UPDATE log_offsets SET snapshot_requested = next_seq WHERE ranker = ? RETURNING snapshot_requested"
    row = connection.row(sql, ranker)
    return None if row is None else int(row[0])


def requested_snapshots(connection: Connection) -> dict[str, int]:
    """Return the number of outcomes of the requested snapshot of each ranker."""
    sql = "SELECT ranker, snapshot_requested FROM log_offsets WHERE snapshot_requested > 0"
    return {name: int(seq) for name, seq in connection.rows(sql)}


# -- logged impressions --------------------------------------------------------------------------------------------


def known_keys(connection: Connection, ranker: str, epoch: int, keys: Sequence[str]) -> set[str]:
    """Return the keys of logged impressions that are in the log and learned, or to be learned."""
    row = connection.row("SELECT carried FROM rankers WHERE name = ?", ranker)
    oldest = epoch if row is None or row[0] is None else int(row[0])
    ids = {_backfill_id(one, key): key for one in range(oldest, epoch + 1) for key in keys}
    found: set[str] = set()
    for first in range(0, len(ids), PORTION):
        some = list(ids)[first : first + PORTION]
        sql = f"SELECT request_id FROM impressions WHERE ranker = ? AND request_id IN ({marks(some)})"
        found.update(ids[row[0]] for row in connection.rows(sql, ranker, *some))
    return found


def backfill(
    connection: Connection, ranker: str, epoch: int, logged: Sequence[AdoptedImpression], now: float
) -> Backfilled | None:
    """Append logged impressions with their outcomes, all or none, except those whose key is known.

    None if the ranker was deleted, reset or paused since they were adopted: they would not be learned.
    """
    # Locks the offsets first: other calls wait here, so none adds the same impressions.
    end = connection.row("UPDATE log_offsets SET next_seq = next_seq WHERE ranker = ? RETURNING next_seq", ranker)
    row = connection.row("SELECT epoch, learning FROM rankers WHERE name = ?", ranker)
    if end is None or row is None or row[0] != epoch or not row[1]:
        return None
    there = known_keys(connection, ranker, epoch, [one.key for one in logged])
    new = list({one.key: one for one in logged if one.key not in there}.values())
    sql = (
        "UPDATE log_offsets SET next_seq = next_seq + ?, next_number = next_number + ? WHERE ranker = ? "
        "RETURNING next_number"
    )
    ((number,),) = connection.rows(sql, len(new), len(new), ranker)
    impressions, outcomes = [], []
    for place, one in enumerate(new):
        own, seq, values = new_id(now), int(end[0]) + place, _encode(one.clicks)
        items = [RankedItem(item, position, None) for position, item in enumerate(one.items, 1)]
        answer = _encode(RankAnswer(own, ranker, "logged", "shadow", False, items, request_id=one.key))
        made = (own, ranker, epoch, int(number) - len(new) + place, now, now, one.person)
        shown = (_backfill_id(epoch, one.key), b"", 1, one.body, answer, _encode(one.items))
        impressions.append((*made, *shown, values, 0, seq))
        outcomes.append((ranker, seq, own, "logged", 1, values, now))
    columns = (
        "id, ranker, epoch, number, created, closes, person, request_id, digest, learn, body, answer, shown, feedback, "
        "open, seq"
    )
    if new:
        connection.insert("impressions", columns, impressions)
        connection.insert("outcomes", "ranker, seq, impression_id, kind, learn, feedback, created", outcomes)
    return Backfilled(len(new), sum(int(sum(one.clicks)) for one in new), len(logged) - len(new))


def _backfill_id(epoch: int, key: str) -> str:
    """Return the request_id of a logged impression. It may be added again after a reset."""
    return f"logged:{epoch}:{key}"
