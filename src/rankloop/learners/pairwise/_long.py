"""Which documents of a long list can come up at all, without a matrix of all pairs."""

from __future__ import annotations

import numpy as np

from rankloop.kernels.certainty import contenders
from rankloop.kernels.long_lists import count_predecessors
from rankloop.types import Array

BLOCK = 128  # documents that are compared at a time: their products fit into a processor's cache


def predecessors(white: Array, scores: Array, ranked: Array, alpha: float, logit: bool, k: int) -> Array:
    """(n,) how many documents are certainly above each, counted up to k; `ranked` (n,) has the highest score first.

    `white` (n, d) are rows whose plain distances are those of the norm. Who has k predecessors is never among the first
    k. The logit rule is transitive: whoever has k predecessors has k among those with fewer, so only these are asked,
    and there are few of them once something is known. The other rule is not: all documents of higher score are asked.

    Memory is O(n d). Time is that of n documents times those asked, n²/2 pairs while next to nothing is certain.
    Products are in single precision and by BLAS, for speed; `count_predecessors` asks again where that could matter.
    """
    n = len(white)
    light = (white - white.mean(0)).astype(np.float32)
    squares = np.einsum("ij,ij->i", light, light).astype(np.float64)
    waiting = np.zeros(n, np.int64)
    if logit:  # most of a long list is out by a bound that needs no pair; longer norms only make it more careful
        running = np.zeros(n, np.bool_)
        running[contenders(scores, (1.0 + 1e-5) * np.sqrt(squares), alpha, k)] = True
        waiting[~running] = k
        ranked = ranked[running[ranked]]
    asked, size = np.empty(n, np.int64), 0

    def count(above: Array, some: Array) -> None:
        products = light[some] @ light[above].T
        count_predecessors(white, scores, above, some, products, squares, alpha, logit, k, waiting)

    for first in range(0, ranked.size, BLOCK):
        block = left = ranked[first : first + BLOCK]
        for start in range(0, size, BLOCK):
            count(asked[start : min(start + BLOCK, size)], left)
            left = left[waiting[left] < k]
            if left.size == 0:
                break
        if left.size:
            count(left if logit else block, left)
        joined = left[waiting[left] < k] if logit else block
        asked[size : size + joined.size] = joined
        size += joined.size
    return waiting
