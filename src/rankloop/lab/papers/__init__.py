"""The papers' experiments, each as one call that runs it, draws its figures and says which claims were seen."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from rankloop.errors import UnknownName
from rankloop.lab.runs.workers import OnEvent


class Reproduce(Protocol):
    """Run a paper's experiment into the folder `out`, or go on with it, and write its report."""

    def __call__(
        self,
        out: Path,
        data: list[str] | None = None,
        quick: bool = False,
        processes: int = 1,
        on_event: OnEvent | None = None,
    ) -> Path:
        """The path of the report; `data` are data sets instead of generated ones, `quick` is a look in minutes."""


class Paper(NamedTuple):
    """A paper whose experiment can be repeated."""

    path: str  # module:function
    title: str


PAPERS = {
    "pairrank": Paper(
        "rankloop.lab.papers.pairrank:reproduce",
        "Jia, Wang, Guo, Wang: PairRank: Online Pairwise Learning to Rank by Divide-and-Conquer. WWW 2021",
    ),
    "bubblerank": Paper(
        "rankloop.lab.papers.bubblerank:reproduce",
        "Li, Kveton, Lattimore, Markov, de Rijke, Szepesvári, Zoghi: BubbleRank: Safe Online Learning to Rerank",
    ),
    "nonstationary": Paper(
        "rankloop.lab.papers.nonstationary:reproduce",
        "Lu, Miao, Yang, Hu, Zhang: Non-Stationary Dueling Bandits for Online Learning to Rank",
    ),
    "topk": Paper(
        "rankloop.lab.papers.topk:reproduce",
        "Chaudhuri, Tewari: Online Learning to Rank with Top-k Feedback. JMLR 18, 2017",
    ),
    "neural": Paper(
        "rankloop.lab.papers.neural:reproduce",
        "Jia, Wang: Learning Neural Ranking Models Online from Implicit User Feedback. WWW 2022",
    ),
}


def reproduction(name: str) -> Reproduce:
    """The function that repeats the experiment of the paper called `name`.

    >>> reproduction("pear")
    Traceback (most recent call last):
    ...
    rankloop.errors.UnknownName: no paper is called 'pear'; there are pairrank, bubblerank, nonstationary, topk, neural
    """
    if name not in PAPERS:
        raise UnknownName(f"no paper is called {name!r}; there are {', '.join(PAPERS)}")
    module, _, function = PAPERS[name].path.partition(":")
    found: Reproduce = getattr(import_module(module), function)
    return found
