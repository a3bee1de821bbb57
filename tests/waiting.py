"""Wait for a condition in a test, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Seconds: just below the time-out of a test (`timeout` in pyproject.toml), so that a wait fails with its own message.
PATIENCE = 280.0


def wait_for(condition: Callable[[], T | None], what: str, patience: float = PATIENCE, every: float = 0.05) -> T:
    """Return the first true value of `condition`; fail after `patience` seconds with the name of what was expected."""
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {patience:.0f} s for {what}"
        time.sleep(every)
    return found
