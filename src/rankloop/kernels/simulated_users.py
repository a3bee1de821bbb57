"""Simulated users: grades from a taste, clicks from grades."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.pairwise import dot


@jit
def utilities(features: Array, taste: Array) -> Array:
    """(n,) x·taste; the order of each sum is fixed, so a document's has the same bits alone and among others."""
    found = np.empty(features.shape[0])
    for i in range(found.size):
        found[i] = dot(features[i], taste)
    return found


@jit
def deal_grades(features: Array, taste: Array, best: Array) -> Array:
    """(n,) grades: the document of highest utility gets best[0], the next best[1], …; equal ones in list order.

    `best` (n,) are the grades there are to deal, highest first.
    """
    order = np.argsort(-utilities(features, taste), kind="mergesort")  # the stable one
    grades = np.empty(order.size, best.dtype)
    for place in range(order.size):
        grades[order[place]] = best[place]
    return grades


@jit
def ragged_deal_grades(features: Array, taste: Array, best: Array, offsets: Array) -> Array:
    """(N,) the same for each query of a data set."""
    grades = np.empty(best.size, best.dtype)
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        grades[first:last] = deal_grades(features[first:last], taste, best[first:last])
    return grades


@jit
def ragged_best_first(grades: Array, offsets: Array) -> Array:
    """(N,) each query's grades, highest first."""
    best = np.empty(grades.size, grades.dtype)
    for q in range(offsets.size - 1):
        first, last = offsets[q], offsets[q + 1]
        best[first:last] = np.sort(grades[first:last])[::-1]
    return best


@jit
def dependent_clicks(grades: Array, click: Array, stop: Array, uniforms: Array, stop_requires_click: bool) -> Array:
    """(k,) clicks of one user who reads from the top: clicks with click[grade], then stops with stop[grade].

    `uniforms` (2, k) decide clicks and stops. The stop coin is tossed after a click only, or with
    `stop_requires_click` off at every examined document.
    """
    clicks = np.zeros(grades.size)
    for p in range(grades.size):
        grade = int(grades[p])
        if not 0 <= grade < click.size:  # compiled code would read past the table
            raise IndexError("grade is not in the click table")
        clicked = uniforms[0, p] < click[grade]
        clicks[p] = clicked
        if (clicked or not stop_requires_click) and uniforms[1, p] < stop[grade]:
            break
    return clicks
