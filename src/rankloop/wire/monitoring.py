"""Curves, latest impressions, weights and movement of a ranker."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rankloop.wire.basics import Exposure, ItemId
from rankloop.wire.calls import RejectedEvent


class Point(Struct, omit_defaults=True):
    """What happened from `start` on for one step. A mean is left out if there was nothing to take it of."""

    start: Annotated[float, Meta(description="Unix time")]
    lists: Annotated[int, Meta(description="lists that were answered")] = 0
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
        float | None, Meta(description="share of the pairs in the latest lists whose order the learner is not sure of")
    ] = None
    fallbacks: Annotated[float | None, Meta(description="share of lists that were your order for want of a better")] = (
        None
    )
    unlearned_impressions: Annotated[
        int | None, Meta(description="the most closed impressions that waited to be learned")
    ] = None
    ndcg: Annotated[float | None, Meta(description="NDCG of the lists shown, where the truth is known (demo)")] = None


class PositionRate(Struct):
    """How often a position was shown in closed impressions, and clicked."""

    position: int
    shown: int
    clicked: int


class Series(Struct):
    """How a ranker has fared. Steps in which nothing happened are left out."""

    ranker: str
    now: Annotated[float, Meta(description="the service's time; the last step is still going on")]
    since: float
    step: Annotated[int, Meta(description="seconds")]
    points: list[Point]
    total: Annotated[Point, Meta(description="over all of the time from `since` to `now`")]
    positions: Annotated[list[PositionRate], Meta(description="over all of the time; the 51st is all below 50")]


class ShownItem(Struct):
    """An item as it was shown."""

    id: ItemId
    position: int
    base: Annotated[int, Meta(description="its position in your order")]
    best: Annotated[int | None, Meta(description="its place among these by what the learner believes; null: unknown")]
    value: Annotated[
        float | None,
        Meta(description="what a click was worth, 1 or a reward, or its grade; null while nothing was reported"),
    ]
    reward: Annotated[float | None, Meta(description="in the unit of the ranker's `reward`")] = None


class Doubt(Struct):
    """A pair whose order the learner was not sure of."""

    upper: Annotated[int, Meta(description="position")]
    lower: int
    swapped: Annotated[bool, Meta(description="shown against what the learner believes, to find out")]


class ShownList(Struct):
    """A list as it was shown, what was tried in it, and what became of it."""

    impression_id: str
    created: float
    query: str
    version: str
    exposure: Exposure
    reason: Annotated[str | None, Meta(description="why it was your order instead of the ranker's; null: it was not")]
    experiment: Annotated[int | None, Meta(description="for which it was mixed; then nothing is told of swaps")]
    items: list[ShownItem]
    pairs: Annotated[int | None, Meta(description="pairs of which is known whether the learner was sure")]
    uncertain: Annotated[int | None, Meta(description="how many of them it was not sure of")]
    doubts: Annotated[list[Doubt], Meta(description="those, at most 20: first the ones that were swapped")]
    outcome: Annotated[
        Literal["open", "final", "window", "silent", "ignored", "logged"],
        Meta(description="open: still waits for feedback; logged: shown before rankloop was there"),
    ]
    learned: Annotated[bool, Meta(description="whether the learner takes it in: not while paused, not a fallback")]
    seen: Annotated[int | None, Meta(description="positions that came into view; null: not reported")] = None
    attention: Annotated[list[RejectedEvent], Meta(description="rejected events that have not been corrected")] = []


class Weight(Struct):
    """What a linear ranker thinks of a feature."""

    feature: str
    weight: float
    confidence: Annotated[
        float | None, Meta(description="the learner takes weight ± this as certain; null: it does not say")
    ]


class Weights(Struct):
    """The weights that rank now, the largest first."""

    ranker: str
    version: str
    linear: Annotated[bool, Meta(description="false: this learner has no weights to show")]
    features: int
    weights: list[Weight]


class Memory(Struct):
    """What a ranker that remembers queries remembers."""

    queries: Annotated[int, Meta(description="how many it remembers now")]
    share: Annotated[float | None, Meta(description="of the latest lists, those whose query is; null: no list yet")]


class DriftNoticed(Struct):
    """What a ranker that follows users has noticed; lists are counted as it learns from them, from 1 on."""

    alarms: Annotated[int, Meta(description="changes that it is sure of")]
    latest: Annotated[list[int], Meta(description="the lists from which on the latest of them were met, oldest first")]
    since: Annotated[int, Meta(description="the list at which the model that ranks took over; 0: it always did")]
    lists: Annotated[int, Meta(description="learned from so far")]


class Movement(Struct):
    """How the latest lists would stand by what the ranker believes now, against your order of the same items."""

    ranker: str
    version: str
    lists: Annotated[int, Meta(description="looked at; the figures are means over them, null where there are none")]
    displacement: Annotated[float | None, Meta(description="places that an item is away from where you have it")]
    agreement: Annotated[float | None, Meta(description="share of pairs that stand as you have them")]
    same_first: Annotated[float | None, Meta(description="share of lists with the same first item")]
    brought_up: Annotated[
        float | None, Meta(description="share of the items shown that your order has below the end of the list")
    ]
    memory: Annotated[Memory | None, Meta(description="null: this learner remembers no queries")]
    drift: Annotated[DriftNoticed | None, Meta(description="null: this learner does not look for it")]
