"""`rankloop reproduce`: a paper's experiments, and a verdict on each claim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.cli.lab import watched

if TYPE_CHECKING:
    from rankloop.lab.plots.report import ClaimResult

Name = Literal["pairrank", "neural", "bubblerank", "topk", "nonstationary"]
_COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow", "not tested": "dim"}


def add_to(app: App) -> None:
    """Register the command."""
    app.command(reproduce)


def reproduce(
    paper: Name,
    /,
    *,
    quick: bool = False,
    data: Annotated[list[str] | None, Parameter(negative=())] = None,
    out: Path | None = None,
    processes: int = 2,
    cluster: str | None = None,
    observability: bool = False,
) -> None:
    """Repeat a paper's experiments: each claim is supported, undecided, refuted or not tested.

    pairrank (Jia et al., WWW 2021), neural (Jia and Wang, WWW 2022), bubblerank (Li et al., UAI 2019), topk (Chaudhuri
    and Tewari, JMLR 2017), nonstationary (Lu et al.). A full run takes half an hour of two cores, `--quick` minutes.
    After an interruption, the same command continues.

    Example: rankloop reproduce pairrank --quick

    Example: rankloop reproduce neural --data "MSLR-WEB10K?fold=1" --data "MSLR-WEB10K?fold=2"

    Parameters
    ----------
    paper
        Which paper.
    quick
        A look in minutes: smaller data, fewer rounds and seeds.
    data
        LETOR folders or data specs instead of generated sets, may be repeated; folds of one folder count as clusters.
        Parameters are tuned on the validation part: `path?vali=0.2` cuts one off. For bubblerank click models: a JSON
        file, what `rankloop clicks fit --out` wrote, or a raw click log.
    out
        Folder for the page PAPER.md with its figures, and the results; results/PAPER if not given.
    processes
        Runs at the same time, in processes of this machine.
    cluster
        Address of a Dask scheduler (`tcp://10.0.0.5:8786`) whose workers carry out the runs, in place of --processes.
    observability
        Of topk: run nothing; print for each ranking measure what can be learned from the grades of the first k of a few
        items, computed exactly.
    """
    from rankloop.core.errors import InvalidParameter

    if observability:
        if paper != "topk":
            raise InvalidParameter(f"--observability is about the paper topk, not {paper}")
        from rankloop.papers.observability import tables

        for table in tables():
            _out.print_table(table.caption, table.columns, table.rows, numbers_from=table.words)
        return
    from rankloop.papers import engine, open_paper

    with _out.executor(processes, cluster) as executor, watched(paper) as on_event:
        done = engine.reproduce(
            open_paper(paper),
            out or Path("results") / paper,
            quick=quick,
            data=data,
            executor=executor,
            on_event=on_event,
            on_step=lambda text: _out.people.print(text, highlight=False),
        )
    print_claims(paper, done.claims)
    _out.people.print(f"wrote {done.page}", highlight=False, soft_wrap=True)


def print_claims(title: str, claims: list[ClaimResult]) -> None:
    """The claims as a table for people, verdicts first, and how many there are of each."""
    from rich.markup import escape
    from rich.table import Table

    from rankloop.lab.plots.report import tally

    table = Table(title=escape(title), title_justify="left", header_style="bold", show_lines=True)
    table.add_column("verdict", no_wrap=True)
    for column in ("what the paper says", "what was found"):
        table.add_column(column, ratio=1, overflow="fold")
    table.add_column("where", overflow="fold")
    for claim in claims:
        verdict = f"[{_COLORS[claim.verdict]}]{claim.verdict}[/]"
        table.add_row(verdict, escape(claim.claim), escape(claim.finding), escape(claim.where))
    _out.wide().print(table)
    print(tally(claims))
