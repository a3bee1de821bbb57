"""The rankers of a process that ranks: loaded from the store, and updated with what is learned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking import model as models
from rankloop.service.ranking.feature_spec import declarations, has_counters
from rankloop.service.ranking.model import Model
from rankloop.service.serving.catalog_cache import Catalogs
from rankloop.service.serving.counter_cache import CounterCache
from rankloop.service.serving.live_ranker import LOAD_SECONDS, LiveRanker
from rankloop.service.serving.schema import Schema
from rankloop.service.serving.state_loading import StateLoader
from rankloop.service.storage import admin, experiments, log, published, states
from rankloop.service.storage.catalog import KINDS, Bounds
from rankloop.service.storage.database import Connection
from rankloop.service.storage.notifications import Notification
from rankloop.service.training.fold import Publication
from rankloop.service.worker.process import Process

LARGE = 2**20  # bytes of a state that is put in by a thread: requests must not wait for it
WAITING = 64  # publications that may wait to be put in; if there are more, the next one must be whole
SYNC_SECONDS = 1.0  # that a look at all rankers waits for the first load that is slow: heartbeats wait for the look
LOOKUPS = 32  # rankers per look whose oldest outcome that is not included is read from the store
logger = logging.getLogger("rankloop")


class LiveRankers(dict[str, LiveRanker]):
    """Name -> ranker.

    The states of a ranker are read and loaded by a thread of that ranker (`LiveRanker.loader`), so that one that is
    large, damaged or slow concerns no other. Meanwhile the ranker serves the last model that it loaded, under that
    model's own label.
    """

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.states = StateLoader(process)
        self.experiments = self.states.experiments
        self.behind: Callable[[], None] = lambda: None  # called when what is learned here must come whole
        self._process = process
        settings = process.settings
        self.catalogs = Catalogs(process.database, Bounds(settings.catalog_items, settings.catalog_bytes))
        self.counted = CounterCache(process.database, lambda: process.writer, process.clock, settings.counter_keys)
        self._loading = threading.RLock()  # for rows; nobody loads a state while holding it
        self._fresh: dict[str, LiveRanker] = {}  # those that take their place when their first load is over

    # -- from the store --------------------------------------------------------------------------------------------

    def sync(self) -> list[str]:
        """Load rankers that are new or have changed in the store, drop those that are gone; which were loaded.

        Slow loads are waited for, but half as long each time: however many there are, the others are not kept waiting.
        """
        loaded, patience, missed = [], SYNC_SECONDS, 0
        with self._loading:
            wanted = self._process.database.read(admin.revisions)
            for name in set(self).difference(wanted):
                self.drop(name)
        for name, revision in wanted.items():
            live = self.get(name)
            if live is not None and live.row.revision == revision:
                continue
            try:
                found = self.load(name, patience)
                loaded.append(name)
                missed = 0
                if found is not None and found.loader.count("states"):
                    patience /= 2
            except StoreUnavailable as error:
                missed += 1
                if missed > 1:  # the store is at fault, and not this ranker
                    raise
                logger.error("ranker %s cannot be read, and will be tried again: %s", name, error)
            except RankloopError as error:  # one ranker's trouble is not another's
                logger.error("ranker %s cannot be loaded: %s", name, error)
        with self._loading:
            kept = {**self, **self._fresh}
            for gone in self.catalogs.keep([live.row.spec.catalog for live in kept.values()]):
                self._process.metrics.drop("catalog_bytes", catalog=gone)
                for kind in KINDS:
                    self._process.metrics.drop("catalog_entries", catalog=gone, kind=kind)
            self.counted.keep([name for name, live in kept.items() if has_counters(live.row.spec)])
        return loaded

    def count_missing(self, live: LiveRanker) -> None:
        """Count what declared features did not find since the last time."""
        name, metrics = live.row.name, self._process.metrics
        unknown, missing = live.schema.counted()
        if unknown:
            metrics.count("catalog_unknown_total", unknown, ranker=name)
        for feature, times in missing.items():
            metrics.count("catalog_missing_total", times, ranker=name, feature=feature)

    def drop(self, name: str) -> None:
        """A ranker has gone."""
        live = self.pop(name, None)
        self._fresh.pop(name, None)
        self.states.drop(name)
        if live is not None:
            live.close()

    def load(self, name: str, patience: float = LOAD_SECONDS) -> LiveRanker | None:
        """Read a ranker's row, and have the states loaded that it asks for and that are not there; None if it has gone.

        Waits for them, for at most `patience` seconds. If that is not enough, or if a state cannot be loaded, the
        ranker is there nevertheless: `LiveRanker.serving` says with which model, `LiveRanker.trouble` says why.
        """
        with self._loading:
            row, running = self._process.database.read(lambda connection: _stored(connection, name))
            if row is None:
                self.drop(name)
                return None
            live = self._in_place(row)
            before = live.serving
            catalog = None if row.spec.catalog is None else self.catalogs.want(row.spec.catalog)
            counters = self.counted.want(name, declarations(row.spec)) if has_counters(row.spec) else None
            live.row = row
            live.schema = Schema(row.spec, catalog, self._process.clock, live.schema, counters)
            if live.wanted is None:
                live.previous = before
            self.states.open_experiments(live, running, lambda _: None)
            self.states.forget_errors(live)
            if not self.states.complete(live):
                self.states.order(live)
        live.loader.wait("states", patience)
        with self._loading:
            if self._fresh.get(name) is live:
                self[name] = self._fresh.pop(name)
        return self.get(name) or self._fresh.get(name)

    def wait(self) -> None:
        """Wait until the states of all rankers are loaded; for slow ones half as long each time, as `sync` does."""
        patience = LOAD_SECONDS
        for live in list(self.values()):
            if not live.loader.wait("states", patience):
                patience /= 2

    def _in_place(self, row: admin.Ranker) -> LiveRanker:
        """The ranker of a row: the one that is there, or one that takes its place after its first load."""
        live = self._fresh.get(row.name) or self.get(row.name)
        if live is not None:
            fits = models.fixed_part(live.row.spec) == models.fixed_part(row.spec)
            same = fits and live.row.created == row.created
            if same and live.row.generation == row.generation:
                return live
        fresh = self._fresh[row.name] = LiveRanker(row)
        if live is not None:
            fresh.take_over(live)
            fresh.compiled = live.compiled and fits
            if same and live.row.epoch == row.epoch:  # not after a reset: what was learned is not wanted any more
                fresh.previous = live.serving
        return fresh

    def look(self, name: str) -> LiveRanker | None:
        """One ranker that another process has changed; None if it has gone."""
        revision = self._process.database.read(lambda connection: admin.revision(connection, name))
        live = self.get(name)
        if revision is not None and live is not None and live.row.revision == revision:
            return live
        return self.load(name)

    def follow(self, notification: Notification) -> None:
        """What another process has saved of a ranker, if that is ahead of what is known here."""
        live = self.get(notification.ranker)
        if live is None or notification.generation != live.row.generation:
            return  # a state of another generation belongs to another row, too: a look loads both
        if live.model is not None and notification.seq <= live.model.learned:
            return
        if notification.kind == "part":
            live.loader.add("parts", lambda: self.states.take_parts(live), alone=True)
        else:
            self.newer([notification.ranker])

    def newer(self, names: Iterable[str] | None = None) -> None:
        """Have snapshots loaded that are ahead of what is known here, and what could not be loaded before; of some
        rankers, or of all. What is large is loaded less often, and so is what fails."""
        process = self._process
        parts: dict[str, tuple[int, int]] = {}
        if names is None:
            newest, parts = process.database.read(lambda c: (states.snapshot_seqs(c), published.newest_parts(c)))
        else:
            found = [(name, process.database.read(lambda c, n=name: states.place(c, n))) for name in names]  # type: ignore[misc]
            newest = {name: place for name, place in found if place is not None}
        for name, (generation, seq) in newest.items():
            live = self.get(name)
            if live is not None and generation == live.row.generation:
                self.states.look(live, seq)
        for name, (generation, seq) in parts.items():
            self.follow(Notification("part", name, generation, seq=seq))

    def put_off(self) -> list[str]:
        """Rankers of which there is a snapshot that was not loaded when it came, and may be now."""
        now = time.monotonic()
        return [name for name, live in list(self.items()) if live.deferred and live.retry_at <= now]

    # -- from those who learn --------------------------------------------------------------------------------------

    def take(self, news: Publication) -> bool:
        """Rank with what was learned from now on; False if it cannot be used, so that the next must be whole.

        Small states are put in at once. Large ones, and those of learners that others have brought, by a thread.
        """
        live = self.get(news.name)
        if live is None or live.row.generation != news.generation:
            return False  # the row is older or newer than the news: `sync` will load both
        size = sum(array.nbytes for array in news.arrays.values())
        waiting = live.loader.count("publication")
        if not waiting and live.trusted and size <= LARGE:
            return self._put_in(live, news)
        if waiting >= WAITING and news.base is not None:
            live.loader.drop("publication")
            return False
        live.loader.add("publication", lambda: self._put_in_later(live, news), alone=news.base is None)
        return True

    def _put_in_later(self, live: LiveRanker, news: Publication) -> None:
        if not self._put_in(live, news):
            live.loader.drop("publication")  # they lead on from this one
            self.behind()

    def _put_in(self, live: LiveRanker, news: Publication) -> bool:
        model = live.model
        if news.base is not None:
            if model is None or model.learned != news.base or model.generation != news.generation:
                return False
            return model.apply_delta(news.arrays, news.learned, patience=0.05)
        if model is not None and model.generation == news.generation and news.learned < model.learned:
            return True
        try:
            learner = models.make_learner(live.row.spec)
            learner.load(news.arrays)
        except Exception as error:
            live.errors["live"] = str(error) or type(error).__name__
            self._process.metrics.count("model_load_errors_total", ranker=news.name)
            logger.warning("ranker %s: what was learned cannot be used: %s", news.name, error)
            return True
        live.publish(Model(learner, live.row.spec, news.generation, news.learned))
        live.errors.pop("live", None)
        return True

    # -- how far behind --------------------------------------------------------------------------------------------

    def compare(self, heads: Mapping[str, int]) -> None:
        """Find out which live models do not include every outcome in the store, and since when.

        `heads` is how many outcomes there are of each ranker. A model that includes all that was there at the look
        before this one is up to date: the others are on their way.
        """
        lookups = 0
        for name, live in list(self.items()):
            known = 0 if live.model is None else live.model.learned
            seen, live.head = min(live.head, heads.get(name, 0)), heads.get(name, 0)
            if known >= seen:
                live.behind_since, live.behind_at = None, -1
            elif live.behind_at != known and lookups < LOOKUPS:
                lookups += 1
                rows = self._process.database.read(
                    lambda c, n=name, at=known: log.next_outcomes(c, "created", n, at, 1)  # type: ignore[misc]
                )
                live.behind_since, live.behind_at = (rows[0][2] if rows else self._process.clock()), known

    def measure(self) -> None:
        """Set the gauges of models, catalogs and counters."""
        metrics, now = self._process.metrics, self._process.clock()
        for name, live in list(self.items()):
            metrics.gauge("model_age_seconds", live.age(now), ranker=name)
        for name, one in list(self.catalogs.items()):
            metrics.gauge("catalog_bytes", one.nbytes, catalog=name)
            for kind, table in one.tables.items():
                metrics.gauge("catalog_entries", len(table), catalog=name, kind=kind)
        for name, counted in list(self.counted.items()):
            metrics.gauge("counters_behind", counted.behind, ranker=name)
            metrics.gauge("counters_keys", counted.counters.keys, ranker=name)
            metrics.gauge("counters_evicted", counted.counters.evicted, ranker=name)
            metrics.gauge("counters_bytes", counted.counters.nbytes, ranker=name)


def _stored(connection: Connection, name: str) -> tuple[admin.Ranker | None, list[experiments.Trial]]:
    return admin.ranker(connection, name), experiments.running(connection, name)
