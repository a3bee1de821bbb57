"""What the process says of itself: whether requests may come, and how much room its store takes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class ServiceStatus(Struct):
    """The service, beside its rankers."""

    version: Annotated[str, Meta(description="of rankloop")]
    store: Literal["sqlite", "postgresql"]
    store_bytes: int
    free_disk_bytes: Annotated[int | None, Meta(description="where the store is; null: another machine's disk")]
    processes: Annotated[int, Meta(description="that serve this store, on all machines")]
    webhook: Annotated[bool, Meta(description="whether this process tells somebody of demotions")]


class Readiness(Struct):
    """That requests may come, and which rankers answer with your order for want of kernels."""

    status: Literal["ready"]
    warming: Annotated[int, Meta(description="rankers whose kernels are being compiled or loaded in this process")]
    rankers: Annotated[list[str], Meta(description="those of them that the key sent, or having none, may look at")]
