"""`rankloop reproduce bubblerank`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def reproduce_bubblerank(
    *,
    quick: bool = False,
    models: Annotated[list[str] | None, Parameter(negative=())] = None,
    out: Path = Path("results/bubblerank"),
    processes: int = 2,
) -> None:
    """BubbleRank (Li et al.): regret over ten million rounds, what makes it hard, safety, and the paper's claims.

    Parameters
    ----------
    quick
        A look in a minute: four queries, 200,000 rounds, fewer runs.
    models
        Click models for users to follow, may be repeated: a JSON file of fitted parameters (rankloop.clicks.published
        says what it must hold), or what `rankloop clicks fit --out` wrote; generated ones if not given.
    out
        Folder for report.html, table.md, claims.md, figures and results; a second call goes on with what is there.
    processes
        Runs at the same time.
    """
    from rankloop.cli.lab import _reproduce

    _reproduce("bubblerank", quick, models, out, processes)
    print((out / "table.md").read_text("utf-8"))
