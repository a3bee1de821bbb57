"""`rankloop reproduce topk`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rankloop.cli import _out


def reproduce_topk(
    *,
    quick: bool = False,
    data: Annotated[list[str] | None, Parameter(negative=())] = None,
    out: Path = Path("results/topk"),
    processes: int = 2,
    observability: bool = False,
) -> None:
    """Top-k feedback (Chaudhuri and Tewari, JMLR 2017): Figures 1 to 5, how regret grows, and the claims made.

    Example: rankloop reproduce topk --observability

    Parameters
    ----------
    quick
        A look in minutes: smaller data, fewer rounds and seeds.
    data
        LETOR folders (Yahoo, Yandex) or data specs for Figures 4 and 5, may be repeated; generated sets of their shape
        if not given.
    out
        Folder for report.html, tables.md, claims.md, figures and results; a second call goes on with what is there.
    processes
        Runs at the same time.
    observability
        Run nothing; print the paper's Tables 1 and 2, and for each ranking measure what can be learned from the grades
        of the first k of a few items, computed exactly.
    """
    if observability:
        from rankloop.lab.papers.topk_theory import tables

        for table in tables():
            _out.print_table(table.caption, table.columns, table.rows, numbers_from=table.words)
        return
    from rankloop.cli.lab import _reproduce

    _reproduce("topk", quick, data, out, processes)
    print((out / "tables.md").read_text("utf-8"))
