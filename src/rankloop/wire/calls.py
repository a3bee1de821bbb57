"""The two calls that come with every user: rank and feedback, their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, MsgspecError, Struct, UnsetType, convert, json, structs

from rankloop.wire.basics import Excluded, Exposure, Groups, ItemId, Pinned, Quota, Text, Word

EventStatus = Literal["accepted", "duplicate", "late", "orphan", "rejected"]
Rewards = Annotated[
    dict[str, float] | None,
    Meta(
        description="id: reward. In the unit of the ranker's `reward`, such as the price that was paid; if the ranker "
        "declares none, a value from 0 to 1. Several rewards of one item are joined by `reward_aggregation`",
        extra_json_schema={"examples": [{"red-shoe": 49.9}]},
    ),
]
SeenDepth = Annotated[
    Annotated[int, Meta(ge=0, le=1000)] | None,
    Meta(description="number of positions from the top that were viewed; 0: the ranking was never viewed"),
]
Viewed = Annotated[
    list[ItemId] | None, Meta(description="ids that were viewed: the ranking was viewed down to the lowest of them")
]


class Candidate(Struct, forbid_unknown_fields=True, gc=False):
    """A candidate item."""

    id: Annotated[ItemId, Meta(description="all strings or all integers", examples=["red-shoe"])]
    features: Annotated[
        dict[str, float | None] | list[float | None] | None,
        Meta(
            description="by name, or as a list in the order of the ranker's feature names; null, or in an object "
            "left out, for a missing value, which gets the default of the ranker's spec",
            extra_json_schema={"examples": [{"bm25": 7.2, "price": 20.0}]},
        ),
    ] = None


class RankHead(Struct, forbid_unknown_fields=True, kw_only=True):
    """The part of a rank request that does not depend on the form of its candidates."""

    query: Text = ""
    k: Annotated[int, Meta(ge=1, le=1000)] | None = None
    request_id: Annotated[
        Word | None, Meta(description="the same request_id gets the same answer, however often it is sent")
    ] = None
    user: Annotated[Word | None, Meta(description="the user id that `DELETE /v1/users/{user}` erases")] = None
    fields: Annotated[
        dict[str, Any],
        Meta(
            description="fields of this request, for declared features: numbers, strings, lists",
            extra_json_schema={"examples": [{"device": "phone"}]},
        ),
    ] = {}
    token: Annotated[
        bool, Meta(description="true: return a token with which a browser may report clicks without a key")
    ] = False
    pinned: Pinned = {}
    excluded: Excluded = []
    quotas: Annotated[list[Quota], Meta(description="in addition to those of the ranker's spec")] = []
    groups: Groups = {}


class RankRequest(RankHead):
    """Candidates in the order of the baseline ranking, as objects."""

    candidates: Annotated[list[Candidate], Meta(min_length=1)]


class RankColumns(RankHead):
    """Candidates as ids in the order of the baseline ranking, with one table of features."""

    ids: Annotated[
        list[ItemId],
        Meta(
            min_length=1, description="all strings or all integers", extra_json_schema={"examples": [["hat", "shoe"]]}
        ),
    ]
    features: Annotated[
        list[list[float | None]] | dict[str, list[float | None]] | bytes | None,
        Meta(
            description="a row for each id in the order of the ranker's feature names, null where there is no value; "
            "or by name a column with a value for each id; or, fastest, the rows as one string: base64 of "
            "little-endian float64 or float32, NaN where there is no value",
            extra_json_schema={"examples": [[[7.2, 20.0], [3.1, 9.0]]]},
        ),
    ] = None


class Contribution(Struct):
    """The contribution of a feature to a linear score: weight x value."""

    value: float
    weight: float
    contribution: float


class RankedItem(Struct, omit_defaults=True):
    """An item at its position, 1 is the top."""

    id: ItemId
    position: int
    score: float | None
    features: dict[str, Contribution] | UnsetType = UNSET


class RankAnswer(Struct):
    """The ranking to show. Send feedback with its impression_id."""

    impression_id: Annotated[
        str | None, Meta(description="null if the impression is not stored: show the ranking, send no feedback")
    ]
    ranker: str
    version: Annotated[
        str, Meta(description="live@N: learned from N outcomes; vN: a version that was promoted", examples=["live@42"])
    ]
    exposure: Exposure
    fallback: Annotated[bool, Meta(description="true: the baseline ranking, because of `reason`")]
    items: list[RankedItem]
    reason: str | None = None
    request_id: str | None = None
    experiment: Annotated[
        int | None, Meta(description="the experiment (or guardrail) for which this ranking was interleaved")
    ] = None
    token: Annotated[
        str | UnsetType | None,
        Meta(description="on request: for `POST /v1/beacon`, until the window ends; null without impression_id"),
    ] = UNSET
    chances: Annotated[
        dict[str, float | None] | UnsetType,
        Meta(
            description="for adapters that ask: each candidate, in the order believed best, with the probability that "
            "it stood first; null where that is not known"
        ),
    ] = UNSET
    relaxed: Annotated[
        list[str] | UnsetType, Meta(description="fields of quotas that could not be met, for lack of other candidates")
    ] = UNSET


class FeedbackEvent(Struct, forbid_unknown_fields=True):
    """Feedback of a user on an impression; several events of one impression are joined."""

    event_id: Annotated[
        str, Meta(min_length=1, max_length=512, description="chosen by the caller; sent twice it counts once")
    ]
    impression_id: Annotated[str, Meta(min_length=1, max_length=64)]
    clicks: Annotated[
        list[ItemId] | None, Meta(description="ids that were clicked; []: none", examples=[["red-shoe"]])
    ] = None
    grades: Annotated[dict[str, float] | None, Meta(description="id: grade")] = None
    final: Annotated[
        bool,
        Meta(description="true: no more events follow, learn now; false: wait for the end of the attribution window"),
    ] = False
    rewards: Rewards = None
    seen: SeenDepth = None
    viewed: Viewed = None


NO_ID = "(none)"  # of a malformed event without a usable event_id


def readable_parts(raw: bytes) -> FeedbackEvent:
    """The parts of a malformed event that can be read. It has no impression_id if the event names none.

    >>> found = readable_parts(b'{"impression_id": "01m7", "clicks": ["hat"], "rewards": {"hat": "4", "cap": 2}}')
    >>> found.event_id, found.clicks, found.rewards
    ('(none)', ['hat'], {'cap': 2.0})
    """
    try:
        sent = json.decode(raw, type=dict[str, Any])
    except MsgspecError:
        sent = {}
    found = {name: _readable(name, sent[name]) for name in _KINDS if sent.get(name) is not None}
    event_id, impression_id = found.pop("event_id", None), found.pop("impression_id", None)
    if event_id is None or "\0" in event_id:
        event_id = NO_ID
    if impression_id is None or "\0" in impression_id:
        impression_id = ""
    found.pop("final", None)
    return FeedbackEvent(event_id, impression_id, **found)


_KINDS: dict[str, Any] = {one.name: one.type for one in structs.fields(FeedbackEvent)}


def _readable(name: str, value: Any) -> Any:
    """The value of a field, or as many of its entries as can be read; None if none can."""
    if (found := _converted(value, _KINDS[name])) is not None:
        return found
    if name in ("clicks", "viewed") and isinstance(value, list):
        return [one for one in value if _converted(one, ItemId) is not None] or None
    if name in ("rewards", "grades") and isinstance(value, dict):
        numbers = {item: _converted(one, float) for item, one in value.items()}
        return {item: one for item, one in numbers.items() if one is not None} or None
    return None


def _converted(value: Any, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except (MsgspecError, OverflowError):
        return None


class Beacon(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Feedback of a user, reported by a browser with the token of a ranking. Several of one ranking are joined."""

    token: Annotated[str, Meta(min_length=1, max_length=512, description="as returned with the ranking")]
    event_id: Annotated[str, Meta(min_length=1, max_length=512, description="sent twice it counts once")]
    clicks: Annotated[
        list[ItemId] | None, Meta(description="ids that were clicked; []: none", examples=[["red-shoe"]])
    ] = None
    final: Annotated[
        bool,
        Meta(description="true: no more events follow, learn now; false: wait for the end of the attribution window"),
    ] = False
    rewards: Rewards = None
    seen: SeenDepth = None
    viewed: Viewed = None


class Receipt(Struct, omit_defaults=True):
    """The result of an event."""

    event_id: str | None
    status: EventStatus
    reason: str | None = None
    kept: Annotated[
        list[str],
        Meta(
            description="rejected: fields with valid parts, which count until the event is sent again, corrected, with "
            "the same event_id"
        ),
    ] = []


class FeedbackAnswer(Struct):
    """A receipt per event, in the order sent, and counts by status."""

    results: list[Receipt]
    counts: dict[str, int]


class RejectedEvent(Struct):
    """A rejected event."""

    time: float
    event_id: str | None
    reason: str


class EventDay(Struct):
    """Events of one day that were not accepted."""

    start: Annotated[int, Meta(description="Unix time of the start of the day (UTC)")]
    rejected: int = 0
    late: int = 0
    duplicate: int = 0
    orphan: int = 0


class EventCounts(Struct):
    """Events that were not accepted, since the ranker was made. Stored with the events: a restart keeps them."""

    rejected: int = 0
    late: int = 0
    duplicate: int = 0
    orphan: Annotated[
        int, Meta(description="of unknown impressions; no ranker is known, so `GET /v1/service` has them")
    ] = 0
    needs_attention: Annotated[
        int,
        Meta(
            description="impressions with a rejected event that has not been corrected; without a click they are not "
            "learned"
        ),
    ] = 0
    last_rejected: RejectedEvent | None = None
    days: Annotated[
        list[EventDay], Meta(description="the last 7 days, oldest first, without days that had no such events")
    ] = []
