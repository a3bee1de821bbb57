"""The wheel, the source archive and the wheel of the client."""

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
from tests.service.asking import ANSWER, RECEIPTS
from tests.service.scripted import Said, Server, script

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-W", "ignore", "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_needs_numpy_numba_and_scipy_only(built: Path) -> None:
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


def test_without_the_extras_the_command_names_the_extra() -> None:
    code = "import sys; sys.modules['cyclopts'] = None; from rankloop.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'rankloop[service]'" in done.stderr
    assert "Traceback" not in done.stderr


ALONE = """
import sys
sys.modules |= dict.fromkeys(("numpy", "numba", "scipy"))  # an import of them fails
from rankloop.client import Client, ServiceError
from rankloop.wire.calls import Candidate
with Client(sys.argv[1], rank_timeout=60.0, queue=0) as client:
    table = client.rank("shop", ids=["p", "q"], features=[[0.1, 9.0], [None, 49.0]], request_id="r")
    client.rank("shop", [{"id": "p", "features": {"a": 0.1}}, Candidate("q", {"a": 2.0})], request_id="r")
    print(client.click(table, ["p"]))
"""


def test_the_client_wheel_works_without_the_library(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "client", check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"rankloop_client-{rankloop.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        (metadata,) = (name for name in opened.namelist() if name.endswith("METADATA"))
        found = Parser().parsestr(opened.read(metadata).decode())
        assert not any("__pycache__" in name for name in opened.namelist())
        opened.extractall(tmp_path / "installed")
    assert {re.split(r"[^\w-]", text)[0] for text in found.get_all("Requires-Dist", [])} == {"httpx", "msgspec"}
    with Server(script(Said(200, ANSWER), Said(200, ANSWER), Said(200, RECEIPTS))) as server:
        alone = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})\n{ALONE}"
        done = subprocess.run([sys.executable, "-c", alone, server.url], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 3
