"""What every click model can do: simulate, foresee, fit, score, be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rankloop.clicks.log import SessionLog
from rankloop.clicks.pairs import Pairs
from rankloop.clicks.score import Score, score
from rankloop.core.errors import DataError, InvalidInput
from rankloop.core.types import Array, Feedback
from rankloop.kernels import click_models as kernels
from rankloop.kernels.click_fits import react_pages
from rankloop.kernels.click_models import ClickChances

Progress = Callable[[int, int], None]  # done, of how many at most
ONE, TABLE = np.ones(1), np.ones((1, 1))  # what a way of reading does not use


class ClickModel(ABC):
    """A click model. Each is a dataclass in its own file: fields are options, names that end in `_` are learned.

    What is learned by query-document pair has one number more than there are pairs: the last one stands for pairs that
    were never seen. What is learned by rank holds for as many ranks as the longest page of the log had.
    """

    name: ClassVar[str]  # what the command line calls it
    title: ClassVar[str]
    # name -> shape: "pairs" stands for one more than there are pairs, "ranks" for the longest page
    learned: ClassVar[Mapping[str, tuple[str | int, ...]]]
    pairs_: Pairs | None = None
    trace_: Array = np.zeros(0)  # mean log-likelihood of a page, round by round of expectation maximisation

    @abstractmethod
    def chances(self) -> ClickChances:
        """All numbers of the model as kernels want them; documents are numbers of pairs, the last one the unseen."""

    @abstractmethod
    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        """Learn from a log that has a page at least."""

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, log: SessionLog, on_progress: Progress | None = None) -> Self:
        """Learn from a log, forgetting what was learned before; returns the model itself."""
        if not len(log):
            raise DataError("the log has no pages; a click model needs at least one")
        self.trace_ = np.zeros(0)
        self._fit(log, on_progress)
        self.pairs_ = log.pairs
        return self

    def given(self, pairs: Pairs, **learned: ArrayLike) -> Self:
        """Take these numbers as if they had been learned; they are checked. Returns the model itself.

        What is by pair may have one number for each pair; the unseen ones then get their mean.
        """
        if sorted(learned) != sorted(self.learned):
            raise InvalidInput(f"{self.name} learns {sorted(self.learned)}, but {sorted(learned)} is given")
        sizes: dict[str, int] = {"pairs": len(pairs) + 1}
        fresh: dict[str, Array] = {}
        for key, shape in self.learned.items():
            value = np.array(learned[key], dtype=np.float64, order="C")
            if shape == ("pairs",) and value.shape == (len(pairs),):
                value = np.append(value, value.mean() if len(value) else 0.5)
            sized = value.ndim == len(shape) and all(
                n == (sizes.setdefault(of, n) if isinstance(of, str) else of)
                for of, n in zip(shape, value.shape, strict=True)
            )
            if not sized or value.size == 0:
                raise InvalidInput(f"{key} has shape {value.shape}; it must be {shape}, with {sizes}")
            bad = ~((value >= 0) & (value <= 1))
            if bad.any():
                raise InvalidInput(f"{key} holds {value[bad].flat[0]}; every number must be a probability, 0 to 1")
            fresh[key] = value
        for key, value in fresh.items():
            setattr(self, key, value)
        self.pairs_, self.trace_ = pairs, np.zeros(0)
        return self

    @property
    def pairs(self) -> Pairs:
        """The pairs that were in the log."""
        if self.pairs_ is None:
            raise InvalidInput(f"this {self.name} has learned nothing yet; fit it to a log, or load a fitted one")
        return self.pairs_

    # -- one page --------------------------------------------------------------------------------------------------

    def chances_of(self, query: str, documents: ArrayLike) -> ClickChances:
        """The model's numbers for some documents of a query, as kernels want them; document i is documents[i]."""
        pairs, whole = self.pairs.find(query, documents), self.chances()
        after_click = whole.after_click[pairs] if whole.kind in (kernels.CASCADE, kernels.CHAIN) else ONE
        return whole._replace(attraction=whole.attraction[pairs], after_click=after_click)

    def react(self, query: str, documents: ArrayLike, rng: np.random.Generator) -> Feedback:
        """The clicks of one user on a list, top first."""
        user, shown = self._page(query, documents)
        clicks = np.empty(len(shown))
        kernels.react(user, shown, rng.random((2, len(shown))), clicks)
        return Feedback("clicks", clicks)

    def examination_probabilities(self, query: str, documents: ArrayLike) -> Array:
        """(k,) the chance that each document of a list is looked at."""
        return self._chances(query, documents)[0]

    def click_probabilities(self, query: str, documents: ArrayLike) -> Array:
        """(k,) the chance that each document of a list is clicked."""
        return self._chances(query, documents)[1]

    def conditional_probabilities(self, query: str, documents: ArrayLike, clicks: ArrayLike) -> Array:
        """(k,) the chance that each document is clicked, given the clicks above it."""
        user, shown = self._page(query, documents)
        flags, clicked = np.asarray(clicks, dtype=np.float64), np.empty(len(shown))
        if flags.shape != shown.shape:
            raise InvalidInput(f"clicks have shape {flags.shape} for {len(shown)} documents; give one a document")
        kernels.conditional(user, shown, flags, clicked)
        return clicked

    def expected_clicks(self, query: str, documents: ArrayLike, n: int | None = None) -> float:
        """How many clicks a list gets on average, in its first n ranks or in all."""
        chances = self.click_probabilities(query, documents)
        return float(chances[:n].sum())

    def _page(self, query: str, documents: ArrayLike) -> tuple[ClickChances, Array]:
        user = self.chances_of(query, documents)
        self._check_ranks(len(user.attraction))
        return user, np.arange(len(user.attraction))

    def _chances(self, query: str, documents: ArrayLike) -> tuple[Array, Array]:
        user, shown = self._page(query, documents)
        examined, clicked = np.empty(len(shown)), np.empty(len(shown))
        kernels.chances(user, shown, examined, clicked, np.empty(len(shown) + 1))
        return examined, clicked

    def average_examination(self, k: int) -> Array:
        """(k,) the chance that each rank is looked at on a page of documents that nobody knows: the average ones."""
        self._check_ranks(k)
        unseen, examined = np.full(k, len(self.pairs)), np.empty(k)
        kernels.chances(self.chances(), unseen, examined, np.empty(k), np.empty(k + 1))
        return examined

    # -- many pages ------------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> int | None:
        """How long a page may be; None if any length will do."""
        by_rank = [name for name, shape in self.learned.items() if "ranks" in shape]
        return len(getattr(self, by_rank[0])) if by_rank else None

    def shown_in(self, log: SessionLog) -> Array:
        """(s, K) the numbers of a log's pairs in this model, for kernels."""
        numbers = np.append(self.pairs.numbers_of(log.pairs), -1)  # -1, beyond a page's end, stays -1
        self._check_ranks(log.ranks)
        return numbers[log.shown]

    def simulate(self, log: SessionLog, rng: np.random.Generator) -> SessionLog:
        """The same pages with the clicks of this model's users."""
        clicks = np.zeros(log.shown.shape)
        react_pages(self.chances(), self.shown_in(log), log.lengths, rng.random((len(log), 2, log.ranks)), clicks)
        return log.with_clicks(clicks)

    def score(self, log: SessionLog) -> Score:
        """How well the model foresees a log: log-likelihood and perplexity, per rank too."""
        return score(self.chances(), self.shown_in(log), log)

    def _check_ranks(self, longest: int) -> None:
        if self.ranks is not None and longest > self.ranks:
            raise InvalidInput(
                f"a page has {longest} ranks, but this {self.name} knows {self.ranks}; "
                "cut the pages to that many (SessionLog.top), or fit a log with longer ones"
            )

    # -- options and state -----------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The numbers in short: by rank as they are; by pair that of the unseen, and quantiles over the others."""
        found: dict[str, Any] = {"pairs": len(self.pairs), "queries": len(self.pairs.queries)}
        for name, shape in self.learned.items():
            value = getattr(self, name)
            if shape == ("pairs",):
                least, low, middle, high, most = np.quantile(value[:-1], [0, 0.1, 0.5, 0.9, 1]).tolist()
                spread = {"least": least, "10 %": low, "median": middle, "90 %": high, "most": most}
                found[name.rstrip("_")] = {"unseen": float(value[-1]), **spread}
            else:
                found[name.rstrip("_")] = value.tolist()
        return found

    def options(self) -> dict[str, Any]:
        """The options, as JSON would say them."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    def state(self) -> dict[str, Array]:
        """Everything learned, as plain arrays."""
        learned = {name: np.array(getattr(self, name)) for name in self.learned}
        pairs = {f"pairs/{name}": value for name, value in self.pairs.arrays().items()}
        return {**pairs, **learned, "trace_": self.trace_}
