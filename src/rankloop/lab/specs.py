"""The small language in which data sets, users and delays are named: `name?option=value&option=value`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rankloop.errors import InvalidParameter, UnknownName


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """Name and options of a spec, as they are written.

    >>> parse_spec("synthetic:mslr?queries=100&seed=3")
    ('synthetic:mslr', {'queries': '100', 'seed': '3'})
    """
    name, _, tail = text.partition("?")
    options: dict[str, str] = {}
    for part in filter(None, tail.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise InvalidParameter(f"{part!r} in {text!r} is not of the form option=value")
        if key in options:
            raise InvalidParameter(f"option {key!r} stands twice in {text!r}; give it once")
        options[key] = value
    return name, options


class Options:
    """The options of one spec, taken one by one with their types; what nobody took is an error.

    >>> options = Options("perfect?stop_requires_click=no", "user")
    >>> options.name_in(("perfect", "navigational")), options.flag("stop_requires_click", default=True)
    ('perfect', False)
    >>> options.done()
    >>> Options("prefect", "user").name_in(("perfect", "navigational"))
    Traceback (most recent call last):
    ...
    rankloop.errors.UnknownName: no user is called 'prefect'; did you mean 'perfect'? there are perfect, navigational
    """

    def __init__(self, text: str, noun: str) -> None:
        self.text, self.noun = text, noun
        self.name, self._left = parse_spec(text)
        self._asked: list[str] = []

    def name_in(self, known: Iterable[str]) -> str:
        """The name, which must be a known one."""
        names = list(known)
        if self.name not in names:
            close = difflib.get_close_matches(self.name, names, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UnknownName(f"no {self.noun} is called {self.name!r}; {hint}there are {', '.join(names)}")
        return self.name

    def word(self, key: str, *, default: str, choices: Iterable[str]) -> str:
        """An option that is one of some words."""
        value, words = self._take(key), list(choices)
        if value is None:
            return default
        if value not in words:
            raise self._bad(key, value, f"must be one of {', '.join(words)}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """An option that is on or off."""
        value = self._take(key)
        if value is None:
            return default
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise self._bad(key, value, "must be true or false")
        return value.lower() in ("true", "yes", "1")

    def whole(self, key: str, *, default: int, least: int = 0) -> int:
        """An option that is a whole number of at least `least`."""
        value = self._take(key)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < least:
            raise self._bad(key, value, f"must be a whole number of at least {least}")
        return int(value)

    def number(self, key: str, *, default: float) -> float:
        """An option that is a number."""
        value = self._take(key)
        if value is None:
            return default
        try:
            return float(value)
        except ValueError:
            raise self._bad(key, value, "must be a number") from None

    def done(self) -> None:
        """Refuse options that nobody asked for."""
        for key in self._left:
            takes = ", ".join(self._asked) or "none"
            raise InvalidParameter(f"{self.noun} {self.name!r} has no option {key!r}; it takes {takes}")

    def _take(self, key: str) -> str | None:
        self._asked.append(key)
        return self._left.pop(key, None)

    def _bad(self, key: str, value: str, rule: str) -> InvalidParameter:
        return InvalidParameter(f"{key} is {value!r} in {self.text!r}; it {rule}")
