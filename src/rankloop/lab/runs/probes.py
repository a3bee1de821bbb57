"""What to measure on a learner while it runs. A probe only looks: the run is the same with it or without."""

from __future__ import annotations

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

BLOCK_RANKS = (1, 5, 10)  # the ranks of the paper's Figure 6
BLOCK_PLACES = tuple(range(0, 101, 5))  # places in the list in per cent, of its Figure 7a: lists differ in length


class Probe(Protocol):
    """Looks at a learner after round t, and says what it saw by the names of measures."""

    def __call__(self, learner: Learner, t: int = 0, /) -> dict[str, float]:
        """Only worlds that change ask for t."""


def held_out(dataset: Dataset, k: int = 10, empty: Empty = "skip", world: World | None = None) -> Probe:
    """Mean NDCG@k of the learner's best lists; queries with nothing relevant are left out by default.

    With a world, grades are those that its users of round t give to the documents; else they are the data set's.
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
    """Linear RankNet fitted on the true grades of a data set; kept, since every run on the set asks for the same."""
    model = OfflineRankNet()
    model.fit(dataset.features, dataset.grades, dataset.offsets)
    return model


def closeness(dataset: Dataset) -> Probe:
    """Cosine between the learner's θ and that of the offline model (Figure 5 of PairRank); NaN without a θ."""
    ideal = offline_model(dataset).theta_

    def probe(learner: Learner, t: int = 0, /) -> dict[str, float]:  # noqa: ARG001
        theta: Array = getattr(learner, "theta_", np.zeros(0))
        length = float(np.linalg.norm(theta) * np.linalg.norm(ideal)) if theta.size else 0.0
        return {"cosine": float(theta @ ideal) / length if length else float("nan")}

    return probe


def blocks(dataset: Dataset, queries: int = 20) -> Probe:
    """Mean size of the block at ranks 1, 5, 10, the middle, the last, every 5 % of the list, and number of blocks.

    Over the first queries of the data set: Figures 6 and 7 of PairRank. Only for learners with `blocks(candidates)`;
    the others give nothing.
    """
    some = [dataset.candidates(q) for q in range(min(queries, len(dataset)))]

    def probe(learner: Learner, t: int = 0, /) -> dict[str, float]:  # noqa: ARG001
        blocks_of: Any = getattr(learner, "blocks", None)
        if blocks_of is None:
            return {}
        sizes_at: dict[int, list[int]] = {rank: [] for rank in BLOCK_RANKS}
        counts, middle, last, profile = [], [], [], []
        for candidates in some:
            ends = blocks_of(candidates)
            sizes = np.repeat(np.diff(ends, prepend=0), np.diff(ends, prepend=0))  # the size of the block at each rank
            counts.append(len(ends))
            middle.append(sizes[sizes.size // 2])
            last.append(sizes[-1])
            profile.append(sizes[np.array(BLOCK_PLACES) * (sizes.size - 1) // 100])
            for rank, found in sizes_at.items():
                if rank <= sizes.size:
                    found.append(int(sizes[rank - 1]))
        means = {f"block_size@{rank}": float(np.mean(found)) for rank, found in sizes_at.items() if found}
        further = {"block_size@middle": float(np.mean(middle)), "block_size@last": float(np.mean(last))}
        places = zip(BLOCK_PLACES, np.mean(profile, axis=0), strict=True)
        further |= {f"block_size@{place}%": float(size) for place, size in places}
        return {**means, **further, "blocks": float(np.mean(counts))}

    return probe


def certain(dataset: Dataset, k: int = 10, queries: int = 20) -> Probe:
    """Share of the pairs among the k best of a list whose order the learner is certain of (Figure 6 of olRankNet).

    Over the first queries of the data set; only for learners with `certain(candidates, positions)`.
    """
    some = [dataset.candidates(q) for q in range(min(queries, len(dataset)))]

    def probe(learner: Learner, t: int = 0, /) -> dict[str, float]:  # noqa: ARG001
        certain_of: Any = getattr(learner, "certain", None)
        if certain_of is None:
            return {}
        tops = [(candidates, learner.best(candidates, k)) for candidates in some if candidates.n > 1]
        sure = sum(int(certain_of(candidates, top).sum()) for candidates, top in tops)
        return {f"certain@{k}": sure / max(sum(len(top) * (len(top) - 1) // 2 for _, top in tops), 1)}

    return probe


def memory() -> Probe:
    """Bytes of the learner's state: what it keeps from one event to the next."""

    def probe(learner: Learner, t: int = 0, /) -> dict[str, float]:  # noqa: ARG001
        return {"state_bytes": float(sum(np.asarray(value).nbytes for value in learner.state().values()))}

    return probe
