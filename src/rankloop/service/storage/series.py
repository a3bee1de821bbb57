"""Curves: how rankers fared, in buckets of time that all processes add to. They outlive the log they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field, json

from rankloop.service.storage.database import Connection

# Seconds a bucket holds -> seconds it is kept. Everything is written to each, so nothing is ever merged later.
RESOLUTIONS: dict[int, int] = {10: 6 * 3600, 600: 90 * 86400}


class Bucket(Struct, omit_defaults=True):
    """Sums over what happened; `lag` is the largest that was seen."""

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
    judged: int = 0  # lists whose truth is known
    ndcg: float = 0.0
    shown: list[int] = field(default_factory=list)  # by position, in outcomes
    clicks: list[int] = field(default_factory=list)

    def add(self, other: Bucket) -> None:
        """Take in what another one counted."""
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


def add(connection: Connection, now: float, news: Mapping[str, Bucket]) -> None:
    """Add what was counted of each ranker to the buckets of this moment; of one that has gone nothing is kept."""
    known = {row[0] for row in connection.rows("SELECT name FROM rankers")}
    where = "WHERE ranker = ? AND step = ? AND start = ?"
    for ranker in sorted(known.intersection(news)):  # in this order, so that two processes never wait in a ring
        for step in RESOLUTIONS:
            key = (ranker, step, int(now // step) * step)
            body = json.encode(news[ranker])
            made = "ON CONFLICT DO NOTHING RETURNING ranker"
            if connection.insert("series", "ranker, step, start, body", [(*key, body)], made):
                continue
            ((before,),) = connection.rows(f"SELECT body FROM series {where}{connection.lock_rows}", *key)
            bucket = _decode(before)
            bucket.add(news[ranker])
            connection.run(f"UPDATE series SET body = ? {where}", json.encode(bucket), *key)


def between(connection: Connection, ranker: str, step: int, since: float) -> Iterator[tuple[int, Bucket]]:
    """The buckets of `step` seconds that end after `since`, in order of time."""
    sql = "SELECT start, body FROM series WHERE ranker = ? AND step = ? AND start > ? ORDER BY start"
    for start, body in connection.rows(sql, ranker, step, since - step):
        yield int(start), _decode(body)


def sweep(connection: Connection, now: float) -> None:
    """Delete buckets that are past their time."""
    for step, kept in RESOLUTIONS.items():
        old = "ranker IN (SELECT name FROM rankers) AND step = ? AND start < ?"
        connection.run(f"DELETE FROM series WHERE {old}", step, int(now - kept))
