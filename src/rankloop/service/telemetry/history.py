"""What is counted for the curves between two writes: cheap where a request passes, stored by the keeper."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rankloop import codec
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import log, series, shown
from rankloop.service.store.log import Closing
from rankloop.service.store.series import Bucket
from rankloop.service.telemetry.metrics import MAX_POSITION
from rankloop.telling import Explains

if TYPE_CHECKING:
    from rankloop.service.engine import Engine

LOOKED_AT = 8  # lists at most, of a ranker and a write, that the learner is asked about


class History:
    """Counts since the last write, by ranker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = defaultdict(Bucket)
        self._looked: dict[str, float] = {}  # ranker -> when the newest list was made that the learner was asked about

    def ranked(self, ranker: str, positions: int, explored: int, fallback: bool) -> None:
        """A list was answered."""
        with self._lock:
            bucket = self._buckets[ranker]
            bucket.lists += 1
            bucket.positions += positions
            bucket.explored += explored
            bucket.fallbacks += fallback

    def closed(self, closing: Closing) -> None:
        """A list has its feedback. Silence that is to be ignored says nothing, here as well."""
        if closing.kind == "ignored":
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

    def store(self, engine: Engine) -> None:
        """Write what was counted since the last time; if that fails it is kept for the next."""
        for name, (lag, pairs, uncertain) in self._watched(engine).items():
            with self._lock:
                self._buckets[name].add(Bucket(lag=lag, pairs=pairs, uncertain=uncertain))
        with self._lock:
            news, self._buckets = self._buckets, defaultdict(Bucket)
        if not news:
            return
        now = engine.clock()
        try:
            engine.writer.do(lambda connection: series.add(connection, now, news))
        except BaseException:
            self._put_back(news)
            raise

    def _put_back(self, news: Mapping[str, Bucket]) -> None:
        with self._lock:
            for name, bucket in news.items():
                self._buckets[name].add(bucket)

    def _watched(self, engine: Engine) -> dict[str, tuple[int, int, int]]:
        """(lag, pairs, uncertain ones) of the rankers that are learned here and had something to do."""
        heads = engine.database.read(log.heads)
        found = {}
        for name, live in list(engine.rankers.items()):
            lag = max(0, heads.get(name, 0) - live.model.learned)
            if live.held and (lag or name in self._buckets):
                found[name] = (lag, *self._uncertain(engine, live))
        return found

    def _uncertain(self, engine: Engine, live: LiveRanker) -> tuple[int, int]:
        """(pairs, uncertain ones) of the newest lists that were not looked at yet."""
        name = live.row.name
        if not isinstance(live.model.learner, Explains):
            return 0, 0
        since = self._looked.get(name, 0.0)
        bodies = engine.database.read(lambda c: shown.newest_bodies(c, name, live.row.epoch, since, LOOKED_AT))
        pairs = uncertain = 0
        for created, body in bodies:
            self._looked[name] = max(self._looked.get(name, 0.0), created)
            found = live.model.explain(codec.load_impression(body))
            if found is not None:
                pairs += found.pairs
                uncertain += len(found.uncertain)
        return pairs, uncertain


def _count(counts: list[int], slots: Sequence[int]) -> None:
    """Add one to each of some slots, in order; all from the 51st on count as one."""
    counts.extend([0] * (min(slots[-1], MAX_POSITION) + 1 - len(counts)))
    for slot in slots:
        counts[min(slot, MAX_POSITION)] += 1
