"""Compiled and plain Python kernels give the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.every_kernel import results

ROOT = Path(__file__).parents[2]


def test_kernels_are_the_same_without_jit() -> None:
    """Orders, pairs and counts exactly; sums to the last few bits, as exp and log are not the same library's."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", "-m", "tests.kernels.every_kernel"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    plain, compiled = json.loads(run.stdout), json.loads(json.dumps(results()))
    assert plain.keys() == compiled.keys()
    for name, value in compiled.items():
        if all(isinstance(number, float) for number in value):
            assert plain[name] == pytest.approx(value, rel=1e-12, abs=1e-13), name
        else:
            assert plain[name] == value, name
