"""The Parquet files of an exported log: schema, conversion from and to chunks, and how files are written whole.

The schema is stable: a column never changes its name, type or meaning; others are added at the end with a new
`VERSION`, and readers take all earlier versions. The files are

    DIR/ranker=shop/day=2026-11-17/0000000000000000-0000000000250000.parquet
    DIR/ranker=shop/_manifest.json
    DIR/ranker=shop/_states/v3.rankloop

A file's name has the outcomes that it covers, so the names are the list of what has been exported. A file is written
under a hidden name, flushed and then renamed, so readers see whole files only.
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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankloop.core.errors import CodecError, DataError, InvalidParameter, RankloopError
from rankloop.core.types import Array
from rankloop.service.maintenance.archive.columns import (
    CANDIDATES,
    LOG_PROPENSITY,
    MEMO,
    SPARSE_PARTS,
    Alike,
    Chunk,
    Layout,
    cut,
    layout_of,
    ragged,
)

VERSION = 2
KEY = b"rankloop.log"  # in a file's metadata: the version


try:
    import fcntl
except ImportError:  # Windows: two exports at once are the user's to avoid there
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"(\d{16})-(\d{16})\.parquet")
_HIDDEN = ".writing-"
DICTIONARIES = ["query", "kind", "layout", "user", "items.list.element", "order.list.element", "feedback.list.element"]


class Column(NamedTuple):
    """A column and its documentation."""

    name: str
    type: Any
    empty: bool  # whether it may be null
    text: str


_TIME = pa.timestamp("us", "UTC")
COLUMNS = (
    Column("seq", pa.int64(), False, "number of the outcome: what a ranker learned is a fold in this order"),
    Column("impression_id", pa.string(), False, "of the list, as `rank` answered it"),
    Column("query", pa.string(), False, "what was asked for"),
    Column("user", pa.string(), True, "who saw it, if that was told"),
    Column("shown_at", _TIME, False, "when it was ranked"),
    Column("settled_at", _TIME, False, "when its feedback was complete; the day of the folder is of this time"),
    Column("kind", pa.string(), False, "what settled it: `final` event, end of the `window`, `silent`, or `logged`"),
    Column("learn", pa.bool_(), False, "whether the ranker learned from it; not while paused, nor from fallbacks"),
    Column("order", pa.list_(pa.int32()), False, "by slot: position in the candidate list, from 0"),
    Column("items", pa.list_(pa.string()), False, "by slot: id of the item"),
    Column(
        "feedback", pa.list_(pa.float64()), False, "by slot: clicks or rewards from 0 to 1, or grades; may be short"
    ),
    Column("viewed", pa.int32(), True, "how many slots came into view, if that was reported"),
    Column("width", pa.int64(), True, "how many features an item has; null: items without features"),
    Column(
        "features", pa.list_(pa.float64()), True, "slot after slot, `width` numbers each; of sparse rows the values"
    ),
    Column("feature_rows", pa.list_(pa.int32()), True, "sparse rows: where each slot's values begin, and the end"),
    Column("feature_columns", pa.list_(pa.int64()), True, "sparse rows: the column of each value"),
    Column("candidates", pa.int64(), True, "how many there were to choose from, where the probability is known"),
    Column("log_propensity", pa.float64(), True, "log-probability of the list given the candidates, where it is known"),
    Column("epoch", pa.int64(), False, "which life of the ranker: one more at a reset or a change of features"),
    Column("number", pa.int64(), False, "of the list: its random numbers hang on it"),
    Column("request_id", pa.string(), True, "the caller's own"),
    Column("experiment", pa.int64(), True, "the comparison that the list was mixed for"),
    Column("credit", pa.list_(pa.float64()), True, "by slot: 1 the ranker's item, -1 the other's, 0 both's"),
    Column("memo", pa.binary(), False, "what the learner noted for itself: bytes, as `layout` describes them"),
    Column("layout", pa.string(), False, "names, types and shapes of the list's arrays, JSON; `memo/…` are in `memo`"),
    Column("rewards", pa.list_(pa.float64()), True, "by slot: reward in the ranker's unit; null: none was reported"),
)
SINCE = {"rewards": 2}  # columns that earlier versions do not have
SCHEMA = pa.schema([pa.field(one.name, one.type, one.empty) for one in COLUMNS], metadata={KEY: str(VERSION).encode()})


def check(schema: Any, path: object) -> None:
    """Refuse a file of another kind, or of a later release."""
    version = (schema.metadata or {}).get(KEY)
    if version is None:
        raise DataError(f"{path}: Parquet, but no file of `rankloop export-log`; move it elsewhere")
    if int(version) > VERSION:
        raise DataError(
            f"{path}: schema {int(version)}, but this release reads up to {VERSION}; take the release that wrote it"
        )
    lacks = [one.name for one in COLUMNS if one.name not in schema.names and SINCE.get(one.name, 1) <= int(version)]
    if lacks:
        raise DataError(f"{path}: has no column {', '.join(lacks)}: it is damaged; restore it from a copy")


# -- to Arrow ------------------------------------------------------------------------------------------------------


def table_of(chunk: Chunk) -> Any:
    """A chunk as an Arrow table."""
    n, plain = len(chunk), chunk.plain
    dense = [(one.rows, one.arrays["features"].reshape(len(one.rows), -1)) for one in chunk.alike if _is_dense(one)]
    sparse = [one for one in chunk.alike if one.layout.width is not None]
    values = [*dense, *((one.rows, one.arrays["features/values"]) for one in sparse)]
    layouts = pa.DictionaryArray.from_arrays(
        pa.array(_scattered(n, [(one.rows, i) for i, one in enumerate(chunk.alike)], -1).astype(np.int32)),
        pa.array([one.layout.text for one in chunk.alike]),
    )
    arrays = {
        "seq": pa.array(chunk.seq),
        "impression_id": pa.array(plain["impression_id"]),
        "query": pa.array(chunk.query),
        "user": pa.array(chunk.person, pa.string()),
        "shown_at": _times(plain["shown_at"]),
        "settled_at": _times(plain["settled_at"]),
        "kind": pa.array(plain["kind"]),
        "learn": pa.array(chunk.learn),
        "order": _lists(n, [(one.rows, one.arrays["order"]) for one in chunk.alike], np.int32),
        "items": _items(n, chunk.alike),
        "feedback": pa.ListArray.from_arrays(pa.array(chunk.ends.astype(np.int32)), pa.array(chunk.values)),
        "viewed": pa.array(chunk.viewed, pa.int32()),
        "width": _optional(n, [(one.rows, _width(one)) for one in chunk.alike], pa.int64()),
        "features": _lists(n, values, np.float64),
        "feature_rows": _lists(n, [(one.rows, one.arrays["features/indptr"]) for one in sparse], np.int32),
        "feature_columns": _lists(n, [(one.rows, one.arrays["features/indices"]) for one in sparse], np.int64),
        "candidates": _optional(n, _noted(chunk.alike, CANDIDATES), pa.int64()),
        "log_propensity": _optional(n, _noted(chunk.alike, LOG_PROPENSITY), pa.float64()),
        "epoch": pa.array(chunk.epoch),
        "number": pa.array(plain["number"], pa.int64()),
        "request_id": pa.array(plain["request_id"], pa.string()),
        "experiment": pa.array(plain["experiment"], pa.int64()),
        "credit": _numbers(plain["credit"]),
        "memo": _memos(n, chunk.alike),
        "layout": layouts.cast(pa.string()),
        "rewards": _numbers(chunk.rewards),
    }
    return pa.table([arrays[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _numbers(lists: list[list[float] | None]) -> Any:
    kind = pa.list_(pa.float64())
    return pa.nulls(len(lists), kind) if all(one is None for one in lists) else pa.array(lists, kind)


def _is_dense(one: Alike) -> bool:
    return "features" in one.arrays


def _width(one: Alike) -> int | None:
    return one.arrays["features"].shape[-1] if _is_dense(one) else one.layout.width


def _times(seconds: Array) -> Any:
    return pa.array(np.round(seconds * 1e6).astype(np.int64)).cast(_TIME)


def _lists(n: int, parts: list[tuple[Array, Array]], dtype: Any) -> Any:
    """A list column of the rows that have one; the others are null."""
    if not parts:
        return pa.nulls(n, pa.list_(pa.from_numpy_dtype(dtype)))
    flat, ends = ragged(n, parts, dtype)
    there = _scattered(n, [(rows, 1) for rows, _ in parts], 0) > 0
    mask = None if there.all() else pa.array(~there)
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(flat), mask=mask)


def _items(n: int, alike: list[Alike]) -> Any:
    """Ids as text, whatever they are; `layout` has their type."""
    parts = [(one.rows, one.arrays["items"]) for one in alike]
    kinds = {values.dtype.kind for _, values in parts}
    if kinds <= {"i"}:
        flat, ends = ragged(n, parts, np.int64)
        text = pa.array(flat).cast(pa.string())
    else:
        flat, ends = ragged(n, [(rows, values.astype(object)) for rows, values in parts], object)
        text = pa.array([str(one) for one in flat.tolist()])
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), text)


def _memos(n: int, alike: list[Alike]) -> Any:
    parts = [(one.rows, _joined(one)) for one in alike]
    flat, ends = ragged(n, parts, np.uint8)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat)])


def _joined(one: Alike) -> Array:
    """(m, bytes) the notes of lists, as they lay in their bytes."""
    m = len(one.rows)
    parts = [
        np.ascontiguousarray(one.arrays[described.name].astype(described.dtype, copy=False)).reshape(m, -1)
        for described in one.layout.arrays
        if described.name.startswith(MEMO)
    ]
    blobs = [part.view(np.uint8).reshape(m, -1) if part.size else np.empty((m, 0), np.uint8) for part in parts]
    return np.concatenate(blobs, axis=1) if blobs else np.empty((m, 0), np.uint8)


def _noted(alike: list[Alike], name: str) -> list[tuple[Array, Any]]:
    found = []
    for one in alike:
        noted = one.arrays.get(MEMO + name)
        if noted is not None and noted.shape[1:] == (1,):
            found.append((one.rows, noted[:, 0]))
    return found


def _optional(n: int, parts: list[tuple[Array, Any]], kind: Any) -> Any:
    """A column of numbers that only some rows have."""
    known = [(rows, value) for rows, value in parts if value is not None]
    there = _scattered(n, [(rows, 1) for rows, _ in known], 0) > 0
    values = _scattered(n, known, 0)
    return pa.array(values, mask=~there).cast(kind)


def _scattered(n: int, parts: list[tuple[Array, Any]], empty: int) -> Array:
    kind = np.result_type(np.int64, *(np.asarray(value).dtype for _, value in parts)) if parts else np.int64
    found = np.full(n, empty, kind)
    for rows, value in parts:
        found[rows] = value
    return found


# -- and back ------------------------------------------------------------------------------------------------------


def _alike(codes: Array, texts: list[str], widths: Array) -> Iterator[tuple[str, int | None, Array]]:
    """(layout, width of sparse rows, which lists): as many zeros may be left out of rows of two widths."""
    for code, text in enumerate(texts):
        rows = np.flatnonzero(codes == code)
        if f'"features/{SPARSE_PARTS[0]}"' not in text:
            yield text, None, rows
            continue
        for width in np.unique(widths[rows]).tolist():
            yield text, int(width), rows[widths[rows] == width]


def chunk_from(table: Any) -> Chunk:
    """The chunk of a table with at least one row, bit for bit, without its `plain` columns."""
    table = table.combine_chunks()
    columns = {name: table.column(name).chunk(0) for name in table.column_names}
    layouts = columns["layout"].dictionary_encode()
    codes, texts = layouts.indices.to_numpy(), layouts.dictionary.to_pylist()
    widths = columns["width"].to_numpy(zero_copy_only=False)
    items, alike = _Items(columns["items"]), []
    order, features = _Ragged(columns["order"]), _Ragged(columns["features"])
    begins, places = _Ragged(columns["feature_rows"]), _Ragged(columns["feature_columns"])
    memos, feedback = _Bytes(columns["memo"]), _Ragged(columns["feedback"])
    rewards = columns["rewards"].to_pylist() if "rewards" in columns else [None] * len(table)
    for text, width, rows in _alike(codes, texts, widths):
        layout = layout_of(text, width, "an exported list")
        arrays = {}
        parts = {
            "order": order.of,
            "features": features.of,
            "features/indptr": begins.of,
            "features/indices": places.of,
            "features/values": features.of,
            "items": items.of,
        }
        for one in layout.arrays:
            if not one.name.startswith(MEMO):
                found = parts[one.name](rows, one)
                arrays[one.name] = found.reshape(len(rows), *one.shape).astype(one.dtype.newbyteorder("="), copy=False)
        arrays |= cut(_notes(layout), memos.of(rows, layout.size - layout.memo_start))
        alike.append(Alike(layout, rows, {one.name: arrays[one.name] for one in layout.arrays}))
    return Chunk(
        columns["seq"].to_numpy(), columns["learn"].to_numpy(zero_copy_only=False), columns["epoch"].to_numpy(),
        feedback.flat, feedback.ends, columns["viewed"].to_pylist(), columns["user"].to_pylist(),
        columns["query"].to_pylist(), rewards, alike, {},
    )  # fmt: skip


def _notes(layout: Layout) -> Layout:
    """The part of a layout that is in `memo`."""
    kept = [(one, at) for one, at in zip(layout.arrays, layout.starts, strict=True) if one.name.startswith(MEMO)]
    begin = layout.memo_start
    return Layout("", tuple(o for o, _ in kept), tuple(at - begin for _, at in kept), layout.size - begin, None)


class _Ragged:
    """A list column whose rows are taken out by the thousand."""

    def __init__(self, column: Any) -> None:
        self.ends = column.offsets.to_numpy()
        self.flat = self._read(column.values)

    def _read(self, values: Any) -> Any:
        return values.to_numpy(zero_copy_only=False)

    def of(self, rows: Array, one: Any) -> Array:
        """(m, length) of rows of one length."""
        length = int(np.prod(one.shape))
        return taken(self.flat, self.ends, rows, length)


class _Items(_Ragged):
    def _read(self, values: Any) -> Any:
        return values

    def of(self, rows: Array, one: Any) -> Array:
        length = int(np.prod(one.shape))
        places = taken(np.arange(len(self.flat)), self.ends, rows, length).reshape(-1)
        some = self.flat if len(places) == len(self.flat) else self.flat.take(pa.array(places))
        if one.dtype.kind in "iu":
            found: Array = pc.cast(some, pa.from_numpy_dtype(one.dtype)).to_numpy()
            return found
        return np.array(some.to_pylist(), one.dtype)


class _Bytes:
    """A binary column, likewise."""

    def __init__(self, column: Any) -> None:
        _, ends, flat = column.buffers()
        self._ends = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
        self._flat = np.frombuffer(flat, np.uint8) if flat is not None else np.empty(0, np.uint8)

    def of(self, rows: Array, length: int) -> Array:
        return taken(self._flat, self._ends, rows, length)


def taken(flat: Array, ends: Array, rows: Array, length: int) -> Array:
    """(m, length) of a ragged column, of rows that are as long."""
    if len(rows) == len(ends) - 1:
        return flat[ends[0] : ends[-1]].reshape(len(rows), length)
    found: Array = flat[ends[rows][:, None] + np.arange(length)]
    return found


# -- files ---------------------------------------------------------------------------------------------------------


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
