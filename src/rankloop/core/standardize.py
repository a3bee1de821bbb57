"""Any learner that ranks by features, on features whose sizes are learned over the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from rankloop.core.capabilities import Rescales
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import Learner, clone, memo_of
from rankloop.core.scaling import StreamScaler
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression, SparseRows
from rankloop.kernels.feedback import all_finite
from rankloop.kernels.scaling import list_moments

SIZES = "sizes"  # of a list, in its memo: (2, d) means and standard deviations
PREFIX = "scaler_"  # of what is known of sizes, among the arrays of the state


@dataclass
class Standardised:
    """A learner behind a `StreamScaler`: it takes features as they are, and ranks and learns by scaled ones.

    Made by `standardised`, which lets it tell all of itself that its learner does (`rankloop.core.capabilities`).

    Impressions hold the rows as they came, and in the memo the sizes that features have among all candidates: those
    that are shown were chosen, by the very weights that are learned, and differ less in what counts most. `inner`
    learns a list on the scale that it has when feedback comes: at a step of the scaler a linear learner's weights are
    carried over to the new one (`telling.Rescales`), on which rows of the old would be too large or too small.

    Parameters
    ----------
    inner
        The learner; a fresh one with its parameters is what learns.

    Examples
    --------
    >>> from rankloop.learners.pairwise.pairrank import PairRank
    >>> rng = np.random.default_rng(1)
    >>> learner = standardised(PairRank())
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[0.001, 4000.0], [0.003, 3900.0]])
    >>> for _ in range(30):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.inner.theta_.round(2)
    (array(['liked'], dtype='<U5'), array([ 0.2, -0.2]))
    """

    inner: Learner

    feedback: ClassVar[FeedbackKind]
    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.inner.contextual:
            raise InvalidParameter(f"{type(self.inner).__name__} ranks by ids alone: there are no features to scale")
        self.inner = clone(self.inner)
        self.scaler = StreamScaler()

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """What the learner shows."""
        return _noted(self.inner.rank(self._scaled(candidates), k, rng), candidates)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """What it makes of a list."""
        return _noted(self.inner.adopt(self._scaled(candidates), order), candidates)

    def best(self, candidates: Candidates, k: int) -> Array:
        """What it believes best."""
        return self.inner.best(self._scaled(candidates), k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """Let it learn, then take in the sizes; the first list is learned on a scale of its own."""
        rows = impression.features
        if rows is None or type(rows) is SparseRows or rows.ndim != 2 or not all_finite(rows):
            raise InvalidInput(
                "the impression has no features, or such that are not finite; pass it on as rank made it"
            )
        sizes = memo_of(impression, SIZES, 2, rows.shape[1])
        after = self.scaler.after(*sizes)
        now = self.scaler if self.scaler.lists else after
        scaled = now.scaled(rows)
        unknown = np.isnan(sizes[0])
        if unknown.any():  # columns of a list from before a change of features: their values are on the scale already
            scaled[:, unknown] = rows[:, unknown]
        self.inner.learn(impression._replace(features=scaled), feedback, rng)
        growth = after.growth(self.scaler)
        if growth is not None and isinstance(self.inner, Rescales):
            self.inner.rescale(growth)
        self.scaler = after

    def state(self) -> dict[str, Array]:
        """What the learner knows, and of sizes."""
        return {**self.inner.state(), **self._sizes()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        scaler, rest = _parted(state)
        self.inner.load(rest)
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        """What it has learned, under the learner's own names."""
        if name.endswith("_") and not name.startswith("_"):
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _scaled(self, source: Any) -> Any:
        """Candidates or an impression on the scale in use."""
        if source.features is None:
            return source  # the learner says what it misses
        if type(source.features) is SparseRows:
            raise InvalidInput(
                "sparse rows cannot be standardised: what is 0 would not be any more; give whole rows, or take "
                "features as they are"
            )
        rows = self.scaler.scaled(source.features)
        return source.with_rows(rows) if isinstance(source, Candidates) else source._replace(features=rows)

    def _sizes(self) -> dict[str, Array]:
        return {f"{PREFIX}{name}_": array for name, array in self.scaler.state().items()}


def standardised(learner: Learner) -> Any:
    """A fresh learner with the same parameters, for features of any size."""
    if hasattr(learner, "fit") or hasattr(learner, "label"):
        raise InvalidParameter(
            f"{type(learner).__name__} is trained with the grades of whole data sets, so it cannot learn scales from a "
            "stream; choose the normalisation query-minmax"
        )
    return _class_of(type(learner))(learner)


def plain_of(learner: Learner) -> Learner:
    """The learner itself, behind a scaler or not."""
    return learner.inner if isinstance(learner, Standardised) else learner


def _noted(made: Impression, candidates: Candidates) -> Impression:
    """With rows as they came, and the sizes of features among the candidates."""
    rows = candidates.features
    assert isinstance(rows, np.ndarray)  # or they would have been refused
    memo = {**made.memo, SIZES: np.stack(list_moments(rows))}
    return made._replace(features=rows.take(made.order, axis=0), memo=memo)


def _parted(state: Mapping[str, Array]) -> tuple[StreamScaler, dict[str, Array]]:
    """What a state knows of sizes, and the learner's own part of it."""
    sizes = {n.removeprefix(PREFIX).removesuffix("_"): a for n, a in state.items() if n.startswith(PREFIX)}
    return StreamScaler.of_state(sizes), {n: a for n, a in state.items() if not n.startswith(PREFIX)}


# -- what learners tell of themselves ------------------------------------------------------------------------------


@cache
def _class_of(kind: type[Learner]) -> type[Standardised]:
    """The class for a kind of learner, with the capabilities of that learner."""
    told: dict[str, Any] = {"feedback": kind.feedback, "__doc__": Standardised.__doc__, "__module__": __name__}
    for names, made in ((_OF_LISTS, _of_a_list), (_OF_ITSELF, _of_itself), (_HELD, _held)):
        told |= {name: made(name) for name in names if hasattr(kind, name)}
    if hasattr(kind, "remap"):
        told |= {"remap": _remap, "carries": getattr(kind, "carries", "")}
    if hasattr(kind, "part"):
        told |= {"part": _part, "take": _take}
    return type(f"Standardised{kind.__name__}", (Standardised,), told)


_OF_LISTS = ("score", "log_propensity", "chances", "parts", "explain", "blocks", "certain")
_OF_ITSELF = ("half_widths", "drift")
_HELD = ("grows", "remembered")


def _of_a_list(name: str) -> Callable[..., Any]:
    def method(self: Standardised, source: Candidates | Impression, *more: Any) -> Any:
        return getattr(self.inner, name)(self._scaled(source), *more)

    return method


def _of_itself(name: str) -> Callable[..., Any]:
    def method(self: Standardised) -> Any:
        return getattr(self.inner, name)()

    return method


def _held(name: str) -> property:
    return property(lambda self: getattr(self.inner, name))


def _remap(self: Any, columns: FeatureMap) -> None:
    """As `telling.Remaps`."""
    self.inner.remap(columns)
    self.scaler = self.scaler.remapped(columns)


def _part(self: Any, queries: int) -> dict[str, Array]:
    """As `telling.InParts`: sizes are few enough to come along each time."""
    return {**self.inner.part(queries), **self._sizes()}


def _take(self: Any, part: Mapping[str, Array]) -> None:
    scaler, rest = _parted(part)
    self.inner.take(rest)
    self.scaler = scaler
