"""Ends what a test run has started when the run itself ends, also if it is interrupted or killed.

Fixtures end their processes themselves. This is for the runs that never reach the end of their fixtures.
"""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
from functools import cache

# Each line adds a process ("+ function pid signal") or removes it ("- pid"). The end of the input means that the test
# process is gone.
_GUARD = """
import os, sys
left = {}
for line in sys.stdin:
    sign, *rest = line.split()
    if sign == "+":
        left[rest[1]] = rest
    else:
        left.pop(rest[0], None)
for function, pid, number in left.values():
    try:
        getattr(os, function)(int(pid), int(number))
    except OSError:
        pass
"""


def end_with_run(pid: int, how: signal.Signals = signal.SIGKILL, group: bool = True) -> None:
    """Send a signal to a process group, or to a single process, when this test run ends."""
    _write(f"+ {'killpg' if group else 'kill'} {pid} {int(how)}")


def ended(pid: int) -> None:
    """Take back `end_with_run`: the number may soon be another process's."""
    _write(f"- {pid}")


def _write(line: str) -> None:
    stdin = _guard().stdin
    assert stdin is not None
    stdin.write(line.encode() + b"\n")
    stdin.flush()


@cache
def _guard() -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C is meant for the tests.
    guard = subprocess.Popen([sys.executable, "-S", "-c", _GUARD], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(guard.communicate)
    return guard
