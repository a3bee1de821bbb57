"""The layers hold, and the rules that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rankloop"


def test_kernels_know_no_generators_and_nothing_below_the_cli_prints() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "kernels" in path.parts:
            assert "np.random" not in text, f"{path}: kernels get random numbers as arrays"
        if "cli" not in path.parts:
            assert not re.search(r"^\s*(print|sys\.exit)\(", text, re.MULTILINE), f"{path} prints or exits"
        assert not re.search(r"np\.random\.(seed|rand|randn|randint|choice|shuffle|permutation)\(", text), path
        assert "import pickle" not in text, path


def test_the_library_needs_only_its_own_dependencies() -> None:
    """A learner can be used with numpy, numba and scipy alone: nothing of the lab's or the CLI's is imported."""
    code = (
        "import sys\n"
        "absent = 'cyclopts rich pyarrow matplotlib sklearn litestar msgspec httpx uvicorn psycopg'.split()\n"
        "for name in absent:\n    sys.modules[name] = None\n"
        "import rankloop, numpy as np\nfrom rankloop.registry import LEARNERS\n"
        "for name in LEARNERS:\n    rankloop.make(name)\nimport rankloop.checks, rankloop.lab.runs.trial"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small() -> None:
    long = {path.name: n for path in SOURCE.rglob("*.py") if (n := len(path.read_text("utf-8").splitlines())) > 400}
    assert not long, f"is each still one thing? {long}"
