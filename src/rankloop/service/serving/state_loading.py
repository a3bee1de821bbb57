"""Loads the states of rankers, each in the thread of its ranker (`LiveRanker.loader`), and tries again what failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rankloop.core import codec
from rankloop.core.capabilities import InParts
from rankloop.core.errors import InvalidInput
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking import model as models
from rankloop.service.ranking.model import Model
from rankloop.service.serving.experiments import RankerExperiments, open_experiments
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.storage import admin, experiments, lineage, published, states
from rankloop.service.storage.database import Connection
from rankloop.service.worker.process import Process

LARGE = 2**20  # bytes of a snapshot that is loaded less often
SHARE = 20  # loading large snapshots of a ranker may take at most one part in so many of the time
READS = 4  # states that are read at a time: the other connections that read stay free for everything else
FIRST_RETRY = 1.0  # seconds before a load that failed is tried again; doubled after each failure
LONGEST_RETRY = 60.0  # up to this
T = TypeVar("T")
logger = logging.getLogger("rankloop")


class StateLoader:
    """Loads the live state, the promoted version and the versions in experiments of rankers.

    A ranker has one thread for it at most, so a state that is large, damaged or slow to load concerns no other ranker,
    and a learner that never returns from `load` costs one thread. The result of a slow load is used when it comes.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self.experiments: dict[str, RankerExperiments] = {}  # of rankers that have some
        self._unopened: set[str] = set()  # rankers with experiments whose version is not loaded yet
        self._opening = threading.Lock()
        self._reading = threading.BoundedSemaphore(READS)

    def drop(self, name: str) -> None:
        """Forget a ranker that has gone."""
        self.experiments.pop(name, None)
        self._unopened.discard(name)

    def look(self, live: LiveRanker, seq: int) -> None:
        """Have a ranker loaded if its snapshot, which includes `seq` outcomes, is newer than its model or if something
        is missing; later, if it was loaded just now and is large, or has failed."""
        current = live.model is not None and seq <= live.model.learned and self.complete(live)
        live.deferred = not current and time.monotonic() < live.retry_at
        if not current and not live.deferred:
            self.order(live)

    def order(self, live: LiveRanker) -> None:
        """Have the states loaded that a ranker asks for and that are newer than what it has."""
        live.loader.add("states", lambda: self._load(live), alone=True)
        live.loader.add("parts", lambda: self.take_parts(live), alone=True)

    def complete(self, live: LiveRanker) -> bool:
        """Whether everything is loaded that the row asks for."""
        return live.model is not None and live.wanted is not None and live.row.name not in self._unopened

    def open_experiments(
        self, live: LiveRanker, running: Sequence[experiments.Trial], load: Callable[[int], Model | None]
    ) -> None:
        """Open the experiments of a ranker that run; `load` returns the model of a version, or None if not now."""
        row, name = live.row, live.row.name
        found, incomplete = open_experiments(self.experiments.get(name), row, running, load)
        with self._opening:
            if live.row is not row:
                return  # it was changed meanwhile, and its trials with it
            if found is None:
                self.experiments.pop(name, None)
            else:
                self.experiments[name] = found
            if incomplete:
                self._unopened.add(name)
            else:
                self._unopened.discard(name)

    def forget_errors(self, live: LiveRanker) -> None:
        """Forget why states could not be loaded that the row does not ask for any more."""
        asked = {"live", f"v{live.row.serving}", *(["experiments"] if live.row.name in self._unopened else [])}
        for what in set(live.errors).difference(asked):
            live.errors.pop(what, None)

    # -- in the thread of a ranker -----------------------------------------------------------------------------------

    def _load(self, live: LiveRanker) -> None:
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
        self.forget_errors(live)
        if live.wanted is not None or (failed and not unreadable):
            live.previous = None
        live.failures = live.failures + 1 if failed else 0
        pause = min(FIRST_RETRY * 2.0 ** (live.failures - 1), LONGEST_RETRY) if failed else 0.0
        if size > LARGE and known is not None:
            pause = max(pause, SHARE * (time.monotonic() - began))
        live.retry_at, live.deferred = time.monotonic() + pause, failed

    def _load_snapshot(self, live: LiveRanker) -> int:
        """Load the last snapshot if it is newer than what is known; how many bytes that is."""
        row, name = live.row, live.row.name
        at = self._read(lambda connection: states.place(connection, name))
        if at is None or at[0] != row.generation or (live.model is not None and at[1] <= live.model.learned):
            return 0  # of another generation: its row is looked at soon
        found, changes = self._read(lambda c: (states.snapshot(c, name), lineage.changes(c, name)))
        if found is None or found.generation != row.generation:
            return 0
        what = f"ranker {name!r}, snapshot {found.seq}"
        live.publish(models.load_model(row.spec, found.generation, found.seq, found.state, what, None, changes))
        return len(found.state)

    def _load_promoted(self, live: LiveRanker, version: int) -> int:
        model, size = self._version(live.row, version)
        live.pinned = model
        return size

    def _load_rivals(self, live: LiveRanker) -> int:
        name = live.row.name
        running = self._read(lambda connection: experiments.running(connection, name))
        self.open_experiments(live, running, lambda version: self._version(live.row, version)[0])
        return 0

    def _version(self, row: admin.Ranker, version: int) -> tuple[Model, int]:
        """A kept version, and how many bytes it has."""
        found, changes = self._read(
            lambda c: (states.version_state(c, row.name, version), lineage.changes(c, row.name))
        )
        if found is None:
            raise InvalidInput(f"ranker {row.name!r} has no version {version}")
        seq, state = found
        what = f"ranker {row.name!r}, v{version}"
        return models.load_model(row.spec, -1, seq, state, what, version, changes), len(state)

    def take_parts(self, live: LiveRanker) -> None:
        """Follow a large state by what has changed in it, as far as that leads on from what is known here."""
        model, name = live.model, live.row.name
        if model is None or not isinstance(model.learner, InParts):
            return
        try:
            parts = self._read(lambda c: published.parts_from(c, name, model.generation, model.learned))
        except StoreUnavailable as error:
            logger.warning("ranker %s: what has changed in its state could not be read: %s", name, error)
            return
        for part in parts:
            if part.base > model.learned:
                break  # one is missing: the next snapshot has it
            arrays = codec.loads(part.state, f"ranker {name!r}, a part of its state")[0]
            model.apply_delta(arrays, part.seq)

    def _read(self, query: Callable[[Connection], T]) -> T:
        """Read from the store in the thread of a ranker: a few at a time, and no connection is kept."""
        with self._reading:
            try:
                return self._process.database.read(query)
            finally:
                self._process.database.forget()
