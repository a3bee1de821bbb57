"""Files of logged lists, read one list at a time: JSON lines, TSV (both plain or gzip), Parquet, logs of engines.

Every list gets a key: what stands in it, how many lists stand before it in its file, and what the first of those is. By
it a file that was read before is known again, whatever its name is now; one that has grown is known up to where it has,
and one that was mended but for the lists that were.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rankloop.core.errors import DataError, InvalidInput, InvalidParameter, MissingExtra
from rankloop.logs import engines
from rankloop.logs.impressions import LoggedList, from_rows, parse_line

FORMATS = ("jsonl", "tsv", "parquet", "ltrlog", "solr", "ubi")
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".parquet": "parquet"}
NEEDED = ("list", "query", "position", "item", "click")
OPTIONAL = ("propensity", "log_propensity", "time", "user")  # all other columns are features
LONGEST = 64 * 2**20  # bytes a line: what is longer is no list, and would have to be held as a whole
BATCH = 2048  # rows of Parquet at a time


class Raw(NamedTuple):
    """A list as it stands in a file, not yet looked into."""

    place: str  # file:line, for people
    key: str  # what it is known by
    parse: Callable[[], LoggedList]


class _Keys:
    """The keys of a file's lists, asked for in their order."""

    def __init__(self, head: bytes = b"") -> None:
        self._file, self._number = head, 0

    def next(self, content: bytes) -> str:
        """Of the list that comes next."""
        if self._number == 0:
            self._file = blake2b(self._file + content, digest_size=16).digest()
        self._number += 1
        return blake2b(self._file + self._number.to_bytes(8) + content, digest_size=16).hexdigest()


class Reading:
    """The lists of some files, one after the other, and what was met on the way.

    Parameters
    ----------
    paths
        The files.
    format
        One of `FORMATS`; by the name of each file if not given.
    whole_ids
        TSV: ids are integers, not text.
    strict
        The first malformed list is an error; else it is left out, told to `on_bad` and counted in `bad`.
    on_bad
        Called with `file:line: what is wrong`.
    clicks
        ltrlog, solr: files of UBI events, which tell what was clicked. Of ubi the logs themselves are looked through,
        too.
    actions
        What actions of UBI events are worth, 0 to 1.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        format: str | None = None,  # noqa: A002
        *,
        whole_ids: bool = False,
        strict: bool = False,
        on_bad: Callable[[str], None] | None = None,
        clicks: Sequence[str | os.PathLike[str]] = (),
        actions: Mapping[str, float] = engines.CLICK,
    ) -> None:
        if not paths:
            raise InvalidParameter("no log is given; name at least one file")
        if format is not None and format not in FORMATS:
            raise InvalidParameter(f"format is {format!r}; it must be one of {', '.join(FORMATS)}")
        self.files = [(Path(path), format or _format_of(Path(path))) for path in paths]
        self.whole_ids, self.strict, self.on_bad = whole_ids, strict, on_bad
        self.bad = 0
        self.total = sum(path.stat().st_size for path, _ in self.files)  # bytes; a file that is not there is told now
        told = [*map(Path, clicks), *(path for path, kind in self.files if kind == "ubi")]
        self.clicks = engines.ubi_clicks(told, actions)
        self._before = 0
        self._position: Callable[[], int] = lambda: 0

    @property
    def position(self) -> int:
        """How many of the `total` bytes are behind."""
        return self._before + self._position()

    def __iter__(self) -> Iterator[Raw]:
        for path, kind in self.files:
            self._position = lambda: 0
            yield from self._parquet(path) if kind == "parquet" else self._text(path, kind)
            self._position = lambda: 0
            self._before += path.stat().st_size

    def parsed(self, raw: Raw, use: Callable[[LoggedList], Any] | None = None) -> Any:
        """The list, or what `use` makes of it; None if either refuses it."""
        try:
            return raw.parse() if use is None else use(raw.parse())
        except InvalidInput as error:
            text = f"{raw.place}: {error}"
            if self.strict:
                raise DataError(text) from None
            self.bad += 1
            if self.on_bad is not None:
                self.on_bad(text)
            return None

    # -- formats -----------------------------------------------------------------------------------------------------

    def _text(self, path: Path, kind: str) -> Iterator[Raw]:
        with path.open("rb") as file:
            self._position = file.tell
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            lines: Any = gzip.GzipFile(fileobj=file) if packed else file
            try:
                if kind == "tsv":
                    yield from self._tsv(path, lines)
                else:
                    parse = parse_line if kind == "jsonl" else engines.parser(kind, self.clicks)
                    yield from _json_lines(path, lines, parse, kind == "ubi")
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise DataError(f"{path}: the gzip file is damaged or cut off ({error})") from None

    def _tsv(self, path: Path, lines: Any) -> Iterator[Raw]:
        numbered = enumerate(_lines(path, lines), 1)
        _, head = next(numbered, (0, b""))
        columns = _decoded(path, 1, head).rstrip("\r\n").split("\t")
        names = _feature_names(path, columns)
        keys = _Keys(head)
        at = columns.index("list")

        def cell(line: bytes) -> bytes | None:
            cells = line.split(b"\t", at + 1)
            return cells[at].rstrip(b"\r\n") if len(cells) > at else None

        for group in _groups(((n, line, cell(line)) for n, line in numbered if line.strip())):
            yield Raw(
                f"{path}:{group[0][0]}",
                keys.next(b"\n".join(line.rstrip(b"\r\n") for _, line in group)),
                lambda group=group: self._from_tsv(group, columns, names),  # type: ignore[misc]
            )

    def _from_tsv(self, group: list[tuple[int, bytes]], columns: list[str], names: list[str]) -> LoggedList:
        rows = []
        for number, line in group:
            try:
                cells = line.decode().rstrip("\r\n").split("\t")
                if len(cells) != len(columns):
                    raise InvalidInput(f"{len(cells)} cells, but the first line names {len(columns)} columns")
                row: dict[str, Any] = dict(zip(columns, cells, strict=True))
                rows.append(_typed(row, names, self.whole_ids))
            except (InvalidInput, UnicodeDecodeError) as error:
                where = "" if number == group[0][0] else f"line {number}: "
                raise InvalidInput(f"{where}{error}") from None
        return from_rows(rows, names)

    def _parquet(self, path: Path) -> Iterator[Raw]:
        try:
            from pyarrow import ArrowException, parquet
        except ModuleNotFoundError:
            raise MissingExtra(f"{path}", "pyarrow", "lab") from None
        try:
            file = parquet.ParquetFile(path)
        except (ArrowException, OSError) as error:
            raise DataError(f"{path}: not a Parquet file ({error})") from None
        columns, size, count = list(file.schema_arrow.names), path.stat().st_size, max(file.metadata.num_rows, 1)
        names = _feature_names(path, columns)
        done = 0
        self._position = lambda: size * done // count
        keys = _Keys(repr(columns).encode())
        every = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(BATCH))
        for group in _groups(((n, row, row["list"]) for n, row in enumerate(every, 1))):
            done += len(group)
            yield Raw(
                f"{path}:{group[0][0]}",
                keys.next(repr([list(row.values()) for _, row in group]).encode(errors="surrogatepass")),
                lambda group=group: from_rows([_checked_row(row, names) for _, row in group], names),  # type: ignore[misc]
            )
        file.close()


def _format_of(path: Path) -> str:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidParameter(f"{path} may be anything by its name; give --format: {', '.join(FORMATS)}")
    return SUFFIXES[suffix]


def _lines(path: Path, file: Any) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if len(line) == LONGEST and not line.endswith(b"\n"):
            raise DataError(f"{path}:{number}: a line of more than {LONGEST:,} bytes; is this a text file?")
        yield line


def _json_lines(
    path: Path, file: io.BufferedIOBase, parse: Callable[[bytes], LoggedList], mixed: bool
) -> Iterator[Raw]:
    """A list a line; of a `mixed` file, events between them are passed over."""
    keys = _Keys()
    for number, line in enumerate(_lines(path, file), 1):
        if line.strip() and not (mixed and engines.is_event(line)):
            key = keys.next(line.strip())  # the last line is the same when others follow it
            yield Raw(f"{path}:{number}", key, lambda line=line: parse(line))  # type: ignore[misc]


def _groups(rows: Iterator[tuple[int, Any, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """(line, row) of neighbours with the same list."""
    group: list[tuple[int, Any]] = []
    last: Any = None
    for number, row, key in rows:
        if group and key != last:
            yield group
            group = []
        last = key
        group.append((number, row))
    if group:
        yield group


def _feature_names(path: Path, columns: Sequence[str]) -> list[str]:
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise DataError(
            f"{path}:1: no column {', '.join(missing)}; the columns are {', '.join(NEEDED)}, perhaps "
            f"{', '.join(OPTIONAL)}, and features by their names"
        )
    if len(set(columns)) < len(columns):
        raise DataError(f"{path}:1: a column stands twice; names must be unique")
    return [name for name in columns if name not in NEEDED and name not in OPTIONAL]


def _typed(row: dict[str, Any], names: Sequence[str], whole_ids: bool) -> dict[str, Any]:
    """A row of text as what its columns say; an empty cell is none."""
    kinds: dict[str, type] = {"position": int, "click": float, "propensity": float, "log_propensity": float}
    if whole_ids:
        kinds["item"] = int
    kinds.update(dict.fromkeys(names, float))
    for name, kind in kinds.items():
        text = row.get(name)
        if text is None:
            continue
        try:
            row[name] = None if text == "" else kind(text)
        except ValueError:
            raise InvalidInput(f"{name} is {text!r:.60}; give a number") from None
    row["user"] = row.get("user") or None
    return _checked_row(row, names)


def _checked_row(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A row, if nothing that it must have is missing."""
    position = row["position"]
    if position is not None and (type(position) is not int or position < 1):
        raise InvalidInput(
            f"position is {position!r:.60}; positions are whole numbers from 1, none for what was not shown"
        )
    if row["click"] is None:
        row["click"] = 0 if position is None else None
    elif not isinstance(row["click"], int | float):
        raise InvalidInput(f"click is {row['click']!r:.60}; it must be 0 or 1")
    for name in names:
        if not isinstance(row[name], int | float):
            raise InvalidInput(f"feature {name!r} of item {row['item']!r} is {row[name]!r:.60}; give a number")
    return row


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 ({error})") from None
