"""Compiled and plain Python kernels give the same results."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from rankloop import kernels
from tests.kernels.every_kernel import results

ROOT = Path(__file__).parents[2]


def public_kernels() -> set[str]:
    """`module.name` of every kernel that others may call."""
    found = set()
    for module in pkgutil.iter_modules(kernels.__path__):
        names = vars(importlib.import_module(f"rankloop.kernels.{module.name}"))
        for name, value in names.items():
            own = isinstance(value, Dispatcher) and value.py_func.__module__ == f"rankloop.kernels.{module.name}"
            if own and not name.startswith("_"):
                found.add(f"{module.name}.{name}")
    return found


def test_kernels_are_the_same_without_jit() -> None:
    """Orders, pairs and counts exactly; sums to the last few bits, as exp and log are not the same library's."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", "-m", "tests.kernels.every_kernel"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (plain, ran), compiled = json.loads(run.stdout), json.loads(json.dumps(results()))
    missing = sorted(public_kernels() - set(ran))
    assert not missing, f"not tried without JIT: {', '.join(missing)}; call them in tests/kernels/*_kernels.py"
    assert plain.keys() == compiled.keys()
    for name, value in compiled.items():
        if all(isinstance(number, float) for number in value):
            assert plain[name] == pytest.approx(value, rel=1e-12, abs=1e-13), name
        else:
            assert plain[name] == value, name
