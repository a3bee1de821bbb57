"""`rankloop reproduce neural`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def reproduce_neural(
    *,
    quick: bool = False,
    data: Annotated[list[str] | None, Parameter(negative=())] = None,
    out: Path = Path("results/neural"),
    processes: int = 2,
) -> None:
    """Neural rankers online (Jia and Wang, WWW 2022): Figures 3 to 6, and the claims made from them.

    The whole experiment takes some hours of a core; `--quick` takes minutes. PyTorch is not needed: the paper's
    two-layer network is built in.

    Parameters
    ----------
    quick
        A look in minutes: one small data set, fewer rounds and seeds.
    data
        LETOR folders (MSLR-WEB10K, Yahoo) or data specs, may be repeated; generated sets whose relevance no linear
        ranker can follow if not given. Each needs a validation part: `path?vali=0.2` cuts one off.
    out
        Folder for report.html, table.md, claims.md, figures and results; a second call goes on with what is there.
    processes
        Runs at the same time.
    """
    from rankloop.cli.lab import _reproduce

    _reproduce("neural", quick, data, out, processes)
    print((out / "table.md").read_text("utf-8"))
