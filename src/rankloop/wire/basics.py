"""What the messages share: names, ids, shares, and how a problem is told."""

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
    """What is wrong, and what to do about it."""

    error: Annotated[str, Meta(description="a word for programs", examples=["unknown-feature"])]
    message: Annotated[str, Meta(description="a sentence for people")]
    request_id: Annotated[str, Meta(description="as in the header X-Request-Id, and in the service's log")] = ""
