"""For who waits: which kernel is being compiled. Each is once, on its first call on a machine, which takes seconds.

On a terminal it is a line on standard error that is gone when the work goes on; elsewhere nothing is said. The command
line shows it among its own bars (`cli/_out.py`), by another `tell`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

Tell = Callable[[str, int, int], None]  # the kernel's name, its number among those compiled, how many there may be
CLEAR = "\r\x1b[2K"


def line(name: str, number: int, most: int) -> None:
    """Say it on a terminal; without a name it is over. Helpers, of whom there may be many at once, say nothing."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return
    if multiprocessing.parent_process() is not None or os.getpid() != _MAIN:
        return
    said = f"rankloop: compiling kernels for this machine, once: {name} ({number} of {most} at most)" if name else ""
    stream.write(CLEAR + said)
    stream.flush()


_MAIN = os.getpid()
tell: Tell = line


class _Listener(event.Listener):
    """Kernels call kernels, and compile those first: the line stays until the outermost is done."""

    def __init__(self) -> None:
        self._lock, self._open, self._count = threading.Lock(), 0, 0

    def on_start(self, event: Any) -> None:
        name = _kernel(event)
        if name:
            with self._lock:
                self._open, self._count = self._open + 1, self._count + 1
            tell(name, self._count, _known())

    def on_end(self, event: Any) -> None:
        if _kernel(event):
            with self._lock:
                self._open -= 1
            if self._open == 0:
                tell("", self._count, _known())


def _kernel(event: Any) -> str:
    """The name of one of ours; other people's functions are their affair."""
    function: Any = getattr(event.data.get("dispatcher"), "py_func", None)
    ours = getattr(function, "__module__", "").startswith("rankloop.kernels")
    return str(function.__name__) if ours else ""


def _known() -> int:
    """How many kernels are loaded; not all of them will be called."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("rankloop.kernels.")]
    kernels = {id(found) for module in modules for found in vars(module).values() if isinstance(found, Dispatcher)}
    return len(kernels)


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
