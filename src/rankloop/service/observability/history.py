"""What is counted for the curves between two writes: cheap where a request passes, stored by those who keep house."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rankloop.service.observability.metrics import MAX_POSITION
from rankloop.service.storage import series
from rankloop.service.storage.log import Closing
from rankloop.service.storage.series import Bucket
from rankloop.service.storage.writer import Writer


class History:
    """Counts since the last write, by ranker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = defaultdict(Bucket)

    def ranked(self, ranker: str, decided: int, explored: int, fallback: bool) -> None:
        """Count a ranking: the positions that the learner filled, and those of them that it explored."""
        with self._lock:
            bucket = self._buckets[ranker]
            bucket.lists += 1
            bucket.positions += decided
            bucket.explored += explored
            bucket.fallbacks += fallback

    def closed(self, closing: Closing) -> None:
        """An impression was closed. One without an outcome is not counted."""
        if closing.kind in ("ignored", "attention"):
            return
        clicked = [slot for slot, value in enumerate(closing.values) if value > 0]
        with self._lock:
            bucket = self._buckets[closing.ranker]
            bucket.outcomes += 1
            _count(bucket.shown, range(closing.length))
            if clicked:
                bucket.clicked += 1
                bucket.reciprocal += 1.0 / (clicked[0] + 1)
                _count(bucket.clicks, clicked)

    def judged(self, ranker: str, ndcg: float) -> None:
        """The truth about a list that was shown, from someone who knows it."""
        with self._lock:
            bucket = self._buckets[ranker]
            bucket.judged += 1
            bucket.ndcg += ndcg

    def watched(self, ranker: str, lag: int, pairs: int, uncertain: int) -> None:
        """What the process that learns a ranker sees of it."""
        with self._lock:
            self._buckets[ranker].add(Bucket(lag=lag, pairs=pairs, uncertain=uncertain))

    def store(self, writer: Writer, now: float) -> None:
        """Write what was counted since the last time; if that fails it is kept for the next."""
        with self._lock:
            news, self._buckets = self._buckets, defaultdict(Bucket)
        if not news:
            return
        try:
            writer.do(lambda connection: series.add(connection, now, news))
        except BaseException:
            self._put_back(news)
            raise

    def _put_back(self, news: Mapping[str, Bucket]) -> None:
        with self._lock:
            for name, bucket in news.items():
                self._buckets[name].add(bucket)


def _count(counts: list[int], slots: Sequence[int]) -> None:
    """Add one to each of some slots, in order; all from the 51st on count as one."""
    counts.extend([0] * (min(slots[-1], MAX_POSITION) + 1 - len(counts)))
    for slot in slots:
        counts[min(slot, MAX_POSITION)] += 1
