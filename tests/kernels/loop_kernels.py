"""Whole rounds of linear learners, for `every_kernel`."""

from __future__ import annotations

import numpy as np

from rankloop.kernels import click_loop, interleaving
from rankloop.types import Array
from tests.kernels.inputs import frozen, positions

Results = dict[str, list[float] | list[int] | list[bool]]


def results(features: Array) -> Results:
    """Six rounds of `pdgd` and of `dbgd` with three queries, one of which has fewer documents than are shown."""
    rng, k = np.random.default_rng(8), 4
    offsets = positions([0, 3, 7, len(features)])
    longest, queries = int(np.diff(offsets).max()), positions([0, 2, 1, 2, 0, 1])
    size = queries.size
    grades = frozen(rng.integers(0, 3, len(features)), np.int64)
    click, stop, ideal = frozen([0.1, 0.5, 0.9]), frozen([0.0, 0.1, 0.4]), frozen([2.0, 0.0, 3.0])
    numbers, coins = frozen(rng.random((size, longest))), frozen(rng.random((size, 2 * k)))
    normals, ties = frozen(rng.normal(size=(size, features.shape[1]))), frozen(rng.random((size, longest)))
    lengths = sorted({int(n) for n in np.diff(offsets)})
    parts = [interleaving.soft_ranks(n, 3.0) for n in lengths]
    begins = np.zeros(longest + 1, np.int64)
    begins[lengths] = np.cumsum([0, *lengths[:-1]])
    weights, tails = (frozen(np.concatenate(part)) for part in zip(*parts, strict=True))
    soft = click_loop.SoftRanks(weights, tails, begins)
    found: Results = {}
    for name in ("pdgd", "dbgd"):
        orders, clicks = np.empty((size, k), np.int64), np.empty((size, k))
        rounds = click_loop.Rounds(features, grades, offsets, queries, coins, click, stop, True, orders, clicks)
        if name == "pdgd":
            theta, rate = click_loop.pdgd_rounds(rounds, numbers, np.zeros(0), 0.1, 0.9, True)
            found["pdgd_rounds rate"] = [rate]
        else:
            theta = click_loop.dbgd_rounds(rounds, normals, ties, coins, soft, np.zeros(0), 0.1, 1.0, 0.5)
        found |= {
            f"{name}_rounds": theta.tolist(),
            f"{name}_rounds orders": orders.ravel().tolist(),
            f"{name}_rounds clicks": clicks.ravel().tolist(),
            f"{name} shown_ndcg": click_loop.shown_ndcg(rounds, ideal).tolist(),
        }
    return found
