"""A report as Markdown: claims, figures, tables and paragraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal, get_args

from rankloop.core import files

Verdict = Literal["supported", "undecided", "refuted", "not tested"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class ClaimResult:
    """A claim of a paper, and what our runs found."""

    claim: str
    finding: str  # with the numbers
    verdict: Verdict
    where: str = ""  # in the paper


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def markdown(self, folder: Path) -> str:  # noqa: ARG002
        """The paragraph as Markdown."""
        return f"{_plain(self.text)}\n"


@dataclass(frozen=True)
class Code:
    """Commands or settings, to be copied."""

    text: str

    def markdown(self, folder: Path) -> str:  # noqa: ARG002
        """A block of code as Markdown."""
        return f"```text\n{self.text}\n```\n"


@dataclass(frozen=True)
class Picture:
    """A figure; `path` is its PNG file."""

    path: Path
    caption: str

    def markdown(self, folder: Path) -> str:
        """A link to the file, for a page in `folder`."""
        return f"![{_plain(self.caption)}]({self.path.relative_to(folder).as_posix()})\n\n{_plain(self.caption)}\n"


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first `words` columns are text, the others are numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def markdown(self, folder: Path = Path()) -> str:  # noqa: ARG002
        """The table as Markdown, under its caption.

        >>> print(Table("Sizes", ("set", "documents"), [("a|b", "5")]).markdown())
        Sizes
        <BLANKLINE>
        | set | documents |
        | --- | ---: |
        | a\\|b | 5 |
        <BLANKLINE>
        """
        rule = ["---" if column < self.words else "---:" for column in range(len(self.columns))]
        lines = [f"| {' | '.join(map(_cell, cells))} |" for cells in (self.columns, rule, *self.rows)]
        return "\n".join([*([_plain(self.caption), ""] if self.caption else []), *lines, ""])


def claims_table(results: Sequence[ClaimResult]) -> Table:
    """Claims with their verdicts, and how many there are of each."""
    rows = [(result.claim, result.where, result.finding, result.verdict) for result in results]
    return Table(tally(results), ("what the paper says", "where", "what was found", "verdict"), rows, words=4)


Block = Text | Code | Picture | Table


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block]


def write_markdown(path: Path | str, title: str, sections: Sequence[Section], subtitle: str = "") -> Path:
    """Write the report, whole or not at all; its figures must be below the same folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [f"# {_plain(title)}\n", *([f"{_plain(subtitle)}\n"] if subtitle else [])]
    for section in sections:
        parts += [f"## {_plain(section.title)}\n", *(block.markdown(path.parent) for block in section.blocks)]
    files.write(path, "\n".join(parts).encode())
    return path


def tally(results: Sequence[ClaimResult]) -> str:
    """How many claims there are of each verdict."""
    counts = Counter(result.verdict for result in results)
    listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f"{len(results)} claim{'s' * (len(results) != 1)}: {listed or 'none'}."


def plus_minus(mean: float | None, error: float | None, digits: int = 3) -> str:
    """A mean with its standard error, as tables show it; NaN is none.

    >>> plus_minus(0.51234, 0.0021), plus_minus(0.5, None), plus_minus(None, None)
    ('0.512 ± 0.002', '0.500', '–')
    """
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if error is None or error != error else f" ± {error:.{digits}f}")


def _plain(text: str) -> str:
    """Text in one line that cannot start HTML."""
    return " ".join(escape(text, quote=False).replace("\\", "\\\\").split())


def _cell(text: str) -> str:
    """The same, that cannot end a cell either."""
    return _plain(text).replace("|", "\\|")
