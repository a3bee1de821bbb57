"""The rankers as a process that ranks knows them: loaded from the store, and fed with what is learned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rankloop import codec
from rankloop.errors import RankloopError
from rankloop.service.catalogue.counted import CountedRankers
from rankloop.service.catalogue.held import Catalogues
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.experiments import mixing
from rankloop.service.learning.fold import Publication
from rankloop.service.process import Process
from rankloop.service.ranking import model as models
from rankloop.service.ranking.declared import counts, declarations
from rankloop.service.ranking.features import Schema
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.ranking.model import Model
from rankloop.service.ranking.pool import bounded
from rankloop.service.store import admin, published, states, trials
from rankloop.service.store.catalogue import KINDS, Bounds
from rankloop.service.store.signals import Word
from rankloop.telling import InParts

LARGE = 2**20  # bytes of a state that are put in by a thread: a thousand requests need not wait for it
LOAD_SECONDS = 5.0  # that a learner may take to load a state
SHARE = 20  # loading large snapshots of a ranker may take at most one part in so many of the time
logger = logging.getLogger("rankloop")


class LiveRankers(dict[str, LiveRanker]):
    """Name -> ranker."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.trials: dict[str, mixing.Trials] = {}  # of rankers that have some
        self.behind: Callable[[], None] = lambda: None  # called when what is learned here must come whole
        self._process = process
        settings = process.settings
        self.catalogues = Catalogues(process.database, Bounds(settings.catalogue_items, settings.catalogue_bytes))
        self.counted = CountedRankers(process.database, lambda: process.writer, process.clock, settings.counter_keys)
        self._loading = threading.RLock()
        self._hung: set[tuple[str, float, int]] = set()  # states whose loading did not come back
        self._rest: dict[str, float] = {}  # ranker -> until when no snapshot of it is loaded (monotonic)
        self._later: dict[str, float] = {}  # those of them of which there is a newer one
        self._waiting: dict[str, list[Publication]] = {}  # what was published and is not put in yet

    # -- from the store --------------------------------------------------------------------------------------------

    def sync(self) -> list[str]:
        """Load rankers that are new or have changed in the store, drop those that are gone; which were loaded."""
        loaded = []
        with self._loading:
            wanted = self._process.database.read(admin.revisions)
            for name in set(self).difference(wanted):
                self.drop(name)
            for name, revision in wanted.items():
                live = self.get(name)
                if live is None or live.row.revision != revision:
                    try:
                        self.load(name)
                        loaded.append(name)
                    except StoreUnavailable:
                        raise
                    except RankloopError as error:  # one ranker's trouble is not another's
                        logger.error("ranker %s cannot be loaded: %s", name, error)
            for gone in self.catalogues.keep([live.row.spec.catalogue for live in self.values()]):
                self._process.metrics.drop("catalogue_bytes", catalogue=gone)
                for kind in KINDS:
                    self._process.metrics.drop("catalogue_entries", catalogue=gone, kind=kind)
            self.counted.keep([name for name, live in self.items() if counts(live.row.spec)])
        return loaded

    def count_missing(self, live: LiveRanker) -> None:
        """Count what declared features did not find since the last time."""
        name, metrics = live.row.name, self._process.metrics
        unknown, missing = live.schema.counted()
        if unknown:
            metrics.count("catalogue_unknown_total", unknown, ranker=name)
        for feature, times in missing.items():
            metrics.count("catalogue_missing_total", times, ranker=name, feature=feature)

    def drop(self, name: str) -> None:
        """A ranker has gone."""
        live = self.pop(name, None)
        self.trials.pop(name, None)
        self._later.pop(name, None)
        self._rest.pop(name, None)
        if live is not None:
            live.close()

    def load(self, name: str) -> LiveRanker | None:
        """Read a ranker and, if it has another state than the one in memory, its snapshot.

        A state that is damaged, or that its learner does not come back from, gives a ranker without a model: it answers
        with the caller's order, and says why.
        """
        with self._loading:
            row, snapshot, version, found = self._process.database.read(lambda connection: _stored(connection, name))
            if row is None or snapshot is None:
                self.drop(name)
                return None
            live = self.get(name)
            fixed = models.fixed_part(row.spec)
            same = live is not None and live.row.generation == row.generation and live.broken is None
            if live is None or not same or models.fixed_part(live.row.spec) != fixed or live.row.created != row.created:
                fresh = LiveRanker(row, *self._model(row, snapshot))
                if live is not None:
                    fresh.take_over(live)
                    fresh.warm = live.warm and models.fixed_part(live.row.spec) == fixed
                live = fresh
            if row.serving is None:
                live.pinned = None
            elif version is not None and (live.pinned is None or live.row.serving != row.serving):
                pinned = states.Snapshot(version[0], -1, version[1])
                live.pinned, live.broken = self._model(row, pinned)
            running = mixing.opened(self._process.database, self.trials.get(name), row, found)
            catalogue = None if row.spec.catalogue is None else self.catalogues.want(row.spec.catalogue)
            # Anew: defaults may change at any time.
            live.row = row
            counters = self.counted.want(name, declarations(row.spec)) if counts(row.spec) else None
            live.schema = Schema(row.spec, catalogue, self._process.clock, live.schema, counters)
            if running is None:
                self.trials.pop(name, None)
            else:
                self.trials[name] = running
            self[name] = live
        return live

    def look(self, name: str) -> LiveRanker | None:
        """One ranker that another process has changed; None if it has gone."""
        revision = self._process.database.read(lambda connection: admin.revision(connection, name))
        live = self.get(name)
        if revision is not None and live is not None and live.row.revision == revision:
            return live
        return self.load(name)

    def follow(self, word: Word) -> None:
        """What another process has saved of a ranker, if that is ahead of what is known here."""
        live = self.get(word.ranker)
        if live is None or live.model is None or word.generation != live.row.generation:
            return  # a state of another generation belongs to another row, too: a look loads both
        if word.seq <= live.model.learned:
            return
        if word.what == "part":
            self._take_parts(live)
        else:
            self.newer([word.ranker])

    def newer(self, names: Iterable[str] | None = None) -> None:
        """Snapshots of rankers that another machine learns, as far as they are ahead of what is known here; of some, or
        of all. What is large is loaded less often: the time in between is put to better use."""
        process = self._process
        parts: dict[str, tuple[int, int]] = {}
        if names is None:
            newest, parts = process.database.read(lambda c: (states.snapshot_seqs(c), published.newest_parts(c)))
        else:
            found = [(name, process.database.read(lambda c, n=name: states.place(c, n))) for name in names]  # type: ignore[misc]
            newest = {name: place for name, place in found if place is not None}
        for name, (generation, seq) in newest.items():
            live = self.get(name)
            if live is None or generation != live.row.generation or live.model is None or seq <= live.model.learned:
                self._later.pop(name, None)
            elif time.monotonic() < self._rest.get(name, 0.0):
                self._later[name] = self._rest[name]
            else:
                self._later.pop(name, None)
                began = time.monotonic()
                if self._load_newer(live, generation) > LARGE:
                    self._rest[name] = time.monotonic() + SHARE * (time.monotonic() - began)
                self._take_parts(live)
        for name, (generation, seq) in parts.items():
            self.follow(Word("part", name, generation, seq=seq))

    def put_off(self) -> list[str]:
        """Rankers of which there is a snapshot that was not loaded when it came, and may be now."""
        now = time.monotonic()
        return [name for name, since in list(self._later.items()) if since <= now]

    def _load_newer(self, live: LiveRanker, generation: int) -> int:
        """Load its snapshot; how many bytes that is."""
        name = live.row.name
        found = self._process.database.read(lambda connection: states.snapshot(connection, name))
        if found is None or found.generation != generation:
            return 0
        model, broken = self._model(live.row, found)
        if model is None:
            logger.warning("ranker %s: its new snapshot cannot be used: %s", name, broken)
        elif live.model is None or live.model.learned < model.learned:
            live.model = model
        return len(found.state)

    def _take_parts(self, live: LiveRanker) -> None:
        """Follow a large state by what has changed in it, as far as that leads on from what is known here."""
        model, name = live.model, live.row.name
        if model is None or not isinstance(model.learner, InParts):
            return
        parts = self._process.database.read(lambda c: published.parts_from(c, name, model.generation, model.learned))
        for part in parts:
            if part.base > model.learned:
                break  # one is missing: the next snapshot has it
            arrays = codec.loads(part.state, f"ranker {name!r}, a part of its state")[0]
            model.take(arrays, part.seq)

    def _model(self, row: admin.Ranker, found: states.Snapshot) -> tuple[Model | None, str | None]:
        """What ranks, or why there is nothing that could."""
        name = row.name
        key = (name, row.created, found.seq if found.generation < 0 else found.generation)
        if key in self._hung:
            return None, "its learner does not come back from load"
        what = f"ranker {name!r}, " + (f"v{row.serving}" if found.generation < 0 else f"snapshot {found.seq}")

        def load() -> Model:
            return models.load_model(row.spec, found.generation, found.seq, found.state, what)

        try:
            return bounded(load, LOAD_SECONDS, f"rankloop-load-{name}"), None
        except TooSlow:
            self._hung.add(key)
            text = f"its learner does not come back from load within {LOAD_SECONDS:g} s"
        except Exception as error:
            text = str(error)
        logger.error("ranker %s has no model: %s", name, text)
        return None, text

    # -- from those who learn --------------------------------------------------------------------------------------

    def take(self, news: Publication) -> bool:
        """Rank with what was learned from now on; False if it cannot be used, so that the next must be whole.

        Small states are put in at once. Large ones, and those of learners that others have brought, by a thread.
        """
        live = self.get(news.name)
        if live is None or live.row.generation != news.generation:
            return False  # the row is older or newer than the news: `sync` will load both
        size = sum(array.nbytes for array in news.arrays.values())
        if live.loading or (not live.trusted or size > LARGE):
            return self._take_later(live, news)
        return self._put_in(live, news)

    def _put_in(self, live: LiveRanker, news: Publication) -> bool:
        model = live.model
        if news.base is not None:
            if model is None or model.learned != news.base or model.generation != news.generation:
                return False
            return model.take(news.arrays, news.learned, patience=0.05)
        if model is not None and model.generation == news.generation and news.learned < model.learned:
            return True
        try:
            learner = models.make_learner(live.row.spec)
            learner.load(news.arrays)
        except Exception as error:
            logger.warning("ranker %s: what was learned cannot be used: %s", news.name, error)
            return True
        live.model, live.broken = Model(learner, live.row.spec, news.generation, news.learned), None
        return True

    def _take_later(self, live: LiveRanker, news: Publication) -> bool:
        waiting = self._waiting.setdefault(news.name, [])
        if news.base is None:
            waiting.clear()  # it has all that the others had
        waiting.append(news)
        if not live.loading:
            live.loading = True
            threading.Thread(
                target=self._work_off, args=(live,), name=f"rankloop-load-{news.name}", daemon=True
            ).start()
        return True

    def _work_off(self, live: LiveRanker) -> None:
        waiting = self._waiting[live.row.name]
        try:
            while waiting:
                if not self._put_in(live, waiting.pop(0)):
                    waiting.clear()
                    self.behind()
        finally:
            live.loading = False

    def measure(self) -> None:
        """Tell the metrics how much is held of catalogues and counters, and how far these are behind."""
        metrics = self._process.metrics
        for name, one in list(self.catalogues.items()):
            metrics.gauge("catalogue_bytes", one.nbytes, catalogue=name)
            for kind, table in one.tables.items():
                metrics.gauge("catalogue_entries", len(table), catalogue=name, kind=kind)
        for name, counted in list(self.counted.items()):
            metrics.gauge("counters_behind", counted.behind, ranker=name)
            metrics.gauge("counters_keys", counted.counters.keys, ranker=name)
            metrics.gauge("counters_evicted", counted.counters.evicted, ranker=name)
            metrics.gauge("counters_bytes", counted.counters.nbytes, ranker=name)


class _Stored(NamedTuple):
    row: admin.Ranker | None
    snapshot: states.Snapshot | None
    version: tuple[int, bytes] | None
    running: list[trials.Trial]


def _stored(connection: Any, name: str) -> _Stored:
    row = admin.ranker(connection, name)
    if row is None:
        return _Stored(None, None, None, [])
    version = None if row.serving is None else states.version_state(connection, name, row.serving)
    return _Stored(row, states.snapshot(connection, name), version, trials.running(connection, name))
