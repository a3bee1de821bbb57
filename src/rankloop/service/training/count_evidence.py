"""Counting what mixed lists came to; a guardrail acts on it. The process that learns a ranker counts its experiments;
those of a ranker that nobody learns are counted by the process that closes windows (`windows`).

Tally and place in the log move in one transaction, and a tally is put only in the place of the one it was counted on
from: whatever is killed, every list counts once.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Collection

from rankloop.service.storage import audit, experiments, log
from rankloop.service.storage.database import Connection
from rankloop.service.storage.experiments import Seen, Tally
from rankloop.service.training import evidence
from rankloop.service.training.fold import Fold
from rankloop.service.worker.process import Process

EVERY = 0.25  # seconds between counts: a commit each
PORTION = 500  # lists a commit at most
logger = logging.getLogger("rankloop")


def count(process: Process, fold: Fold, head: int, force: bool = False) -> bool:
    """Count the mixed lists among outcomes up to `head`, see that what should run does; whether the ranker changed."""
    found = fold.running
    if experiments.unsettled(fold.row, found):
        name, at = fold.row.name, process.clock()
        return process.writer.do(lambda c: experiments.settle(c, name, at))
    now = time.monotonic()
    if not found or fold.counted_seq == head or (now - fold.last_count < EVERY and not force):
        return False
    demoted = False
    for one in found:
        while (after := _count_on(process, fold.row.name, one.id)) == "more":
            pass
        demoted = demoted or after == "demoted"
    fold.last_count, fold.counted_seq = now, head
    return demoted


def _count_on(process: Process, name: str, number: int) -> str:
    """Count a portion: whether there may be "more", or it was "demoted", or that is "all"."""

    def read(connection: Connection) -> tuple[experiments.Trial | None, int, list[Seen]]:
        before, head = experiments.trial(connection, name, number), log.heads(connection).get(name, 0)
        if before is None or before.state != "running" or before.next_seq >= head:
            return None, head, []
        scale = before.tally.scale
        return before, head, experiments.seen_from(connection, name, number, before.next_seq, head, PORTION, scale)

    before, head, seen = process.database.read(read)
    if before is None:
        return "all"
    more = len(seen) == PORTION
    seq = seen[-1].seq + 1 if more else head
    if not seen:
        if head - before.next_seq >= PORTION:  # nothing to count, but not to be looked through again and again either
            process.writer.do(lambda c: experiments.save_tally(c, before, before.tally, seq))
        return "all"
    after = copy.deepcopy(before.tally)
    guardrail = before.kind == "guardrail"
    taken = evidence.fold(after, seen, before.terms.alpha, guardrail)
    worse = guardrail and after.verdict == "worse"
    if worse:
        at = process.clock()
        seq, more = seen[taken - 1].seq + 1, False
        entry = audit.Entry(at, audit.ITSELF, "demote", name, _demotion(after))

        def demote(connection: Connection) -> bool:
            demoted = experiments.demote(connection, before, after, seq, at)
            if demoted:
                audit.add(connection, [entry])
            return demoted

        saved = process.writer.do(demote)
    else:
        saved = process.writer.do(lambda c: experiments.save_tally(c, before, after, seq))
    if saved:
        _tell(process, before, after)
        if worse:
            process.metrics.count("demotions_total", ranker=name)
            logger.warning("ranker %s: %s", name, _demotion(after))
            return "demoted"
    return "more" if saved and more else "all"


def _tell(process: Process, before: experiments.Trial, after: Tally) -> None:
    metrics, name, kind = process.metrics, before.ranker, before.kind
    old = before.tally
    ties = (after.lists - after.wins - after.losses) - (old.lists - old.wins - old.losses)
    for result, amount in (("win", after.wins - old.wins), ("loss", after.losses - old.losses), ("tie", ties)):
        metrics.count("experiment_lists_total", amount, ranker=name, kind=kind, result=result)
    watch = evidence.watched(after, before.terms.alpha)
    low, high = watch.interval()
    for end, value in (("mean", watch.mean), ("low", low), ("high", high)):
        metrics.gauge("experiment_preference", value, ranker=name, kind=kind, end=end)


def _demotion(tally: Tally) -> str:
    """What the audit list says about a demotion."""
    found = tally.evidence
    assert found is not None
    low, high = found.interval
    return (
        f"exposure is shadow now, users prefer the base order: preference {found.preference:.3f} "
        f"({low:.3f} to {high:.3f}) over {found.lists} lists"
    )


def count_unlearned(process: Process, learned: Collection[str]) -> list[str]:
    """Count the running experiments of rankers that are not among `learned`; those that a guardrail has demoted."""
    demoted = []
    for name, number in process.database.read(experiments.lagging):
        if name not in learned:
            while (after := _count_on(process, name, number)) == "more":
                pass
            if after == "demoted":
                demoted.append(name)
    return demoted
