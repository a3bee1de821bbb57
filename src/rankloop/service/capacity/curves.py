"""A cost as a function of a list's size, fitted to measured points, and how far off the fit is.

A curve is a sum of terms that a cost can have (a part that is always there, one for each candidate, one for each
number that is read, one for each entry of a matrix, …), none of them below zero: nothing gets cheaper by being more.
Points count by their relative error, so that small lists matter as much as large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput


class Size(NamedTuple):
    """Of a list: candidates, features of each, and how many are shown."""

    n: int
    d: int
    k: int = 10


TERMS: dict[str, Callable[[Size], float]] = {
    "1": lambda _: 1.0,
    "n": lambda size: size.n,
    "d": lambda size: size.d,
    "k": lambda size: size.k,
    "n d": lambda size: size.n * size.d,
    "k d": lambda size: size.k * size.d,
    "d d": lambda size: size.d * size.d,
    "n d d": lambda size: size.n * size.d * size.d,
    "k d d": lambda size: size.k * size.d * size.d,
}
SMALL = 1e-6  # of the largest value: a term that never makes more is left out
FLOOR = 1e-9  # seconds, or bytes: relative errors of less are noise


@dataclass(frozen=True)
class Curve:
    """Terms and what each costs; `typical` and `worst` are relative errors at points that were left out of the fit.

    >>> Curve({"1": 2.0, "n d": 0.5}).at(Size(10, 4))
    22.0
    """

    parts: Mapping[str, float]
    typical: float = 0.0
    worst: float = 0.0
    points: int = 0

    def __post_init__(self) -> None:
        for name, value in self.parts.items():
            if name not in TERMS:
                raise InvalidInput(f"a curve has the term {name!r}; there are {', '.join(map(repr, TERMS))}")
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise InvalidInput(f"a curve has {value!r} for {name!r}; it must be a finite number of at least 0")

    def at(self, size: Size) -> float:
        """What it says."""
        return sum(value * TERMS[name](size) for name, value in self.parts.items())

    def text(self, unit: float = 1e-6) -> str:
        """As a formula; `unit` is what its numbers are in, microseconds if not said.

        >>> Curve({"1": 3e-6, "n d": 1.5e-8}).text()
        '3 + 0.015 n d'
        """
        parts = [f"{value / unit:.3g}" + ("" if name == "1" else f" {name}") for name, value in self.parts.items()]
        return " + ".join(parts) or "0"


def fitted(terms: Sequence[str], sizes: Sequence[Size], values: Sequence[float]) -> Curve:
    """The curve nearest to the values, and its errors at each point when fitted to the others.

    >>> curve = fitted(["1", "n"], [Size(1, 1), Size(2, 1), Size(3, 1), Size(4, 1)], [3.0, 5.0, 7.0, 9.0])
    >>> curve.text(1.0), curve.points
    ('1 + 2 n', 4)
    """
    return fitted_together(terms, (), sizes, [0.0] * len(sizes), values)[0]


def fitted_together(
    lists: Sequence[str],
    events: Sequence[str],
    sizes: Sequence[Size],
    shares: Sequence[float],
    values: Sequence[float],
) -> tuple[Curve, Curve]:
    """Two curves, of a list and of an event, nearest to what lists took of which a share had an event each.

    The errors are those of the sum, and both curves have them.
    """
    if not len(sizes) == len(values) == len(shares) or len(values) < 2:
        raise InvalidInput(f"{len(sizes)} sizes and {len(values)} values; a curve needs two or more of both")
    told = np.asarray(values, dtype=float)
    if not np.all(np.isfinite(told)):
        raise InvalidInput("a measured value is not finite; measure again")
    rows = np.array(
        [
            [*(TERMS[name](size) for name in lists), *(share * TERMS[name](size) for name in events)]
            for size, share in zip(sizes, shares, strict=True)
        ],
        dtype=float,
    )
    found = _solved(rows, told)
    errors = [0.0]
    for left in range(len(told)):
        others = np.arange(len(told)) != left
        if len({tuple(row) for row in rows[others]}) >= rows.shape[1]:
            guess = rows[left] @ _solved(rows[others], told[others])
            errors.append(float(abs(guess - told[left]) / max(abs(told[left]), FLOOR)))
    typical, worst = round(float(np.median(errors[1:] or errors)), 4), round(max(errors), 4)
    most = (rows * found).max(axis=0) / max(float(np.abs(told).max()), FLOOR)
    parts = [(name, float(value)) for name, value in zip([*lists, *events], found, strict=True)]
    kept = [dict(parts[i] for i in where if most[i] > SMALL) for where in _halves(len(lists), len(parts))]
    return Curve(kept[0], typical, worst, len(told)), Curve(kept[1], typical, worst, len(told))


def _halves(first: int, all_: int) -> tuple[range, range]:
    return range(first), range(first, all_)


def _solved(rows: Any, values: Any) -> Any:
    from scipy.optimize import nnls

    weights = 1 / np.maximum(np.abs(values), FLOOR)
    scale = np.maximum(np.abs(rows * weights[:, None]).max(axis=0), FLOOR)  # terms differ by many orders of magnitude
    found, _ = nnls(rows * weights[:, None] / scale, values * weights)
    return found / scale
