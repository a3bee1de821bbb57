"""Learners, users and worlds of other packages: by entry point, or as `my.module:Mine`.

A package names them in its metadata (groups `rankloop.learners`, `rankloop.users`, `rankloop.worlds`):

    [project.entry-points."rankloop.learners"]
    mine = "my_package.mine:Mine"

Importing a module runs it, so saved files and requests may only name installed entry points, modules that are already
imported, and places that the environment allows (`RANKLOOP_ALLOW=my.module:Mine,other:Thing`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any

from rankloop.core.errors import InvalidParameter, UnknownName

LEARNERS, USERS, WORLDS = "rankloop.learners", "rankloop.users", "rankloop.worlds"
ALLOW = "RANKLOOP_ALLOW"
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_found: dict[tuple[str, tuple[str, ...]], dict[str, EntryPoint]] = {}


def installed(group: str) -> dict[str, EntryPoint]:
    """Return all entry points of a group, by name.

    >>> installed("rankloop.shoes")
    {}
    """
    key = group, tuple(sys.path)  # cached, since reading metadata takes milliseconds
    if key not in _found:
        _found[key] = {point.name: point for point in entry_points(group=group)}
    return _found[key]


def is_place(name: str) -> bool:
    """Whether a name is a place, `module:Class`.

    >>> [is_place(name) for name in ("my.module:Mine", "pairrank", "synthetic:mslr?queries=3", "fitted:a/b.json")]
    [True, False, False, False]
    """
    return _PLACE.fullmatch(name) is not None


def place_of(group: str, name: str) -> str | None:
    """Return the place of an entry point, or the name itself if it is a place; else None."""
    point = installed(group).get(name)
    if point is not None:
        return point.value
    return name if is_place(name) else None


def package_of(group: str, name: str) -> str | None:
    """Return the package of an entry point."""
    point = installed(group).get(name)
    return None if point is None or point.dist is None else point.dist.name


def find(place: str, noun: str) -> Any:
    """Import `module:Class`."""
    module, _, name = place.partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists and lacks another one
        raise UnknownName(
            f"{noun} {place!r}: there is no module {error.name!r}; install its package, or put its folder on PYTHONPATH"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UnknownName(f"{noun} {place!r}: module {module!r} has no {name!r}; write module:Class")
        found = getattr(found, part)
    return found


def allowed(place: str, more: Iterable[str] = ()) -> bool:
    """Whether a file or a request may use `module:Class`."""
    permitted = {part.strip() for part in os.environ.get(ALLOW, "").split(",")}
    return place.partition(":")[0] in sys.modules or place in permitted or place in set(more)


def text_options(options: dict[str, str]) -> dict[str, Any]:
    """Convert options of a user or world: numbers, true and false, else text.

    >>> text_options({"rate": ".5", "size": "3", "loud": "true", "kind": "plain"})
    {'rate': 0.5, 'size': 3, 'loud': True, 'kind': 'plain'}
    """
    return {name: _value(text) for name, text in options.items()}


def made(maker: Any, what: str, *arguments: Any, **options: Any) -> Any:
    """Call `maker`, with a clear error for options that it does not take."""
    try:
        signature(maker).bind(*arguments, **options)
    except TypeError as error:
        raise InvalidParameter(f"{what} with {options}: {error}") from None
    return maker(*arguments, **options)


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
