"""Worlds: which query comes in each round, and which grades its user gives.

`stationary`, `swap?probability=0.3`, `piecewise?every=1000`, `drift?period=1000`, `recurring?every=500&tastes=2`; all
take `base=` (`lab.worlds.production`), `queries=`, `frequency=` and `fresh=` (`lab.worlds.arrivals`) and `seed=`. A
world of another package (entry point `rankloop.worlds`, or `my.module:Mine`) is made by
`maker(dataset, k, seed=…, **options)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from rankloop.core import plugins
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.specs import integer, known_name, number, only, parse_spec
from rankloop.core.types import Array, Candidates
from rankloop.kernels.metrics import ragged_ideal_dcg
from rankloop.kernels.simulated_users import deal_grades, ragged_best_first, ragged_deal_grades
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.worlds.arrivals import Arrivals, exponent_of
from rankloop.lab.worlds.production import Production, parse_base
from rankloop.lab.worlds.tastes import Tastes


class Round(NamedTuple):
    """One query as a user brings it."""

    candidates: Candidates
    grades: Array  # (n,) what this user thinks of each candidate, now
    ideal: float  # the highest DCG@k that these grades allow


class World(Protocol):
    """A source of rounds: a function of the round number and its random numbers."""

    k: int

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """Round t."""

    def grades(self, dataset: Dataset, t: int) -> Array:
        """(N,) what the users of round t think of the documents of a data set: which held-out evaluation uses."""


@dataclass
class DataWorld(ABC):
    """Base of worlds with the queries of a data set."""

    dataset: Dataset  # its documents in the production ranker's order
    k: int = 10
    arrivals: Arrivals | None = field(default=None, kw_only=True, repr=False)  # None: all queries, all alike
    production: Production | None = field(default=None, kw_only=True, repr=False)  # None: as the data has them

    @abstractmethod
    def at(self, t: int, rng: np.random.Generator) -> Round:
        """Round t."""

    def grades(self, dataset: Dataset, t: int) -> Array:  # noqa: ARG002
        """The data set's own."""
        return dataset.grades

    def query(self, t: int, drawn: float) -> int:
        """Which query comes in round t, given a random number in [0, 1)."""
        return int(drawn * len(self.dataset)) if self.arrivals is None else self.arrivals.one(t, drawn)

    def in_base_order(self, dataset: Dataset) -> Dataset:
        """Another part of the data as this world's production ranker would bring it."""
        return dataset if self.production is None else self.production.order(dataset, self.grades(dataset, 0))


@dataclass
class Stationary(DataWorld):
    """Queries drawn from a data set whose grades never change, those without relevant documents too.

    >>> from rankloop.lab.datasets.dataset import Dataset
    >>> tiny = Dataset("tiny", np.eye(3), np.array([2, 0, 1]), np.array([0, 2, 3]), np.array(["a", "b"]))
    >>> Stationary(tiny).at(0, np.random.default_rng(0)).candidates.query
    'b'
    """

    _ideal: Array = field(init=False, repr=False)
    _rounds: dict[int, Round] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._ideal = ragged_ideal_dcg(self.dataset.grades, self.dataset.offsets, self.k)

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """A query drawn at random."""
        drawn = rng.random()  # inlined: most rounds of most runs come here
        q = int(drawn * len(self._ideal)) if self.arrivals is None else self.arrivals.one(t, drawn)
        try:
            return self._rounds[q]
        except KeyError:  # its first time
            made = Round(self.dataset.candidates(q), self.dataset.grades_of(q), float(self._ideal[q]))
            return self._rounds.setdefault(q, made)


@dataclass
class Swap(DataWorld):
    """With `probability` a round's user has all grades swapped, 1 with 2 and 3 with 4; binary grades 0 with 1.

    A grade whose partner the scale does not have stays. Held-out evaluation uses the grades of most rounds. Lu et al.,
    Non-Stationary Dueling Bandits for Online Learning to Rank, section 6.1, use probability 0.3.

    >>> tiny = Dataset("tiny", np.eye(5), np.arange(5), np.array([0, 5]), np.array(["a"]))
    >>> Swap(tiny, probability=1).at(0, np.random.default_rng(0)).grades
    array([0, 2, 1, 4, 3])
    """

    probability: float = 0.3
    _partner: Array = field(init=False, repr=False)
    _ideals: tuple[Array, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(probability=self.probability)
        self._partner = swapped_grades(self.dataset.highest_grade)
        plain = np.asarray(self.dataset.grades)
        self._ideals = (
            ragged_ideal_dcg(plain, self.dataset.offsets, self.k),
            ragged_ideal_dcg(self._partner[plain], self.dataset.offsets, self.k),
        )

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """A query drawn at random, its grades swapped or not."""
        q = self.query(t, rng.random())
        swapped = bool(rng.random() < self.probability)
        grades = self.dataset.grades_of(q)
        if swapped:
            grades = self._partner[grades]
        return Round(self.dataset.candidates(q), grades, self._ideals[swapped][q])

    def grades(self, dataset: Dataset, t: int) -> Array:  # noqa: ARG002
        """Those that most rounds have: the data set's own up to a probability of 1/2."""
        return dataset.grades if self.probability <= 0.5 else self._partner[dataset.grades]


def swapped_grades(highest: int) -> Array:
    """(highest + 1,) what each grade becomes.

    >>> [swapped_grades(highest).tolist() for highest in (1, 2, 4)]
    [[1, 0], [0, 2, 1], [0, 2, 1, 4, 3]]
    """
    if highest == 1:
        return np.array([1, 0])
    partner = np.arange(highest + 1)
    for grade in range(1, highest, 2):
        partner[grade], partner[grade + 1] = grade + 1, grade
    return partner


@dataclass
class TasteWorld(DataWorld):
    """Base of worlds whose grades follow a taste: the query's own grades are dealt out in the order of the taste."""

    seed: int = 0
    _best: Array = field(init=False, repr=False)
    _ideal: Array = field(init=False, repr=False)
    _tastes: Tastes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(seed=self.seed)
        grades, offsets = np.asarray(self.dataset.grades), self.dataset.offsets
        self._best = ragged_best_first(grades, offsets)
        self._ideal = ragged_ideal_dcg(grades, offsets, self.k)  # any dealing of the same grades has the same
        self._tastes = Tastes(self.dataset, self.seed, self._apart())

    @abstractmethod
    def taste(self, t: int) -> Array:
        """(d,) the weights by which the users of round t like documents."""

    def _apart(self) -> int:
        """From how many tastes before it a taste must differ."""
        return 1

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """A query drawn at random, its grades dealt by the taste of the round."""
        q = self.query(t, rng.random())
        here = slice(self.dataset.offsets[q], self.dataset.offsets[q + 1])
        grades = deal_grades(np.asarray(self.dataset.features[here]), self.taste(t), self._best[here])
        return Round(self.dataset.candidates(q), grades, self._ideal[q])

    def grades(self, dataset: Dataset, t: int) -> Array:
        """The grades of each query of `dataset`, dealt by the taste of round t."""
        if dataset.width != self.dataset.width:
            raise InvalidInput(
                f"{dataset.name} has {dataset.width} features, but the tastes of this world are about the "
                f"{self.dataset.width} of {self.dataset.name}; evaluate on data with the same features"
            )
        best = ragged_best_first(np.asarray(dataset.grades), dataset.offsets)
        return ragged_deal_grades(np.asarray(dataset.features), self.taste(t), best, dataset.offsets)


@dataclass
class Piecewise(TasteWorld):
    """All users have a new taste every `every` rounds.

    >>> from rankloop.lab.datasets.sources import open_split
    >>> world = Piecewise(open_split("synthetic:mq2008?queries=9&vali=1&test=9").train, every=100)
    >>> [bool((world.taste(t) == world.taste(0)).all()) for t in (99, 100)]
    [True, False]
    """

    every: int = 1000

    def __post_init__(self) -> None:
        _check(every=self.every)
        super().__post_init__()

    def taste(self, t: int) -> Array:
        """One a segment."""
        return self._tastes[t // self.every]


@dataclass
class Drift(TasteWorld):
    """The taste turns slowly: by a right angle to the next one in `period` rounds.

    Utilities that lie s rounds apart, both between the same two tastes, have correlation cos(π/2 · s / period).

    >>> from rankloop.lab.datasets.sources import open_split
    >>> world = Drift(open_split("synthetic:mq2008?queries=9&vali=1&test=9").train, period=100)
    >>> start, end = world.taste(0), world.taste(100)
    >>> np.allclose(world.taste(50), (start + end) / 2**0.5)
    True
    """

    period: int = 1000

    def __post_init__(self) -> None:
        _check(period=self.period)
        super().__post_init__()

    def taste(self, t: int) -> Array:
        """On the way from one taste to the next."""
        m, rest = divmod(t, self.period)
        if rest == 0:
            return self._tastes[m]
        angle = np.pi / 2 * rest / self.period
        turned: Array = np.cos(angle) * self._tastes[m] + np.sin(angle) * self._tastes[m + 1]
        return turned


@dataclass
class Recurring(TasteWorld):
    """A few `tastes` come in turn, each for `every` rounds, and come back bit for bit.

    >>> from rankloop.lab.datasets.sources import open_split
    >>> world = Recurring(open_split("synthetic:mq2008?queries=9&vali=1&test=9").train, every=100, tastes=3)
    >>> [bool((world.taste(t) == world.taste(0)).all()) for t in (100, 200, 300)]
    [False, False, True]
    """

    every: int = 500
    tastes: int = 2

    def __post_init__(self) -> None:
        _check(every=self.every, tastes=self.tastes)
        super().__post_init__()

    def taste(self, t: int) -> Array:
        """The one whose turn it is."""
        return self._tastes[t // self.every % self.tastes]

    def _apart(self) -> int:
        return self.tastes - 1  # all others


# -- by name -------------------------------------------------------------------------------------------------------

WORLDS: dict[str, tuple[type[DataWorld], tuple[str, ...]]] = {  # and the options of each
    "stationary": (Stationary, ()),
    "swap": (Swap, ("probability",)),
    "piecewise": (Piecewise, ("every",)),
    "drift": (Drift, ("period",)),
    "recurring": (Recurring, ("every", "tastes")),
}
EVERYWHERE = ("base", "queries", "frequency", "fresh", "seed")  # options that all of these have
_LEAST = {"every": 1, "period": 1, "tastes": 2, "seed": 0, "queries": 1, "fresh": 1}


def open_world(spec: str, dataset: Dataset, k: int = 10, seed: int = 0) -> World:
    """The world that `spec` describes, with the queries of a data set; `seed` is used where the spec has none.

    >>> tiny = Dataset("tiny", np.eye(3), np.array([2, 0, 1]), np.array([0, 2, 3]), np.array(["a", "b"]))
    >>> open_world("swap?probability=0.1", tiny).probability
    0.1
    >>> open_world("stationary?base=reversed", tiny).dataset.grades
    array([0, 2, 1])
    """
    name, options = parse_world(spec)
    if name not in WORLDS:
        maker = plugins.find(str(plugins.place_of(plugins.WORLDS, name)), "world")
        own: World = plugins.made(maker, f"world {name!r}", dataset, k, **{"seed": seed, **options})
        return own
    kind, known = WORLDS[name]
    seed = options.get("seed", seed)
    given: dict[str, Any] = {key: options[key] for key in known if key in options}
    if issubclass(kind, TasteWorld):
        given["seed"] = seed
    who = {key: options[key] for key in ("queries", "frequency", "fresh") if key in options}
    if who:
        given["arrivals"] = Arrivals(len(dataset), seed=seed, **who)
    world = kind(dataset, k, **given)
    base = options.get("base", "data")
    if base == "data":
        return world
    grades = world.grades(dataset, 0)  # what the production ranker can know
    labeled = dataset if grades is dataset.grades else replace(dataset, grades=grades, _candidates={})
    production = Production(base, labeled, seed)
    return kind(production.order(dataset, grades), k, **given, production=production)


def parse_world(spec: str) -> tuple[str, dict[str, Any]]:
    """A world's name and the options given, checked; no data is needed.

    >>> parse_world("recurring?every=200&tastes=3")
    ('recurring', {'every': 200, 'tastes': 3})
    >>> parse_world("swap?probability=30")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: probability is 30.0; it must lie between 0 and 1
    """
    name, given = parse_spec(spec)
    if name not in WORLDS and plugins.place_of(plugins.WORLDS, name) is not None:
        return name, plugins.text_options(given)
    known_name(name, (*WORLDS, *plugins.installed(plugins.WORLDS)), "world")
    only(given, (*WORLDS[name][1], *EVERYWHERE), f"world {name!r}")
    parse_base(given.get("base", "data"))
    exponent_of(given.get("frequency", "uniform"))
    options: dict[str, Any] = {key: _option(given, key) for key in given}
    _check(**{key: value for key, value in options.items() if key not in ("base", "frequency")})
    return name, options


def _option(given: dict[str, str], key: str) -> Any:
    if key in ("base", "frequency"):
        return given[key]
    return number(given, key, 0.0) if key == "probability" else integer(given, key, 0, _LEAST[key])


def change_points(spec: str, rounds: int) -> Array:
    """(c,) the rounds below `rounds` in which a world is suddenly another; none where it drifts, flickers or stays.

    >>> change_points("piecewise?every=300", 1000), change_points("drift", 1000)
    (array([300, 600, 900]), array([], dtype=int64))
    """
    name, options = parse_world(spec)
    if name not in WORLDS:
        return np.zeros(0, np.int64)
    every = options.get("every", getattr(WORLDS[name][0], "every", rounds))
    return np.arange(every, rounds, every, dtype=np.int64)


def _check(**options: Any) -> None:
    for name, value in options.items():
        if name == "probability":
            if not 0 <= value <= 1:
                raise InvalidParameter(f"probability is {value!r}; it must lie between 0 and 1")
        elif not isinstance(value, int | np.integer) or value < _LEAST[name]:
            raise InvalidParameter(f"{name} is {value!r}; it must be a whole number of at least {_LEAST[name]}")
