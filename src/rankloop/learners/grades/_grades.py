"""What the learners of explicit grades share: grades as they come in, checked against the scale they were told of."""

from __future__ import annotations

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.learner import Learner, checked_values, require, require_whole
from rankloop.core.types import Array, Feedback, Impression

HIGHEST = 30  # a grade counts as 2^grade or exp(grade)


def require_scale(grades: object) -> None:
    """Refuse a grade scale that is not 0 to some whole number."""
    require_whole("grades", grades, 1)
    require(grades <= HIGHEST, "grades", grades, f"must be at most {HIGHEST}: give grades on a shorter scale")  # type: ignore[operator]


def grades_of(learner: Learner, impression: Impression, feedback: Feedback, highest: int, least: int = 0) -> Array:
    """(m,) the grades that came, from the top; refused if one is off the scale or fewer than `least` came.

    A list that has fewer than `least` positions must come with all of them graded.
    """
    values = checked_values(learner, impression, feedback)[: np.size(feedback.values)]
    off = np.flatnonzero(values > highest)
    if off.size:
        raise InvalidInput(
            f"the grade at position {off[0] + 1} is {values[off[0]]:g}; grades go from 0 to {highest} here: send them "
            "on that scale, or start a learner with a higher 'grades'"
        )
    wanted = min(least, impression.k)
    if values.size < wanted:
        raise InvalidInput(
            f"feedback has {values.size} grades; this learner wants those of the first {wanted} positions "
            f"(top={least}): send them all, or nothing if they are not known"
        )
    return values
