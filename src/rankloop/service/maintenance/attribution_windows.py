"""Closes impressions whose attribution window has ended, and counts the experiments that their feedback decides.

Neither depends on a learner. Every learning process closes the windows of all rankers and counts the experiments of
those that it learns. What belongs to no learning process is done by the process in charge (`Leases.in_charge`).
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable

from rankloop.service.storage import audit, experiments, leases, outcomes, rankers
from rankloop.service.storage.database import Connection
from rankloop.service.storage.experiments import Experiment, InterleavedOutcome, Tally
from rankloop.service.storage.writer import in_batches
from rankloop.service.training import evidence
from rankloop.service.training.learning import Learning
from rankloop.service.training.leases import Leases
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import RepeatingThread

TICK = 0.2  # seconds between looks
PORTION = 500  # lists of an experiment that are counted in a commit
logger = logging.getLogger("rankloop")


class AttributionWindows:
    """The thread that closes them.

    Parameters
    ----------
    process
        The store, the settings, the metrics.
    learning
        Of a process that learns.
    closed
        Called with the rankers that have new outcomes.
    changed
        Called with a ranker whose guardrail has begun or has put it into shadow.
    """

    def __init__(
        self,
        process: Process,
        learning: Learning | None,
        closed: Callable[[set[str]], None],
        changed: Callable[[str], None],
    ) -> None:
        self._process, self._learning, self._closed, self._changed = process, learning, closed, changed
        self._leases = Leases(process) if learning is None else learning.leases
        self._looked = float("-inf")
        self._settled = False
        self.thread = RepeatingThread("windows", TICK, self._tick, process.database, process.thread_failed)

    def _tick(self) -> None:
        now = time.monotonic()
        beat = now - self._looked >= self._process.settings.beat_seconds
        if beat:
            self._looked = now
            if self._learning is None:
                self._leases.look_around(self._process.database.read(leases.list_workers))
        if self._learning is not None or self._leases.in_charge:
            self.close()
            self.count(beat)
        if beat and self._leases.in_charge and not self._settled:
            self._settle()

    def close(self) -> None:
        """Close all windows that have ended, the oldest first, in batches with pauses between them."""
        process = self._process

        def some(connection: Connection, limit: int) -> list[outcomes.Closing]:
            # The clock is read where impressions are written: had it gone back since, new ones would seem an hour old.
            return outcomes.close_windows(connection, process.clock(), process.writer.kinds, limit)

        if not process.database.read(lambda c: outcomes.any_window_ended(c, process.clock())):
            return
        for closings in in_batches(process.writer, some, lambda: self.thread.stopping):
            process.count_closed(closings)
            self._closed({closing.ranker for closing in closings})

    def count(self, unlearned: bool = True) -> None:
        """Count the running experiments of rankers learned here; with `unlearned`, in the process in charge, also those
        of rankers that no living process learns."""
        lagging = self._process.database.read(experiments.behind)
        if not lagging:
            return
        mine = set() if self._learning is None else self._learning.mine
        others = self._leases.learned() if unlearned and self._leases.in_charge else None
        for name, number in lagging:
            if name in mine or (others is not None and name not in others):
                while not self.thread.stopping and (result := self._count(name, number)) == "more":
                    pass
                if result == "demoted":
                    self._changed(name)

    def _settle(self) -> None:
        """Begin the guardrails of specs that were stored without one, by an earlier release or while no service ran."""
        process = self._process
        for row in process.database.read(rankers.list_rankers):
            name, now = row.name, process.clock()
            running = process.database.read(lambda c, name=name: experiments.running(c, name))  # type: ignore[misc]
            if experiments.needs_reconcile(row, running) and process.writer.do(
                lambda c, name=name, now=now: experiments.reconcile(c, name, now)  # type: ignore[misc]
            ):
                self._changed(name)
        self._settled = True

    def _count(self, name: str, number: int) -> str:
        """Count a portion: "demoted", "more" if there may be more, or "all".

        Tally and place in the log change in one transaction, and a tally replaces only the one that it was counted on
        from, so every list counts once whatever is killed."""
        process = self._process

        def read(connection: Connection) -> tuple[Experiment | None, int, list[InterleavedOutcome]]:
            before, head = (
                experiments.get_experiment(connection, name, number),
                outcomes.log_offsets(connection).get(name, 0),
            )
            if before is None or before.state != "running" or before.next_seq >= head:
                return None, head, []
            seen = experiments.interleaved_outcomes(
                connection, name, number, before.next_seq, head, PORTION, before.tally.scale
            )
            return before, head, seen

        before, head, seen = process.database.read(read)
        if before is None:
            return "all"
        more = len(seen) == PORTION
        seq = seen[-1].seq + 1 if more else head
        if not seen:
            if head - before.next_seq >= PORTION:  # nothing to count, and not to be read again at each look either
                process.writer.do(lambda c: experiments.save_tally(c, before, before.tally, seq))
            return "all"
        after = copy.deepcopy(before.tally)
        guardrail = before.kind == "guardrail"
        taken = evidence.fold(after, seen, before.terms.alpha, guardrail)
        if guardrail and after.verdict == "worse":
            if not self._demote(before, after, seen[taken - 1].seq + 1):
                return "all"
            _report(process, before, after)
            return "demoted"
        if not process.writer.do(lambda c: experiments.save_tally(c, before, after, seq)):
            return "all"
        _report(process, before, after)
        return "more" if more else "all"

    def _demote(self, before: Experiment, after: Tally, seq: int) -> bool:
        process, name, now = self._process, before.ranker, self._process.clock()
        found = after.evidence
        assert found is not None
        low, high = found.interval
        text = (
            f"exposure is shadow now, users prefer the base order: preference {found.preference:.3f} "
            f"({low:.3f} to {high:.3f}) over {found.lists} lists"
        )

        def demote(connection: Connection) -> bool:
            demoted = experiments.demote(connection, before, after, seq, now)
            if demoted:
                audit.add(connection, [audit.Entry(now, audit.ITSELF, "demote", name, text)])
            return demoted

        if not process.writer.do(demote):
            return False
        process.metrics.count("demotions_total", ranker=name)
        logger.warning("ranker %s: %s", name, text)
        return True


def _report(process: Process, before: Experiment, after: Tally) -> None:
    metrics, name, kind, old = process.metrics, before.ranker, before.kind, before.tally
    ties = (after.lists - after.wins - after.losses) - (old.lists - old.wins - old.losses)
    for result, amount in (("win", after.wins - old.wins), ("loss", after.losses - old.losses), ("tie", ties)):
        metrics.count("experiment_lists_total", amount, ranker=name, kind=kind, result=result)
    sequence = evidence.watched(after, before.terms.alpha)
    low, high = sequence.interval()
    for end, value in (("mean", sequence.mean), ("low", low), ("high", high)):
        metrics.gauge("experiment_preference", value, ranker=name, kind=kind, end=end)
