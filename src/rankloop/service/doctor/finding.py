"""What was looked at, and what came of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["fine", "note", "warning", "trouble"]


class Finding(NamedTuple):
    """One thing that was looked at.

    >>> Finding("python", "trouble", "Python is 3.9.2", "install Python 3.11 or newer").state
    'trouble'
    """

    name: str  # what was looked at; the same from run to run, so that programs can look for it
    state: State  # note: worth knowing; warning: works, but not well; trouble: does not work
    text: str
    remedy: str = ""  # what to do; empty where nothing need be done
