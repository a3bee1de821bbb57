"""The protocol every learner follows, and the helpers that keep a learner's own file about its algorithm.

A learner is a dataclass. Its fields are its hyper-parameters; what it learns are arrays whose names end in `_`, made
in `__post_init__`. There is no base class: the functions here work on any such object.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

import rankloop.kernels.compilation  # noqa: F401  (tells who waits on a terminal what is being compiled)
from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopWarning
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression, SparseRows, taken
from rankloop.kernels.input_checks import filled, filled_beside
from rankloop.kernels.ranking import with_places
from rankloop.kernels.sparse import sparse_with_places


@runtime_checkable
class Learner(Protocol):
    """What the lab, the service and the checks ask of a learner."""

    feedback: ClassVar[FeedbackKind]
    contextual: ClassVar[bool]

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list to show, explored where the learner wants to. Changes nothing.

        `rng` is a numpy.random.Generator, or a seed, which draws the same numbers in every call.
        """

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing `order` (positions in the candidate list, top first), which someone else chose.

        The base order in shadow mode, a list whose moves were bounded, an interleaved list: `learn` takes it like one
        of its own. No randomness, changes nothing.
        """

    def best(self, candidates: Candidates, k: int) -> Array:
        """(k,) positions of what the learner believes best, top first. No randomness, changes nothing."""

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Take in what the user did. The only method that changes the learner."""

    def state(self) -> dict[str, Array]:
        """Copies of everything learned, as plain arrays."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`, bit for bit; all or nothing."""


_FINITE = float(np.finfo(np.float64).max)
AnyLearner = TypeVar("AnyLearner", bound=Learner)


# -- parameters ----------------------------------------------------------------------------------------------------


def params(learner: Learner) -> dict[str, Any]:
    """The hyper-parameters, as JSON would say them."""
    return {f.name: plain(getattr(learner, f.name)) for f in dataclasses.fields(learner) if f.init}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A parameter without numpy's own numbers, flags and strings, which JSON cannot say.

    >>> plain({"rate": np.float32(0.5), "sizes": (np.int64(3), np.bool_(True))})
    {'rate': 0.5, 'sizes': [3, True]}
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def clone(learner: AnyLearner) -> AnyLearner:
    """A fresh learner with the same parameters that has learned nothing."""
    return type(learner)(**params(learner))


def require(rule: bool, name: str, value: object, text: str) -> None:
    """Refuse a parameter: `require(rate > 0, "rate", rate, "must be above 0")`."""
    if not rule:
        raise InvalidParameter(f"{name} is {value!r}; it {text}")


def require_number(name: str, value: object, least: float = -np.inf, *, above: bool = False) -> None:
    """Refuse a parameter that is not a finite number of at least (or `above`) `least`."""
    largest = float(np.finfo(np.float64).max)  # an int may be larger, and then is no number that a learner could use
    value = plain(value)
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= largest
    require(number, name, value, "must be a finite number")
    if above:
        require(value > least, name, value, f"must be above {least:g}")  # type: ignore[operator]
    else:
        require(value >= least, name, value, f"must be at least {least:g}")  # type: ignore[operator]


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a parameter that is not a whole number of at least `least` and at most `most`."""
    bounds = f"of at least {least}" + ("" if most is None else f" and at most {most}")
    value = plain(value)
    fits = (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= (value if most is None else most)
    )
    require(fits, name, value, f"must be a whole number {bounds}")


def require_flag(name: str, value: object) -> None:
    """Refuse a parameter that is not true or false."""
    require(isinstance(value, bool | np.bool_), name, value, "must be true or false")


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a parameter that is not one of `choices`."""
    require(value in choices, name, value, f"must be one of {', '.join(choices)}")


# -- candidates, impressions, feedback -----------------------------------------------------------------------------


def rows_of(source: Candidates | Impression, width: int, base: bool = False) -> Array:
    """The features of candidates or of what was shown, for a learner that knows `width` of them (0: none yet).

    With `base` the caller's order is one feature more, the last of `width`: -log(1 + position in the candidate list).
    """
    rows: Array = source.features
    if type(rows) is not np.ndarray:
        _refuse_rows(rows)
    if type(source) is Candidates and source.unscaled:
        _warn_of_unscaled(rows)
    if width and rows.shape[1] != width - base:
        raise _wrong_width(rows, width - base)
    if not base:
        return rows
    return with_places(rows, _places(source))


def wide_rows_of(source: Candidates | Impression, width: int, base: bool = False) -> Array | SparseRows:
    """The same for learners that take sparse rows, too."""
    rows = source.features
    if type(rows) is not SparseRows:
        return rows_of(source, width, base)
    if type(source) is Candidates and source.unscaled:
        _warn_of_unscaled(rows)
    if width and rows.width != width - base:
        raise _wrong_width(rows, width - base)
    if not base:
        return rows
    parts = sparse_with_places(rows.indptr, rows.indices, rows.values, _places(source), rows.width)
    return SparseRows.without_copy(*parts, rows.width + 1)


def _places(source: Candidates | Impression) -> Array:
    """(n,) where each document stands in the candidate list."""
    return source.order if isinstance(source, Impression) else np.arange(len(source.features))


def _wrong_width(rows: Array | SparseRows, width: int) -> InvalidInput:
    return InvalidInput(
        f"candidates have {rows.shape[1]} features, but this learner has learned with {width}; "
        "send the same features in the same order, or start a new learner"
    )


def _refuse_rows(rows: object) -> None:
    """What is no table of numbers."""
    if rows is None:
        raise InvalidInput("this learner needs features, but the candidates have none; give (n, d) numbers")
    if type(rows) is SparseRows:
        raise InvalidInput(
            f"the rows are sparse, {rows.shape[0]} x {rows.width}, and this learner takes tables only; choose "
            "pairrank or hybrid with confidence='diagonal', or squarecb, or give rows.dense() where that is small"
        )


_warned: set[str] = set()  # what this process has been warned of: once is enough


def _warn_of_unscaled(rows: Array | SparseRows) -> None:
    if "unscaled" not in _warned:
        _warned.add("unscaled")
        values = rows.values if isinstance(rows, SparseRows) else rows
        at = int(np.abs(values).argmax())
        if isinstance(rows, SparseRows):
            i, j = int(np.searchsorted(rows.indptr, at, "right")) - 1, int(rows.indices[at])
        else:
            i, j = divmod(at, rows.shape[1])
        warnings.warn(
            f"features[{i}, {j}] is {values.flat[at]:g}: features of very different size teach badly, as the largest "
            "outweighs the rest; give rankloop.scaled(candidates), or standardize them yourself",
            RankloopWarning,
            stacklevel=_outside(),
        )


def _outside() -> int:
    """How far up the first caller is that is no part of rankloop: what a warning is about."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("rankloop"):
        level, frame = level + 1, frame.f_back
    return level


def memo_of(impression: Impression, name: str, *shape: int) -> Array:
    """An array of the impression's memo, which must have this shape: kernels do not look whether it has."""
    value = impression.memo.get(name)
    if value is None or value.shape != shape or value.dtype != np.float64:
        found = "nothing" if value is None else f"{value.dtype} of shape {value.shape}"
        raise InvalidInput(
            f"the impression's memo has {found} as {name!r}, not float64 of shape {shape}; "
            "learn from what this kind of learner has ranked"
        )
    return value


def resolve_k(candidates: Candidates, k: int) -> int:
    """How many positions to fill: k, or the number of candidates if that is smaller."""
    if (type(k) is not int and (not isinstance(k, int | np.integer) or isinstance(k, bool))) or k < 1:
        raise InvalidInput(f"k is {k!r}; it must be a whole number, and at least one position must be shown")
    return min(int(k), len(candidates.items))


def checked_order(candidates: Candidates, order: ArrayLike) -> Array:
    """(k,) a copy of an order that someone else chose: different positions of the candidate list, as int64."""
    try:
        given = np.asarray(order)
    except ValueError:
        raise InvalidInput("order holds lists of different lengths; give a list of positions, top first") from None
    if given.ndim != 1 or given.size == 0:
        raise InvalidInput(f"order has shape {given.shape}; give a list of at least one position, top first")
    if given.dtype.kind not in "iu":
        raise InvalidInput(f"order is of type {given.dtype}; positions must be whole numbers: give integers")
    if given.size > candidates.n:
        raise InvalidInput(f"order has {given.size} positions for {candidates.n} candidates; show each at most once")
    outside = np.flatnonzero((given < 0) | (given >= candidates.n))
    if outside.size:
        raise InvalidInput(
            f"order[{outside[0]}] is {given[outside[0]]}; positions count from 0 and must be below {candidates.n}, "
            "the number of candidates"
        )
    positions = given.astype(np.int64)
    times = np.bincount(positions)
    if times.max() > 1:
        raise InvalidInput(f"position {times.argmax()} stands twice in the order; show each candidate at most once")
    return positions


DRAWN = ("log_propensity", "candidates")  # memo entries for others than the learner: `learn` does not read them


def make_impression(
    candidates: Candidates,
    order: Array,
    memo: Mapping[str, Array] | None = None,
    log_propensity: float | None = None,
    rows: Any = None,
) -> Impression:
    """The impression of showing `candidates` in `order`; `rows` (k, d) are its features, if a kernel copied them.

    A ranking that was drawn with a known probability has its `log_propensity` (1,) and the number of `candidates` (1,)
    in its memo. An adopted ranking has neither.
    """
    if rows is None:
        rows = candidates.features
        rows = rows.take(order, axis=0) if type(rows) is np.ndarray else taken(rows, order)
    memo = memo or {}
    if log_propensity is not None:
        drawn = {"log_propensity": np.array([log_propensity]), "candidates": np.array([len(candidates.items)])}
        memo = {**memo, **drawn}
    return Impression(candidates.query, order, candidates.items[order], rows, memo)


def checked_values(learner: Learner, impression: Impression, feedback: Feedback) -> Array:
    """(k,) the feedback as float64, slots that were not reported filled with 0; clicks are from 0 to 1."""
    if feedback.kind != learner.feedback:
        raise InvalidInput(
            f"feedback is {feedback.kind!r}, but {type(learner).__name__} learns from {learner.feedback!r}; "
            "send that kind or choose another learner"
        )
    k, features = len(impression.order), impression.features
    if len(impression.items) != k:
        raise InvalidInput(f"the impression has {k} positions but {len(impression.items)} items")
    reported = feedback.values
    if type(reported) is not np.ndarray or reported.dtype != np.float64:
        try:
            reported = np.asarray(reported, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInput(f"feedback is {feedback.values!r}; give a number for each slot") from None
    if reported.ndim != 1 or reported.size > k:
        raise InvalidInput(f"feedback has shape {reported.shape} for {k} shown items; give at most one value a slot")
    most = 1.0 if feedback.kind == "clicks" else _FINITE
    if features is None:
        values, fine = filled(reported, k, most)
    else:
        if len(features.shape) != 2 or len(features) != k:
            raise InvalidInput(
                f"the impression's features have shape {features.shape} for {k} positions; pass on the impression as "
                "rank made it"
            )
        if type(features) is SparseRows:  # which are finite, or would not be there
            (values, fine), finite = filled(reported, k, most), True
        else:
            values, fine, finite = filled_beside(reported, features, most)
        if not finite:
            raise InvalidInput("the impression's features are not finite; pass on the impression as rank made it")
    if not fine:
        rule = "from 0 to 1: divide rewards by the highest" if most == 1.0 else "of at least 0"
        raise InvalidInput(f"feedback is {reported.tolist()}; every value must be a finite number {rule}")
    return values


def seen_of(impression: Impression, feedback: Feedback) -> int:
    """How many of the first positions came into view, as kernels take it: -1 where that is not known."""
    seen = feedback.seen
    if seen is None:
        return -1
    if not isinstance(seen, int | np.integer) or isinstance(seen, bool) or not 0 <= seen <= impression.k:
        raise InvalidInput(f"seen is {seen!r}; it must be a whole number from 0 to {impression.k}, the positions shown")
    return int(seen)


def bernoulli_clicks(values: Array, rng: np.random.Generator | int) -> Array:
    """(k,) rewards as clicks: each is one with the probability of its value, for learners that count clicks.

    On average nothing changes, and what holds for clicks that come with a probability holds for rewards in [0, 1]
    (Agrawal & Goyal, COLT 2012, Algorithm 2, do so for Thompson sampling). Plain clicks need no coin.
    """
    if any(0.0 < value < 1.0 for value in values.tolist()):  # of a few numbers: quicker than numpy
        return (as_rng(rng).random(values.size) < values).astype(np.float64)
    return values


# -- state ---------------------------------------------------------------------------------------------------------


def learned_names(learner: object) -> list[str]:
    """The names of the arrays that a learner or a model has learned: its attributes that end in `_`."""
    return sorted(name for name in vars(learner) if name.endswith("_") and not name.startswith("_"))


def state_of(learner: object) -> dict[str, Array]:
    """Copies of the learned arrays."""
    return {name: np.array(getattr(learner, name)) for name in learned_names(learner)}


def load_state(learner: object, state: Mapping[str, Array], shapes: Mapping[str, tuple[str | int, ...]]) -> None:
    """Replace the learned arrays by copies of `state`, once all of it has been checked.

    `shapes` says what must fit together: {"theta_": ("d",), "inverse_": ("d", "d")} wants the same d in both.
    """
    names = learned_names(learner)
    if sorted(state) != names:
        raise InvalidInput(f"state has {sorted(state)}, but {type(learner).__name__} learns {names}")
    sizes: dict[str, int] = {}
    fresh: dict[str, Array] = {}
    for name in names:
        value = np.array(state[name], order="C")
        dtype = getattr(learner, name).dtype
        if value.dtype != dtype and not (dtype.kind == "U" == value.dtype.kind):
            raise InvalidInput(f"state {name!r} has type {value.dtype}; it must be {dtype}")
        shape = shapes[name]
        fits = value.ndim == len(shape) and all(
            size == (sizes.setdefault(want, size) if isinstance(want, str) else want)
            for size, want in zip(value.shape, shape, strict=True)
        )
        if not fits:
            raise InvalidInput(f"state {name!r} has shape {value.shape}; it must be {shape} with the other arrays'")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InvalidInput(f"state {name!r} holds a number that is not finite; restore an older version")
        fresh[name] = value
    for name, value in fresh.items():
        setattr(learner, name, value)
