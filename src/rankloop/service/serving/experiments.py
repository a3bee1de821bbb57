"""Experiments on live requests: which requests take part, and the rival that their rankings are interleaved with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import RankloopError
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.service.errors import StoreUnavailable
from rankloop.service.observability.metrics import Metrics
from rankloop.service.ranking.exposure import Interleaving
from rankloop.service.ranking.model import PublishedModel
from rankloop.service.serving.live_ranker import LiveRanker, PendingRanking
from rankloop.service.storage.experiments import Experiment
from rankloop.service.storage.rankers import Ranker
from rankloop.service.worker.hang_supervisor import MOST_HANGING, HangCounter
from rankloop.wire.basics import Exposure

logger = logging.getLogger("rankloop")


class NotInterleaved(RankloopError):
    """A request that was assigned to an experiment cannot take part; the message is a label for the metrics."""


class Assignment(NamedTuple):
    """A request that takes part in an experiment."""

    experiment: LiveExperiment
    coins: Array


class LiveExperiment(HangCounter):
    """One experiment or guardrail in a process that ranks."""

    def __init__(self, row: Experiment, exposure: Exposure, version: PublishedModel | None) -> None:
        super().__init__()
        self.row, self.exposure, self.version = row, exposure, version
        self.probabilistic = row.terms.mixing == "probabilistic"

    def interleaving(
        self, coins: Array, pending: PendingRanking, number: int, rankers: Mapping[str, LiveRanker]
    ) -> Interleaving:
        """What to interleave the ranking of this request with."""
        if self.row.terms.against == "base":
            rival = np.arange(pending.k)
        else:
            if self.hanging >= MOST_HANGING:
                raise NotInterleaved("hanging")
            with self.inside(number):
                rival = self._best(pending, rankers)
        return Interleaving(self.row.id, self.exposure, rival, coins, self.probabilistic)

    def inline(self, rankers: Mapping[str, LiveRanker]) -> bool:
        """Whether the rival may rank on the event loop."""
        against = self.row.terms.against
        rival = rankers.get(against) if isinstance(against, str) else None
        return rival is None or rival.inline

    def _best(self, pending: PendingRanking, rankers: Mapping[str, LiveRanker]) -> Array:
        """(k,) the rival's ranking."""
        live, spec, against = pending.live, pending.row.spec, self.row.terms.against
        model, candidates = live.model if against == "live" else self.version, pending.candidates
        if isinstance(against, str) and against != "live":
            other = rankers.get(against)
            if other is None or not other.compiled:
                raise NotInterleaved("gone" if other is None else "compiling")
            try:
                candidates = live.schema.candidates_for(other.schema, pending.call)
            except RankloopError:
                raise NotInterleaved("features") from None
            model = other.serving
        if model is None:
            raise NotInterleaved("damaged")
        return model.best(candidates, pending.k, self.exposure, spec.displacement)


class RankerExperiments:
    """The running experiments of a ranker. The number of the impression alone decides which requests take part.

    The guardrail draws first, so that an experiment cannot starve it.
    """

    def __init__(self, row: Ranker, running: Sequence[LiveExperiment]) -> None:
        self.revision = row.revision
        self.running = sorted(running, key=lambda one: one.row.kind != "guardrail")
        self._streams = Rng(row.spec.seed)

    def assign(self, number: int, k: int, row: Ranker) -> Assignment | None:
        """The experiment that impression `number` takes part in, if any."""
        if row.revision != self.revision:  # the ranker is being changed, so these may have ended
            return None
        generator = self._streams.for_event("mix", number)
        place = generator.random()
        for one in self.running:
            if place < one.row.terms.share:
                shape = (2, k) if one.probabilistic else (k,)
                return Assignment(one, generator.random(shape))
            place -= one.row.terms.share
        return None


def open_experiments(
    before: RankerExperiments | None,
    row: Ranker,
    found: Sequence[Experiment],
    load: Callable[[int], PublishedModel | None],
) -> tuple[RankerExperiments | None, bool]:
    """The running experiments of a ranker with the versions they need, and whether a version is not loaded yet.

    `load` returns the model of a version, or None if it is not available now. An experiment whose version cannot be
    loaded at all is left out: the ranker serves without it.
    """
    known = {one.row.id: one for one in before.running} if before else {}
    running, incomplete = [], False
    for one in found:
        version, against = known[one.id].version if one.id in known else None, one.terms.against
        if version is None and isinstance(against, int):
            try:
                version = load(against)
            except StoreUnavailable:
                raise
            except RankloopError as error:
                logger.error("ranker %s, experiment %d: %s", row.name, one.id, error)
                continue
            if version is None:
                incomplete = True
                continue
        running.append(LiveExperiment(one, one.terms.exposure or row.spec.exposure, version))
    return RankerExperiments(row, running) if running else None, incomplete


def prepare(
    assigned: Assignment, pending: PendingRanking, rankers: Mapping[str, LiveRanker], metrics: Metrics
) -> Interleaving | None:
    """What to interleave a ranking with; None if the request cannot take part, whatever the rival does."""
    name, experiment = pending.row.name, assigned.experiment
    assert pending.number is not None
    try:
        found = experiment.interleaving(assigned.coins, pending, pending.number, rankers)
        metrics.count("interleaved_rankings_total", ranker=name, kind=experiment.row.kind)
        return found
    except NotInterleaved as why:
        reason = str(why)
    except BaseException as error:  # SystemExit, too: a rival's learner is not this ranker's
        reason = "error"
        logger.warning("ranker %s: the rival of experiment %d failed: %s", name, experiment.row.id, error)
    metrics.count("not_interleaved_total", ranker=name, reason=reason)
    return None
