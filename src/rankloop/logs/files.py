"""Read impressions from files: JSON lines, TSV (both plain or gzip), Parquet, and logs of search engines.

Every impression has a key: a hash of its content, its number in the file and the first impression. So a file is
recognized under another name, after lines were appended, and except for corrected impressions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rankloop.core.errors import DataError, InvalidInput, InvalidParameter, MissingExtra
from rankloop.core.files import GZIP_ERRORS, ungzipped
from rankloop.logs import engines
from rankloop.logs.impressions import LoggedImpression, from_rows, parse_line

FORMATS = ("jsonl", "tsv", "parquet", "ltrlog", "solr", "ubi")
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".parquet": "parquet"}
NEEDED = ("list", "query", "position", "item", "click")
OPTIONAL = ("propensity", "log_propensity", "time", "user")  # all other columns are features
LONGEST = 64 * 2**20  # bytes per line
BATCH = 2048  # rows of Parquet at a time


class RawRecord(NamedTuple):
    """An impression in a file, not parsed yet."""

    place: str  # file:line
    key: str
    parse: Callable[[], LoggedImpression]


class _Keys:
    """The keys of the impressions of a file, in order."""

    def __init__(self, head: bytes = b"") -> None:
        self._file, self._number = head, 0

    def next(self, content: bytes) -> str:
        """Return the key of the next impression."""
        if self._number == 0:
            self._file = blake2b(self._file + content, digest_size=16).digest()
        self._number += 1
        return blake2b(self._file + self._number.to_bytes(8) + content, digest_size=16).hexdigest()


class LogReader:
    """Iterates over the impressions of files, and counts malformed ones.

    Parameters
    ----------
    paths
        The files.
    format
        One of `FORMATS`; inferred from file names if not given.
    whole_ids
        TSV: ids are integers, not text.
    strict
        Raise an error for the first malformed impression; otherwise skip it, call `on_bad` and count it in `bad`.
    on_bad
        Called with `file:line: what is wrong`.
    clicks
        ltrlog, solr: files of UBI events with the clicks.
    actions
        Values of UBI actions, 0 to 1.
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
        self.total = sum(path.stat().st_size for path, _ in self.files)  # bytes; raises an error if a file is missing
        event_files = [*map(Path, clicks), *(path for path, kind in self.files if kind == "ubi")]
        self.clicks = engines.ubi_clicks(event_files, actions)
        self._before = 0
        self._position: Callable[[], int] = lambda: 0

    @property
    def position(self) -> int:
        """How many of the `total` bytes have been read."""
        return self._before + self._position()

    def __iter__(self) -> Iterator[RawRecord]:
        for path, kind in self.files:
            self._position = lambda: 0
            yield from self._parquet(path) if kind == "parquet" else self._text(path, kind)
            self._position = lambda: 0
            self._before += path.stat().st_size

    def parsed(self, raw: RawRecord, use: Callable[[LoggedImpression], Any] | None = None) -> Any:
        """Return the impression, or what `use` makes of it; None if it is malformed."""
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

    def _text(self, path: Path, kind: str) -> Iterator[RawRecord]:
        with path.open("rb") as file:
            self._position = file.tell
            lines = ungzipped(file)
            try:
                if kind == "tsv":
                    yield from self._tsv(path, lines)
                else:
                    parse = parse_line if kind == "jsonl" else engines.parser(kind, self.clicks)
                    yield from _json_lines(path, lines, parse, kind == "ubi")
            except GZIP_ERRORS as error:
                raise DataError(f"{path}: the gzip file is damaged or cut off ({error})") from None

    def _tsv(self, path: Path, lines: Any) -> Iterator[RawRecord]:
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
            yield RawRecord(
                f"{path}:{group[0][0]}",
                keys.next(b"\n".join(line.rstrip(b"\r\n") for _, line in group)),
                lambda group=group: self._from_tsv(group, columns, names),  # type: ignore[misc]
            )

    def _from_tsv(self, group: list[tuple[int, bytes]], columns: list[str], names: list[str]) -> LoggedImpression:
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

    def _parquet(self, path: Path) -> Iterator[RawRecord]:
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
            yield RawRecord(
                f"{path}:{group[0][0]}",
                keys.next(repr([list(row.values()) for _, row in group]).encode(errors="surrogatepass")),
                lambda group=group: from_rows([_checked_row(row, names) for _, row in group], names),  # type: ignore[misc]
            )
        file.close()


def _format_of(path: Path) -> str:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidParameter(f"{path} has no known suffix; give --format: {', '.join(FORMATS)}")
    return SUFFIXES[suffix]


def _lines(path: Path, file: Any) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if len(line) == LONGEST and not line.endswith(b"\n"):
            raise DataError(f"{path}:{number}: a line of more than {LONGEST:,} bytes; is this a text file?")
        yield line


def _json_lines(
    path: Path, file: BinaryIO, parse: Callable[[bytes], LoggedImpression], mixed: bool
) -> Iterator[RawRecord]:
    """Iterate over one impression per line; skip events in a `mixed` file."""
    keys = _Keys()
    for number, line in enumerate(_lines(path, file), 1):
        if line.strip() and not (mixed and engines.is_event(line)):
            key = keys.next(line.strip())  # without the newline, which is missing in a last line
            yield RawRecord(f"{path}:{number}", key, lambda line=line: parse(line))  # type: ignore[misc]


def _groups(rows: Iterator[tuple[int, Any, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """Group (line, row) of neighbors with the same list."""
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
        raise DataError(f"{path}:1: a column occurs twice; names must be unique")
    return [name for name in columns if name not in NEEDED and name not in OPTIONAL]


def _typed(row: dict[str, Any], names: Sequence[str], whole_ids: bool) -> dict[str, Any]:
    """Convert the cells of a row; an empty cell is None."""
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
    """Check a row and return it."""
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
