"""Elementary functions in plain arithmetic: the same bits on every machine.

The C library's `exp` has one version for processors with fused multiply-add and another for those without, and its
versions change; about one value in 1,400 differs in its last bit. What is learned must not hang on that.
"""

from __future__ import annotations

import math

from rankloop.kernels._jit import jit

PER_LOG_TWO = 1.4426950408889634
LOG_TWO_HIGH = 6.93147180369123816490e-01  # its last 33 bits are 0: products with small whole numbers are exact
LOG_TWO_LOW = 1.90821492927058770002e-10


@jit
def exp_minus(x: float) -> float:
    """e^-x for x ≥ 0, within one unit in the last place or two: 2^-k e^r with |r| ≤ log(2)/2, by Taylor's series."""
    if not x < 745.0:
        return 0.0 if x >= 745.0 else x  # nan stays
    k = math.floor(x * PER_LOG_TWO + 0.5)
    r = (k * LOG_TWO_HIGH - x) + k * LOG_TWO_LOW
    total = 1.0
    for term in range(14, 0, -1):
        total = 1.0 + total * r / term
    return math.ldexp(total, -int(k))
