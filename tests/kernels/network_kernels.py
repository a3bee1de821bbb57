"""The networks' kernels, for `every_kernel`."""

from __future__ import annotations

import numpy as np

from rankloop.kernels import certainty, listwise, neural, plackett_luce
from rankloop.types import Array
from tests.kernels.inputs import frozen, pair_rows, positions

Results = dict[str, list[float] | list[int] | list[bool]]


def results(rows: Array, scores: Array, uniforms: Array) -> Results:
    """A small network, its tangent features and its confidence; lists to learn from again."""
    rng, m = np.random.default_rng(5), 4
    (n, d), k = rows.shape, 5
    hidden, output = frozen(rng.normal(size=(m, d))), frozen(rng.normal(size=m))
    active = frozen(neural.activations(rows, hidden))
    inverse, some = frozen(rng.uniform(0.1, 2.0, m * d + m)), positions([0, 3, 4, 7])
    pairs, counts = pair_rows([(0, 3), (4, 1), (2, 3)]), frozen([1.0, 0.5, 0.3])
    squares, centred = neural.tangent_lengths(rows, active, output, inverse)
    gram = neural.tangent_gram(rows, active, output, inverse, positions(np.argsort(-scores)), some)
    certain = certainty.certain_over(scores, frozen(squares), frozen(gram), some, 0.02)
    stepped = [np.array(output), np.zeros(m), np.zeros(m)]
    neural.adam(stepped[0], stepped[1], stepped[2], frozen(rng.normal(size=m)), output, 0.1, 0.01, 3)
    kept, sizes = frozen(rng.random((3, k, 2))), positions([5, 2, 4])
    preferred = np.zeros((3, k, k))
    preferred[0, 1, 3], preferred[0, 4, 2], preferred[1, 1, 0], preferred[2, 3, 0] = 1.0, 0.5, 1.0, 0.2
    labels, chosen = frozen(rng.integers(0, 2, (3, k))), positions([2, 0])
    batch, offsets = listwise.gathered(kept, sizes, chosen)
    told = frozen(scores[: len(batch)])
    noisy, grades = frozen(1 + rng.normal(size=(3, k, k))), frozen(rng.integers(0, 3, told.size))
    found: Results = {
        "activations": active.ravel().tolist(),
        "outputs": neural.outputs(active, output).tolist(),
        "gradient": neural.gradient(rows, active, output, uniforms).tolist(),
        "tangents": neural.tangents(rows, active, output).ravel().tolist(),
        "tangent_squares": neural.tangent_squares(rows, active, output, pairs, counts).tolist(),
        "tangent_lengths": [*squares.tolist(), *centred.tolist()],
        "tangent_gram": gram.ravel().tolist(),
        "gate_gains": neural.gate_gains(scores, uniforms, frozen([0.0, 1.0]), frozen([0.5, 2.0, 8.0]), pairs, counts)
        .ravel()
        .tolist(),
        "adam": np.array(stepped).ravel().tolist(),
        "certain_over": certain.ravel().tolist(),
        "possible": certainty.possible(scores, frozen(np.sqrt(centred)), 0.005, 3).tolist(),
        "reachable": certainty.reachable(frozen(certain, np.bool_), some).tolist(),
        "agreed_pairs": certainty.agreed_pairs(frozen(rng.normal(size=(3, n)))).ravel().tolist(),
        "gathered": [*batch.ravel().tolist(), *offsets.astype(np.float64).tolist()],
        "swap_gains": listwise.swap_gains(told, frozen(rng.integers(0, 3, told.size))).ravel().tolist(),
        "relative_gains": listwise.relative_gains(told[:k], frozen(labels[0]), frozen(preferred[0])).ravel().tolist(),
        "label_pulls": listwise.label_pulls(told, grades, offsets, frozen([1.0, 2.0]))[0].tolist(),
        "pdgd_pulls": plackett_luce.pdgd_pulls(frozen(scores[:k]), 0.3, frozen(np.arange(k) % 2.0), pairs).tolist(),
    }
    for rule in (listwise.EQUAL, listwise.RAW, listwise.BATCH, listwise.LIST):
        for targets in (noisy, frozen(noisy[:0])):
            pulls = listwise.pair_pulls(told, offsets, chosen, frozen(preferred), labels, targets, rule)
            found[f"pair_pulls {rule} {targets.size}"] = [*pulls[0].tolist(), pulls[1], pulls[2]]
    return found
