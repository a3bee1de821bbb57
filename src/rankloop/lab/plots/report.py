"""A report, as one HTML page that holds everything and as Markdown: claims, figures, tables, conventions.

A report is sections, a section is a heading and blocks, and a block is one of the classes here. All text is escaped;
the page has no scripts and loads nothing from elsewhere.

>>> page = render("A <b>title</b>", [Section("Results", [Text("5 < 6")])])
>>> "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in page, "5 &lt; 6" in page
(True, True)
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import ClassVar, Literal

from rankloop.core import files
from rankloop.core.errors import DataError

Verdict = Literal["seen", "undecided", "not seen", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("seen", "undecided", "not seen", "not tested")

# -- what a report is made of --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """Something a paper says, and whether our runs show it too."""

    says: str
    seen: str  # what came out, with the numbers
    verdict: Verdict
    where: str = ""  # in the paper


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def html(self) -> str:
        """The paragraph as HTML."""
        return f"<p>{escape(self.text)}</p>"

    def markdown(self, folder: Path) -> str:  # noqa: ARG002
        """The paragraph as Markdown."""
        return f"{_plain(self.text)}\n"


@dataclass(frozen=True)
class Code:
    """Commands or settings, to be copied."""

    text: str

    def html(self) -> str:
        """A block of code as HTML."""
        return f"<pre><code>{escape(self.text)}</code></pre>"

    def markdown(self, folder: Path) -> str:  # noqa: ARG002
        """A block of code as Markdown."""
        return f"```text\n{self.text}\n```\n"


@dataclass(frozen=True)
class Picture:
    """A figure, put into the page whole; `path` is an SVG or PNG file."""

    path: Path
    caption: str
    alternative: str  # for who cannot see it: what it shows, in words

    def html(self) -> str:
        """The figure as HTML."""
        kind = {".svg": "svg+xml", ".png": "png"}.get(self.path.suffix)
        if kind is None:
            raise DataError(f"{self.path}: a picture must be an SVG or PNG file")
        content = base64.b64encode(files.read_bytes(self.path)).decode()
        image = f'<img src="data:image/{kind};base64,{content}" alt="{escape(self.alternative)}">'
        return f"<figure>{image}<figcaption>{escape(self.caption)}</figcaption></figure>"

    def markdown(self, folder: Path) -> str:
        """A link to the PNG beside it, for a page in `folder`."""
        place = self.path.with_suffix(".png").relative_to(folder).as_posix()
        return f"![{_plain(self.alternative)}]({place})\n\n{_plain(self.caption)}\n"


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first `words` columns are text, the others are numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def html(self) -> str:
        """The table as HTML."""
        head = "".join(f'<th scope="col"{self._style(i)}>{escape(name)}</th>' for i, name in enumerate(self.columns))
        body = "".join(
            "<tr>" + "".join(f"<td{self._style(i)}>{escape(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        head = f"<thead><tr>{head}</tr></thead>"
        return f'<div class="wide"><table>{caption}{head}<tbody>{body}</tbody></table></div>'

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
        lines = [
            f"| {' | '.join(cells)} |" for cells in ([*map(_cell, row)] for row in (self.columns, rule, *self.rows))
        ]
        return "\n".join([*([self.caption, ""] if self.caption else []), *lines, ""])

    def _style(self, column: int) -> str:
        return "" if column < self.words else ' class="number"'


@dataclass(frozen=True)
class Claims:
    """A table of claims with their verdicts, and how many there are of each."""

    claims: Sequence[Judged]
    columns: ClassVar = ("what the paper says", "where", "what was seen here", "verdict")

    def html(self) -> str:
        """The claims as HTML."""
        head = "".join(f'<th scope="col">{name}</th>' for name in self.columns)
        rows = "".join(
            f"<tr><td>{escape(claim.says)}</td><td>{escape(claim.where)}</td><td>{escape(claim.seen)}</td>"
            f'<td><span class="verdict {claim.verdict.replace(" ", "-")}">{claim.verdict}</span></td></tr>'
            for claim in self.claims
        )
        table = f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        return f'<p>{tally(self.claims)}</p><div class="wide">{table}</div>'

    def markdown(self, folder: Path = Path()) -> str:  # noqa: ARG002
        """The claims as Markdown.

        >>> print(Claims([Judged("A | B", "0.7 and 0.6", "seen", "4.2")]).markdown())
        1 claim: 1 seen.
        <BLANKLINE>
        | what the paper says | where | what was seen here | verdict |
        | --- | --- | --- | --- |
        | A \\| B | 4.2 | 0.7 and 0.6 | **seen** |
        <BLANKLINE>
        """
        rows = [(_cell(c.says), _cell(c.where), _cell(c.seen), f"**{c.verdict}**") for c in self.claims]
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, ("---",) * 4, *rows)]
        return "\n".join([tally(self.claims), "", *lines, ""])


Block = Text | Code | Picture | Table | Claims


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block]


# -- writing it ----------------------------------------------------------------------------------------------------


def write_report(path: Path | str, title: str, sections: Sequence[Section], subtitle: str = "") -> Path:
    """Write the page, whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, render(title, sections, subtitle).encode())
    return path


def render(title: str, sections: Sequence[Section], subtitle: str = "") -> str:
    """The page as HTML."""
    inside = ["".join(block.html() for block in section.blocks) for section in sections]
    titles = [escape(section.title) for section in sections]
    parts = enumerate(zip(titles, inside, strict=True))
    body = "".join(f'<section id="s{i}"><h2>{title}</h2>{content}</section>' for i, (title, content) in parts)
    links = "".join(f'<li><a href="#s{i}">{title}</a></li>' for i, title in enumerate(titles))
    below = f"<p class='subtitle'>{escape(subtitle)}</p>" if subtitle else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>"
        f"<body><main><header><h1>{escape(title)}</h1>{below}</header><nav><ul>{links}</ul></nav>{body}</main></body></html>\n"
    )


def write_markdown(path: Path | str, title: str, sections: Sequence[Section], subtitle: str = "") -> Path:
    """Write the report as Markdown, whole or not at all; its figures must lie below the same folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [f"# {_plain(title)}\n", *([f"{_plain(subtitle)}\n"] if subtitle else [])]
    for section in sections:
        parts += [f"## {_plain(section.title)}\n", *(block.markdown(path.parent) for block in section.blocks)]
    files.write(path, "\n".join(parts).encode())
    return path


def tally(claims: Sequence[Judged]) -> str:
    """How many claims there are of each verdict."""
    counts = Counter(claim.verdict for claim in claims)
    listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f"{len(claims)} claim{'' if len(claims) == 1 else 's'}: {listed or 'none'}."


def plus_minus(mean: float | None, error: float | None, digits: int = 3) -> str:
    """A mean with its standard error, as tables show it.

    >>> plus_minus(0.51234, 0.0021), plus_minus(0.5, None), plus_minus(None, None)
    ('0.512 ± 0.002', '0.500', '–')
    """
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _plain(text: str) -> str:
    """Text that cannot start HTML, in one line."""
    return " ".join(escape(text, quote=False).replace("\\", "\\\\").split())


def _cell(text: str) -> str:
    """The same, that cannot end a cell either."""
    return _plain(text).replace("|", "\\|")


_CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --page: #ffffff; --card: #f6f8fa; --line: #d8dee4;
  --yes: #116329; --yes-back: #dafbe1; --no: #a40e26; --no-back: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --page: #0d1117; --card: #161b22;
  --line: #30363d; --yes: #7ee787; --yes-back: #12361f; --no: #ffa198; --no-back: #4a1519; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
.subtitle { color: var(--soft); margin: 0; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; margin: 1.2rem 0 0; }
a { color: inherit; text-underline-offset: .2em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .45rem .7rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.claims td:first-child { min-width: 15rem; } .claims td:nth-child(3) { min-width: 20rem; }
.verdict { white-space: nowrap; padding: .1rem .55rem; border-radius: 1rem; font-weight: 600; font-size: .82rem; }
.seen { color: var(--yes); background: var(--yes-back); } .not-seen { color: var(--no); background: var(--no-back); }
.not-tested, .undecided { color: var(--soft); background: var(--card); border: 1px solid var(--line); }
figure { margin: 1.4rem 0; } figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; }
img, pre { border: 1px solid var(--line); border-radius: .5rem; }
img { display: block; width: 100%; height: auto; background: #fff; }
pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; }
code { font: .88rem/1.5 ui-monospace, monospace; }
@media print { nav { display: none; } figure, tr { break-inside: avoid; } }
"""
