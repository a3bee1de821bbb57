"""The learning thread: it folds `learn` over the outcomes of every ranker whose lease this process holds.

It runs in the learning process, or in a process that also ranks. Ranking processes of this machine get what was
learned by `publish`, those of others by snapshots in the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.ranking.kernel_compilation import KernelCompiler
from rankloop.service.storage import leases, quarantine, rankers
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage.notifications import Notification
from rankloop.service.training.fold import Fold, Publication
from rankloop.service.training.hang_detection import HangDetector, LearnerCall
from rankloop.service.training.leases import Leases
from rankloop.service.training.loading import FoldLoader
from rankloop.service.training.snapshots import SnapshotWriter
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import EssentialThread, RepeatingThread

GATHER = 0.004  # seconds in which outcomes gather, so that one look at the log finds several
POLL = 0.2  # seconds between looks at the log for feedback that another machine has taken, without notifications
POLL_NOTIFIED = 1.0  # the same with notifications, which may get lost
TICK = 0.2  # seconds between looks whether the next round of leases is due
PORTION = 256  # outcomes that are read at a time
SNAPSHOT_EVENTS = 2000  # a snapshot is due after so many outcomes, whatever the clock says
MAX_SHARE = 20  # snapshots may take at most 1/20 of the time, and so may publishing
WITHIN = 3  # saves within the time that others may be behind
LOCK_TIMEOUT = 1.0  # seconds that one ranker may keep the thread waiting
PAUSE, LONGEST_PAUSE = 0.2, 60.0  # seconds before a ranker whose learner fails is tried again; doubled each time
logger = logging.getLogger("rankloop")


class Learning:
    """Learns in sequence order, publishes, and saves now and then. Recovery is the same: load a snapshot, learn on.

    Parameters
    ----------
    process
        The store, the settings, the metrics.
    publish
        Called with what was learned; False if it could not be delivered and the whole state must come next.
    compiler
        Of a process that also ranks: kernels are compiled once for both.
    """

    def __init__(
        self, process: Process, publish: Callable[[Publication], bool], compiler: KernelCompiler | None = None
    ) -> None:
        self.process, self._publish = process, publish
        self.folds: dict[str, Fold] = {}
        self.wake = threading.Event()
        self.on_change: Callable[[], None] = lambda: None  # called when a ranker was changed from here
        self.leases = Leases(process)
        self.mine: set[str] = set()  # rankers whose leases this process has
        self.hang_detector = HangDetector(process)
        self.hang_detector.on_hang = self._replace_thread
        self.snapshots = SnapshotWriter(process, self.hang_detector, self.wake.set)
        self._loader = FoldLoader(process, self.folds, self.hang_detector)
        self._loading = threading.RLock()
        self._leasing = threading.Lock()
        self._leased = float("-inf")  # monotonic: when leases were last looked at
        self._news = False  # whether a process of this machine has added to the log since the last look at it
        self._heads: dict[str, int] = {}  # outcomes of each ranker when others were last notified
        self._compiler = compiler or KernelCompiler(self.folds)
        self._stopping = threading.Event()
        self._thread = EssentialThread("learning", self._work, self._stopping, process.thread_failed)
        beat, database, failed = process.settings.beat_seconds, process.database, process.thread_failed
        self._heartbeats = RepeatingThread("heartbeat", beat, self.heartbeat, database, failed)
        self._lease_thread = RepeatingThread("leases", TICK, self._keep_leases, database, failed)
        self.threads: list[EssentialThread] = [self._heartbeats, self._lease_thread, self._thread]
        self.threads += [self.hang_detector.thread, self.snapshots.thread]
        self.replaceable: list[EssentialThread] = [self._thread, self.snapshots.thread]  # may hang in a learner

    def start(self) -> None:
        """Take leases and begin."""
        self.heartbeat()
        for thread in (self._heartbeats, self.hang_detector.thread, self.snapshots.thread):
            thread.start()
        self.keep_leases()
        self._thread.start()
        self._lease_thread.start()

    def dead_threads(self) -> list[str]:
        """Names of the threads that have ended without having been stopped."""
        return [one.name for one in self.threads if one.dead]

    def stop(self, patience: float = 10.0) -> None:
        """Learn what is left, save it, give the leases back."""
        self._lease_thread.stop()
        self._stopping.set()
        self.wake.set()
        self._thread.join(timeout=patience)
        self.snapshots.stop(patience)
        self.hang_detector.thread.stop()
        self._heartbeats.stop()
        process = self.process
        try:
            process.writer.do(lambda connection: leases.release_all(connection, process.worker))
        except (RankloopError, TimeoutError) as error:
            logger.warning("leases could not be given back: %s", error)

    def outcomes_logged(self) -> None:
        """A process of this machine has added to the log; perhaps another machine learns it."""
        self._news = True
        self.wake.set()

    def on_notification(self, notification: Notification) -> None:
        """From a process of another machine."""
        if notification.kind == "changed":
            self.hasten()
        elif notification.kind == "outcomes" and notification.ranker in self.folds:
            self.wake.set()

    def sync(self, known: Mapping[str, int] | None = None) -> None:
        """Load the folds of leased rankers that are new or changed in the store, and drop the others. `known` are the
        revisions of all rankers that can be learned, if they were just read."""
        with self._loading:
            known = self._loader.learnable() if known is None else known
            self._loader.load({name: revision for name, revision in known.items() if name in self.mine})

    def changed(self, name: str) -> None:
        """The guardrail has changed a ranker: every process must rank by that at once."""
        self.sync()
        self.on_change()
        self.process.notify(Notification("changed", name))

    # -- leases ----------------------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Report that this process lives, except for rankers that hang here: another process may take them."""
        process, hanging = self.process, self.hang_detector.hanging_rankers()
        process.collect()
        process.writer.do(
            lambda c: leases.heartbeat(c, process.worker, process.machine, process.settings.learn, hanging)
        )

    def hasten(self) -> None:
        """Look at the leases at the next tick: something has changed in the store."""
        self._leased = float("-inf")

    def _keep_leases(self) -> None:
        if time.monotonic() - self._leased >= self.process.settings.beat_seconds:
            self._leased = time.monotonic()
            self.keep_leases()

    def keep_leases(self) -> None:
        """One round: take leases that nobody keeps, load their folds, give back those that are too many."""
        with self._leasing:
            process = self.process
            known = self._loader.learnable()
            self.leases.look_around(process.database.read(leases.list_workers))
            found = self.leases.take(known)
            self._hold(found.mine, found.fresh, found.loads, known)
            self.snapshots.peers = self.leases.has_peers
            for name in found.spare:
                self._give_back(name)
            self._report_loads()
            for name in process.database.read(rankers.revisions):  # also those that nobody can learn now
                process.metrics.gauge("lease_held", int(name in found.mine), ranker=name)
                if name not in found.mine:
                    process.metrics.drop("learner_lag", ranker=name)  # the process that learns it reports it

    def _hold(self, mine: set[str], fresh: set[str], loads: Mapping[str, float], known: Mapping[str, int]) -> None:
        """These leases are this process's now. A fold of an earlier lease, or one that the store has refused to save,
        is dropped: another process may have learned further, and the log before that may be gone."""
        with self._loading:
            self.mine = mine
            for name, fold in list(self.folds.items()):
                if name in fresh or (name in mine and not fold.held and not fold.saving):
                    fold.held = False
                    del self.folds[name]
            before = set(self.folds)
            self.sync(known)
            for name in set(self.folds).difference(before):
                self.folds[name].load_estimator.inherit(loads.get(name, 0.0))
                logger.info("ranker %s: this process learns", name)
                self.wake.set()

    def _give_back(self, name: str) -> None:
        """Another process has less to do. What is learned is saved before it takes the lease; nothing is learned here
        meanwhile."""
        process, fold = self.process, self.folds.get(name)

        def release() -> None:
            process.writer.do(lambda c: leases.release_lease(c, name, process.worker))

        if fold is None:
            release()
        elif fold.held:
            logger.info("ranker %s: this process gives its lease back", name)
            fold.held = False
            self.snapshots.order(fold, then=release)

    def _report_loads(self) -> None:
        """Store the loads of rankers that have changed: others decide by them what they take."""
        folds = {name: fold for name, fold in list(self.folds.items()) if fold.held}
        news = {name: load for name, one in folds.items() if (load := one.load_estimator.to_report()) is not None}
        if news:
            self.process.writer.do(lambda c: leases.save_loads(c, news))
            for name, load in news.items():
                folds[name].load_estimator.reported = load

    def _replace_thread(self, call: LearnerCall) -> None:
        """A thread does not return from a learner: drop its ranker, and let another thread do the work for the others.
        What the learner does when it returns counts for nothing: the ranker is loaded from its snapshot."""
        name = call.row.name
        fold = self.folds.pop(name, None)
        if fold is not None:
            fold.held = False
        self.hang_detector.record(call)
        for thread in self.replaceable:
            if thread.ident == call.thread:
                logger.error("thread %s does not return from ranker %s; another goes on", thread.name, name)
                thread.replace()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self._thread.replaced:
                self.process.database.close_thread()
                return
            if self.wake.wait(POLL_NOTIFIED if self.process.is_notified else POLL):
                time.sleep(GATHER)
            self.wake.clear()
            news, self._news = self._news, False
            self.catch_up(news)
        self.catch_up()
        for fold in list(self.folds.values()):
            if fold.held:
                self._guarded(fold, save=True)
        self.process.database.close_thread()

    def catch_up(self, news: bool = False) -> None:
        """Learn all that is logged, of every ranker held here. With `news` from a process of this machine, the
        processes that learn other rankers are notified."""
        try:
            heads, wanted = self.process.database.read(
                lambda c: (stored_outcomes.log_offsets(c), stored_outcomes.requested_snapshots(c))
            )
        except StoreUnavailable:
            return  # the log will still be there
        if news and self.process.is_notified:
            for name, head in heads.items():
                if name not in self.folds and (head > self._heads.get(name, 0) or name in wanted):
                    self.process.notify(Notification("outcomes", name))
            self._heads = heads
        for fold in [fold for fold in list(self.folds.values()) if fold.held and not fold.copying]:
            if not fold.compiled and self._compiler.begin(fold) is not None:
                continue  # its kernels are being compiled: the others are learned meanwhile
            if self._thread.replaced:
                return
            name = fold.row.name
            head = heads.get(name, 0)
            fold.load_estimator.logged(head, time.monotonic())
            self._report_lag(fold, head)
            asked = wanted.get(name, 0) > fold.snapshot_seq
            due = head > fold.learned or fold.learned > min(fold.snapshot_seq, fold.published) or asked
            if due and time.monotonic() >= fold.retry_at:
                self._guarded(fold, asked, head)

    def learn_now(self, name: str) -> bool:
        """Learn and publish all that is logged of a ranker, before this returns; False if it is not learned here."""
        fold = self.folds.get(name)
        if fold is None or not fold.held:
            return False
        fold.compiled = True  # the caller waits
        with fold.in_use:
            self.advance(fold)
        self.publish(fold, at_once=True)
        return True

    def _guarded(self, fold: Fold, save: bool = False, head: int = 0) -> None:
        """Learn one ranker. Whatever its learner raises concerns it only; it is tried again after a pause."""
        if not fold.in_use.acquire(timeout=LOCK_TIMEOUT):
            return  # another thread is in its learner: at the next look
        began, before = time.perf_counter(), fold.learned
        try:
            try:
                self.advance(fold, head)
            finally:
                fold.in_use.release()
            self.publish(fold)
            fold.load_estimator.learned(fold.learned - before, time.perf_counter() - began)
            if not fold.held:
                return  # its lease was given back, or it was taken for hanging, meanwhile
            if fold.learned > fold.snapshot_seq and (save or self._due(fold)):
                self.snapshots.order(fold, asked=save)
            self._send_delta(fold)
            self._recovered(fold)
        except StoreUnavailable as error:
            logger.warning("ranker %s: learning waits for the store: %s", fold.row.name, error)
        except BaseException:  # SystemExit, too
            fold.failures += 1
            pause = min(LONGEST_PAUSE, PAUSE * 2.0 ** min(fold.failures, 30))
            fold.retry_at = time.monotonic() + pause
            self.process.metrics.count("learn_errors_total", ranker=fold.row.name)
            logger.exception(
                "ranker %s: learning stopped at outcome %d; it is tried again in %g s",
                fold.row.name,
                fold.learned,
                pause,
            )
            with suppress(BaseException):
                self.publish(fold)  # what was learned before it

    def _recovered(self, fold: Fold) -> None:
        """Its learner has done all that it was asked to do."""
        fold.failures = 0
        if fold.quarantined:
            name = fold.row.name
            self.process.writer.do(lambda c: quarantine.end_quarantine(c, name))
            fold.quarantined = False
            logger.info("ranker %s: its quarantine is over", name)

    def advance(self, fold: Fold, head: int = 0) -> None:
        """Fold the logged outcomes into the learner; `head` is how many there are, for the lag."""
        name, process = fold.row.name, self.process
        while True:
            start = fold.learned
            outcomes = process.database.read(lambda c, at=start: stored_outcomes.outcomes_from(c, name, at, PORTION))  # type: ignore[misc]
            if outcomes and outcomes[0].seq != start:
                # This process was stopped for so long that another learned on and the log before that was deleted.
                fold.held = False
                first = outcomes[0].seq
                logger.warning("ranker %s: its log begins at %d, not at %d; it is loaded again", name, first, start)
                return
            for outcome in outcomes:
                if not fold.held:
                    return
                began = time.perf_counter()
                try:
                    with self.hang_detector.call(fold.row, "learn", outcome.seq):
                        learned = fold.learn(outcome)
                    if learned:
                        process.metrics.count("learned_total", ranker=name)
                        process.metrics.observe("learn_seconds", time.perf_counter() - began, ranker=name)
                except MemoryError:
                    raise
                except BaseException as error:  # SystemExit, too: no learner may end the thread that learns for all
                    process.metrics.count("learn_errors_total", ranker=name)
                    logger.warning("ranker %s: outcome %d was not learned: %s", name, outcome.seq, error)
            if outcomes:
                self._report_lag(fold, head)
                self.publish(fold)
            if len(outcomes) < PORTION or not fold.held or (self._due(fold) and not self._stopping.is_set()):
                return

    def _report_lag(self, fold: Fold, head: int) -> None:
        self.process.metrics.gauge("learner_lag", max(0, head - fold.learned), ranker=fold.row.name)

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self, fold: Fold, at_once: bool = False, whole: bool = False) -> None:
        """Send it to the ranking processes of this machine. What is large is published less often."""
        if fold.learned <= fold.published and not whole:
            return
        now = time.monotonic()
        if not (at_once or whole) and now - fold.last_published < MAX_SHARE * fold.publish_cost:
            return  # the next look, in a fifth of a second at most, will do it
        began = time.perf_counter()
        with self.hang_detector.call(fold.row, "state", fold.learned):
            made = fold.next_publication(whole)
        if not fold.held:
            return  # it was taken for hanging: what it has done since does not count
        if not self._publish(made):
            fold.published = -1  # whatever comes next must be whole
        fold.last_published, fold.publish_cost = now, time.perf_counter() - began

    def publish_all(self) -> None:
        """Publish all states, whole: a ranking process has just started."""
        for fold in list(self.folds.values()):
            if fold.held:
                self.publish(fold, whole=True)

    def _send_delta(self, fold: Fold) -> None:
        """Let ranking processes of other machines follow a large state without its snapshots."""
        now, often = time.monotonic(), self.process.settings.refresh_seconds / WITHIN
        if (
            not self.snapshots.peers
            or now - fold.last_delta < max(often, MAX_SHARE * fold.delta_cost)
            or not self.snapshots.free
        ):
            return
        began = time.perf_counter()
        with self.hang_detector.call(fold.row, "state", fold.learned):
            delta = fold.next_delta()
        if delta is not None:
            self.snapshots.order_delta(fold, delta)
            fold.last_delta, fold.delta_cost = now, time.perf_counter() - began

    def save(self, fold: Fold, patience: float = 30.0) -> None:
        """Save a snapshot of all that is learned, before this returns."""
        for _ in range(2):  # the one under way may be older
            if fold.learned > fold.snapshot_seq:
                self.snapshots.order(fold, asked=True)
                self.snapshots.settle(patience)

    def _due(self, fold: Fold) -> bool:
        settings = self.process.settings
        # A third of the time that others may be behind: the rest is for writing, notifying and reading.
        every = settings.refresh_seconds / WITHIN if self.snapshots.peers else settings.snapshot_seconds
        waited = time.monotonic() - fold.last_snapshot
        if waited < MAX_SHARE * fold.snapshot_cost or fold.saving or not self.snapshots.free:
            return False
        return waited >= every or fold.learned - fold.snapshot_seq >= SNAPSHOT_EVENTS
