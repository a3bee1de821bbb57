"""The rankers of a process that ranks: loaded from the store, and updated with what is learned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rankloop.core import codec
from rankloop.core.capabilities import StateDeltas
from rankloop.core.errors import InvalidInput, RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking import model as models
from rankloop.service.ranking.feature_spec import declarations, has_counters
from rankloop.service.ranking.model import PublishedModel
from rankloop.service.serving.catalog_cache import CatalogCache
from rankloop.service.serving.counter_cache import CounterCache
from rankloop.service.serving.experiments import RankerExperiments, open_experiments
from rankloop.service.serving.live_ranker import LOAD_SECONDS, LiveRanker
from rankloop.service.serving.schema import Schema
from rankloop.service.storage import experiments, lineage, outcomes, rankers, snapshots
from rankloop.service.storage.catalog import KINDS, Limits
from rankloop.service.storage.database import Connection
from rankloop.service.storage.notifications import Notification
from rankloop.service.training.fold import Publication
from rankloop.service.worker.process import Process

LARGE = 2**20  # bytes of a state: larger ones are applied by a thread, and loaded less often
WAITING = 64  # publications that may wait to be applied; if there are more, the next one must be complete
SYNC_SECONDS = 1.0  # that `sync` waits for the first slow load
LOOKUPS = 32  # rankers per `compare` whose oldest outcome that is not included is read from the store
SHARE = 20  # loading large snapshots of a ranker may take at most 1/20 of the time
READS = 4  # states that are read at a time: the other connections stay free
FIRST_RETRY = 1.0  # seconds before a load that failed is tried again; doubled after each failure
LONGEST_RETRY = 60.0  # seconds
T = TypeVar("T")
logger = logging.getLogger("rankloop")


class LiveRankers(dict[str, LiveRanker]):
    """Name -> ranker.

    The states of a ranker are loaded by a thread of that ranker (`LiveRanker.loader`), so one that is large, damaged or
    slow affects no other ranker, and a learner that never returns from `load` costs one thread. Meanwhile the ranker
    serves the last model that it loaded, under that model's own label.
    """

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.experiments: dict[str, RankerExperiments] = {}  # of rankers that have some
        self.behind: Callable[[], None] = lambda: None  # called when the next publication must be complete
        self._process = process
        settings = process.settings
        self.catalogs = CatalogCache(process.database, Limits(settings.catalog_items, settings.catalog_bytes))
        self.counted = CounterCache(process.database, lambda: process.writer, process.clock, settings.counter_keys)
        self._loading = threading.RLock()  # for rows; nobody loads a state while holding it
        self._fresh: dict[str, LiveRanker] = {}  # those that take their place after their first load
        self._unopened: set[str] = set()  # rankers with experiments whose version is not loaded yet
        self._opening = threading.Lock()
        self._reading = threading.BoundedSemaphore(READS)

    # -- rows ------------------------------------------------------------------------------------------------------

    def sync(self) -> list[str]:
        """Load rankers that are new or changed in the store and drop deleted ones; returns the names of those loaded.

        Waits for slow loads, half as long each time, so that many of them do not delay the others.
        """
        loaded, patience, missed = [], SYNC_SECONDS, 0
        with self._loading:
            wanted = self._process.database.read(rankers.revisions)
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
                if missed > 1:  # the store is at fault, not this ranker
                    raise
                logger.error("ranker %s cannot be read, and will be tried again: %s", name, error)
            except RankloopError as error:
                logger.error("ranker %s cannot be loaded: %s", name, error)
        with self._loading:
            kept = {**self, **self._fresh}
            for gone in self.catalogs.keep([live.row.spec.catalog for live in kept.values()]):
                self._process.metrics.drop("catalog_bytes", catalog=gone)
                for kind in KINDS:
                    self._process.metrics.drop("catalog_entries", catalog=gone, kind=kind)
            self.counted.keep([name for name, live in kept.items() if has_counters(live.row.spec)])
        return loaded

    def drop(self, name: str) -> None:
        """Forget a deleted ranker."""
        live = self.pop(name, None)
        self._fresh.pop(name, None)
        self.experiments.pop(name, None)
        self._unopened.discard(name)
        if live is not None:
            live.close()

    def load(self, name: str, patience: float = LOAD_SECONDS) -> LiveRanker | None:
        """Read a ranker's row, and load the states that it asks for; None if the ranker was deleted.

        Waits at most `patience` seconds for the states. Without them the ranker is available nevertheless:
        `LiveRanker.serving` is the model it uses, `LiveRanker.trouble` says why.
        """
        with self._loading:
            row, running = self._process.database.read(
                lambda connection: (rankers.get_ranker(connection, name), experiments.running(connection, name))
            )
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
            self._open_experiments(live, running, lambda _: None)
            self._forget_errors(live)
            if not self._is_complete(live):
                self._order(live)
        live.loader.wait("states", patience)
        with self._loading:
            if self._fresh.get(name) is live:
                self[name] = self._fresh.pop(name)
        return self.get(name) or self._fresh.get(name)

    def wait(self) -> None:
        """Wait until the states of all rankers are loaded, half as long for each slow one."""
        patience = LOAD_SECONDS
        for live in list(self.values()):
            if not live.loader.wait("states", patience):
                patience /= 2

    def _in_place(self, row: rankers.Ranker) -> LiveRanker:
        """The ranker of a row: the current one, or one that takes its place after its first load."""
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
            if same and live.row.epoch == row.epoch:  # not after a reset: what was learned is no longer wanted
                fresh.previous = live.serving
        return fresh

    def look(self, name: str) -> LiveRanker | None:
        """Reload one ranker that another process has changed; None if it was deleted."""
        revision = self._process.database.read(lambda connection: rankers.revision(connection, name))
        live = self.get(name)
        if revision is not None and live is not None and live.row.revision == revision:
            return live
        return self.load(name)

    # -- snapshots and deltas in the store ---------------------------------------------------------------------------

    def follow(self, notification: Notification) -> None:
        """Load what another process has saved of a ranker, if it is ahead of what is loaded."""
        live = self.get(notification.ranker)
        if live is None or notification.generation != live.row.generation:
            return  # a state of another generation belongs to another row: `look` loads both
        if live.model is not None and notification.seq <= live.model.learned:
            return
        if notification.kind == "part":
            live.loader.add("parts", lambda: self._apply_deltas(live), alone=True)
        else:
            self.newer([notification.ranker])

    def newer(self, names: Iterable[str] | None = None) -> None:
        """Load snapshots that are ahead of what is loaded, and what could not be loaded earlier, of some rankers or of
        all; less often if it is large or fails."""
        process = self._process
        deltas: dict[str, tuple[int, int]] = {}
        if names is None:
            newest, deltas = process.database.read(
                lambda c: (snapshots.snapshot_positions(c), snapshots.newest_deltas(c))
            )
        else:
            newest = process.database.read(
                lambda c: {name: place for name in names if (place := snapshots.snapshot_position(c, name))}
            )
        for name, (generation, seq) in newest.items():
            live = self.get(name)
            if live is None or generation != live.row.generation:
                continue
            current = live.model is not None and seq <= live.model.learned and self._is_complete(live)
            live.deferred = not current and time.monotonic() < live.retry_at
            if not current and not live.deferred:
                self._order(live)
        for name, (generation, seq) in deltas.items():
            self.follow(Notification("part", name, generation, seq=seq))

    def deferred(self) -> list[str]:
        """Rankers with a snapshot that was not loaded when it came, and may be now."""
        now = time.monotonic()
        return [name for name, live in list(self.items()) if live.deferred and live.retry_at <= now]

    def _order(self, live: LiveRanker) -> None:
        live.loader.add("states", lambda: self._load_states(live), alone=True)
        live.loader.add("parts", lambda: self._apply_deltas(live), alone=True)

    def _is_complete(self, live: LiveRanker) -> bool:
        """Whether everything is loaded that the row asks for."""
        return live.model is not None and live.wanted is not None and live.row.name not in self._unopened

    def _open_experiments(
        self, live: LiveRanker, running: Sequence[experiments.Experiment], load: Callable[[int], PublishedModel | None]
    ) -> None:
        row, name = live.row, live.row.name
        found, incomplete = open_experiments(self.experiments.get(name), row, running, load)
        with self._opening:
            if live.row is not row:
                return  # it was changed meanwhile, and its experiments with it
            if found is None:
                self.experiments.pop(name, None)
            else:
                self.experiments[name] = found
            if incomplete:
                self._unopened.add(name)
            else:
                self._unopened.discard(name)

    def _forget_errors(self, live: LiveRanker) -> None:
        """Forget errors about states that the row no longer asks for."""
        asked = {"live", f"v{live.row.serving}", *(["experiments"] if live.row.name in self._unopened else [])}
        for what in set(live.errors).difference(asked):
            live.errors.pop(what, None)

    # The following methods run in the thread of a ranker.

    def _load_states(self, live: LiveRanker) -> None:
        name, version, known, began = live.row.name, live.row.serving, live.model, time.monotonic()
        steps: dict[str, Callable[[], int]] = {}
        if version is not None and live.wanted is None:
            steps[f"v{version}"] = lambda: self._load_promoted(live, version)
        steps["live"] = lambda: self._load_snapshot(live)
        if name in self._unopened:
            steps["experiments"] = lambda: self._load_rivals(live)
        size, failed, unreadable = 0, False, False
        for what, step in steps.items():
            try:
                size += step()
                live.errors.pop(what, None)
            except BaseException as error:  # SystemExit, too: a learner may raise anything
                failed, unreadable = True, unreadable or isinstance(error, StoreUnavailable)
                live.errors[what] = str(error) or repr(error)
                self._process.metrics.count("model_load_errors_total", ranker=name)
                logger.error("ranker %s: %s could not be loaded: %s", name, what, live.errors[what])
        self._forget_errors(live)
        if live.wanted is not None or (failed and not unreadable):
            live.previous = None
        live.failures = live.failures + 1 if failed else 0
        pause = min(FIRST_RETRY * 2.0 ** (live.failures - 1), LONGEST_RETRY) if failed else 0.0
        if size > LARGE and known is not None:
            pause = max(pause, SHARE * (time.monotonic() - began))
        live.retry_at, live.deferred = time.monotonic() + pause, failed

    def _load_snapshot(self, live: LiveRanker) -> int:
        """Load the last snapshot if it is newer than the live model; its size in bytes, else 0."""
        row, name = live.row, live.row.name
        at = self._read(lambda connection: snapshots.snapshot_position(connection, name))
        if at is None or at[0] != row.generation or (live.model is not None and at[1] <= live.model.learned):
            return 0
        found, changes = self._read(lambda c: (snapshots.snapshot(c, name), lineage.spec_changes(c, name)))
        if found is None or found.generation != row.generation:
            return 0
        what = f"ranker {name!r}, snapshot {found.seq}"
        live.publish(models.load_model(row.spec, found.generation, found.seq, found.state, what, None, changes))
        return len(found.state)

    def _load_promoted(self, live: LiveRanker, version: int) -> int:
        live.pinned, size = self._version(live.row, version)
        return size

    def _load_rivals(self, live: LiveRanker) -> int:
        name = live.row.name
        running = self._read(lambda connection: experiments.running(connection, name))
        self._open_experiments(live, running, lambda version: self._version(live.row, version)[0])
        return 0

    def _version(self, row: rankers.Ranker, version: int) -> tuple[PublishedModel, int]:
        """A kept version, and its size in bytes."""
        found, changes = self._read(
            lambda c: (snapshots.version_state(c, row.name, version), lineage.spec_changes(c, row.name))
        )
        if found is None:
            raise InvalidInput(f"ranker {row.name!r} has no version {version}")
        seq, state = found
        what = f"ranker {row.name!r}, v{version}"
        return models.load_model(row.spec, -1, seq, state, what, version, changes), len(state)

    def _apply_deltas(self, live: LiveRanker) -> None:
        """Apply state deltas from the store, as far as they continue the live model."""
        model, name = live.model, live.row.name
        if model is None or not isinstance(model.learner, StateDeltas):
            return
        try:
            deltas = self._read(lambda c: snapshots.deltas_from(c, name, model.generation, model.learned))
        except StoreUnavailable as error:
            logger.warning("ranker %s: its state deltas could not be read: %s", name, error)
            return
        for delta in deltas:
            if delta.base > model.learned:
                break  # one is missing: the next snapshot includes it
            model.apply_delta(codec.loads(delta.state, f"ranker {name!r}, a state delta")[0], delta.seq)

    def _read(self, query: Callable[[Connection], T]) -> T:
        """Read from the store: a few reads at a time, and no connection is kept."""
        with self._reading:
            try:
                return self._process.database.read(query)
            finally:
                self._process.database.close_thread()

    # -- publications of the learning worker -------------------------------------------------------------------------

    def take(self, news: Publication) -> bool:
        """Rank with what was learned; False if it does not continue the live model, so the next must be complete.

        Small states are applied at once. Large ones, and those of plugins' learners, are applied by a thread.
        """
        live = self.get(news.name)
        if live is None or live.row.generation != news.generation:
            return False  # `sync` will load both the row and its state
        size = sum(array.nbytes for array in news.arrays.values())
        waiting = live.loader.count("publication")
        if not waiting and live.trusted and size <= LARGE:
            return self._apply(live, news)
        if waiting >= WAITING and news.base is not None:
            live.loader.drop("publication")
            return False
        live.loader.add("publication", lambda: self._apply_later(live, news), alone=news.base is None)
        return True

    def _apply_later(self, live: LiveRanker, news: Publication) -> None:
        if not self._apply(live, news):
            live.loader.drop("publication")  # the waiting ones continue this one
            self.behind()

    def _apply(self, live: LiveRanker, news: Publication) -> bool:
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
        live.publish(PublishedModel(learner, live.row.spec, news.generation, news.learned))
        live.errors.pop("live", None)
        return True

    # -- measurements ------------------------------------------------------------------------------------------------

    def compare(self, heads: Mapping[str, int]) -> None:
        """Find which live models lack outcomes that were in the store at the previous look, and since when.

        `heads` is the number of outcomes of each ranker.
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
                    lambda c, n=name, at=known: outcomes.next_outcomes(c, "created", n, at, 1)  # type: ignore[misc]
                )
                live.behind_since, live.behind_at = (rows[0][2] if rows else self._process.clock()), known

    def count_missing(self, live: LiveRanker) -> None:
        """Count what declared features did not find since the last time."""
        name, metrics = live.row.name, self._process.metrics
        unknown, missing = live.schema.counted()
        if unknown:
            metrics.count("catalog_unknown_total", unknown, ranker=name)
        for feature, times in missing.items():
            metrics.count("catalog_missing_total", times, ranker=name, feature=feature)

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
