"""A cache on disk: an entry is a folder that appears whole or not at all, so processes can share it.

It is `$RANKLOOP_CACHE`, else `$XDG_CACHE_HOME/rankloop`, else `~/.cache/rankloop`, else a temporary folder. Deleting
any of it costs time only.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, TypeVar

from rankloop.core.errors import CodecError

T = TypeVar("T")

_ENDS = 1 << 16  # bytes of a file's head and tail that go into its fingerprint
_UNFINISHED = ".unfinished-"
_A_DAY = 24 * 3600.0


def stored(name: str, stamp: str, build: Callable[[Path], None], load: Callable[[Path], T]) -> T:
    """What `load` makes of the entry `name`, which `build` makes first if it is absent, damaged or of another stamp.

    `load` must raise `CodecError` or `OSError` at a folder that is not as `build` left it.
    """
    root = chosen_root()
    if root is not None:
        with suppress(OSError):
            return _stored_in(root, name, stamp, build, load)
    return _stored_in(_temporary_root(), name, stamp, build, load)


def digest(value: Any) -> str:
    """A short name for anything JSON can say."""
    return blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()


def fingerprint(path: Path) -> str:
    """A short name for a file's size, head and tail: tells most changed or damaged files, in microseconds."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(_ENDS)
        file.seek(max(size - _ENDS, 0))
        return blake2b(head + file.read(_ENDS) + str(size).encode(), digest_size=12).hexdigest()


def content_of(path: Path) -> str:
    """A short name for all that is in a file. Read once: kept until the file's size, time, head or tail changes."""
    place = path.resolve()
    stamp = digest([place.stat().st_size, place.stat().st_mtime_ns, fingerprint(place)])

    def build(folder: Path) -> None:
        with place.open("rb") as file:
            (folder / "content").write_text(file_digest(file, lambda: blake2b(digest_size=12)).hexdigest())

    return stored(f"content-{digest(str(place))}", stamp, build, lambda folder: (folder / "content").read_text())


def _stored_in(root: Path, name: str, stamp: str, build: Callable[[Path], None], load: Callable[[Path], T]) -> T:
    entry = root / f"{name}-{stamp}"
    with suppress(CodecError, OSError):
        return load(entry)
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=root))
    try:
        build(made)
        loaded = load(made)  # before it is published: no other process can take it away any more
        _publish(made, entry)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _sweep(root, name, entry)
    return loaded


def _publish(made: Path, entry: Path) -> None:
    try:
        made.replace(entry)
    except OSError:  # there is one: damaged, or another process's that is as good; who reads it keeps the bytes
        shutil.rmtree(entry, ignore_errors=True)
        with suppress(OSError):
            made.replace(entry)


def _sweep(root: Path, name: str, entry: Path) -> None:
    """Remove what the new entry supersedes and what killed processes left."""
    for old in root.glob(f"{name}-*"):
        if old != entry:
            shutil.rmtree(old, ignore_errors=True)
    for left in root.glob(f"{_UNFINISHED}*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _A_DAY:
                shutil.rmtree(left, ignore_errors=True)


def chosen_root() -> Path | None:
    """The user's cache folder, there or not; None for a user without a home."""
    if chosen := os.environ.get("RANKLOOP_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rankloop"
    except RuntimeError:  # a user without a home
        return None


@cache
def _temporary_root() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rankloop-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
