"""Comparing learners over seeds: the pieces of which claims are made.

Differences are paired: runs of one seed meet the same queries and the same luck of the user, so the difference of two
learners is much surer than their two means. A difference counts as sure when it is more than twice its standard error;
with a single seed, which has none, any difference counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rankloop.lab.figures.learning import TITLES, short_names
from rankloop.lab.figures.report import Claim, Verdict
from rankloop.lab.runs.results import Curve, curves


class Gap(NamedTuple):
    """How much higher one learner is than another in one setting, over the seeds that both ran."""

    setting: str
    pair: str
    value: float
    error: float  # NaN with one seed

    @property
    def sure(self) -> bool:
        """Above zero by more than two standard errors."""
        return self.value > (2 * self.error if np.isfinite(self.error) else 0.0)

    def within(self, margin: float) -> bool:
        """Not surely more than `margin` away from zero."""
        return abs(self.value) <= margin + (2 * self.error if np.isfinite(self.error) else 0.0)

    def __str__(self) -> str:
        error = f" ± {self.error:.3g}" if np.isfinite(self.error) else ""
        return f"{self.value:+.3g}{error} ({self.pair}, {self.setting})"


def gaps(
    table: pa.Table,
    measure: str,
    higher: Sequence[str],
    lower: Sequence[str],
    *,
    share: float = 1.0,
    users: Sequence[str] | None = None,
) -> list[Gap]:
    """Every one of `higher` minus every one of `lower` in each (data, user), after `share` of the rounds."""
    found = curves(table, measure)
    names = short_names(data for data, _, _ in found)
    wanted = [(h, low) for h in higher for low in lower if h != low]
    made = []
    for data, user in dict.fromkeys((data, user) for data, user, _ in found):
        if users is not None and user not in users:
            continue
        for h, low in wanted:
            if (data, user, h) in found and (data, user, low) in found:
                pair = found[data, user, h], found[data, user, low]
                made.append(_gap(f"{names[data]}, {user}", f"{h} - {low}", *pair, share))
    return [gap for gap in made if np.isfinite(gap.value)]


def at(curve: Curve, share: float) -> int:
    """The last checkpoint within that share of the rounds."""
    return max(int(np.searchsorted(curve.rounds, share * curve.rounds[-1], side="right")) - 1, 0)


def claim_higher(expected: str, source: str, measure: str, found: Sequence[Gap], more: str = "") -> Claim:
    """A claim that differences are above zero: seen if more than half surely are and none is surely below."""
    higher, lower = sum(gap.sure for gap in found), sum(gap._replace(value=-gap.value).sure for gap in found)
    what = f"{TITLES[measure]}{more}: surely higher in {higher}, surely lower in {lower}"
    return _told(expected, source, found, what, 2 * higher > len(found) and lower == 0)


def claim_all(expected: str, source: str, found: Sequence[Gap], holds: Callable[[Gap], bool], what: str) -> Claim:
    """A claim that `holds` for every one of these differences; seen only if it does for all of them."""
    good = sum(holds(gap) for gap in found)
    return _told(expected, source, found, f"{what} in {good}", good == len(found))


def _told(expected: str, source: str, found: Sequence[Gap], what: str, seen: bool) -> Claim:
    if not found:
        return Claim(expected, "no run of this report measures it", "not tested", source)
    least, most = min(found, key=lambda gap: gap.value), max(found, key=lambda gap: gap.value)
    verdict: Verdict = "seen" if seen else "not seen"
    return Claim(expected, f"{what} of {len(found)} comparisons; from {least} to {most}", verdict, source)


def _gap(setting: str, pair: str, high: Curve, low: Curve, share: float) -> Gap:
    common = sorted(set(high.values) & set(low.values))
    i, j = at(high, share), at(low, share)
    differences = np.array([high.values[seed][i] - low.values[seed][j] for seed in common])
    differences = differences[np.isfinite(differences)]
    if differences.size == 0:
        return Gap(setting, pair, np.nan, np.nan)
    error = differences.std(ddof=1) / np.sqrt(differences.size) if differences.size > 1 else np.nan
    return Gap(setting, pair, float(differences.mean()), float(error))
