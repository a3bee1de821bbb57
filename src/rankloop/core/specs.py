"""Short texts that name a thing and its options: `name?key=value&key=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankloop.core.errors import InvalidParameter, UnknownName


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """The name and the options, all still text.

    >>> parse_spec("synthetic:mslr?queries=500&seed=3")
    ('synthetic:mslr', {'queries': '500', 'seed': '3'})
    """
    name, _, rest = text.partition("?")
    options: dict[str, str] = {}
    for item in filter(None, rest.split("&")):
        key, equals, value = item.partition("=")
        if not (key and equals and value):
            raise InvalidParameter(f"{item!r} in {text!r} is not key=value; write name?key=value&key=value")
        if key in options:
            raise InvalidParameter(f"{key!r} stands twice in {text!r}; give each option once")
        options[key] = value
    if not name:
        raise InvalidParameter(f"{text!r} has no name; write name?key=value&key=value")
    return name, options


def only(options: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Refuse options that `what` does not have.

    >>> only({"quries": "9"}, ["queries", "seed"], "synthetic:mslr")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidParameter: synthetic:mslr has no option 'quries'; it has queries, seed
    """
    names = list(known)
    for key in options:
        if key not in names:
            raise InvalidParameter(f"{what} has no option {key!r}; it has {', '.join(names) or 'none'}")


def integer(options: Mapping[str, str], key: str, default: int, at_least: int = 0) -> int:
    """Option `key` as a whole number."""
    text = options.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= at_least):
        raise InvalidParameter(f"{key} is {text!r}; it must be a whole number of at least {at_least}")
    return int(text)


def choice(options: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Option `key`, one of `choices`; the first of them if it is not given."""
    text = options.get(key, choices[0])
    if text not in choices:
        raise InvalidParameter(f"{key} is {text!r}; it must be one of {', '.join(choices)}")
    return text


def number(options: Mapping[str, str], key: str, default: float) -> float:
    """Option `key` as a number."""
    try:
        return float(options.get(key, default))
    except ValueError:
        raise InvalidParameter(f"{key} is {options[key]!r}; it must be a number") from None


def flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    """Option `key` as true or false."""
    text = options.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidParameter(f"{key} is {options[key]!r}; it must be true or false")
    return text == "true"


def known_name(name: str, known: Iterable[str], noun: str) -> None:
    """Refuse a name that is not known."""
    names = list(known)
    if name not in names:
        raise UnknownName.among(noun, name, names)
