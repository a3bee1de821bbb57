"""Tables, progress and notes for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rankloop.core.errors import InvalidParameter

BARS = "▁▂▃▄▅▆▇█"
people = Console(stderr=True)
output = Console()


def print_json(value: Any) -> None:
    """One JSON document on standard output; numbers that are not finite become null."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1, note: str = ""
) -> None:
    """A table on standard output, numbers to the right, a note below."""
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    if note:
        table.caption, table.caption_justify = escape(note), "left"
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < numbers_from else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))  # "pdgd [k=5]" is a label, not markup
    wide().print(table)


def check_writable(path: Path) -> None:
    """Raise before the work starts if its result cannot be written."""
    if path.is_dir():
        raise InvalidParameter(f"{path} is a folder; give the name of a file")
    if not path.absolute().parent.is_dir():
        raise InvalidParameter(f"{path}: the folder {path.absolute().parent} does not exist; create it first")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise InvalidParameter(f"{path} cannot be written; check its permissions, or name another file")


def check_figure(path: Path | None) -> None:
    """Refuse a figure whose name does not end in .png or .svg."""
    if path is not None and path.suffix.lower() not in (".png", ".svg"):
        raise InvalidParameter(f"figure {path} ends in {path.suffix!r}; figures are written as .png or .svg")


def wide() -> Console:
    """Standard output, 160 columns wide if it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def sparkline(values: Sequence[float | None]) -> str:
    """A curve in one line, from the lowest to the highest value, with gaps for None.

    >>> sparkline([0.0, 1.0, None, 3.0])
    '▁▃ █'
    """
    known = [value for value in values if value is not None and value == value]  # NaN is not itself
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(
        " " if value is None or value != value else BARS[round((value - low) / span * (len(BARS) - 1))]
        for value in values
    )


@contextmanager
def executor(processes: int, cluster: str | None) -> Iterator[Executor | None]:
    """Where runs go: local processes, or the Dask cluster whose dashboard this prints."""
    from rankloop.core.executors import open_executor

    with open_executor(processes, cluster, lambda line: people.print(line, highlight=False, soft_wrap=True)) as opened:
        yield opened


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress on standard error, with the time left; nothing if it is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(
            *columns,
            TextColumn("left"),
            TimeRemainingColumn(),
            console=people,
            transient=True,
            disable=not people.is_terminal,
        ) as bars,
        _kernels_among(bars),
    ):
        yield bars


@contextmanager
def _kernels_among(bars: Progress) -> Iterator[None]:
    """Show compilation of kernels as a bar of its own."""
    from rankloop.kernels import compilation

    bar: list[TaskID] = []

    def report(name: str, number: int, most: int) -> None:
        if not bar:
            bar.append(bars.add_task("", total=most))
        said = f"compiling {name}, once on this machine"
        bars.update(bar[0], description=said, completed=number, total=most, visible=bool(name))

    before, compilation.report = compilation.report, report
    try:
        yield
    finally:
        compilation.report = before


def say_when_compiling() -> None:
    """Print a note once if kernels have to be compiled, because the first run takes longer."""
    from rankloop.kernels import compilation
    from rankloop.kernels._jit import cache_is_empty

    note = "[dim]compiling kernels for this machine; the next run finds them in the cache[/dim]"
    if cache_is_empty():
        people.print(note)
    elif not people.is_terminal:
        told: list[str] = []

        def once(name: str, number: int, most: int) -> None:  # noqa: ARG001
            if not told:
                people.print(note)
                told.append(name)

        compilation.report = once


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None
    return value
