"""Parse LETOR text in chunks, and report what is wrong with a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rankloop.core.errors import DataError
from rankloop.core.files import GZIP_ERRORS, ungzipped
from rankloop.core.types import Array
from rankloop.kernels.letor import parse_lines

MOST_FEATURES = 100_000  # a higher index is a damaged file, not a feature
HIGHEST_GRADE = 62  # the gain 2**grade - 1 must fit 64 bits
CHUNK = 1 << 19  # bytes of text read at a time
LONGEST_LINE = 1 << 24
_BLOCK = 1 << 19  # bytes of rows written at a time
_PEEK = 1 << 16  # bytes looked at first, to learn how wide the rows are
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb"[^ \t\r]+")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FORM = "a line is `grade qid:ID index:value … # comment`"


class Rows:
    """The rows read so far: features go to `file` at once, only what is per row or per query stays in memory."""

    def __init__(self, file: BinaryIO, width: int = 0) -> None:
        self.file = file
        self.grades: list[Array] = []
        self.queries: dict[str, int] = {}  # id -> number, by first appearance
        self.runs: list[tuple[int, int]] = []  # (query, how many rows of it come next)
        self.spans: list[tuple[int, int]] = []  # (rows, their width in the file): rows before a wider one are narrower
        self.widen(width)

    def widen(self, width: int) -> None:
        """Make room for rows of this width from now on."""
        self.width = width
        self.block = np.zeros((max(_BLOCK // (8 * max(width, 1)), 1), width))
        self.block_grades = np.zeros(len(self.block), np.int64)
        self.block_runs = np.zeros((len(self.block), 3), np.int64)

    def keep(self, count: int, tokens: Sequence[tuple[int, str]]) -> None:
        """Keep the block's first `count` rows; `tokens` are the first row and the query id of each run in them."""
        self.file.write(self.block[:count].data)
        self.grades.append(self.block_grades[:count].astype(np.int8))
        ends = [*(row for row, _ in tokens[1:]), count]
        for (row, query), end in zip(tokens, ends, strict=True):
            self.runs.append((self.queries.setdefault(query, len(self.queries)), end - row))
        if self.spans and self.spans[-1][1] == self.width:
            count += self.spans.pop()[0]
        self.spans.append((count, self.width))

    def add(self, grade: int, query: str, features: dict[int, float]) -> None:
        """One row that the kernel left to the careful parser."""
        widest = max(features, default=0)
        if widest > self.width:
            self.widen(widest)
        self.block[0] = 0.0
        for index, value in features.items():
            self.block[0, index - 1] = value
        self.block_grades[0] = grade
        self.keep(1, [(0, query)])


def read_text(path: Path, rows: Rows) -> Iterator[int]:
    """Append the file's documents to `rows`, saying now and then how many bytes of the file are done.

    A line that is not LETOR is a `DataError` with its number and what is wrong with it.
    """
    line = 1
    for text, done in _whole_lines(path):
        if line == 1:
            rows.widen(max(rows.width, _widest(text[:_PEEK])))
        bytes_ = np.frombuffer(text, np.uint8)
        at = 0
        while at < len(text):
            start = where = at
            at, count, runs, lines, odd = parse_lines(bytes_, at, rows.block, rows.block_grades, rows.block_runs)
            try:
                tokens = []
                for row, where, end in rows.block_runs[:runs].tolist():
                    tokens.append((row, _query(text[where:end])))
                if count:
                    rows.keep(count, tokens)
                if odd:
                    where = at
                    at = text.index(b"\n", at) + 1
                    rows.add(*parse_line(text[where : at - 1]))
            except ValueError as error:
                line += text.count(b"\n", start, where)
                raise DataError(f"{path}, line {line}: {error}") from None
            line += lines + odd
        yield done


def parse_line(line: bytes) -> tuple[int, str, dict[int, float]]:
    """Grade, query and features of any right line; a `ValueError` with the reason for any other.

    >>> parse_line(b"2.0 qid:a 3:1e-400 1:.5 # why")
    (2, 'a', {3: 0.0, 1: 0.5})
    >>> parse_line(b"1 qid:a 0:1")
    Traceback (most recent call last):
    ...
    ValueError: feature index '0' is not a whole number from 1 to 100000; indices start at 1
    """
    tokens = _TOKEN.findall(line.partition(b"#")[0])
    grade = float(tokens[0]) if _NUMBER.fullmatch(tokens[0]) else -1.0
    if not (0 <= grade <= HIGHEST_GRADE and grade.is_integer()):
        raise ValueError(f"grade {_show(tokens[0])} is not a whole number from 0 to {HIGHEST_GRADE}; {_FORM}")
    if len(tokens) < 2 or not tokens[1].startswith(b"qid:") or tokens[1] == b"qid:":
        found = _show(tokens[1]) if len(tokens) > 1 else "nothing"
        raise ValueError(f"expected qid:ID after the grade, found {found}; {_FORM}")
    features: dict[int, float] = {}
    for token in tokens[2:]:
        number, colon, value = token.partition(b":")
        if not colon:
            raise ValueError(f"{_show(token)} has no colon; features are written index:value")
        index = int(number) if number.isdigit() and len(number) < 10 else 0
        if not 1 <= index <= MOST_FEATURES:
            rule = f"a whole number from 1 to {MOST_FEATURES}; indices start at 1"
            raise ValueError(f"feature index {_show(number)} is not {rule}")
        if index in features:
            raise ValueError(f"feature {index} stands twice in the line; give each feature once")
        if not _NUMBER.fullmatch(value) or not isfinite(float(value)):
            raise ValueError(f"value {_show(value)} of feature {index} is not a finite decimal number, as 0.5 or 1e-3")
        features[index] = float(value)
    return int(grade), _query(tokens[1][4:]), features


def _query(token: bytes) -> str:
    try:
        query = token.decode()
    except UnicodeDecodeError:
        query = "\0"
    if not query.isprintable():
        raise ValueError(f"query id {_show(token)} is not printable UTF-8 text; is this a LETOR file?")
    return query


def _show(token: bytes) -> str:
    """A token as an error shows it: quoted, unprintable bytes escaped, not too long."""
    text = repr(token.decode(errors="backslashreplace"))
    return text if len(text) <= 42 else f"{text[:40]}…'"


def _widest(text: bytes) -> int:
    """The highest feature index in the first lines; wrong ones are left for the reading proper to name."""
    widest = 0
    for line in text.split(b"\n"):
        with suppress(ValueError, IndexError):
            widest = max(widest, max(parse_line(line)[2], default=0))
    return widest


def _whole_lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """The file's text in chunks that end with a newline, and how far into the file each goes."""
    try:
        with path.open("rb") as raw:
            file = ungzipped(raw)
            tail = file.read(len(_BOM)).removeprefix(_BOM)
            while chunk := file.read(CHUNK):
                text = tail + chunk
                end = text.rfind(b"\n") + 1
                tail = text[end:]
                if len(tail) > LONGEST_LINE:
                    raise DataError(f"{path}: a line of more than {LONGEST_LINE} bytes; is this a LETOR file? {_FORM}")
                if end:
                    yield text[:end], raw.tell()
            if tail:
                yield tail + b"\n", raw.tell()
    except EOFError:
        raise DataError(f"{path}: the gzip data ends too early; copy or download the file again") from None
    except GZIP_ERRORS as error:
        raise DataError(f"{path}: damaged gzip data ({error}); copy or download the file again") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a LETOR file that can be read") from None
