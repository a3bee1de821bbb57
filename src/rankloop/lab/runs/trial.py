"""One run of one learner: what was asked for (`Trial`), and what came out (`Record`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from rankloop.clicks.users import open_user
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.learner import Learner, clone
from rankloop.core.registry import make
from rankloop.core.scaling import standardized
from rankloop.core.types import Array
from rankloop.kernels.metrics import dcg
from rankloop.kernels.offline import kendall_regret
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.compiled_clicks import Stretch, compiled
from rankloop.lab.runs.delays import open_delays
from rankloop.lab.runs.probes import Probe, blocks, certain, closeness, held_out, memory
from rankloop.lab.runs.simulate import Step, simulate
from rankloop.lab.runs.tracking import RECOVERED, WINDOWS, tracking_measures, window_ends
from rankloop.lab.worlds.world import DataWorld, Stationary, World, change_points, open_world

Progress = Callable[[int], None]  # called with the number of rounds done


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
    gamma: float = 0.9995  # probability that a user goes on, of papers 000 and 001
    delays: str = "none"
    trace: bool = False  # keep what happened in every round: query, NDCG and clicks of the list, some 40 bytes each
    world: str = "stationary"
    evaluate_on: str = "test"  # or "vali", where hyper-parameters are chosen
    evaluations: int = 20  # log-spaced; in a world that changes one at the end of each window, which are 50 at least
    marks: tuple[int, ...] = ()  # rounds after which to measure beside these
    probes: tuple[str, ...] = ()  # beside held-out NDCG: "closeness", "blocks", "certain", "memory", "misordered"

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("k", 1), ("evaluations", 1)):
            if getattr(self, name) < least:
                raise InvalidParameter(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not 0 < self.gamma <= 1:
            raise InvalidParameter(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if self.evaluate_on not in ("test", "vali"):
            raise InvalidParameter(f"evaluate_on is {self.evaluate_on!r}; it must be test or vali")
        wrong = [mark for mark in self.marks if not 1 <= mark <= self.rounds]
        if wrong:
            raise InvalidParameter(f"marks has {wrong[0]}; a mark must be between 1 and the {self.rounds} rounds")
        unknown = set(self.probes) - {"closeness", "blocks", "certain", "memory", "misordered"}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise InvalidParameter(
                f"no probe is called {names}; there are closeness, blocks, certain, memory, misordered"
            )
        if "closeness" in self.probes and self.world.partition("?")[0] != "stationary":
            raise InvalidParameter(
                f"probe closeness in world {self.world!r}; it compares with a model of grades that never change: leave "
                "it out, or take world 'stationary'"
            )

    def carry_out(self, opened: Callable[[str], Split], on_progress: Progress) -> Record:
        """Run it; `opened` opens a data set, or finds it open."""
        return run(self, opened(self.data), on_progress)

    @property
    def label(self) -> str:
        """The learner with what was set of it, as tables and legends show it."""
        given = ",".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.learner}({given})" if given else self.learner

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""
        rest = {
            f"gamma={self.gamma}": self.gamma != 0.9995,
            self.delays: self.delays != "none",
            self.world: self.world != "stationary",
            self.evaluate_on: self.evaluate_on != "test",
            f"evaluations={self.evaluations}": self.evaluations != 20,
            f"marks={'+'.join(map(str, self.marks))}": bool(self.marks),
            "+".join(self.probes): bool(self.probes),
            "trace": self.trace,
        }
        extra = "".join(f"|{text}" for text, shown in rest.items() if shown)
        return f"{self.label}|{self.data}|{self.user}|{self.rounds}x{self.k}|seed={self.seed}{extra}"


@dataclass(frozen=True)
class Record:
    """What a run gave: one value of each measure at each checkpoint, and how long it took."""

    trial: Trial
    at: Array  # (c,) rounds done at each checkpoint
    measures: dict[str, Array]  # (c,) each: "online.cndcg", "online.ndcg", "offline.ndcg@10", …
    conventions: dict[str, Any]
    seconds: float
    rounds_per_second: float  # the loop alone, without what the probes cost
    trace: dict[str, Array] = field(default_factory=dict)  # (rounds,) each, where asked for: query, clicks, ndcg

    def last(self, measure: str) -> float:
        """The value of a measure at the end of the run."""
        return float(self.measures[measure][-1])

    def rows(self) -> list[dict[str, Any]]:
        """A row a checkpoint, the trial's fields repeated: what goes into a Parquet file."""
        trial = {**asdict(self.trial), "params": json.dumps(dict(self.trial.params)), "label": self.trial.label}
        trial["probes"], trial["marks"] = ",".join(self.trial.probes), ",".join(map(str, self.trial.marks))
        del trial["trace"]  # the run's id tells
        shared = {"run": self.trial.id, **trial, "seconds": self.seconds, "rounds_per_second": self.rounds_per_second}
        return [
            {**shared, "round": int(t), **{name: float(values[i]) for name, values in self.measures.items()}}
            for i, t in enumerate(self.at)
        ]

    def to_pandas(self, *, trace: bool = False) -> Any:
        """The rows as a pandas frame, one a checkpoint; or with `trace` one a round, of a trial that kept them.

        The tables of sweeps are of pyarrow and have a `to_pandas` of their own.
        """
        try:
            pandas: Any = import_module("pandas")
        except ImportError:
            raise RankloopError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        if not trace:
            return pandas.DataFrame(self.rows())
        if not self.trace:
            raise InvalidParameter("the trial kept no trace; ask for one: Trial(..., trace=True)")
        return pandas.DataFrame({"round": np.arange(1, self.trial.rounds + 1), **self.trace})


def checkpoints(rounds: int, count: int) -> Array:
    """(≤ count,) rounds after which to measure: log-spaced, the first and the last always among them.

    >>> checkpoints(1000, 4)
    array([   1,   10,  100, 1000])
    """
    return np.unique(np.geomspace(1, rounds, count).round().astype(np.int64)) if count > 1 else np.array([rounds])


def run(trial: Trial, split: Split | None = None, on_progress: Progress | None = None) -> Record:
    """Carry out a trial; `split` spares opening the data again when many trials share it."""
    split = split or open_split(trial.data)
    learner = make(trial.learner, **trial.params)
    if split.train.normalisation == "stream" and learner.contextual:
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
        when = window_ends(trial.rounds, changes, max(WINDOWS, trial.evaluations))
    else:
        when = checkpoints(trial.rounds, trial.evaluations)
    when = np.union1d(when, np.array(trial.marks, dtype=np.int64))
    seen, found, done = _Seen(trial, on_progress), list[dict[str, float]](), 0
    train = world.dataset if isinstance(world, DataWorld) else split.train
    advance = compiled(learner, world, user, trial.seed, delays)
    steps = simulate(learner, world, user, trial.rounds, trial.seed, delays)
    start, spent_measuring = time.perf_counter(), 0.0
    for mark in when.tolist():
        if advance is None:
            for step in islice(steps, mark - done):
                seen.step(step)
        else:
            for stretch in advance(done, mark):
                seen.stretch(stretch, train)
        done, pause = mark, time.perf_counter()
        found.append({name: value for probe in probes for name, value in probe(learner, done - 1).items()})
        spent_measuring += time.perf_counter() - pause
    seconds = time.perf_counter() - start
    measures = {name: np.array([values[name] for values in found]) for name in found[0]}
    tracking = tracking_measures(seen.ndcg, when, changes) if changing else {}
    return Record(
        trial,
        when,
        {**seen.online(when), **tracking, **measures},
        conventions(trial, split, getattr(user, "stop_requires_click", None)),
        seconds,
        trial.rounds / (seconds - spent_measuring),
        {"query": np.array(seen.queries), "clicks": np.array(seen.clicks), "ndcg": seen.ndcg} if trial.trace else {},
    )


class _Seen:
    """What users were shown, round by round, whichever loop tells it."""

    def __init__(self, trial: Trial, on_progress: Progress | None) -> None:
        self.trial, self.on_progress = trial, on_progress
        self.ndcg, self.regret = np.zeros(trial.rounds), np.zeros(trial.rounds)
        self.misordered = np.zeros(trial.rounds if "misordered" in trial.probes else 0)
        self.queries, self.clicks = list[str](), list[float]()
        self._tick, self._told = min(max(1, trial.rounds // 100), 1000), 0

    def step(self, step: Step) -> None:
        """One round; a query with nothing relevant counts 0, in NDCG and in regret."""
        t, shown = step.t, step.impression
        if step.round.ideal > 0.0:
            self.ndcg[t] = found = dcg(step.round.grades[shown.order], self.trial.k) / step.round.ideal
            self.regret[t] = 1.0 - found
        if self.misordered.size:
            self.misordered[t] = kendall_regret(step.round.grades, shown.order)
        if self.trial.trace:
            self.queries.append(shown.query)
            self.clicks.append(float(step.feedback.values.sum()))
        if self.on_progress and t + 1 - self._told >= self._tick:
            self._told = t + 1
            self.on_progress(t + 1)

    def stretch(self, stretch: Stretch, data: Dataset) -> None:
        """Many."""
        rounds, first = stretch.rounds, stretch.end - len(stretch.ndcg)
        self.ndcg[first : stretch.end] = stretch.ndcg
        self.regret[first : stretch.end] = np.where(stretch.relevant, 1.0 - stretch.ndcg, 0.0)
        if self.misordered.size:
            for t, q, order in zip(range(first, stretch.end), rounds.queries, rounds.orders, strict=True):
                self.misordered[t] = kendall_regret(data.grades_of(q), order[order >= 0])
        if self.trial.trace:
            self.queries += data.queries[rounds.queries].tolist()
            self.clicks += rounds.clicks.sum(1).tolist()
        if self.on_progress and stretch.end - self._told >= self._tick:
            self._told = stretch.end
            self.on_progress(stretch.end)

    def online(self, when: Array) -> dict[str, Array]:
        """The measures of the lists shown, up to each checkpoint."""
        discounted = np.cumsum(self.ndcg * self.trial.gamma ** np.arange(self.ndcg.size))
        found = {
            "online.cndcg": discounted[when - 1],
            "online.ndcg": np.cumsum(self.ndcg)[when - 1] / when,
            "online.regret": np.cumsum(self.regret)[when - 1],
        }
        if self.misordered.size:
            found["online.misordered"] = np.cumsum(self.misordered)[when - 1]
        return found


QUERIES_WITHOUT_RELEVANT = {"online": "count 0", "held-out": "left out"}  # what tables are to say beneath


def conventions(trial: Trial, split: Split, stop_requires_click: bool | None) -> dict[str, Any]:
    """What the numbers of a run mean, for whoever compares them with others."""
    changing = {
        "held-out grades": "those of the world in the round just served",
        "online.window_ndcg": "mean NDCG of the lists shown since the checkpoint before",
        "online.recovery": f"rounds after a change until window_ndcg is at {RECOVERED} of its level before, mean over "
        "changes; without recovery, the rounds up to the next change",
    }
    return {
        "online.ndcg": f"mean NDCG@{trial.k} of the shown lists: gain 2^grade - 1, discount log2(1 + position), ideal "
        "over all candidates",
        "offline.ndcg@10": "NDCG@10 of the best lists for held-out queries, whatever k is",
        "queries without relevant documents": QUERIES_WITHOUT_RELEVANT,
        "online.cndcg": f"sum over rounds of gamma^(t-1) NDCG of the shown list, gamma = {trial.gamma}",
        "online.regret": "sum over rounds of 1 - NDCG of the shown list, against the ideal list of that round",
        "online.misordered": "sum over rounds of the pairs in the wrong order, one of them at least shown: Kendall tau "
        "against the ideal order, in which equal grades never count",
        "stop_requires_click": stop_requires_click,
        "normalisation": split.train.normalisation,
        "held-out part": trial.evaluate_on,
        **({"world": trial.world} if trial.world != "stationary" else {}),
        **(changing if trial.world.partition("?")[0] != "stationary" else {}),
    }


def _at_first(dataset: Dataset, world: World) -> Dataset:
    """The data set with the grades of the world's first round: what a learner that is fitted beforehand can know."""
    grades = world.grades(dataset, 0)
    return dataset if grades is dataset.grades else replace(dataset, grades=grades, _candidates={})


@lru_cache(maxsize=2)
def _fitted(name: str, parameters: str, dataset: Dataset) -> dict[str, Array]:
    """What a learner that is fitted on grades knows of a data set; kept, since no seed and no user changes it."""
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
    probes = [held_out(part) if isinstance(world, Stationary) else held_out(part, world=world)]
    if "closeness" in trial.probes:
        probes.append(closeness(split.train))
    if "blocks" in trial.probes:
        probes.append(blocks(split.train))
    if "certain" in trial.probes:
        probes.append(certain(split.train))
    if "memory" in trial.probes:
        probes.append(memory())
    return probes


def _warm_up(learner: Learner, world: World, user: Any) -> None:
    """Load or compile every kernel the loop will call, on a throw-away copy, so that the run's rate is its own."""
    twin = clone(learner)
    twin.load(learner.state())
    for step in simulate(twin, world, user, 30):
        dcg(step.round.grades[step.impression.order], world.k)
