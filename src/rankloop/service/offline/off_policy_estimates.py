"""IntervalEstimate what the rankings of each policy are worth, from a comparison on the log."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rankloop.clicks import SessionLog
from rankloop.clicks.log import LogBuilder
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array, Impression
from rankloop.evaluation import off_policy
from rankloop.evaluation.off_policy import IntervalEstimate, Statistic
from rankloop.evaluation.off_policy_sums import FEWEST, GROUPS
from rankloop.evaluation.position_bias import Examination, position_bias
from rankloop.service.offline.policy_comparison import LOGGED, Comparison, ComparisonSums

SOURCES = ("auto", "swaps", "pairs", "1/rank")
REFITS = FEWEST  # groups of lists where examination is fitted again without each
ASSUMED = "examination is assumed to fall as 1/rank: the log does not tell"
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


class SessionGathering:
    """Gathers lists for a click model, as `Comparison` tells of them; memory grows with them."""

    def __init__(self) -> None:
        self._gathering = LogBuilder()
        self._groups = array("H")

    def __call__(self, impression: Impression, clicks: Array, group: int = 0) -> None:
        """One list more."""
        items = map(str, impression.items.tolist())
        self._gathering.add(str(len(self._groups)), impression.query, items, clicks.tolist())
        self._groups.append(group)

    @property
    def groups(self) -> Array:
        """(N,) for the jackknife."""
        return np.array(self._groups, np.int64)

    def log(self) -> SessionLog:
        """All of them."""
        return self._gathering.log()


class PolicyEstimates(NamedTuple):
    """What a policy's lists are worth, a list."""

    label: str
    value: IntervalEstimate  # by position, the best there is of the estimates below
    difference: IntervalEstimate | None  # to what was logged
    by_position: dict[str, IntervalEstimate]
    by_list: dict[
        str, IntervalEstimate
    ]  # from the lists whose probability is known and that had all candidates; may be empty
    curve: list[float]  # the value along the log, in equal parts


class Estimates(NamedTuple):
    """All policies, the logged one first, and what the figures hang on."""

    policies: list[PolicyEstimates]
    lists: int
    clicks: int
    drawn: int  # lists whose probability is known
    whole: int  # those of them that had all candidates: what `by_list` is from
    examination: Array  # (K,)
    source: str  # of the examination
    warning: str
    idle: list[str]  # challengers that learned nothing from these lists

    def in_unit(self, scale: float) -> Estimates:
        """The same figures times `scale`."""

        def times(one: IntervalEstimate) -> IntervalEstimate:
            return one._replace(
                value=one.value * scale, low=one.low * scale, high=one.high * scale, error=one.error * scale
            )

        return self._replace(
            policies=[
                PolicyEstimates(
                    one.label,
                    times(one.value),
                    None if one.difference is None else times(one.difference),
                    {name: times(estimate) for name, estimate in one.by_position.items()},
                    {name: times(estimate) for name, estimate in one.by_list.items()},
                    [value * scale for value in one.curve],
                )
                for one in self.policies
            ]
        )


def estimate_policies(
    comparison: Comparison,
    pages: Callable[[], SessionGathering] | None = None,
    examination: str = "auto",
    level: float = 0.95,
    on_progress: Report | None = None,
) -> Estimates:
    """IntervalEstimate the value of every policy.

    Parameters
    ----------
    comparison
        The comparison on the log.
    pages
        Reads the impressions again for `pairs`, if examination has to be estimated that way.
    examination
        How often each rank is examined: "swaps" (from rankings in which two items could have been swapped by chance),
        "pairs" (the same item of the same query at several ranks), "1/rank", numbers separated by commas, or "auto":
        the first of swaps, pairs and 1/rank that covers all ranks.
    level
        Of the intervals.
    """
    tally = comparison.tally()
    tally.check()
    K, clip = tally.longest, tally.clip
    looked, source, warning = _examination(tally, pages, examination, on_progress)
    groups = REFITS if source == "pairs" else GROUPS
    worth = off_policy.gains(tally.gain, K)
    logged: Statistic | None = None
    found = []
    for label, sums in tally.policies.items():
        by_position = off_policy.by_position(tally.moves(label, groups), looked, tally.gain, clip)
        best = by_position["ips" if np.isinf(clip) else "snips"]
        best = best._replace(warning=best.warning or warning)
        logged = best if label == LOGGED else logged
        by_list: dict[str, Statistic] = {}
        if tally.whole > 1:
            by_list = off_policy.by_ranking_sums(tally.whole_lists(label), clip)
        found.append(
            PolicyEstimates(
                label,
                best.estimate(level),
                None if label == LOGGED or logged is None else best.minus(logged).estimate(level),
                {name: one.estimate(level) for name, one in by_position.items()},
                {name: one.estimate(level) for name, one in by_list.items()},
                sums.curve.values(looked.values, worth),
            )
        )
    counts = tally.lists, tally.clicks, tally.drawn, tally.whole
    return Estimates(found, *counts, looked.values[:K], source, warning, comparison.idle())


# -- examination ---------------------------------------------------------------------------------------------------


def check_examination(text: str) -> Examination | None:
    """The examination that `text` spells out; None if it names a source. Refuses everything else."""
    if text in SOURCES:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(
            f"examination is {text!r}; give one of {', '.join(SOURCES)}, or numbers for the ranks: 1,0.6,0.4"
        ) from None
    return Examination.known(values)


def _examination(
    tally: ComparisonSums, pages: Callable[[], SessionGathering] | None, wanted: str, on_progress: Report | None
) -> tuple[Examination, str, str]:
    given, K = check_examination(wanted), tally.longest
    if given is not None:
        if given.values.size < K:
            raise InvalidParameter(f"examination has {given.values.size} numbers, but lists have {K} ranks; give {K}")
        return given, "given", ""
    if wanted in ("auto", "swaps"):
        found = tally.examination()
        if not np.isnan(found.values).any():
            return found, "swaps", ""
        if wanted == "swaps":
            raise InvalidInput(f"swaps do not tell how often {_ranks(found.values)} looked at; give numbers, or 1/rank")
    if wanted in ("auto", "pairs") and pages is not None:
        gathered = pages()
        found = _fitted(gathered.log(), gathered.groups % REFITS, on_progress)
        if np.isfinite(found.values).all() and (found.values > 0).all():
            return found, "pairs", ""
        if wanted != "auto":
            raise InvalidInput(
                f"items that stood at several ranks do not tell how often {_ranks(found.values)} looked at; "
                "give numbers, or 1/rank"
            )
    assumed = Examination.known(1.0 / np.arange(1, K + 1))
    return assumed, "1/rank", "" if wanted == "1/rank" else ASSUMED


def _ranks(values: Array) -> str:
    missing = [str(rank) for rank, value in enumerate(values.tolist(), 1) if not value > 0]
    return f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"


def _fitted(log: SessionLog, groups: Array, on_progress: Report | None) -> Examination:
    """Examination by query and item, from all lists and without each group of them."""

    def fitted(part: SessionLog) -> Array:
        found = position_bias(part).examination
        whole = np.full(log.ranks, np.nan)
        whole[: found.size] = found / found[0]
        return whole

    values, left_out, there = fitted(log), [], np.unique(groups).tolist()
    for done, g in enumerate(there if len(there) > 1 else [], 1):
        left_out.append(fitted(log.part(groups != g)))
        if on_progress:
            on_progress("examination", done, len(there))
    return Examination(values, np.array(left_out) if left_out else None)
