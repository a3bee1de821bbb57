"""The thread that learns: it folds `learn` over the outcomes of every ranker whose lease this process holds.

Runs in a process of its own, beside those that rank (`learning/standalone.py`), or in one that also ranks. What it
learns reaches the rankers of this machine by `publish`, at once, and those of others by snapshots in the store, which
a thread of its own saves (`saving`) and says so.
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
from rankloop.service.storage import admin, log, quarantine
from rankloop.service.storage.notifications import Notification
from rankloop.service.training import count_evidence
from rankloop.service.training.fold import Fold, Publication
from rankloop.service.training.heartbeat import Heartbeat
from rankloop.service.training.housekeeping import Housekeeping
from rankloop.service.training.loading import Unable, learnable, load_folds
from rankloop.service.training.saving import Saving
from rankloop.service.training.watch import Entry, Watch
from rankloop.service.training.webhook_outbox import Notices
from rankloop.service.training.windows import Windows
from rankloop.service.worker.background_threads import Essential, Repeating
from rankloop.service.worker.process import Process

GATHER = 0.004  # seconds in which outcomes gather, so that one look at the log finds several
POLL = 0.2  # seconds between looks for feedback that another machine has taken, where nobody says so
NET = 1.0  # seconds between them where that is said, and may get lost
PORTION = 256  # outcomes that are read at a time
SNAPSHOT_EVENTS = 2000  # a snapshot is due after so many outcomes, whatever the clock says
SHARE = 20  # a snapshot may take at most one part in so many of the time, publishing as much
WITHIN = 3  # saves within the time that others may be behind
TURN = 1.0  # seconds that one ranker may keep the thread waiting
REST, LONGEST_REST = 0.2, 60.0  # seconds for which a ranker whose learner fails is left alone; doubled each time
logger = logging.getLogger("rankloop")


class Learning:
    """Learns in sequence order, publishes, and saves now and then. Recovery is nothing else: load a snapshot and learn
    on.

    Parameters
    ----------
    process
        The store, the settings, the counts.
    publish
        Called with what was learned; False if it could not be passed on and the whole state should come next.
    warming
        Of a process that also ranks: kernels are compiled once for both.
    """

    def __init__(
        self, process: Process, publish: Callable[[Publication], bool], compiler: KernelCompiler | None = None
    ) -> None:
        self.process, self._publish = process, publish
        self.folds: dict[str, Fold] = {}
        self.wake = threading.Event()
        self.on_change: Callable[[], None] = lambda: None  # told when a ranker was changed from here
        self.mine: set[str] = set()  # rankers whose leases this process has
        self.unable: dict[str, Unable] = {}  # those that it cannot load
        self.watch = Watch(process)
        self.watch.on_hanging = self.leave_behind
        self.heartbeat = Heartbeat(process, self.watch)
        self.saving = Saving(process, self.watch, self.wake.set)
        self.housekeeping = Housekeeping(self)
        self.windows = Windows(process, self.housekeeping.leases, self._closed, self._changed)
        self.notices = Notices(process, self.folds, self.housekeeping.leases)
        self._loading = threading.RLock()
        self._told = False  # whether someone of this machine has added to the log since the last look at it
        self._heads: dict[str, int] = {}  # outcomes of each ranker when others were last told
        self._compiler = compiler or KernelCompiler(self.folds)
        self._running = False
        self._stopping = threading.Event()
        self._thread = Essential("learning", self._work, self._stopping, process.thread_failed)

    def start(self) -> None:
        """Take leases and begin."""
        self.heartbeat.beat()
        self.heartbeat.start()
        self.watch.thread.start()
        self.saving.start()
        self.housekeeping.cycle()
        self._thread.start()
        self.housekeeping.start()
        self.windows.start()
        self.notices.start()
        self._running = True

    def dead_threads(self) -> list[str]:
        """The names of the threads without which this process does not learn as it should, and that have ended. Empty
        before `start` and after `stop`."""
        threads: list[Essential | Repeating] = [self._thread, self.saving.thread, *self.housekeeping.threads]
        threads += [self.heartbeat.thread, self.watch.thread, self.windows.thread, self.notices.thread]
        return [one.name for one in threads if not one.is_alive()] if self._running else []

    def stop(self, patience: float = 10.0) -> None:
        """Learn what is left, save it, give the leases back."""
        self._running = False
        self.windows.stop()
        self.notices.stop()
        self.housekeeping.stop()
        self._stopping.set()
        self.wake.set()
        self._thread.join(timeout=patience)
        self.saving.stop(patience)
        self.watch.thread.stop()
        self.heartbeat.stop()
        process = self.process
        try:
            process.writer.do(lambda connection: admin.release(connection, process.worker))
        except (RankloopError, TimeoutError) as error:
            logger.warning("leases could not be given back: %s", error)

    def tell(self) -> None:
        """There is something new in the log, from this machine; perhaps for another one to learn."""
        self._told = True
        self.wake.set()

    def on_notification(self, notification: Notification) -> None:
        """What a process of another machine has said."""
        if notification.kind == "changed":
            self.housekeeping.hasten()
        elif notification.kind == "outcomes" and notification.ranker in self.folds:
            self.wake.set()

    def sync(self, known: Mapping[str, int] | None = None) -> None:
        """Load the folds of rankers that are this process's to learn, new or changed in the store, and drop the others.
        `known` are the revisions of all that it can learn, if they were just read."""
        with self._loading:
            known = self.learnable() if known is None else known
            wanted = {name: revision for name, revision in known.items() if name in self.mine}
            load_folds(self.process, self.folds, self.watch, wanted, self.unable)

    def learnable(self) -> dict[str, int]:
        """Rankers that this process may learn now, and their revisions."""
        return learnable(self.process, self.watch, self.unable)

    def hold(self, mine: set[str], fresh: set[str], loads: Mapping[str, float], known: Mapping[str, int]) -> None:
        """These leases are this process's now. A fold that is left of one that it had before, or that the store has
        refused to save, is of no use: another process may have learned further, and the log before that be gone."""
        with self._loading:
            self.mine = mine
            for name, fold in list(self.folds.items()):
                if name in fresh or (name in mine and not fold.held and not fold.saving):
                    fold.held = False
                    del self.folds[name]
            before = set(self.folds)
            self.sync(known)
            for name in set(self.folds).difference(before):
                self.folds[name].work.begin(loads.get(name, 0.0))
                logger.info("ranker %s: this process learns", name)
                self.wake.set()

    def leave_behind(self, entry: Entry) -> None:
        """A thread does not return from a learner: drop its ranker, and let another thread do the work for the others.
        What the learner does when it returns counts for nothing: the ranker is loaded from its snapshot."""
        fold = self.folds.pop(entry.row.name, None)
        if fold is not None:
            fold.held = False
        self.watch.take_down(entry)
        threads: list[Essential | Repeating] = [self._thread, self.saving.thread, *self.housekeeping.threads]
        for thread in threads:
            if thread.ident == entry.thread:
                logger.error("thread %s does not return from ranker %s; another goes on", thread.name, entry.row.name)
                thread.replace()

    def _closed(self, names: set[str]) -> None:  # noqa: ARG002
        self.tell()

    def _changed(self, name: str) -> None:
        """The guardrail has changed a ranker: those who rank must not show for another second what users like less."""
        self.sync()
        self.on_change()
        self.process.notify(Notification("changed", name))

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self._thread.replaced:
                self.process.database.forget()
                return
            if self.wake.wait(NET if self.process.is_notified else POLL):
                time.sleep(GATHER)
            self.wake.clear()
            told, self._told = self._told, False
            self.catch_up(told)
        self.catch_up()
        for fold in list(self.folds.values()):
            if fold.held:
                self._guarded(fold, save=True)
                self._count(fold, fold.learned, force=True)
        self.process.database.forget()

    def catch_up(self, told: bool = False) -> None:
        """Learn all that is logged, of every ranker held here. If someone on this machine has `told` that there is
        something, and it is not for here, those elsewhere are told."""
        try:
            heads, wanted = self.process.database.read(lambda c: (log.heads(c), log.wanted(c)))
        except StoreUnavailable:
            return  # the log will still be there
        if told and self.process.is_notified:
            for name, head in heads.items():
                if name not in self.folds and (head > self._heads.get(name, 0) or name in wanted):
                    self.process.notify(Notification("outcomes", name))
            self._heads = heads
        for fold in [fold for fold in list(self.folds.values()) if fold.held and not fold.copying]:
            if not fold.compiled and self._compiler.begin(fold) is not None:
                continue  # its kernels are on their way: the others are learned meanwhile, and it does not seem to hang
            if self._thread.replaced:
                return
            name = fold.row.name
            head = heads.get(name, 0)
            fold.work.came(head, time.monotonic())
            self._tell_lag(fold, head)
            asked = wanted.get(name, 0) > fold.snapshot_seq
            due = head > fold.learned or fold.learned > min(fold.snapshot_seq, fold.published) or asked
            if due and time.monotonic() >= fold.rests_until:
                self._guarded(fold, asked, head)
            self._count(fold, head)

    def learn_now(self, name: str) -> bool:
        """Learn and publish all that is logged of a ranker, before this returns; False if it is not learned here."""
        fold = self.folds.get(name)
        if fold is None or not fold.held:
            return False
        fold.compiled = True  # whoever asks for this waits
        with fold.turn:
            self.advance(fold)
        self.publish(fold, at_once=True)
        return True

    def _guarded(self, fold: Fold, save: bool = False, head: int = 0) -> None:
        """Whatever a learner raises concerns its own ranker, which is left alone for a while."""
        if not fold.turn.acquire(timeout=TURN):
            return  # another thread asks its learner something: at the next look
        began, before = time.perf_counter(), fold.learned
        try:
            try:
                self.advance(fold, head)
            finally:
                fold.turn.release()
            self.publish(fold)
            fold.work.took(fold.learned - before, time.perf_counter() - began)
            if not fold.held:
                return  # it was given back, or taken for hanging, meanwhile
            if fold.learned > fold.snapshot_seq and (save or self._due(fold)):
                self.saving.order(fold, asked=save)
            self._send_part(fold)
            self._recovered(fold)
        except StoreUnavailable as error:
            logger.warning("ranker %s: learning waits for the store: %s", fold.row.name, error)
        except BaseException:  # SystemExit, too
            fold.failures += 1
            rest = min(LONGEST_REST, REST * 2.0 ** min(fold.failures, 30))
            fold.rests_until = time.monotonic() + rest
            self.process.metrics.count("learn_errors_total", ranker=fold.row.name)
            logger.exception(
                "ranker %s: learning stopped at outcome %d; it is tried again in %g s",
                fold.row.name,
                fold.learned,
                rest,
            )
            with suppress(BaseException):
                self.publish(fold)  # what was learned before it counts

    def _recovered(self, fold: Fold) -> None:
        """Its learner has done all that it was asked for."""
        fold.failures = 0
        if fold.quarantined:
            name = fold.row.name
            self.process.writer.do(lambda c: quarantine.recovered(c, name))
            fold.quarantined = False
            logger.info("ranker %s: its quarantine is over", name)

    def _count(self, fold: Fold, head: int, force: bool = False) -> None:
        """Count what mixed lists came to, also of a ranker that fails to learn."""
        try:
            if count_evidence.count(self.process, fold, head, force):
                self._changed(fold.row.name)
        except StoreUnavailable as error:
            logger.warning("ranker %s: counting waits for the store: %s", fold.row.name, error)
        except Exception:
            logger.exception("ranker %s: its experiments could not be counted", fold.row.name)

    def advance(self, fold: Fold, head: int = 0) -> None:
        """Fold the outcomes that are there into the learner; up to `head`, as far as is known."""
        name, process = fold.row.name, self.process
        while True:
            start = fold.learned
            outcomes = process.database.read(lambda c, at=start: log.outcomes_from(c, name, at, PORTION))  # type: ignore[misc]
            if outcomes and outcomes[0].seq != start:
                # It stood still for so long that another learned on and what is learned was deleted.
                fold.held = False
                first = outcomes[0].seq
                logger.warning("ranker %s: its log begins at %d, not at %d; it is loaded anew", name, first, start)
                return
            for outcome in outcomes:
                if not fold.held:
                    return
                began = time.perf_counter()
                try:
                    with self.watch.of(fold.row, "learn", outcome.seq):
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
                self._tell_lag(fold, head)
                self.publish(fold)
            if len(outcomes) < PORTION or not fold.held or (self._due(fold) and not self._stopping.is_set()):
                return

    def _tell_lag(self, fold: Fold, head: int) -> None:
        self.process.metrics.gauge("learner_lag", max(0, head - fold.learned), ranker=fold.row.name)

    # -- passing it on ---------------------------------------------------------------------------------------------

    def publish(self, fold: Fold, at_once: bool = False, whole: bool = False) -> None:
        """Let those who rank on this machine have it. What is large is published less often."""
        if fold.learned <= fold.published and not whole:
            return
        now = time.monotonic()
        if not (at_once or whole) and now - fold.last_published < SHARE * fold.publish_cost:
            return  # the next look, in a fifth of a second at most, will do it
        began = time.perf_counter()
        with self.watch.of(fold.row, "state", fold.learned):
            made = fold.news(whole)
        if not fold.held:
            return  # it was taken for hanging: what it has done since counts for nothing
        if not self._publish(made):
            fold.published = -1  # whatever comes next must be whole
        fold.last_published, fold.publish_cost = now, time.perf_counter() - began

    def publish_all(self) -> None:
        """Someone who ranks has just come: everything, whole."""
        for fold in list(self.folds.values()):
            if fold.held:
                self.publish(fold, whole=True)

    def _send_part(self, fold: Fold) -> None:
        """Let those who rank on other machines follow a large state without its snapshots."""
        now, often = time.monotonic(), self.process.settings.refresh_seconds / WITHIN
        if not self.saving.peers or now - fold.last_part < max(often, SHARE * fold.part_cost) or not self.saving.free:
            return
        began = time.perf_counter()
        with self.watch.of(fold.row, "state", fold.learned):
            part = fold.part()
        if part is not None:
            self.saving.order_part(fold, part)
            fold.last_part, fold.part_cost = now, time.perf_counter() - began

    def save(self, fold: Fold, patience: float = 30.0) -> None:
        """Keep a snapshot of what is learned until now, before this returns."""
        for _ in range(2):  # one that is under way may be of before
            if fold.learned > fold.snapshot_seq:
                self.saving.order(fold, asked=True)
                self.saving.settle(patience)

    def _due(self, fold: Fold) -> bool:
        settings = self.process.settings
        # A third of what others may be behind: the rest is for noticing, writing it, saying so and reading it.
        every = settings.refresh_seconds / WITHIN if self.saving.peers else settings.snapshot_seconds
        waited = time.monotonic() - fold.last_snapshot
        if waited < SHARE * fold.snapshot_cost or fold.saving or not self.saving.free:
            return False
        return waited >= every or fold.learned - fold.snapshot_seq >= SNAPSHOT_EVENTS
