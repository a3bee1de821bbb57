"""The service as a whole: its status, the audit list, and what is stored under one user id."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from rankloop.wire.calls import EventCounts


class ServiceStatus(Struct):
    """The service, beside its rankers."""

    version: Annotated[str, Meta(description="of rankloop")]
    store: Literal["sqlite", "postgresql"]
    store_bytes: int
    free_disk_bytes: Annotated[int | None, Meta(description="where the store is; null: another machine's disk")]
    processes: Annotated[int, Meta(description="that use this store, on all machines")]
    webhook: Annotated[bool, Meta(description="whether this process sends demotions to a webhook")]
    events: Annotated[
        EventCounts,
        Meta(
            description="events whose impression is not known: `orphan`, and `rejected` if they could not be read; in "
            "the whole store"
        ),
    ] = field(default_factory=EventCounts)


class KeyInfo(Struct):
    """What the key of a request may do."""

    name: Annotated[str | None, Meta(description="null: the service asks for no key, and everything is allowed")]
    scopes: list[str]
    rankers: Annotated[list[str] | None, Meta(description="the rankers that it is limited to; null: all")]
    catalogs: Annotated[list[str] | None, Meta(description="the catalogs that it is limited to; null: all")]


class Reason(Struct):
    """Why a process does not serve as it should."""

    code: Annotated[
        Literal[
            "stopping",
            "compiling",
            "store",
            "thread",
            "rankers",
            "damaged",
            "hanging",
            "loading",
            "load-error",
            "stale",
        ],
        Meta(description="docs/operations.md explains each"),
    ]
    message: str
    count: Annotated[int, Meta(description="rankers concerned; 0: it concerns the whole process")] = 0
    rankers: Annotated[list[str], Meta(description="rankers that the key of the request may see")] = []


class Readiness(Struct):
    """Requests may come. Degraded: some get the baseline ranking, or a model that is not the newest."""

    status: Literal["ready", "degraded"]
    reasons: list[Reason] = []


class NotReady(Struct):
    """Requests should go elsewhere."""

    error: Literal["not-ready"]
    message: str
    request_id: str
    reasons: list[Reason]


class Change(Struct):
    """An entry of the audit list."""

    created: Annotated[float, Meta(description="when, in seconds of Unix time")]
    key: Annotated[str, Meta(description="name of the key; empty if the service asks for none", examples=["ops"])]
    action: Annotated[str, Meta(description="for programs", examples=["promote"])]
    ranker: Annotated[str | None, Meta(description="the ranker concerned; null: none")]
    text: Annotated[str, Meta(description="the change, in one line", examples=["exposure shadow -> full"])]
    request_id: Annotated[str, Meta(description="of the request, as in the log; empty for a command")]


class UserEvent(Struct):
    """A feedback event about an impression of the user."""

    event_id: str
    received: float
    status: Annotated[str, Meta(description="accepted, late, or rejected and not corrected")]
    body: Annotated[dict[str, Any], Meta(description="the event as it was sent; of a rejected one its valid parts")]


class UserOutcome(Struct):
    """A closed impression with its feedback."""

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
