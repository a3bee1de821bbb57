"""What is stored under one user id: exported, and erased."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class UserEvent(Struct):
    """A feedback event about an impression of the user."""

    event_id: str
    received: float
    status: Annotated[str, Meta(description="accepted, late, or rejected and not corrected")]
    body: Annotated[dict[str, Any], Meta(description="the event as it was sent; of a rejected one its valid parts")]


class UserOutcome(Struct):
    """What the feedback on an impression amounted to when it was closed."""

    number: Annotated[int, Meta(description="its sequence number in the log of the ranker")]
    kind: str
    learned: bool
    feedback: list[float]
    viewed: int | None
    created: float


class UserImpression(Struct):
    """A ranking that was shown to the user."""

    impression_id: str
    ranker: str
    created: float
    request_id: str | None
    open: Annotated[bool, Meta(description="whether it still waits for feedback")]
    query: str
    shown: Annotated[list[Any], Meta(description="item ids from the top")]
    features: Annotated[
        list[Any] | None,
        Meta(description="per ranked item: values by column, or a column-to-value object for hashed features"),
    ]
    answer: Annotated[dict[str, Any], Meta(description="the answer that was sent")]
    feedback: Annotated[list[float | None] | None, Meta(description="by position, so far; null: none")]
    viewed: int | None
    rewards: Annotated[list[float | None] | None, Meta(description="by position, in the unit of the ranker's reward")]
    events: list[UserEvent]
    outcome: UserOutcome | None


class UserEntry(Struct):
    """The row of the user in a catalog."""

    catalog: str
    changed: float
    fields: dict[str, Any]


class UserCounter(Struct):
    """What the stored counters of a ranker hold for the user alone."""

    ranker: str
    counter: Annotated[str, Meta(description="a window of time, or the last clicks", examples=["window 1d"])]
    keys: int
    impressions: float
    clicks: float
    rewards: float
    clicked_at: Annotated[list[float], Meta(description="times of the last clicks")]


class UserExport(Struct):
    """Everything that is stored under one user id."""

    user: str
    impressions: Annotated[list[UserImpression], Meta(description="oldest first, at most `limit`")]
    next: Annotated[str | None, Meta(description="send it as `after` for further impressions; null: there are none")]
    entries: Annotated[list[UserEntry], Meta(description="in catalogs")]
    counters: list[UserCounter]
    not_listed: Annotated[list[str], Meta(description="what may derive from the user and cannot be listed here")]


class Remaining(Struct):
    """Something that an erasure could not delete at once."""

    place: str
    rows: Annotated[int | None, Meta(description="how many; null: not known")]
    until: str


class Erased(Struct):
    """What was deleted under one user id, by table, and what remains."""

    impressions: int
    events: int
    pending: Annotated[int, Meta(description="impressions unlinked now, deleted when a snapshot covers them")]
    entries: Annotated[int, Meta(description="rows in catalogs")] = 0
    outcomes: int = 0
    counters: Annotated[int, Meta(description="keys of stored counters")] = 0
    remains: list[Remaining] = []
