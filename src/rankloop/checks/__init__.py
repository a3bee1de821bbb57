"""The contract of a learner, as checks that anyone can run: `rankloop check NAME`, or `check_learner(factory)`.

A check is a function of a factory that makes a fresh learner; its docstring is the rule, and it raises
`AssertionError` where the rule is broken. Third parties run them on their own learners, all at once in a test:

    def test_mine_keeps_the_contract() -> None:
        check_learner(lambda: Mine(rate=0.1))

or one by one: `@pytest.mark.parametrize("check", CHECKS)`, each called with the factory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankloop.checks import adoption, propensity, sparse_rows  # noqa: F401  (their rules join CHECKS)
from rankloop.checks.rules import CHECKS, Check, beats_random
from rankloop.checks.world import Factory

__all__ = ["CHECKS", "BrokenContract", "Check", "Factory", "Outcome", "beats_random", "check_learner", "yield_checks"]


class Outcome(NamedTuple):
    """What a check said: its name, its rule, and what is wrong (None: nothing)."""

    name: str
    rule: str
    error: str | None


class BrokenContract(AssertionError):
    """A learner that breaks rules of the contract: which, and how."""

    def __init__(self, failures: list[Outcome]) -> None:
        told = "\n".join(f"- {one.name}: {one.error}\n  rule: {one.rule}" for one in failures)
        super().__init__(f"{len(failures)} rules of the contract are broken:\n{told}")
        self.failures = failures


def check_learner(factory: Factory, *, learns: bool = True) -> None:
    """Run every check on the learner that `factory` makes; raises `BrokenContract` with all that is wrong.

    Parameters
    ----------
    factory
        Makes a fresh learner, each time the same: a class, or `lambda: Mine(rate=0.1)`.
    learns
        False leaves out that it beats random: for a learner that only sets a mark to compare with.

    Examples
    --------
    >>> class Wrong:
    ...     pass
    >>> check_learner(Wrong)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    rankloop.checks.BrokenContract: 20 rules of the contract are broken: …
    """
    failures = [outcome for outcome in yield_checks(factory, learns=learns) if outcome.error is not None]
    if failures:
        raise BrokenContract(failures)


def yield_checks(factory: Factory, *, learns: bool = True) -> Iterator[Outcome]:
    """Every check in turn, as `check_learner` runs them: what each said, as soon as it is known."""
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
