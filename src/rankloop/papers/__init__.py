"""The papers' experiments, each a file of data that one engine runs, draws and judges."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rankloop.core.errors import UnknownName

if TYPE_CHECKING:
    from rankloop.papers.engine import Paper

PAPERS = ("pairrank", "neural", "bubblerank", "topk", "nonstationary")


def open_paper(name: str) -> Paper:
    """The experiment of the paper called `name`.

    >>> open_paper("pear")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.UnknownName: no paper is called 'pear'; there are pairrank, neural, bubblerank, topk,
    nonstationary
    """
    if name not in PAPERS:
        raise UnknownName(f"no paper is called {name!r}; there are {', '.join(PAPERS)}")
    found: Paper = import_module(f"rankloop.papers.{name}").PAPER
    return found
