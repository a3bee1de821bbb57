"""Claims of papers as data, and the one rule by which runs decide whether they are supported.

A claim comes down to comparisons: in each setting (data set and user) a contrast of runs of the same seed, estimated
with its standard error and held against bounds. `RULE` describes `verdict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Literal, NamedTuple, Protocol

import numpy as np

from rankloop.evaluation.statistics import Estimate, holm
from rankloop.lab.plots.cells import END, LOG2, Cell, Reading, Results, Unit, Values, estimate
from rankloop.lab.plots.figures import short_names, title_of
from rankloop.lab.plots.report import ClaimResult, Verdict

LEVEL = 0.05
RULE = (
    "Differences are between runs of the same seed, which have the same queries; ± is one standard error over seeds, "
    "or over clusters where runs share a query or a fold. Each comparison (a data set, a user and, where two are "
    "compared, a pair of learners) is a one-sided t test at 5 %; it holds significantly, fails significantly, or "
    "neither. A claim is supported if more than half of its comparisons hold and none fails, both after Holm's "
    "correction. Where the paper says all, always or comparable, every comparison must hold, each at 5 %; where it "
    "says may or several, one is enough. It is refuted if a comparison fails after Holm's correction (of may and "
    "several: if all fail). Else it is undecided, which with one seed it always is."
)
Needed = Literal["most", "all", "any"]
Names = str | tuple[str, ...]  # one, or several


class Claim(Protocol):
    """A claim of a paper."""

    @property
    def text(self) -> str:
        """The claim, in words."""

    def check(self, results: Results) -> ClaimResult:
        """Compare it with results."""


class Comparison(NamedTuple):
    """A number that the claim wants between two bounds."""

    what: str
    setting: str
    found: Estimate
    above: float
    below: float

    @property
    def holds(self) -> float:
        """p-value of its being outside the bounds, or on one: small if it is significantly between them."""
        return max(p for p in self._p(self.found.p_above, self.found.p_below))

    @property
    def fails(self) -> float:
        """p-value of its being between the bounds: small if it is significantly outside."""
        tails = self._p(self.found.p_below, self.found.p_above)
        return min(1.0, len(tails) * min(tails))

    def _p(self, low: Callable[[float], float], high: Callable[[float], float]) -> list[float]:
        sides = [(low, self.above), (high, self.below)]
        found = [p(bound) for p, bound in sides if np.isfinite(bound)]
        return [1.0 if np.isnan(p) else p for p in found]  # one run has no error

    def __str__(self) -> str:
        error = f" ± {self.found.error:.2g}" if np.isfinite(self.found.error) else ""
        return f"{self.found.value:+.3g}{error} ({', '.join(filter(None, (self.what, self.setting)))})"


def verdict(comparisons: Sequence[Comparison], needed: Needed = "most") -> tuple[Verdict, int, int]:
    """The verdict, and how many comparisons hold and fail significantly; `RULE` in code.

    >>> clear, unclear = Estimate(1.0, 0.1, 4, 5), Estimate(0.1, 0.1, 4, 5)
    >>> found = (clear, unclear, clear._replace(value=-1.0))
    >>> [verdict([Comparison("", "", one, 0.0, np.inf)])[0] for one in found]
    ['supported', 'undecided', 'refuted']
    """
    if not comparisons:
        return "not tested", 0, 0
    single = [c.holds < LEVEL for c in comparisons]
    held = single if needed == "all" else list(holm([c.holds for c in comparisons]) < LEVEL)
    fails = [c.fails for c in comparisons]
    failed = [p < LEVEL for p in fails] if needed == "any" else list(holm(fails) < LEVEL)
    good, bad, n = int(sum(held)), int(sum(failed)), len(comparisons)
    if needed == "any":
        found: Verdict = "supported" if good else "refuted" if bad == n else "undecided"
        return found, good, bad
    enough = good == n if needed == "all" else 2 * good > n
    return ("refuted" if bad else "supported" if enough else "undecided"), good, bad


# -- contrasts -------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A learner's measure with its weight, for a user: the cell's own if none is named."""

    weight: float
    label: str
    measure: str
    user: str = ""


@dataclass(frozen=True)
class _Measured:
    """What the kinds below share: a measure of a part, where to look, and the bounds."""

    text: str
    where: str  # in the paper
    measure: str
    _: KW_ONLY
    part: str = "main"
    users: Names = ()  # all, if none is named
    reading: Reading = END
    above: float = 0.0
    below: float = np.inf
    needed: Needed = "most"
    pooled: bool = False  # over the data sets, which are then clusters


@dataclass(frozen=True)
class _Compared(_Measured, ABC):
    """A claim that comes down to comparisons."""

    def check(self, results: Results) -> ClaimResult:
        """Apply the rule to every comparison."""
        found = list(self.comparisons(results))
        outcome, held, failed = verdict(found, self.needed)
        if not found:
            return ClaimResult(self.text, "no run of this report measures it", outcome, self.where)
        least, most = (pick(found, key=lambda c: c.found.value) for pick in (min, max))
        ends = f"{least}" if len(found) == 1 else f"from {least} to {most}"
        what = f"{title_of(self.measure)}{self.reading.name}{self._bounds()}"
        finding = f"{what}: {ends}; holds significantly in {held}, fails significantly in {failed} of {len(found)}"
        return ClaimResult(self.text, finding, outcome, self.where)

    @abstractmethod
    def comparisons(self, results: Results) -> Iterator[Comparison]:
        """What the rule is applied to."""

    def _bounds(self) -> str:
        if (self.above, self.below) == (0.0, np.inf):
            return ""
        low, high = np.isfinite(self.above), np.isfinite(self.below)
        between = f"between {self.above:.3g} and {self.below:.3g}"
        return f" ({between if low and high else f'above {self.above:.3g}' if low else f'below {self.below:.3g}'})"


@dataclass(frozen=True)
class _Contrasts(_Compared):
    """Comparisons that are sums of measures, in each cell."""

    def comparisons(self, results: Results) -> Iterator[Comparison]:
        """Every contrast in every cell that has runs of all its learners."""
        cells = results.cells(self.part, self.measure, _each(self.users), self.pooled)
        names = short_names(cell.data for cell in cells if cell.data)
        for cell in cells:
            for what, terms in self.contrasts(cell):
                values = self._values(results, cell, terms)
                if values:
                    setting = ", ".join(filter(None, (names.get(cell.data, ""), self._whose(cell))))
                    yield Comparison(what, setting, estimate(values), self.above, self.below)

    @abstractmethod
    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:
        """What is compared in a cell: how it is called, and its terms."""

    def _values(self, results: Results, cell: Cell, terms: Sequence[Term]) -> Values:
        of = [self._of(results, term, cell._replace(user=term.user or cell.user)) for term in terms]
        units: set[Unit] = set.intersection(*(set(values) for values in of)) if of else set()
        return {
            unit: sum(term.weight * values[unit] for term, values in zip(terms, of, strict=True))
            for unit in sorted(units)
        }

    def _of(self, results: Results, term: Term, cell: Cell) -> Values:
        return results.values(self.part, term.measure, term.label, cell, self.reading)

    def _whose(self, cell: Cell) -> str:
        return cell.user


@dataclass(frozen=True)
class Higher(_Contrasts):
    """Each of `high` is above each of `low`, or above `times` as much; relative: as a share of the lower one's mean.

    `matched`: the first of `high` is compared with the first of `low`, and so on.
    """

    high: Names
    low: Names
    _: KW_ONLY
    times: float = 1.0
    relative: bool = False
    matched: bool = False

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:  # noqa: ARG002
        """Pairs of learners."""
        often = f"{self.times:.3g} x " if self.times != 1 else ""
        both = _each(self.high), _each(self.low)
        for high, low in zip(*both, strict=True) if self.matched else product(*both):
            if high != low:
                yield f"{high} - {often}{low}", [Term(1.0, high, self.measure), Term(-self.times, low, self.measure)]

    def _values(self, results: Results, cell: Cell, terms: Sequence[Term]) -> Values:
        found = super()._values(results, cell, terms)
        if not self.relative or not found:
            return found
        base = self._of(results, terms[1], cell)
        level = float(np.mean([base[unit] for unit in found]))
        return {unit: value / level for unit, value in found.items()}


@dataclass(frozen=True)
class Within(Higher):
    """The same, where every difference must lie between the bounds."""

    _: KW_ONLY
    needed: Needed = "all"


@dataclass(frozen=True)
class Spread(Within):
    """Like `Within`, of how far runs lie from the middle one of their learner instead of their values."""

    def _of(self, results: Results, term: Term, cell: Cell) -> Values:
        found = super()._of(results, term, cell)
        middle = float(np.median(list(found.values()))) if found else 0.0
        return {unit: abs(value - middle) for unit, value in found.items()}


@dataclass(frozen=True)
class Level(_Contrasts):
    """A reading of each of `who` lies between the bounds."""

    who: Names
    _: KW_ONLY
    needed: Needed = "all"

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:  # noqa: ARG002
        """One learner each."""
        for label in _each(self.who):
            yield label, [Term(1.0, label, self.measure)]


@dataclass(frozen=True)
class Larger(_Contrasts):
    """One measure of a learner is larger than each of the others of the same runs."""

    than: Names
    who: str
    _: KW_ONLY
    needed: Needed = "all"

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:  # noqa: ARG002
        """Pairs of measures."""
        for other in _each(self.than):
            named = f"{title_of(self.measure)} - {title_of(other)}"
            yield named, [Term(1.0, self.who, self.measure), Term(-1.0, self.who, other)]


@dataclass(frozen=True)
class ForUser(_Contrasts):
    """A learner's measure is higher (`sign` 1) or lower (-1) for one user than for each of the others."""

    who: str
    user: str
    sign: float
    _: KW_ONLY
    needed: Needed = "all"

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:
        """The one user against the cell's."""
        if cell.user != self.user:
            terms = [Term(self.sign, self.who, self.measure, self.user), Term(-self.sign, self.who, self.measure)]
            pair = (self.user, cell.user) if self.sign > 0 else (cell.user, self.user)
            yield f"{pair[0]} - {pair[1]}", terms

    def _whose(self, cell: Cell) -> str:
        return self.who if cell.user else ""


@dataclass(frozen=True)
class Halfway(_Contrasts):
    """Each of `who` is nearer to `ceiling` than to `floor`: above the middle between the two."""

    who: Names
    floor: str
    ceiling: str
    _: KW_ONLY
    needed: Needed = "all"

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:  # noqa: ARG002
        """Against half of both."""
        for label in _each(self.who):
            half = [Term(-0.5, self.floor, self.measure), Term(-0.5, self.ceiling, self.measure)]
            yield f"{label} - half way", [Term(1.0, label, self.measure), *half]


@dataclass(frozen=True)
class Steps(_Contrasts):
    """From each of `who` to the next a measure is multiplied by 2 to a power between the bounds, on average."""

    who: tuple[str, ...]
    _: KW_ONLY
    reading: Reading = LOG2
    needed: Needed = "all"

    def contrasts(self, cell: Cell) -> Iterator[tuple[str, list[Term]]]:  # noqa: ARG002
        """The last against the first."""
        steps = len(self.who) - 1
        last, first = (Term(sign / steps, self.who[at], self.measure) for sign, at in ((1.0, -1), (-1.0, 0)))
        yield f"doublings a step, {self.who[0]} to {self.who[-1]}", [last, first]


@dataclass(frozen=True)
class Straight(_Compared):
    """A measure of `who` rises with another one of the same run, in a straight line, each data set at its own level.

    Two comparisons a user, both with data sets as clusters: the slope of each data set's own line must be above 0, and
    the curvature, as the share of the slope that it changes from one end of the range to the other, near 0.
    """

    against: str
    who: str
    _: KW_ONLY
    needed: Needed = "all"
    bend: float = 1.0  # the slope may be twice, or none of, its mean at the ends of the range

    def comparisons(self, results: Results) -> Iterator[Comparison]:
        """Slope and curvature."""
        for cell in results.cells(self.part, self.measure, _each(self.users), pooled=True):
            x, y = (results.values(self.part, name, self.who, cell) for name in (self.against, self.measure))
            slopes, bends = {}, {}
            for data in dict.fromkeys(cluster for cluster, _ in x):
                units = [unit for unit in x if unit[0] == data and unit in y]
                at, value = np.array([x[unit] for unit in units]), np.array([y[unit] for unit in units])
                if np.unique(at).size >= 4:
                    slopes[data, 0] = float(np.polyfit(at, value, 1)[0])
                    middle, half = (at.max() + at.min()) / 2, (at.max() - at.min()) / 2
                    bends[data, 0] = 2 * float(np.polyfit(at - middle, value, 2)[0]) * half
            if slopes:
                slope = estimate(slopes)
                yield Comparison("slope", cell.user, slope, 0.0, np.inf)
                share = {unit: value / abs(slope.value) for unit, value in bends.items()}
                yield Comparison("change of the slope to the ends", cell.user, estimate(share), -self.bend, self.bend)


def _each(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


# -- other claims ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Never(_Measured):
    """Nothing of the kind happened in any run of `who`: a count, no estimate; `beside`: how often with the others."""

    who: tuple[str, ...]
    _: KW_ONLY
    beside: bool = True

    def check(self, results: Results) -> ClaimResult:
        """0 in all runs, or not, with the means of the others."""
        counts: dict[str, list[float]] = {}
        for (_, label), runs in results.runs(self.part, self.measure).items():
            counts.setdefault(label, []).extend(run.values[-1] for run in runs.values())
        ours = [value for label in self.who for value in counts.get(label, [])]
        if not ours:
            return ClaimResult(self.text, "no run of this report measures it", "not tested", self.where)
        others = [f"{label} {np.mean(values):,.0f}" for label, values in counts.items() if label not in self.who]
        beside = f"; of the others, mean a run: {', '.join(others)}" if self.beside and others else ""
        text = f"{sum(ours):,.0f} {title_of(self.measure)} in {len(ours)} runs{beside}"
        return ClaimResult(self.text, text, "refuted" if any(ours) else "supported", self.where)


@dataclass(frozen=True)
class Computed:
    """A claim about the data alone: a function that returns what it found, and whether the claim holds."""

    text: str
    where: str
    find: Callable[[Results], tuple[str, bool]]

    def check(self, results: Results) -> ClaimResult:
        """Compute it."""
        text, so = self.find(results)
        return ClaimResult(self.text, text, "supported" if so else "refuted", self.where)
