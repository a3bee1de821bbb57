"""The engine: SQLite full-text search over Python source. It does not use rankloop."""

from __future__ import annotations

import ast
import gc
import os
import re
import signal
import site
import sqlite3
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

SCHEMA = """
PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, stamp TEXT, package TEXT);
CREATE TABLE IF NOT EXISTS imports (file INTEGER REFERENCES files ON DELETE CASCADE, package TEXT);
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, kind TEXT, file INTEGER REFERENCES files ON DELETE CASCADE, line INTEGER);
CREATE INDEX IF NOT EXISTS imports_of ON imports (file);
CREATE INDEX IF NOT EXISTS entries_of ON entries (file);
CREATE VIRTUAL TABLE IF NOT EXISTS docs USING fts5 (name, summary, body, tokenize = 'porter unicode61');
CREATE TRIGGER IF NOT EXISTS gone AFTER DELETE ON entries BEGIN DELETE FROM docs WHERE rowid = OLD.id; END;
"""
# The engine's own order: a word in the name counts ten times as much as one in the body.
FIND = """
SELECT e.name, e.kind, docs.summary, -bm25(docs, 1, 0, 0), -bm25(docs, 0, 1, 0), -bm25(docs, 0, 0, 1)
FROM docs JOIN entries e ON e.id = docs.rowid WHERE docs MATCH ? ORDER BY bm25(docs, 10, 4, 1), e.id LIMIT ?
"""
SHOW = """
SELECT f.path, e.line, docs.summary || char(10, 10) || docs.body
FROM entries e JOIN files f ON f.id = e.file JOIN docs ON docs.rowid = e.id WHERE e.name = ?
"""
IMPORTED = """
SELECT i.package, count(DISTINCT f.package) FROM imports i JOIN files f ON f.id = i.file
WHERE f.package != i.package GROUP BY 1
"""
SKIPPED = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "_vendor", "node_modules"}
BATCH = 200  # files that can be found from one moment on
Source: TypeAlias = tuple[str, str, str]  # a file, the name of its module, and a stamp that changes when the file does
Item: TypeAlias = dict[str, Any]  # what is known of an entry (a module, class, function or method) beside its text
Read: TypeAlias = tuple[list[tuple[Item, int, str]], set[str]]  # items, lines and docstrings; packages imported
Changed: TypeAlias = Callable[[list[Item], list[str]], None]  # called with new items and deleted ids


def folders() -> list[Path]:
    """The folders of the standard library and of installed packages."""
    found = [sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages()]
    return [path for path in dict.fromkeys(map(Path, found)) if path.is_dir()]


def sources(roots: list[Path]) -> Iterator[Source]:
    """Every file of source."""
    for root in roots:
        for folder, inner, files in os.walk(root):
            inner[:] = sorted(name for name in inner if name.isidentifier() and name not in SKIPPED)
            package = Path(folder).relative_to(root).parts
            for file in sorted(name for name in files if name.endswith(".py") and name[:-3].isidentifier()):
                module = package if file == "__init__.py" and package else (*package, file[:-3])
                with suppress(OSError):  # a link to nowhere, or removed just now
                    known = Path(folder, file).stat()
                    yield str(Path(folder, file)), ".".join(module), f"{known.st_mtime_ns} {known.st_size}"


def read(source: Source) -> Read:
    """The entries of a file. It is parsed and never run; what cannot be parsed has none."""
    gc.disable()  # a tree is a million small objects without a cycle: this makes it three times as quick
    try:
        tree = ast.parse(Path(source[0]).read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return [], set()
    finally:
        gc.enable()
    entries = [_entry(source[1], "module", tree)]
    imported: set[str] = set()
    waiting: list[tuple[str, Any]] = [(source[1], tree)]
    for prefix, node in waiting:
        for one in node.body:
            if isinstance(one, ast.Import):
                imported.update(alias.name.partition(".")[0] for alias in one.names)
            elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
                imported.add(one.module.partition(".")[0])
            elif isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "class" if isinstance(one, ast.ClassDef) else "function" if node is tree else "method"
                entry = _entry(f"{prefix}.{one.name}", kind, one)
                if entry[2] or not one.name.startswith("_"):  # else neither named nor described for others
                    entries.append(entry)
                if kind == "class":
                    waiting.append((f"{prefix}.{one.name}", one))
    return entries, imported


def _entry(name: str, kind: str, node: Any) -> tuple[Item, int, str]:
    text = (ast.get_docstring(node) or "").encode(errors="replace").decode()  # a lone surrogate is no text
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", node.body[-1].end_lineno if node.body else 1)
    taken = len(node.args.args) + len(node.args.kwonlyargs) if hasattr(node, "args") else 0
    item = {"id": name, "kind": kind, "lines": last - first + 1, "parameters": taken, "words": len(text.split())}
    return item | {"depth": name.count("."), "private": "._" in f".{name}"}, first, text


def split(text: str) -> str:
    """The words of a name: `HTTPServer.read_all` is `HTTP Server read all`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\W]+", " ", text)


class Index:
    """An index in a file. One thread updates it, any number search it."""

    def __init__(self, file: Path) -> None:
        self._writing, self._reading = (sqlite3.connect(file, 30, check_same_thread=False) for _ in range(2))
        self._writing.executescript(SCHEMA)
        self._lock = threading.Lock()
        self.imported_by: dict[str, int] = dict(self._writing.execute(IMPORTED))  # package: by how many others

    def update(self, roots: list[Path], changed: Changed, told: Callable[[int, int], None]) -> None:
        """Read new and changed files, delete what is gone; `told` is called with files done and files in total."""
        known = dict(self._writing.execute("SELECT path, stamp FROM files"))
        found = list(sources(roots))
        new = [one for one in found if known.get(one[0]) != one[2]]
        self._replace([((path, "", ""), ([], set())) for path in known.keys() - {one[0] for one in found}], changed)
        workers = min(os.cpu_count() or 1, 1 + len(new) // BATCH)  # started afresh: a fork would inherit held locks
        pool = ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
        try:
            pairs = zip(new, pool.map(read, new, chunksize=16), strict=True)
            for start in range(0, len(new), BATCH):
                self._replace(list(islice(pairs, BATCH)), changed)
                told(min(start + BATCH, len(new)), len(new))
        finally:
            pool.shutdown(cancel_futures=True)
        self.imported_by = dict(self._writing.execute(IMPORTED))

    def _replace(self, batch: list[tuple[Source, Read]], changed: Changed) -> None:
        new: list[Item] = []
        old: set[str] = set()
        with self._writing as write:  # all of it or, where `changed` fails or we are killed, nothing: read again
            for (path, module, stamp), (entries, imported) in batch:
                old.update(
                    *write.execute("SELECT e.name FROM entries e JOIN files f ON f.id = file AND path = ?", (path,))
                )
                write.execute("DELETE FROM files WHERE path = ?", (path,))
                if not stamp:
                    continue
                added = (path, stamp, module.partition(".")[0])
                number = write.execute("INSERT INTO files VALUES (NULL, ?, ?, ?)", added).lastrowid
                write.executemany("INSERT INTO imports VALUES (?, ?)", [(number, name) for name in imported])
                for item, line, text in entries:
                    row = (item["id"], item["kind"], number, line)
                    made = write.execute("INSERT OR IGNORE INTO entries VALUES (NULL, ?, ?, ?, ?)", row)
                    if made.rowcount:  # else defined twice, as in try and except: the first counts
                        summary, _, body = text.partition("\n\n")
                        words = (made.lastrowid, f"{row[0]} {split(row[0])}", " ".join(summary.split()), body)
                        write.execute("INSERT INTO docs (rowid, name, summary, body) VALUES (?, ?, ?, ?)", words)
                        new.append(item)
            changed(new, sorted(old - {item["id"] for item in new}))  # who ranks must know what can be found

    def search(self, query: str, most: int) -> list[Any]:
        """Candidates in the engine's own order, those with all words first: name, kind, summary and three matches."""
        words = [f'"{word}"' for word in split(query).split()[:12]]
        found: dict[str, Any] = {}
        for joined in (" AND ".join(words), " OR ".join(words)) if words else ():
            if len(found) < most:
                found |= {row[0]: row for row in self.ask(FIND, joined, most)}
        return list(found.values())[:most]

    def show(self, name: str) -> tuple[str, int, str] | None:
        """The file of an entry, its line and its docstring; None where there is no such entry."""
        return next(iter(self.ask(SHOW, name)), None)

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """The rows that a SELECT gives."""
        with self._lock:
            return self._reading.execute(statement, values).fetchall()
