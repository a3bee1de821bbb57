"""A small library to search, and a search over it in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankloop.client import Client
from rankloop.search.app import Search
from rankloop.search.index import Index
from rankloop.service.settings import Settings
from rankloop.service.supervisor.embedded import HOST, address, embedded, listening
from tests.waiting import PATIENCE

THINGS = ("list", "table", "image", "letter", "number", "record")
DEEDS = ("read", "write", "sort", "count", "copy")


def library(root: Path) -> Path:
    """Five modules of six functions; each deed is in a name once a module, and in five summaries."""
    root.mkdir(parents=True, exist_ok=True)
    for deed in DEEDS:
        functions = [f"def {deed}_{thing}(it):\n    '''{deed.title()} one {thing}.'''\n" for thing in THINGS]
        (root / f"{deed}ing.py").write_text(f"'''Functions that {deed}.'''\n\n" + "\n".join(functions))
    return root


@contextmanager
def searching(folder: Path, roots: list[Path]) -> Iterator[Search]:
    """The application's inner half, with everything read and its ranker warm."""
    taken = listening(0)
    settings = Settings(store=str(folder / "clicks.db"), host=HOST)
    patience: dict[str, Any] = {"timeout": PATIENCE, "rank_timeout": PATIENCE}
    with embedded(settings, taken), Client(address(taken), queue=0, **patience) as client:
        search = Search(Index(folder / "index.db"), client, "search")
        search.index.update(roots, search.know, lambda *_: None)
        client.wait_warm("search")
        yield search
