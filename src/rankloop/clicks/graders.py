"""Users who say what they think: the true grades of the first results, and of nothing below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.specs import integer, only
from rankloop.core.types import Array, Feedback, FeedbackKind

NAME = "grader"


@dataclass(frozen=True)
class Grader:
    """Grades the first `top` results of a list, all of them if it is 0.

    Asked for clicks, by a learner that takes those, clicks on what would have got a grade above 0 and looks at nothing
    below the first `top`: so learners of both kinds can be compared on the same users.

    Examples
    --------
    >>> Grader(top=2).react(np.array([3, 0, 1]), np.random.default_rng(0)).values
    array([3., 0.])
    >>> Grader(top=2, kind="clicks").react(np.array([3, 0, 1]), np.random.default_rng(0)).values
    array([1., 0.])
    """

    top: int = 0
    kind: FeedbackKind = "grades"
    stop_requires_click: ClassVar[bool | None] = None  # there is no coin to toss

    def __post_init__(self) -> None:
        if self.top < 0:
            raise InvalidParameter(f"top is {self.top}; it must be at least 0, which is all")

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:  # noqa: ARG002
        """The grades of the first, or the clicks."""
        seen = np.asarray(grades[: self.top or None], dtype=np.float64)
        return Feedback(self.kind, seen if self.kind == "grades" else (seen > 0).astype(np.float64))


def open_grader(options: Mapping[str, str], kind: FeedbackKind) -> Grader:
    """The grader of `grader?top=2`."""
    only(options, ("top",), f"user {NAME!r}")
    return Grader(integer(options, "top", 0), kind)


def refuse_clicks(name: str, kind: FeedbackKind) -> None:
    """A user who only clicks is of no use to a learner of grades."""
    if kind == "grades":
        raise InvalidParameter(f"user {name!r} clicks, but this learner wants grades; take user {NAME} or {NAME}?top=2")
