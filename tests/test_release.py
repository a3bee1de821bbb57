"""What is released: a wheel and a source archive from one version, which install with three libraries and no more."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import rankloop

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-W", "ignore", "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_one_version_for_all(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"rankloop-{rankloop.__version__}-py3-none-any.whl",
        f"rankloop-{rankloop.__version__}.tar.gz",
    }
    assert not re.search(r"(?m)^version\s*=", (ROOT / "pyproject.toml").read_text())


def test_the_wheel_asks_for_numpy_numba_and_scipy_only(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        (described,) = (name for name in names if name.endswith("METADATA"))
        told = Parser().parsestr(wheel.read(described).decode())
    needed = {re.split(r"[^\w-]", text)[0] for text in told.get_all("Requires-Dist", []) if "extra ==" not in text}
    assert needed == {"numpy", "numba", "scipy"}
    assert "rankloop/py.typed" in names
    assert any(name.endswith("status/page.html") or "/pages/status/" in name for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_the_source_archive_can_be_tested(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "conftest.py", "tests/test_release.py", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.startswith((".venv", "site/", "results"))]


def test_without_the_extras_the_command_says_what_it_needs() -> None:
    code = "import sys; sys.modules['cyclopts'] = None; from rankloop.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'rankloop[service]'" in done.stderr
    assert "Traceback" not in done.stderr
