"""Readers of click logs: plain or gzip text, in three formats.

- `clara`, a page per line, tab-separated: session, query, the documents shown and their click flags, both with commas;
- `yandex`, an action per line, tab-separated: `session time Q query region url1 … urln`, or `session time C url`, a
  click on the latest page of the session that shows the url;
- `jsonl`, a page per line: `{"session": "17", "query": "shoes", "documents": ["d4", "d1"], "clicks": [0, 1]}`; clicks
  may also list the clicked documents, and a page without a session is a session of its own.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path
from time import perf_counter

from rankloop.clicks.log import Finding, LogBuilder, ReadReport, SessionLog
from rankloop.core.errors import DataError, InvalidParameter
from rankloop.core.files import GZIP_ERRORS, ungzipped

FORMATS = ("clara", "yandex", "jsonl")
Progress = Callable[[int, int], None]  # bytes read, of how many
_FIRST = 10  # line numbers kept of each kind
_HEADER = ["session", "query", "docs", "clicks"]

MALFORMED, NOT_SHOWN = "malformed line", "click on a document not shown"
REPEATED = "page that shows a document twice"


def read_log(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    skip_bad: bool = False,
    on_progress: Progress | None = None,
) -> SessionLog:
    """Read a click log; its `report` counts what was skipped or is unusual.

    Parameters
    ----------
    format
        clara, yandex or jsonl; inferred from the first line if not given.
    skip_bad
        Skip and count invalid lines instead of raising an error for the first.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.tsv").write_text("1\\tshoes\\ta,b,c\\t0,1,0\\n2\\tshoes\\tb,a\\t1\\n")
    ...     log = read_log(Path(folder, "log.tsv"), skip_bad=True)
    >>> len(log), str(log.report.skipped["malformed line"])
    (1, '1 (line 2)')
    """
    if format is not None and format not in FORMATS:
        raise InvalidParameter(f"format is {format!r}; it must be one of {', '.join(FORMATS)}")
    began = perf_counter()
    source = _Source(Path(path), skip_bad, on_progress)
    builder = LogBuilder()
    with closing(source.lines()) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path}: the file is empty; give a log with at least one page")
        form = format or _format_of(first, source)
        _READERS[form](chain([first], lines), builder, source)
    report = ReadReport(
        str(path),
        form,
        source.number,
        len(builder.ends),
        source.characters,
        perf_counter() - began,
        source.found(source.skipped),
        source.found(source.noticed) | _other_lengths(builder, source),
    )
    if not builder.ends:
        raise DataError(f"{path}: no page can be used. {report}")
    return builder.log(report)


class _Source:
    """The lines of a file, the current place, and findings so far."""

    def __init__(self, path: Path, skip_bad: bool, on_progress: Progress | None) -> None:
        self.path, self.skip_bad, self.on_progress = path, skip_bad, on_progress
        self.number = self.characters = 0
        self.skipped: dict[str, tuple[int, list[int]]] = {}
        self.noticed: dict[str, tuple[int, list[int]]] = {}
        self.page_lines: list[int] = []

    def lines(self) -> Generator[str]:
        """Iterate over lines that are not empty; `number` is that of the current line."""
        try:
            with self.path.open("rb") as raw:
                opened, size = ungzipped(raw), self.path.stat().st_size
                # invalid UTF-8 becomes surrogates, which are checked line by line
                with io.TextIOWrapper(opened, "utf-8-sig", errors="surrogateescape", newline="\n") as text:
                    for line in text:
                        self.number += 1
                        self.characters += len(line)
                        if self.on_progress and self.number % 10_000 == 0:
                            self.on_progress(raw.tell(), size)
                        content = line.rstrip("\r\n")
                        if not content.isascii() and not _utf8(content):
                            self.bad(MALFORMED, "it is not UTF-8 text")
                        elif content:
                            yield content
                if self.on_progress:
                    self.on_progress(size, size)
        except GZIP_ERRORS as error:
            raise DataError(f"{self.path}, line {self.number}: damaged or cut gzip file ({error})") from None
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}; give a click log that can be read") from None

    def bad(self, kind: str, why: str) -> None:
        """Count an invalid line or click, or raise an error."""
        if not self.skip_bad:
            raise DataError(
                f"{self.path}, line {self.number}: {kind}: {why}; correct it, or skip and count such lines "
                "(--skip-bad, skip_bad=True)"
            )
        self.note(self.skipped, kind)

    def note(self, where: dict[str, tuple[int, list[int]]], kind: str, line: int = 0) -> None:
        """Count a finding and keep its first line numbers."""
        count, lines = where.get(kind, (0, []))
        if len(lines) < _FIRST:
            lines.append(line or self.number)
        where[kind] = (count + 1, lines)

    def found(self, where: dict[str, tuple[int, list[int]]]) -> dict[str, Finding]:
        """Return findings for the report."""
        return {kind: Finding(count, tuple(lines)) for kind, (count, lines) in where.items()}

    def page(self, documents: list[str]) -> None:
        """Record that a page was read from this line."""
        self.page_lines.append(self.number)
        if len(set(documents)) < len(documents):
            self.note(self.noticed, REPEATED)


def _read_clara(lines: Iterable[str], builder: LogBuilder, source: _Source) -> None:
    read: dict[str, list[int]] = {}  # the same few flags recur
    for line in lines:
        fields = line.split("\t")
        if len(fields) != 4:
            source.bad(MALFORMED, f"{len(fields)} fields between tabs, not session, query, documents and clicks")
            continue
        session, query, shown, clicked = fields
        if source.number == 1 and fields == _HEADER:
            continue
        documents, flags = shown.split(","), read.get(clicked)
        if flags is None:
            wrong = [flag for flag in clicked.split(",") if flag not in ("0", "1")]
            if wrong:
                source.bad(MALFORMED, f"click flag {wrong[0]!r}, which must be 0 or 1")
                continue
            flags = read[clicked] = [int(flag) for flag in clicked.split(",")]
        if len(documents) != len(flags):
            source.bad(MALFORMED, f"{len(documents)} documents but {len(flags)} click flags")
        elif "" in documents:
            source.bad(MALFORMED, "a document without a name")
        else:
            builder.add(session, query, documents, flags)
            source.page(documents)


def _read_yandex(lines: Iterable[str], builder: LogBuilder, source: _Source) -> None:
    pages_of: dict[str, list[int]] = {}
    for line in lines:
        fields = line.split("\t")
        action = fields[2] if len(fields) > 2 else ""
        if action == "Q" and len(fields) >= 6 and "" not in fields[5:]:
            documents = fields[5:]
            pages_of.setdefault(fields[0], []).append(len(builder.ends))
            builder.add(fields[0], fields[3], documents, [0] * len(documents))
            source.page(documents)
        elif action == "C" and len(fields) == 4:
            if not _click(builder, pages_of.get(fields[0], ()), fields[3]):
                source.bad(NOT_SHOWN, f"no page of session {fields[0]!r} up to here shows {fields[3]!r}")
        elif action == "Q":
            source.bad(MALFORMED, f"a page of {len(fields)} fields; it needs session, time, Q, query, region, urls")
        elif action == "C":
            source.bad(MALFORMED, f"a click of {len(fields)} fields; it needs session, time, C, url")
        else:
            source.bad(MALFORMED, f"{action!r} where Q (a page) or C (a click) must stand, in the third field")


def _click(builder: LogBuilder, pages: Iterable[int], url: str) -> bool:
    """Mark the click on the latest page that shows the url; return whether there is one."""
    code = builder.document_codes.get(url, -1)
    for page in reversed(list(pages)):
        start = builder.ends[page - 1] if page else 0
        shown = builder.documents[start : builder.ends[page]]
        if code in shown:
            builder.clicks[start + shown.index(code)] = 1
            return True
    return False


def _read_jsonl(lines: Iterable[str], builder: LogBuilder, source: _Source) -> None:
    for line in lines:
        try:
            content = json.loads(line)
            query, shown, clicked = content["query"], content["documents"], content["clicks"]
            session = content.get("session", f"line {source.number}")
            if not (isinstance(shown, list) and isinstance(clicked, list) and shown):
                raise TypeError("documents and clicks must be lists, and at least one document shown")
            documents = [_name(document) for document in shown]
            page = (_name(session), _name(query))
        except (ValueError, KeyError, TypeError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            source.bad(MALFORMED, f"not a page as JSON ({why})")
            continue
        flags = [0] * len(documents)
        if len(clicked) == len(documents) and all(click in (0, 1) for click in clicked):
            flags = [int(click) for click in clicked]
        else:
            places = {document: place for place, document in reversed(list(enumerate(documents)))}
            for click in map(str, clicked):
                if click in places:
                    flags[places[click]] = 1
                else:
                    source.bad(NOT_SHOWN, f"{click!r} is not among the {len(documents)} documents of the page")
        builder.add(*page, documents, flags)
        source.page(documents)


def _name(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise TypeError(f"{value!r:.60} is no id; ids are texts or whole numbers")
    return str(value)


_READERS: dict[str, Callable[[Iterable[str], LogBuilder, _Source], None]] = {
    "clara": _read_clara,
    "yandex": _read_yandex,
    "jsonl": _read_jsonl,
}


def _format_of(line: str, source: _Source) -> str:
    fields = line.split("\t")
    if line.lstrip().startswith("{"):
        return "jsonl"
    if len(fields) > 3 and fields[2] in ("Q", "C"):
        return "yandex"
    if len(fields) == 4:
        return "clara"
    raise DataError(
        f"{source.path}, line {source.number}: neither a page of four fields between tabs, nor a session action, nor "
        f"JSON; if the line is bad, say the format ({', '.join(FORMATS)})"
    )


def _other_lengths(builder: LogBuilder, source: _Source) -> dict[str, Finding]:
    """Return the pages whose length is not the most common one."""
    ends = [0, *builder.ends]
    lengths = [end - start for start, end in pairwise(ends)]
    counts = Counter(lengths).most_common()
    if len(counts) < 2:
        return {}
    usual = counts[0][0]
    others = [line for line, length in zip(source.page_lines, lengths, strict=True) if length != usual]
    span = f"{min(n for n, _ in counts)} to {max(n for n, _ in counts)}"
    return {f"page of other than {usual} documents ({span})": Finding(len(others), tuple(others[:_FIRST]))}


def _utf8(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
