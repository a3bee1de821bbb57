"""The contract of a learner, as checks that anyone can run: `rankloop check NAME`, or `check_learner(factory)`.

A check is a function of a factory that makes a fresh learner; its docstring is the rule, and it raises
`AssertionError` where the rule is broken. Third parties run them on their own learners.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankloop.checks import adoption, propensity  # noqa: F401  (their rules join CHECKS)
from rankloop.checks.rules import CHECKS, Check, beats_random
from rankloop.checks.world import Factory

__all__ = ["CHECKS", "Check", "Factory", "Outcome", "beats_random", "check_learner"]


class Outcome(NamedTuple):
    """What a check said: its name, its rule, and what is wrong (None: nothing)."""

    name: str
    rule: str
    error: str | None


def check_learner(factory: Factory, *, learns: bool = True) -> Iterator[Outcome]:
    """Run every check on the learner that `factory` makes; `learns=False` leaves out that it beats random."""
    for check in CHECKS:
        if check is beats_random and not learns:
            continue
        try:
            check(factory)
            error: str | None = None
        except AssertionError as broken:
            error = str(broken)
        except Exception as broken:  # a learner that falls over breaks the rule it was asked to keep
            error = f"{type(broken).__name__}: {broken}"
        yield Outcome(check.__name__, (check.__doc__ or "").strip(), error)
