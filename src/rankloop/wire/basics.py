"""Types that the messages share: names, ids, shares, rules of a ranking, errors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)"  # Python's $ would let a line end pass behind the name
Text = Annotated[str, Meta(max_length=512)]
Word = Annotated[str, Meta(min_length=1, max_length=512)]
ItemId = Annotated[str, Meta(min_length=1, max_length=256)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Exposure = Literal["shadow", "bounded", "full"]
Share = Annotated[float, Meta(gt=0, le=1)]
Alpha = Annotated[float, Meta(ge=1e-6, le=0.4)]


class Problem(Struct, omit_defaults=True):
    """An error: what is wrong and what to do."""

    error: Annotated[str, Meta(description="for programs", examples=["unknown-feature"])]
    message: Annotated[str, Meta(description="for people")]
    request_id: Annotated[str, Meta(description="as in the header X-Request-Id, and in the service's log")] = ""


class Quota(Struct, forbid_unknown_fields=True, frozen=True):
    """At most `most` items with the same value of a field in the first positions: two per brand in the first ten."""

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
        Annotated[int, Meta(ge=1, le=1000)] | None, Meta(description="positions from the top; null: the whole ranking")
    ] = None


Position = Annotated[int, Meta(ge=1, le=1000)]
Pinned = Annotated[
    dict[str, Position],
    Meta(description="id: its position, 1 is the top", extra_json_schema={"examples": [{"red-shoe": 1}]}),
]
Excluded = Annotated[list[ItemId], Meta(description="ids that must not be shown")]
Groups = Annotated[
    dict[str, list[str | int | None]],
    Meta(
        description="fields for quotas that are not features: a value for each candidate, null for none",
        extra_json_schema={"examples": [{"brand": ["acme", "zeta"]}]},
    ),
]
