"""Simulated users of the click models: with attraction by grade (`pbm?eta=1`), or fitted to a log (`fitted:FILE`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rankloop.clicks.files import load
from rankloop.clicks.graded import GradedUser
from rankloop.clicks.model import ClickModel
from rankloop.clicks.users import TABLES, DependentClickUser
from rankloop.core.errors import InvalidInput
from rankloop.core.specs import choice, number, only
from rankloop.core.types import Array, Feedback

FITTED = "fitted:"  # and the name of a file
# the option that each has beside `table`, its default, and how it is made
GRADED: dict[str, tuple[str, float, Callable[[DependentClickUser, float], GradedUser]]] = {
    "cascade": ("", 0.0, lambda table, _: GradedUser.cascade(table)),
    "pbm": ("eta", 1.0, GradedUser.position_based),
    "dbn": ("gamma", 0.9, GradedUser.dynamic_bayesian),
}
_TABLES = ("navigational", *(name for name in TABLES if name != "navigational"))  # the first is the default


@dataclass(frozen=True)
class FittedUser:
    """A user of a model that was fitted to a log: looks at queries and items, not at grades."""

    model: ClickModel
    source: str

    stop_requires_click = None  # a rule of other users

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:  # noqa: ARG002
        """Not from grades alone."""
        raise InvalidInput(f"user {self.source!r} looks at queries and items, which this caller does not tell it")

    def react_to(self, query: str, items: Array, rng: np.random.Generator) -> Feedback:
        """The clicks on a list of items of a query. Items that were not in the log attract as the average does."""
        pairs = self.model.pairs
        at = int(np.searchsorted(pairs.queries, query))
        if at == len(pairs.queries) or pairs.queries[at] != query:
            raise InvalidInput(
                f"{self.source} knows nothing about query {query!r}; a fitted user needs data whose queries and items "
                f"are those of its log, which has {', '.join(map(repr, pairs.queries[:3].tolist()))}, …"
            )
        return self.model.react(query, items, rng)


def open_graded(name: str, options: Mapping[str, str], highest_grade: int) -> GradedUser:
    """A user of a click model for data with grades.

    >>> open_graded("pbm", {"eta": "2", "table": "perfect"}, 2).chances.examination[:3, 0].round(3).tolist()
    [1.0, 0.25, 0.111]
    """
    option, default, make = GRADED[name]
    only(options, tuple(filter(None, ("table", option))), f"user {name!r}")
    table = DependentClickUser.named(choice(options, "table", _TABLES), highest_grade)
    return make(table, number(options, option, default))


def open_fitted(name: str, options: Mapping[str, str]) -> FittedUser:
    """The user of a model that `rankloop clicks fit` wrote."""
    only(options, (), f"user {name!r}")
    return FittedUser(load(name.removeprefix(FITTED)), name)
