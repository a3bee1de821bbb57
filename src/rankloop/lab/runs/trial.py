"""One run of a learner with simulated users: its settings (`Trial`), and the function that carries it out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from rankloop.clicks.users import open_user
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner, clone
from rankloop.core.registry import make
from rankloop.core.scaling import standardized
from rankloop.core.types import Array
from rankloop.kernels.metrics import dcg, kendall_regret
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split, shared_split
from rankloop.lab.runs.compiled import Batch, compiled_rounds
from rankloop.lab.runs.probes import PROBES, Probe, held_out
from rankloop.lab.runs.record import Progress, Record, common_columns, parameters_as_text
from rankloop.lab.runs.simulate import Step, open_delays, simulate
from rankloop.lab.runs.tracking import RECOVERED, WINDOWS, tracking_measures, window_ends
from rankloop.lab.worlds.world import DataWorld, Stationary, World, change_points, open_world

_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": ((int, np.integer), "a whole number"),
    "float": ((int, float, np.number), "a number"),
    "str": (str, "a text"),
}


@dataclass(frozen=True)
class Trial:
    """A run as data: what a sweep lists, a result file holds, and another machine can repeat.

    >>> Trial("pdgd", params={"rate": 0.05}, user="navigational", seed=3).id
    'pdgd(rate=0.05)|synthetic:mslr|navigational|1000x10|seed=3'
    """

    learner: str
    data: str = "synthetic:mslr"
    user: str = "perfect"
    params: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1000
    k: int = 10
    seed: int = 0
    gamma: float = 0.9995  # probability that a user continues, in the papers on PairRank and olRankNet
    delays: str = "none"
    world: str = "stationary"
    evaluate_on: str = "test"  # or "vali", where hyper-parameters are chosen
    evaluations: int = 20  # checkpoints, log-spaced; in a world that changes at the end of each of at least 50 windows
    checkpoints: tuple[int, ...] = ()  # rounds after which to measure beside these
    probes: tuple[str, ...] = ()  # what to measure beside held-out NDCG, of `rankloop.lab.runs.probes`

    def __post_init__(self) -> None:
        for f in fields(self):
            kind, noun = _TYPES.get(str(f.type), (object, ""))
            value = getattr(self, f.name)
            if not isinstance(value, kind) or (noun and isinstance(value, bool)):
                raise InvalidParameter(f"{f.name} is {value!r}; it must be {noun}")
        for name, least in (("rounds", 1), ("k", 1), ("evaluations", 1)):
            if getattr(self, name) < least:
                raise InvalidParameter(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.gamma <= 1:
            raise InvalidParameter(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if self.evaluate_on not in ("test", "vali"):
            raise InvalidParameter(f"evaluate_on is {self.evaluate_on!r}; it must be test or vali")
        wrong = [at for at in self.checkpoints if not (type(at) is int and 1 <= at <= self.rounds)]
        if wrong:
            raise InvalidParameter(f"checkpoints has {wrong[0]!r}; it must be a round between 1 and {self.rounds}")
        unknown = [name for name in self.probes if name not in PROBES]
        if unknown:
            raise InvalidParameter(f"no probe is called {unknown[0]!r}; there are {', '.join(PROBES)}")
        if "closeness" in self.probes and self.world.partition("?")[0] != "stationary":
            raise InvalidParameter(
                f"probe closeness in world {self.world!r}; it compares with a model of grades that never change: leave "
                "it out, or take world 'stationary'"
            )

    def run(self, on_progress: Progress | None = None) -> Record:
        """Carry it out; data sets that were opened before are shared."""
        return run(self, shared_split(self.data), on_progress)

    @property
    def label(self) -> str:
        """The learner with its parameters, as tables and legends show it."""
        return f"{self.learner}({parameters_as_text(self.params)})" if self.params else self.learner

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        rest = {
            f"gamma={self.gamma}": self.gamma != 0.9995,
            self.delays: self.delays != "none",
            self.world: self.world != "stationary",
            self.evaluate_on: self.evaluate_on != "test",
            f"evaluations={self.evaluations}": self.evaluations != 20,
            f"checkpoints={'+'.join(map(str, self.checkpoints))}": bool(self.checkpoints),
            "+".join(self.probes): bool(self.probes),
        }
        extra = "".join(f"|{text}" for text, shown in rest.items() if shown)
        return f"{self.label}|{self.data}|{self.user}|{self.rounds}x{self.k}|seed={self.seed}{extra}"

    @property
    def columns(self) -> dict[str, Any]:
        """Its fields, as results have them."""
        listed = {"probes": ",".join(self.probes), "checkpoints": ",".join(map(str, self.checkpoints))}
        return {**asdict(self), **common_columns(self), **listed}


def spaced_checkpoints(rounds: int, count: int) -> Array:
    """(≤ count,) rounds after which to measure: log-spaced, the first and the last always among them.

    >>> spaced_checkpoints(1000, 4)
    array([   1,   10,  100, 1000])
    """
    return np.unique(np.geomspace(1, rounds, count).round().astype(np.int64)) if count > 1 else np.array([rounds])


def run(trial: Trial, split: Split | None = None, on_progress: Progress | None = None) -> Record:
    """Carry out a trial on its data set, or on a `split` that is open."""
    split = split or open_split(trial.data)
    learner = make(trial.learner, **trial.params)
    if split.train.normalization == "stream" and learner.contextual:
        learner = standardized(learner)
    world = open_world(trial.world, split.train, trial.k, trial.seed)
    user = open_user(trial.user, split.train.highest_grade, learner.feedback)
    if hasattr(learner, "fit"):
        learner.load(_fitted(trial.learner, json.dumps(dict(trial.params)), _at_first(split.train, world)))
    delays = open_delays(trial.delays)
    if isinstance(world, DataWorld) and world.arrivals is not None:
        world.arrivals.check(trial.rounds)  # now, and not after hours
    probes = _probes(trial, split, world)
    _warm_up(learner, world, user)

    changing, changes = not isinstance(world, Stationary), change_points(trial.world, trial.rounds)
    if changing:
        at = window_ends(trial.rounds, changes, max(WINDOWS, trial.evaluations))
    else:
        at = spaced_checkpoints(trial.rounds, trial.evaluations)
    at = np.union1d(at, np.array(trial.checkpoints, dtype=np.int64))
    online, found = _Online(trial, on_progress), list[dict[str, float]]()
    batches = compiled_rounds(learner, world, user, trial.seed, delays)
    steps = simulate(learner, world, user, trial.rounds, trial.seed, delays)
    start, spent_measuring = time.perf_counter(), 0.0
    for checkpoint in at.tolist():
        if batches is None:
            for step in islice(steps, checkpoint - online.rounds):
                online.add(step)
        else:
            for batch in batches(online.rounds, checkpoint):
                online.add_batch(batch)
        pause = time.perf_counter()
        found.append({name: value for probe in probes for name, value in probe(learner, checkpoint - 1).items()})
        spent_measuring += time.perf_counter() - pause
    seconds = time.perf_counter() - start
    measures = online.measures(at)
    measures |= tracking_measures(online.ndcg, at, changes) if changing else {}
    measures |= {name: np.array([values[name] for values in found]) for name in found[0]}
    stated = conventions(trial, split, getattr(user, "stop_requires_click", None))
    speed = trial.rounds / (seconds - spent_measuring)
    return Record(trial, at, measures, stated, seconds, speed, trial.columns, online.ndcg)


class _Online:
    """What users were shown, round by round; a query with nothing relevant counts 0 in NDCG and in regret."""

    def __init__(self, trial: Trial, on_progress: Progress | None) -> None:
        self.trial, self.on_progress, self.rounds = trial, on_progress, 0
        self.ndcg, self.regret = np.zeros(trial.rounds), np.zeros(trial.rounds)
        self.misordered = np.zeros(trial.rounds if "misordered" in trial.probes else 0)
        self._tick, self._reported = min(max(1, trial.rounds // 100), 1000), 0

    def add(self, step: Step) -> None:
        """One round."""
        t, shown = step.t, step.impression
        if step.round.ideal > 0.0:
            self.ndcg[t] = found = dcg(step.round.grades[shown.order], self.trial.k) / step.round.ideal
            self.regret[t] = 1.0 - found
        if self.misordered.size:
            self.misordered[t] = kendall_regret(step.round.grades, shown.order)
        self._report(t + 1)

    def add_batch(self, batch: Batch) -> None:
        """Many rounds."""
        here = slice(self.rounds, self.rounds + len(batch.ndcg))
        self.ndcg[here], self.regret[here] = batch.ndcg, np.where(batch.relevant, 1.0 - batch.ndcg, 0.0)
        if self.misordered.size:
            self.misordered[here] = [kendall_regret(grades, order) for grades, order in batch.rankings()]
        self._report(here.stop)

    def _report(self, rounds: int) -> None:
        self.rounds = rounds
        if self.on_progress and rounds - self._reported >= self._tick:
            self._reported = rounds
            self.on_progress(rounds)

    def measures(self, at: Array) -> dict[str, Array]:
        """The measures of the rankings shown, up to each checkpoint."""
        discounted = np.cumsum(self.ndcg * self.trial.gamma ** np.arange(self.ndcg.size))
        found = {
            "online.cndcg": discounted[at - 1],
            "online.ndcg": np.cumsum(self.ndcg)[at - 1] / at,
            "online.regret": np.cumsum(self.regret)[at - 1],
        }
        if self.misordered.size:
            found["online.misordered"] = np.cumsum(self.misordered)[at - 1]
        return found


def conventions(trial: Trial, split: Split, stop_requires_click: bool | None) -> dict[str, Any]:
    """What the numbers of a run mean, for a comparison with others."""
    changing = {
        "held-out grades": "those of the world in the last round",
        "online.window_ndcg": "mean NDCG of the rankings shown since the checkpoint before",
        "online.recovery": f"rounds after a change until window_ndcg is at {RECOVERED} of its level before, mean over "
        "changes; without recovery, the rounds up to the next change",
    }
    return {
        "online.ndcg": f"mean NDCG@{trial.k} of the shown rankings: gain 2^grade - 1, discount log2(1 + position), "
        "ideal over all candidates",
        "offline.ndcg@10": "NDCG@10 of the best rankings for held-out queries, whatever k is",
        "queries without relevant documents": {"online": "count 0", "held-out": "left out"},
        "online.cndcg": f"sum over rounds of gamma^(t-1) NDCG of the shown ranking, gamma = {trial.gamma}",
        "online.regret": "sum over rounds of 1 - NDCG of the shown ranking, against the ideal ranking of that round",
        "online.misordered": "sum over rounds of the pairs in the wrong order, at least one of them shown: Kendall tau "
        "against the ideal order, in which equal grades never count",
        "stop_requires_click": stop_requires_click,
        "normalization": split.train.normalization,
        "held-out part": trial.evaluate_on,
        **({"world": trial.world} if trial.world != "stationary" else {}),
        **(changing if trial.world.partition("?")[0] != "stationary" else {}),
    }


def _at_first(dataset: Dataset, world: World) -> Dataset:
    """The data set with the grades of the world's first round, for learners that are fitted before the run."""
    grades = world.grades(dataset, 0)
    return dataset if grades is dataset.grades else replace(dataset, grades=grades, _candidates={})


@lru_cache(maxsize=2)
def _fitted(name: str, parameters: str, dataset: Dataset) -> dict[str, Array]:
    """The state of a learner that is fitted to grades; kept, since it is the same for all seeds and users."""
    learner: Any = make(name, **json.loads(parameters))
    learner.fit(dataset.features, dataset.grades, dataset.offsets)
    state: dict[str, Array] = learner.state()
    return state


def _probes(trial: Trial, split: Split, world: World) -> Iterable[Probe]:
    part = split.test if trial.evaluate_on == "test" else split.vali
    if part is None:
        raise InvalidParameter(f"{trial.data} has no vali part; add vali=0.2 to hold out a fifth of the train queries")
    if isinstance(world, DataWorld):
        part = world.in_base_order(part)
    first = held_out(part) if isinstance(world, Stationary) else held_out(part, world=world)
    return [first, *(make_probe(split.train) for name in trial.probes if (make_probe := PROBES[name]) is not None)]


def _warm_up(learner: Learner, world: World, user: Any) -> None:
    """Load or compile every kernel of the loop with a copy, so that the run's speed is its own."""
    twin = clone(learner)
    twin.load(learner.state())
    for step in simulate(twin, world, user, 30):
        dcg(step.round.grades[step.impression.order], world.k)
