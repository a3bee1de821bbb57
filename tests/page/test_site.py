"""The documentation as a site: it builds without a warning, finds what people look for, loads nothing from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from docs import site as hooks

from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


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
    from rankloop.core.registry import LEARNERS

    for entry in LEARNERS.values():
        module, _, name = entry.path.partition(":")
        page = built / hooks.page_of(module).replace(".md", ".html")
        assert name in page.read_text("utf-8"), f"{module} is not in the reference"


def test_a_name_without_a_docstring_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rankloop").mkdir()
    (tmp_path / "rankloop" / "x.py").write_text('class A:\n    """Fine."""\n    def b(self): ...\n\ndef _c(): ...\n')
    monkeypatch.setattr(hooks, "SOURCE", tmp_path)
    assert list(hooks.undocumented("rankloop.x")) == ["rankloop.x.A.b"]


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    """The site, as `python -m http.server` serves it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_somebody_searches_in_the_dark_and_on_a_telephone(site: str, browser: Any) -> None:
    """Typed into the box, in Chromium; nothing runs out of a narrow window, and the dark is dark."""
    for words in ("position bias", "rollback", "guardrail"):
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(1000 * PATIENCE)
        page.goto(site)
        page.locator("input.md-search__input").press_sequentially(words)
        page.locator(".md-search-result__item mark", has_text=re.compile(words.split()[0], re.I)).first.wait_for()
        page.close()
    narrow = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    narrow.set_default_timeout(1000 * PATIENCE)
    narrow.goto(site)
    assert narrow.evaluate("document.documentElement.scrollWidth <= innerWidth")
    color = narrow.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", color)[:3])) < 80, color
    narrow.close()
