"""What the process says of itself: whether requests may come, and how much room its store takes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rankloop.wire.calls import EventCounts


class ServiceStatus(Struct):
    """The service, beside its rankers."""

    version: Annotated[str, Meta(description="of rankloop")]
    store: Literal["sqlite", "postgresql"]
    store_bytes: int
    free_disk_bytes: Annotated[int | None, Meta(description="where the store is; null: another machine's disk")]
    processes: Annotated[int, Meta(description="that serve this store, on all machines")]
    webhook: Annotated[bool, Meta(description="whether this process tells somebody of demotions")]
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
    rankers: Annotated[
        list[str], Meta(description="the names of those that the key sent, or having none, may look at")
    ] = []


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
