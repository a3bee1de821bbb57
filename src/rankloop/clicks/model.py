"""The base class of click models: simulate, predict, fit and score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rankloop.clicks.log import Pairs, SessionLog
from rankloop.core.errors import DataError, InvalidInput
from rankloop.core.types import Array, Feedback
from rankloop.kernels import click_models as kernels
from rankloop.kernels.click_fits import react_pages, score_pages
from rankloop.kernels.click_models import ClickParameters

Progress = Callable[[int, int], None]  # done, of how many at most
ONE, TABLE = np.ones(1), np.ones((1, 1))  # placeholders for parameters that a model does not use
FLOOR = 1e-6  # lowest probability of an event in scores, so that one surprise does not decide


@dataclass(frozen=True, eq=False)
class Score:
    """Log-likelihood and perplexity of a log under a model.

    `log_likelihood` is the mean per page of the natural logarithm of the probability of its clicks. `perplexity` is 2
    to the mean of -log2 of the probability of the event at a rank, averaged over ranks: 1 is perfect, 2 is a coin flip.
    `conditional_perplexity` is given the clicks above. Probabilities are kept within 1e-6 of 0 and 1; `impossible`
    counts pages of probability 0.
    """

    pages: int
    clicks: int
    log_likelihood: float
    perplexity: float
    conditional_perplexity: float
    perplexity_by_rank: Array  # (K,)
    conditional_perplexity_by_rank: Array  # (K,)
    impossible: int
    unseen: float  # share of shown documents that the model has not seen

    def summary(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        found = dict(vars(self))
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def score(model: ClickParameters, shown: Array, log: SessionLog) -> Score:
    """Score a log whose documents have the numbers `shown` in the model, the last one for unseen ones."""
    pages, bits, conditional_bits, total, impossible = score_pages(model, shown, log.lengths, log.clicks, FLOOR)
    by_rank, conditional_by_rank = 2.0 ** (bits / pages), 2.0 ** (conditional_bits / pages)
    unseen = (shown == len(model.attraction) - 1).sum() / pages.sum()
    return Score(
        pages=len(log),
        clicks=int(log.clicks.sum()),
        log_likelihood=total / len(log),
        perplexity=float(by_rank.mean()),
        conditional_perplexity=float(conditional_by_rank.mean()),
        perplexity_by_rank=by_rank,
        conditional_perplexity_by_rank=conditional_by_rank,
        impossible=int(impossible),
        unseen=float(unseen),
    )


class ClickModel(ABC):
    """A click model: a dataclass whose fields are options and whose attributes ending in `_` are learned.

    What is learned by query-document pair has one more number, for pairs that were never seen.
    """

    name: ClassVar[str]  # what the command line calls it
    title: ClassVar[str]
    # name -> shape: "pairs" is the number of pairs plus one, "ranks" the length of the longest page
    learned: ClassVar[Mapping[str, tuple[str | int, ...]]]
    pairs_: Pairs | None = None
    trace_: Array = np.zeros(0)  # mean log-likelihood per page in each iteration

    @abstractmethod
    def parameters(self) -> ClickParameters:
        """Return the parameters for kernels; documents are numbers of pairs, the last one the unseen."""

    @abstractmethod
    def _fit(self, log: SessionLog, on_progress: Progress | None) -> None:
        """Learn from a log of at least one page."""

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, log: SessionLog, on_progress: Progress | None = None) -> Self:
        """Learn from a log, starting again, and return the model."""
        if not len(log):
            raise DataError("the log has no pages; a click model needs at least one")
        self.trace_ = np.zeros(0)
        self._fit(log, on_progress)
        self.pairs_ = log.pairs
        return self

    def given(self, pairs: Pairs, **learned: ArrayLike) -> Self:
        """Set the learned parameters, check them and return the model.

        What is by pair may have one number per pair; unseen pairs then get the mean.
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

    def parameters_of(self, query: str, documents: ArrayLike) -> ClickParameters:
        """Return the parameters for some documents of a query; document i is documents[i]."""
        pairs, whole = self.pairs.find(query, documents), self.parameters()
        after_click = whole.after_click[pairs] if whole.kind in (kernels.CASCADE, kernels.CHAIN) else ONE
        return whole._replace(attraction=whole.attraction[pairs], after_click=after_click)

    def react(self, query: str, documents: ArrayLike, rng: np.random.Generator) -> Feedback:
        """Simulate the clicks of one user on a ranking."""
        user, shown = self._page(query, documents)
        clicks = np.empty(len(shown))
        kernels.react(user, shown, rng.random((2, len(shown))), clicks)
        return Feedback("clicks", clicks)

    def examination_probabilities(self, query: str, documents: ArrayLike) -> Array:
        """Return (k,) the probability that each document is examined."""
        return self._probabilities(query, documents)[0]

    def click_probabilities(self, query: str, documents: ArrayLike) -> Array:
        """Return (k,) the probability that each document is clicked."""
        return self._probabilities(query, documents)[1]

    def conditional_probabilities(self, query: str, documents: ArrayLike, clicks: ArrayLike) -> Array:
        """Return (k,) the probability that each document is clicked, given the clicks above it."""
        user, shown = self._page(query, documents)
        flags, clicked = np.asarray(clicks, dtype=np.float64), np.empty(len(shown))
        if flags.shape != shown.shape:
            raise InvalidInput(f"clicks have shape {flags.shape} for {len(shown)} documents; give one a document")
        kernels.conditional(user, shown, flags, clicked)
        return clicked

    def expected_clicks(self, query: str, documents: ArrayLike, n: int | None = None) -> float:
        """Return the expected number of clicks on a ranking, in its first n ranks or in all."""
        return float(self.click_probabilities(query, documents)[:n].sum())

    def _page(self, query: str, documents: ArrayLike) -> tuple[ClickParameters, Array]:
        user = self.parameters_of(query, documents)
        self._check_ranks(len(user.attraction))
        return user, np.arange(len(user.attraction))

    def _probabilities(self, query: str, documents: ArrayLike) -> tuple[Array, Array]:
        user, shown = self._page(query, documents)
        examined, clicked = np.empty(len(shown)), np.empty(len(shown))
        kernels.chances(user, shown, examined, clicked, np.empty(len(shown) + 1))
        return examined, clicked

    def average_examination(self, k: int) -> Array:
        """Return (k,) the probability that each rank is examined on a page of average documents."""
        self._check_ranks(k)
        unseen, examined = np.full(k, len(self.pairs)), np.empty(k)
        kernels.chances(self.parameters(), unseen, examined, np.empty(k), np.empty(k + 1))
        return examined

    # -- many pages ------------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> int | None:
        """The longest page that the model knows; None if there is no limit."""
        by_rank = [name for name, shape in self.learned.items() if "ranks" in shape]
        return len(getattr(self, by_rank[0])) if by_rank else None

    def shown_in(self, log: SessionLog) -> Array:
        """Return (s, K) the numbers of a log's pairs in this model."""
        numbers = np.append(self.pairs.numbers_of(log.pairs), -1)  # -1, beyond a page's end, stays -1
        self._check_ranks(log.ranks)
        return numbers[log.shown]

    def simulate(self, log: SessionLog, rng: np.random.Generator) -> SessionLog:
        """Return the same pages with simulated clicks."""
        clicks = np.zeros(log.shown.shape)
        react_pages(self.parameters(), self.shown_in(log), log.lengths, rng.random((len(log), 2, log.ranks)), clicks)
        return log.with_clicks(clicks)

    def score(self, log: SessionLog) -> Score:
        """Return how well the model predicts a log: log-likelihood and perplexity."""
        return score(self.parameters(), self.shown_in(log), log)

    def _check_ranks(self, longest: int) -> None:
        if self.ranks is not None and longest > self.ranks:
            raise InvalidInput(
                f"a page has {longest} ranks, but this {self.name} knows {self.ranks}; "
                "cut the pages to that many (SessionLog.top), or fit a log with longer ones"
            )

    # -- options and state -----------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Summarize the parameters: by rank as they are; by pair the mean of unseen ones and quantiles."""
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
        """Return the options, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    def state(self) -> dict[str, Array]:
        """Return everything learned, as plain arrays."""
        learned = {name: np.array(getattr(self, name)) for name in self.learned}
        pairs = {f"pairs/{name}": value for name, value in self.pairs.arrays().items()}
        return {**pairs, **learned, "trace_": self.trace_}
