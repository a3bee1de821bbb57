"""Click models for data with grades: how attractive a document is follows from its grade."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankloop.clicks.model import ONE, TABLE
from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import require, require_number
from rankloop.core.types import Array, Feedback
from rankloop.kernels.click_models import CASCADE, CHAIN, POSITION, ClickChances, react

RANKS = 1000  # below them a position-based user looks as often as at the last


@dataclass(frozen=True, eq=False)
class GradedUser:
    """A user of one of the click models, who sees grades.

    Examples
    --------
    >>> table = DependentClickUser.named("perfect", highest_grade=1)
    >>> someone = GradedUser.cascade(table)
    >>> someone.react(np.array([0, 1, 1]), np.random.default_rng(0)).values
    array([0., 1., 0.])
    """

    chances: ClickChances  # documents are grades

    stop_requires_click = None  # a rule of the users of `rankloop.clicks.users`

    @classmethod
    def cascade(cls, table: DependentClickUser) -> GradedUser:
        """Clicks a document of grade r with the table's click probability, and leaves after the first click."""
        click = np.array(table.click)
        return cls(ClickChances(CASCADE, click, np.zeros_like(click), ONE, 1.0, TABLE))

    @classmethod
    def position_based(cls, table: DependentClickUser, eta: float) -> GradedUser:
        """Looks at rank k with probability (1/k)^eta, and clicks with the table's click probability."""
        require_number("eta", eta, 0)
        examination = np.arange(1.0, RANKS + 1.0)[:, None] ** -eta
        return cls(ClickChances(POSITION, np.array(table.click), ONE, ONE, 1.0, examination))

    @classmethod
    def dynamic_bayesian(cls, table: DependentClickUser, gamma: float) -> GradedUser:
        """Clicks by the table, is satisfied by its stop probability, and otherwise goes on with probability gamma."""
        require_number("gamma", gamma, 0)
        require(gamma <= 1, "gamma", gamma, "must be at most 1")
        click, satisfied = np.array(table.click), np.array(table.stop)
        return cls(ClickChances(CHAIN, click, gamma * (1.0 - satisfied), ONE, float(gamma), TABLE))

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """The clicks on a list whose documents have these grades, top first."""
        highest = len(self.chances.attraction) - 1
        if grades.size and not 0 <= grades.min() <= grades.max() <= highest:
            raise InvalidInput(f"grades {grades.tolist()}; this user knows 0 to {highest}")
        clicks = np.empty(grades.size)
        react(self.chances, grades.astype(np.int64), rng.random((2, grades.size)), clicks)
        return Feedback("clicks", clicks)
