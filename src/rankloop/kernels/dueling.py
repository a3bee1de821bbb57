"""Directions to explore in, lists mixed straight from scores, and the spaces that directions are projected on."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import exp, exps, log
from rankloop.kernels.interleaving import interleave, win_and_loss
from rankloop.kernels.pairwise import dot
from rankloop.kernels.ranking import rankers_scores

TINY = 1e-10  # what is left of a unit vector below this is rounding, not direction


@jit
def unit_rows(rows: Array) -> Array:
    """(m, d) each row divided by its length; normal numbers become directions uniform on the unit sphere."""
    found = np.empty(rows.shape)
    for i in range(rows.shape[0]):
        length = np.sqrt(dot(rows[i], rows[i]))
        for j in range(rows.shape[1]):
            found[i, j] = rows[i, j] / length if length > 0.0 else 0.0
    return found


@jit
def explorers(theta: Array, directions: Array, delta: float) -> Array:
    """(m + 1, d) the rankers that duel: θ, and θ + δu of each direction u."""
    found = np.empty((directions.shape[0] + 1, theta.size))
    found[0] = theta
    for i in range(directions.shape[0]):
        for j in range(theta.size):
            found[i + 1, j] = theta[j] + delta * directions[i, j]
    return found


@jit
def explorer_scores(theta: Array, directions: Array, delta: float, features: Array) -> Array:
    """(m + 1, n) the scores that θ, and θ + δu of each direction u, give to n documents (n, d)."""
    return rankers_scores(explorers(theta, directions, delta), features)


@jit
def duel(
    features: Array,
    theta: Array,
    directions: Array,
    delta: float,
    ties: Array,
    coins: Array,
    weights: Array,
    tails: Array,
) -> tuple[Array, Array, Array]:
    """(k,) a list mixed from θ and θ + δu of each direction u, its rows (k, d), and (k, m + 1) who put them there."""
    order, credit = interleave(explorer_scores(theta, directions, delta, features), ties, coins, weights, tails)
    rows = np.empty((order.size, features.shape[1]))
    for p in range(order.size):
        rows[p] = features[order[p]]
    return order, rows, credit


@jit
def winning_direction(directions: Array, credit: Array, clicks: Array) -> Array:
    """(d,) the mean of the directions whose ranker more likely won the clicks than lost them; empty if none did."""
    clicked = False
    for p in range(clicks.size):
        clicked |= clicks[p] > 0
    if directions.shape[0] == 0 or not clicked:
        return np.empty(0)
    verdict = win_and_loss(credit, clicks, 0)
    mean, winners = mean_winner(directions, verdict[0], verdict[1])
    return mean if winners > 0 else np.empty(0)


@jit
def stepped(theta: Array, direction: Array, rate: float, radius: float) -> Array:
    """(d,) θ + rate · direction, brought back into the ball of `radius` (0: everywhere); an empty θ is zero."""
    found = np.empty((1, direction.size))
    for j in range(direction.size):
        found[0, j] = rate * direction[j] + (theta[j] if theta.size else 0.0)
    within_ball(found, radius)
    moved: Array = found[0]
    return moved


@jit
def basis(rows: Array) -> Array:
    """(b, d) orthonormal vectors that span the rows (modified Gram-Schmidt, twice for rounding)."""
    found = np.empty((min(rows.shape[0], rows.shape[1]), rows.shape[1]))
    size = 0
    rest = np.empty(rows.shape[1])
    for i in range(rows.shape[0]):
        if size == found.shape[0]:
            break
        rest[:] = rows[i]
        scale = dot(rest, rest)
        if scale == 0.0:
            continue
        for _ in range(2):
            _remove(rest, found[:size])
        square = dot(rest, rest)
        if square <= TINY * scale:
            continue
        length = np.sqrt(square)
        for j in range(rest.size):
            found[size, j] = rest[j] / length
        size += 1
    return found[:size]


@jit
def _remove(vector: Array, axes: Array) -> None:
    """Take the parts along orthonormal `axes` out of `vector`, in place."""
    for b in range(axes.shape[0]):
        along = dot(axes[b], vector)
        for j in range(vector.size):
            vector[j] -= along * axes[b, j]


@jit
def projected(direction: Array, rows: Array) -> Array:
    """(d,) the unit direction nearest to `direction` in the span of `rows`; zeros if nothing of it lies there."""
    axes = basis(rows)
    found = np.zeros((1, direction.size))
    for b in range(axes.shape[0]):
        along = dot(axes[b], direction)
        for j in range(direction.size):
            found[0, j] += along * axes[b, j]
    kept: Array = _renormalized(found, direction)[0]
    return kept


@jit
def null_directions(directions: Array, bad: Array) -> Array:
    """(m, d) unit directions with what lies in the span of `bad` taken out; zeros where nothing is left."""
    axes = basis(bad)
    found = directions.copy()
    for i in range(found.shape[0]):
        for _ in range(2):
            _remove(found[i], axes)
        found[i] = _renormalized(found[i : i + 1], directions[i])[0]
    return found


@jit
def _renormalized(vector: Array, original: Array) -> Array:
    """(1, d) `vector` at length 1; zeros if it is nothing but the rounding of `original`."""
    if dot(vector[0], vector[0]) <= TINY * dot(original, original):
        return np.zeros(vector.shape)
    return unit_rows(vector)


@jit
def mean_winner(directions: Array, win: Array, loss: Array) -> tuple[Array, int]:
    """(d,) the mean of the directions whose ranker more likely won than lost against ranker 0, and how many did.

    Ranker r + 1 explores direction r; `win` and `loss` are those of all rankers.
    """
    mean = np.zeros(directions.shape[1])
    count = 0
    for r in range(directions.shape[0]):
        if win[r + 1] > loss[r + 1]:
            count += 1
            for j in range(mean.size):
                mean[j] += directions[r, j]
    if count > 0:
        for j in range(mean.size):
            mean[j] /= count
    return mean, count


@jit
def right_pairs(pairs: Array, rankers: Array) -> Array:
    """(m,) how many of the differences x_better - x_worse each of the rankers (m, d) scores above 0."""
    found = np.zeros(rankers.shape[0], np.int64)
    for r in range(rankers.shape[0]):
        for i in range(pairs.shape[0]):
            found[r] += dot(pairs[i], rankers[r]) > 0.0
    return found


@jit
def within_ball(rows: Array, radius: float) -> None:
    """Shorten rows that are longer than `radius`, in place; 0 is no limit."""
    if radius <= 0.0:
        return
    for i in range(rows.shape[0]):
        square = dot(rows[i], rows[i])
        if square > radius * radius:
            shrink = radius / np.sqrt(square)
            for j in range(rows.shape[1]):
                rows[i, j] *= shrink


@jit
def hedge(logs: Array, experts: Array, aggregate: Array, step: Array, alpha: float, scale: float) -> Array:
    """(N,) logarithms of the expert weights π after one round of Hedge on loss(w_i) = -⟨step, w_i - w⟩ / scale.

    Losses are relative to the aggregate w = Σ π_i w_i, so Σ π_i loss(w_i) = 0. In logarithms no gain is too large, and
    an expert who has fallen behind by hundreds of digits can still come back.
    """
    found = np.empty(logs.size)
    most = -np.inf
    for i in range(logs.size):
        gain = 0.0
        for j in range(step.size):
            gain += step[j] * (experts[i, j] - aggregate[j])
        found[i] = logs[i] + alpha * gain / scale
        most = max(most, found[i])
    total = 0.0
    for i in range(logs.size):
        found[i] -= most
        total += exp(found[i])
    for i in range(logs.size):
        found[i] -= log(total)
    return found


@jit
def mixture(weights: Array, experts: Array) -> Array:
    """(d,) Σ π_i w_i."""
    found = np.zeros(experts.shape[1])
    for i in range(weights.size):
        for j in range(found.size):
            found[j] += weights[i] * experts[i, j]
    return found


@jit
def track(
    logs: Array,
    experts: Array,
    aggregate: Array,
    step: Array,
    rates: Array,
    alpha: float,
    scale: float,
    reach: float,
) -> tuple[Array, Array, Array]:
    """One round of experts who share a step: their log weights (N,) after Hedge, they themselves (N, d), their mixture.

    Hedge judges them by where they stood before; then each goes `rates` (N,) times the step, and none leaves the ball.
    """
    found = hedge(logs, experts, aggregate, step, alpha, scale)
    moved = np.empty(experts.shape)
    for i in range(experts.shape[0]):
        for j in range(step.size):
            moved[i, j] = experts[i, j] + rates[i] * step[j]
    within_ball(moved, reach)
    return found, moved, mixture(exps(found), moved)


@jit
def length(vector: Array) -> float:
    """Of a vector (d,)."""
    square = 0.0
    for j in range(vector.size):
        square += vector[j] * vector[j]
    return float(np.sqrt(square))
