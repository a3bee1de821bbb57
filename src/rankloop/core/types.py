"""The values that pass between a caller, a learner and a user: candidates, impression, feedback. Immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankloop.core.errors import InvalidInput
from rankloop.core.sparse import LARGEST as LARGEST
from rankloop.core.sparse import SparseRows as SparseRows

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Ids = NDArray[np.int64] | NDArray[np.str_]
Rows = Any  # (n, d) an Array, or SparseRows: who takes the second asks; `learner.rows_of` refuses it for all others
FeedbackKind = Literal["clicks", "grades"]
UNSCALED = 100.0  # one beyond it has been neither scaled to [0, 1] nor standardized: a hundred standard deviations


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Candidates:
    """The items that may be shown for one query, in the order of the baseline ranking. Checked and copied.

    Parameters
    ----------
    query
        Key for learners that keep state per query.
    items
        (n,) unique ids, integers or strings (default 0 … n-1): a list, an array, or a column of pandas, polars, Arrow.
    features
        (n, d) finite numbers, one row per item, or None: a list of rows, an array, a frame of pandas or polars, an
        Arrow table, `SparseRows` or a sparse matrix of scipy. `rankloop.scaled` brings features to the same scale.

    Examples
    --------
    >>> Candidates("red shoes", items=["a", "b"], features=[[0.1, 1.0], [0.7, 0.0]]).n
    2
    >>> Candidates(features=[[0.1], [float("nan")]])
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: features[1, 0] is nan; features must be finite numbers: replace or drop it
    """

    query: str
    items: Ids
    features: Rows  # None: no features
    unscaled: bool  # whether a feature is beyond ±UNSCALED; learners warn

    def __init__(self, query: str = "", items: ArrayLike | None = None, features: Any = None) -> None:
        _fill(self, query, items, None if features is None else as_rows(features))

    @classmethod
    def without_copy(cls, query: str, items: ArrayLike | None, features: Rows) -> Candidates:
        """Make candidates of a (n, d) C-ordered float64 array, or `SparseRows`, that nobody changes any more.

        >>> rows = np.eye(2)
        >>> Candidates.without_copy("q", None, rows).features is rows
        True
        """
        made = object.__new__(cls)
        if features is not None and type(features) is not SparseRows:
            features = np.ascontiguousarray(features, dtype=np.float64)
        _fill(made, query, items, features)
        return made

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        query: str = "",
        id: str | None = None,  # noqa: A002
        features: Iterable[str] | None = None,
    ) -> Candidates:
        """Make candidates from a frame of pandas or polars, an Arrow table or a dictionary of columns.

        Parameters
        ----------
        frame
            Anything with named columns, `frame[name]`.
        query
            Key for learners that keep state per query.
        id
            The column with the ids; by default, candidates are numbered.
        features
            The feature columns, in order; by default all others.

        Examples
        --------
        >>> shoes = {"doc_id": ["a", "b"], "bm25": [7.5, 3.0], "fresh": [True, False]}
        >>> Candidates.from_frame(shoes, "red shoes", id="doc_id", features=["bm25", "fresh"]).features
        array([[7.5, 1. ],
               [3. , 0. ]])
        """
        known = column_names(frame)
        wanted = [name for name in known if name != id] if features is None else list(features)
        for name in wanted if id is None else [id, *wanted]:
            if name not in known:
                raise InvalidInput(f"the frame has no column {name!r}; it has {', '.join(map(str, known))}")
        if not wanted:
            return cls(query, None if id is None else frame[id])
        rows = np.empty((len(frame[wanted[0]]), len(wanted)))
        for j, name in enumerate(wanted):
            rows[:, j] = as_numbers(frame[name], name)
        return cls.without_copy(query, None if id is None else frame[id], rows)

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.items)

    def head(self, m: int) -> Candidates:
        """Return views of the first m candidates."""
        part = object.__new__(Candidates)
        object.__setattr__(part, "query", self.query)
        object.__setattr__(part, "items", self.items[:m])
        rows = self.features
        object.__setattr__(
            part, "features", rows.head(m) if type(rows) is SparseRows else None if rows is None else rows[:m]
        )
        object.__setattr__(part, "unscaled", self.unscaled)
        return part

    def with_rows(self, rows: Floats) -> Candidates:
        """Return the same candidates with scaled features, (n, d) C-ordered and finite, without checks."""
        made = self.head(self.n)
        object.__setattr__(made, "features", rows)
        object.__setattr__(made, "unscaled", False)
        return made


def _fill(made: Candidates, query: str, items: ArrayLike | None, rows: Rows) -> None:
    """Check and set the fields; `rows` belong to the candidates."""
    if type(rows) is SparseRows:
        largest = float(np.abs(rows.values).max(initial=0.0))
    else:
        largest = 0.0 if rows is None else _checked_size(rows)
    if items is not None:
        ids = _checked_items(items)
    elif rows is not None:
        ids = np.arange(len(rows))
    else:
        raise InvalidInput("candidates have neither items nor features; give at least one of them")
    if rows is not None and len(rows) != len(ids):
        raise InvalidInput(f"{len(ids)} items but {len(rows)} feature rows; there must be one row per item")
    object.__setattr__(made, "query", str(query))
    object.__setattr__(made, "items", ids)
    object.__setattr__(made, "features", rows)
    object.__setattr__(made, "unscaled", largest > UNSCALED)


class Impression(NamedTuple):
    """What was shown, and all that `learn` needs beside the learner's state."""

    query: str
    order: Ints  # (k,) positions among the candidates, top first
    items: Ids  # (k,) the ids shown
    features: Rows  # (k, d) the rows shown; None: no features
    memo: Mapping[str, Array]  # what this learner needs later, such as propensities

    @property
    def k(self) -> int:
        """Number of items shown."""
        return len(self.order)


class Feedback(NamedTuple):
    """What the user did, by position from the top; may be shorter than the ranking.

    >>> Feedback.clicks([0, 1]).kind
    'clicks'
    """

    kind: FeedbackKind
    values: Floats | Ints | Bools  # (m,), m <= k; clicks are from 0 to 1
    seen: int | None = None  # number of positions viewed; None: unknown

    @classmethod
    def clicks(cls, values: ArrayLike, seen: int | None = None) -> Feedback:
        """Make feedback from clicks by position: 1 clicked, 0 not, or a reward in between.

        `seen` is the number of positions viewed; without it, learners infer examination from the clicks.

        >>> Feedback.clicks([0, 0.3, 1], seen=5).seen
        5
        """
        return cls("clicks", np.asarray(values), seen)

    @classmethod
    def clicked(cls, impression: Impression, ids: Iterable[Any], seen: int | None = None) -> Feedback:
        """Make feedback from the ids that were clicked."""
        return cls.rewards(impression, dict.fromkeys(ids, 1.0), seen)

    @classmethod
    def rewards(cls, impression: Impression, worth: Mapping[Any, float], seen: int | None = None) -> Feedback:
        """Make feedback from rewards by id, 0 to 1.

        >>> shown = Impression("", np.arange(2), np.array(["hat", "shoe"]), None, {})
        >>> Feedback.rewards(shown, {"shoe": 0.3}).values
        array([0. , 0.3])
        """
        items = impression.items.tolist()
        strange = sorted(map(repr, set(worth).difference(items)))
        if strange:
            raise InvalidInput(f"clicked but not shown: {', '.join(strange)}; report clicks on shown items only")
        return cls("clicks", np.array([worth.get(item, 0.0) for item in items], dtype=np.float64), seen)

    @classmethod
    def grades(cls, values: ArrayLike) -> Feedback:
        """Make feedback from grades of the first m items."""
        return cls("grades", np.asarray(values))


def taken(rows: Rows, order: Ints) -> Rows:
    """Return copies of the rows at these positions; None if there are no rows."""
    if rows is None:
        return None
    return rows.take(order) if type(rows) is SparseRows else rows.take(order, axis=0)


def as_rows(features: Any) -> Rows:
    """Return a C-ordered float64 copy of any table; sparse rows stay sparse."""
    if type(features) is SparseRows:
        return features
    if hasattr(features, "tocsr"):  # scipy, which numpy would treat as an object
        return SparseRows.from_scipy(features)
    return as_table(features)


def as_table(features: Any) -> Floats:
    """Return a C-ordered float64 copy of any table."""
    if hasattr(features, "column_names"):  # Arrow tables are not arrays, but their columns are
        names = list(features.column_names)
        columns = [as_numbers(features[name], name) for name in names]
        return np.stack(columns, axis=1) if columns else np.empty((0, 0))
    try:
        return np.array(features, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None


def column_names(frame: Any) -> list[Any]:
    """Return the column names of a frame."""
    for place in ("column_names", "columns"):  # of Arrow, of pandas and polars
        if hasattr(frame, place):
            return list(getattr(frame, place))
    if isinstance(frame, Mapping):
        return list(frame)
    raise InvalidInput(f"a {type(frame).__name__} has no named columns; give a frame, an Arrow table or a dictionary")


def as_numbers(column: Any, name: Any) -> Floats:
    """Return a column as floats; missing values become NaN."""
    try:
        if hasattr(column, "to_pylist"):
            return np.array(column.to_pylist(), dtype=np.float64)
        if hasattr(column, "to_numpy"):
            return np.asarray(column.to_numpy(), dtype=np.float64)
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"column {name!r} does not hold numbers ({error}); name the columns to rank by") from None


def _checked_size(rows: Floats) -> float:
    """Check a table and return its largest absolute value."""
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] == 0:
        raise InvalidInput(f"features have shape {rows.shape}; they must be (n, d) with at least one row and column")
    highest, lowest = float(rows.max()), float(rows.min())
    if highest <= LARGEST and lowest >= -LARGEST:  # false for nan
        return max(highest, -lowest)
    if not np.isfinite(rows).all():
        i, j = (int(v) for v in np.argwhere(~np.isfinite(rows))[0])
        raise InvalidInput(f"features[{i}, {j}] is {rows[i, j]}; features must be finite numbers: replace or drop it")
    i, j = (int(v) for v in np.argwhere(np.abs(rows) > LARGEST)[0])
    raise InvalidInput(
        f"features[{i}, {j}] is {rows[i, j]}; features must lie within ±{LARGEST:g}: scale it, or mark it missing"
    )


def _checked_items(items: Any) -> Ids:
    """Return a copy of unique ids, int64 or str."""
    given = items
    if type(given) is list and set(map(type, given)) == {str}:  # fast path for requests
        return _unique(np.array(given, dtype=np.str_), given)
    if hasattr(given, "to_pylist"):  # Arrow
        given = given.to_pylist()
    elif hasattr(given, "to_numpy"):  # pandas, polars
        given = given.to_numpy()
    try:
        ids = np.array(given)
    except ValueError:
        raise InvalidInput("items are lists of different lengths; give a list of ids") from None
    if ids.ndim != 1 or ids.size == 0:
        raise InvalidInput(f"items have shape {ids.shape}; give a list of at least one id")
    kind = ids.dtype.kind
    if kind == "u" and ids.max() > np.iinfo(np.int64).max:
        raise InvalidInput(f"item {ids.max()} is beyond {np.iinfo(np.int64).max}; ids must all be integers of 64 bits")
    if kind in "iu":
        ids = ids.astype(np.int64, copy=False)
    elif kind != "U" or not (isinstance(given, np.ndarray) or all(isinstance(item, str) for item in given)):
        # numpy converts [1, "a"] to strings
        ids = _ids_of(given if isinstance(given, list | tuple) else ids.tolist())
    return _unique(ids, ids.tolist())


def _unique(ids: Ids, listed: Sequence[Any]) -> Ids:
    """Return the ids if they are unique; `listed` are the same as Python objects."""
    if len(set(listed)) != len(listed):
        seen: set[Any] = set()
        double = next(i for i in listed if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InvalidInput(f"item {double!r} occurs twice in the candidates; ids must be unique")
    return ids


def _ids_of(listed: Sequence[Any]) -> Ids:
    """Return ids of Python objects, which must all be strings or all be integers."""
    if all(isinstance(item, str) for item in listed):
        return np.array(listed, dtype=np.str_)
    rule = "ids must all be integers or all be strings"
    for place, item in enumerate(listed):
        if item is None or type(item).__name__ == "NAType" or item != item:  # NaN is not itself
            raise InvalidInput(f"items[{place}] is {item}: missing; {rule}, and none may be missing")
        if isinstance(item, bool | np.bool_) or not isinstance(item, str | int | np.integer):
            remedy = "write them as strings, or number the candidates"
            raise InvalidInput(f"items[{place}] is {item!r:.100}, a {type(item).__name__}; {rule}: {remedy}")
        if isinstance(item, str) != isinstance(listed[0], str):
            raise InvalidInput(f"items[0] is {listed[0]!r:.100}, but items[{place}] is {item!r:.100}; {rule}")
    try:
        return np.array([int(item) for item in listed], dtype=np.int64)
    except OverflowError:
        raise InvalidInput(f"items are {list(listed)!r:.200}; ids must all be integers of 64 bits") from None
