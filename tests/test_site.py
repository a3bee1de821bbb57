"""The documentation as a site: it builds without a warning, finds what people look for, loads nothing from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs import site as hooks

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does, strictly: a broken link or a name without a docstring ends it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        command, cwd=ROOT, env={**kept, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("words", ["position bias", "rollback", "guardrail", "propensity", "rankloop doctor"])
def test_search_finds(words: str, built: Path) -> None:
    index = json.loads((built / "search" / "search_index.json").read_text("utf-8"))
    assert any(words in f"{page['title']} {page['text']}".lower() for page in index["docs"])


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?([^\"\s>]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?stylesheet[^>]*href=\"?([^\"\s>]+)", text)
        assert not [one for one in loaded if re.match(r"(https?:)?//", one)], page


def test_every_learner_is_in_the_reference(built: Path) -> None:
    from rankloop.registry import LEARNERS

    for entry in LEARNERS.values():
        module, _, name = entry.path.partition(":")
        page = built / hooks.page_of(module).replace(".md", ".html")
        assert name in page.read_text("utf-8"), f"{module} is not in the reference"


def test_a_name_without_a_docstring_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rankloop").mkdir()
    (tmp_path / "rankloop" / "x.py").write_text('class A:\n    """Fine."""\n    def b(self): ...\n\ndef _c(): ...\n')
    monkeypatch.setattr(hooks, "SOURCE", tmp_path)
    assert list(hooks.undocumented("rankloop.x")) == ["rankloop.x.A.b"]
