"""Worlds of items without features: always the same items, and a relevance vector for them in each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.specs import integer, known_name, number, only, parse_spec
from rankloop.core.types import Array, Candidates
from rankloop.kernels.ftpl import corrupt
from rankloop.kernels.metrics import ideal_dcg
from rankloop.kernels.philox import uniforms
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.worlds.world import Round


@dataclass
class ItemWorld(ABC):
    """What sequences of relevance vectors have in common; each says which vector the users of round t mean.

    Parameters
    ----------
    items, relevant
        How many there are, and how many of them the true vector gives the highest grade; the others have 0.
    highest
        The highest grade.
    flip
        Probability that a user sees an item otherwise: independently for each item, then with any of the other grades,
        equally likely. With two grades that is the paper's corruption.
    seed
        Which items are relevant.
    """

    items: int = 20
    relevant: int = 5
    highest: int = 1
    flip: float = 0.1
    seed: int = 0
    k: int = field(init=False)
    _candidates: Candidates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least in (("items", 1), ("relevant", 0), ("highest", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise InvalidParameter(f"{name} is {value!r}; it must be a whole number of at least {least}")
        if self.relevant > self.items:
            raise InvalidParameter(f"relevant is {self.relevant}; there are {self.items} items only")
        if not 0 <= self.flip <= 1:
            raise InvalidParameter(f"flip is {self.flip!r}; it is a probability and must lie between 0 and 1")
        self.k = self.items
        self._candidates = Candidates("items", np.arange(self.items))

    @abstractmethod
    def truths(self, rounds: Array) -> Array:
        """(T, m) the vectors before they are corrupted, of the rounds with these numbers; a fresh array."""

    def vectors(self, streams: Rng, first: int, rounds: int) -> Array:
        """(rounds, m) what the users of these rounds think; the same numbers as `at` gives round by round."""
        drawn = np.empty((rounds, self.items))
        with np.errstate(over="ignore"):
            uniforms(streams.key("world"), first, drawn)
        return self._corrupted(self.truths(np.arange(first, first + rounds)), drawn)

    def at(self, t: int, rng: np.random.Generator) -> Round:
        """Round t, for the plain loop."""
        vector = self._corrupted(self.truths(np.array([t])), rng.random((1, self.items)))[0]
        return Round(self._candidates, vector, float(ideal_dcg(vector, self.k)))

    def grades(self, dataset: Dataset, t: int) -> Array:  # noqa: ARG002
        """There is no data set to grade."""
        raise InvalidParameter(f"{dataset.name}: these worlds have items only; measure regret instead of held-out NDCG")

    def _corrupted(self, truth: Array, drawn: Array) -> Array:
        corrupt(truth, drawn, float(self.flip), float(self.highest))
        return truth

    def _relevant(self, segment: int) -> Array:
        """(m,) a true vector, another for each segment."""
        vector = np.zeros(self.items)
        chosen = Rng(self.seed).for_event("relevance", segment).permutation(self.items)[: self.relevant]
        vector[chosen] = self.highest
        return vector


@dataclass
class Corrupted(ItemWorld):
    """Copies of one true vector, each corrupted by chance: the paper's experiment.

    >>> world = Corrupted(items=6, relevant=2, flip=0.0)
    >>> world.vectors(Rng(0), 0, 2).tolist()
    [[1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]]
    """

    def truths(self, rounds: Array) -> Array:
        """Always the same."""
        return np.tile(self._relevant(0), (rounds.size, 1))


@dataclass
class Switching(ItemWorld):
    """Every `every` rounds another vector is the true one; the best fixed ranking is that of the sum."""

    every: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise InvalidParameter(f"every is {self.every!r}; it must be a whole number of at least 1")

    def truths(self, rounds: Array) -> Array:
        """One a segment."""
        segments, which = np.unique(rounds // self.every, return_inverse=True)
        return np.array([self._relevant(int(segment)) for segment in segments])[which]


@dataclass
class Alternating(ItemWorld):
    """Two halves of the items are relevant in turn: who follows the leader, unperturbed, is wrong in every round.

    >>> Alternating(items=2, flip=0.0).vectors(Rng(0), 0, 3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    relevant: int = 0  # says nothing here

    def truths(self, rounds: Array) -> Array:
        """The first half in even rounds."""
        first = np.arange(self.items) < (self.items + 1) // 2
        return np.where((rounds[:, None] % 2 == 0) == first, float(self.highest), 0.0)


ITEM_WORLDS: dict[str, type[ItemWorld]] = {"corrupted": Corrupted, "switching": Switching, "alternating": Alternating}


def open_item_world(spec: str) -> ItemWorld:
    """The sequence that `spec` describes: `corrupted?items=20&relevant=5&flip=0.1`, `switching?every=500`.

    >>> open_item_world("corrupted?items=8&relevant=2").relevant
    2
    """
    name, given = parse_spec(spec)
    known_name(name, ITEM_WORLDS, "item world")
    kind: Any = ITEM_WORLDS[name]
    own = ("every",) if name == "switching" else ()
    only(given, ("items", "relevant", "highest", "flip", "seed", *own), f"item world {name!r}")
    read = {key: number(given, key, 0.0) if key == "flip" else integer(given, key, 0) for key in given}
    opened: ItemWorld = kind(**read)
    return opened
