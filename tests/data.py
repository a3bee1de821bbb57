"""Real data for tests: where it is, or a reason to skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(name: str) -> Path:
    """A folder of the shared real data sets; the test is skipped where they are not at hand."""
    default = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("RANKLOOP_SHARED", default)) / name
    if not path.exists():
        pytest.skip(f"real data {name!r} is not here; set RANKLOOP_SHARED to the folder that holds it")
    return path
