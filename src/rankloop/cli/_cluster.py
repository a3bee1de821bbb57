"""`--on`: the Dask cluster that work goes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.core.cluster import Cluster


@contextmanager
def cluster(on: str | None) -> Iterator[Cluster | None]:
    """The cluster that `--on` names, None where it names none; tells where to watch it."""
    if not on:
        yield None
        return
    from rankloop.core.cluster import connect

    with connect(on) as opened:
        workers = len(opened.threads())
        said = f"{workers} worker{'s' * (workers > 1)} of {on}; watch them at {opened.dashboard}"
        _out.people.print(said, highlight=False, soft_wrap=True)
        yield opened
