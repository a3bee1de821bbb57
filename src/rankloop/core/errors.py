"""Errors and warnings. All are `RankloopError`; those about values are also `ValueError`."""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Iterable

MOST_COMPARED = 20  # names to compare with an unknown one
MOST_LISTED = 100  # names to list in a message


class RankloopError(Exception):
    """Base class of all errors of rankloop."""


class InvalidInput(RankloopError, ValueError):
    """Invalid candidates, feedback or impression."""


class InvalidParameter(RankloopError, ValueError):
    """An invalid parameter of a learner, user, world or data set."""


class UnknownName(RankloopError, LookupError):
    """An unknown name; the message lists the known ones."""

    @classmethod
    def among(cls, noun: str, name: str, known: Iterable[str]) -> UnknownName:
        """Return the error for a `noun` called `name` that is not among the `known` ones.

        >>> str(UnknownName.among("user", "prefect", ["perfect", "navigational"]))
        "no user is called 'prefect'; did you mean 'perfect'? there are perfect, navigational"
        """
        names = list(known)
        close = closest(name, names)
        hint = "" if close is None else f"did you mean {close!r}? "
        more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
        return cls(f"no {noun} is called {name!r}; {hint}there are {', '.join(names[:MOST_LISTED])}{more}")


def closest(name: str, names: list[str]) -> str | None:
    """Return the name that `name` is probably a misspelling of.

    >>> closest("prize", ["brand", "price"]), closest("prize", ["brand"])
    ('price', None)
    """
    return next(iter(difflib.get_close_matches(name, _neighbors(name, names), 1)), None)


def _neighbors(name: str, names: list[str]) -> list[str]:
    """Return all names if they are few, else those with the longest common prefix, since comparisons are slow."""
    if len(names) <= MOST_COMPARED:
        return names
    ordered = sorted(names)
    place = bisect.bisect(ordered, name)
    return ordered[max(0, place - MOST_COMPARED // 2) : place + MOST_COMPARED // 2]


class MissingExtra(RankloopError, ImportError):
    """A library that an optional feature needs is not installed.

    >>> str(MissingExtra("network 'mine'", "PyTorch", "neural"))
    "network 'mine' needs PyTorch, which is not installed: pip install 'rankloop[neural]'"
    """

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install 'rankloop[{extra}]'")


class Diverged(RankloopError, ArithmeticError):
    """Learning diverged: a loss or weight is not finite. The state before is kept."""


class DataError(RankloopError, ValueError):
    """A data file that cannot be read."""


class CodecError(RankloopError, ValueError):
    """Bytes that are not a valid rankloop file of a known version."""


class RankloopWarning(UserWarning):
    """Something that works, but probably not as intended."""
