"""Simulated users by name: `navigational`, `informational?stop_requires_click=false`."""

from __future__ import annotations

from rankloop.clicks.dependent import TABLES, DependentClickUser
from rankloop.lab.specs import Options


def open_user(spec: str, highest_grade: int) -> DependentClickUser:
    """The user that `spec` names, with the click table for data of that highest grade.

    >>> open_user("perfect", 2).click
    (0.0, 0.5, 1.0)
    >>> open_user("navigational?stop_requires_click=false", 4).stop_requires_click
    False
    """
    options = Options(spec, "user")
    name = options.name_in(TABLES)
    user = DependentClickUser.named(
        name, highest_grade, stop_requires_click=options.flag("stop_requires_click", default=True)
    )
    options.done()
    return user
