"""From the store to folds: those of rankers that are new or have changed, with the state of their last snapshot."""

from __future__ import annotations

import logging
from typing import NamedTuple

from rankloop.errors import RankloopError
from rankloop.learner import Learner
from rankloop.service.errors import StoreUnavailable, TooSlow
from rankloop.service.learning.fold import Fold
from rankloop.service.learning.watch import Entry, Watch
from rankloop.service.process import Process
from rankloop.service.ranking.model import fixed_part, load_learner
from rankloop.service.ranking.pool import bounded
from rankloop.service.store import admin, trials, troubles
from rankloop.service.store.database import Connection

logger = logging.getLogger("rankloop")


def load_folds(process: Process, folds: dict[str, Fold], watch: Watch) -> None:
    """Bring `folds` up to date."""
    wanted, given_up = process.database.read(lambda c: (admin.revisions(c), troubles.given_up(c)))
    for name in set(folds).difference(wanted):
        del folds[name]
    for name, revision in wanted.items():
        fold = folds.get(name)
        if given_up.get(name) == revision:
            folds.pop(name, None)  # its lease goes with it
        elif fold is None or fold.row.revision != revision:
            try:
                _load(process, folds, name, watch)
            except StoreUnavailable:
                raise
            except RankloopError as error:  # one ranker's trouble is not another's
                folds.pop(name, None)
                logger.error("ranker %s cannot be learned: %s", name, error)


class _Found(NamedTuple):
    row: admin.Ranker | None
    snapshot: admin.Snapshot | None
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
        watch.take_down(Entry(row, "load", snapshot.seq, 0.0))
        folds.pop(name, None)
        return
    fold = Fold(row, learner, snapshot.seq, running)
    fold.held = old is not None and old.held
    folds[name] = fold


def newer(process: Process, folds: dict[str, Fold]) -> None:
    """Let go of folds that another process has learned further: they are loaded again, from its snapshots, since the
    log before those may have been deleted."""
    newest = process.database.read(admin.snapshot_seqs)
    for name, fold in list(folds.items()):
        generation, seq = newest.get(name, (-1, -1))
        if generation == fold.generation and seq > fold.learned and not fold.held:
            del folds[name]


def _stored(connection: Connection, name: str) -> _Found:
    row = admin.ranker(connection, name)
    if row is None:
        return _Found(None, None, [])
    return _Found(row, admin.snapshot(connection, name), trials.running(connection, name))
