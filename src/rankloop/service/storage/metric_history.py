"""The history of metrics: sums per ranker in buckets of time. They are kept longer than the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field, json

from rankloop.service.storage.database import Connection

# Seconds per bucket -> seconds it is kept. Everything is added to each.
RESOLUTIONS: dict[int, int] = {10: 6 * 3600, 600: 90 * 86400}


class Bucket(Struct, omit_defaults=True):
    """Sums over the events of a bucket; `lag` is the maximum."""

    lists: int = 0
    fallbacks: int = 0
    positions: int = 0
    explored: int = 0
    pairs: int = 0
    uncertain: int = 0
    outcomes: int = 0
    clicked: int = 0  # outcomes with a click
    reciprocal: float = 0.0  # over these, 1 / position of the first click
    lag: int | None = None
    judged: int = 0  # impressions with known relevance
    ndcg: float = 0.0
    shown: list[int] = field(default_factory=list)  # by position, in outcomes
    clicks: list[int] = field(default_factory=list)

    def add(self, other: Bucket) -> None:
        """Add the sums of another bucket."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.lag is not None:
            self.lag = max(self.lag or 0, other.lag)
        for mine, theirs in ((self.shown, other.shown), (self.clicks, other.clicks)):
            mine.extend([0] * (len(theirs) - len(mine)))
            for i, count in enumerate(theirs):
                mine[i] += count


_SUMS = [name for name in Bucket.__struct_fields__ if name not in ("lag", "shown", "clicks")]
_decode = json.Decoder(Bucket).decode


def add(connection: Connection, now: float, counted: Mapping[str, Bucket]) -> None:
    """Add the sums of rankers to the current buckets; those of deleted rankers are dropped."""
    known = {row[0] for row in connection.rows("SELECT name FROM rankers")}
    where = "WHERE ranker = ? AND step = ? AND start = ?"
    for ranker in sorted(known.intersection(counted)):  # sorted against deadlocks
        for step in RESOLUTIONS:
            key = (ranker, step, int(now // step) * step)
            body = json.encode(counted[ranker])
            made = "ON CONFLICT DO NOTHING RETURNING ranker"
            if connection.insert("metric_history", "ranker, step, start, body", [(*key, body)], made):
                continue
            ((before,),) = connection.rows(f"SELECT body FROM metric_history {where}{connection.lock_rows}", *key)
            bucket = _decode(before)
            bucket.add(counted[ranker])
            connection.run(f"UPDATE metric_history SET body = ? {where}", json.encode(bucket), *key)


def between(connection: Connection, ranker: str, step: int, since: float) -> Iterator[tuple[int, Bucket]]:
    """Yield the buckets of `step` seconds that end after `since`, in order of time."""
    sql = "SELECT start, body FROM metric_history WHERE ranker = ? AND step = ? AND start > ? ORDER BY start"
    for start, body in connection.rows(sql, ranker, step, since - step):
        yield int(start), _decode(body)


def delete_old(connection: Connection, now: float) -> None:
    """Delete buckets that are older than their resolution is kept."""
    for step, kept in RESOLUTIONS.items():
        old = "ranker IN (SELECT name FROM rankers) AND step = ? AND start < ?"
        connection.run(f"DELETE FROM metric_history WHERE {old}", step, int(now - kept))
