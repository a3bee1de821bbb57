"""Progress reports while kernels compile: a line on a terminal, nothing elsewhere. `cli/_out.py` replaces `report`."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

Report = Callable[[str, int, int], None]  # the kernel's name, its number among those compiled, how many are loaded
CLEAR = "\r\x1b[2K"
_MAIN = os.getpid()


def print_progress(name: str, number: int, most: int) -> None:
    """Show which kernel is being compiled, in the main process on a terminal; an empty name clears the line."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return
    if multiprocessing.parent_process() is not None or os.getpid() != _MAIN:
        return
    line = f"rankloop: compiling kernels for this machine, once: {name} ({number} of {most} at most)" if name else ""
    stream.write(CLEAR + line)
    stream.flush()


report: Report = print_progress


class _Listener(event.Listener):
    """Counts open compilations: kernels compile the kernels that they call first."""

    def __init__(self) -> None:
        self._lock, self._open, self._count = threading.Lock(), 0, 0

    def on_start(self, event: Any) -> None:
        name = _kernel(event)
        if name:
            with self._lock:
                self._open, self._count = self._open + 1, self._count + 1
            report(name, self._count, _loaded())

    def on_end(self, event: Any) -> None:
        if _kernel(event):
            with self._lock:
                self._open -= 1
            if self._open == 0:
                report("", self._count, _loaded())


def _kernel(event: Any) -> str:
    """The name of the kernel; empty for functions of other packages."""
    function: Any = getattr(event.data.get("dispatcher"), "py_func", None)
    ours = getattr(function, "__module__", "").startswith("rankloop.kernels")
    return str(function.__name__) if ours else ""


def _loaded() -> int:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("rankloop.kernels.")]
    return len({id(found) for module in modules for found in vars(module).values() if isinstance(found, Dispatcher)})


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
