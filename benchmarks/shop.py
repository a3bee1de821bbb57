"""A simulated shop for benchmarks of live traffic, with the code of the service except HTTP and the store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from rankloop.clicks.users import open_user
from rankloop.core.learner import Learner, make_impression, resolve_k
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Impression
from rankloop.evaluation.metrics import mean_ndcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.learners.baselines.base_order import BaseOrder
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.service.observability.metrics import Metrics
from rankloop.service.ranking.exposure import choose
from rankloop.service.ranking.model import PublishedModel
from rankloop.service.serving.experiments import LiveExperiment, RankerExperiments, prepare
from rankloop.service.serving.live_ranker import LiveRanker, PendingRanking
from rankloop.service.serving.schema import RankCall
from rankloop.service.storage.experiments import Experiment, InterleavedOutcome, Kind, Tally
from rankloop.service.storage.rankers import Ranker
from rankloop.service.training import evidence
from rankloop.wire.experiments import ExperimentRequest
from rankloop.wire.rankers import Spec

DATA = "synthetic:mq2007?docs=20&sizes=fixed&features=20&queries=500"
K = 10
TWIN = 20  # the feature that a twin of the shop sorts by
USERS = ("perfect", "navigational", "informational")


# -- rankers -------------------------------------------------------------------------------------------------------


@dataclass
class Negated(PairRank):
    """PairRank whose scores are negated: what it thinks best comes last."""

    negated: bool = True

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """As PairRank, of the features turned round."""
        if not self.negated:
            return super().rank(candidates, k, rng)
        return self.adopt(candidates, super().rank(_turned(candidates), k, rng).order)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The same."""
        return super().best(_turned(candidates) if self.negated else candidates, k)


@dataclass
class Sorted(BaseOrder):
    """Sorts by one feature, and learns nothing."""

    contextual = True
    feature: int = 0

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:  # noqa: ARG002
        """By the feature."""
        return make_impression(candidates, self.best(candidates, k))

    def best(self, candidates: Candidates, k: int) -> Array:
        """By the feature."""
        assert candidates.features is not None
        return np.argsort(-candidates.features[:, self.feature], kind="stable")[: resolve_k(candidates, k)]


def _turned(candidates: Candidates) -> Candidates:
    assert candidates.features is not None
    return Candidates(candidates.query, candidates.items, -candidates.features)


# -- a shop --------------------------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """A query in the shop's own order; the last feature is what a twin of the shop would sort by."""

    candidates: Candidates
    grades: Array


@cache
def _data() -> tuple[Dataset, Array, float]:
    """Queries, (N,) the feature that the shop sorts by, and its spread."""
    train = open_split(DATA).train
    signals = [sign * train.features[:, j] for j in range(train.width) for sign in (1.0, -1.0)]
    signal = max(signals, key=lambda one: mean_ndcg(one, train.grades, train.offsets))
    return train, signal, float(signal.std())


def visit(rng: np.random.Generator) -> Visit:
    """A random query. Noise is drawn anew: over all visits, shop and twin are equally good."""
    data, signal, spread = _data()
    q = int(rng.integers(len(data)))
    part = slice(data.offsets[q], data.offsets[q + 1])
    own, twin = (signal[part] + spread * rng.normal(size=(2, part.stop - part.start))).tolist()
    order = np.argsort(-np.array(own))
    rows = np.column_stack([data.features[part], twin])[order]
    return Visit(Candidates(str(q), np.arange(len(order)), rows), data.grades[part][order])


class Deployment:
    """A ranker in the shop, with a trial."""

    def __init__(self, learner: Learner, spec: Spec, seed: int, learns: bool = True) -> None:
        self.spec, self.row = spec, Ranker("shop", spec, 0.0, 0, 0, 0, True, None)
        self.model = PublishedModel(learner, spec, 0, 0)
        self.live = LiveRanker(self.row, self.model)
        highest = _data()[0].highest_grade
        self.users = [open_user(f"{user}?stop_requires_click=false", highest) for user in USERS]
        self.streams, self.chances = Rng(seed), Rng(spec.seed)  # of the shop, and of the service
        self.requests, self.tally = 0, Tally()
        self.rankers, self.metrics, self.learns = {"shop": self.live}, Metrics(), learns
        self.trials: RankerExperiments | None = None

    def try_out(self, kind: Kind, terms: ExperimentRequest) -> None:
        """Begin a trial."""
        self.kind, self.terms = kind, terms
        row = Experiment("shop", 1, kind, terms, b"", "running", None, 0.0, None, 0, Tally())
        self.trials = RankerExperiments(self.row, [LiveExperiment(row, terms.exposure or "full", None)])

    def request(self) -> bool:
        """A visit, from candidates to clicks to learning and counting; whether its list was a mixed one."""
        t = self.requests
        self.requests += 1
        drawn = None if self.trials is None else self.trials.assign(t, K, self.row)
        if drawn is None and not self.learns:
            return False  # nothing hangs on this one
        found = visit(self.streams.for_event("visit", t))
        mix = None if drawn is None else prepare(drawn, self._asked(found.candidates, t), self.rankers, self.metrics)
        choice = choose(self.model.learner, found.candidates, K, self.chances.for_event("rank", t), self.spec, mix)
        chance = self.streams.for_event("user", t)
        clicks = self.users[int(chance.integers(len(USERS)))].react(found.grades[choice.impression.order], chance)
        if self.learns:
            self.model.learner.learn(choice.impression, clicks, self.chances.for_event("learn", t))
        if choice.credit is None:
            return False
        seen = InterleavedOutcome(t, choice.credit.tolist(), clicks.values.tolist(), 0.0)
        evidence.fold(self.tally, [seen], self.terms.alpha, self.kind == "guardrail")
        return True

    def _asked(self, candidates: Candidates, number: int) -> PendingRanking:
        """The request as a rival sees it."""
        call = RankCall("", K, None, None, list(range(candidates.n)), candidates.features, sent=candidates.features)
        return PendingRanking(self.live, call, candidates, number, float)


def shop_spec(exposure: str = "shadow", **more: Any) -> Spec:
    """A ranker's, with the features of the shop."""
    features = [*(f"f{j}" for j in range(TWIN)), "twin"]
    return Spec(features=features, normalization="none", k=K, exposure=exposure, **more)  # type: ignore[arg-type]


@cache
def taught(rounds: int, seed: int) -> dict[str, Array]:
    """What PairRank has learned in shadow after so many requests."""
    deployment = Deployment(PairRank(), shop_spec(), seed)
    for _ in range(rounds):
        deployment.request()
    return deployment.model.learner.state()
