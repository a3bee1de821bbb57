"""What travels over HTTP: requests and answers as msgspec structs. OpenAPI, client and engine all read these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)"  # Python's $ would let a line end pass behind the name
Text = Annotated[str, Meta(max_length=512)]
Word = Annotated[str, Meta(min_length=1, max_length=512)]
ItemId = Annotated[str, Meta(min_length=1, max_length=256)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Exposure = Literal["shadow", "bounded", "full"]
Normalisation = Literal["query-minmax", "none"]
EventStatus = Literal["accepted", "duplicate", "late", "orphan", "rejected"]
Share = Annotated[float, Meta(gt=0, le=1)]
Alpha = Annotated[float, Meta(ge=1e-6, le=0.4)]


class Guardrail(Struct, forbid_unknown_fields=True, frozen=True):
    """A watch on the learned ranking: a share of the lists is mixed with the base order, and if users prefer the base
    order, exposure goes down to shadow."""

    share: Annotated[
        Share, Meta(description="of the requests; the others are served as if there were no guardrail")
    ] = 0.1
    alpha: Annotated[
        Alpha, Meta(description="how likely a ranking that is never worse is demoted, ever; however often one looks")
    ] = 0.05


class Spec(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How a ranker ranks, what it shows of it, and how it takes feedback."""

    learner: Annotated[str, Meta(description="a name of `rankloop learners`", examples=["hybrid"])] = "hybrid"
    parameters: Annotated[
        dict[str, Any], Meta(description="of the learner", extra_json_schema={"examples": [{"alpha": 0.3}]})
    ] = {}
    features: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=128)]],
        Meta(description="names, in order; every candidate must carry all of them", examples=[["bm25", "price"]]),
    ] = []
    normalisation: Annotated[
        Normalisation, Meta(description="query-minmax scales each feature to [0, 1] within a request")
    ] = "query-minmax"
    k: Annotated[int, Meta(ge=1, le=1000, description="how many positions are shown, unless a request says")] = 10
    exposure: Annotated[
        Exposure,
        Meta(description="shadow: your order is shown; bounded: items move a little; full: the learner's list"),
    ] = "shadow"
    displacement: Annotated[
        int, Meta(ge=0, le=1000, description="bounded: how many positions an item may move from your order")
    ] = 3
    window_seconds: Annotated[
        float, Meta(ge=0.1, le=2_592_000, description="how long an impression waits for feedback that is not final")
    ] = 1800.0
    silence: Annotated[
        Literal["no-click", "ignore"],
        Meta(description="what it means when the window closes and nothing was reported"),
    ] = "no-click"
    timeout_ms: Annotated[
        float, Meta(ge=1, le=60_000, description="a learner slower than this gives your order with fallback=true")
    ] = 100.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    guardrail: Annotated[
        Guardrail | None,
        Meta(description="bounded, full: drops exposure to shadow if users prefer your order; null: off"),
    ] = Guardrail()


class Candidate(Struct, forbid_unknown_fields=True, gc=False):
    """One item that may be shown."""

    id: Annotated[ItemId, Meta(description="all strings or all integers", examples=["red-shoe"])]
    features: Annotated[
        dict[str, float] | list[float] | None,
        Meta(
            description="by name, or as a list in the order of the ranker's feature names",
            examples=[{"bm25": 7.2, "price": 20.0}],
        ),
    ] = None


class RankRequest(Struct, forbid_unknown_fields=True):
    """Candidates in the order you would show them (the base order)."""

    candidates: Annotated[list[Candidate], Meta(min_length=1)]
    query: Text = ""
    k: Annotated[int, Meta(ge=1, le=1000)] | None = None
    request_id: Annotated[
        Word | None, Meta(description="the same request_id gets the same answer, however often it is sent")
    ] = None
    user: Annotated[Word | None, Meta(description="whom `DELETE /v1/users/{user}` forgets")] = None


class Contribution(Struct):
    """A feature's share of a linear score: weight x value."""

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
    """What to show. Send feedback with its impression_id."""

    impression_id: Annotated[
        str | None, Meta(description="null only if the store is down: show the list, there is nothing to report")
    ]
    ranker: str
    version: Annotated[
        str, Meta(description="live@N: learned from N outcomes; vN: a version that was promoted", examples=["live@42"])
    ]
    exposure: Exposure
    fallback: Annotated[bool, Meta(description="true: your own order, because of `reason`")]
    items: list[RankedItem]
    reason: str | None = None
    request_id: str | None = None
    experiment: Annotated[int | None, Meta(description="the experiment (or guardrail) this list was mixed for")] = None


class FeedbackEvent(Struct, forbid_unknown_fields=True):
    """What a user did with an impression; several events of one impression are joined."""

    event_id: Annotated[str, Meta(min_length=1, max_length=512, description="yours; sent twice it counts once")]
    impression_id: Annotated[str, Meta(min_length=1, max_length=64)]
    clicks: Annotated[
        list[ItemId] | None, Meta(description="ids that were clicked; [] says: none", examples=[["red-shoe"]])
    ] = None
    grades: Annotated[dict[str, float] | None, Meta(description="id: grade")] = None
    final: Annotated[
        bool, Meta(description="true: nothing more will come, learn now; false: wait for the window to close")
    ] = False


class Receipt(Struct, omit_defaults=True):
    """What became of an event."""

    event_id: str | None
    status: EventStatus
    reason: str | None = None


class FeedbackAnswer(Struct):
    """A receipt an event, in the order they were sent, and how many of each kind."""

    results: list[Receipt]
    counts: dict[str, int]


class VersionRequest(Struct, forbid_unknown_fields=True):
    """Which version, and a note for what is kept."""

    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31)] | Literal["live"] | None,
        Meta(description='promote: a number, "live", or none for what is learned now; rollback: a number, or none'),
    ] = None
    note: Text = ""


class VersionInfo(Struct):
    """An immutable copy of what was learned."""

    version: int
    learned: Annotated[int, Meta(description="how many outcomes it has seen")]
    created: float
    note: str
    serving: bool


Interval = tuple[float, float]
Verdict = Literal["better", "worse", "undecided"]


class ExperimentRequest(Struct, forbid_unknown_fields=True):
    """Compare what the ranker shows with something else, on a share of its requests."""

    against: Annotated[
        Annotated[int, Meta(ge=1, le=2**31)] | Annotated[str, Meta(pattern=NAME)],
        Meta(description='"base": your order; a number: that version; "live": what is learned; or another ranker'),
    ] = "base"
    share: Annotated[Share, Meta(description="of the requests that are answered with a mixed list")] = 0.2
    mixing: Annotated[
        Literal["team-draft", "probabilistic"],
        Meta(
            description="team-draft: only what one of the two puts highest; probabilistic: sees every difference, but "
            "anything may come up anywhere (needs exposure full)"
        ),
    ] = "team-draft"
    exposure: Annotated[
        Literal["bounded", "full"] | None,
        Meta(description="which of the ranker's lists is tried; none: those of its exposure, unless that is shadow"),
    ] = None
    alpha: Annotated[Alpha, Meta(description="how likely the verdict is ever wrong, however often one looks")] = 0.05
    effect: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="the smallest preference worth finding, of the lists that decide: 0.1 is 55 to 45. Only for "
            "the forecast `lists_needed`",
        ),
    ] = 0.1
    note: Text = ""


class Evidence(Struct):
    """What was known when a verdict fell."""

    when: float
    lists: int
    preference: float
    interval: Interval


class Experiment(Struct, kw_only=True):
    """A comparison on live traffic, as far as it has come."""

    id: Annotated[int, Meta(description="counts from 1 for each ranker")]
    ranker: str
    kind: Literal["experiment", "guardrail"]
    against: Annotated[str, Meta(description="base, live, a version as vN, or a ranker's name")]
    share: float
    mixing: str
    exposure: Annotated[Exposure, Meta(description="of the ranker's lists that are mixed")]
    alpha: float
    effect: float
    note: str
    state: Annotated[
        Literal["running", "stopped", "demoted"],
        Meta(description="demoted: a guardrail that has put its ranker into shadow"),
    ]
    reason: Annotated[str | None, Meta(description="why it ended")]
    started: float
    ended: float | None
    lists: Annotated[int, Meta(description="mixed lists whose feedback is in")]
    wins: Annotated[int, Meta(description="lists with more clicks on what the ranker put there than on the other's")]
    losses: int
    decided: Annotated[int, Meta(description="wins + losses; the others have no clicks, or no side is ahead")]
    preference: Annotated[
        float | None,
        Meta(description="mean over lists of the share of clicks on the ranker's items minus the other's, -1 to 1"),
    ]
    interval: Annotated[Interval, Meta(description="holds the true preference, at every time one looks, with `level`")]
    level: Annotated[float, Meta(description="1 - alpha")]
    verdict: Verdict
    evidence: Annotated[Evidence | None, Meta(description="when the verdict fell; null while undecided")]
    lists_needed: Annotated[
        int | None,
        Meta(
            description="further lists that find a preference of `effect` or more with 95 %; null: not to be told yet"
        ),
    ]
    seconds_needed: Annotated[float | None, Meta(description="how long these take at the present rate")]
    lists_likely: Annotated[
        int | None,
        Meta(description="further lists to an even chance of a verdict, by what was seen so far; null as above"),
    ]
    seconds_likely: float | None
    lists_per_second: Annotated[float, Meta(description="the present rate")]


class RankerStatus(Struct):
    """A ranker as it stands."""

    name: str
    spec: Spec
    serving: Annotated[str, Meta(description="live, or the promoted version as vN")]
    learning: Annotated[bool, Meta(description="false after `pause`: feedback is kept but not learned")]
    outcomes: Annotated[int, Meta(description="closed impressions so far")]
    learned: Annotated[int, Meta(description="how many of them the learner is past: learned, or passed over")]
    lag: Annotated[int, Meta(description="outcomes - learned")]
    open_impressions: int
    learner_process: Annotated[str | None, Meta(description="who holds the lease and learns")]
    snapshot_at: Annotated[int | None, Meta(description="outcomes in the last snapshot")]
    created: float
    counts: Annotated[dict[str, int], Meta(description="events of this process since it started")] = field(
        default_factory=dict
    )
    demoted: Annotated[
        Evidence | None,
        Meta(description="why the guardrail put it into shadow; null once exposure is put up, or the guardrail is off"),
    ] = None


class WarmAnswer(Struct):
    """What became of logged lists."""

    lists: Annotated[int, Meta(description="added to the log now; they are learned behind this answer")]
    clicks: int
    known: Annotated[int, Meta(description="in the log already: sent before, and counted then")]
    skipped: Annotated[int, Meta(description="malformed, and so left out")]
    problems: Annotated[list[str], Meta(description="line: what is wrong with it, of the first of those")]


class Erased(Struct):
    """What was deleted of a user."""

    impressions: int
    events: int
    pending: Annotated[int, Meta(description="unlinked from the user now, deleted when the next snapshot covers them")]


class Problem(Struct):
    """What is wrong, and what to do about it."""

    error: Annotated[str, Meta(description="a word for programs", examples=["unknown-feature"])]
    message: Annotated[str, Meta(description="a sentence for people")]
