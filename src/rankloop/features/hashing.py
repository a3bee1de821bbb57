"""Names and values of any number as columns of a fixed number: the hashing trick.

A category with a million values needs no table of them: the pair (name, value) has a 64-bit *code*, and the code's
remainder by the width is its column. The codes are a function of the strings alone, the same on every machine, in every
process and version (Python's own `hash` is salted by process), so a model that was learned with them stays valid.

What a code is, for those who compute it elsewhere, all modulo 2⁶⁴:

- of a string: FNV-1a of its UTF-8 bytes, f(s);
- of a pair of codes: a⊗b = mix(mix(a) + 0x9E3779B97F4A7C15 + b), mix being the finalizer of splitmix64;
- of a category: f(name) ⊗ f(value); of a number, whose value is not hashed but kept: f(name) ⊗ 0;
- of a cross: a ⊗ b of the two codes, so crosses of any depth are as good as categories;
- its column: code mod width; its sign, if there are signs: - where the topmost bit is set.

Two values that fall into one column are learned as one. With n values in use and a width of w, a value shares its
column with about n / w others: a width of ten times the values in use loses a tenth of them, half of those to a rarer
one. Signs make what collides cancel on average rather than add up (Weinberger et al., Feature hashing for large scale
multitask learning, 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.kernels import hashing

MAX_WIDTH = 2**31 - 1  # columns are kept as 32-bit integers in the log


def text_codes(texts: Sequence[str]) -> Array:
    """(n,) uint64: the code of each string; any string has one, lone surrogates and the empty one too.

    >>> [hex(code) for code in text_codes(["", "a"]).tolist()]
    ['0xcbf29ce484222325', '0xaf63dc4c8601ec8c']
    """
    whole = "".join(texts)
    if whole.isascii():
        data = whole.encode("ascii")
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        data = b"".join(parts)
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return hashing.text_codes(np.frombuffer(data, np.uint8), np.concatenate(([0], lengths.cumsum())))


def category_codes(name: str, values: Sequence[str]) -> Array:
    """(n,) uint64: the code of each value of one category. Compute it once for the distinct values, and index.

    >>> brands = category_codes("brand", ["acme", "apex"])
    >>> columns(brands, 1000)[0].tolist()
    [431, 536]
    """
    return hashing.crossed(_code(name), text_codes(values)).ravel()


def number_code(name: str) -> Array:
    """(1,) uint64: the code of a number's name; what is in its column is the number itself.

    >>> columns(number_code("price"), 1000)[0].tolist()
    [238]
    """
    return hashing.crossed(_code(name), np.zeros(1, np.uint64)).ravel()


def crossed(left: Array, right: Array) -> Array:
    """(n, m) uint64: the code of each of `left` (n,) together with each of `right` (m,), in this order.

    >>> mobile, brands = category_codes("device", ["mobile"]), category_codes("brand", ["acme", "apex"])
    >>> columns(crossed(mobile, brands).ravel(), 1000)[0].tolist()
    [365, 251]
    """
    return hashing.crossed(_codes(left), _codes(right))


def joined(left: Array, right: Array) -> Array:
    """(n,) uint64: the code of left[i] together with right[i]: the cross of two columns of a table of items.

    >>> device, brand = category_codes("device", ["mobile"] * 2), category_codes("brand", ["acme", "apex"])
    >>> columns(joined(device, brand), 1000)[0].tolist()
    [365, 251]
    """
    if left.shape != right.shape:
        raise InvalidInput(f"{left.size} codes for {right.size}; give one each, or take crossed() for all with all")
    return hashing.joined(_codes(left), _codes(right))


def columns(codes: Array, width: int, signed: bool = False) -> tuple[Array, Array]:
    """(n,) int64 the columns of codes (n,), and (n,) what a 1 counts there: 1, or 1 or -1 with `signed`.

    >>> [part.tolist() for part in columns(category_codes("brand", ["acme", "apex"]), 1000, signed=True)]
    [[431, 536], [1.0, -1.0]]
    """
    if not 0 < width <= MAX_WIDTH:
        raise InvalidInput(
            f"a hashed width of {width} is not in 1 … {MAX_WIDTH:,}; give the number of columns, say 100_000"
        )
    return hashing.columns(_codes(codes), width, signed)


def codes_of(names: Sequence[str], values: Sequence[str | bool | float]) -> tuple[Array, Array]:
    """(n,) uint64 the code of each name with its value, and (n,) float64 what it counts.

    A string is a category and counts 1, a bool is the category "true" or "false", a number is kept and its name hashed.

    >>> codes, counts = codes_of(["brand", "price"], ["acme", 9.5])
    >>> columns(codes, 1000)[0].tolist(), counts.tolist()
    ([431, 238], [1.0, 9.5])
    """
    if len(names) != len(values):
        raise InvalidInput(f"{len(names)} names for {len(values)} values; give one name for each value")
    texts, counts, numbers = [], np.ones(len(values)), np.zeros(len(values), np.bool_)
    for i, value in enumerate(values):
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bool | np.bool_):
            texts.append("true" if value else "false")
        else:
            texts.append("")
            counts[i], numbers[i] = value, True
    codes = text_codes(texts)
    codes[numbers] = 0
    return hashing.joined(text_codes(names), codes), counts


def hashed(
    names: Sequence[str], values: Sequence[str | bool | float], width: int, signed: bool = False
) -> tuple[Array, Array]:
    """(n,) int64 columns and (n,) float64 values of named values, ready for a sparse row (which adds up what collides).

    >>> hashed(["brand", "price", "new"], ["acme", 9.5, True], 1000)
    (array([431, 238, 666]), array([1. , 9.5, 1. ]))
    """
    codes, counts = codes_of(names, values)
    found, signs = columns(codes, width, signed)
    return found, counts * signs


@lru_cache(maxsize=4096)  # names are few; values are not
def _code(name: str) -> Array:
    found = text_codes([name])
    found.setflags(write=False)
    return found


def _codes(codes: Array) -> Array:
    if codes.dtype != np.uint64 or codes.ndim != 1:
        shape = "x".join(map(str, codes.shape))
        raise InvalidInput(f"codes are one row of uint64, not {shape} {codes.dtype}; make them with category_codes()")
    return codes
