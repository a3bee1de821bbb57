"""One fixed round through the kernels that read, order, weigh and measure lists, for `every_kernel`."""

from __future__ import annotations

import numpy as np

from rankloop.kernels import (
    cascade,
    certainty,
    counting,
    diagonal,
    fetching,
    hashing,
    json_counts,
    letor,
    matching,
    metrics,
    offline,
    pairwise,
    preferences,
    ragged,
    ranking,
    scaling,
    sparse,
    user_clicks,
)
from rankloop.types import Array
from tests.kernels.inputs import NOTHING, frozen, pair_rows, positions

Results = dict[str, list[float] | list[int] | list[bool]]
LINES = b"2 qid:7 1:0.5 2:-1.25\n0 qid:7 2:3 # 1:9\n1 qid:8 1:0.1 2:123456789.125\n"


def results() -> Results:
    """Each kernel's output, flat; what it changes in place counts as output."""
    rng = np.random.default_rng(31)
    n, k = 9, 4
    scores, ties, features = frozen(rng.normal(size=n).round(1)), frozen(rng.random(n)), frozen(rng.random((n, 3)))
    grades, offsets = frozen(rng.integers(0, 3, n)), positions([0, 0, 2, n])
    gains = frozen(2.0**grades - 1.0)
    coins, norms = frozen(rng.random((2, k))), frozen(rng.random(n))
    certain = np.triu(np.ones((n, n), np.bool_), 4)
    certain.setflags(write=False)
    shares = certainty.topological_swap_shares(certain, positions([0, 2, 1, 3]))
    pairs = pair_rows([(0, 3), (1, 2), (3, 1)])
    scaled = np.array(features)
    ragged.minmax_queries(scaled, positions([0, 4, n]))
    loss, slopes = offline.ranknet_loss(scores, grades, offsets)
    block, told, runs = np.zeros((4, 2)), np.zeros(4, np.int64), np.zeros((4, 3), np.int64)
    stopped = letor.parse_lines(np.frombuffer(LINES, np.uint8), 0, block, told, runs)
    ranked = metrics.ranked(scores, ties, grades, offsets)
    lists = metrics.ragged_list_metrics(ranked, frozen(2.0**ranked - 1.0), offsets, k, 4.0, 0.8)
    return {
        "entry_counts": [
            count
            for most in (1, 9)
            for count in json_counts.entry_counts(np.frombuffer(b'{"a":[1,2],"ids":["\\"",2,3]}', np.uint8), most, 99)
        ],
        "rates": cascade.rates(positions([0, -1, 2]), positions([4, 1, 0]), positions([1, 1, 0])).tolist(),
        "contenders": [
            *certainty.contenders(scores, norms, NOTHING, 0.4, k).tolist(),
            *certainty.contenders(scores, norms, frozen(0.1 * norms), 0.4, k).tolist(),
        ],
        "topological_swap_shares": shares.ravel().tolist(),
        "block_swap_shares": certainty.block_swap_shares(positions([2, 3, 6]), 5).ravel().tolist(),
        "propensity_weights": preferences.propensity_weights(
            frozen(shares), frozen([0.1, 0.2, 0.3]), frozen([1, 0, 1, 0]), pairs
        ).tolist(),
        "with_places": ranking.with_places(features, positions(range(len(features)))).ravel().tolist(),
        "remember": _remembered(pairs),
        "news": _news(pairs).tolist(),
        "recall": [number for part in _recalled() for number in part.tolist()],
        "mean_squared_distance": [float(pairwise.mean_squared_distance(features))],
        "epsilon_greedy_order": ranking.epsilon_greedy_order(scores, ties, coins, 0.5, k).tolist(),
        "dependent_clicks": user_clicks.dependent_clicks(
            frozen(grades[:k]), frozen([0.2, 0.5, 0.9]), frozen([0.1, 0.2, 0.5]), coins, True
        ).tolist(),
        "list_moments": np.concatenate(scaling.list_moments(features)).tolist(),
        "standardise": scaling.standardise(features, frozen([0.1, 0.2, 0.3]), frozen([2, 0, 0.1]), 3).ravel().tolist(),
        "hashing": _hashed(),
        "counting": _counted(),
        "matching": _matched(),
        "sparse": _sparse(),
        "fetch": _fetched(),
        "minmax_queries": scaled.ravel().tolist(),
        "ranknet_loss": [float(loss), *slopes.tolist()],
        "decimal": [float(letor.decimal(m, e)) for m, e in ((125, -2), (0, 400), (2**60 + 1, -30), (7, 25))],
        "parse_lines": [int(part) for part in stopped] + runs.ravel().tolist() + told.tolist(),
        "parsed rows": block.ravel().tolist(),
        "ranked": ranked.tolist(),
        "ragged_list_metrics": np.nan_to_num(lists, nan=-1.0).ravel().tolist(),
        "ragged_pairs": metrics.ragged_pairs(scores, grades, offsets).ravel().tolist(),
        "discounted_sum": [float(metrics.discounted_sum(gains, k))],
        "single lists": [
            float(metrics.recall(grades, grades, k)),
            float(metrics.reciprocal_rank(grades, k)),
            float(metrics.expected_reciprocal_rank(grades, k, 4.0)),
            float(metrics.rank_biased_precision(grades, 0.8)),
        ],
    }


def _hashed() -> list[int]:
    """Codes of two strings, their crosses and columns; sums over 64 bits are meant."""
    with np.errstate(over="ignore"):
        codes = hashing.text_codes(np.frombuffer(b"brandacme", np.uint8), positions([0, 5, 9]))
        crossed, joined = hashing.crossed(codes, codes).ravel(), hashing.joined(codes, codes)
        found, signs = hashing.columns(crossed, 1000, True)
        one = hashing.spread(codes[0])
    return [int(number) for number in (*codes, *crossed, *joined, *found, *signs, one)]


def _counted() -> list[float]:
    """Three keys of two lists, in buckets and rings; sums over 64 bits are meant."""
    index, keys = np.full(8, -1, np.int32), np.zeros(4, np.uint64)
    numbers, sums = np.zeros((4, 2), np.int64), np.zeros((4, 2, 1))
    with np.errstate(over="ignore"):
        rows, size = counting.find_or_add(index, keys, 0, frozen([5, 7, 5], np.uint64))
        late = counting.add(
            rows, counting.spread_amounts(positions([0, 1, 3]), frozen([[1.0], [0.5]])), numbers, sums, 3
        )
        late += counting.add(rows[:1], frozen([[1.0]]), numbers, sums, 1)
        counting.build_index(np.full(8, -1, np.int32), keys, size)
        there = counting.find(index, keys, frozen([7, 8, 5], np.uint64))
    values, times, ends = np.zeros((1, 2), np.uint64), np.zeros((1, 2)), np.zeros(1, np.int64)
    counting.push(0, frozen([3, 4, 3], np.uint64), 9.0, values, times, ends)
    candidates = positions([0, 1, 2]), frozen([3, 6], np.uint64)
    share = counting.share_of_last(0, 2, 1.0, values, times, ends, *candidates)
    strong = counting.strengths(frozen([[0.0, 3.0], [1.0, 0.0]]), frozen([1.0, 1.0]), 5)
    found = counting.within(there, numbers, sums, 4).ravel()
    return [float(number) for number in (*rows, size, late, *there, *found, *share, *strong)]


def _fetched() -> list[float]:
    found = np.zeros((2, 2))
    block, turned = frozen([[1.0, 2.0], [3.0, 4.0]]), positions([1, 0])
    gaps = fetching.fetch(block, turned, turned, positions([0, 1]), found)
    return [float(gaps), *found.ravel().tolist()]


def _matched() -> list[float]:
    offsets, codes = positions([0, 2, 3]), frozen([4, 6, 5], np.uint64)
    hot, counts = np.zeros((2, 2)), np.zeros((2, 7))
    strange = matching.one_hot(offsets, codes, frozen([5, 6], np.uint64), hot)
    matching.scatter(offsets, positions(codes), counts)
    shared = matching.overlap(offsets, codes, frozen([4, 9], np.uint64), True)
    pairs = matching.crossed_lists(offsets, codes, positions([0, 1]), frozen([8], np.uint64), offsets)
    text = positions([0, 1]), positions([0, -1]), positions([2, 0]), positions([3, 4]), positions([4, -1])
    words = matching.word_match(*text, frozen([1.5, 0.5]), 2.0, True)
    parts = (hot.ravel(), counts.ravel(), shared, pairs[0], pairs[1], words)
    return [float(strange), *(float(number) for part in parts for number in part)]


def _sparse() -> list[float]:
    """Three sparse rows through every kernel of theirs."""
    indptr, indices, values = (
        positions([0, 2, 3, 5]),
        frozen([7, 90, 7, 3, 90], np.int32),
        frozen([1.0, 0.5, 2.0, 1, 1]),
    )
    with np.errstate(over="ignore"):
        local, columns = sparse.numbered(indices)
    rows = indptr, positions(local), values
    theta, variance = np.linspace(-1.0, 1.0, columns.size), np.linspace(0.1, 0.5, columns.size)
    found = [
        sparse.sparse_scores(*rows, frozen(theta)),
        sparse.sparse_norms(*rows, frozen(variance)),
        sparse.sparse_gram(*rows, frozen(variance), positions([2, 0])).ravel(),
        np.array([sparse.sparse_mean_squared_distance(*rows, columns.size)]),
        sparse.sparse_row_marks(indptr, indices, values),
        *sparse.sparse_with_places(indptr, indices, values, positions([0, 1, 2]), 100),
        diagonal.faded(frozen(variance), 0.9, 2.0, positions(range(columns.size))),
    ]
    pairs, weights = pair_rows([(0, 1), (2, 0)]), frozen([0.5, 0.3])
    diagonal.sparse_diagonal_onepass(theta, variance, indptr, indices, positions(local), values, pairs, weights, 90)
    diagonal.diagonal_onepass(theta, variance, frozen(np.eye(3)[:, : columns.size]), pairs, weights, 1)
    return [float(number) for part in (*found, columns, theta, variance) for number in part]


def _remembered(pairs: Array) -> list[float]:
    """What three items' own parts and precisions become; the fourth document has no place."""
    own, precision = np.array([0.1, -0.2, 0.0]), np.array([3.0, 5.0, 3.0])
    pairwise.remember(
        frozen([0.5, 0.1, -0.3, 0.0]), own, precision, positions([2, 0, -1, 1]), pairs, frozen([0.5, 0.3, 1.0])
    )
    pairwise.remember_shown(
        frozen([[1.0], [0.2], [0.3], [0.0]]),
        frozen([0.5]),
        own,
        precision,
        positions([2, 0, -1, 1]),
        pairs,
        frozen([0.5, 0.3, 1.0]),
    )
    return [*own.tolist(), *precision.tolist()]


def _news(pairs: Array) -> Array:
    shown = np.arange(int(pairs.max()) + 1)
    rows = pairwise.row_marks(np.outer(shown, [0.5, 0.25]))
    known, precision, before = np.array([4, 2, 1]), np.array([2.0, 3.5, 9.0]), np.array([0.0, rows[2], 7.0])
    return pairwise.news(known, precision, before, shown, rows, 0.5, pairs, np.linspace(0.1, 1.0, len(pairs)))


def _recalled() -> tuple[Array, Array]:
    """Of four documents two are known."""
    told = frozen([0.5, 0.1, -0.3]), frozen([4.0, 5.0, 3.0])
    return pairwise.recall(
        frozen([0.5, 0.1, -0.3, 0.0]), positions([7, 8, 9]), *told, positions([9, 1, 7, 2]), 0.3, 0.01
    )
