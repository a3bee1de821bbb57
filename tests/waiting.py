"""Waiting for a condition in a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 280.0  # seconds; a little less than the time-out of a test (`timeout` in pyproject.toml)


def wait_for(condition: Callable[[], T | None], what: str, patience: float = PATIENCE, every: float = 0.02) -> T:
    """Return the first true value of `condition`.

    The default waits nearly as long as a test may take, so that a slow machine does not fail a test. A test with a
    longer time-out of its own (`@pytest.mark.timeout`) may pass more `patience`.
    """
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {patience:g} seconds for {what}"
        time.sleep(every)
    return found
