"""What paper 002 says about its experiments (section 5), held against our runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rankloop.lab.figures.report import Claim, Verdict
from rankloop.lab.papers.bubblerank_settings import BATCH, BUBBLE0, BUBBLEKL, KLUCB, MODELS, TOP
from rankloop.lab.papers.evidence import Gap, claim_all, gaps
from rankloop.lab.runs.results import Curve, curves
from rankloop.types import Array

MEASURE = "regret"
LINEAR = 0.9  # growth over the last decade of rounds: 1 is linear, 0 is none
NUMBERS = {"CM": (541, 1475, 0.63), "PBM": (4409, 6833, 0.35)}  # BubbleRankKL's and BatchRank's; how much lower
NEAR = 0.15  # that share may be smaller by so much
_WHERE = "5, Figures 1 and 2"
_NOTHING = "no run of this report measures it"


class Average(NamedTuple):
    """A learner's regret over all queries and runs of a model."""

    rounds: Array  # (c,)
    mean: Array  # (c,)
    error: Array  # (c,) standard error over all queries and runs
    runs: int


def averages(table: pa.Table) -> dict[tuple[str, str], Average]:
    """(model, learner) -> average."""
    pooled: dict[tuple[str, str], list[Array]] = {}
    rounds: dict[tuple[str, str], Array] = {}
    for (_, model, label), curve in curves(table, MEASURE).items():
        pooled.setdefault((model, label), []).extend(curve.values.values())
        rounds[model, label] = curve.rounds
    found = {}
    for key, runs in pooled.items():
        matrix = np.array(runs)
        error = matrix.std(0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.full(matrix.shape[1], np.nan)
        found[key] = Average(rounds[key], matrix.mean(0), error, len(runs))
    return found


def growth(curve: Curve | Average) -> float:
    """By which power of the rounds regret has grown over their last decade: 1 is linear, 0 is not at all."""
    end = curve.rounds[-1]
    begin = max(int(np.searchsorted(curve.rounds, end / 10, side="right")) - 1, 0)
    if curve.rounds[begin] == end or curve.mean[begin] <= 0:
        return np.nan
    return float(np.log(curve.mean[-1] / curve.mean[begin]) / np.log(end / curve.rounds[begin]))


def claims(table: pa.Table, faint: pa.Table, safety: pa.Table) -> list[Claim]:
    """The paper's claims in its order, each with what these results say."""
    present = [model for model in MODELS if any(user == model for _, user, _ in curves(table, MEASURE))]
    made = [*_cascade(table), *_batch(table), *_bubble(table, present)]
    return [
        *made,
        *(_numbers(table, model) for model in present),
        *_linear(table, present),
        _doubling(faint),
        *_safe(safety),
    ]


def _cascade(table: pa.Table) -> list[Claim]:
    others = [BUBBLE0, BUBBLEKL, BATCH, TOP]
    lower = gaps(table, MEASURE, others, [KLUCB], users=["CM"])
    return [
        claim_all(
            f"{KLUCB} learns the best list quickly in the CM: nobody has less regret there",
            _WHERE,
            lower,
            lambda gap: gap.value > 0,
            f"more mean regret than {KLUCB}",
        ),
        _may_be_linear(table, f"{KLUCB} may have linear regret in the PBM", "PBM", KLUCB),
    ]


def _batch(table: pa.Table) -> list[Claim]:
    return [
        _higher(table, f"{BATCH} has a much higher regret than {KLUCB} in the CM", "CM", BATCH, KLUCB),
        *(_learns(table, f"{BATCH} learns the best list in the {model}", model, BATCH) for model in MODELS),
    ]


def _bubble(table: pa.Table, present: Sequence[str]) -> list[Claim]:
    made = []
    for model in present:
        made += [
            _higher(table, f"{BUBBLE0} has a higher regret than {BATCH} in the {model}", model, BUBBLE0, BATCH),
            _higher(table, f"{BUBBLEKL} has a lower regret than {BATCH} in the {model}", model, BATCH, BUBBLEKL),
            *(
                _learns(table, f"{name} can learn the best list in the {model}", model, name)
                for name in (BUBBLE0, BUBBLEKL)
            ),
        ]
    return made


def _higher(table: pa.Table, expected: str, model: str, high: str, low: str) -> Claim:
    """Whether one learner's regret is surely higher than another's, averaged over the queries, as in Figure 2."""
    found = np.array([gap.value for gap in gaps(table, MEASURE, [high], [low], users=[model])])
    if found.size == 0:
        return Claim(expected, _NOTHING, "not tested", _WHERE)
    error = found.std(ddof=1) / np.sqrt(found.size) if found.size > 1 else np.nan
    gap = Gap(f"mean over {found.size} queries of the {model}", f"{high} - {low}", float(found.mean()), float(error))
    said = f"{gap}; higher in {np.count_nonzero(found > 0)} of them, from {found.min():+.3g} to {found.max():+.3g}"
    return Claim(expected, said, "seen" if gap.sure else "not seen", _WHERE)


def _growths(table: pa.Table, model: str, label: str) -> dict[str, float]:
    """Query -> by which power of the rounds regret grew."""
    found = {
        data: growth(curve)
        for (data, user, name), curve in curves(table, MEASURE).items()
        if (user, name) == (model, label)
    }
    return {data: value for data, value in found.items() if np.isfinite(value)}


def _may_be_linear(table: pa.Table, expected: str, model: str, label: str) -> Claim:
    """Whether regret grows linearly in some query."""
    found = _growths(table, model, label)
    if not found:
        return Claim(expected, _NOTHING, "not tested", _WHERE)
    linear = sum(value >= LINEAR for value in found.values())
    most = max(found, key=lambda data: found[data])
    fast = f"at most as n^{found[most]:.2f} ({most})"
    said = f"regret grows as n^{LINEAR} or faster in {linear} of {len(found)} queries, {fast}"
    return Claim(expected, said, "seen" if linear else "not seen", _WHERE)


def _learns(table: pa.Table, expected: str, model: str, label: str) -> Claim:
    """Whether regret, averaged over the queries, grows slower than linearly: the curve of Figure 2 bends."""
    found, average = _growths(table, model, label), averages(table).get((model, label))
    if not found or average is None:
        return Claim(expected, _NOTHING, "not tested", _WHERE)
    power, linear = growth(average), sum(value >= LINEAR for value in found.values())
    said = f"mean regret grows as n^{power:.2f}; as n^{LINEAR} or faster in {linear} of {len(found)} queries"
    return Claim(expected, said, "seen" if power < LINEAR else "not seen", _WHERE)


def _numbers(table: pa.Table, model: str) -> Claim:
    ours, theirs, share = NUMBERS[model]
    expected = f"In the {model} {BUBBLEKL} has {share:.0%} less regret than {BATCH} ({ours} and {theirs})"
    found = averages(table)
    if (model, BUBBLEKL) not in found or (model, BATCH) not in found:
        return Claim(expected, _NOTHING, "not tested", "5")
    low, high = found[model, BUBBLEKL], found[model, BATCH]
    less = 1.0 - low.mean[-1] / high.mean[-1]
    said = f"{less:.0%} less: {low.mean[-1]:.0f} ± {low.error[-1]:.0f} and {high.mean[-1]:.0f} ± {high.error[-1]:.0f}"
    said += f" after {int(low.rounds[-1]):,} rounds, on other queries"
    verdict: Verdict = "seen" if less >= share - NEAR else "not seen"
    return Claim(expected, said, verdict, "5")


class Line(NamedTuple):
    """Regret against |V0|: the straight line through all runs, after each query's own level."""

    slope: float
    error: float
    bend: float  # what a square term adds to the share of variance explained
    explained: float


def line_of(wrong: Array, regret: Array, query: Array) -> Line:
    """Least squares with an intercept for each query, since some are harder than others.

    >>> wrong, query = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    >>> line_of(wrong, 3.0 * wrong + 100 * query, query).slope.round(6)
    np.float64(3.0)
    """
    levels = (query[:, None] == np.unique(query)).astype(np.float64)
    left = regret - levels @ np.linalg.lstsq(levels, regret, rcond=None)[0]
    total = float(left @ left)
    found = []
    for powers in ((1,), (1, 2)):
        design = np.column_stack([wrong.astype(np.float64) ** p for p in powers] + [levels])
        fit = np.linalg.lstsq(design, regret, rcond=None)[0]
        rest = regret - design @ fit
        found.append((fit, float(rest @ rest), design))
    (fit, rest, design), (_, bent, _) = found
    free = max(1, regret.size - design.shape[1])
    covariance = np.linalg.pinv(design.T @ design) * rest / free
    return Line(fit[0], float(np.sqrt(covariance[0, 0])), (rest - bent) / total, 1.0 - rest / total)


def lists(table: pa.Table, model: str) -> tuple[Array, Array, Array]:
    """(runs,) |V0|, final regret and query of BubbleRank0's runs."""
    last: dict[str, tuple[float, float, str]] = {}
    columns = ("run", "label", "user", "wrong", MEASURE, "data")
    for run, label, user, wrong, regret, data in zip(*(table[name].to_pylist() for name in columns), strict=True):
        if (label, user) == (BUBBLE0, model):
            last[run] = (wrong, regret, data)  # rows are in the order of the rounds
    found = list(last.values())
    names = {data: i for i, data in enumerate(dict.fromkeys(row[2] for row in found))}
    wrong, regret = (np.array([row[i] for row in found], dtype=np.float64) for i in (0, 1))
    return wrong, regret, np.array([names[row[2]] for row in found])


def _linear(table: pa.Table, present: Sequence[str]) -> list[Claim]:
    made = []
    for model in present:
        wrong, regret, query = lists(table, model)
        expected, where = f"The regret of {BUBBLE0} is linear in |V0| in the {model}", "5, Figure 3"
        if np.unique(wrong).size < 3:
            made.append(Claim(expected, "too few lists", "not tested", where))
            continue
        line = line_of(wrong, regret, query)
        said = (
            f"{line.slope:.0f} ± {line.error:.0f} for each pair that starts the wrong way round; the line explains "
            f"{line.explained:.0%} of the variance within queries, a square {line.bend:.0%} more ({wrong.size} lists)"
        )
        straight = line.slope > 2 * line.error and line.bend < 0.1
        made.append(Claim(expected, said, "seen" if straight else "not seen", where))
    return made


def _doubling(faint: pa.Table) -> Claim:
    expected = "The regret doubles when the last position is examined half as often"
    ends = {label: curve.mean[-1] for (_, _, label), curve in curves(faint, MEASURE).items()}
    values = list(ends.values())
    if len(values) < 2:
        return Claim(expected, _NOTHING, "not tested", "5, Figure 3")
    ratios = [after / before for before, after in pairwise(values)]
    mean = (values[-1] / values[0]) ** (1 / len(ratios))
    said = (
        f"{', '.join(f'{value:.0f}' for value in values)} for {', '.join(ends)}: each {mean:.2f} times the one before"
    )
    return Claim(expected, said, "seen" if min(ratios) > 1.5 and mean < 3 else "not seen", "5, Figure 3")


def _safe(safety: pa.Table) -> list[Claim]:
    unsafe, harmful = _counts(safety, "unsafe"), _counts(safety, "harmful")
    ours = [name for name in (BUBBLE0, BUBBLEKL) if name in unsafe]
    if not ours:
        return []
    changes, lists_ = sum(harmful[name][0] for name in ours), sum(unsafe[name][0] for name in ours)
    runs = sum(unsafe[name][1] for name in ours)
    others = "; ".join(f"{name} {total / n:.0f}" for name, (total, n) in unsafe.items() if name not in ours)
    rounds = max(safety["round"].to_pylist())
    return [
        Claim(
            "Any base list improves upon the one before it",
            f"{changes:.0f} harmful changes in {runs} runs of {rounds:,} rounds",
            "seen" if changes == 0 else "not seen",
            "3.1",
        ),
        Claim(
            "Exploration is cautious: items are at most one place from the base list, so no list has more than "
            "|V0| + K/2 pairs the wrong way round",
            f"{lists_:.0f} such lists in {runs} runs; of the others, mean a run: {others}",
            "seen" if lists_ == 0 else "not seen",
            "3.1",
        ),
    ]


def _counts(table: pa.Table, measure: str) -> dict[str, tuple[float, int]]:
    """Learner -> how many in all its runs, and how many runs."""
    found: dict[str, dict[str, float]] = {}
    for run, label, value in zip(*(table[name].to_pylist() for name in ("run", "label", measure)), strict=True):
        found.setdefault(label, {})[run] = value or 0.0
    return {label: (sum(runs.values()), len(runs)) for label, runs in found.items()}
