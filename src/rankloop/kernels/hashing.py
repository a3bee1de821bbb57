"""64-bit codes of strings, their crosses, and the column that a code falls into.

Products and sums run over 64 bits, as they should; uncompiled, numpy warns of it (`np.errstate(over="ignore")`).
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

# Fowler, Noll and Vo's hash, the variant 1a for 64 bits: offset and prime
_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
# Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014): finalizer, increment of splitmix64
_S1, _S2, _WEYL = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _SIGN = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(63)


@jit
def spread(code: np.uint64) -> np.uint64:
    """A code whose every bit depends on every bit of `code`; no two codes become the same."""
    code = (code ^ (code >> _THIRTY)) * _S1
    code = (code ^ (code >> _TWENTY_SEVEN)) * _S2
    return code ^ (code >> _THIRTY_ONE)


@jit
def text_codes(data: Array, offsets: Array) -> Array:
    """(n,) uint64: FNV-1a of the bytes data[offsets[i] : offsets[i + 1]].

    A byte at a time is quick enough for what is hashed here, words and ids; long texts are the tokenizer's.
    """
    found = np.empty(offsets.size - 1, np.uint64)
    for i in range(found.size):
        code = _FNV_OFFSET
        for at in range(offsets[i], offsets[i + 1]):
            code = (code ^ np.uint64(data[at])) * _FNV_PRIME
        found[i] = code
    return found


@jit
def crossed(left: Array, right: Array) -> Array:
    """(n, m) uint64: the code of each left (n,) with each right (m,); a with b is another code than b with a.

    For a given left no two rights meet, and the other way round: adding and spreading can both be undone.
    """
    found = np.empty((left.size, right.size), np.uint64)
    for i in range(left.size):
        first = spread(left[i]) + _WEYL
        for j in range(right.size):
            found[i, j] = spread(first + right[j])
    return found


@jit
def joined(left: Array, right: Array) -> Array:
    """(n,) uint64: the code of left[i] with right[i], as `crossed` has it."""
    found = np.empty(left.size, np.uint64)
    for i in range(left.size):
        found[i] = spread(spread(left[i]) + _WEYL + right[i])
    return found


@jit
def columns(codes: Array, width: int, signed: bool) -> tuple[Array, Array]:
    """(n,) the column below `width` of each code, and (n,) its sign: 1, or, `signed`, 1 or -1 by the topmost bit."""
    found, signs = np.empty(codes.size, np.int64), np.ones(codes.size)
    for i in range(codes.size):
        found[i] = np.int64(codes[i] % np.uint64(width))
        if signed and codes[i] >> _SIGN != np.uint64(0):
            signs[i] = -1.0
    return found, signs
