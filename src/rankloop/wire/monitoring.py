"""Curves, latest impressions, weights and movement of a ranker."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rankloop.wire.basics import Exposure, ItemId
from rankloop.wire.calls import RejectedEvent


class Point(Struct, omit_defaults=True):
    """Measures of one step from `start` on. A mean without values is left out."""

    start: Annotated[float, Meta(description="Unix time")]
    lists: Annotated[int, Meta(description="rankings returned")] = 0
    closed_impressions: Annotated[
        int, Meta(description="impressions closed by feedback or the end of their attribution window")
    ] = 0
    clicks: Annotated[float | None, Meta(description="clicks per closed impression")] = None
    reciprocal_rank: Annotated[
        float | None, Meta(description="mean of 1 / position of the first click, over closed impressions with a click")
    ] = None
    explored: Annotated[
        float | None,
        Meta(
            description="share of positions that hold an item moved in order to learn; an item that shifts because "
            "another was moved does not count; null where the learner decided nothing, as in shadow"
        ),
    ] = None
    uncertain: Annotated[
        float | None, Meta(description="share of the pairs in the latest rankings whose order is uncertain")
    ] = None
    fallbacks: Annotated[
        float | None, Meta(description="share of rankings that were the baseline because of a failure")
    ] = None
    unlearned_impressions: Annotated[
        int | None, Meta(description="the most closed impressions that waited to be learned")
    ] = None
    ndcg: Annotated[
        float | None, Meta(description="NDCG of the rankings shown, where relevance is known (simulated users)")
    ] = None


class PositionRate(Struct):
    """How often a position was shown in closed impressions, and clicked."""

    position: int
    shown: int
    clicked: int


class Series(Struct):
    """Measures of a ranker over time. Steps without events are left out."""

    ranker: str
    now: Annotated[float, Meta(description="time of the service; the last step is not complete")]
    since: float
    step: Annotated[int, Meta(description="seconds")]
    points: list[Point]
    total: Annotated[Point, Meta(description="from `since` to `now`")]
    positions: Annotated[
        list[PositionRate], Meta(description="over the whole period; the 51st has all positions below 50")
    ]


class ShownItem(Struct):
    """A shown item."""

    id: ItemId
    position: int
    base: Annotated[int, Meta(description="its position in the baseline ranking")]
    best: Annotated[int | None, Meta(description="its position by the learner's scores; null: unknown")]
    value: Annotated[
        float | None,
        Meta(description="value of the click (1 or a reward) or grade; null without feedback"),
    ]
    reward: Annotated[float | None, Meta(description="in the unit of the ranker's `reward`")] = None


class Doubt(Struct):
    """A pair whose order was uncertain."""

    upper: Annotated[int, Meta(description="position")]
    lower: int
    swapped: Annotated[bool, Meta(description="shown against the learner's scores, to explore")]


class ShownList(Struct):
    """An impression: the ranking shown, its explored pairs, and its outcome."""

    impression_id: str
    created: float
    query: str
    version: str
    exposure: Exposure
    reason: Annotated[str | None, Meta(description="why it was the baseline ranking; null: it was not")]
    experiment: Annotated[int | None, Meta(description="for which it was interleaved; then swaps are not reported")]
    items: list[ShownItem]
    pairs: Annotated[int | None, Meta(description="pairs whose certainty is known")]
    uncertain: Annotated[int | None, Meta(description="how many of them were uncertain")]
    doubts: Annotated[list[Doubt], Meta(description="the uncertain pairs, at most 20, swapped ones first")]
    outcome: Annotated[
        Literal["open", "final", "window", "silent", "ignored", "logged"],
        Meta(description="open: waits for feedback; logged: imported from a log"),
    ]
    learned: Annotated[bool, Meta(description="whether it is learned: not while paused, not a fallback")]
    seen: Annotated[int | None, Meta(description="positions that were viewed; null: not reported")] = None
    attention: Annotated[list[RejectedEvent], Meta(description="rejected events that have not been corrected")] = []


class Weight(Struct):
    """The weight of a feature in a linear ranker."""

    feature: str
    weight: float
    confidence: Annotated[float | None, Meta(description="half-width of the confidence interval; null: not available")]


class Weights(Struct):
    """The current weights, largest first."""

    ranker: str
    version: str
    linear: Annotated[bool, Meta(description="false: this learner has no weights")]
    features: int
    weights: list[Weight]


class Memory(Struct):
    """The remembered queries of a ranker."""

    queries: Annotated[int, Meta(description="number of remembered queries")]
    share: Annotated[
        float | None, Meta(description="share of the latest rankings whose query is remembered; null: no ranking yet")
    ]


class DriftNoticed(Struct):
    """Drift detected by a ranker; impressions are numbered as it learns from them, from 1 on."""

    alarms: Annotated[int, Meta(description="detected changes")]
    latest: Annotated[list[int], Meta(description="impressions at which the latest changes began, oldest first")]
    since: Annotated[int, Meta(description="the impression at which the current model took over; 0: the first")]
    lists: Annotated[int, Meta(description="impressions learned so far")]


class Movement(Struct):
    """The latest impressions ranked by the current model, compared with the baseline ranking of the same items."""

    ranker: str
    version: str
    lists: Annotated[
        int, Meta(description="impressions compared; the other fields are means over them, null without any")
    ]
    displacement: Annotated[float | None, Meta(description="mean distance of an item from its baseline position")]
    agreement: Annotated[float | None, Meta(description="share of pairs in the same order as in the baseline")]
    same_first: Annotated[float | None, Meta(description="share of rankings with the same first item")]
    brought_up: Annotated[
        float | None, Meta(description="share of the items shown that the baseline ranking would not show")
    ]
    memory: Annotated[Memory | None, Meta(description="null: this learner does not remember queries")]
    drift: Annotated[DriftNoticed | None, Meta(description="null: this learner does not detect drift")]
