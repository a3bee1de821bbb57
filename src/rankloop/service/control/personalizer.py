"""Azure Personalizer's calls: which ranker they are for, and what becomes of them."""

from __future__ import annotations

import time

import msgspec

from rankloop.core.errors import InvalidInput
from rankloop.integrations import personalizer
from rankloop.service.access.keys import Key
from rankloop.service.control._foreign_events import report, shown
from rankloop.service.errors import Conflict, UnknownEvent, UnknownRanker
from rankloop.service.ranking.features import RankCall
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.ranking.parsing import check_counts
from rankloop.service.serving.engine import Engine
from rankloop.service.storage.log import new_id
from rankloop.service.storage.requests import Shown
from rankloop.wire.calls import FeedbackEvent, RankAnswer

USUAL = "personalizer"  # the ranker, where neither the path nor the key names one
_rank_request = msgspec.json.Decoder(personalizer.RankRequest).decode
_reward_request = msgspec.json.Decoder(personalizer.RewardRequest).decode
_answer = msgspec.json.Decoder(RankAnswer).decode


def ranker_of(name: str | None, key: Key) -> str:
    """The ranker of a call: that of the path; else the only one that the key is for, as a Personalizer's key is for one
    resource; else `personalizer`."""
    if name is not None:
        return name
    return next(iter(key.rankers)) if key.rankers is not None and len(key.rankers) == 1 else USUAL


async def rank(engine: Engine, name: str, body: bytes) -> bytes:
    """Choose an action; the answer in Personalizer's words."""
    start = time.perf_counter()
    check_counts(body, engine.settings.max_candidates)
    request = _rank_request(body)
    actions = personalizer.allowed(request)
    live = await _live(engine, name)
    event = request.event_id or new_id()
    width = live.row.spec.width
    if not width:
        raise Conflict(f"ranker {name!r} has features of its own, not hashed ones; {_remedy(name)}")
    rows = personalizer.rows(request, actions, width)
    call = RankCall(
        query="",
        k=1,
        request_id=event,
        user=None,
        ids=[action.id for action in actions],
        rows=rows,
        sent=rows,
        chances=True,
        deferred=bool(request.defer_activation),
    )
    answer = _answer(await engine.answer(live, call, False, start))
    assert isinstance(answer.chances, dict)
    known = {item: chance for item, chance in answer.chances.items() if chance is not None}
    whole = known if len(known) == len(answer.chances) else None
    made = personalizer.response(request, event, str(answer.items[0].id), list(answer.chances), whole)
    return msgspec.json.encode(made)


async def reward(engine: Engine, name: str, event_id: str, body: bytes, caller: Key) -> None:
    """What the action of an event was worth. The first reward is learned at once, or they are added up until the window
    ends, as the ranker's spec says."""
    value = _reward_request(body).value
    live = await _live(engine, name)
    one = await _shown(engine, caller, name, event_id)
    first = live.row.spec.reward_aggregation == "earliest"
    own = f"{one.id}~reward" if first else f"{one.id}~{new_id()}"
    # A list that waits for its activation stays open: what it is worth does not count unless that comes.
    final = first and one.viewed != 0
    await _report(engine, FeedbackEvent(own, one.id, rewards={one.top: value}, final=final), caller)


async def activate(engine: Engine, name: str, event_id: str, caller: Key) -> None:
    """The action of a deferred event was shown after all."""
    await _live(engine, name)
    one = await _shown(engine, caller, name, event_id)
    await _report(engine, FeedbackEvent(f"{one.id}~activate", one.id, seen=1), caller)


async def _live(engine: Engine, name: str) -> LiveRanker:
    try:
        return engine.rankers.get(name) or await engine.find(name)
    except UnknownRanker:
        raise UnknownRanker(f"there is no ranker {name!r} for Personalizer's calls; {_remedy(name)}") from None


def _remedy(name: str) -> str:
    return f"`rankloop import personalizer --ranker {name}` makes one (docs/migrate-personalizer.md)"


async def _shown(engine: Engine, caller: Key, name: str, event_id: str) -> Shown:
    """The list of an event: one action."""
    found = (await shown(engine, caller, [event_id])).get(event_id, []) if "\0" not in event_id else []
    for one in found:
        if one.ranker == name:
            return one
    raise UnknownEvent(f"no event {event_id!r} of ranker {name!r}; it was never ranked here, or is past retention")


async def _report(engine: Engine, event: FeedbackEvent, caller: Key) -> None:
    """What comes late, or twice, is nobody's fault and no error, as with Personalizer."""
    (receipt,) = await report(engine, [event], caller)
    if receipt.status in ("rejected", "orphan"):
        remedy = " Personalizer took values from -1 to 1: send (value + 1) / 2." if event.rewards else ""
        raise InvalidInput(f"{receipt.reason}.{remedy}")
