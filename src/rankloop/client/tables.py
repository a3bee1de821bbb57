"""Tables of features as the clients send them, of whatever holds them: packed numbers, or columns by name.

Without numpy, so that a client can be installed where there is none; who gives an array has it, and then it is used.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankloop.core.errors import InvalidInput


def of_rows(rows: list[Any]) -> Any:
    """The features of rows that are all alike, finite numbers and no gaps, as one table; None of any others, which are
    sent row by row, once somebody has looked at each number."""
    first = rows[0]
    try:
        if isinstance(first, Mapping):
            if all(type(name) is str for name in first) and all(row.keys() == first.keys() for row in rows):
                columns = zip(*([row[name] for name in first] for row in rows), strict=True)
                found = {name: array("d", column) for name, column in zip(first, columns, strict=True)}
                if all(math.isfinite(sum(column)) for column in found.values()):
                    return {name: column.tolist() for name, column in found.items()}
        elif all(isinstance(row, list | tuple) or hasattr(row, "dtype") for row in rows):
            lines = [array("d", row) for row in rows]
            if len(set(map(len, lines))) == 1 and all(map(_finite, lines)):
                return _bytes(lines)
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    return None


def sent(features: Any, n: int) -> Any:
    """The features of `n` candidates: packed, or columns by name of what has names."""
    if features is None:
        return None
    names = _names(features)
    if names is not None:
        return {str(name): _column(features[name], name, n) for name in names}
    if hasattr(features, "__array__"):
        return packed_array(features, n)
    return _packed_lists(features, n)


def packed_array(table: Any, n: int) -> bytes:
    """An array, or what can become one; as exact as it is: float32 stays float32, all else is float64."""
    import numpy as np  # whoever has an array has numpy

    try:
        found = np.asarray(table)
        short = found.dtype == np.float32
        found = np.ascontiguousarray(found, dtype="<f4" if short else "<f8")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None
    if np.ndim(table) != 2 or len(found) != n:
        raise InvalidInput(f"features have shape {np.shape(table)}; {_rule(n)}")
    if np.isinf(found).any():
        i, j = (int(v) for v in np.argwhere(np.isinf(found))[0])
        raise _infinite(i, j, found[i, j])
    packed: bytes = found.tobytes()
    return packed


def _packed_lists(rows: Iterable[Iterable[Any]], n: int) -> bytes:
    """A list of rows; None is sent as NaN, which means the same."""
    rows = list(rows)
    if rows and isinstance(rows[0], int | float):
        raise InvalidInput(f"features have shape ({len(rows)},); {_rule(n)}")
    try:
        lines = [_line(row) for row in rows]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None
    widths = sorted(set(map(len, lines)))
    if len(widths) > 1:
        raise InvalidInput(f"features have rows of {widths[0]} and of {widths[-1]} numbers; {_rule(n)}")
    if len(lines) != n:
        raise InvalidInput(f"features have shape ({len(lines)}, {widths[0] if widths else 0}); {_rule(n)}")
    for i, line in enumerate(lines):
        if not _finite(line):
            for j, value in enumerate(line):
                if math.isinf(value):
                    raise _infinite(i, j, value)
    return _bytes(lines)


def _line(row: Iterable[Any]) -> array[float]:
    try:
        return array("d", row)
    except TypeError:
        return array("d", [math.nan if value is None else float(value) for value in row])


def _bytes(lines: list[array[float]]) -> bytes:
    """Numbers as they travel: with the low byte first, whatever the machine."""
    if sys.byteorder == "big":
        for line in lines:
            line.byteswap()
    return b"".join(lines)


def _finite(line: array[float]) -> bool:
    """Whether all are; the sum is quick, and where it overflows each one is looked at."""
    return math.isfinite(sum(line)) or all(map(math.isfinite, line))


def _names(features: Any) -> list[Any] | None:
    """The names of the columns of a frame (Arrow; pandas and polars), or of a dictionary of columns."""
    for place in ("column_names", "columns"):
        if hasattr(features, place):
            return list(getattr(features, place))
    return list(features) if isinstance(features, Mapping) else None


def _column(column: Any, name: Any, n: int) -> Sequence[float | None]:
    """A column by name; None and NaN, which JSON has not, are sent as null."""
    for listed in ("to_pylist", "to_list", "tolist"):  # Arrow; polars, pandas; numpy
        if hasattr(column, listed):
            column = getattr(column, listed)()
            break
    try:
        values = list(column)
        if len(values) == n:
            plain = _line(values)
            if _finite(plain):
                return plain.tolist()
            if not any(map(math.isinf, plain)):
                return [None if math.isnan(value) else value for value in plain]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"column {name!r} does not hold numbers ({error}); name the columns to rank by") from None
    rule = f"give a finite number for each of the {n} ids, NaN where there is none"
    raise InvalidInput(f"feature {name!r} is a column of shape ({len(values)},), or has infinity in it; {rule}")


def _rule(n: int) -> str:
    return f"give (n, d) numbers, a row for each of the {n} ids"


def _infinite(i: int, j: int, value: float) -> InvalidInput:
    return InvalidInput(f"features[{i}, {j}] is {value}; features must be finite numbers, or NaN for none")
