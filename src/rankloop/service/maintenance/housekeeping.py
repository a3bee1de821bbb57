"""What a learning process does now and then: reports about rankers, deletion by age, archives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

from rankloop.core import codec
from rankloop.core.capabilities import Observable
from rankloop.core.errors import RankloopError
from rankloop.service.maintenance.attribution_windows import AttributionWindows
from rankloop.service.maintenance.webhook_outbox import WebhookOutbox
from rankloop.service.ranking import movement
from rankloop.service.storage import (
    audit,
    catalog,
    counters,
    impressions,
    joining,
    metric_history,
    outcomes,
    partitions,
    rankers,
    retention,
)
from rankloop.service.storage.writer import in_batches
from rankloop.service.training.fold import Fold
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import RepeatingThread

HISTORY_EVERY = 2.0  # seconds between additions to the curves
COUNT_EVERY = 5.0  # seconds between counts of open impressions, and between questions to learners about drift
DELETE_EVERY = 30.0  # seconds between deletions
LOCK_TIMEOUT = 0.2  # seconds that a report waits for a learner
MAX_EXPLAINED = 8  # lists of a ranker and addition to the curves that its learner explains
MAX_IDLE = 32  # rankers with nothing new to learn whose lists are explained, in turn, for an addition to the curves
EXPORT_EVERY = 3600.0  # seconds between exports: each makes a file of every ranker that was used
LOOK_EVERY = 10.0  # seconds between looks whether an export is due
RETRY_AFTER = 300.0  # seconds after which a failed export or upgrade is tried again
CLOCK_SLACK = 3600.0  # seconds that the clocks of ranking machines may be behind
logger = logging.getLogger("rankloop")


class Reports:
    """The thread that asks learners what they have noticed and counts what is in the store."""

    def __init__(self, learning: Learning) -> None:
        self._learning, self._process = learning, learning.process
        process = learning.process
        self.thread = RepeatingThread("reports", HISTORY_EVERY, self._round, process.database, process.thread_failed)
        self._counted = -inf
        self._alarms: dict[str, int] = {}  # ranker -> drift alarms that were logged
        self._recorded: dict[str, int] = {}  # ranker -> outcomes learned when its lag was last recorded
        self._next_idle = 0
        self._explained: dict[str, float] = {}  # ranker -> time of the newest list that its learner has explained

    def _round(self) -> None:
        process = self._process
        if time.monotonic() - self._counted > COUNT_EVERY:
            self._counted = time.monotonic()
            self.count_store()
            self.report_drift()
        self.record_lag()
        process.history.store(process.writer, process.clock())

    def count_store(self) -> None:
        """Set the gauges about the store, also to 0, and remove those of rankers that are gone."""
        process = self._process
        opened, marked, names = process.database.read(
            lambda c: (impressions.open_counts(c), joining.count_rejected(c), rankers.revisions(c))
        )
        for name in names:
            process.metrics.gauge("open_impressions", opened[name], ranker=name)
            process.metrics.gauge("attention_impressions", marked[name], ranker=name)
        process.metrics.keep_rankers(names)
        found = process.database.size()
        process.metrics.gauge("store_bytes", found.used)
        if found.free is not None:
            process.metrics.gauge("store_free_disk_bytes", found.free)

    def report_drift(self) -> None:
        """Set the gauges about drift and remembered queries."""
        for name, fold in list(self._learning.folds.items()):
            if fold.held and fold.in_use.acquire(timeout=LOCK_TIMEOUT):  # else the next time
                try:
                    with self._learning.hang_detector.call(fold.row, "explain", fold.learned):
                        movement.set_gauges(name, fold.learner, self._process.metrics, self._alarms)
                except BaseException as error:  # SystemExit, too: the other rankers are reported
                    logger.warning("ranker %s: its learner does not report: %r", name, error)
                finally:
                    fold.in_use.release()

    def record_lag(self) -> None:
        """Add lag and uncertain pairs of what is learned here to the curves."""
        process = self._process
        heads = process.database.read(outcomes.log_offsets)
        folds = [fold for fold in list(self._learning.folds.values()) if fold.held]
        idle = [fold.row.name for fold in folds if fold.learned == self._recorded.get(fold.row.name)]
        chosen = set((idle[self._next_idle :] + idle[: self._next_idle])[:MAX_IDLE])
        self._next_idle = (self._next_idle + MAX_IDLE) % max(1, len(idle))
        for fold in folds:
            name = fold.row.name
            lag, news = max(0, heads.get(name, 0) - fold.learned), fold.learned != self._recorded.get(name)
            pairs, uncertain = self._uncertain(fold) if news or name in chosen else (0, 0)
            if lag or pairs or news:
                self._recorded[name] = fold.learned
                process.history.watched(name, lag, pairs, uncertain)

    def _uncertain(self, fold: Fold) -> tuple[int, int]:
        """(pairs, uncertain ones) of the newest lists that were not explained yet."""
        name, learner = fold.row.name, fold.learner
        if not isinstance(learner, Observable):
            return 0, 0
        since = self._explained.get(name, 0.0)
        bodies = self._process.database.read(
            lambda c: impressions.latest_learned_bodies(c, name, fold.row.epoch, since, MAX_EXPLAINED)
        )
        pairs = uncertain = 0
        for created, body in bodies:
            self._explained[name] = max(self._explained.get(name, 0.0), created)
            if not fold.in_use.acquire(timeout=LOCK_TIMEOUT):
                break
            try:
                # A list of other features, or from before a reset; or SystemExit of a learner.
                with suppress(BaseException), self._learning.hang_detector.call(fold.row, "explain", fold.learned):
                    found = learner.explain(codec.load_impression(body))
                    if found is not None:
                        pairs += found.pairs
                        uncertain += len(found.uncertain)
            finally:
                fold.in_use.release()
        return pairs, uncertain


class Retention:
    """The thread that deletes by age. A large ranker takes hours to delete, so nothing else runs in it."""

    def __init__(self, process: Process, archive: Archive | None = None) -> None:
        self._process, self._archive = process, archive
        self.thread = RepeatingThread("retention", DELETE_EVERY, self.delete, process.database, process.thread_failed)

    def delete(self) -> None:
        """Delete what is past retention or to be erased, as far as snapshots cover it, and what deleted rankers have
        left. With an archive, nothing is deleted by age that is not exported."""
        process = self._process
        days = process.settings.retention_days
        exported = inf if self._archive is None else self._archive.complete
        before = min(process.clock() - days * 86400, exported) if days else None
        for work in (
            lambda c, limit: retention.delete_old(c, before, limit),
            rankers.delete_remains,
            lambda c, limit: catalog.delete_unused(c, process.clock(), limit),
            catalog.recount,
        ):
            sum(in_batches(process.writer, work, lambda: self.thread.stopping))
        process.writer.do(lambda c: metric_history.delete_old(c, process.clock()))
        process.writer.do(lambda c: counters.delete_old_erasures(c, process.clock()))
        if process.settings.audit_days:
            process.writer.do(lambda c: audit.delete_old(c, process.clock() - process.settings.audit_days * 86400))
        # Last: a database user that may not create tables can still delete rows.
        partitions.maintain(process.database, process.clock(), days, exported)


class Archive:
    """The thread that exports outcomes to the folder of setting `archive`, before they are deleted by age."""

    def __init__(self, process: Process) -> None:
        self._process, self._folder = process, Path(process.settings.archive).expanduser()
        self.complete = -inf  # all lists made before that moment are exported, unless they had no outcome
        self._due = -inf
        self.thread = RepeatingThread("archive", LOOK_EVERY, self._look, process.database, process.thread_failed)

    def _look(self) -> None:
        now = self._process.clock()
        if now < self._due <= now + EXPORT_EVERY:  # farther ahead: the clock was set back
            return
        self._due = now + RETRY_AFTER
        try:
            self.export()
        except (RankloopError, OSError) as error:
            logger.error("archive: %s. Nothing is deleted by age until it succeeds", error)
            return
        self._due = now + EXPORT_EVERY

    def export(self) -> None:
        """Export all outcomes of all rankers that are not exported yet."""
        from rankloop.service.maintenance.archive.exporting import export_log

        database = self._process.database
        # Read before the export looks at the log: a list that is open now, or comes later, may not be in it.
        first = database.read(impressions.oldest_open)
        safe = min(self._process.clock() - CLOCK_SLACK, inf if first is None else first)
        # A ranker that was deleted and made again, or a restored store, must not end the export for ever.
        export_log(database, self._folder, [one.name for one in database.read(rankers.list_rankers)], aside=True)
        self.complete = max(self.complete, safe)


class Maintenance:
    """The maintenance threads of a process: all if it learns, else the closing of windows while no process learns.

    The parameters are those of `AttributionWindows`.
    """

    def __init__(
        self,
        process: Process,
        learning: Learning | None,
        closed: Callable[[set[str]], None],
        changed: Callable[[str], None],
    ) -> None:
        self.windows = AttributionWindows(process, learning, closed, changed)
        self.threads, self.learns = [self.windows.thread], learning is not None
        if learning is not None:
            archive = Archive(process) if process.settings.archive else None
            self.reports, self.retention = Reports(learning), Retention(process, archive)
            self.outbox = WebhookOutbox(process, learning)
            learning.replaceable.append(self.reports.thread)
            self.threads += [self.reports.thread, self.retention.thread, self.outbox.thread]
            self.threads += [] if archive is None else [archive.thread]

    def start(self) -> None:
        """Begin."""
        if self.learns:
            self.reports.count_store()  # the first scrape needs the gauges
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End after the work under way."""
        for thread in self.threads:
            thread.stop(2.0 if thread.name == "webhook" else 10.0)  # a webhook that hangs is not waited for

    def dead_threads(self) -> list[str]:
        """Names of the threads that have ended without having been stopped."""
        return [one.name for one in self.threads if one.dead]
