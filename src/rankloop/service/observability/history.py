"""Counts for the curves of the status page and for the click curves in the metrics, kept until they are written."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from rankloop.service.observability.metrics import MAX_POSITION, Metrics
from rankloop.service.storage import metric_history
from rankloop.service.storage.metric_history import Bucket
from rankloop.service.storage.outcomes import Closing
from rankloop.service.storage.writer import Writer


class History:
    """Counts since the last write, by ranker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = defaultdict(Bucket)
        self._positions: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))  # (shown, clicked)

    def ranked(self, ranker: str, decided: int, explored: int, fallback: bool) -> None:
        """Count a ranking: the positions that the learner filled, and those of them that it explored."""
        with self._lock:
            bucket = self._buckets[ranker]
            bucket.lists += 1
            bucket.positions += decided
            bucket.explored += explored
            bucket.fallbacks += fallback

    def closed(self, closing: Closing) -> None:
        """An impression was closed. One without an outcome counts only for the metrics."""
        clicked = [slot for slot, value in enumerate(closing.values) if value > 0]
        with self._lock:
            shown, clicks = self._positions[closing.ranker]
            _count(shown, range(closing.length))
            _count(clicks, clicked)
            if closing.kind in ("ignored", "attention"):
                return
            bucket = self._buckets[closing.ranker]
            bucket.outcomes += 1
            _count(bucket.shown, range(closing.length))
            _count(bucket.clicks, clicked)
            if clicked:
                bucket.clicked += 1
                bucket.reciprocal += 1.0 / (clicked[0] + 1)

    def judged(self, ranker: str, ndcg: float) -> None:
        """The true NDCG of a shown ranking, from a simulation."""
        with self._lock:
            bucket = self._buckets[ranker]
            bucket.judged += 1
            bucket.ndcg += ndcg

    def watched(self, ranker: str, lag: int, pairs: int, uncertain: int) -> None:
        """Lag and uncertain pairs of a ranker, from the process that learns it."""
        with self._lock:
            self._buckets[ranker].add(Bucket(lag=lag, pairs=pairs, uncertain=uncertain))

    def store(self, writer: Writer, now: float) -> None:
        """Write what was counted since the last time; if that fails it is kept for the next."""
        with self._lock:
            news, self._buckets = self._buckets, defaultdict(Bucket)
        if not news:
            return
        try:
            writer.do(lambda connection: metric_history.add(connection, now, news))
        except BaseException:
            with self._lock:
                for name, bucket in news.items():
                    self._buckets[name].add(bucket)
            raise

    def count_positions(self, metrics: Metrics) -> None:
        """Add the shown and clicked positions since the last call to the metrics: one call per position and not one
        per position of every outcome."""
        with self._lock:
            positions, self._positions = dict(self._positions), defaultdict(lambda: ([], []))
        for ranker, (shown, clicked) in positions.items():
            for name, counts in (("shown_positions_total", shown), ("clicked_positions_total", clicked)):
                for slot, count in enumerate(counts):
                    if count:
                        metrics.count(name, count, ranker=ranker, position=slot + 1)


def _count(counts: list[int], slots: Sequence[int]) -> None:
    """Add one to each of some slots, in order; all from the 51st on count as one."""
    if not slots:
        return
    counts.extend([0] * (min(slots[-1], MAX_POSITION) + 1 - len(counts)))
    for slot in slots:
        counts[min(slot, MAX_POSITION)] += 1
