"""One run of a click bandit with one query of a click model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from rankloop.clicks.bandit_models import open_models, reordered
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates
from rankloop.kernels.bandits import misordered
from rankloop.kernels.click_models import ClickParameters
from rankloop.lab.runs.compiled import QUERY, play
from rankloop.lab.runs.record import Progress, Record, common_columns, parameters_as_text
from rankloop.learners.bandits.cascade_klucb import CascadeKLUCB

WARM_ROUNDS = 20_000  # of CascadeKL-UCB, whose ranking BubbleRankKL then starts from (BubbleRank paper, section 5)
BATCH = 1000  # regret is measured after multiples of so many rounds (likewise)
Start = Literal["given", "random", "warm"]


@dataclass(frozen=True)
class BanditTrial:
    """A run as data.

    `start` is the base ranking: the documents as they come, in random order, or as CascadeKL-UCB has them after 20,000
    rounds of its own, whose regret does not count. Runs with the same seed, query and model have the same random
    numbers of the user, and start from the same ranking.

    >>> BanditTrial("BubbleRank", "bubblerank", "generated", "PBM", "3", start="random").id
    'BubbleRank|bubblerank()|generated|3|PBM|random|10000000 top 5|seed=0'
    """

    label: str  # what figures call it
    learner: str
    models: str  # a source of `rankloop.clicks.bandit_models`
    model: str
    query: str
    params: Mapping[str, Any] = field(default_factory=dict)
    start: Start = "given"
    rounds: int = 10_000_000
    seed: int = 0
    top: int = 5  # positions on which regret is measured
    safety: bool = False  # whether to count unsafe rankings, which doubles the time
    evaluations: int = 50

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.top < 1:
            raise InvalidParameter(f"rounds is {self.rounds} and top is {self.top}; both must be at least 1")

    @property
    def data(self) -> str:
        """Runs of one query belong together."""
        return self.query

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        learner = f"{self.learner}({parameters_as_text(self.params)})"
        parts = [self.label, learner, self.models, self.query, self.model, self.start]
        parts += [f"{self.rounds} top {self.top}", f"seed={self.seed}", *(["safety"] if self.safety else [])]
        return "|".join(parts)

    def run(self, on_progress: Progress | None = None) -> Record:
        """Carry it out."""
        user = self._user()
        order = self._base_ranking(user)
        served, begin = reordered(user, order), time.perf_counter()
        wrong = misordered(served.attraction, np.arange(order.size))
        most = wrong + order.size // 2 if self.safety else -1
        learner, at = make(self.learner, **self.params), _checkpoints(self.rounds, self.evaluations)
        found = play(learner, served, at, self._seed("play"), top=self.top, most=most, on_progress=on_progress)
        measures = {"regret": found.regret, "wrong": np.full(at.size, wrong)}
        if self.safety:
            measures |= {"unsafe": np.full(at.size, found.unsafe), "harmful": np.full(at.size, found.harmful)}
        conventions = {
            "models": self.models,
            "regret": f"expected clicks in the first {self.top} positions of the best ranking less those of the shown "
            "one, by the click model's own probabilities, summed over rounds",
            "unsafe": "rankings with more misordered pairs than the base ranking, plus half the positions",
            "harmful": "changes of the base ranking that left it with more misordered pairs",
        }
        seconds = time.perf_counter() - begin
        columns = {**common_columns(self), "data": f"query {self.query}", "user": self.model}
        return Record(self, at, measures, conventions, seconds, self.rounds / seconds, columns)

    def _user(self) -> ClickParameters:
        users = open_models(self.models)
        queries = users.get(self.model, {})
        for name, known, noun in ((self.model, users, "click model"), (self.query, queries, "query")):
            if name not in known:
                raise UnknownName.among(noun, name, known)
        return queries[self.query]

    def _base_ranking(self, user: ClickParameters) -> Array:
        documents = np.arange(user.attraction.size)
        if self.start == "random":
            documents = np.random.default_rng(self._seed("start")).permutation(documents)
        elif self.start == "warm":
            first = CascadeKLUCB()
            play(first, user, [WARM_ROUNDS], self._seed("warm"), top=self.top)
            documents = first.best(Candidates(QUERY, documents), documents.size)
        return documents

    def _seed(self, purpose: str) -> int:
        text = f"{self.seed}/{self.query}/{self.model}/{purpose}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _checkpoints(rounds: int, count: int) -> Array:
    """(≤ count,) log-spaced multiples of 1,000 rounds up to the last one."""
    at = (np.geomspace(BATCH, max(BATCH, rounds), count) / BATCH).round().astype(np.int64) * BATCH
    return np.append(np.unique(at[at < rounds]), rounds)
