"""Rankers: spec, status, versions, lineage and warm start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field, structs

from rankloop.wire.basics import NAME, Alpha, Excluded, Exposure, Pinned, Quota, Share, Text
from rankloop.wire.calls import EventCounts
from rankloop.wire.experiments import Evidence

CLICK_VALUE = 0.3  # of a click where a reward is declared, unless the spec says otherwise
Normalization = Literal["query-minmax", "stream", "none"]


class Guardrail(Struct, forbid_unknown_fields=True, frozen=True):
    """A watch on the learned ranking: a share of the lists is mixed with the base order, and if users prefer the base
    order, exposure goes down to shadow."""

    share: Annotated[
        Share, Meta(description="of the requests; the others are served as if there were no guardrail")
    ] = 0.1
    alpha: Annotated[
        Alpha, Meta(description="how likely a ranking that is never worse is demoted, ever; however often one looks")
    ] = 0.05


class Reward(Struct, forbid_unknown_fields=True, frozen=True):
    """What events report as `rewards`, in the unit that the caller has."""

    name: Annotated[str, Meta(min_length=1, max_length=64, examples=["revenue"])] = "reward"
    unit: Annotated[str, Meta(max_length=32, examples=["EUR"])] = ""
    scale: Annotated[
        Annotated[float, Meta(gt=0)] | Literal["auto"],
        Meta(
            description="the reward that is worth 1; higher ones are worth no more. auto: the 0.95 quantile of the "
            "positive rewards of the last few thousand outcomes"
        ),
    ] = "auto"


class Spec(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How a ranker ranks, what it shows of it, and how it takes feedback."""

    learner: Annotated[str, Meta(description="a name of `rankloop learners`", examples=["hybrid"])] = "hybrid"
    parameters: Annotated[
        dict[str, Any], Meta(description="of the learner", extra_json_schema={"examples": [{"alpha": 0.3}]})
    ] = {}
    features: Annotated[
        Sequence[Annotated[str, Meta(min_length=1, max_length=128)] | dict[str, Any]],
        Meta(
            description="in order: a name, which every candidate must carry unless it has a default, or a declaration "
            "of how it is computed, an object with name and kind (docs/features.md)",
            extra_json_schema={"examples": [["bm25", {"name": "price", "kind": "field", "of": "item.price"}]]},
        ),
    ] = []
    catalog: Annotated[
        Annotated[str, Meta(pattern=NAME)] | None,
        Meta(description="where declared features find items and users by their ids (docs/catalog.md)"),
    ] = None
    unknown: Annotated[
        Literal["default", "refuse"],
        Meta(description="an id that is not in the catalog: has what the features declare for missing, or is refused"),
    ] = "default"
    defaults: Annotated[
        dict[str, float],
        Meta(
            description="feature: the value of a candidate that has none (left out by name, or null); a feature "
            "without a default must always be sent",
            extra_json_schema={"examples": [{"price": 0.0}]},
        ),
    ] = {}
    width: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            description="columns of hashed features, say 100000, in place of `features`: candidates send whatever they "
            "have by name, or sparse rows; for learners with confidence=diagonal and squarecb, with normalization none",
        ),
    ] = 0
    normalization: Annotated[
        Normalization,
        Meta(
            description="stream standardizes each feature by the mean and spread learned so far, which a search engine "
            "can apply, too; query-minmax scales it to [0, 1] within a request; none leaves it as it is"
        ),
    ] = "stream"
    k: Annotated[int, Meta(ge=1, le=1000, description="positions shown, unless a request gives `k`")] = 10
    exposure: Annotated[
        Exposure,
        Meta(description="shadow: baseline ranking; bounded: items move a little; full: the learner's ranking"),
    ] = "shadow"
    displacement: Annotated[
        int, Meta(ge=0, le=1000, description="bounded: positions that an item may move from the baseline")
    ] = 3
    window_seconds: Annotated[
        float, Meta(ge=0.1, le=2_592_000, description="how long an impression waits for feedback that is not final")
    ] = 1800.0
    silence: Annotated[
        Literal["no-click", "ignore"],
        Meta(description="what it means when the window closes and nothing was reported, no view either"),
    ] = "no-click"
    reward: Annotated[
        Reward | None,
        Meta(
            description="what `rewards` of events are, and in which unit; an item is worth click_reward + "
            "(1 - click_reward) * min(reward / scale, 1). null: they are values from 0 to 1"
        ),
    ] = None
    click_reward: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="the value of a click, from 0 to 1. null: 1, or 0.3 with a `reward`, which must raise it"),
    ] = None
    reward_aggregation: Annotated[
        Literal["max", "sum", "earliest"],
        Meta(
            description="how several rewards of one item are joined: the highest; their sum, at most 1 unless there is "
            "a `reward`; the first"
        ),
    ] = "max"
    timeout_ms: Annotated[
        float,
        Meta(ge=1, le=60_000, description="a slower learner is replaced by the baseline ranking with fallback=true"),
    ] = 100.0
    pinned: Pinned = {}
    excluded: Excluded = []
    quotas: Annotated[list[Quota], Meta(description="of every ranking")] = []
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    interactions: Annotated[
        dict[str, Annotated[float, Meta(ge=0, le=1)]],
        Meta(
            description="what the actions that Metarank and UBI report are worth, by name; without any a click is a "
            "click and nothing else counts",
            extra_json_schema={"examples": [{"click": 0.3, "purchase": 1.0}]},
        ),
    ] = {}
    default_reward: Annotated[
        float,
        Meta(
            ge=0, le=1, description="what the first item of a list is worth of which nothing was reported; 0: nothing"
        ),
    ] = 0.0
    guardrail: Annotated[
        Guardrail | None,
        Meta(description="bounded, full: sets exposure to shadow if users prefer the baseline; null: off"),
    ] = Guardrail()

    @property
    def click_value(self) -> float:
        """The value of a click."""
        return self.click_reward or (1.0 if self.reward is None else CLICK_VALUE)


Renamed = Annotated[
    dict[str, str],
    Meta(
        description="features that have another name now, old name: new name; they keep what was learned. Not part of "
        "the spec; ignored where the ranker has the new name already, so the same request can be sent again",
        extra_json_schema={"examples": [{"price": "price_eur"}]},
    ),
]

if TYPE_CHECKING:
    SpecChanges: TypeAlias = Spec
else:
    # Every field of a spec, each of which may be left out: made from it, so that there is one place for the rules.
    SpecChanges = defstruct(
        "SpecChanges",
        [
            *((one.name, one.type | UnsetType, UNSET) for one in structs.fields(Spec)),
            ("renamed", Renamed | UnsetType, UNSET),
        ],
        namespace={"__doc__": "Fields of a spec. What is left out keeps its value; a new ranker gets the default."},
        forbid_unknown_fields=True,
        kw_only=True,
        frozen=True,
        module=__name__,
    )


class VersionRequest(Struct, forbid_unknown_fields=True):
    """Which version, and a note for what is kept."""

    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31)] | Literal["live"] | None,
        Meta(description='promote: a number, "live", or none for what is learned now; rollback: a number, or none'),
    ] = None
    note: Text = ""
    force: Annotated[
        bool, Meta(description="go on even if the version to keep lacks acknowledged outcomes: a backlog, no learner")
    ] = False


How = Literal["made", "changed", "reset", "rollback"]


class VersionInfo(Struct):
    """An immutable copy of what was learned."""

    version: int
    learned_impressions: Annotated[
        int, Meta(description="learned by the ranker until then, before and after resets and rollbacks")
    ]
    created: float
    note: str
    serving: bool
    generation: Annotated[int | None, Meta(description="of `lineage`; null: kept by an earlier release")] = None
    model_impressions: Annotated[
        int | None,
        Meta(description="contained in this version; fewer than `learned_impressions` after a reset or rollback"),
    ] = None


class Origin(Struct):
    """Where what a ranker knows began: what it learned before is not in it, but for a version gone back to."""

    generation: Annotated[int, Meta(description="counts from 1: +1 at each reset, rollback and change of features")]
    how: How
    version: Annotated[int | None, Meta(description="rollback, changed: the version it began with")]
    kept: Annotated[int | None, Meta(description="the version that holds what was known until then")]
    since: float
    impressions_since: Annotated[int, Meta(description="learned, or skipped while paused, since then")]


class Generation(Struct):
    """A stretch of learning, from a fresh learner or a version to the next reset, rollback or change of features."""

    generation: Annotated[int, Meta(description="counts from 1")]
    how: Annotated[
        How,
        Meta(
            description="changed: other features or scaling, to which what was learned carries over; or another "
            "learner, before anything was learned"
        ),
    ]
    version: Annotated[int | None, Meta(description="rollback, changed: the version it began with")]
    kept: Annotated[int | None, Meta(description="the version that holds what was known until then")]
    began: float
    ended: Annotated[float | None, Meta(description="null: it goes on")]
    closed_impressions: Annotated[int, Meta(description="that closed during this generation")]
    versions: Annotated[list[int], Meta(description="kept of it")]


class SpecChange(Struct):
    """What a PUT or PATCH changed, and what became of what was learned."""

    fields: Annotated[list[str], Meta(description="of the spec, that have another value now")]
    carried: Annotated[list[str], Meta(description="features that keep what was learned")] = field(default_factory=list)
    renamed: Annotated[dict[str, str], Meta(description="of these, those with another name: old name, new name")] = (
        field(default_factory=dict)
    )
    added: Annotated[list[str], Meta(description="features that start from their prior")] = field(default_factory=list)
    removed: Annotated[list[str], Meta(description="features that are gone")] = field(default_factory=list)
    rule: Annotated[str | None, Meta(description="what this learner carries over; null: nothing had to be")] = None
    kept: Annotated[int | None, Meta(description="the version that holds what was learned until then")] = None


class RankerStatus(Struct):
    """A ranker as it stands."""

    name: str
    etag: Annotated[str, Meta(description="of the ranker as it is; `If-Match` with it changes nothing else")]
    spec: Spec
    ready: Annotated[
        bool, Meta(description="whether this process uses the learner; until then it returns the baseline ranking")
    ]
    waiting_for: Annotated[str | None, Meta(description="what it waits for while it is not ready")]
    serving: Annotated[str, Meta(description="live, or the promoted version as vN")]
    learning: Annotated[bool, Meta(description="false after `pause`: feedback is kept but not learned")]
    closed_impressions: Annotated[
        int, Meta(description="impressions with final feedback or a closed attribution window, since creation")
    ]
    learned_impressions: Annotated[
        int,
        Meta(
            description="how many of the closed impressions the learner has processed; resets and rollbacks do not "
            "reduce it, and it includes those skipped while paused"
        ),
    ]
    unlearned_impressions: Annotated[
        int, Meta(description="closed_impressions - learned_impressions: how far learning is behind")
    ]
    model_impressions: Annotated[
        int | None,
        Meta(
            description="how many impressions the current model contains: after a reset those since, after a rollback "
            "those of the version and those since; null: rolled back by a release that did not store it"
        ),
    ]
    open_impressions: Annotated[
        int,
        Meta(
            description="impressions that wait for feedback; a lower bound if the store has more than 100,000 of them"
        ),
    ]
    learner_process: Annotated[str | None, Meta(description="who holds the lease and learns")]
    snapshot_impressions: Annotated[int | None, Meta(description="learned_impressions at the last snapshot")]
    created: float
    origin: Annotated[Origin, Meta(description="where what it knows began: when it was made, reset or rolled back")]
    events: Annotated[
        EventCounts, Meta(description="events that were not accepted, of all processes since the ranker was made")
    ] = field(default_factory=EventCounts)
    reward_scale: Annotated[
        float | None,
        Meta(description="the reward that is worth 1 now; null: no `reward` is declared, or auto and none has come"),
    ] = None
    fallbacks: Annotated[dict[str, int], Meta(description="fallbacks by reason, of this process since it started")] = (
        field(default_factory=dict)
    )
    counter_impressions: Annotated[
        int | None,
        Meta(description="how many closed impressions its counting features include; null: no feature counts"),
    ] = None
    trouble: Annotated[
        str | None,
        Meta(description="why it does not rank or learn as it should: a state that cannot be loaded, …"),
    ] = None
    model_age_seconds: Annotated[
        float | None,
        Meta(
            description="age of the oldest outcome that the live model of this process does not include; 0: it "
            "includes all; null: this process has not loaded the ranker"
        ),
    ] = None
    demoted: Annotated[
        Evidence | None,
        Meta(description="why the guardrail put it into shadow; null once exposure is put up, or the guardrail is off"),
    ] = None
    changed: Annotated[
        SpecChange | None,
        Meta(description="answers to PUT and PATCH: what the call changed; null for a new ranker and elsewhere"),
    ] = None
    warnings: Annotated[
        list[str],
        Meta(
            description="what is wrong with the catalog that its features read: it does not exist or is empty, no item "
            "has a field, or few items have it"
        ),
    ] = field(default_factory=list)


class WarmAnswer(Struct):
    """The result of a warm start."""

    lists: Annotated[int, Meta(description="impressions added to the log; they are learned after this response")]
    clicks: int
    known: Annotated[int, Meta(description="in the log already: sent before, and counted then")]
    skipped: Annotated[int, Meta(description="malformed, and so left out")]
    problems: Annotated[list[str], Meta(description="problems of the first malformed lines")]
