"""What the paper on top-k feedback says about its experiments (section 4) and proves, held against our runs."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rankloop.lab.figures.learning import short_names
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers.evidence import Gap, at, claim_all, claim_higher, gaps
from rankloop.lab.papers.topk_settings import (
    BLOCKS,
    CONVEX,
    FEEDBACK,
    FULL_INFORMATION,
    KL,
    LISTNET,
    RANDOM,
    RANKSVM,
    SMOOTH,
    SQUARED,
    WORLD,
    blocks_label,
    feedback_label,
)
from rankloop.lab.runs.results import curves

REGRET, NDCG = "average_regret", "online.ndcg"
EARLY = 0.05  # of the rounds: 500
_AFTER = 0.1  # of the rounds: what the paper's Figure 3 starts with
_THROUGHOUT = (0.1, 0.25, 0.5, 1.0)  # of the rounds
_SLOPE = 2 / 3 + 0.03  # a slope between two points is off by as much
_LITTLE = 1e-3  # regret a round that is next to nothing
_OPTIMAL = blocks_label(200)


class Slope(NamedTuple):
    """How regret grew: its mean over seeds at each horizon."""

    data: str
    label: str
    measure: str
    rounds: tuple[int, ...]
    regret: tuple[float, ...]

    @property
    def overall(self) -> float:
        """The log-log slope of a line through all points; NaN where regret is not above 0 everywhere."""
        if len(self.rounds) < 2 or min(self.regret) <= 0:
            return np.nan
        return float(np.polyfit(np.log(self.rounds), np.log(self.regret), 1)[0])

    @property
    def last(self) -> float:
        """That of the last two points."""
        return self._replace(rounds=self.rounds[-2:], regret=self.regret[-2:]).overall

    @property
    def tells(self) -> bool:
        """Whether there is regret enough for a slope to mean something."""
        return bool(np.isfinite(self.last)) and self.regret[-1] >= _LITTLE * self.rounds[-1]


def claims(items: pa.Table, slopes: pa.Table, context: pa.Table) -> list[Claim]:
    """The paper's claims in its order, each with what these results say."""
    return [*_items(items), *_growth(slopes), *_context(context)]


# -- Figures 1 to 3 --------------------------------------------------------------------------------------------------


def _items(table: pa.Table) -> list[Claim]:
    others = [blocks_label(blocks) for blocks in BLOCKS if blocks_label(blocks) != _OPTIMAL]
    tops = [feedback_label(top) for top in FEEDBACK]
    more = [gap for one, other in pairwise(tops) for gap in gaps(table, REGRET, [one], [other])]
    full = [gap for share in (_AFTER, 1.0) for gap in gaps(table, REGRET, [tops[0]], [FULL_INFORMATION], share=share)]
    return [
        claim_higher(
            "With K = 200 blocks regret falls fastest at first: all other block counts are above it",
            "4.1, Figure 1",
            REGRET,
            gaps(table, REGRET, others, [_OPTIMAL], share=EARLY),
            f" after {EARLY:.0%} of the rounds",
        ),
        claim_all(
            "With K = 10 regret falls more slowly at first, and sharply later on",
            "4.1, Figure 1",
            _late_drops(table, blocks_label(10), _OPTIMAL),
            lambda gap: gap.sure,
            "what average regret loses from a fifth of the rounds to the end, surely more than with K = 200,",
        ),
        claim_higher(
            "With K = 400 most rounds explore, and regret is substantially worse than with any other",
            "4.1, Figure 1",
            REGRET,
            gaps(table, REGRET, [blocks_label(400)], [label for label in (*others, _OPTIMAL) if "400" not in label]),
        ),
        claim_higher("As more is graded, regret falls: top 1, 5, 10", "4.1, Figure 2", REGRET, more),
        claim_higher(
            "From round 1,000 on, full information is better than top-1 feedback", "4.1, Figure 3", REGRET, full
        ),
    ]


def _late_drops(table: pa.Table, one: str, other: str) -> list[Gap]:
    """By how much more one curve falls than the other after the first fifth, over the seeds of both."""
    found = curves(table, REGRET)
    made = []
    for data, user in dict.fromkeys((data, user) for data, user, _ in found):
        if (data, user, one) not in found or (data, user, other) not in found:
            continue
        pair = found[data, user, one], found[data, user, other]
        seeds = sorted(set(pair[0].values) & set(pair[1].values))
        falls = [[curve.values[seed][at(curve, 0.2)] - curve.values[seed][-1] for seed in seeds] for curve in pair]
        differences = np.array(falls[0]) - np.array(falls[1])
        error = differences.std(ddof=1) / np.sqrt(differences.size) if differences.size > 1 else np.nan
        made.append(Gap(short_names([data])[data], f"{one} - {other}", float(differences.mean()), float(error)))
    return made


# -- how regret grows ------------------------------------------------------------------------------------------------


def slopes_of(table: pa.Table, measure: str = "regret") -> list[Slope]:
    """Each setting's regret at the horizons; where the horizon is told, each from the run that was told it."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in table.to_pylist():
        told = "horizon" in row["params"] and row["round"] != row["rounds"]
        if not told and row.get(measure) is not None:
            found.setdefault((row["data"], row["label"]), {}).setdefault(row["round"], []).append(row[measure])
    return [
        Slope(data, label, measure, tuple(sorted(values)), tuple(float(np.mean(values[t])) for t in sorted(values)))
        for (data, label), values in found.items()
    ]


def _growth(table: pa.Table) -> list[Claim]:
    found = slopes_of(table)
    items = [s for s in found if "top 1" in s.label]
    exact = [s for s in found if s.label.endswith(", exact")]
    where = "2.7, Corollary 10"
    return [
        _slope_claim("Top-1 feedback: regret under DCG grows like T^(2/3) at most, in any world", where, items),
        _slope_claim("The same in the world of Figures 1 to 3", where, [s for s in items if s.data == WORLD]),
        _slope_claim(
            "Unbiased estimates: the regret of convex surrogates grows like T^(2/3) at most", "3.4, Theorem 19", exact
        ),
    ]


def _slope_claim(expected: str, source: str, found: list[Slope]) -> Claim:
    names = short_names(s.data for s in found)
    grown = [Gap(names[s.data], s.label, s.last, np.nan) for s in found if s.tells]
    rest = len(found) - len(grown)
    what = f"between the last two horizons a log-log slope of at most {_SLOPE:.2f}"
    what += f" (beside {rest} with next to no regret)" if rest else ""
    return claim_all(expected, source, grown, lambda gap: gap.value <= _SLOPE, what)


# -- Figures 4 and 5 -------------------------------------------------------------------------------------------------


def _context(table: pa.Table) -> list[Claim]:
    where = "4.2, Figures 4 and 5"
    ours = (RANKSVM, KL, SQUARED, SMOOTH)
    throughout = [gap for share in _THROUGHOUT for gap in gaps(table, NDCG, [LISTNET], ours, share=share)]
    return [
        claim_all(
            "ListNet, with all grades, has the highest average NDCG throughout",
            where,
            throughout,
            lambda gap: gap.value > 0,
            f"a higher mean after {', '.join(f'{share:.0%}' for share in _THROUGHOUT)} of the rounds",
        ),
        claim_higher(
            "RankSVM (top 2) does better than the other surrogates",
            where,
            NDCG,
            gaps(table, NDCG, [RANKSVM], [KL, SQUARED, SMOOTH]),
        ),
        claim_higher(
            "KL does much better than Squared (Yahoo), or as well (Yandex)",
            where,
            NDCG,
            gaps(table, NDCG, [KL], [SQUARED]),
        ),
        claim_higher(
            "All three convex surrogates do significantly better than random lists",
            where,
            NDCG,
            gaps(table, NDCG, CONVEX, [RANDOM]),
        ),
        claim_all(
            "All three are much closer to ListNet than to random lists",
            where,
            _nearness(table),
            lambda gap: gap.value > 0.5,
            "more than half of the way from random lists to ListNet",
        ),
        claim_higher(
            "SmoothDCG is poor: below the three convex surrogates", where, NDCG, gaps(table, NDCG, CONVEX, [SMOOTH])
        ),
    ]


def _nearness(table: pa.Table) -> list[Gap]:
    """How much of the way from random lists to ListNet each convex surrogate has come, by the means at the end."""
    found = curves(table, NDCG)
    names = short_names(data for data, _, _ in found)
    made = []
    for (data, user, label), curve in found.items():
        if label in CONVEX and (data, user, RANDOM) in found and (data, user, LISTNET) in found:
            low, high = (found[data, user, mark].mean[-1] for mark in (RANDOM, LISTNET))
            made.append(Gap(names[data], label, float((curve.mean[-1] - low) / (high - low)), np.nan))
    return made
