"""The decorator of all kernels, and the cache of their machine code.

No fastmath and no parallel reduction: sums run in the order of the code, so results repeat bit for bit.
`NUMBA_DISABLE_JIT=1` runs every kernel as plain Python; the tests do that too.

Numba's own cache checks only the file of a function, not the files of the functions that it calls. Here the machine
code of a kernel is in a folder named by a hash of its file, of all kernel files that it imports (kernels import nothing
else) and of numba's version. The folder is in `$RANKLOOP_KERNELS`, else `$NUMBA_CACHE_DIR`, else `kernels` in
rankloop's cache (`$RANKLOOP_CACHE`, `$XDG_CACHE_HOME/rankloop` or `~/.cache/rankloop`). It can be deleted at any time.
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
from typing import Any, TypeVar

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]
_IMPORTED = re.compile(
    r"^\s*(?:from|import)\s+rankloop\.(kernels[\w.]*)(?:\s+import\s+([\w, ]+|\([^)]*\)))?", re.MULTILINE
)
_DAY = 24 * 3600.0
_CompileResultCache: Any = caching.CompileResultCacheImpl
_IndexFile: Any = caching.IndexDataCacheFile
_Cache: Any = caching.Cache


def jit(function: Function) -> Function:
    """Compile `function` on first use, with a cache on disk, releasing the interpreter lock while it runs."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    if isinstance(compiled, Dispatcher) and _folder_of(Path(function.__code__.co_filename).absolute()) is not None:
        vars(compiled)["_cache"] = _KernelCache(function)  # what njit(cache=True) sets
    return compiled  # type: ignore[no-any-return]


def cache_folder() -> Path | None:
    """Where machine code is kept; None if that folder is not writable."""
    return _root() if _folder_of(Path(__file__)) is not None else None


def cache_is_empty() -> bool:
    """Whether no machine code is cached yet, so that the first call of each kernel compiles it."""
    return not any(_root().glob("*/*.nbc"))


def sources_of(file: Path) -> list[Path]:
    """The files that a kernel's machine code depends on: its own, and all kernels that it imports.

    For a kernel of another package: every Python file beside it, and all kernels.
    """
    if not file.is_relative_to(_PACKAGE):
        return sorted({file, *file.parent.glob("*.py"), *(_PACKAGE / "kernels").glob("*.py")})
    found, waiting = {file, Path(__file__)}, [file]
    while waiting:
        new = [path for path in _imports(waiting.pop()) if path not in found]
        found.update(new)
        waiting += new
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


@cache
def _folder_of(file: Path) -> Path | None:
    """The cache folder of a file's kernels, created if missing; None if it is not writable."""
    digest = blake2b(numba.__version__.encode(), digest_size=12)
    for path in sources_of(file):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    folder = _root() / f"{file.stem}-{digest.hexdigest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if time.time() - folder.stat().st_mtime > _DAY:  # mark it as used
            os.utime(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        warnings.warn(
            f"the machine code of kernels cannot be cached in {folder.parent} ({error.strerror}), so every process "
            "compiles it again, which takes half a minute; set RANKLOOP_KERNELS to a folder that can be written",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    for other in folder.parent.glob(f"{file.stem}-*"):
        try:
            if other != folder and time.time() - other.stat().st_mtime > 30 * _DAY:
                shutil.rmtree(other, ignore_errors=True)
        except OSError:  # another process has deleted it
            continue
    return folder


class _Locator(caching._CacheLocator):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # numba prints it in warnings
        self._folder, self._line = _folder_of(Path(self._py_file).absolute()), function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return str(self._folder)

    def get_disambiguator(self) -> str:
        return str(self._line)


class _KernelCacheImpl(_CompileResultCache):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno, self._locator = function.__code__.co_firstlineno, _Locator(function)
        self._filename_base = self.get_filename_base(function.__qualname__, "")


class MachineCodeFiles(_IndexFile):  # type: ignore[misc]
    """One file per signature, named by a hash of it.

    Numba's index is read, changed and written by every process: two that compile different signatures at the same time
    can take the same file number, and one then loads the other's machine code. Here processes share no file that
    changes, and each file contains its own key.
    """

    def __init__(self, cache_path: str, filename_base: str, source_stamp: str) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._base = filename_base

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._name_of(key), (key, data))

    def load(self, key: Any) -> Any:
        try:
            found, data = self._load_data(self._name_of(key))
        except (OSError, EOFError, ValueError, caching.pickle.UnpicklingError):  # type: ignore[attr-defined]
            return None  # missing or incomplete: compile it
        return data if found == key else None

    def flush(self) -> None:
        """There is no index."""

    def _name_of(self, key: Any) -> str:
        return f"{self._base}.{blake2b(repr(key).encode(), digest_size=12).hexdigest()}.nbc"


class _KernelCache(_Cache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = MachineCodeFiles(self._cache_path, self._impl.filename_base, "")
