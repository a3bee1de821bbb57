"""The rules of a shop, as requests and specs say them: what stands where, what is not shown, how much of a kind."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rankloop.wire.basics import ItemId


class Quota(Struct, forbid_unknown_fields=True, frozen=True):
    """At most so many of a kind in the first positions: two of a brand in the first ten."""

    field: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=128,
            description="of `groups` in the request, a feature, or a field of the catalog's items",
            examples=["brand"],
        ),
    ]
    most: Annotated[int, Meta(ge=1, le=1000, description="of one value")]
    within: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None, Meta(description="positions from the top; null: the whole list")
    ] = None


Position = Annotated[int, Meta(ge=1, le=1000)]
Pinned = Annotated[
    dict[str, Position],
    Meta(description="id: its position, 1 is the top", extra_json_schema={"examples": [{"red-shoe": 1}]}),
]
Excluded = Annotated[list[ItemId], Meta(description="ids that must not be shown; as if they had not been sent")]
Groups = Annotated[
    dict[str, list[str | int | None]],
    Meta(
        description="what quotas go by, where it is no feature: field, and its value for each candidate, null for none",
        extra_json_schema={"examples": [{"brand": ["acme", "zeta"]}]},
    ),
]
