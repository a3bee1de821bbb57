"""The learner contract as checks: `rankloop check NAME`, or `check_learner(factory)` in a test.

    def test_my_learner_keeps_the_contract() -> None:
        check_learner(lambda: MyLearner(rate=0.1))

`CHECKS` lists them, for `@pytest.mark.parametrize("check", CHECKS)`. A check takes a function that makes a fresh
learner, states its rule in its docstring, and raises `AssertionError` where the rule is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankloop.checks.contract import CHECKS, Check, beats_random
from rankloop.checks.helpers import Factory

__all__ = [
    "CHECKS",
    "BrokenContract",
    "Check",
    "CheckResult",
    "Factory",
    "beats_random",
    "check_learner",
    "yield_checks",
]


class CheckResult(NamedTuple):
    """The result of a check: its name, its rule, and what is wrong, if anything."""

    name: str
    rule: str
    error: str | None


class BrokenContract(AssertionError):
    """A learner that breaks rules of the contract: which, and how."""

    def __init__(self, failures: list[CheckResult]) -> None:
        lines = "\n".join(f"- {one.name}: {one.error}\n  rule: {one.rule}" for one in failures)
        super().__init__(f"{len(failures)} rules of the contract are broken:\n{lines}")
        self.failures = failures


def check_learner(factory: Factory, *, learns: bool = True) -> None:
    """Run every check on the learner that `factory` makes; raises `BrokenContract` with everything that is wrong.

    Parameters
    ----------
    factory
        Makes a fresh learner, each time the same: a class, or `lambda: MyLearner(rate=0.1)`.
    learns
        False leaves out `beats_random`, for a learner that only sets a reference.

    Examples
    --------
    >>> class Wrong:
    ...     pass
    >>> check_learner(Wrong)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    rankloop.checks.BrokenContract: 28 rules of the contract are broken: …
    """
    failures = [outcome for outcome in yield_checks(factory, learns=learns) if outcome.error is not None]
    if failures:
        raise BrokenContract(failures)


def yield_checks(factory: Factory, *, learns: bool = True) -> Iterator[CheckResult]:
    """Run the checks of `check_learner` in turn and yield each result."""
    for check in CHECKS:
        if check is beats_random and not learns:
            continue
        try:
            check(factory)
            error: str | None = None
        except AssertionError as broken:
            error = str(broken)
        except Exception as broken:
            error = f"{type(broken).__name__}: {broken}"
        yield CheckResult(check.__name__, (check.__doc__ or "").strip(), error)
