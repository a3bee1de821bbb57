"""The two-layer network of the neural learners in closed form: scores, gradients, tangent features, Adam.

f(x) = √m Σ_j w_j φ(V_j · [x; x]/√2) with φ = max(·, 0). Both copies of the doubled input carry the same gradient, so
the two halves of V_j always move together and their mean W_j says it all: f(x) = √m Σ_j w_j φ(√2 W_j · x). A gradient
"in W" below is that of one of the two copies, √m w_j 1[active] x/√2: what an optimizer on the doubled network sees.

Rows and weights come in float32, which halves the time of matrix products; sums that decide something are float64.
Products are loops and not BLAS, whose sums hang on the processor and on its number of threads: here every sum has one
order, and what runs side by side is different sums.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, log1p, power

GUESSED = 0.6931471805599453  # log 2: what is lost on a pair by who does not know
WIDE = 8  # numbers that processors take at once; lines are padded to multiples of it


@jit
def add_combination(total: Array, factors: Array, chosen: Array, count: int, rows: Array) -> None:
    """Add Σ_q factors[q] · rows[chosen[q]] over the first `count` q to `total`, in place, in that order.

    Four at a time, so that a total is read and written once for them; each still gets its terms one after the other.
    """
    width = total.size
    q = 0
    while q + 4 <= count:
        f, g, h, i = factors[q], factors[q + 1], factors[q + 2], factors[q + 3]
        a, b, c, d = rows[chosen[q]], rows[chosen[q + 1]], rows[chosen[q + 2]], rows[chosen[q + 3]]
        for j in range(width):
            total[j] = (((total[j] + f * a[j]) + g * b[j]) + h * c[j]) + i * d[j]
        q += 4
    while q < count:
        f, a = factors[q], rows[chosen[q]]
        for j in range(width):
            total[j] += f * a[j]
        q += 1


@jit
def add_two_combinations(one: Array, two: Array, f: Array, g: Array, rows: Array, first: int) -> None:
    """Set `one` and `two` to Σ_c f[c] · rows[c, first:] and Σ_c g[c] · rows[c, first:], in the order of c."""
    d, width = f.size, one.size
    one[:] = 0.0
    two[:] = 0.0
    c = 0
    while c + 4 <= d:
        f0, f1, f2, f3 = f[c], f[c + 1], f[c + 2], f[c + 3]
        g0, g1, g2, g3 = g[c], g[c + 1], g[c + 2], g[c + 3]
        r0, r1, r2, r3 = rows[c, first:], rows[c + 1, first:], rows[c + 2, first:], rows[c + 3, first:]
        for j in range(width):
            one[j] = (((one[j] + f0 * r0[j]) + f1 * r1[j]) + f2 * r2[j]) + f3 * r3[j]
            two[j] = (((two[j] + g0 * r0[j]) + g1 * r1[j]) + g2 * r2[j]) + g3 * r3[j]
        c += 4
    while c < d:
        for j in range(width):
            one[j] += f[c] * rows[c, first + j]
            two[j] += g[c] * rows[c, first + j]
        c += 1


@jit
def sparse_product(left: Array, right: Array) -> Array:
    """(n, w) left (n, d) times right (d, w): `products.product`, but what is 0 in `left` costs nothing."""
    n, d = left.shape
    found = np.zeros((n, right.shape[1]), left.dtype)
    factors, chosen = np.empty(d, left.dtype), np.empty(d, np.int64)
    for i in range(n):
        count = 0
        for c in range(d):
            if left[i, c] != 0.0:
                factors[count], chosen[count] = left[i, c], c
                count += 1
        add_combination(found[i], factors, chosen, count, right)
    return found


@jit
def activations(rows: Array, hidden: Array) -> Array:
    """(n, m) φ(√2 W x) of rows (n, d) and hidden weights W (m, d); units that are copies have the same bits."""
    n, m = rows.shape[0], hidden.shape[0]
    root = np.sqrt(2.0)
    found = sparse_product(rows, np.ascontiguousarray(hidden.T))
    for i in range(n):
        for j in range(m):
            found[i, j] = root * max(np.float64(found[i, j]), 0.0)
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
    push = np.empty((m, n), rows.dtype)
    found = np.empty(m * d + m, rows.dtype)
    ends = np.zeros(m)
    for i in range(n):
        strength = pull[i] * scale
        for j in range(m):
            ends[j] += strength * active[i, j]
            push[j, i] = strength * np.sqrt(0.5) * output[j] if active[i, j] > 0.0 else 0.0
    found[: m * d] = sparse_product(push, rows).ravel()
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
    on = np.empty((m, n), rows.dtype)
    for i in range(n):
        for j in range(m):
            on[j, i] = output[j] if active[i, j] > 0.0 else 0.0
    mean = sparse_product(on, rows)
    weight = inverse[: m * d].reshape(m, d).astype(rows.dtype)
    own, level = np.zeros(m), np.zeros(m)
    for j in range(m):
        for c in range(d):
            mean[j, c] /= n
            own[j] += np.float64(weight[j, c]) * mean[j, c] * mean[j, c]
        for i in range(n):
            level[j] += active[i, j]
        level[j] /= n
    squares = sparse_product(rows * rows, np.ascontiguousarray(weight.T))
    mixed = sparse_product(rows, np.ascontiguousarray((weight * mean).T))
    whole, centred = np.empty(n), np.empty(n)
    for i in range(n):
        total, less = 0.0, 0.0
        for j in range(m):
            s, height, end = np.float64(on[j, i]), np.float64(active[i, j]), inverse[m * d + j]
            total += s * s * squares[i, j] + end * height * height
            less += own[j] - 2.0 * s * mixed[i, j] + end * level[j] * (level[j] - 2.0 * height)
        whole[i], centred[i] = total, max(total + less, 0.0)
    return whole, centred


@jit
def tangent_gram(rows: Array, active: Array, output: Array, inverse: Array, order: Array, some: Array) -> Array:
    """(n, r) ⟨g(x_i), g(x_j)⟩/m in the norm of a diagonal A⁻¹ (m d + m,), for j in `some` (r,) and rows i above j.

    `order` (n,) are the rows by descending score. Only who scores higher can be certain, so the rest is left 0. Unit by
    unit over the documents for which it is active: the (n, m d) tangent features never exist, and the zeros of
    inactive units cost nothing.
    """
    n, d = rows.shape
    m, r = output.size, some.size
    gram = np.zeros((n, r))
    place = np.full(n, -1, np.int64)
    for q in range(r):
        place[some[q]] = q
    columns = np.ascontiguousarray(rows.T)
    lit, begin = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)  # whom the unit sees; where those below begin
    asked = np.empty(r, np.int64)
    right = np.zeros((d, r + WIDE), rows.dtype)
    scaled, one, other = np.empty(d, rows.dtype), np.empty(d, rows.dtype), np.empty(d, rows.dtype)
    ends, totals = np.empty(r), np.empty((2, r + WIDE), rows.dtype)
    for j in range(m):
        end = inverse[m * d + j]
        for c in range(d):
            scaled[c] = np.float64(output[j]) * output[j] * inverse[j * d + c]
        count, width = 0, 0
        for p in range(n):
            i = order[p]
            if active[i, j] > 0.0:
                if place[i] >= 0:
                    asked[width] = i
                    ends[width] = end * active[i, j]
                    width += 1
                lit[count], begin[count] = i, width
                count += 1
        if width == 0:
            continue
        lit[count], begin[count] = lit[count - 1], width  # the last of an odd number has a companion that adds nothing
        for c in range(d):
            for q in range(width):
                right[c, q] = columns[c, asked[q]]
        for a in range(0, count, 2):
            first = begin[a]
            if first == width:
                break
            for c in range(d):
                one[c], other[c] = rows[lit[a], c] * scaled[c], rows[lit[a + 1], c] * scaled[c]
            most = (width - first + WIDE - 1) // WIDE * WIDE
            add_two_combinations(totals[0, :most], totals[1, :most], one, other, right, first)
            for b in range(2):
                i = lit[a + b]
                line, height = gram[i], np.float64(active[i, j])
                for q in range(begin[a + b], width):
                    line[place[asked[q]]] += totals[b, q - first] + ends[q] * height
    return gram


@jit
def gate_gains(line: Array, net: Array, gates: Array, scales: Array, pairs: Array, weights: Array) -> Array:
    """(G, S) how much better than chance c·line + g·network predicts pairs, for each g and c.

    Σ over pairs (m, 2) of weight·(log σ(c z + g h) - log 1/2) for g of `gates` (G,) and c of `scales` (S,), z and h
    being the differences of the scores `line` (n,) and `net` (n,) between the preferred document and the other.
    """
    found = np.zeros((gates.size, scales.size))
    for p in range(pairs.shape[0]):
        a, b = pairs[p, 0], pairs[p, 1]
        z, h = line[a] - line[b], net[a] - net[b]
        for q in range(gates.size):
            for r in range(scales.size):
                margin = scales[r] * z + gates[q] * h
                found[q, r] += weights[p] * (GUESSED - log1p(exp(-np.abs(margin))) - max(-margin, 0.0))
    return found


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
