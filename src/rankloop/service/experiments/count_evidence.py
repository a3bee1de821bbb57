"""Counting what mixed lists came to, in the process that learns the ranker; a guardrail acts on it.

Tally and place in the log move in one transaction, and a tally is put only in the place of the one it was counted on
from: whatever is killed, every list counts once.
"""

from __future__ import annotations

import copy
import logging
import time
from typing import TYPE_CHECKING

from rankloop.service.experiments import evidence
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.store import log, trials
from rankloop.service.store.database import Connection
from rankloop.service.store.trials import Seen, Tally

if TYPE_CHECKING:
    from rankloop.service.engine import Engine

EVERY = 0.25  # seconds between counts: a commit each
PORTION = 500  # lists a commit at most
logger = logging.getLogger("rankloop")


def count(engine: Engine, live: LiveRanker, head: int, force: bool = False) -> None:
    """Count the mixed lists among outcomes up to `head`; see that what should run does."""
    found = [one.row for one in live.trials.trials] if live.trials is not None else []
    if trials.unsettled(live.row, found):
        name, at = live.row.name, engine.clock()
        if engine.writer.do(lambda c: trials.settle(c, name, at)):
            engine.load(name)
        return
    now = time.monotonic()
    if not found or live.counted_seq == head or (now - live.last_count < EVERY and not force):
        return
    for one in found:
        while _count_on(engine, live, one.id):
            pass
    live.last_count, live.counted_seq = now, head


def _count_on(engine: Engine, live: LiveRanker, number: int) -> bool:
    """Count a portion; whether there may be more."""
    name = live.row.name

    def read(connection: Connection) -> tuple[trials.Trial | None, int, list[Seen]]:
        before, head = trials.trial(connection, name, number), log.heads(connection).get(name, 0)
        if before is None or before.state != "running" or before.next_seq >= head:
            return None, head, []
        return before, head, trials.seen_from(connection, name, number, before.next_seq, head, PORTION)

    before, head, seen = engine.database.read(read)
    if before is None:
        return False
    more = len(seen) == PORTION
    seq = seen[-1].seq + 1 if more else head
    if not seen:
        if head - before.next_seq >= PORTION:  # nothing to count, but not to be looked through again and again either
            engine.writer.do(lambda c: trials.save_tally(c, before, before.tally, seq))
        return False
    after = copy.deepcopy(before.tally)
    guardrail = before.kind == "guardrail"
    taken = evidence.fold(after, seen, before.terms.alpha, guardrail)
    worse = guardrail and after.verdict == "worse"
    if worse:
        at = engine.clock()
        seq, more = seen[taken - 1].seq + 1, False
        saved = engine.writer.do(lambda c: trials.demote(c, before, after, seq, at))
    else:
        saved = engine.writer.do(lambda c: trials.save_tally(c, before, after, seq))
    if saved:
        _tell(engine, before, after)
        if worse:
            _demoted(engine, name, after)
    return saved and more


def _tell(engine: Engine, before: trials.Trial, after: Tally) -> None:
    metrics, name, kind = engine.metrics, before.ranker, before.kind
    old = before.tally
    ties = (after.lists - after.wins - after.losses) - (old.lists - old.wins - old.losses)
    for result, amount in (("win", after.wins - old.wins), ("loss", after.losses - old.losses), ("tie", ties)):
        metrics.count("experiment_lists_total", amount, ranker=name, kind=kind, result=result)
    watch = evidence.watched(after, before.terms.alpha)
    low, high = watch.interval()
    for end, value in (("mean", watch.mean), ("low", low), ("high", high)):
        metrics.gauge("experiment_preference", value, ranker=name, kind=kind, end=end)


def _demoted(engine: Engine, name: str, tally: Tally) -> None:
    found = tally.evidence
    assert found is not None
    engine.metrics.count("demotions_total", ranker=name)
    logger.warning(
        "ranker %s: exposure is shadow now, users prefer the base order: preference %.3f (%.3f to %.3f) over %d lists",
        *(name, found.preference, *found.interval, found.lists),
    )
    engine.load(name)
