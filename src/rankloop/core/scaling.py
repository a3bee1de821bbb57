"""Scale features: within each list, or to sizes learned over the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from rankloop.core.capabilities import LinearScores
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import Learner, clone, memo_of
from rankloop.core.types import LARGEST, Array, Candidates, Feedback, FeedbackKind, Impression, SparseRows
from rankloop.kernels.input_checks import all_finite
from rankloop.kernels.scaling import list_moments, minmax_queries, standardize

# Standard deviations that are scaled to 1: the width of a uniform distribution from 0 to 1, so that features have about
# the same size as under min-max scaling and learners need no other settings.
WIDTH = 12.0**0.5
YOUNG, BOUND = 64, 3.0 / WIDTH  # before so many lists, values are clipped at 3 standard deviations
NOISE = 1e-9  # times the mean: a smaller spread is the rounding error of a constant
SIZES = "sizes"  # in a memo: (2, d) means and standard deviations of the list's features
PREFIX = "scaler_"  # of the scaler's arrays in a learner's state


def scaled(candidates: Candidates) -> Candidates:
    """Scale each feature to [0, 1] among these candidates; a feature that is the same in all becomes 0.

    It depends on this list alone. Use `rankloop.standardized` if sizes mean something across lists, or if a search
    engine is to rank with the learned weights.

    >>> scaled(Candidates("shoes", ["a", "b", "c"], [[17.0, 4000.0], [7.0, 1000.0], [12.0, 1000.0]])).features
    array([[1. , 1. ],
           [0. , 0. ],
           [0.5, 0. ]])
    """
    if candidates.features is None:
        raise InvalidInput("the candidates have no features to scale; give (n, d) numbers")
    rows = candidates.features.copy()
    minmax_queries(rows, np.array([0, len(rows)]))
    return Candidates.without_copy(candidates.query, candidates.items, rows)


class StreamScaler:
    """Mean and spread of each feature, estimated list by list. Immutable: `updated` returns another one.

    The mean is that of the list means. The spread is √12 times the mean standard deviation over the lists in which the
    feature varies; a feature that has never varied is scaled to 0. The scale in use changes after lists 1, 2, 4, 8, …
    only, so that a model version has one scale. Until 64 lists are known, values are clipped at 3 standard deviations,
    because the first estimates may be far too small.

    Examples
    --------
    >>> first = StreamScaler().updated(*list_moments(np.array([[17.0, 4000.0], [7.0, 1000.0]])))
    >>> first.middle, first.spread.round(1)
    (array([  12., 2500.]), array([  17.3, 5196.2]))
    >>> first.scaled(np.array([[12.0, 4000.0]])).round(2)
    array([[0.  , 0.29]])
    """

    def __init__(self) -> None:
        self.lists = 0
        self.middles: Array = np.zeros(0)  # (d,) sums over lists
        self.spreads: Array = np.zeros(0)  # over those in which the feature differs
        self.differed: Array = np.zeros(0)  # how many those are
        self.middle: Array = np.zeros(0)  # (d,) the scale in use
        self.spread: Array = np.zeros(0)
        self.since: Array = np.zeros(0)  # (d,) lists that do not count for a column; empty: all count for all

    def updated(self, middle: Array, spread: Array) -> StreamScaler:
        """Return the scaler after one more list with these `list_moments`; NaN for columns the list does not have."""
        self._require_width(spread.size)
        made = StreamScaler()
        made.lists = self.lists + 1
        before = self if self.lists else _zeros(spread.size)
        unknown = np.isnan(spread)
        if before.since.size or unknown.any():
            return _updated_by_column(made, before, middle, spread, unknown)
        made.middles, made.spreads = before.middles + middle, before.spreads + spread
        made.differed = before.differed + (spread > 0.0)
        made.middle, made.spread = before.middle, before.spread
        if made.lists & self.lists == 0:  # 1, 2, 4, 8 …
            made.middle = made.middles / made.lists
            size = WIDTH * made.spreads / np.maximum(made.differed, 1.0)
            made.spread = np.where(size > NOISE * np.abs(made.middle), size, 0.0)
        return made

    def scaled(self, rows: Array) -> Array:
        """Return (n, d) rows on the scale in use; before the first list, on their own scale."""
        self._require_width(rows.shape[1])
        if not self.lists:
            return standardize(rows, *_own_sizes(rows), BOUND)
        middle, spread = self.middle, self.spread
        if self.since.size == 0:
            return standardize(rows, middle, spread, BOUND if self.young else LARGEST)
        counted = self.lists - self.since
        own = _own_sizes(rows)
        middle, spread = (np.where(counted > 0, known, here) for known, here in zip((middle, spread), own, strict=True))
        made: Array = standardize(rows, middle, spread, LARGEST)
        bound = np.where(counted < YOUNG, BOUND, LARGEST)
        return np.clip(made, -bound, bound)

    def remapped(self, columns: FeatureMap) -> StreamScaler:
        """Return the scaler for changed feature columns; new ones have been in no list so far."""
        if self.lists == 0 or columns.identity:
            return self
        made = StreamScaler()
        made.lists = self.lists
        for name in ("middles", "spreads", "differed", "middle", "spread"):
            setattr(made, name, columns.weights(getattr(self, name), power=0))
        since = self.since if self.since.size else np.zeros(columns.before)
        since = columns.weights(since, self.lists, power=0)
        made.since = since if since.any() else np.zeros(0)
        return made

    @property
    def young(self) -> bool:
        """Whether so few lists are known that sizes may still change a lot."""
        return self.lists < YOUNG

    def growth(self, before: StreamScaler) -> Array | None:
        """Return (d,) factors that carry weights over from the scale of `before`; None if it is the same scale."""
        if before.lists == 0 or before.spread is self.spread:
            return None
        known = (before.spread > 0.0) & (self.spread > 0.0)
        return np.where(known, self.spread / np.where(known, before.spread, 1.0), 1.0)

    def state(self) -> dict[str, Array]:
        """Return copies of the estimates."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        if not self.since.any():  # not in states that older versions wrote
            del arrays["since"]
        return {"lists": np.array([self.lists], np.int64), **arrays}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> StreamScaler:
        """Restore what `state` returned."""
        made = cls()
        wanted = sorted(vars(made)) if "since" in state else sorted(set(vars(made)) - {"since"})
        if sorted(state) != wanted:
            raise InvalidInput(f"the state of a scaler has {sorted(state)}; it must have {wanted}")
        width = np.shape(state["middle"])
        for name, value in state.items():
            fits = value.shape == ((1,) if name == "lists" else width) and value.ndim == 1
            if not fits or value.dtype != (np.int64 if name == "lists" else np.float64) or not np.isfinite(value).all():
                raise InvalidInput(f"state {name!r} of a scaler is {value.dtype} of shape {value.shape}, or not finite")
            setattr(made, name, int(value[0]) if name == "lists" else value.copy())
        return made

    def _require_width(self, width: int) -> None:
        if self.lists and width != self.middle.size:
            raise InvalidInput(
                f"there are {width} features, but sizes were learned with {self.middle.size}; send the same features "
                "in the same order, or start a new learner"
            )


def _own_sizes(rows: Array) -> tuple[Array, Array]:
    """Return mean and spread of one list."""
    middle, spread = list_moments(rows)
    return middle, WIDTH * spread


def _zeros(width: int) -> StreamScaler:
    """Return a scaler of so many features that has seen no list."""
    made = StreamScaler()
    made.middles, made.spreads, made.differed, made.middle, made.spread = (np.zeros(width) for _ in range(5))
    return made


def _updated_by_column(
    made: StreamScaler, before: StreamScaler, middle: Array, spread: Array, unknown: Array
) -> StreamScaler:
    """Update where columns have counted different numbers of lists: each has its own steps."""
    made.since = (before.since if before.since.size else np.zeros(spread.size)) + unknown
    made.middles = before.middles + np.where(unknown, 0.0, middle)
    made.spreads = before.spreads + np.where(unknown, 0.0, spread)
    made.differed = before.differed + (np.where(unknown, 0.0, spread) > 0.0)
    made.middle, made.spread = before.middle, before.spread
    counted = (made.lists - made.since).astype(np.int64)
    steps = ~unknown & (counted & (counted - 1) == 0)
    if steps.any():
        centers = made.middles / np.maximum(counted, 1)
        sizes = WIDTH * made.spreads / np.maximum(made.differed, 1.0)
        made.middle = np.where(steps, centers, before.middle)
        made.spread = np.where(steps, np.where(sizes > NOISE * np.abs(centers), sizes, 0.0), before.spread)
    return made


@dataclass
class StandardizedLearner:
    """A learner behind a `StreamScaler`, made by `standardized`: it takes raw features and learns from scaled ones.

    Impressions hold the raw rows, and in the memo the moments over all candidates: the shown ones were selected, so
    they vary less. When the scale changes, a learner that implements `LinearScores` carries its weights over.

    Parameters
    ----------
    inner
        The learner; a fresh one with its parameters is what learns.

    Examples
    --------
    >>> from rankloop.learners.pairwise.pairrank import PairRank
    >>> rng = np.random.default_rng(1)
    >>> learner = standardized(PairRank())
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

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Return the ranking that the inner learner shows."""
        return _with_raw_rows(self.inner.rank(self._scaled(candidates), k, rng), candidates)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """Return the impression of a ranking that someone else made."""
        return _with_raw_rows(self.inner.adopt(self._scaled(candidates), order), candidates)

    def best(self, candidates: Candidates, k: int) -> Array:
        """Return the positions that the inner learner believes best."""
        return self.inner.best(self._scaled(candidates), k)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Let the inner learner learn, then update the scale; the first list is learned on its own scale."""
        rows = impression.features
        if rows is None or type(rows) is SparseRows or rows.ndim != 2 or not all_finite(rows):
            raise InvalidInput(
                "the impression has no features, or features that are not finite; pass on what rank returned"
            )
        sizes = memo_of(impression, SIZES, 2, rows.shape[1])
        after = self.scaler.updated(*sizes)
        now = self.scaler if self.scaler.lists else after
        scaled = now.scaled(rows)
        unknown = np.isnan(sizes[0])
        if unknown.any():  # columns that the list did not have: their values are scaled already
            scaled[:, unknown] = rows[:, unknown]
        self.inner.learn(impression._replace(features=scaled), feedback, rng)
        growth = after.growth(self.scaler)
        if growth is not None and isinstance(self.inner, LinearScores):
            self.inner.rescale(growth)
        self.scaler = after

    def state(self) -> dict[str, Array]:
        """Return the state of the inner learner and of the scaler."""
        return {**self.inner.state(), **self._sizes()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore `state`."""
        scaler, rest = _split(state)
        self.inner.load(rest)
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        """Return a learned attribute of the inner learner."""
        if name.endswith("_") and not name.startswith("_"):
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _scaled(self, source: Any) -> Any:
        """Return candidates or an impression on the scale in use."""
        if source.features is None:
            return source  # the inner learner raises the error
        if type(source.features) is SparseRows:
            raise InvalidInput(
                "sparse rows cannot be standardized, because zeros would become other values; give full rows, or use "
                "no normalization"
            )
        rows = self.scaler.scaled(source.features)
        return source.with_rows(rows) if isinstance(source, Candidates) else source._replace(features=rows)

    def _sizes(self) -> dict[str, Array]:
        return {f"{PREFIX}{name}_": array for name, array in self.scaler.state().items()}


def standardized(learner: Learner) -> Any:
    """Return an untrained learner with the same parameters that standardizes its features over the stream."""
    if hasattr(learner, "fit") or hasattr(learner, "label"):
        raise InvalidParameter(
            f"{type(learner).__name__} is trained with the grades of whole data sets, so it cannot learn scales from a "
            "stream; choose the normalization query-minmax"
        )
    before, fresh = learner.state(), clone(learner).state()
    if any(not np.array_equal(before[name], fresh.get(name)) for name in before):  # type: ignore[arg-type]
        raise InvalidParameter(
            f"this {type(learner).__name__} has already learned, and its weights would be lost; call "
            "standardized(clone(learner)) to start again with the same parameters"
        )
    return _class_of(type(learner))(learner)


def unwrapped(learner: Learner) -> Learner:
    """Return the learner without its scaler, if it has one."""
    return learner.inner if isinstance(learner, StandardizedLearner) else learner


def _with_raw_rows(made: Impression, candidates: Candidates) -> Impression:
    """Return the impression with the raw rows and the moments of the candidates' features."""
    rows = candidates.features
    assert isinstance(rows, np.ndarray)  # others are refused earlier
    memo = {**made.memo, SIZES: np.stack(list_moments(rows))}
    return made._replace(features=rows.take(made.order, axis=0), memo=memo)


def _split(state: Mapping[str, Array]) -> tuple[StreamScaler, dict[str, Array]]:
    """Split a state into the scaler and the inner learner's state."""
    sizes = {n.removeprefix(PREFIX).removesuffix("_"): a for n, a in state.items() if n.startswith(PREFIX)}
    return StreamScaler.from_state(sizes), {n: a for n, a in state.items() if not n.startswith(PREFIX)}


@cache
def _class_of(kind: type[Learner]) -> type[StandardizedLearner]:
    """Return the subclass that has the optional capabilities of this kind of learner."""
    told: dict[str, Any] = {"feedback": kind.feedback, "__doc__": StandardizedLearner.__doc__, "__module__": __name__}
    for names, made in ((_ON_ROWS, _on_rows), (_AS_IS, _as_is)):
        told |= {name: made(name) for name in names if hasattr(kind, name)}
    if hasattr(kind, "remap"):
        told |= {"remap": _remap, "carries": getattr(kind, "carries", "")}
    if hasattr(kind, "state_delta"):
        told |= {"state_delta": _state_delta, "apply_delta": _apply_delta}
    return type(f"StandardizedLearner{kind.__name__}", (StandardizedLearner,), told)


_ON_ROWS = ("score", "log_propensity", "score_terms", "explain", "blocks", "certain")
_AS_IS = ("half_widths", "report", "rescale")


def _on_rows(name: str) -> Callable[..., Any]:
    def method(self: StandardizedLearner, source: Candidates | Impression, *more: Any) -> Any:
        return getattr(self.inner, name)(self._scaled(source), *more)

    return method


def _as_is(name: str) -> Callable[..., Any]:
    def method(self: StandardizedLearner, *given: Any) -> Any:
        return getattr(self.inner, name)(*given)

    return method


def _remap(self: Any, columns: FeatureMap) -> None:
    self.inner.remap(columns)
    self.scaler = self.scaler.remapped(columns)


def _state_delta(self: Any, queries: int) -> dict[str, Array]:
    """The inner delta, with all moments: these are few."""
    return {**self.inner.state_delta(queries), **self._sizes()}


def _apply_delta(self: Any, delta: Mapping[str, Array]) -> None:
    scaler, rest = _split(delta)
    self.inner.apply_delta(rest)
    self.scaler = scaler
