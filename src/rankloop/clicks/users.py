"""The dependent click model with grades: the simulated users of the online learning-to-rank literature."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array, Feedback
from rankloop.kernels.user_clicks import dependent_clicks

# (click, stop) probability by grade, for data whose highest grade is 1, 2 or 4.
# Tables of Oosterhuis & de Rijke (2018) and of PairRank (2021); "almost random" is given for five grades only.
TABLES: dict[str, dict[int, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "perfect": {
        1: ((0.0, 1.0), (0.0, 0.0)),
        2: ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        4: ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    },
    "navigational": {
        1: ((0.05, 0.95), (0.2, 0.9)),
        2: ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        4: ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    },
    "informational": {
        1: ((0.4, 0.9), (0.1, 0.5)),
        2: ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        4: ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    },
    "almost-random": {
        4: ((0.40, 0.45, 0.50, 0.55, 0.60), (0.5, 0.5, 0.5, 0.5, 0.5)),
    },
}


@dataclass(frozen=True)
class DependentClickUser:
    """Reads from the top, clicks a document of grade r with click[r], after a click stops with stop[r].

    Parameters
    ----------
    click, stop
        Probability by grade.
    stop_requires_click
        The papers' rule. False tosses the stop coin at every examined document, as the code behind the published
        curves of PDGD and PairRank does: a navigational user then sees about 3.4 of 10 documents instead of 7.

    Examples
    --------
    >>> user = DependentClickUser.named("perfect", highest_grade=1)
    >>> user.react(np.array([0, 1, 0]), np.random.default_rng(0)).values
    array([0., 1., 0.])
    """

    click: tuple[float, ...]
    stop: tuple[float, ...]
    stop_requires_click: bool = True
    tables: tuple[Array, Array] = field(init=False, repr=False, compare=False)  # click and stop as arrays

    def __post_init__(self) -> None:
        if len(self.click) != len(self.stop):
            raise InvalidParameter(f"{len(self.click)} click and {len(self.stop)} stop probabilities; give one a grade")
        for value in (*self.click, *self.stop):
            if not 0.0 <= value <= 1.0:
                raise InvalidParameter(f"probability {value!r}; it must lie between 0 and 1")
        object.__setattr__(self, "tables", (np.array(self.click), np.array(self.stop)))

    @classmethod
    def named(cls, name: str, highest_grade: int, *, stop_requires_click: bool = True) -> DependentClickUser:
        """A user of the papers, with the smallest table that covers the data's grades."""
        tables = TABLES[name]
        fitting = [top for top in sorted(tables) if top >= highest_grade]
        if not fitting:
            raise InvalidParameter(
                f"user {name!r} knows grades up to {max(tables)}, but the data has grade {highest_grade}; "
                "map its grades to 0-4 or give click and stop probabilities"
            )
        return cls(*tables[fitting[0]], stop_requires_click)

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """The clicks on a list whose documents have these grades, top first."""
        try:
            clicks = dependent_clicks(grades, *self.tables, rng.random((2, grades.size)), self.stop_requires_click)
        except IndexError:
            raise InvalidInput(f"grades {grades.tolist()}; this user knows 0 to {len(self.click) - 1}") from None
        return Feedback("clicks", clicks)
