"""One run of a click bandit with one query of a click model: what was asked for, and what came out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
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
from rankloop.lab.runs.compiled_bandits import QUERY, Outcome, play

WARM_ROUNDS = 20_000  # of CascadeKL-UCB, whose list BubbleRankKL then starts from (paper 002, section 5)
BATCH = 1000  # regret is noted after multiples of so many rounds (likewise)
_WARM = "cascade-klucb"  # the learner of that list
Start = Literal["given", "random", "warm"]


@dataclass(frozen=True)
class BanditTrial:
    """A run as data.

    `start` is the base list: the documents as they come, in random order, or as CascadeKL-UCB has them after 20,000
    rounds of its own, whose regret does not count. Runs with the same seed, query and model meet the same luck of the
    user, and start from the same list.

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
    safety: bool = False  # whether to count unsafe lists, which takes as long again
    checkpoints: int = 50

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
        given = ",".join(f"{name}={value}" for name, value in self.params.items())
        parts = [self.label, f"{self.learner}({given})", self.models, self.query, self.model, self.start]
        parts += [f"{self.rounds} top {self.top}", f"seed={self.seed}", *(["safety"] if self.safety else [])]
        return "|".join(parts)

    @property
    def modules(self) -> tuple[str, ...]:
        """What computes it beside its learner: where it starts warm, the learner that made its first list."""
        first = type(make(_WARM)).__module__ if self.start == "warm" else ""
        return (__name__, first) if first else (__name__,)

    def carry_out(self, _opened: object, on_progress: Callable[[int], None]) -> BanditRecord:
        """Run it."""
        user = _user(self)
        order = _start(self, user)
        served, begin = reordered(user, order), time.perf_counter()
        wrong = misordered(served.attraction, np.arange(order.size))
        most = wrong + order.size // 2 if self.safety else -1
        tick, told = max(1, self.rounds // 100), 0

        def progress(done: int) -> None:
            nonlocal told
            if done - told >= tick:
                told = done
                on_progress(done)

        learner, at = make(self.learner, **self.params), _checkpoints(self.rounds, self.checkpoints)
        outcome = play(learner, served, at, _seed(self, "play"), top=self.top, most=most, on_progress=progress)
        return BanditRecord(self, outcome, wrong, time.perf_counter() - begin)


@dataclass(frozen=True)
class BanditRecord:
    """What a run gave."""

    trial: BanditTrial
    outcome: Outcome
    wrong: int  # |V0|: pairs of the base list that started the wrong way round
    seconds: float

    @property
    def conventions(self) -> dict[str, Any]:
        """What the numbers mean."""
        return {
            "models": self.trial.models,
            "regret": f"expected clicks in the first {self.trial.top} positions of the best list less those of the "
            "shown one, by the click model's own probabilities, summed over rounds",
            "unsafe": "lists with more pairs the wrong way round than the base list has, plus half the positions",
            "harmful": "changes of the base list that left it with more pairs the wrong way round",
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row a checkpoint."""
        trial, found = self.trial, self.outcome
        shared = {
            "run": trial.id,
            "learner": trial.learner,
            "label": trial.label,
            "data": f"query {trial.query}",
            "user": trial.model,
            "params": json.dumps(dict(trial.params)),
            "rounds": trial.rounds,
            "seed": trial.seed,
            "seconds": self.seconds,
            "rounds_per_second": trial.rounds / self.seconds,
            "wrong": float(self.wrong),
            **({"unsafe": float(found.unsafe), "harmful": float(found.harmful)} if trial.safety else {}),
        }
        return [{**shared, "round": int(t), "regret": float(r)} for t, r in zip(found.at, found.regret, strict=True)]


def _user(trial: BanditTrial) -> ClickParameters:
    users = open_models(trial.models)
    for name, known, noun in ((trial.model, users, "click model"), (trial.query, users.get(trial.model, {}), "query")):
        if name not in known:
            raise UnknownName.among(noun, name, known)
    return users[trial.model][trial.query]


def _start(trial: BanditTrial, user: ClickParameters) -> Array:
    """The base list: documents, top first."""
    documents = np.arange(user.attraction.size)
    if trial.start == "random":
        documents = np.random.default_rng(_seed(trial, "start")).permutation(documents)
    elif trial.start == "warm":
        first = make(_WARM)
        play(first, user, [WARM_ROUNDS], _seed(trial, "warm"), top=trial.top)
        documents = first.best(Candidates(QUERY, documents), documents.size)
    return documents


def _seed(trial: BanditTrial, purpose: str) -> int:
    text = f"{trial.seed}/{trial.query}/{trial.model}/{purpose}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _checkpoints(rounds: int, count: int) -> Array:
    """(≤ count,) log-spaced multiples of 1,000 rounds up to the last one."""
    at = (np.geomspace(BATCH, max(BATCH, rounds), count) / BATCH).round().astype(np.int64) * BATCH
    return np.append(np.unique(at[at < rounds]), rounds)
