"""Simulated users by name: `navigational`, `informational?stop_requires_click=false`."""

from __future__ import annotations

from rankloop.clicks.dependent import TABLES, DependentClickUser
from rankloop.lab.specs import flag, known_name, only, parse_spec


def open_user(spec: str, highest_grade: int) -> DependentClickUser:
    """The user that `spec` names, with the click table for data of that highest grade.

    >>> open_user("perfect", 2).click
    (0.0, 0.5, 1.0)
    >>> open_user("navigational?stop_requires_click=false", 4).stop_requires_click
    False
    """
    name, options = parse_spec(spec)
    known_name(name, TABLES, "user")
    only(options, ("stop_requires_click",), f"user {name!r}")
    return DependentClickUser.named(
        name, highest_grade, stop_requires_click=flag(options, "stop_requires_click", default=True)
    )
