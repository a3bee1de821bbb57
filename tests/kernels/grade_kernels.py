"""One fixed round through every kernel of the learners of grades, for `every_kernel`."""

from __future__ import annotations

import numpy as np

from rankloop.kernels import ftpl, surrogates, topk, topk_loop
from rankloop.kernels.philox import uniforms
from tests.kernels.inputs import frozen, positions
from tests.kernels.test_ftpl import board_of
from tests.kernels.test_topk import rule_of

Results = dict[str, list[float] | list[int] | list[bool]]


def results() -> Results:
    """Each kernel's output, flat."""
    rng = np.random.default_rng(3)
    n, d = 7, 4
    features, theta = frozen(rng.random((n, d)).round(1)), frozen(rng.normal(size=d))
    grades, key = frozen(rng.integers(0, 3, n)), np.array([3, 2**63 + 5], np.uint64)
    found: Results = {}
    numbers = np.empty((3, 2 * n + 1))
    with np.errstate(over="ignore"):  # uncompiled, numpy warns where products run over 64 bits
        uniforms(key, 5, numbers)
    found["uniforms"] = numbers.ravel().tolist()
    for name in ("squared", "ranksvm", "kl", "smoothdcg"):
        for explore in (0, 1):
            rule, coins = rule_of(name, 2, sampled=explore == 1), numbers[explore].copy()
            coins[0] = 1.0 - explore
            order, weights, propensity, known = topk.display(features, theta, 4.0, frozen(coins), 5, rule)
            graded = order[:2]
            moved = topk.learned(
                theta, 4.0, frozen(features[graded]), weights, propensity, known, frozen(grades[graded]), rule
            )
            found[f"rtopk {name} {explore}"] = [*map(float, order), *propensity.tolist(), *moved.tolist()]
        parts = topk.adopted(features, theta, positions([3, 1, 0]), rule)
        found[f"adopted {name}"] = [value for part in parts for value in part.tolist()]
        found[f"surrogate_loss {name}"] = [topk.surrogate_loss(frozen(features @ theta), grades, rule)]
        loss, slopes = surrogates.weighed_loss(
            frozen(features @ theta), grades, positions([0, 3, n]), frozen([2, 1]), rule.surrogate, 4.0, 0.1
        )
        found[f"weighed_loss {name}"] = [loss, *slopes.tolist()]
    shown, scores = topk.listnet_display(features, theta, frozen(numbers[2, :n]), n)
    stepped = topk.listnet_learned(theta, 2.0, frozen(features[shown]), scores, frozen(grades[shown]), 0.5, 1.0)
    found["listnet"] = [*map(float, shown), *stepped.tolist()]
    found |= _items(frozen(rng.integers(0, 3, (40, 5))), key)
    return found | _loops(features, grades, key)


def _items(vectors: object, key: object) -> Results:
    found: Results = {}
    rule = ftpl.ItemRule(ftpl.DCG, 2.0, 2, 0, 0, 0.0, False)
    board, orders = board_of(5), np.empty((40, 5), np.int64)
    sums, weights, corrupted = np.zeros(5), np.zeros(5), np.ones((1, 4))
    with np.errstate(over="ignore"):
        topk_loop.items_rounds(vectors, key, 0, board, rule, orders)  # type: ignore[arg-type]
        found |= {"items_rounds": orders.ravel().tolist(), "board": [float(v) for array in board for v in array]}
        topk_loop.ftpl_rounds(vectors, key, 0, sums, weights, rule, orders)  # type: ignore[arg-type]
    ftpl.corrupt(corrupted, frozen([[0.05, 0.15, 0.25, 0.9]]), 0.3, 2.0)
    return found | {"ftpl_rounds": orders.ravel().tolist(), "ftpl": sums.tolist(), "corrupt": corrupted[0].tolist()}


def _loops(features: object, grades: object, key: object) -> Results:
    offsets, ideal, keys = positions([0, 3, 7]), frozen([4.0, 0.0]), np.array([key, key])
    world = features, grades, offsets, ideal, keys, 0, np.zeros(0), 3
    found: Results = {}
    ndcg, losses = np.zeros(6), np.zeros(6)
    with np.errstate(over="ignore"):
        theta = topk_loop.rtopk_rounds(*world, rule_of("kl", 1), ndcg, losses)  # type: ignore[arg-type]
        found["rtopk_rounds"] = [*theta.tolist(), *ndcg.tolist(), *losses.tolist()]
        theta = topk_loop.listnet_rounds(*world, 0.3, 5.0, ndcg)  # type: ignore[arg-type]
        found["listnet_rounds"] = [*theta.tolist(), *ndcg.tolist()]
        topk_loop.random_rounds(grades, offsets, ideal, keys, 0, 3, ndcg)  # type: ignore[arg-type]
    return found | {"random_rounds": ndcg.tolist()}
