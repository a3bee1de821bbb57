"""Azure Personalizer's messages: rank, reward, activate, in the words of its REST API v1.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from rankloop.core.errors import InvalidInput
from rankloop.core.types import SparseRows
from rankloop.integrations.json_features import crossed_rows

MOST_ACTIONS = 50  # as Personalizer has it
Id = Annotated[str, Meta(min_length=1, max_length=256)]


class Action(Struct):
    """An action that may be taken; features are any JSON."""

    id: Id
    features: list[Any] | None = None


class RankRequest(Struct, rename="camel"):
    """Which of these actions? Fields that are not known are passed over, as Personalizer does."""

    actions: Annotated[list[Action], Meta(min_length=1)]
    context_features: list[Any] | None = None
    excluded_actions: list[str] | None = None
    event_id: Id | None = None
    defer_activation: bool | None = False


class RankedAction(Struct, omit_defaults=True):
    """An action at its place; no probability where nobody knows it."""

    id: str
    probability: float | None = None


class RankResponse(Struct, rename="camel"):
    """What to do, and for what a reward is expected."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Struct):
    """What the action was worth."""

    value: float


class PersonalizerError(Struct):
    """BadRequest, ResourceNotFound, InternalServerError; or what HTTP calls it."""

    code: str
    message: str


class ErrorResponse(Struct):
    """As the client reads errors."""

    error: PersonalizerError


def allowed(request: RankRequest) -> list[Action]:
    """The actions that may come first, in the order given; what breaks a rule is named."""
    ids = [action.id for action in request.actions]
    if len(ids) > MOST_ACTIONS:
        raise InvalidInput(f"{len(ids)} actions; Personalizer takes at most {MOST_ACTIONS}: send the likeliest")
    if any("\0" in one for one in [*ids, request.event_id or ""]):
        raise InvalidInput("an id has the character NUL in it; ids are text")
    if len(set(ids)) < len(ids):
        double = next(one for one in ids if ids.count(one) > 1)
        raise InvalidInput(f"action {double!r} stands twice; ids must be unique")
    excluded = set(request.excluded_actions or ())
    strange = sorted(excluded.difference(ids))
    if strange:
        raise InvalidInput(f"excludedActions names {strange[0]!r}, which is not among the actions; exclude what is")
    found = [action for action in request.actions if action.id not in excluded]
    if not found:
        raise InvalidInput("all actions are excluded; leave at least one")
    return found


def rows(request: RankRequest, actions: Sequence[Action], width: int) -> SparseRows:
    """The rows of actions: their features, and those crossed with the context's."""
    return crossed_rows(request.context_features, [(one.id, one.features) for one in actions], width)


def response(
    request: RankRequest, event_id: str, first: str, best: Sequence[str], chances: Mapping[str, float] | None
) -> RankResponse:
    """The answer: `first` before the others, those in the order of `best`; excluded actions stay where they stood.

    >>> asked = RankRequest([Action("a"), Action("b"), Action("c")], excluded_actions=["a"])
    >>> [one.id for one in response(asked, "e", "c", ["b", "c"], None).ranking]
    ['a', 'c', 'b']
    """
    others = iter([first, *(one for one in best if one != first)])
    excluded = set(request.excluded_actions or ())
    ranking = []
    for action in request.actions:
        if action.id in excluded:
            ranking.append(RankedAction(action.id, None if chances is None else 0.0))
        else:
            item = next(others)
            ranking.append(RankedAction(item, None if chances is None else min(1.0, max(0.0, chances[item]))))
    return RankResponse(ranking, event_id, first)
