"""The files of an exported log: where they stand, what their names say, and how one comes to be whole or not at all.

    DIR/ranker=shop/day=2026-11-17/0000000000000000-0000000000250000.parquet
    DIR/ranker=shop/_manifest.json
    DIR/ranker=shop/_states/v3.rankloop

A file's name says which outcomes it is about, from the first to before the second number: all of them that were in the
log are in it. So the names are the list of what has been exported, and there is no other that could differ from it. A
file is written under a hidden name, flushed to the disk and then renamed; whoever lists the folder sees whole files
only, whenever the writer was killed. Names that start with . or _ are passed over by what reads Parquet by folders.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rankloop.core.errors import CodecError, InvalidParameter, RankloopError
from rankloop.service.maintenance.archive.schema import SCHEMA, check

try:
    import fcntl
except ImportError:  # Windows: two exports at once are the user's to avoid there
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"(\d{16})-(\d{16})\.parquet")
_HIDDEN = ".writing-"
DICTIONARIES = ["query", "kind", "layout", "user", "items.list.element", "order.list.element", "feedback.list.element"]


class LogFile(NamedTuple):
    """A file of a ranker's log, and the outcomes first … end-1 that it is about."""

    path: Path
    day: str
    first: int
    end: int


def ranker_folder(folder: Path, ranker: str) -> Path:
    """Where a ranker's files are."""
    return folder / f"ranker={quote(ranker, safe='')}"


def rankers_in(folder: Path) -> list[str]:
    """The rankers whose log is there."""
    found = (unquote(one.name.partition("=")[2]) for one in folder.glob("ranker=*") if one.is_dir())
    return sorted(found)


def files_of(folder: Path, ranker: str) -> list[LogFile]:
    """The files of a ranker, in the order of its outcomes."""
    found = []
    for path in ranker_folder(folder, ranker).glob("day=*/*.parquet"):
        told = _NAME.fullmatch(path.name)
        if told is not None:
            found.append(LogFile(path, path.parent.name.partition("=")[2], int(told[1]), int(told[2])))
    found.sort(key=lambda one: one.first)
    for one, other in itertools.pairwise(found):
        if other.first < one.end:
            raise RankloopError(f"{one.path} and {other.path} are about the same outcomes; keep one of them")
    return found


def lacking(files: Iterable[LogFile], first: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of first … end-1 that no file is about, in order.

    >>> list(lacking([LogFile(Path("a"), "", 2, 4), LogFile(Path("b"), "", 4, 7)], 0, 9))
    [(0, 2), (7, 9)]
    """
    for one in files:
        if one.first >= end:
            break
        if one.first > first:
            yield first, one.first
        first = max(first, one.end)
    if first < end:
        yield first, end


@contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """Whether this process may write to the folder: not if another one does. It ends with the process, however."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
        yield True


def clear(folder: Path, ranker: str) -> None:
    """Delete what a writer that was killed has left under hidden names; for whoever holds the lock."""
    for path in ranker_folder(folder, ranker).glob(f"{_HIDDEN}*"):
        path.unlink(missing_ok=True)


class Writer:
    """A file that becomes visible when it is whole."""

    def __init__(self, folder: Path, ranker: str, day: str, first: int) -> None:
        own = ranker_folder(folder, ranker)
        own.mkdir(parents=True, exist_ok=True)
        self.day, self.first, self.rows, self._folder = day, first, 0, own
        self._hidden = own / f"{_HIDDEN}{secrets.token_hex(8)}"
        self._file = self._hidden.open("xb")
        self._writer = pq.ParquetWriter(
            self._file,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=DICTIONARIES,
            write_statistics=["seq", "shown_at", "settled_at"],
            write_page_checksum=True,  # after retention these files may be the only copy
        )

    def add(self, table: Any) -> None:
        """Some rows, in a row group of their own."""
        self._writer.write_table(table, row_group_size=len(table))
        self.rows += len(table)

    @property
    def bytes(self) -> int:
        """How long the file is by now."""
        return int(self._file.tell())

    def finish(self, end: int) -> LogFile:
        """Make it visible, as the file about outcomes up to `end`."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        target = self._folder / f"day={self.day}"
        new = not target.exists()
        target.mkdir(exist_ok=True)
        path = target / f"{self.first:016d}-{end:016d}.parquet"
        self._hidden.rename(path)
        sync(target)  # the name is on the disk, too, before anybody deletes what it stands for
        if new:
            sync(self._folder)
        return LogFile(path, self.day, self.first, end)

    def give_up(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._hidden.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Have the disk remember the names in a folder."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(one: LogFile) -> Any:
    """A file to read; what is not Parquet, or not ours, is named."""
    try:
        file = pq.ParquetFile(one.path, page_checksum_verification=True)
    except (FileNotFoundError, PermissionError) as error:
        raise CodecError(f"{one.path}: {error.strerror}; workers must see the folder under the same path") from None
    except (OSError, pa.ArrowException) as error:
        raise _damaged(one, error) from None
    check(file.schema_arrow, one.path)
    return file


def read_group(one: LogFile, file: Any, group: int, columns: list[str]) -> Any:
    """Some columns of a row group; their checksums are compared."""
    try:
        return file.read_row_group(group, columns=[name for name in columns if name in file.schema_arrow.names])
    except (OSError, pa.ArrowException) as error:
        raise _damaged(one, error) from None


def _damaged(one: LogFile, error: Exception) -> CodecError:
    remedy = "restore it from a copy; if its lists are in the store yet, move it elsewhere and export again"
    return CodecError(f"{one.path}: cannot be read ({' '.join(str(error).split())}); {remedy}")


def last_list(one: LogFile) -> tuple[int, str] | None:
    """(outcome, impression_id) of the last list in a file; None if there is none."""
    with opened(one) as file:
        for group in reversed(range(file.num_row_groups)):
            table = read_group(one, file, group, ["seq", "impression_id"])
            if len(table):
                return int(table["seq"][-1].as_py()), str(table["impression_id"][-1].as_py())
    return None


def put_aside(folder: Path, ranker: str) -> Path:
    """Give a ranker's folder another name, under which it is nobody's; that name."""
    own = ranker_folder(folder, ranker)
    other = own.with_name(f"aside-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(2)}-{own.name}")
    own.rename(other)
    sync(folder)
    return other


def existing(folder: Path) -> Path:
    """A folder that an export wrote to; refuses any other."""
    if not folder.is_dir() or not rankers_in(folder):
        raise InvalidParameter(f"there is no exported log in {folder}; give the --out of `rankloop export-log`")
    return folder
