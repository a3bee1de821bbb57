"""What can go wrong, by who can mend it.

Every message names the value, the rule it breaks and what to do about it. All of them are `RankloopError`, so one
`except` catches what rankloop says and nothing else; those about values are also `ValueError`.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Iterable

MOST_COMPARED = 20  # names that an unknown one is compared with
MOST_LISTED = 100  # names that a message lists


class RankloopError(Exception):
    """The root of everything rankloop raises on purpose."""


class InvalidInput(RankloopError, ValueError):
    """A list of candidates, a feedback or an impression that breaks a rule."""


class InvalidParameter(RankloopError, ValueError):
    """A learner, user, world or data set was asked for with a value it does not take."""


class UnknownName(RankloopError, LookupError):
    """No learner, user or data set has that name. The message lists the ones there are."""

    @classmethod
    def among(cls, noun: str, name: str, known: Iterable[str]) -> UnknownName:
        """The error for a `noun` called `name` that is none of the `known` ones.

        >>> str(UnknownName.among("user", "prefect", ["perfect", "navigational"]))
        "no user is called 'prefect'; did you mean 'perfect'? there are perfect, navigational"
        """
        names = list(known)
        close = closest(name, names)
        hint = "" if close is None else f"did you mean {close!r}? "
        more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
        return cls(f"no {noun} is called {name!r}; {hint}there are {', '.join(names[:MOST_LISTED])}{more}")


def closest(name: str, names: list[str]) -> str | None:
    """The name that `name` is probably a misspelling of.

    >>> closest("prize", ["brand", "price"]), closest("prize", ["brand"])
    ('price', None)
    """
    return next(iter(difflib.get_close_matches(name, _neighbors(name, names), 1)), None)


def _neighbors(name: str, names: list[str]) -> list[str]:
    """All names if they are few, else those that share the longest beginning: comparing one takes some 50 µs."""
    if len(names) <= MOST_COMPARED:
        return names
    ordered = sorted(names)
    place = bisect.bisect(ordered, name)
    return ordered[max(0, place - MOST_COMPARED // 2) : place + MOST_COMPARED // 2]


class MissingExtra(RankloopError, ImportError):
    """Something was asked for that needs a library which is not installed.

    >>> str(MissingExtra("network 'mine'", "PyTorch", "neural"))
    "network 'mine' needs PyTorch, which is not installed: pip install 'rankloop[neural]'"
    """

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install 'rankloop[{extra}]'")


class Diverged(RankloopError, ArithmeticError):
    """Learning ran away: a loss or a weight is no longer a usable number. What was learned before it is kept."""


class DataError(RankloopError, ValueError):
    """A data file that cannot be read; the message has the file and, where there is one, the line number."""


class CodecError(RankloopError, ValueError):
    """Bytes that are not a whole, undamaged rankloop file of a version this release reads."""


class RankloopWarning(UserWarning):
    """Something that works, but hardly as it was meant; the message says what to do about it."""
