"""Rules of the source that no linter checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rankloop"


def test_kernels_take_random_numbers_as_arrays_and_nothing_is_pickled() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "kernels" in path.parts:
            assert "np.random" not in text, f"{path}: pass random numbers as an array"
        assert "import pickle" not in text, f"{path}: use rankloop.core.codec; a pickle from others can run code"


def test_the_library_needs_only_its_own_dependencies() -> None:
    """A learner can be used with numpy, numba and scipy alone: nothing of the lab's or the CLI's is imported."""
    code = (
        "import sys\n"
        "absent = 'cyclopts rich pyarrow matplotlib sklearn litestar msgspec httpx uvicorn psycopg'.split()\n"
        "for name in absent:\n    sys.modules[name] = None\n"
        "import rankloop, numpy as np\nfrom rankloop.core.registry import LEARNERS\n"
        "for name in LEARNERS:\n    rankloop.make(name)\nimport rankloop.checks, rankloop.lab.runs.trial"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
