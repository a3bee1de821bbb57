"""What can be measured on a learner while it runs. A probe only looks: the run is the same with it or without."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from rankloop.core.learner import Learner
from rankloop.core.types import Array
from rankloop.evaluation.metrics import Empty, mean_ratio
from rankloop.kernels.metrics import dcg, ragged_ideal_dcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.worlds.world import World
from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet

BLOCK_RANKS = (1, 5, 10)  # the ranks of PairRank's Figure 6
BLOCK_PERCENTILES = tuple(range(0, 101, 5))  # positions in % of the list, of its Figure 7a: lists differ in length


class Probe(Protocol):
    """Returns measures by name, given a learner after round t."""

    def __call__(self, learner: Learner, t: int = 0, /) -> dict[str, float]:
        """Only worlds that change need t."""


def held_out(dataset: Dataset, k: int = 10, empty: Empty = "skip", world: World | None = None) -> Probe:
    """Mean NDCG@k of the learner's best rankings; queries with nothing relevant are left out by default.

    With a world, grades are those that its users of round t give to the documents.
    """
    first, last = dataset.offsets[:-1], dataset.offsets[1:]
    ideal = ragged_ideal_dcg(dataset.grades, dataset.offsets, k)

    def probe(learner: Learner, t: int = 0, /) -> dict[str, float]:
        grades, best = dataset.grades, ideal
        if world is not None:
            grades = world.grades(dataset, t)
            best = ragged_ideal_dcg(grades, dataset.offsets, k)
        found = np.zeros(len(dataset))
        for q in range(len(dataset)):
            if best[q] > 0:
                found[q] = dcg(grades[first[q] : last[q]][learner.best(dataset.candidates(q), k)], k)
        return {f"offline.ndcg@{k}": mean_ratio(found, best, empty)}

    return probe


@lru_cache(maxsize=2)
def offline_model(dataset: Dataset) -> OfflineRankNet:
    """Linear RankNet fitted to the true grades of a data set; kept, since all runs on the set need the same."""
    model = OfflineRankNet()
    model.fit(dataset.features, dataset.grades, dataset.offsets)
    return model


def closeness(dataset: Dataset) -> Probe:
    """Cosine between the learner's θ and that of the offline model (Figure 5 of PairRank); NaN without a θ."""
    ideal = offline_model(dataset).theta_

    def probe(learner: Learner, _: int = 0, /) -> dict[str, float]:
        theta: Array = getattr(learner, "theta_", np.zeros(0))
        length = float(np.linalg.norm(theta) * np.linalg.norm(ideal)) if theta.size else 0.0
        return {"cosine": float(theta @ ideal) / length if length else float("nan")}

    return probe


def blocks(dataset: Dataset, queries: int = 20) -> Probe:
    """Number of blocks, and mean size of the block at several ranks (Figures 6 and 7 of PairRank).

    Over the first queries of the data set; learners without `blocks(candidates)` give nothing.
    """
    some = [dataset.candidates(q) for q in range(min(queries, len(dataset)))]

    def probe(learner: Learner, _: int = 0, /) -> dict[str, float]:
        blocks_of: Any = getattr(learner, "blocks", None)
        if blocks_of is None:
            return {}
        found: dict[str, list[int]] = {}
        for candidates in some:
            lengths = np.diff(blocks_of(candidates), prepend=0)
            sizes = np.repeat(lengths, lengths)  # of the block at each rank
            ranks = {str(rank): rank - 1 for rank in BLOCK_RANKS if rank <= sizes.size}
            ranks |= {"middle": sizes.size // 2, "last": sizes.size - 1}
            ranks |= {f"{percent}%": percent * (sizes.size - 1) // 100 for percent in BLOCK_PERCENTILES}
            for name, rank in ranks.items():
                found.setdefault(f"block_size@{name}", []).append(int(sizes[rank]))
            found.setdefault("blocks", []).append(lengths.size)
        return {name: float(np.mean(values)) for name, values in found.items()}

    return probe


def certain(dataset: Dataset, k: int = 10, queries: int = 20) -> Probe:
    """Share of the pairs among the k best documents whose order the learner is certain of (Figure 6 of olRankNet).

    Over the first queries of the data set; learners without `certain(candidates, positions)` give nothing.
    """
    some = [dataset.candidates(q) for q in range(min(queries, len(dataset)))]

    def probe(learner: Learner, _: int = 0, /) -> dict[str, float]:
        certain_of: Any = getattr(learner, "certain", None)
        if certain_of is None:
            return {}
        tops = [(candidates, learner.best(candidates, k)) for candidates in some if candidates.n > 1]
        sure = sum(int(certain_of(candidates, top).sum()) for candidates, top in tops)
        return {f"certain@{k}": sure / max(sum(len(top) * (len(top) - 1) // 2 for _, top in tops), 1)}

    return probe


def memory(_: Dataset) -> Probe:
    """Bytes of the learner's state."""

    def probe(learner: Learner, _: int = 0, /) -> dict[str, float]:
        return {"state_bytes": float(sum(np.asarray(value).nbytes for value in learner.state().values()))}

    return probe


PROBES: dict[str, Callable[[Dataset], Probe] | None] = {
    "closeness": closeness,
    "blocks": blocks,
    "certain": certain,
    "memory": memory,
    "misordered": None,  # of every ranking shown, which the run measures itself
}
