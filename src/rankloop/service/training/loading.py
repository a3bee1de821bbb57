"""Loads folds from the store: of rankers that are new or have changed, with the state of their last snapshot."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from rankloop.core.learner import Learner
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.ranking.model import fixed_part, load_learner
from rankloop.service.storage import lineage, quarantine, rankers, snapshots
from rankloop.service.training.fold import Fold
from rankloop.service.training.hang_detection import HangDetector, LearnerCall
from rankloop.service.worker.hang_supervisor import run_bounded
from rankloop.service.worker.process import Process

logger = logging.getLogger("rankloop")


class LoadFailure(NamedTuple):
    """A ranker that this process could not load."""

    revision: int
    times: int
    until: float  # monotonic: when it is tried again


class FoldLoader:
    """The folds of one process.

    Parameters
    ----------
    process
        The store, the settings.
    folds
        Brought up to date by `load`.
    detector
        Notices a load that hangs.
    """

    def __init__(self, process: Process, folds: dict[str, Fold], detector: HangDetector) -> None:
        self._process, self._folds, self._detector = process, folds, detector
        self._failed: dict[str, LoadFailure] = {}

    def learnable(self) -> dict[str, int]:
        """Rankers that this process can learn now, and their revisions: without those in quarantine, those with a
        hanging call here, and those that it could not load a moment ago."""
        wanted, quarantined = self._process.database.read(lambda c: (rankers.revisions(c), quarantine.quarantined(c)))
        now, ticks, hanging = self._process.clock(), time.monotonic(), self._detector.hanging_rankers()

        def waits(name: str, revision: int) -> bool:
            held, failed = quarantined.get(name), self._failed.get(name)
            return (
                name in hanging
                or (held is not None and held.holds(revision, now))
                or (failed is not None and failed.revision == revision and ticks < failed.until)
            )

        return {name: revision for name, revision in wanted.items() if not waits(name, revision)}

    def load(self, wanted: Mapping[str, int]) -> None:
        """Load the folds of `wanted` rankers (with their revisions) that are new or changed, and drop all others."""
        folds, missed = self._folds, 0
        for name in set(folds).difference(wanted):
            folds.pop(name).held = False
        for name, revision in wanted.items():
            fold = folds.get(name)
            if fold is not None and fold.row.revision == revision:
                continue
            try:
                self._load(name)
                self._failed.pop(name, None)
                missed = 0
            except StoreUnavailable as error:
                missed += 1
                if missed > 1:  # the store is at fault, and not this ranker
                    raise
                logger.error("ranker %s cannot be read, it is read again later: %s", name, error)
            except Exception as error:  # whatever the learner raises concerns this ranker only
                folds.pop(name, None)
                before = self._failed.get(name)
                times = 1 + (before.times if before is not None and before.revision == revision else 0)
                pause = quarantine.delay(times)
                self._failed[name] = LoadFailure(revision, times, time.monotonic() + pause)
                logger.error("ranker %s cannot be learned, it is loaded again in %g s: %s", name, pause, error)

    def _load(self, name: str) -> None:
        process, folds = self._process, self._folds
        row, snapshot, hold, changes = process.database.read(
            lambda c: (
                rankers.get_ranker(c, name),
                snapshots.snapshot(c, name),
                quarantine.quarantined(c).get(name),
                lineage.spec_changes(c, name),
            )
        )
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
            old.row = row
            return
        quarantined = hold is not None and hold.revision == row.revision
        learner = self._learner(row, snapshot, changes, quarantined)
        if learner is None:
            folds.pop(name, None)
            return
        fold = Fold(row, learner, snapshot.seq, changes)
        fold.quarantined, fold.held = quarantined, True
        fold.large = len(snapshot.state) > snapshots.LARGE
        if old is not None:
            old.held, fold.load_estimator = False, old.load_estimator
        folds[name] = fold

    def _learner(
        self,
        row: rankers.Ranker,
        snapshot: snapshots.Snapshot,
        changes: list[lineage.RecordedChange],
        quarantined: bool,
    ) -> Learner | None:
        """The learner with its state; None if loading hangs, which is recorded."""
        at = ["load"]  # where it is

        def load() -> Learner:
            with self._detector.call(row, "load", snapshot.seq, aside=True):
                name = f"ranker {row.name!r}, snapshot {snapshot.seq}"
                learner = load_learner(row.spec, snapshot.state, name, changes)
                if quarantined:  # it may have hung in `state`: it is tried where no other ranker waits for it
                    at[0] = "state"
                    learner.state()
            return learner

        try:
            return run_bounded(load, self._process.settings.learn_seconds, f"rankloop-load-{row.name}")
        except TooSlow:
            worker = self._process.worker
            self._detector.record(LearnerCall(row, at[0], snapshot.seq, 0.0, worker))
            return None
