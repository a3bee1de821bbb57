"""The two-layer network of the neural learners in closed form: scores, gradients, tangent features, Adam.

f(x) = √m Σ_j w_j φ(V_j · [x; x]/√2) with φ = max(·, 0). Both copies of the doubled input carry the same gradient, so
the two halves of V_j always move together and their mean W_j says it all: f(x) = √m Σ_j w_j φ(√2 W_j · x). A gradient
"in W" below is that of one of the two copies, √m w_j 1[active] x/√2: what an optimiser on the doubled network sees.

Rows and weights come in float32, which halves the time of the matrix products; sums that decide something are float64.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import jit
from rankloop.kernels.elementary import power
from rankloop.types import Array


@jit
def activations(rows: Array, hidden: Array) -> Array:
    """(n, m) φ(√2 W x) of rows (n, d) and hidden weights W (m, d).

    In two products of one shape, so that units which are copies of each other (the two halves of a symmetric start)
    have the same bits: one product may sum the columns at its edge in another order.
    """
    n, m = rows.shape[0], hidden.shape[0]
    half = m // 2
    root = np.sqrt(2.0)
    found = np.empty((n, m), rows.dtype)
    for part in range(2):
        product = np.dot(rows, hidden[part * half : (part + 1) * half].T)
        for i in range(n):
            for j in range(half):
                found[i, part * half + j] = root * max(np.float64(product[i, j]), 0.0)
    return found


@jit
def outputs(active: Array, output: Array) -> Array:
    """(n,) the scores √m Σ w_j h_j; unit j and j + m/2 are added first, so that a symmetric start gives 0 exactly."""
    n, m = active.shape
    half = m // 2
    scale = np.sqrt(float(m))
    scores = np.empty(n)
    for i in range(n):
        total = 0.0
        for j in range(half):
            one = np.float64(output[j]) * np.float64(active[i, j])
            total += one + np.float64(output[j + half]) * np.float64(active[i, j + half])
        scores[i] = scale * total
    return scores


@jit
def gradient(rows: Array, active: Array, output: Array, pull: Array) -> Array:
    """(m d + m,) ∇ Σ_i pull_i f(x_i): for each hidden weight, then for each output weight."""
    n, d = rows.shape
    m = output.size
    scale = np.sqrt(float(m))
    push = np.empty((n, m), rows.dtype)
    found = np.empty(m * d + m, rows.dtype)
    ends = np.zeros(m)
    for i in range(n):
        strength = pull[i] * scale
        for j in range(m):
            ends[j] += strength * active[i, j]
            push[i, j] = strength * np.sqrt(0.5) * output[j] if active[i, j] > 0.0 else 0.0
    found[: m * d] = np.dot(push.T, rows).ravel()
    found[m * d :] = ends
    return found


@jit
def tangents(rows: Array, active: Array, output: Array) -> Array:
    """(n, m d + m) tangent features g(x)/√m, written out.

    With both copies taken together along their common direction, which turns x/√2 twice into x once.
    """
    n, d = rows.shape
    m = output.size
    found = np.zeros((n, m * d + m))
    for i in range(n):
        for j in range(m):
            if active[i, j] > 0.0:
                for c in range(d):
                    found[i, j * d + c] = output[j] * rows[i, c]
                found[i, m * d + j] = active[i, j]
    return found


@jit
def tangent_squares(rows: Array, active: Array, output: Array, pairs: Array, counts: Array) -> Array:
    """(m d + m,) Σ over pairs of count·g_ij²/m, entry by entry: what the diagonal of A gains. In W that of one copy."""
    d, m = rows.shape[1], output.size
    found = np.zeros(m * d + m)
    for p in range(pairs.shape[0]):
        a, b, half = pairs[p, 0], pairs[p, 1], 0.5 * counts[p]
        for j in range(m):
            of_a = np.float64(output[j]) if active[a, j] > 0.0 else 0.0
            of_b = np.float64(output[j]) if active[b, j] > 0.0 else 0.0
            if of_a != 0.0 or of_b != 0.0:
                for c in range(d):
                    difference = of_a * rows[a, c] - of_b * rows[b, c]
                    found[j * d + c] += half * difference * difference
            difference = np.float64(active[a, j]) - np.float64(active[b, j])
            found[m * d + j] += counts[p] * difference * difference
    return found


@jit
def tangent_lengths(rows: Array, active: Array, output: Array, inverse: Array) -> tuple[Array, Array]:
    """(n,) ‖g(x)‖²/m and (n,) ‖g(x) - ḡ‖²/m in the norm of a diagonal A⁻¹ (m d + m,), ḡ being the mean over the rows.

    In O(n m d), as much as scoring: Σ_c (s x_c - ḡ_c)² / A_c = s² Σ x_c²/A_c - 2 s Σ x_c ḡ_c/A_c + Σ ḡ_c²/A_c.
    """
    n, d = rows.shape
    m = output.size
    on = np.empty((n, m), rows.dtype)
    for i in range(n):
        for j in range(m):
            on[i, j] = output[j] if active[i, j] > 0.0 else 0.0
    mean = np.dot(on.T, rows)
    weight = inverse[: m * d].reshape(m, d).astype(rows.dtype)
    own, level = np.zeros(m), np.zeros(m)
    for j in range(m):
        for c in range(d):
            mean[j, c] /= n
            own[j] += np.float64(weight[j, c]) * mean[j, c] * mean[j, c]
        for i in range(n):
            level[j] += active[i, j]
        level[j] /= n
    squares, mixed = np.dot(rows * rows, weight.T), np.dot(rows, (weight * mean).T)
    whole, centred = np.empty(n), np.empty(n)
    for i in range(n):
        total, less = 0.0, 0.0
        for j in range(m):
            s, height, end = np.float64(on[i, j]), np.float64(active[i, j]), inverse[m * d + j]
            total += s * s * squares[i, j] + end * height * height
            less += own[j] - 2.0 * s * mixed[i, j] + end * level[j] * (level[j] - 2.0 * height)
        whole[i], centred[i] = total, max(total + less, 0.0)
    return whole, centred


@jit
def tangent_gram(rows: Array, active: Array, output: Array, inverse: Array, some: Array) -> Array:
    """(n, r) ⟨g(x_i), g(x_j)⟩/m in the norm of a diagonal A⁻¹ (m d + m,), for every row i and those j in `some` (r,).

    Unit by unit over the documents for which it is active, in one small matrix product each: the (n, m d) tangent
    features never exist, and the zeros of inactive units cost nothing.
    """
    n, d = rows.shape
    m, r = output.size, some.size
    gram = np.zeros((n, r))
    place = np.full(n, -1, np.int64)
    for q in range(r):
        place[some[q]] = q
    lit, column = np.empty(n, np.int64), np.empty(r, np.int64)
    left, right = np.empty((n, d), rows.dtype), np.empty((r, d), rows.dtype)
    scaled, ends = np.empty(d, rows.dtype), np.empty(r)
    for j in range(m):
        for c in range(d):
            scaled[c] = np.float64(output[j]) * output[j] * inverse[j * d + c]
        count, asked = 0, 0
        for i in range(n):
            if active[i, j] > 0.0:
                lit[count] = i
                for c in range(d):
                    left[count, c] = rows[i, c]
                count += 1
                if place[i] >= 0:
                    column[asked] = place[i]
                    ends[asked] = inverse[m * d + j] * active[i, j]
                    for c in range(d):
                        right[asked, c] = rows[i, c] * scaled[c]
                    asked += 1
        if asked == 0:
            continue
        product = np.dot(left[:count], right[:asked].T)
        for a in range(count):
            line, height = gram[lit[a]], np.float64(active[lit[a], j])
            for b in range(asked):
                line[column[b]] += product[a, b] + ends[b] * height
    return gram


@jit
def adam(
    weights: Array, first: Array, second: Array, slope: Array, start: Array, pull: float, rate: float, step: int
) -> None:
    """One step of Adam on slope + pull·(weights - start), in place; `step` counts from 1 (Kingma and Ba 2015)."""
    keep_first, keep_second, tiny = 0.9, 0.999, 1e-8
    length = rate / (1.0 - power(keep_first, step))
    correction = 1.0 / (1.0 - power(keep_second, step))
    for q in range(weights.size):
        g = slope[q] + pull * (weights[q] - start[q])
        first[q] = keep_first * first[q] + (1.0 - keep_first) * g
        second[q] = keep_second * second[q] + (1.0 - keep_second) * g * g
        weights[q] -= length * first[q] / (np.sqrt(second[q] * correction) + tiny)
