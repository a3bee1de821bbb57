"""Experiments: what is asked for, and how one stands."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rankloop.wire.basics import NAME, Alpha, Exposure, Share, Text

Interval = tuple[float, float]
Verdict = Literal["better", "worse", "undecided"]


class ExperimentRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Compare what the ranker shows with something else, on a share of its requests."""

    against: Annotated[
        Annotated[int, Meta(ge=1, le=2**31)] | Annotated[str, Meta(pattern=NAME)],
        Meta(description='"base": the baseline ranking; a number: that version; "live": the live state; or a ranker'),
    ] = "base"
    share: Annotated[Share, Meta(description="share of the requests that get an interleaved ranking")] = 0.2
    mixing: Annotated[
        Literal["team-draft", "probabilistic"],
        Meta(
            description="team-draft: only what one of the two puts highest; probabilistic: sees every difference, but "
            "anything may come up anywhere (needs exposure full)"
        ),
    ] = "team-draft"
    metric: Annotated[
        Literal["clicks", "reward"],
        Meta(
            description="what decides: clicks on the items of each side, or the difference of their rewards (needs a "
            "`reward` in the spec)"
        ),
    ] = "clicks"
    exposure: Annotated[
        Literal["bounded", "full"] | None,
        Meta(
            description="which rankings of the ranker are compared; none: those of its exposure, unless that is shadow"
        ),
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


class Notification(Struct):
    """What is sent to the webhook when a guardrail has acted."""

    id: Annotated[str, Meta(description="the same each time it is sent: what comes twice is known by it")]
    ranker: str
    what: Literal["demoted"]
    before: Annotated[Exposure, Meta(description="the exposure until then")]
    now: Exposure
    when: float
    evidence: Evidence | None


class Experiment(Struct, kw_only=True):
    """A comparison on live traffic, as far as it has come."""

    number: Annotated[int, Meta(description="counts from 1 for each ranker; answers carry it in `experiment`")]
    ranker: str
    kind: Literal["experiment", "guardrail"]
    against: Annotated[str, Meta(description="base, live, a version as vN, or a ranker's name")]
    share: float
    mixing: str
    exposure: Annotated[Exposure, Meta(description="of the interleaved rankings")]
    metric: Literal["clicks", "reward"]
    reward_scale: Annotated[
        float | None,
        Meta(
            description="metric reward: the scale when it started, which stays; preference times this is the reward "
            "that the ranker is ahead by, per list"
        ),
    ]
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
    lists: Annotated[int, Meta(description="interleaved rankings with feedback")]
    wins: Annotated[int, Meta(description="rankings with more clicks on the ranker's items than on the other's")]
    losses: int
    decided: Annotated[int, Meta(description="wins + losses; the others have no clicks, or no side is ahead")]
    preference: Annotated[
        float | None,
        Meta(
            description="mean over rankings of the share of clicks on the ranker's items minus the other's, -1 to 1. "
            "Metric reward: of the rewards of the ranker's items minus the other's, divided by reward_scale and cut at "
            "-1 and 1"
        ),
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
