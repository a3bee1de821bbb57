"""Features of any JSON, hashed: names from where a value stands, crosses of the context with each item.

What is the same for all items cannot rank them: of the context alone nothing is learned but how good the day is. So
each of its features is crossed with each of an item's, and "mobile" becomes "mobile, and this item is news".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import SparseRows
from rankloop.features import hashing

MOST_PAIRS = 2**20  # entries of one request's rows: more is a mistake, or an attack
DEEPEST = 32  # levels
OCTAVE = 4  # buckets a doubling of a number
SHRINK = 4.0  # asinh(27) is 4: numbers count about as much as categories, whatever their unit


def flattened(value: Any, name: str = "") -> tuple[list[str], list[str | bool | float]]:
    """Names and values of all that stands in a piece of JSON.

    A name is the way to the value; a list's elements share that of the list, but for numbers, which have places. A
    number counts twice: as a magnitude (asinh, so that a price of 1,000 does not outweigh everything else) and as the
    category of its size, a quarter of an octave wide, since what is liked is seldom the largest or the smallest. Null
    is nothing.

    >>> flattened([{"device": {"mobile": True}, "tags": ["new", "hot"]}])
    (['device.mobile', 'tags', 'tags'], [True, 'new', 'hot'])
    >>> flattened({"price": 20})  # doctest: +ELLIPSIS
    (['price', 'price~'], [0.922..., '17'])
    """
    names: list[str] = []
    values: list[str | bool | float] = []
    for path, leaf in _leaves(value, name, 0):
        if isinstance(leaf, bool | str):
            names.append(path)
            values.append(leaf)
        else:
            names += [path, f"{path}~"]
            values += [math.asinh(leaf) / SHRINK, _bucket(leaf)]
    return names, values


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, str | bool | float]]:
    if depth > DEEPEST:
        raise InvalidInput(f"features are nested more than {DEEPEST} levels deep; make them flatter")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            own = name if isinstance(inner, bool) or not isinstance(inner, int | float) else f"{name}.{i}"
            yield from _leaves(inner, own, depth + 1)
    elif value is not None:
        if isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) < float("inf"):
            raise InvalidInput(f"feature {name!r} is {value}; features must be finite")
        yield name, value


def _bucket(value: float) -> str:
    """The category of a number's size: the same for numbers within a quarter of an octave."""
    if value == 0:
        return "0"
    size = math.floor(OCTAVE * math.log2(abs(value)))
    return f"-{size}" if value < 0 else str(size)


def crossed_rows(context: Any, items: Sequence[tuple[str, Any]], width: int) -> SparseRows:
    """The rows of items (id, features): each item's own features, its id among them, and their crosses with the
    context's. What falls into one column adds up.

    >>> rows = crossed_rows({"day": "monday"}, [("a", {"type": "news"}), ("b", {"type": "sports"})], 1000).dense()
    >>> rows.sum(axis=1), int((rows[0] * rows[1]).sum())  # two features each and two crosses, and nothing in common
    (array([4., 4.]), 0)
    """
    names: list[str] = []
    values: list[str | bool | float] = []
    lengths = np.empty(len(items), np.int64)
    for i, (item, features) in enumerate(items):
        own, told = flattened(features)
        names += ["=id", *own]  # no name in JSON can be taken for it: names of features begin otherwise, or are paths
        values += [item, *told]
        lengths[i] = 1 + len(own)
    given = hashing.codes_of(*flattened(context))
    codes, counts = hashing.codes_of(names, values)
    if codes.size * (1 + given[0].size) > MOST_PAIRS:
        raise InvalidInput(
            f"{codes.size} features of items times {given[0].size} of the context are more than {MOST_PAIRS:,} "
            "crosses; send fewer of either"
        )
    crosses = hashing.crossed(codes, given[0])  # (features, context's)
    columns = hashing.columns(np.concatenate((codes[:, None], crosses), axis=1).ravel(), width)[0]
    weights = np.concatenate((np.ones(1), given[1]))
    starts = np.append(0, np.cumsum(lengths * weights.size))
    return SparseRows(starts, columns, (counts[:, None] * weights).ravel(), width)
