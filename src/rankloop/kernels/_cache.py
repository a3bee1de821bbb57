"""Where machine code is kept, so that it never outlives the sources it was made from.

Numba keeps the code of a function under the file that the function is in, and does not see a change in another file
whose functions it calls: after an edit or an update old code would run. Here the code of a kernel lies in a folder that
is named by the contents of its own file, of every kernel file that it imports, directly or not, and by the version of
numba. (Kernels import nothing but kernels and the type of arrays; a test looks.) Another source means another folder;
the same source in another clone finds the same code.

The folder is `$RANKLOOP_KERNELS`, else `$NUMBA_CACHE_DIR`, else `kernels` in rankloop's cache (`$RANKLOOP_CACHE`,
`$XDG_CACHE_HOME/rankloop` or `~/.cache/rankloop`). Deleting any of it, at any time, costs time only; folders that were
not used for a month go by themselves. Where none can be written, every process compiles anew, and a warning says so.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any

import numba
from numba.core import caching

_PACKAGE = Path(__file__).parents[1]
_IMPORTED = re.compile(
    r"^\s*(?:from|import)\s+rankloop\.(kernels[\w.]*)(?:\s+import\s+([\w, ]+|\([^)]*\)))?", re.MULTILINE
)
_A_DAY = 24 * 3600.0
_UNUSED = 30 * _A_DAY  # after so long without use a folder may go


def can_keep(function: Callable[..., Any]) -> bool:
    """Whether there is a place for the machine code of `function`."""
    return _folder(_file_of(function)) is not None


def sources_of(file: Path) -> list[Path]:
    """The files that a kernel's machine code depends on: its own, and all kernels that it imports.

    For a kernel of another package, which may import anything of its own: every Python file beside it, and all kernels.
    """
    if not file.is_relative_to(_PACKAGE):
        return sorted({file, *file.parent.glob("*.py"), *(_PACKAGE / "kernels").glob("*.py")})
    found, waiting = {file, Path(__file__), Path(__file__).with_name("_jit.py")}, [file]
    while waiting:
        for path in _imports(waiting.pop()):
            if path not in found:
                found.add(path)
                waiting.append(path)
    return sorted(found)


@cache
def _imports(file: Path) -> tuple[Path, ...]:
    """The kernel files that a file imports; `from a.b import c` may mean the module a.b.c."""
    found = []
    for module, names in _IMPORTED.findall(file.read_text(encoding="utf-8")):
        path = _PACKAGE.joinpath(*module.split("."))
        found += [path.with_suffix(".py"), path / "__init__.py"]
        found += [path / f"{name.split()[0]}.py" for name in names.strip("()").split(",") if name.strip()]
    return tuple(path for path in found if path.is_file())


@cache
def _key(file: Path) -> str:
    made = blake2b(numba.__version__.encode(), digest_size=12)
    for path in sources_of(file):
        made.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()


@cache
def _folder(file: Path) -> Path | None:
    """The folder for the kernels of a file, made if need be; None if it cannot be written."""
    folder = _root() / f"{file.stem}-{_key(file)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if time.time() - folder.stat().st_mtime > _A_DAY:  # so that what is used stays
            os.utime(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        warnings.warn(
            f"machine code of kernels cannot be kept in {folder.parent} ({error.strerror}), so every process compiles "
            "them anew, which takes half a minute; set RANKLOOP_KERNELS to a folder that can be written",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    _forget_unused(folder)
    return folder


def _forget_unused(folder: Path) -> None:
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        try:
            if other != folder and time.time() - other.stat().st_mtime > _UNUSED:
                shutil.rmtree(other, ignore_errors=True)
        except OSError:  # another process was quicker
            continue


def is_empty() -> bool:
    """Whether nothing is kept yet, so that the first call of each kernel will take long."""
    return not any(_root().glob("*/*.nbc"))


def folder() -> Path | None:
    """Where machine code is kept; None if it is not, because nothing can be written there."""
    return _root() if _folder(Path(__file__)) is not None else None


@cache
def _root() -> Path:
    for variable in ("RANKLOOP_KERNELS", "NUMBA_CACHE_DIR"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).absolute()
    if os.environ.get("RANKLOOP_CACHE"):
        return Path(os.environ["RANKLOOP_CACHE"]).absolute() / "kernels"
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(home or Path.home() / ".cache").absolute() / "rankloop" / "kernels"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"rankloop-{os.getuid() if hasattr(os, 'getuid') else 0}" / "kernels"


def _file_of(function: Callable[..., Any]) -> Path:
    code: CodeType = function.__code__
    return Path(code.co_filename).absolute()


class _KernelLocator(caching._CacheLocator):
    """Tells numba where our kernels lie; other people's functions it leaves to numba's own locators."""

    def __init__(self, function: Callable[..., Any], folder: Path, key: str) -> None:
        self._line, self._place, self._stamp = function.__code__.co_firstlineno, str(folder), key
        self._py_file = function.__code__.co_filename  # numba names it in warnings

    def get_cache_path(self) -> str:
        return self._place

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], _py_file: str) -> _KernelLocator | None:
        file = _file_of(py_func)
        if not file.is_file() or (not file.is_relative_to(_PACKAGE) and "rankloop" not in file.read_text("utf-8")):
            return None
        folder = _folder(file)
        return None if folder is None else cls(py_func, folder, _key(file))


_caching: Any = caching
_Numba: Any = caching.IndexDataCacheFile


class _KeptCode(_Numba):  # type: ignore[misc]
    """The machine code of a kernel, one file a signature, named by what it is for.

    Numba's own way is an index that every process reads, adds to and writes: two that compile different signatures of a
    function at the same time both take the next number, and one of them finds the other's machine code under its own
    signature ever after. Here nothing is shared, and what is found says itself what it is for. Functions of others are
    kept as numba does it.
    """

    def __init__(self, cache_path: str, filename_base: str, source_stamp: Any) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._ours, self._base = Path(cache_path).is_relative_to(_root()), filename_base

    def save(self, key: Any, data: Any) -> None:
        if self._ours:
            self._save_data(self._name_of(key), (key, data))
        else:
            super().save(key, data)

    def load(self, key: Any) -> Any:
        if not self._ours:
            return super().load(key)
        try:
            found, data = self._load_data(self._name_of(key))
        except (OSError, EOFError, ValueError, _caching.pickle.UnpicklingError):  # not there, or not whole: compile it
            return None
        return data if found == key else None

    def flush(self) -> None:
        if not self._ours:
            super().flush()

    def _name_of(self, key: Any) -> str:
        return f"{self._base}.{blake2b(repr(key).encode(), digest_size=12).hexdigest()}.nbc"


_caching.IndexDataCacheFile = _KeptCode
_numba: Any = caching.CompileResultCacheImpl
_numba._locator_classes = [_KernelLocator, *_numba._locator_classes]
