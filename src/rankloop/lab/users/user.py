"""What the lab asks of a simulated user."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rankloop.lab.users.model_users import FittedUser
from rankloop.types import Array, Feedback


class User(Protocol):
    """Someone who looks at a list and reacts."""

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """What the user does with a list whose documents have these grades, top first."""


def reaction(user: User, query: str, items: Array, grades: Array, rng: np.random.Generator) -> Feedback:
    """What a user does with a list: those who were fitted to a log look at its items, the others at its grades."""
    return user.react_to(query, items, rng) if isinstance(user, FittedUser) else user.react(grades, rng)
