"""The audit list as it is told."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Change(Struct):
    """Something that was changed."""

    created: Annotated[float, Meta(description="when, in seconds of Unix time")]
    key: Annotated[
        str, Meta(description="the name of the key it was done with; empty where none is asked for", examples=["ops"])
    ]
    action: Annotated[str, Meta(description="a word for programs", examples=["promote"])]
    ranker: Annotated[str | None, Meta(description="whose change it was; null: not one ranker's")]
    text: Annotated[str, Meta(description="what it was, in a line", examples=["exposure shadow -> full"])]
    request_id: Annotated[str, Meta(description="of the call, as in the log; empty where it was none")]
