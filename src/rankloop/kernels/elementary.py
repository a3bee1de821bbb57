"""Exponentials and logarithms with the same bits on every machine.

The system's own have one version for CPUs with fused multiply-add and another for those without, and change from
release to release, in the last bit; what is learned through them would change with them. These are sums, products and
quotients in a fixed order, each rounded once: all machines with IEEE doubles agree, and so does the code without JIT.

Within 3 units in the last place of the true value (a test looks). The reductions are those that Ng described for fdlibm
(1993); the coefficients are those of the power series.

>>> exp(0.0), log(10.0), exp(log1p(0.5))
(1.0, 2.302585092994046, 1.5)
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

LN2_UPPER, LN2_LOWER = 0.6931467056274414, 4.7493250390316726e-07  # ln 2 in two parts: k times the upper one is exact
PER_LN2 = 1.4426950408889634
LARGEST, SMALLEST = 709.782712893384, -745.1332191019412  # beyond them e^x is infinite, or 0
ROOT_2 = 1.4142135623730951
ONE_BITS, MANTISSA = 0x3FF0000000000000, 0x000FFFFFFFFFFFFF


@jit
def _power_of_two(k: int) -> float:
    """2^k of a normal number, -1022 <= k <= 1023, from its bits."""
    return float(np.int64((k + 1023) << 52).view(np.float64))


@jit
def _parts(x: float) -> tuple[float, float]:
    """k and m with x = 2^k m and √½ <= m < √2, of x > 0."""
    more = 0.0
    if x < 2.2250738585072014e-308:  # too small to be kept with all its digits
        x, more = x * 18014398509481984.0, -54.0
    bits = np.float64(x).view(np.int64)
    k = float((bits >> 52) - 1023) + more
    m = float(np.int64((bits & MANTISSA) | ONE_BITS).view(np.float64))
    if m >= ROOT_2:
        return k + 1.0, 0.5 * m
    return k, m


@jit
def _beyond(r: float) -> float:
    """e^r - 1 - r for |r| <= ½ ln 2: r c / (2 - c) with c = r - (r coth(r/2) - 2), whose series Bernoulli gave."""
    t = r * r
    u = t * t
    c = t * (1.0 / 6.0 + u * (1.0 / 15120.0 + u * (1.0 / 23950080.0 + u * (1.0 / 37362124800.0))))
    c = r - (c - u * (1.0 / 360.0 + u * (1.0 / 604800.0 + u * (691.0 / 653837184000.0))))
    return r * c / (2.0 - c)


@jit
def exp(x: float) -> float:
    """e^x."""
    if not (SMALLEST <= x <= LARGEST):
        return np.inf if x > LARGEST else 0.0 if x < SMALLEST else np.nan
    k = float(np.floor(x * PER_LN2 + 0.5))
    upper, lower = x - k * LN2_UPPER, k * LN2_LOWER
    r = upper - lower
    y = 1.0 + (upper - (lower - _beyond(r)))
    n = int(k)
    if n > 1000:
        return y * _power_of_two(n - 1) * 2.0
    if n < -1000:
        return y * _power_of_two(n + 100) * _power_of_two(-100)
    return y * _power_of_two(n)


@jit
def expm1(x: float) -> float:
    """e^x - 1, with all its digits where x is small."""
    if -0.34 < x < 0.34:
        return x + _beyond(x)
    return exp(x) - 1.0


@jit
def _log_of(k: float, m: float) -> float:
    """k ln 2 + ln m for √½ <= m < √2: 2 artanh(s) with s = f / (2 + f), f = m - 1."""
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = z * (2 / 3.0 + w * (2 / 7.0 + w * (2 / 11.0 + w * (2 / 15.0 + w * (2 / 19.0)))))
    even = w * (2 / 5.0 + w * (2 / 9.0 + w * (2 / 13.0 + w * (2 / 17.0 + w * (2 / 21.0)))))
    half = 0.5 * f * f
    return k * LN2_UPPER - ((half - (s * (half + (odd + even)) + k * LN2_LOWER)) - f)


@jit
def log(x: float) -> float:
    """ln x; -inf at 0, not a number below."""
    if not (0.0 < x < np.inf):
        return -np.inf if x == 0.0 else np.inf if x > 0.0 else np.nan
    k, m = _parts(x)
    return _log_of(k, m)


@jit
def log1p(x: float) -> float:
    """ln(1 + x), with all its digits where x is small."""
    u = 1.0 + x
    if u == 1.0 or not (0.0 < u < np.inf):
        return x if u == 1.0 else log(u)
    return log(u) + (x - (u - 1.0)) / u  # what 1 + x has lost, to first order


@jit
def log2(x: float) -> float:
    """log₂ x; whole where x is a power of two."""
    if not (0.0 < x < np.inf):
        return log(x)
    k, m = _parts(x)
    return k + _log_of(0.0, m) * PER_LN2


@jit
def tanh(x: float) -> float:
    """(e^x - e^-x) / (e^x + e^-x)."""
    size = abs(x)
    if size > 22.0:  # 1 to all digits
        return 1.0 if x > 0.0 else -1.0
    e = expm1(2.0 * size)
    found = e / (e + 2.0)
    return found if x >= 0.0 else -found


@jit
def power(x: float, y: float) -> float:
    """x^y for x >= 0; by products where y is a small whole number, so that powers of whole numbers are whole."""
    if y == np.floor(y) and abs(y) <= 64.0:
        found, base, left = 1.0, float(x), int(abs(y))
        while left:
            if left & 1:
                found *= base
            base *= base
            left >>= 1
        return found if y >= 0.0 else 1.0 / found
    if x == 2.0:
        whole = np.floor(y)
        return exp((y - whole) * 0.6931471805599453) * exp2_whole(whole)
    return exp(y * log(x))


@jit
def exp2_whole(y: float) -> float:
    """2^y of a whole y."""
    return _power_of_two(int(y)) if -1022.0 <= y <= 1023.0 else (0.0 if y < 0.0 else np.inf)


@jit
def exps(values: Array) -> Array:
    """(n,) e^x of each."""
    found = np.empty(values.size)
    for i in range(values.size):
        found[i] = exp(values[i])
    return found
