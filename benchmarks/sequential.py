"""Confidence sequences: values until a preference is found while looking after each, and how often each is wrong."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from math import ceil, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.core.types import Array
from rankloop.evaluation.sequential import ConfidenceSequence, samples_needed

ALPHA = 0.05
CASES = ((1.0, 0.6), (1.0, 0.2), (0.3, 0.3), (0.3, 0.1), (0.1, 0.2))  # share of lists that decide, preference of those
LENGTH = 10_000  # of the streams without a preference
_QUANTILE = NormalDist().inv_cdf


def ours(values: Array) -> float:
    """Values until a verdict; infinite if there is none."""
    watch = ConfidenceSequence(ALPHA)
    watch.add(values)
    return min((float(at) for at in watch.crossed_ if at), default=np.inf)


def hedged(values: Array) -> float:
    """The same by hedged capital with predictable plug-in bets, at most half of what may be bet."""
    unit, t = (values + 1.0) / 2.0, np.arange(1, values.size + 1)
    means = (0.5 + np.cumsum(unit)) / (t + 1)
    variances = (0.25 + np.cumsum((unit - means) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(np.sqrt(2.0 * log(2.0 / ALPHA) / (before * t * np.log(t + 1))), 1.0)
    up, down = (np.cumsum(np.log1p(side * bets * (unit - 0.5))) for side in (1.0, -1.0))
    return _first(np.maximum(up, down) >= log(2.0 / ALPHA))


def peeking(values: Array) -> float:
    """The same by a z-test that is looked at after every value from the 100th on, which it does not allow for."""
    t = np.arange(1, values.size + 1)
    means = np.cumsum(values) / t
    spread = np.sqrt(np.maximum(np.cumsum(values**2) / t - means**2, 1e-12) / t)
    return _first((np.abs(means) > _QUANTILE(1.0 - ALPHA / 2.0) * spread) & (t >= 100))


def _first(reached: Array) -> float:
    at = np.flatnonzero(reached)
    return float(at[0] + 1) if at.size else np.inf


def quickness(streams: int) -> list[dict[str, Any]]:
    """A row a preference."""
    rows = []
    for share, effect in CASES:
        mean = share * effect
        variance = share - mean**2
        predicted = samples_needed(mean, variance, ALPHA)
        assert predicted is not None
        once = (_QUANTILE(1.0 - ALPHA / 2.0) + _QUANTILE(0.95)) ** 2 * variance / mean**2
        rng = np.random.default_rng(1)
        odds = [share * (1.0 - effect) / 2.0, 1.0 - share, share * (1.0 + effect) / 2.0]
        found = []
        for _ in range(streams):
            values = rng.choice([-1.0, 0.0, 1.0], size=20 * predicted, p=odds)
            found.append((ours(values), hedged(values)))
        mine, theirs = np.array(found).T
        rows.append(
            {
                "lists that decide": f"{share:.0%}",
                "for the better": f"{(1.0 + effect) / 2.0:.0%}",
                "ours: median": int(np.median(mine)),
                "95 %": int(np.quantile(mine, 0.95)),
                "predicted for 95 %": predicted,
                "hedged: median": _count(np.median(theirs)),
                "its 95 %": _count(np.quantile(theirs, 0.95)),
                "one look, 95 %": ceil(once),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def wrong(streams: int) -> list[dict[str, Any]]:
    """How often a verdict falls where there is nothing to be found."""
    rng = np.random.default_rng(2)
    false = np.zeros(3)
    for _ in range(streams):
        values = rng.choice([-1.0, 0.0, 1.0], size=LENGTH, p=[0.15, 0.7, 0.15])
        false += [np.isfinite(test(values)) for test in (ours, hedged, peeking)]
    names = ("ours", "hedged", "z-test at every look")
    return [
        {"watched": name, "wrong verdicts": f"{part:.1%} ± {sqrt(part * (1.0 - part) / streams):.1%}"}
        for name, part in zip(names, false / streams, strict=True)
    ]


def _count(value: float) -> int | str:
    return int(value) if np.isfinite(value) else "more"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks sequential", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--false", type=int, default=1000, help="streams without a preference")
    asked = parser.parse_args(arguments)
    print(f"Machine: {machine()}; {asked.streams} streams each\n")
    print_rows(quickness(asked.streams))
    print(f"\n{asked.false:,} streams of {LENGTH:,} without a preference\n")
    print_rows(wrong(asked.false))


if __name__ == "__main__":
    main()
