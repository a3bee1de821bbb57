"""From the store to folds: those of rankers that are new or have changed, with the state of their last snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from rankloop.errors import RankloopError
from rankloop.learner import Learner
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.learning.fold import Fold
from rankloop.service.learning.watch import Entry, Watch
from rankloop.service.process import Process
from rankloop.service.ranking.model import fixed_part, load_learner
from rankloop.service.ranking.pool import bounded
from rankloop.service.store import admin, states, trials, troubles
from rankloop.service.store.database import Connection

logger = logging.getLogger("rankloop")


def learnable(process: Process, unable: Mapping[str, int]) -> dict[str, int]:
    """Rankers that this process may learn, and their revisions: without those that were given up, or that it is
    `unable` to load as they are now."""
    wanted, given_up = process.database.read(lambda c: (admin.revisions(c), troubles.given_up(c)))
    return {
        name: revision for name, revision in wanted.items() if revision not in (given_up.get(name), unable.get(name))
    }


def load_folds(
    process: Process, folds: dict[str, Fold], watch: Watch, wanted: Mapping[str, int], unable: dict[str, int]
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
                missed = 0
            except StoreUnavailable as error:
                missed += 1
                if missed > 1:  # the store is at fault, and not this ranker
                    raise
                logger.error("ranker %s cannot be read, and will be tried again: %s", name, error)
            except RankloopError as error:  # one ranker's trouble is not another's
                folds.pop(name, None)
                unable[name] = revision
                logger.error("ranker %s cannot be learned: %s", name, error)


class _Found(NamedTuple):
    row: admin.Ranker | None
    snapshot: states.Snapshot | None
    running: list[trials.Trial]


def _load(process: Process, folds: dict[str, Fold], name: str, watch: Watch) -> None:
    row, snapshot, running = process.database.read(lambda c: _stored(c, name))
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

    def load() -> Learner:
        return load_learner(row.spec, snapshot.state, what)

    try:
        learner = bounded(load, process.settings.learn_seconds, f"rankloop-load-{name}")
    except TooSlow:
        watch.take_down(Entry(row, "load", snapshot.seq, 0.0, process.worker))
        folds.pop(name, None)
        return
    fold = Fold(row, learner, snapshot.seq, running)
    fold.held = True
    fold.large = len(snapshot.state) > states.LARGE
    if old is not None:
        old.held, fold.work = False, old.work
    folds[name] = fold


def _stored(connection: Connection, name: str) -> _Found:
    row = admin.ranker(connection, name)
    if row is None:
        return _Found(None, None, [])
    return _Found(row, states.snapshot(connection, name), trials.running(connection, name))
