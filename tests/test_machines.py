"""What is shown and learned is the same on every x86 machine, bit for bit: other CPUs, emulated.

A machine differs by the code that its CPU makes libraries choose: OpenBLAS (`OPENBLAS_CORETYPE`), NumPy
(`NPY_DISABLE_CPU_FEATURES`), the C library's exp and log (`GLIBC_TUNABLES`), and by what LLVM makes of a kernel for it
(`NUMBA_CPU_NAME`). docs/determinism.md tells what is promised, and what is not.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "rankloop"
FOUND: list[str] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
BASELINE = {"NPY_DISABLE_CPU_FEATURES": " ".join(FOUND)}
WITHOUT_FMA = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
PRESCOTT = {"OPENBLAS_CORETYPE": "Prescott"}
GENERIC = {"NUMBA_CPU_NAME": "generic"}
# Compiled anew for `generic`: a learner of each kind, as it is by default.
SOME = ["pairrank", "pdgd", "dbgd", "bubblerank", "rtopk"]

# Learners that may end elsewhere on another machine, and why.
EXCEPTIONS = {
    "offline-ranknet": "SciPy's L-BFGS, on BLAS: a mark that is fitted once, not learned",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the emulated CPUs are x86's"),
    pytest.mark.timeout(900),
]


@cache
def outcome(machine: tuple[tuple[str, str], ...], names: tuple[str, ...] = ()) -> dict[str, dict[str, str]]:
    """What `tests.machines` prints on such a machine."""
    environment = os.environ | dict(machine) | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.machines", *names]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, dict[str, str]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize(
    ("machine", "names"),
    [
        pytest.param(PRESCOTT | WITHOUT_FMA | BASELINE, (), id="old-libraries"),
        pytest.param(GENERIC, tuple(SOME), id="old-machine-code"),
        pytest.param({"OPENBLAS_CORETYPE": "Haswell"}, (), id="Haswell"),
        pytest.param({"OPENBLAS_CORETYPE": "Zen"}, (), id="Zen"),
    ],
)
def test_another_machine_shows_and_learns_the_same(machine: Mapping[str, str], names: tuple[str, ...]) -> None:
    here, there = outcome(()), outcome(tuple(machine.items()), names)
    other = {
        name: [what for what in found if found[what] != here[name][what]]
        for name, found in there.items()
        if found != here[name] and name.partition("{")[0] not in EXCEPTIONS
    }
    assert not other


@pytest.mark.skipif("X86_V3" not in FOUND, reason="this machine is an old one itself")
def test_the_exceptions_are_needed() -> None:
    here, there = outcome(()), outcome(tuple((PRESCOTT | WITHOUT_FMA | BASELINE).items()))
    assert [name for name in EXCEPTIONS if here[name] == there[name]] == [], "take it off the list, and off the docs'"


# -- the two ways in which a machine could come in again -----------------------------------------------------------

LIBM = {"exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "sin", "cos", "power", "pow", "hypot"}
BLAS = {"dot", "matmul", "einsum", "inner", "vdot", "tensordot", "linalg"}
# Kernels that measure or read, but teach nothing, and the code behind the exceptions.
OUTSIDE = {"metrics.py", "sequential.py", "click_fits.py", "offline_ranknet.py", "_torch.py"}
# Which pairs PairRank explores is decided in BLAS, for speed; what it scores and learns is not.
OUTSIDE |= {"models/confidence.py", "models/long_lists.py"}


def asked(path: Path) -> Iterator[str]:
    """Where a file asks BLAS, or (a kernel) the C library."""
    kernel = path.parent.name == "kernels"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        where = f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield f"{where} @"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            # NumPy has an exp of its own for AVX-512, so learners leave it to kernels; math.log of a parameter is fine.
            libm = {"np", "math"} if kernel else {"np"}
            if (node.attr in BLAS and node.value.id == "np") or (node.attr in LIBM and node.value.id in libm):
                yield f"{where} {node.attr}"


def test_no_learner_asks_blas_or_the_c_library() -> None:
    """`kernels.products` multiplies and `kernels.elementary` has exp and log, in one order on every machine."""
    files = [*(SOURCES / "kernels").glob("*.py"), *(SOURCES / "learners").rglob("*.py")]
    found = [call for path in sorted(files) if not str(path).endswith(tuple(OUTSIDE)) for call in asked(path)]
    assert not found
