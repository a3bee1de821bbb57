"""What the lab asks of a simulated user."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rankloop.core.types import Array, Feedback


class User(Protocol):
    """Someone who looks at a list and reacts."""

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """What the user does with a list whose documents have these grades, top first.

        A user may also have `react_to(query, items, rng)`, which is then asked instead.
        """


def reaction(user: User, query: str, items: Array, grades: Array, rng: np.random.Generator) -> Feedback:
    """What a user does with a list: those with `react_to`, fitted to a log say, look at its items, others at grades."""
    react_to = getattr(user, "react_to", None)
    found: Feedback = user.react(grades, rng) if react_to is None else react_to(query, items, rng)
    return found
