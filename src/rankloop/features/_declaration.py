"""What all declarations of features have in common: a name, columns, sources, and errors that say what was meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from rankloop.core.errors import InvalidParameter

Scope = Literal["item", "user", "request"]
SCOPES: tuple[str, ...] = get_args(Scope)
_SPAN = re.compile(r"(\d{1,6})(m|h|d|w)")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def span(text: str) -> float:
    """Seconds of a span of time as declarations write it: minutes, hours, days or weeks; `all` has no end.

    >>> span("90m"), span("7d"), span("all")
    (5400.0, 604800.0, inf)
    """
    found = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if text == "all":
        return float("inf")
    if found is None or int(found[1]) == 0:
        raise InvalidParameter(f"{text!r} is no span of time; write 90m, 12h, 7d, 4w, or all")
    return int(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True)
class Declaration:
    """What all kinds have: a name, by which the ranker's weights, explanations and exports call it."""

    name: str
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= 128:
            raise InvalidParameter(f"a feature is called {self.name!r:.140}; names have 1 to 128 characters")
        self.check()

    def check(self) -> None:
        """Refuse what the kind does not take."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes, in order."""
        return (self.name,)

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.columns)

    def column(self, j: int) -> str:
        """The name of one of them."""
        return self.columns[j]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads of items, users and requests."""
        return ()

    def refuse(self, field: str, rule: str) -> InvalidParameter:
        """The error for a field of this declaration."""
        value = getattr(self, field)
        return InvalidParameter(f"feature {self.name!r}: {field} is {value!r}; it {rule}")

    def require_source(self, field: str, scopes: Sequence[str] = SCOPES) -> None:
        """Refuse a field that does not say what to read."""
        value = getattr(self, field)
        scope, dot, rest = value.partition(".") if isinstance(value, str) else ("", "", "")
        if value == "query" and "query" in scopes:
            return
        if scope not in scopes or not dot or not rest:
            told = " or ".join("query" if scope == "query" else f"{scope}.FIELD" for scope in scopes)
            raise self.refuse(field, f"must be {told}")

    def require_default(self, value: float | str) -> None:
        """Refuse a default that is neither a number nor the list's mean."""
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100
        if value != "mean" and not number:
            raise self.refuse("default", "must be a finite number, or mean: that of the list's other items")

    def require_choice(self, field: str, choices: Sequence[str]) -> None:
        """Refuse anything but one of the choices."""
        if getattr(self, field) not in choices:
            raise self.refuse(field, f"must be one of {', '.join(choices)}")

    def require_flag(self, field: str) -> None:
        """Refuse anything but true and false."""
        if not isinstance(getattr(self, field), bool):
            raise self.refuse(field, "must be true or false")

    def require_span(self, field: str, endless: bool = True) -> None:
        """Refuse what is no span of time."""
        try:
            if span(getattr(self, field)) == float("inf") and not endless:
                raise InvalidParameter
        except InvalidParameter:
            raise self.refuse(field, "must be a span of time: 90m, 12h, 7d, 4w" + endless * ", or all") from None
