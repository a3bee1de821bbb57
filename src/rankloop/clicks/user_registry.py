"""Simulated users by name: `navigational`, `pbm?eta=1`, `fitted:FILE`, `grader`, and those of other packages.

A user of another package (entry point `rankloop.users`, or `my.module:Mine`) is made by
`maker(highest_grade, **options)` and has `react(grades, rng) -> Feedback`, the grades being those of the list shown.
"""

from __future__ import annotations

from typing import Any

from rankloop.clicks.graded import GradedUser
from rankloop.clicks.graders import NAME as GRADER
from rankloop.clicks.graders import Grader, open_grader, refuse_clicks
from rankloop.clicks.model_users import FITTED, GRADED, FittedUser, open_fitted, open_graded
from rankloop.clicks.users import TABLES, DependentClickUser
from rankloop.core import plugins
from rankloop.core.specs import flag, known_name, only, parse_spec
from rankloop.core.types import FeedbackKind


def open_user(
    spec: str, highest_grade: int, kind: FeedbackKind = "clicks"
) -> DependentClickUser | GradedUser | FittedUser | Grader:
    """The user that `spec` names, with the click table for data of that highest grade, for a learner of that kind.

    >>> open_user("perfect", 2).click
    (0.0, 0.5, 1.0)
    >>> open_user("navigational?stop_requires_click=false", 4).stop_requires_click
    False
    >>> open_user("grader?top=2", 4, "grades")
    Grader(top=2, kind='grades')
    """
    name, options = parse_spec(spec)
    ours = name in (*TABLES, *GRADED, GRADER) or name.startswith(FITTED)
    place = None if ours else plugins.place_of(plugins.USERS, name)
    if place is not None:
        maker = plugins.find(place, "user")
        own: Any = plugins.made(maker, f"user {name!r}", highest_grade, **plugins.text_options(options))
        return own  # type: ignore[no-any-return]
    if not ours:
        known_name(name, (*TABLES, *GRADED, f"{FITTED}FILE", GRADER, *plugins.installed(plugins.USERS)), "user")
    if name == GRADER:
        return open_grader(options, kind)
    refuse_clicks(name, kind)
    if name.startswith(FITTED):
        return open_fitted(name, options)
    if name in GRADED:
        return open_graded(name, options, highest_grade)
    only(options, ("stop_requires_click",), f"user {name!r}")
    return DependentClickUser.named(
        name, highest_grade, stop_requires_click=flag(options, "stop_requires_click", default=True)
    )
