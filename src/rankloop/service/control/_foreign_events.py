"""What adapters share: the lists that events of other systems are about, and what those were worth."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from rankloop.service.access.keys import Key
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import NewEvent, requests
from rankloop.service.storage.requests import Shown
from rankloop.wire.calls import NO_ID, FeedbackEvent, Receipt
from rankloop.wire.rankers import Spec


async def shown(engine: Engine, caller: Key, names: Sequence[str]) -> dict[str, list[Shown]]:
    """The lists that were made for requests, by any process, before or after a restart; of rankers that the caller may
    report on."""
    rankers = [name for name in engine.rankers if caller.is_for(name)]
    return await engine.lookups.run(engine.database.read, lambda c: requests.shown(c, rankers, names))


def event_id(impression: str, *parts: str | None) -> str:
    """An id for an event that has none of its own, or one that is not unique: the same for the same event."""
    digest = blake2b("\x1f".join(part or "" for part in parts).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{impression}~{digest.hexdigest()}"


def told(spec: Spec, own: str, one: Shown, action: str, item: str) -> FeedbackEvent | None:
    """An action as feedback: worth what the ranker's spec says of it; None if it is worth nothing."""
    worth = spec.interactions.get(action, 1.0 if action == "click" and not spec.interactions else 0.0)
    if worth <= 0.0:
        return None
    if not spec.interactions:
        return FeedbackEvent(own, one.id, clicks=[item])
    return FeedbackEvent(own, one.id, rewards={item: worth})


async def report(
    engine: Engine, events: Sequence[FeedbackEvent], caller: Key, lost: Sequence[str | None] = ()
) -> list[Receipt]:
    """What becomes of events; when this returns they are durable. `lost` are further events that are only counted: why
    one could not be read, or None if its impression is not known."""
    if not events and not lost:
        return []
    new = [NewEvent(event, msgspec.json.encode(event), caller.rankers) for event in events]
    new += [NewEvent(FeedbackEvent(NO_ID, ""), b"", caller.rankers, why) for why in lost]
    return (await engine.feedback(new)).receipts[: len(events)]
