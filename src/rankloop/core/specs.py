"""Parse short texts: `name?key=value&key=value`, durations and timestamps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from rankloop.core.errors import InvalidParameter, UnknownName

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d{1,9})\s*(?:s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)")
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """Split a spec into its name and its options, all text.

    >>> parse_spec("synthetic:mslr?queries=500&seed=3")
    ('synthetic:mslr', {'queries': '500', 'seed': '3'})
    """
    name, _, rest = text.partition("?")
    if not name:
        raise InvalidParameter(f"{text!r} has no name; write name?key=value&key=value")
    return name, key_values(filter(None, rest.split("&")), text)


def key_values(items: Iterable[str], text: str) -> dict[str, str]:
    """Split `key=value` items of `text`."""
    options: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals and value):
            raise InvalidParameter(f"{item!r} in {text!r} is not key=value; write name?key=value&key=value")
        if key in options:
            raise InvalidParameter(f"{key!r} is given twice in {text!r}; give each option once")
        options[key] = value
    return options


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
    """Return option `key` as a whole number."""
    text = options.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= at_least):
        raise InvalidParameter(f"{key} is {text!r}; it must be a whole number of at least {at_least}")
    return int(text)


def choice(options: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Return option `key`, one of `choices`; the first of them if it is not given."""
    text = options.get(key, choices[0])
    if text not in choices:
        raise InvalidParameter(f"{key} is {text!r}; it must be one of {', '.join(choices)}")
    return text


def number(options: Mapping[str, str], key: str, default: float) -> float:
    """Return option `key` as a number."""
    try:
        return float(options.get(key, default))
    except ValueError:
        raise InvalidParameter(f"{key} is {options[key]!r}; it must be a number") from None


def flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    """Return option `key` as true or false."""
    text = options.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidParameter(f"{key} is {options[key]!r}; it must be true or false")
    return text == "true"


def known_name(name: str, known: Iterable[str], noun: str) -> None:
    """Refuse a name that is not known."""
    names = list(known)
    if name not in names:
        raise UnknownName.among(noun, name, names)


def duration_seconds(text: object) -> float | None:
    """Return the seconds of a duration such as `90m`, `7 days` or ISO 8601's `PT10M`; None if it is not one.

    >>> duration_seconds("90m"), duration_seconds("7 days"), duration_seconds("P1DT2H"), duration_seconds("soon")
    (5400.0, 604800.0, 93600.0, None)
    """
    given = text.strip() if isinstance(text, str) else ""
    if (found := _DURATION.fullmatch(given)) is not None:
        unit = given[found.end(1) :].strip()[0]
        return int(found[1]) * _SECONDS[unit]
    iso = _ISO_DURATION.fullmatch(given)
    if iso is None or not any(iso.groups()):
        return None
    return sum(float(part or 0) * _SECONDS[unit] for part, unit in zip(iso.groups(), "dhms", strict=True))


def timestamp_seconds(text: str) -> float | None:
    """Return the Unix time of a date and time with its zone (RFC 3339); None of anything else.

    >>> timestamp_seconds("1970-01-01T01:00:00+01:00"), timestamp_seconds("yesterday")
    (0.0, None)
    """
    if _RFC_3339.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except ValueError:  # such as 31 February
        return None
