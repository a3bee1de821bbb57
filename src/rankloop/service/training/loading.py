"""From the store to folds: those of rankers that are new or have changed, with the state of their last snapshot."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from rankloop.core.learner import Learner
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.ranking.model import fixed_part, load_learner
from rankloop.service.storage import admin, experiments, lineage, quarantine, states
from rankloop.service.storage.database import Connection
from rankloop.service.training.fold import Fold
from rankloop.service.training.watch import Entry, Watch
from rankloop.service.worker.hang_supervisor import run_bounded
from rankloop.service.worker.process import Process

logger = logging.getLogger("rankloop")


class Unable(NamedTuple):
    """A ranker that this process could not load."""

    revision: int
    times: int
    until: float  # monotonic: when it is tried again


def learnable(process: Process, watch: Watch, unable: Mapping[str, Unable]) -> dict[str, int]:
    """Rankers that this process may learn, and their revisions: without those in quarantine, those that hang here, and
    those that it is `unable` to load for now."""
    wanted, quarantined = process.database.read(lambda c: (admin.revisions(c), quarantine.quarantined(c)))
    now, ticks, silent = process.clock(), time.monotonic(), watch.silent()

    def waits(name: str, revision: int) -> bool:
        held, failed = quarantined.get(name), unable.get(name)
        return (
            name in silent
            or (held is not None and held.holds(revision, now))
            or (failed is not None and failed.revision == revision and ticks < failed.until)
        )

    return {name: revision for name, revision in wanted.items() if not waits(name, revision)}


def load_folds(
    process: Process, folds: dict[str, Fold], watch: Watch, wanted: Mapping[str, int], unable: dict[str, Unable]
) -> None:
    """Bring `folds` up to date: those of the rankers that this process learns. What it does not learn it does not load
    either; that would be every snapshot of every machine, again and again."""
    missed = 0
    for name in set(folds).difference(wanted):
        folds.pop(name).held = False
    for name, revision in wanted.items():
        fold = folds.get(name)
        if fold is None or fold.row.revision != revision:
            try:
                _load(process, folds, name, watch)
                unable.pop(name, None)
                missed = 0
            except StoreUnavailable as error:
                missed += 1
                if missed > 1:  # the store is at fault, and not this ranker
                    raise
                logger.error("ranker %s cannot be read, it is read again later: %s", name, error)
            except Exception as error:  # whatever the learner raises concerns this ranker only
                folds.pop(name, None)
                times = 1 + (unable[name].times if name in unable and unable[name].revision == revision else 0)
                pause = quarantine.delay(times)
                unable[name] = Unable(revision, times, time.monotonic() + pause)
                logger.error("ranker %s cannot be learned, it is loaded again in %g s: %s", name, pause, error)


class _Found(NamedTuple):
    row: admin.Ranker | None
    snapshot: states.Snapshot | None
    running: list[experiments.Trial]
    quarantined: bool
    changes: list[lineage.Change]


def _load(process: Process, folds: dict[str, Fold], name: str, watch: Watch) -> None:
    row, snapshot, running, quarantined, changes = process.database.read(lambda c: _stored(c, name))
    if row is None or snapshot is None:
        folds.pop(name, None)
        return
    old = folds.get(name)
    if (
        old is not None
        and old.generation == snapshot.generation
        and old.row.created == row.created
        and fixed_part(old.row.spec) == fixed_part(row.spec)
    ):
        old.row, old.running, old.counted_seq = row, running, -1
        return
    what = f"ranker {name!r}, snapshot {snapshot.seq}"

    at = ["load"]  # where it is

    def load() -> Learner:
        with watch.of(row, "load", snapshot.seq, aside=True):
            learner = load_learner(row.spec, snapshot.state, what, changes)
            if quarantined:  # it may have hung in `state`: it is tried where no other ranker waits for it
                at[0] = "state"
                learner.state()
        return learner

    try:
        learner = run_bounded(load, process.settings.learn_seconds, f"rankloop-load-{name}")
    except TooSlow:
        watch.take_down(Entry(row, at[0], snapshot.seq, 0.0, process.worker))
        folds.pop(name, None)
        return
    fold = Fold(row, learner, snapshot.seq, running, changes)
    fold.quarantined = quarantined
    fold.held = True
    fold.large = len(snapshot.state) > states.LARGE
    if old is not None:
        old.held, fold.work = False, old.work
    folds[name] = fold


def _stored(connection: Connection, name: str) -> _Found:
    row = admin.ranker(connection, name)
    if row is None:
        return _Found(None, None, [], False, [])
    held = quarantine.quarantined(connection).get(name)
    quarantined = held is not None and held.revision == row.revision
    changes = lineage.changes(connection, name)
    return _Found(row, states.snapshot(connection, name), experiments.running(connection, name), quarantined, changes)
