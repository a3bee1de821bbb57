"""Experiments while requests come: which requests take part, and what their lists are mixed with."""

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
from rankloop.service.ranking.exposure import Mix
from rankloop.service.ranking.in_flight import HANGING, InFlight
from rankloop.service.ranking.live_ranker import LiveRanker, PendingRanking
from rankloop.service.ranking.model import Model
from rankloop.service.storage.admin import Ranker
from rankloop.service.storage.experiments import Trial
from rankloop.wire.basics import Exposure

logger = logging.getLogger("rankloop")


class Skipped(RankloopError):
    """A request that was to take part but cannot; the message is a word for the metrics."""


class Drawn(NamedTuple):
    """A request that takes part in a trial."""

    trial: LiveTrial
    coins: Array


class LiveTrial(InFlight):
    """One experiment or guardrail, as a process that ranks knows it."""

    def __init__(self, row: Trial, exposure: Exposure, version: Model | None) -> None:
        super().__init__()
        self.row, self.exposure, self.version = row, exposure, version
        self.probabilistic = row.terms.mixing == "probabilistic"

    def mix(self, coins: Array, pending: PendingRanking, number: int, rankers: Mapping[str, LiveRanker]) -> Mix:
        """What to mix the list of this request with."""
        if self.row.terms.against == "base":
            rival = np.arange(pending.k)
        else:
            if self.hanging >= HANGING:
                raise Skipped("hanging")
            with self.asked(number):
                rival = self._best(pending, rankers)
        return Mix(self.row.id, self.exposure, rival, coins, self.probabilistic)

    def inline(self, rankers: Mapping[str, LiveRanker]) -> bool:
        """Whether the rival may be asked where requests are read."""
        against = self.row.terms.against
        rival = rankers.get(against) if isinstance(against, str) else None
        return rival is None or rival.inline

    def _best(self, pending: PendingRanking, rankers: Mapping[str, LiveRanker]) -> Array:
        """(k,) the rival's list."""
        live, spec, against = pending.live, pending.row.spec, self.row.terms.against
        model, candidates = live.model if against == "live" else self.version, pending.candidates
        if isinstance(against, str) and against != "live":
            other = rankers.get(against)
            if other is None or not other.warm:
                raise Skipped("gone" if other is None else "warming-up")
            try:
                candidates = live.schema.candidates_for(other.schema, pending.call)
            except RankloopError:
                raise Skipped("features") from None
            model = other.serving
        if model is None:
            raise Skipped("damaged")
        return model.best(candidates, pending.k, self.exposure, spec.displacement)


class Trials:
    """Those of a ranker. Which requests take part hangs on the number of the impression alone.

    A guardrail draws first, so that an experiment cannot starve it.
    """

    def __init__(self, row: Ranker, trials: Sequence[LiveTrial]) -> None:
        self.revision = row.revision
        self.trials = sorted(trials, key=lambda one: one.row.kind != "guardrail")
        self._streams = Rng(row.spec.seed)

    def draw(self, number: int, k: int, row: Ranker) -> Drawn | None:
        """The trial that impression `number` takes part in, if any."""
        if row.revision != self.revision:  # the ranker is being changed: these may be trials of what it was
            return None
        generator = self._streams.for_event("mix", number)
        place = generator.random()
        for trial in self.trials:
            if place < trial.row.terms.share:
                shape = (2, k) if trial.probabilistic else (k,)
                return Drawn(trial, generator.random(shape))
            place -= trial.row.terms.share
        return None


class Opened(NamedTuple):
    """The trials of a ranker that run, and whether some could not be opened because a version is not loaded yet."""

    trials: Trials | None
    incomplete: bool


def opened(before: Trials | None, row: Ranker, found: Sequence[Trial], load: Callable[[int], Model | None]) -> Opened:
    """The trials of a ranker that run, with the versions they need. Those that are open already stay open.

    `load` returns the model of a version, or None if it cannot be had now. A trial whose version cannot be loaded at
    all is left out: the ranker serves without it.
    """
    known = {one.row.id: one for one in before.trials} if before else {}
    trials, incomplete = [], False
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
        trials.append(LiveTrial(one, one.terms.exposure or row.spec.exposure, version))
    return Opened(Trials(row, trials) if trials else None, incomplete)


def prepared(drawn: Drawn, pending: PendingRanking, rankers: Mapping[str, LiveRanker], metrics: Metrics) -> Mix | None:
    """What to mix a list with; None if the request cannot take part. No rival may cost a request its list."""
    name, trial = pending.row.name, drawn.trial
    assert pending.number is not None
    try:
        mix = trial.mix(drawn.coins, pending, pending.number, rankers)
        metrics.count("mixed_lists_total", ranker=name, kind=trial.row.kind)
        return mix
    except Skipped as why:
        reason = str(why)
    except BaseException as error:  # SystemExit, too: a rival's learner is not this ranker's
        reason = "error"
        logger.warning("ranker %s: the rival of experiment %d failed: %s", name, trial.row.id, error)
    metrics.count("unmixed_lists_total", ranker=name, reason=reason)
    return None
