"""Feature hashing: named values of any number to columns of a fixed number (Weinberger et al. 2009).

Codes depend on strings alone, so they are the same on every machine. Modulo 2⁶⁴:

- of a string: FNV-1a of its UTF-8 bytes, f(s);
- of a pair of codes: a⊗b = mix(mix(a) + 0x9E3779B97F4A7C15 + b), where mix is the finalizer of splitmix64;
- of a category: f(name) ⊗ f(value); of a number, whose value is kept: f(name) ⊗ 0; of a cross: a ⊗ b;
- its column: code mod width; its sign, if used: negative where the highest bit is set.

With n values in use and width w, a value shares its column with about n / w others.
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
    """Return (n,) uint64 the code of each string.

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
    """Return (n,) uint64 the code of each value of one category.

    >>> brands = category_codes("brand", ["acme", "apex"])
    >>> columns(brands, 1000)[0].tolist()
    [431, 536]
    """
    return hashing.crossed(_code(name), text_codes(values)).ravel()


def number_code(name: str) -> Array:
    """Return (1,) uint64 the code of a number's name.

    >>> columns(number_code("price"), 1000)[0].tolist()
    [238]
    """
    return hashing.crossed(_code(name), np.zeros(1, np.uint64)).ravel()


def crossed(left: Array, right: Array) -> Array:
    """Return (n, m) uint64 the crosses of `left` (n,) with `right` (m,), in this order.

    >>> mobile, brands = category_codes("device", ["mobile"]), category_codes("brand", ["acme", "apex"])
    >>> columns(crossed(mobile, brands).ravel(), 1000)[0].tolist()
    [365, 251]
    """
    return hashing.crossed(_codes(left), _codes(right))


def joined(left: Array, right: Array) -> Array:
    """Return (n,) uint64 the cross of left[i] with right[i].

    >>> device, brand = category_codes("device", ["mobile"] * 2), category_codes("brand", ["acme", "apex"])
    >>> columns(joined(device, brand), 1000)[0].tolist()
    [365, 251]
    """
    if left.shape != right.shape:
        raise InvalidInput(f"{left.size} codes for {right.size}; give one each, or take crossed() for all with all")
    return hashing.joined(_codes(left), _codes(right))


def columns(codes: Array, width: int, signed: bool = False) -> tuple[Array, Array]:
    """Return (n,) int64 the columns of codes (n,), and (n,) their signs: 1, or 1 or -1 if `signed`.

    >>> [part.tolist() for part in columns(category_codes("brand", ["acme", "apex"]), 1000, signed=True)]
    [[431, 536], [1.0, -1.0]]
    """
    if not 0 < width <= MAX_WIDTH:
        raise InvalidInput(
            f"a hashed width of {width} is not in 1 … {MAX_WIDTH:,}; give the number of columns, say 100_000"
        )
    return hashing.columns(_codes(codes), width, signed)


def codes_of(names: Sequence[str], values: Sequence[str | bool | float]) -> tuple[Array, Array]:
    """Return (n,) uint64 the code of each name with its value, and (n,) float64 the values.

    A string is a category with value 1, a bool the category "true" or "false"; a number is kept and its name hashed.

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
    """Return (n,) int64 columns and (n,) float64 values of named values, for a row of `SparseRows`.

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
