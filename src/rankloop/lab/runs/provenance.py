"""What a stored run was computed by: a key of the code, and a key of the files that were read.

**Code.** The sources that compute a run are its own module, those of its learner's class, its user and its world, a
third party's too, and everything that these import, directly or not, of the same packages: found in the text of their
import lines. Comments, docstrings and blank lines do not count, nor do rankloop's command line, figures, papers and the
table of learners, so that polishing those throws no run away. What the table would say goes in by itself: the class and
all its parameters, defaults too. So do the versions of numpy, numba, scipy, torch and LightGBM, those that the sources
import: another version may round otherwise or draw other numbers. The machine does not. A source that was edited since
this process began may not be what the process runs, so runs with it are good in this process only.

**Files.** The contents of the LETOR files that a data set is made of, and of a fitted user or a file of click models.
Generated sets read nothing: their generator is code. A file is read once for this, and again when its size, time, head
or tail changes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

from rankloop.clicks.users import FITTED, open_user
from rankloop.core.errors import RankloopError
from rankloop.core.learner import params
from rankloop.core.registry import make
from rankloop.lab.datasets.cache import content_of
from rankloop.lab.datasets.sources import files_of
from rankloop.lab.worlds.world import WORLDS

_PACKAGE = Path(__file__).parents[2]
_NOT_FOLLOWED = (
    *("cli", "papers", "lab/plots", "kernels/_jit.py"),  # compute nothing of a run
    *(
        "core/registry.py",
        "__init__.py",
        "learners/__init__.py",
        "clicks/files.py",
    ),  # know every learner, every click model
)
_LIBRARIES = ("numpy", "numba", "scipy", "torch", "lightgbm")
_INSTALLED = ("site-packages", "dist-packages")
_STARTED = time.time()
_STANDARD = Path(sysconfig.get_paths()["stdlib"]).resolve()
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)
_DOCSTRING = re.compile(r'(\A|:[ \t]*(?:#[^\n]*)?\n)\s*[rR]?"""(?:[^"\\]|\\.|"(?!""))*"""[ \t]*(?:#[^\n]*)?(?=\n|\Z)')
_COMMENTS = re.compile(r"^[ \t]*(?:#[^\n]*)?\n", re.M)


class Provenance(NamedTuple):
    """What a run is recognised by beside its id."""

    code: str
    files: str  # "" where none are read


def provenance(trial: Any) -> Provenance:
    """That of a `Runnable`, which may name the `modules` that compute it where its type and learner do not tell."""
    learner, given = getattr(trial, "learner", ""), getattr(trial, "params", {})
    named = tuple(getattr(trial, "modules", ())) or _modules(trial)
    shown = json.dumps(dict(given), sort_keys=True, default=repr)
    code = _code(named, learner, shown, getattr(trial, "user", ""), getattr(trial, "world", ""))
    try:
        files = _files(trial)
        return Provenance(code, _digest(map(content_of, files)) if files else "")
    except (RankloopError, OSError):  # that it cannot be read is told when it is carried out
        return Provenance(code, "unreadable")


def sources_of(modules: Iterable[str]) -> list[Path]:
    """The files of modules, and of all that they import of their packages and of rankloop."""
    waiting = [file for file in map(_file_of, modules) if file is not None]
    found = set(waiting)
    while waiting:
        for file in _imports(waiting.pop())[0]:
            if file not in found and not _left_out(file):
                found.add(file)
                waiting.append(file)
    return sorted(found)


def meaning(text: str) -> str:
    """The source of a module without what does not compute. Where other long texts stand in it, all of it counts.

    >>> meaning('"Doc."\\n\\ndef f():\\n    # why\\n    return 1\\n') == meaning('"Doc."\\ndef f():\\n    return 1\\n')
    True
    """
    bare = _DOCSTRING.sub(r"\1", text)
    return text if '"""' in bare or "'''" in bare else _COMMENTS.sub("", bare)


# -- code ----------------------------------------------------------------------------------------------------------


def _modules(trial: Any) -> tuple[str, ...]:
    """The modules of a run's type, and of the functions that it was given."""
    functions = [value for value in vars(trial).values() if callable(value)] if hasattr(trial, "__dict__") else []
    return type(trial).__module__, *(function.__module__ for function in functions if hasattr(function, "__module__"))


@cache
def _code(modules: tuple[str, ...], learner: str, given: str, user: str, world: str) -> str:
    """The key of everything but the data; a run that cannot be made has one too: it fails when it is carried out."""
    parts, start = [], list(modules)
    try:
        if world:
            start.append(_module_of_world(world.partition("?")[0]))
        if learner:
            made = make(learner, **json.loads(given))
            cls = type(made)
            start.append(cls.__module__)
            parts = [f"{cls.__module__}:{cls.__qualname__}", json.dumps(params(made), default=repr)]
            if user:
                opened: Any = open_user(user, 4, cls.feedback)
                start += [type(opened).__module__, type(getattr(opened, "model", opened)).__module__]
    except (RankloopError, ImportError):
        parts.append(given)
    return _digest([*parts, _hash(tuple(sorted(set(start))))])


def _module_of_world(name: str) -> str:
    """Where a world's class is: one of ours, `my.module:Mine`, or one that another package brings."""
    if name in WORLDS:
        return WORLDS[name][0].__module__
    found = metadata.entry_points(group="rankloop.worlds", name=name)
    module = next(iter(found)).module if found else name.partition(":")[0]
    return import_module(module).__name__


@cache
def _hash(modules: tuple[str, ...]) -> str:
    files = sources_of(modules)
    libraries = sorted({name for file in files for name in _imports(file)[1]})
    return _digest([*map(_version, libraries), *map(_meant, files)])


@cache
def _meant(file: Path) -> str:
    edited = file.stat().st_mtime > _STARTED  # perhaps after it was imported: then nobody knows which code will run
    return _digest([file.name, meaning(_text(file)), f"{os.getpid()} {_STARTED}" if edited else ""])


@cache
def _version(library: str) -> str:
    if library != "torch":  # which takes seconds to import
        return f"{library} {import_module(library).__version__}"
    try:
        return f"{library} {metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return f"no {library}"


@cache
def _text(file: Path) -> str:
    return file.read_text("utf-8", errors="replace")


@cache
def _imports(file: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files that a file imports, of its own package and of rankloop, and the numeric libraries."""
    text = _text(file)
    names = set(_imported(text, file))
    libraries = {name.partition(".")[0] for name in names} & set(_LIBRARIES)
    found = (_found(name, root) for name in names for root in _roots(name.partition(".")[0], file))
    return tuple(sorted(path for path in set(found) if path is not None)), tuple(sorted(libraries))


def _imported(text: str, file: Path) -> Iterator[str]:
    """Every dotted name that an import line may mean; `from a.b import c` is a.b.c or something in a.b."""
    for module, names, plain in _IMPORT.findall(text):
        if plain:
            yield from (part.split()[0] for part in plain.split("#")[0].split(",") if part.strip())
            continue
        if module.startswith("."):
            above = file.parents[len(module) - len(module.lstrip(".")) - 1]
            inside = above.relative_to(_root(file)).parts
            module = ".".join(filter(None, [*inside, module.lstrip(".")]))
        listed = re.sub(r"#[^\n]*", "", names).strip("() \t\n\\")
        yield from (f"{module}.{part.split()[0]}" for part in listed.split(",") if part.strip())


@cache
def _found(name: str, root: Path) -> Path | None:
    """The file of a dotted name below a root: the module, else the one that the last part of the name is in."""
    place = os.path.join(root, *name.split("."))  # noqa: PTH118  (pathlib takes most of the time here)
    for module in (place, os.path.dirname(place)):  # noqa: PTH120
        for file in (f"{module}.py", f"{module}{os.sep}__init__.py"):
            if module != str(root) and os.path.isfile(file):  # noqa: PTH113
                return Path(file)
    return None


def _roots(package: str, file: Path) -> list[Path]:
    """Where to look for a package that a file imports: rankloop, its own package, and what lies beside a script."""
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


def _left_out(file: Path) -> bool:
    if not file.is_relative_to(_PACKAGE):
        return False
    inside = file.relative_to(_PACKAGE).as_posix()
    return any(inside == out or inside.startswith(f"{out}/") for out in _NOT_FOLLOWED)


# -- files ---------------------------------------------------------------------------------------------------------


def _files(trial: Any) -> list[Path]:
    """What a run reads: the files of its data set, of a fitted user, of click models."""
    user, models = getattr(trial, "user", ""), getattr(trial, "models", "")
    others = [Path(user.removeprefix(FITTED)) if user.startswith(FITTED) else None, Path(models) if models else None]
    data = [] if models else files_of(trial.data)
    return [*data, *(file for file in others if file is not None and file.is_file())]


def _digest(parts: Iterable[str]) -> str:
    made = blake2b(digest_size=12)
    for part in parts:
        made.update(part.encode() + b"\0")
    return made.hexdigest()
