"""The nouns that pass between a caller, a learner and a user: candidates, impression, feedback.

They are plain, immutable values. A learner never keeps one, so any number can be open at the same time and feedback
may come late, out of order or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankloop.errors import InvalidInput

Array = NDArray[Any]
FeedbackKind = Literal["clicks", "grades"]
LARGEST = 1e100  # a feature beyond it would overflow when squared and summed


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Candidates:
    """What may be shown for one query, in the order the caller would show it (the base order).

    Checked when it is made, so every `Candidates` that exists is well formed and no learner checks it again.

    Parameters
    ----------
    query
        Key for learners that keep state per query; the others ignore it.
    items
        (n,) unique ids, integers or strings; 0 … n-1 if left out.
    features
        (n, d) finite numbers, a row an item; None for learners that only know ids.

    Examples
    --------
    >>> Candidates("red shoes", items=["a", "b"], features=[[0.1, 1.0], [0.7, 0.0]]).n
    2
    >>> Candidates(features=[[0.1], [float("nan")]])
    Traceback (most recent call last):
    ...
    rankloop.errors.InvalidInput: features[1, 0] is nan; features must be finite numbers: replace or drop it
    """

    query: str
    items: Array
    features: Array | None

    def __init__(self, query: str = "", items: ArrayLike | None = None, features: ArrayLike | None = None) -> None:
        rows = None if features is None else _checked_features(features)
        if items is not None:
            ids = _checked_items(items)
        elif rows is not None:
            ids = np.arange(len(rows))
        else:
            raise InvalidInput("candidates have neither items nor features; give at least one of them")
        if rows is not None and len(rows) != len(ids):
            raise InvalidInput(f"{len(ids)} items but {len(rows)} feature rows; there must be one row an item")
        object.__setattr__(self, "query", str(query))
        object.__setattr__(self, "items", ids)
        object.__setattr__(self, "features", rows)

    @property
    def n(self) -> int:
        """How many there are, at least 1."""
        return len(self.items)

    def head(self, m: int) -> Candidates:
        """The first m of them; views, nothing is checked again."""
        part = object.__new__(Candidates)
        object.__setattr__(part, "query", self.query)
        object.__setattr__(part, "items", self.items[:m])
        object.__setattr__(part, "features", None if self.features is None else self.features[:m])
        return part


class Impression(NamedTuple):
    """What was shown, and all that `learn` may look at beside the learner's own state."""

    query: str
    order: Array  # (k,) positions in the candidate list, top first
    items: Array  # (k,) the ids shown
    features: Array | None  # (k, d) the rows shown, copied
    memo: Mapping[str, Array]  # what this learner needs later: scores at display time, propensities, credit

    @property
    def k(self) -> int:
        """How many items were shown."""
        return len(self.order)


class Feedback(NamedTuple):
    """What the user did, slot by slot from the top; may be shorter than the list that was shown.

    >>> Feedback.clicks([0, 1]).kind
    'clicks'
    """

    kind: FeedbackKind
    values: Array  # (m,), m <= k

    @classmethod
    def clicks(cls, values: ArrayLike) -> Feedback:
        """1 for a clicked slot, 0 for the others."""
        return cls("clicks", np.asarray(values))

    @classmethod
    def clicked(cls, impression: Impression, ids: Iterable[Any]) -> Feedback:
        """The same from the ids that were clicked, which is what most logs hold."""
        wanted = set(ids)
        values = np.array([item in wanted for item in impression.items.tolist()], dtype=np.float64)
        if int(values.sum()) != len(wanted):
            strange = sorted(map(repr, wanted.difference(impression.items.tolist())))
            raise InvalidInput(f"clicked but not shown: {', '.join(strange)}; report clicks on shown items only")
        return cls("clicks", values)

    @classmethod
    def grades(cls, values: ArrayLike) -> Feedback:
        """The grade the user gave to each of the first m items."""
        return cls("grades", np.asarray(values))


def _checked_features(features: ArrayLike) -> Array:
    try:
        rows = np.ascontiguousarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] == 0:
        raise InvalidInput(f"features have shape {rows.shape}; they must be (n, d) with at least one row and column")
    if rows.max() <= LARGEST and rows.min() >= -LARGEST:  # never true of nan
        return rows
    if not np.isfinite(rows).all():
        i, j = (int(v) for v in np.argwhere(~np.isfinite(rows))[0])
        raise InvalidInput(f"features[{i}, {j}] is {rows[i, j]}; features must be finite numbers: replace or drop it")
    i, j = (int(v) for v in np.argwhere(np.abs(rows) > LARGEST)[0])
    raise InvalidInput(
        f"features[{i}, {j}] is {rows[i, j]}; features must lie within ±{LARGEST:g}: scale it, or mark it missing"
    )


def _checked_items(items: ArrayLike) -> Array:
    try:
        ids = np.asarray(items)
    except ValueError:
        raise InvalidInput("items are lists of different lengths; give a list of ids") from None
    mixed = ids.dtype.kind == "U" and not isinstance(items, np.ndarray) and not all(isinstance(i, str) for i in items)  # type: ignore[union-attr]
    if mixed or (ids.dtype.kind == "u" and ids.size and ids.max() > np.iinfo(np.int64).max):
        raise InvalidInput(f"items are {items!r:.200}; ids must all be integers of 64 bits or all be strings")
    if ids.ndim != 1 or ids.size == 0:
        raise InvalidInput(f"items have shape {ids.shape}; give a list of at least one id")
    if ids.dtype.kind in "iu":
        ids = ids.astype(np.int64, copy=False)
    elif ids.dtype.kind != "U":
        raise InvalidInput(f"items are of type {ids.dtype}; ids must all be integers or all be strings")
    listed = ids.tolist()
    if len(set(listed)) != len(listed):
        seen: set[Any] = set()
        double = next(i for i in listed if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InvalidInput(f"item {double!r} stands twice in the candidates; ids must be unique")
    return ids
