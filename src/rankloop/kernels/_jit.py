"""The one decorator of all kernels.

No fastmath and no parallel reduction: a kernel's sums come in the order the code says, so a run repeats bit for bit.
Only the first run compiles: machine code is kept by `rankloop.kernels._cache`, under the sources it was made from.
`NUMBA_DISABLE_JIT=1` runs every kernel as plain Python; the tests do that too.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from rankloop.kernels import _cache

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile `function` on first use, cached, releasing the interpreter lock while it runs."""
    kept = _cache.can_keep(function)
    return cast(Function, njit(cache=kept, nogil=True, error_model="numpy")(function))
