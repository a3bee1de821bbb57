"""The engine: what it reads of Python source, what it finds, and that it keeps up with what changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from examples.search.index import Index, read

SHAPES = '''"""Shapes with areas.

More of it here.
"""
import math
from os import path
from . import near
try:
    import hidden
except ImportError:
    pass

class Circle(object):
    """A round thing."""
    def area(self, scale, *, unit=1):
        """How large it is."""
        return math.pi
    def __repr__(self):
        return "o"
    def _secret(self):
        """Documented all the same."""

async def draw_all(shapes): ...

def _helper(): ...
'''


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def updated(index: Index, *roots: Path) -> tuple[list[str], list[str], list[tuple[int, int]]]:
    """What an update tells: ids that are new, ids that are gone, and its progress."""
    new: list[str] = []
    gone: list[str] = []
    told: list[tuple[int, int]] = []

    def changed(items: list[dict[str, Any]], ids: list[str]) -> None:
        new.extend(item["id"] for item in items)
        gone.extend(ids)

    index.update(list(roots), changed, lambda done, of: told.append((done, of)))
    return sorted(new), sorted(gone), told


def names(index: Index, query: str) -> list[str]:
    return [hit[0] for hit in index.search(query, 50)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    write(root, {"shapes": SHAPES, "geometry/flat": "def square(side):\n    '''A square of a side.'''\n"})
    write(root, {"geometry/__init__": "'''Everything flat.'''\nimport shapes\n"})
    return root


def test_entries_are_what_is_named_or_described_for_others(root: Path) -> None:
    entries, imported = read((str(root / "shapes.py"), "shapes", ""))
    assert [item["id"] for item, _, _ in entries] == [
        *("shapes", "shapes.Circle", "shapes.draw_all"),
        *("shapes.Circle.area", "shapes.Circle._secret"),
    ]
    area, line, text = entries[3]
    numbers = {"lines": 3, "parameters": 3, "words": 4, "depth": 2}
    assert area == {"id": "shapes.Circle.area", "kind": "method", **numbers, "private": False}
    assert (line, text) == (SHAPES.splitlines().index("    def area(self, scale, *, unit=1):") + 1, "How large it is.")
    assert entries[4][0]["private"]
    assert [item["kind"] for item, _, _ in entries[:3]] == ["module", "class", "function"]
    assert imported == {"math", "os"}


@pytest.mark.parametrize(
    "source", [b"def broken(:\n", b"\x00", b"# coding: nonsense\nx = 1\n", b"x = " + b"(" * 500 + b")" * 500]
)
def test_what_cannot_be_parsed_has_no_entries(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(source)
    (tmp_path / "good.py").write_text("'''A good module.'''\n")
    assert read((str(tmp_path / "bad.py"), "bad", "")) == ([], set())
    index = Index(tmp_path / "index.db")
    assert updated(index, tmp_path)[0] == ["good"]


def test_nothing_is_imported_or_run(tmp_path: Path) -> None:
    write(tmp_path, {"dangerous": f"'''A trap.'''\nopen({str(tmp_path / 'sprung')!r}, 'w')\nraise SystemExit\n"})
    index = Index(tmp_path / "index.db")
    assert updated(index, tmp_path)[0] == ["dangerous"]
    assert not (tmp_path / "sprung").exists()
    assert "dangerous" not in sys.modules


def test_only_what_changed_is_read_again_and_what_is_gone_is_forgotten(root: Path, tmp_path: Path) -> None:
    index = Index(tmp_path / "index.db")
    new, gone, told = updated(index, root)
    assert len(new) == 8
    assert (gone, told) == ([], [(3, 3)])
    assert names(index, "square of a side")[0] == "geometry.flat.square"
    assert index.imported_by == {"math": 1, "os": 1, "shapes": 1}

    again = Index(tmp_path / "index.db")
    assert updated(again, root) == ([], [], [])
    assert again.imported_by == index.imported_by

    write(root, {"geometry/flat": "def square(side):\n    '''Four corners.'''\ndef cube(): ...\n"})
    (root / "shapes.py").unlink()
    new, gone, told = updated(index, root)
    assert new == ["geometry.flat", "geometry.flat.cube", "geometry.flat.square"]
    assert gone == sorted(["shapes", "shapes.Circle", "shapes.Circle._secret", "shapes.Circle.area", "shapes.draw_all"])
    assert names(index, "corners") == ["geometry.flat.square"]
    assert names(index, "circle") == []
    assert index.imported_by == {"shapes": 1}


def test_a_batch_whose_upload_failed_is_read_again(root: Path, tmp_path: Path) -> None:
    index = Index(tmp_path / "index.db")

    def failing(*_: Any) -> None:
        if _[0]:
            raise ConnectionError("the catalog is away")

    with pytest.raises(ConnectionError):
        index.update([root], failing, lambda *_: None)
    assert names(index, "circle") == []
    assert len(updated(index, root)[0]) == 8
    assert names(index, "circle") == ["shapes.Circle", "shapes.Circle.area", "shapes.Circle._secret"]


def test_a_name_counts_more_than_a_text_and_all_words_more_than_some(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"near": "def unrelated():\n    '''Something else.\n\n    It can parse a thing.'''\ndef parse(): ...\n"},
    )
    write(tmp_path, {"both": "def unrelated():\n    '''Parse a date.'''\n"})
    index = Index(tmp_path / "index.db")
    updated(index, tmp_path)
    assert names(index, "parse") == ["near.parse", "both.unrelated", "near.unrelated"]
    assert names(index, "parse date")[0] == "both.unrelated"
    name, kind, summary, *matches = index.search("parse", 1)[0]
    assert (name, kind, summary) == ("near.parse", "function", "")
    assert matches[0] > 0
    assert matches[1:] == [0, 0]


@pytest.mark.parametrize("query", ["", "  ", '"', "AND OR NOT", "a* -b ^c:d", "name:parse", "x'; DROP TABLE docs;--"])
def test_queries_are_only_words(root: Path, tmp_path: Path, query: str) -> None:
    index = Index(tmp_path / "index.db")
    updated(index, root)
    assert isinstance(names(index, query), list)
    assert names(index, "circle")[0] == "shapes.Circle"
