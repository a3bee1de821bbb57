"""From credits and clicks of interleaved rankings to a preference and a verdict: a deterministic fold over outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from rankloop.evaluation.sequential import ConfidenceSequence, samples_needed, still_needed
from rankloop.service.storage.experiments import InterleavedOutcome, Later, State, Tally
from rankloop.wire.experiments import Evidence

FRESH = 200  # rankings after which a guardrail also starts a new watch, to notice a ranking that breaks
RATE_SECONDS = 600.0  # over which the current rate is taken
POWER = 0.95  # of the forecast
_LEAST = 5.0  # decided rankings before anything is forecast


class Forecast(NamedTuple):
    """How many more rankings: to find the effect with power 0.95, and for an even chance of a verdict."""

    needed: int | None
    likely: int | None


def score(credit: Sequence[float], values: Sequence[float]) -> float:
    """The preference of one ranking, -1 to 1: the mean of `credit` over the clicks; 0 without any.

    >>> score([0, 1, -1, -1], [1, 1]), score([1, -1, 0], [0, 0, 0]), score([1, -1, 1], [1, 1, 1])
    (0.5, 0.0, 0.3333333333333333)
    """
    total = ahead = 0.0
    for side, value in zip(credit, values, strict=False):
        if value > 0:
            total += value
            ahead += side * value
    return min(max(ahead / total, -1.0), 1.0) if total > 0 else 0.0


def difference(credit: Sequence[float], rewards: Sequence[float]) -> float:
    """The difference of the rewards of the two sides, cut at -1 and 1.

    >>> difference([1, -1, -1], [0.5, 0.125, 0.25]), difference([1, 1], [1.0, 1.0]), difference([1, -1], [])
    (0.125, 1.0, 0.0)
    """
    ahead = sum(side * reward for side, reward in zip(credit, rewards, strict=False))
    return float(min(max(ahead, -1.0), 1.0))


def watched(tally: Tally, alpha: float) -> ConfidenceSequence:
    """The confidence sequence over all rankings."""
    return _opened(tally.whole, alpha)


def fold(tally: Tally, seen: Sequence[InterleavedOutcome], alpha: float, guardrail: bool) -> int:
    """Fold rankings into the tally, in place; returns how many. A guardrail stops at the one that decides "worse".

    A guardrail tests one side. Half of its alpha is for all rankings together, the other half for watches that start
    after every `FRESH` rankings with 1/2 of it, then 1/6, 1/12 …: a long good past would hide a ranking that breaks.
    """
    whole = watched(tally, alpha)
    later = [(one.number, _opened(one.state, _part(alpha, one.number))) for one in tally.later]
    taken, judge = 0, score if tally.scale is None else difference
    for one in seen:
        if guardrail and tally.lists and tally.lists % FRESH == 0:
            number = tally.lists // FRESH
            later = _thinned([*later, (number, _opened({}, _part(alpha, number)))])
        taken += 1
        value = judge(one.credit, one.values)
        tally.lists += 1
        tally.wins += value > 0
        tally.losses += value < 0
        _count(tally, one.when)
        watches = [whole, *(watch for _, watch in later)]
        for watch in watches:
            watch.add([value])
        if tally.verdict == "undecided" and whole.verdict != "undecided":
            tally.verdict = "better" if whole.verdict == "above" else "worse"
            tally.evidence = _evidence(whole, one.when)
        alarmed = [watch for watch in watches if watch.crossed_[1]] if guardrail else []
        if alarmed:
            tally.verdict, tally.evidence = "worse", _evidence(alarmed[0], one.when)
            break
    tally.whole = _state(whole)
    tally.later = [Later(number, _state(watch)) for number, watch in later]
    return taken


def forecast(tally: Tally, alpha: float, effect: float) -> Forecast:
    """The rankings still needed; `effect` is of those that decide."""
    if tally.verdict != "undecided":
        return Forecast(0, 0)
    watch = watched(tally, alpha)
    moved = float(watch.sums_[2])
    if moved < _LEAST:
        return Forecast(None, None)
    share = moved / watch.n
    share -= (share * (1.0 - share) / watch.n) ** 0.5  # less a standard error
    mean = effect * share
    planned = samples_needed(mean, share - mean**2, alpha, POWER)
    return Forecast(None if planned is None else max(0, planned - watch.n), still_needed(watch, 0.5))


def rate(tally: Tally, started: float, now: float) -> float:
    """The current rate of rankings per second."""
    age = max(now - started, 1.0)
    weight = tally.weight * exp(min(0.0, (tally.last - now) / RATE_SECONDS))
    return weight / (RATE_SECONDS * (1.0 - exp(-age / RATE_SECONDS)))


def _count(tally: Tally, when: float) -> None:
    tally.weight = tally.weight * exp(min(0.0, (tally.last - when) / RATE_SECONDS)) + 1.0
    tally.last = max(tally.last, when)


def _part(alpha: float, number: int) -> float:
    """The alpha of the watch that starts after `number` times FRESH rankings; together they have at most alpha."""
    return alpha / (number * (number + 1))


def _thinned(later: list[tuple[int, ConfidenceSequence]]) -> list[tuple[int, ConfidenceSequence]]:
    """The oldest watch of each age class (1, 2 to 3, 4 to 7 … times FRESH rankings), so that there are few."""
    newest = later[-1][0]
    oldest = {(newest - number).bit_length(): (number, watch) for number, watch in reversed(later)}
    return sorted(oldest.values(), key=lambda one: one[0])


def _opened(state: State, alpha: float) -> ConfidenceSequence:
    watch = ConfidenceSequence(alpha)
    if state:
        watch.load({name: np.array(values) for name, values in state.items()})
    return watch


def _evidence(watch: ConfidenceSequence, when: float) -> Evidence:
    return Evidence(when, watch.n, watch.mean, watch.interval())


def _state(watch: ConfidenceSequence) -> State:
    return {name: array.tolist() for name, array in watch.state().items()} if watch.n else {}


def compile_kernels() -> None:
    """Compile or load the kernels on a throw-away tally."""
    tally = Tally()
    fold(tally, [InterleavedOutcome(i, [1.0, 0.5], [float(i % 2), 1.0], 0.0) for i in range(8)], 0.05, True)
    forecast(tally, 0.05, 0.1)
    watched(tally, 0.05).interval()
