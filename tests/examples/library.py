"""A small library to search, and programs to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.embedded import HOST, address, embedded, listen
from examples.search.app import Search
from examples.search.index import Index

from rankloop.client import Client
from rankloop.service.settings import Settings
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
THINGS = ("list", "table", "image", "letter", "number", "record")
DEEDS = ("read", "write", "sort", "count", "copy")


def library(root: Path) -> Path:
    """Five modules of six functions; each deed is in a name once per module, and in five summaries."""
    root.mkdir(parents=True, exist_ok=True)
    for deed in DEEDS:
        functions = [f"def {deed}_{thing}(it):\n    '''{deed.title()} one {thing}.'''\n" for thing in THINGS]
        (root / f"{deed}ing.py").write_text(f"'''Functions that {deed}.'''\n\n" + "\n".join(functions))
    return root


@contextmanager
def searching(folder: Path, roots: list[Path]) -> Iterator[Search]:
    """The application without its page, with everything read and its ranker ready."""
    listening = listen(0)
    settings = Settings(store=str(folder / "clicks.db"), host=HOST)
    patience: dict[str, Any] = {"timeout": PATIENCE, "rank_timeout": PATIENCE}
    with embedded(settings, listening), Client(address(listening), queue=0, **patience) as client:
        search = Search(Index(folder / "index.db"), client, "search")
        search.index.update(roots, search.know, lambda *_: None)
        client.wait_compiled("search")
        yield search


@contextmanager
def started(name: str, log: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m examples.NAME`; what it prints is in `log`."""
    command = [sys.executable, "-m", f"examples.{name}", "--no-browser", "--port", "0", *options]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output, env={**os.environ, "PYTHONPATH": path, **environment})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
