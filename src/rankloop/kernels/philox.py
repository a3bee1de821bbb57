"""The numbers of `Rng(seed).for_event(purpose, n).random(width)` for many events at once, bit for bit.

`Rng` sets up numpy's generator for each event, which takes a microsecond or two: as long as a whole round of a
compiled loop. The generator is a function of key and counter, so the same numbers can be had without it.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

# Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011): multipliers and Weyl constants of Philox4x64
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ELEVEN, _ONE = np.uint64(11), np.uint64(1)
_ROUNDS = 10
_UNIT = 2.0**-53


@jit
def _high(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a · b."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    cross = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (cross >> _HALF)


@jit
def uniforms(key: Array, first: int, found: Array) -> None:
    """Fill found[i] with the numbers in [0, 1) of event first + i.

    Products and sums run over 64 bits, as they should; uncompiled, numpy warns of it (`np.errstate(over="ignore")`).
    """
    events, width = found.shape
    for i in range(events):
        event = np.uint64(first + i)
        block = np.uint64(0)
        for at in range(0, width, 4):
            block += _ONE  # numpy counts up before it draws
            x0, x1, x2, x3 = block, np.uint64(0), event, np.uint64(0)
            k0, k1 = key[0], key[1]
            for _ in range(_ROUNDS):
                x0, x1, x2, x3 = _high(_M1, x2) ^ x1 ^ k0, _M1 * x2, _high(_M0, x0) ^ x3 ^ k1, _M0 * x0
                k0, k1 = k0 + _W0, k1 + _W1
            found[i, at] = (x0 >> _ELEVEN) * _UNIT
            if at + 1 < width:
                found[i, at + 1] = (x1 >> _ELEVEN) * _UNIT
            if at + 2 < width:
                found[i, at + 2] = (x2 >> _ELEVEN) * _UNIT
            if at + 3 < width:
                found[i, at + 3] = (x3 >> _ELEVEN) * _UNIT
