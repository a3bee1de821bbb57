"""Simulated clicks."""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit


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
