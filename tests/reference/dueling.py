"""Naive twins of the dueling kernels: fractions of vectors by least squares, Hedge by the book."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def onto_span(direction: Sequence[float], rows: Sequence[Sequence[float]]) -> list[float]:
    """The unit vector along the projection of `direction` on the span of `rows`; zeros if there is none."""
    table = np.array(rows, dtype=float).reshape(-1, len(direction)).T
    coefficients, *_ = np.linalg.lstsq(table, np.array(direction), rcond=1e-10)
    return _unit(table @ coefficients, direction)


def off_span(direction: Sequence[float], rows: Sequence[Sequence[float]]) -> list[float]:
    """The unit vector along what of `direction` is orthogonal to all rows."""
    table = np.array(rows, dtype=float).reshape(-1, len(direction)).T
    coefficients, *_ = np.linalg.lstsq(table, np.array(direction), rcond=1e-10)
    return _unit(np.array(direction) - table @ coefficients, direction)


def _unit(vector: Array, original: Sequence[float]) -> list[float]:
    length = math.sqrt(float(vector @ vector))
    whole = math.sqrt(sum(v * v for v in original))
    return [0.0] * len(original) if length <= 1e-5 * whole else [float(v) / length for v in vector]


def hedge(
    weights: Sequence[float],
    experts: Sequence[Sequence[float]],
    step: Sequence[float],
    alpha: float,
    scale: float,
) -> tuple[list[float], list[float]]:
    """New weights, and the losses: -⟨step, w_i - w⟩ / scale with w the weighted mean."""
    mean = [sum(p * w[j] for p, w in zip(weights, experts, strict=True)) for j in range(len(step))]
    losses = [-sum(s * (w[j] - mean[j]) for j, s in enumerate(step)) / scale for w in experts]
    raw = [p * math.exp(-alpha * loss) for p, loss in zip(weights, losses, strict=True)]
    return [value / sum(raw) for value in raw], losses


def in_ball(vector: Sequence[float], radius: float) -> list[float]:
    """The point of the ball around 0 that is nearest to `vector`."""
    length = math.sqrt(sum(v * v for v in vector))
    return [v * min(1.0, radius / length) if length > 0.0 else v for v in vector]
