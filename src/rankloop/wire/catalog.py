"""Catalogs as they travel: what became of each line, and what there is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

LineStatus = Literal["accepted", "unchanged", "rejected", "deleted", "unknown"]


class CatalogLine(Struct):
    """An item or a user: its id, and fields of any name: numbers, true or false, strings, lists of strings or
    of numbers, times as RFC 3339; null where there is no value."""

    id: Annotated[str | int, Meta(description='7 and "7" are the same')]


class LineReceipt(Struct, omit_defaults=True):
    """The result of a line."""

    line: Annotated[int, Meta(description="counts from 1; of an array the place in it")]
    status: Annotated[
        LineStatus,
        Meta(
            description="accepted: stored; unchanged: it was there just so; rejected: see `reason`; deleted, unknown: "
            "of calls that delete"
        ),
    ]
    id: Annotated[str | None, Meta(description="null: the line has none, or cannot be read")] = None
    reason: str | None = None


class CatalogAnswer(Struct):
    """A receipt per line, in the order sent, and counts by status."""

    results: list[LineReceipt]
    counts: dict[str, int]
    warnings: Annotated[
        list[str], Meta(description="new fields whose names are similar to one that a ranker's features read")
    ] = field(default_factory=list)


class FieldInfo(Struct):
    """A field of items."""

    name: str
    kind: Annotated[
        Literal["number", "boolean", "string", "strings", "vector", "timestamp"],
        Meta(description="of the first value that was sent; values of other kinds are rejected"),
    ]
    width: Annotated[int, Meta(description="numbers of a vector; else 0")] = 0
    filled: Annotated[
        int | None, Meta(description="how many items have it; null while they are counted, after an upgrade")
    ] = None


class PartInfo(Struct):
    """The items, or the users, of a catalog."""

    count: Annotated[int, Meta(description="that there are")]
    changes: Annotated[int, Meta(description="so far, since it was made or emptied")]
    fields: list[FieldInfo]
    memory: Annotated[int, Meta(description="bytes that they take in a process that ranks, about")]
    held: Annotated[
        bool, Meta(description="whether the process that answers holds them, because a ranker names the catalog")
    ]
    behind: Annotated[int, Meta(description="changes that it has not taken in yet")]


class CatalogInfo(Struct):
    """A catalog."""

    name: str
    items: PartInfo
    users: PartInfo
    rankers: Annotated[list[str], Meta(description="whose spec names it")]
    memory: Annotated[int, Meta(description="bytes that it takes in the process that answers; 0: not held there")]
    unknown_ids: Annotated[
        int, Meta(description="ids in requests to those rankers, in that process since it started, that are not in it")
    ]


class Entry(Struct):
    """One item or user."""

    id: str
    fields: Annotated[dict[str, Any], Meta(description="as they were sent")]


class Emptied(Struct):
    """How many were deleted."""

    deleted: int
