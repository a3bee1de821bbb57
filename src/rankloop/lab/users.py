"""Simulated users by name: `navigational`, `informational?stop_requires_click=false`, `pbm?eta=1`, `fitted:FILE`."""

from __future__ import annotations

from rankloop.clicks.dependent import TABLES, DependentClickUser
from rankloop.clicks.graded import GradedUser
from rankloop.lab.model_users import FITTED, GRADED, FittedUser, open_fitted, open_graded
from rankloop.lab.specs import flag, known_name, only, parse_spec


def open_user(spec: str, highest_grade: int) -> DependentClickUser | GradedUser | FittedUser:
    """The user that `spec` names, with the click table for data of that highest grade.

    >>> open_user("perfect", 2).click
    (0.0, 0.5, 1.0)
    >>> open_user("navigational?stop_requires_click=false", 4).stop_requires_click
    False
    """
    name, options = parse_spec(spec)
    if name.startswith(FITTED):
        return open_fitted(name, options)
    known_name(name, (*TABLES, *GRADED, f"{FITTED}FILE"), "user")
    if name in GRADED:
        return open_graded(name, options, highest_grade)
    only(options, ("stop_requires_click",), f"user {name!r}")
    return DependentClickUser.named(
        name, highest_grade, stop_requires_click=flag(options, "stop_requires_click", default=True)
    )
