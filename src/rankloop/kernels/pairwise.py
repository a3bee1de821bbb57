"""The logistic regression on pairs (linear RankNet) that the pairwise learners share."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, log1p
from rankloop.kernels.products import row_products
from rankloop.kernels.queries import match


@jit
def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), for any x."""
    if x >= 0.0:
        return float(1.0 / (1.0 + exp(-x)))
    e = float(exp(x))
    return e / (1.0 + e)


@jit
def some_rows_times(rows: Array, matrix: Array, some: Array) -> Array:
    """(k, d) rows · matrix of the rows `some`; the other rows are 0.

    Four matrix rows at a time are used by all rows before the next four are fetched, so that a large matrix passes
    through the cache once. The inner loop has no reduction, so it vectorizes.
    """
    k, d = rows.shape
    product = np.zeros((k, matrix.shape[1]))
    m = 0
    while m + 4 <= d:
        for i in some:
            out = product[i]
            a, b, c, e = rows[i, m], rows[i, m + 1], rows[i, m + 2], rows[i, m + 3]
            for j in range(out.size):
                out[j] += (a * matrix[m, j] + b * matrix[m + 1, j]) + (c * matrix[m + 2, j] + e * matrix[m + 3, j])
        m += 4
    while m < d:
        for i in some:
            out = product[i]
            for j in range(out.size):
                out[j] += rows[i, m] * matrix[m, j]
        m += 1
    return product


@jit
def subtract_products(matrix: Array, left: Array, right: Array, some: Array) -> None:
    """matrix (d, d) -= Σ left_mᵀ right_m over the rows m of `some` in turn, in place: a matrix row is fetched once."""
    for i in range(matrix.shape[0]):
        row = matrix[i]
        n = 0
        while n + 4 <= some.size:
            m0, m1, m2, m3 = some[n], some[n + 1], some[n + 2], some[n + 3]
            a, b, c, e = left[m0, i], left[m1, i], left[m2, i], left[m3, i]
            for j in range(row.size):
                row[j] = (((row[j] - a * right[m0, j]) - b * right[m1, j]) - c * right[m2, j]) - e * right[m3, j]
            n += 4
        while n < some.size:
            m = some[n]
            for j in range(row.size):
                row[j] -= left[m, i] * right[m, j]
            n += 1


@jit
def add_scaled(target: Array, scale: Array, rows: Array) -> None:
    """target (d,) += Σ_i scale_i · rows_i."""
    for i in range(rows.shape[0]):
        if scale[i] != 0.0:
            for j in range(target.size):
                target[j] += scale[i] * rows[i, j]


@jit
def dot(x: Array, y: Array) -> float:
    """x·y in four lanes: the order of the sum is fixed, yet it runs at the speed of the vector unit."""
    a = b = c = e = 0.0
    j = 0
    while j + 4 <= x.size:
        a += x[j] * y[j]
        b += x[j + 1] * y[j + 1]
        c += x[j + 2] * y[j + 2]
        e += x[j + 3] * y[j + 3]
        j += 4
    while j < x.size:
        a += x[j] * y[j]
        j += 1
    return (a + b) + (c + e)


@jit
def rank_one_update(inverse: Array, x: Array, weight: float) -> float:
    """H⁻¹ for H + weight·xxᵀ, in place (Sherman-Morrison); returns what log det H gained."""
    column = np.zeros(x.size)
    add_scaled(column, x, inverse)
    square = dot(column, x)
    shrink = weight / (1.0 + weight * square)
    for i in range(x.size):
        if column[i] != 0.0:
            for j in range(x.size):
                inverse[i, j] -= shrink * column[i] * column[j]
    return float(log1p(weight * square))


@jit
def onepass(theta: Array, inverse: Array, features: Array, pairs: Array, weights: Array) -> float:
    """One Newton-like step a pair, in turn, changing θ and H⁻¹ in place; returns what log det H gained.

    A pair x = x_a - x_b with p = σ(xᵀθ) does: H̃ = H + ρp(1-p) xxᵀ; θ += ρ(1-p) H̃⁻¹x; then H += ρσ'(xᵀθ) xxᵀ.

    All pairs come from the same k shown rows X, so the steps are taken in the k-dimensional space they span: with
    Z = X H⁻¹ of the start, H⁻¹Xᵀ = Zᵀ A and X H⁻¹ Xᵀ = G at every moment, a pair costs O(k²) and θ and H⁻¹ are
    touched once, in O(k d²), however many pairs there are. Rows that no pair names (users did not look so far) cost
    nothing: all of theirs would be 0.
    """
    k = features.shape[0]
    some = named(pairs, k)
    Z = some_rows_times(features, inverse, some)
    scores = np.zeros(k)
    G = np.zeros((k, k))
    for a in some:
        scores[a] = dot(features[a], theta)
        for b in some:
            if b <= a:
                G[a, b] = G[b, a] = dot(Z[a], features[b])
    A = np.eye(k)
    C = np.zeros((k, k))  # H⁻¹ now = H⁻¹ at the start - Zᵀ C Z
    move = np.zeros(k)  # θ now = θ at the start + Zᵀ move
    g, along = np.empty(k), np.empty(k)
    gained = 0.0
    for m in range(pairs.shape[0]):
        a, b, weight = pairs[m, 0], pairs[m, 1], weights[m]
        for i in range(k):
            g[i], along[i] = G[i, a] - G[i, b], A[i, a] - A[i, b]
        square = max(g[a] - g[b], 0.0)
        margin = scores[a] - scores[b]
        p = sigmoid(margin)
        step = weight * (1.0 - p) / (1.0 + weight * p * (1.0 - p) * square)
        p = sigmoid(margin + step * square)
        curvature = weight * p * (1.0 - p)
        shrink = curvature / (1.0 + curvature * square)
        gained += log1p(curvature * square)
        for i in some:
            move[i] += step * along[i]
            scores[i] += step * g[i]
            for j in range(k):
                C[i, j] += shrink * along[i] * along[j]
                A[i, j] -= shrink * along[i] * g[j]
                G[i, j] -= shrink * g[i] * g[j]
    add_scaled(theta, move, Z)
    subtract_products(inverse, Z, some_rows_times(C, Z, some), some)
    return gained


@jit
def named(pairs: Array, k: int) -> Array:
    """The rows of k that pairs (m, 2) name, in ascending order."""
    there = np.zeros(k, np.bool_)
    for m in range(pairs.shape[0]):
        there[pairs[m, 0]] = there[pairs[m, 1]] = True
    found, count = np.empty(k, np.int64), 0
    for i in range(k):
        if there[i]:
            found[count] = i
            count += 1
    return found[:count]


@jit
def mean_squared_distance(features: Array) -> float:
    """Mean of ‖x_i - x_j‖² over the pairs of rows; 1 where there is none or all rows are the same.

    Σ over pairs ‖x_i - x_j‖² = n Σ ‖y_i‖² - ‖Σ y_i‖², for y_i = x_i - x_0: O(n d), and exactly 0 for equal rows.
    """
    n, d = features.shape
    total, squares = np.zeros(d), 0.0
    for i in range(n):
        for j in range(d):
            y = features[i, j] - features[0, j]
            total[j] += y
            squares += y * y
    distance = 2.0 * (n * squares - dot(total, total)) / (n * (n - 1.0)) if n > 1 else 0.0
    return distance if distance > 0.0 else 1.0


@jit
def update_query_offsets(
    scores: Array, own: Array, precision: Array, numbers: Array, pairs: Array, weights: Array
) -> None:
    """Let each pair's documents move their own part of the score: one Newton-like step a pair, in turn, in place.

    `own` (m,) and `precision` (m,) are what is kept of a query's items, `numbers` (k,) which of them stand at each
    position, and `scores` (k,) what the shared part says of them. A pair a over b with margin z = s_a - s_b and
    spread q = 1/P_a + 1/P_b does, with p = σ(z): both move by ρ(1-p) / (1 + ρp(1-p)q) over their precision, one up, one
    down; then P_a and P_b gain ρσ'(z) there. Documents without a number (-1: there was no room) stay out.
    """
    for m in range(pairs.shape[0]):
        a, b = pairs[m, 0], pairs[m, 1]
        i, j, weight = numbers[a], numbers[b], weights[m]
        if i < 0 or j < 0:
            continue
        spread = 1.0 / precision[i] + 1.0 / precision[j]
        margin = scores[a] + own[i] - scores[b] - own[j]
        p = sigmoid(margin)
        step = weight * (1.0 - p) / (1.0 + weight * p * (1.0 - p) * spread)
        own[i] += step / precision[i]
        own[j] -= step / precision[j]
        p = sigmoid(margin + step * spread)
        precision[i] += weight * p * (1.0 - p)
        precision[j] += weight * p * (1.0 - p)


@jit
def update_query_offsets_of_rows(
    rows: Array, theta: Array, own: Array, precision: Array, numbers: Array, pairs: Array, weights: Array
) -> None:
    """`update_query_offsets`, the shared part being what θ says of the rows shown (k, d)."""
    update_query_offsets(row_products(rows, theta), own, precision, numbers, pairs, weights)


@jit
def add_query_offsets(
    scores: Array, known: Array, own: Array, precision: Array, wanted: Array, prior: float, width: float
) -> tuple[Array, Array]:
    """(n,) scores with what is remembered of each document, and (n,) what its own part is uncertain by: width / P.

    `known` (m,) are the items that `own` and `precision` tell of, `wanted` (n,) those that have the `scores`. One that
    is not known has no part of its own yet, and the variance `prior` in place of 1 / P.
    """
    places = match(known[: min(own.size, precision.size)], wanted)
    found, spread = np.empty(scores.size), np.empty(scores.size)
    for i in range(scores.size):
        place = places[i]
        found[i] = scores[i] + (own[place] if place >= 0 else 0.0)
        spread[i] = width * (1.0 / precision[place] if place >= 0 else prior)
    return found, spread


@jit
def row_marks(rows: Array) -> Array:
    """(k,) a number by which to know a row of features again: Σ_j x_j (1 + the fraction of j times the golden ratio).

    Equal rows have equal marks, to the bit. Others do not, but by a chance of about 1e-16: the factors have no pattern.
    """
    marks = np.zeros(rows.shape[0])
    for i in range(rows.shape[0]):
        turn = 0.0
        for j in range(rows.shape[1]):
            turn += 0.6180339887498949
            if turn >= 1.0:
                turn -= 1.0
            marks[i] += rows[i, j] * (1.0 + turn)
    return marks


@jit
def novelty_weights(
    known: Array, precision: Array, before: Array, shown: Array, rows: Array, prior: float, pairs: Array, weights: Array
) -> Array:
    """(m,) what pairs of a query that is remembered count for what all queries share: ρ / (1 + τ (A_a + A_b)).

    A is the precision that a document's own part, of variance τ = `prior` at first, has gained from earlier lists:
    P - 1/τ. `known` (m,) are the items that `precision` tells of and `before` (m,) the marks of their rows then,
    `shown` (k,) the items of the list and `rows` (k,) the marks of theirs. A document that had other features
    before is new to θ: A = 0.
    """
    places = match(known[: precision.size], shown)
    gained = np.zeros(shown.size)
    for i in range(shown.size):
        place = places[i]
        if place >= 0 and before[place] == rows[i]:
            gained[i] = max(prior * precision[place] - 1.0, 0.0)
    found = np.empty(pairs.shape[0])
    for m in range(pairs.shape[0]):
        found[m] = weights[m] / (1.0 + gained[pairs[m, 0]] + gained[pairs[m, 1]])
    return found


@jit
def longest_pair(features: Array, pairs: Array) -> float:
    """The largest norm of x_a - x_b over the pairs."""
    longest = 0.0
    for m in range(pairs.shape[0]):
        difference = features[pairs[m, 0]] - features[pairs[m, 1]]
        longest = max(longest, dot(difference, difference))
    return float(np.sqrt(longest))


@jit
def logistic_gradient(theta: Array, rows: Array, weights: Array, ridge: float) -> tuple[Array, Array]:
    """Gradient (d,) of Σ ρ log(1 + exp(-xᵀθ)) + ridge/2 ‖θ‖² and each row's curvature ρσ'(xᵀθ) (m,)."""
    gradient = ridge * theta
    curvature = np.empty(rows.shape[0])
    push = np.empty(rows.shape[0])
    for m in range(rows.shape[0]):
        p = sigmoid(dot(rows[m], theta))
        push[m] = -weights[m] * (1.0 - p)
        curvature[m] = weights[m] * p * (1.0 - p)
    add_scaled(gradient, push, rows)
    return gradient, curvature


@jit
def spd_inverse(matrix: Array) -> Array:
    """Inverse of a symmetric positive definite matrix by Gauss-Jordan, which needs no pivots there."""
    d = matrix.shape[0]
    work = matrix.copy()
    inverse = np.eye(d)
    for m in range(d):
        pivot = 1.0 / work[m, m]
        for j in range(d):
            work[m, j] *= pivot
            inverse[m, j] *= pivot
        for i in range(d):
            factor = work[i, m]
            if i != m and factor != 0.0:
                for j in range(d):
                    work[i, j] -= factor * work[m, j]
                    inverse[i, j] -= factor * inverse[m, j]
    return inverse


@jit
def hessian_inverse(rows: Array, curvature: Array, ridge: float) -> Array:
    """(ridge·I + Σ curvature·xxᵀ)⁻¹, from scratch."""
    d = rows.shape[1]
    hessian = ridge * np.eye(d)
    for m in range(rows.shape[0]):
        for i in range(d):
            scaled = curvature[m] * rows[m, i]
            if scaled != 0.0:
                for j in range(d):
                    hessian[i, j] += scaled * rows[m, j]
    return spd_inverse(hessian)


@jit
def refit(theta: Array, inverse: Array, rows: Array, weights: Array, ridge: float, tolerance: float) -> int:
    """Minimize Σ ρ log(1 + exp(-xᵀθ)) + ridge/2 ‖θ‖² from the θ given, in place; returns the steps it took.

    Newton with a Hessian inverse that is kept from event to event (the caller adds the new rows by rank-one updates):
    it is a little stale, so each step is checked, and it is made anew when steps stop halving the gradient. Done when
    no entry of the gradient exceeds `tolerance`.
    """
    gradient, curvature = logistic_gradient(theta, rows, weights, ridge)
    size = np.abs(gradient).max()
    for step in range(100):
        if size <= tolerance:
            return step
        direction = np.zeros(theta.size)
        add_scaled(direction, gradient, inverse)
        trial = theta - direction
        trial_gradient, trial_curvature = logistic_gradient(trial, rows, weights, ridge)
        trial_size = np.abs(trial_gradient).max()
        if trial_size > 0.5 * size:
            inverse[:] = hessian_inverse(rows, curvature, ridge)
            direction[:] = 0.0
            add_scaled(direction, gradient, inverse)
            length = 1.0
            # a damped Newton step always finds a smaller slope along the direction: the objective is convex
            for _ in range(30):
                trial = theta - length * direction
                trial_gradient, trial_curvature = logistic_gradient(trial, rows, weights, ridge)
                if dot(trial_gradient, direction) > -0.9 * dot(gradient, direction):
                    break
                length *= 0.5
            trial_size = np.abs(trial_gradient).max()
        theta[:] = trial
        gradient, curvature, size = trial_gradient, trial_curvature, trial_size
    return 100
