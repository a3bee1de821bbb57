"""Simulated users by name: `navigational`, `pbm?eta=1`, `fitted:FILE`, `grader`, and those of other packages.

A user of another package (entry point `rankloop.users`, or `my.module:Mine`) is made by
`maker(highest_grade, **options)` and has `react(grades, rng) -> Feedback`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from rankloop.clicks.files import load
from rankloop.clicks.model import ONE, TABLE, ClickModel
from rankloop.core import plugins
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import require, require_number
from rankloop.core.specs import choice, flag, integer, known_name, number, only, parse_spec
from rankloop.core.types import Array, Feedback, FeedbackKind
from rankloop.kernels.click_models import CASCADE, CHAIN, POSITION, ClickParameters, react
from rankloop.kernels.simulated_users import dependent_clicks

FITTED = "fitted:"  # followed by the name of a file
GRADER = "grader"
RANKS = 1000  # lower ranks are examined as often as the last
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


class User(Protocol):
    """A simulated user."""

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """Return the feedback on a ranking whose documents have these grades.

        If a user also has `react_to(query, items, rng)`, it is called instead.
        """


def reaction(user: User, query: str, items: Array, grades: Array, rng: np.random.Generator) -> Feedback:
    """Return the feedback of a user, by `react_to` if there is one, else by `react`."""
    react_to = getattr(user, "react_to", None)
    found: Feedback = user.react(grades, rng) if react_to is None else react_to(query, items, rng)
    return found


@dataclass(frozen=True)
class DependentClickUser:
    """Reads from the top, clicks a document of grade r with probability click[r], then stops with stop[r].

    Parameters
    ----------
    click, stop
        Probability by grade.
    stop_requires_click
        The papers' rule. False allows stopping at every examined document, as the code behind the published curves of
        PDGD and PairRank does: a navigational user then examines about 3.4 of 10 documents instead of 7.

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
        """Return a user of the papers, with the smallest table that covers the data's grades."""
        tables = TABLES[name]
        fitting = [top for top in sorted(tables) if top >= highest_grade]
        if not fitting:
            raise InvalidParameter(
                f"user {name!r} knows grades up to {max(tables)}, but the data has grade {highest_grade}; "
                "map its grades to 0-4 or give click and stop probabilities"
            )
        return cls(*tables[fitting[0]], stop_requires_click)

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """Return the clicks on a ranking whose documents have these grades."""
        try:
            clicks = dependent_clicks(grades, *self.tables, rng.random((2, grades.size)), self.stop_requires_click)
        except IndexError:
            raise InvalidInput(f"grades {grades.tolist()}; this user knows 0 to {len(self.click) - 1}") from None
        return Feedback("clicks", clicks)


@dataclass(frozen=True, eq=False)
class GradedUser:
    """A user of a click model whose attraction depends on grades.

    Examples
    --------
    >>> table = DependentClickUser.named("perfect", highest_grade=1)
    >>> someone = GradedUser.cascade(table)
    >>> someone.react(np.array([0, 1, 1]), np.random.default_rng(0)).values
    array([0., 1., 0.])
    """

    chances: ClickParameters  # documents are grades

    stop_requires_click = None  # not a rule of these users

    @classmethod
    def cascade(cls, table: DependentClickUser) -> GradedUser:
        """Leaves after the first click."""
        click = np.array(table.click)
        return cls(ClickParameters(CASCADE, click, np.zeros_like(click), ONE, 1.0, TABLE))

    @classmethod
    def position_based(cls, table: DependentClickUser, eta: float) -> GradedUser:
        """Examines rank k with probability (1/k)^eta."""
        require_number("eta", eta, 0)
        examination = np.arange(1.0, RANKS + 1.0)[:, None] ** -eta
        return cls(ClickParameters(POSITION, np.array(table.click), ONE, ONE, 1.0, examination))

    @classmethod
    def dynamic_bayesian(cls, table: DependentClickUser, gamma: float) -> GradedUser:
        """Is satisfied by a click with the table's stop probability, and otherwise continues with probability gamma."""
        require_number("gamma", gamma, 0)
        require(gamma <= 1, "gamma", gamma, "must be at most 1")
        click, satisfied = np.array(table.click), np.array(table.stop)
        return cls(ClickParameters(CHAIN, click, gamma * (1.0 - satisfied), ONE, float(gamma), TABLE))

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """Return the clicks on a ranking whose documents have these grades."""
        highest = len(self.chances.attraction) - 1
        if grades.size and not 0 <= grades.min() <= grades.max() <= highest:
            raise InvalidInput(f"grades {grades.tolist()}; this user knows 0 to {highest}")
        clicks = np.empty(grades.size)
        react(self.chances, grades.astype(np.int64), rng.random((2, grades.size)), clicks)
        return Feedback("clicks", clicks)


@dataclass(frozen=True)
class Grader:
    """Grades the first `top` results of a list, all of them if it is 0.

    For learners of clicks, it clicks on what has a grade above 0 among the first `top`.

    Examples
    --------
    >>> Grader(top=2).react(np.array([3, 0, 1]), np.random.default_rng(0)).values
    array([3., 0.])
    >>> Grader(top=2, kind="clicks").react(np.array([3, 0, 1]), np.random.default_rng(0)).values
    array([1., 0.])
    """

    top: int = 0
    kind: FeedbackKind = "grades"
    stop_requires_click: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        if self.top < 0:
            raise InvalidParameter(f"top is {self.top}; it must be at least 0 (0: all)")

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:  # noqa: ARG002
        """Return the grades of the first results, or the clicks."""
        seen = np.asarray(grades[: self.top or None], dtype=np.float64)
        return Feedback(self.kind, seen if self.kind == "grades" else (seen > 0).astype(np.float64))


@dataclass(frozen=True)
class FittedUser:
    """A user of a model fitted to a log, who sees queries and items instead of grades."""

    model: ClickModel
    source: str

    stop_requires_click = None

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:  # noqa: ARG002
        """Raise an error: grades alone are not enough."""
        raise InvalidInput(f"user {self.source!r} needs queries and items, which this caller does not provide")

    def react_to(self, query: str, items: Array, rng: np.random.Generator) -> Feedback:
        """Return the clicks on items of a query; unseen items have the mean attraction."""
        pairs = self.model.pairs
        at = int(np.searchsorted(pairs.queries, query))
        if at == len(pairs.queries) or pairs.queries[at] != query:
            raise InvalidInput(
                f"{self.source} has no query {query!r}; a fitted user needs data whose queries and items "
                f"are those of its log, which has {', '.join(map(repr, pairs.queries[:3].tolist()))}, …"
            )
        return self.model.react(query, items, rng)


# option beside `table`, its default, and constructor
GRADED: dict[str, tuple[str, float, Callable[[DependentClickUser, float], GradedUser]]] = {
    "cascade": ("", 0.0, lambda table, _: GradedUser.cascade(table)),
    "pbm": ("eta", 1.0, GradedUser.position_based),
    "dbn": ("gamma", 0.9, GradedUser.dynamic_bayesian),
}
_TABLES = ("navigational", *(name for name in TABLES if name != "navigational"))  # the first is the default


def open_user(
    spec: str, highest_grade: int, kind: FeedbackKind = "clicks"
) -> DependentClickUser | GradedUser | FittedUser | Grader:
    """Return the user of a spec, for data of that highest grade and a learner of that kind of feedback.

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
        only(options, ("top",), f"user {GRADER!r}")
        return Grader(integer(options, "top", 0), kind)
    if kind == "grades":
        raise InvalidParameter(
            f"user {name!r} clicks, but this learner needs grades; take user {GRADER} or {GRADER}?top=2"
        )
    if name.startswith(FITTED):
        only(options, (), f"user {name!r}")
        return FittedUser(load(name.removeprefix(FITTED)), name)
    if name in GRADED:
        return _graded(name, options, highest_grade)
    only(options, ("stop_requires_click",), f"user {name!r}")
    return DependentClickUser.named(
        name, highest_grade, stop_requires_click=flag(options, "stop_requires_click", default=True)
    )


def _graded(name: str, options: Mapping[str, str], highest_grade: int) -> GradedUser:
    """Return a user of a click model for data with grades.

    >>> _graded("pbm", {"eta": "2", "table": "perfect"}, 2).chances.examination[:3, 0].round(3).tolist()
    [1.0, 0.25, 0.111]
    """
    option, default, make = GRADED[name]
    only(options, tuple(filter(None, ("table", option))), f"user {name!r}")
    table = DependentClickUser.named(choice(options, "table", _TABLES), highest_grade)
    return make(table, number(options, option, default))
