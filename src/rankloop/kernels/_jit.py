"""The one decorator of all kernels.

No fastmath and no parallel reduction: a kernel's sums come in the order the code says, so a run repeats bit for bit.
The machine code is cached beside the package (`NUMBA_CACHE_DIR` puts it elsewhere), so only the first run compiles.
`NUMBA_DISABLE_JIT=1` runs every kernel as plain Python; the tests do that too.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile `function` on first use, cached, releasing the interpreter lock while it runs."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))
