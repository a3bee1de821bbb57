"""Find and hash the Python sources that compute something."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_NOT_FOLLOWED = (
    *("cli", "papers", "lab/plots", "core/executors.py"),  # compute nothing of a run
    *("core/registry.py", "__init__.py", "learners/__init__.py", "clicks/files.py"),  # import every learner or model
)
_INSTALLED = ("site-packages", "dist-packages")
_STARTED = time.time()
_STANDARD = Path(sysconfig.get_paths()["stdlib"]).resolve()
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)
_DOCSTRING = re.compile(r'(\A|:[ \t]*(?:#[^\n]*)?\n)\s*[rR]?"""(?:[^"\\]|\\.|"(?!""))*"""[ \t]*(?:#[^\n]*)?(?=\n|\Z)')
_COMMENTS = re.compile(r"^[ \t]*(?:#[^\n]*)?\n", re.M)


def digest(parts: Iterable[str]) -> str:
    """A short key of texts."""
    made = blake2b(digest_size=12)
    for part in parts:
        made.update(part.encode() + b"\0")
    return made.hexdigest()


def digest_of(files: Iterable[Path]) -> str:
    """A short key of what source files compute: comments and docstrings do not count."""
    return digest(map(_digest_of, files))


@cache
def _digest_of(file: Path) -> str:
    edited = file.stat().st_mtime > _STARTED  # the process may still run the code from before the edit
    return digest([file.name, code_of(_text(file)), f"{os.getpid()} {_STARTED}" if edited else ""])


def code_of(text: str) -> str:
    """A module's source without comments and docstrings; unchanged where other triple-quoted texts are in it.

    >>> code_of('"Doc."\\n\\ndef f():\\n    # why\\n    return 1\\n') == code_of('"Doc."\\ndef f():\\n    return 1\\n')
    True
    """
    bare = _DOCSTRING.sub(r"\1", text)
    return text if '"""' in bare or "'''" in bare else _COMMENTS.sub("", bare)


def sources_of(modules: Iterable[str]) -> list[Path]:
    """The files of modules and of everything they import from their own packages and from rankloop."""
    waiting = [file for file in map(_file_of, modules) if file is not None]
    found = set(waiting)
    while waiting:
        file = waiting.pop()
        imported = {_find(name, root) for name in imported_names(file) for root in _roots(name.partition(".")[0], file)}
        new = {path for path in imported - found if path is not None and not _is_left_out(path)}
        found |= new
        waiting += new
    return sorted(found)


@cache
def imported_names(file: Path) -> tuple[str, ...]:
    """Every dotted name that an import line of a file may mean: `from a.b import c` is a.b.c or something in a.b."""
    return tuple(dict.fromkeys(_imported_names(_text(file), file)))


def _imported_names(text: str, file: Path) -> Iterator[str]:
    for module, names, plain in _IMPORT.findall(text):
        if plain:
            yield from (part.split()[0] for part in plain.split("#")[0].split(",") if part.strip())
            continue
        if module.startswith("."):
            above = file.parents[len(module) - len(module.lstrip(".")) - 1]
            module = ".".join(filter(None, [*above.relative_to(_root(file)).parts, module.lstrip(".")]))
        listed = re.sub(r"#[^\n]*", "", names).strip("() \t\n\\")
        yield from (f"{module}.{part.split()[0]}" for part in listed.split(",") if part.strip())


@cache
def _text(file: Path) -> str:
    return file.read_text("utf-8", errors="replace")


@cache
def _find(name: str, root: Path) -> Path | None:
    """The file of a dotted name below a root: the module, else the module that the last part of the name is in."""
    place = os.path.join(root, *name.split("."))  # noqa: PTH118  (pathlib takes most of the time here)
    for module in (place, os.path.dirname(place)):  # noqa: PTH120
        for file in (f"{module}.py", f"{module}{os.sep}__init__.py"):
            if module != str(root) and os.path.isfile(file):  # noqa: PTH113
                return Path(file)
    return None


def _roots(package: str, file: Path) -> list[Path]:
    """Where to look for a package that a file imports: rankloop, its own package, and modules beside a script."""
    if package == _PACKAGE.name:
        return [_PACKAGE.parent]
    root = _root(file)
    installed = any(part in _INSTALLED for part in root.parts)
    return [root] if not installed or package == Path(file.relative_to(root).parts[0]).stem else []


@cache
def _root(file: Path) -> Path:
    """The folder from which a file's package is imported."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _file_of(module: str) -> Path | None:
    place = getattr(sys.modules.get(module) or import_module(module), "__file__", None)
    file = Path(place).resolve() if place else None
    if file is None or (file.is_relative_to(_STANDARD) and not any(part in _INSTALLED for part in file.parts)):
        return None  # typed into a terminal, or Python's own
    return file


def _is_left_out(file: Path) -> bool:
    if not file.is_relative_to(_PACKAGE):
        return False
    inside = file.relative_to(_PACKAGE).as_posix()
    return any(inside == out or inside.startswith(f"{out}/") for out in _NOT_FOLLOWED)
