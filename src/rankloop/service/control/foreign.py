"""Calls of other systems (Metarank, Azure Personalizer, UBI) as calls of this service.

`rankloop.integrations` translates their messages; here their items become catalog rows, and their events feedback.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b

import msgspec

from rankloop.core.errors import InvalidInput, RankloopError
from rankloop.integrations import metarank, personalizer, ubi
from rankloop.service.access import Key
from rankloop.service.control import catalogs
from rankloop.service.errors import Conflict, OverLimit, UnknownEvent, UnknownRanker
from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.serving.request_body import check_counts
from rankloop.service.serving.schema import RankCall
from rankloop.service.storage import NewEvent, impressions
from rankloop.service.storage.catalog import Kind
from rankloop.service.storage.ids import new_id
from rankloop.service.storage.impressions import ImpressionRef
from rankloop.wire.calls import NO_ID, FeedbackAnswer, FeedbackEvent, RankAnswer, Receipt
from rankloop.wire.rankers import Spec

PROBLEMS = 20  # that an answer lists
USUAL = "personalizer"  # the ranker, where neither the path nor the key names one
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_answer = msgspec.json.Decoder(RankAnswer).decode


# -- events of other systems ---------------------------------------------------------------------------------------


def raw_events(body: bytes) -> list[bytes]:
    """The undecoded events of a body: an object, an array of objects, or an object per line.

    >>> [len(raw_events(body)) for body in (b'{}', b'[{}, {}]', b'{}\\n{}\\n', b'{"a":\\n1}')]
    [1, 2, 2, 1]
    """
    text = body.strip()
    if text[:1] == b"[":
        return [bytes(one) for one in _array(text)]
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(lines) > 1 and all(line.strip()[:1] == b"{" and line.strip()[-1:] == b"}" for line in lines):
        return lines
    return [text] if text else []


def _bounded_events(engine: Engine, body: bytes) -> list[bytes]:
    raw = raw_events(body)
    if not raw:
        raise InvalidInput("the body has no events; send an event, an array of them, or one per line")
    if len(raw) > engine.settings.max_events:
        raise OverLimit(f"{len(raw)} events; the limit max_events is {engine.settings.max_events}: send several calls")
    return raw


async def _impressions(
    engine: Engine, caller: Key, request_ids: Iterable[str | None]
) -> dict[str, list[ImpressionRef]]:
    """The impressions of requests, made by any process, of rankers that the caller may report on."""
    rankers = [name for name in engine.rankers if caller.is_for(name)]
    names = [one for one in request_ids if one and "\0" not in one]
    return await engine.lookups.run(engine.database.read, lambda c: impressions.find_impressions(c, rankers, names))


def _event_id(impression: str, *parts: str | None) -> str:
    """An id for an event that has no unique one: the same for the same event."""
    digest = blake2b("\x1f".join(part or "" for part in parts).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{impression}~{digest.hexdigest()}"


def _as_feedback(spec: Spec, event_id: str, one: ImpressionRef, action: str, item: str) -> FeedbackEvent | None:
    """An action as feedback, with its value in the ranker's spec; None if it has none."""
    value = spec.interactions.get(action, 1.0 if action == "click" and not spec.interactions else 0.0)
    if value <= 0.0:
        return None
    if not spec.interactions:
        return FeedbackEvent(event_id, one.id, clicks=[item])
    return FeedbackEvent(event_id, one.id, rewards={item: value})


async def _report(
    engine: Engine, events: Sequence[FeedbackEvent], caller: Key, lost: Sequence[str | None] = ()
) -> list[Receipt]:
    """Store events durably; their receipts. `lost` are events that are only counted: why one could not be read, or None
    if its impression is unknown."""
    if not events and not lost:
        return []
    new = [NewEvent(event, msgspec.json.encode(event), caller.rankers) for event in events]
    new += [NewEvent(FeedbackEvent(NO_ID, ""), b"", caller.rankers, why) for why in lost]
    return (await engine.feedback(new)).receipts[: len(events)]


# -- Metarank ------------------------------------------------------------------------------------------------------


async def metarank_rank(engine: Engine, name: str, body: bytes, explain: bool) -> bytes:
    """Rank the items of a request."""
    start = time.perf_counter()
    check_counts(body, engine.settings.max_candidates)
    request = metarank.rank_request(body)
    live = engine.rankers.get(name) or await engine.find(name)
    answer = _answer(await engine.rank(name, _asked(live, request), explain))
    return msgspec.json.encode(metarank.RankAnswer(_milliseconds(start), metarank.ranked(answer)))


def _asked(live: LiveRanker, request: metarank.RankRequest) -> bytes:
    names = [one for one in live.row.spec.features if isinstance(one, str)]
    return metarank.translated(request, names, live.row.spec.catalog is not None)


async def metarank_feedback(engine: Engine, body: bytes, caller: Key) -> bytes:
    """Take events: items and users first, then rankings, then interactions, in whatever order they were sent.

    Each kind of event needs what the service's own call for it needs: items and users the scope `admin` and the
    catalog, rankings that were made elsewhere the scope `rank`. If the key lacks it, no event is taken.
    """
    start = time.perf_counter()
    raw = _bounded_events(engine, body)
    call = _MetarankFeedback(engine, caller)
    events: list[metarank.Event] = []
    for number, one in enumerate(raw, 1):
        try:
            events.append(metarank.event(one))
        except msgspec.MsgspecError as error:
            if len(raw) == 1:
                raise
            call.problems.append(f"event {number}: {error}")
            call.lost.append(str(error))
    items = [one for one in events if isinstance(one, metarank.ItemEvent)]
    users = [one for one in events if isinstance(one, metarank.UserEvent)]
    if items or users:
        call.require_catalogs()
    rankings = [one for one in events if isinstance(one, metarank.RankingEvent)]
    made_here = await call.made_here(rankings)
    await call.update_catalogs([(one.item, one.fields) for one in items], "items")
    await call.update_catalogs([(one.user, one.fields) for one in users], "users")
    await call.rankings(rankings, made_here)
    await call.interactions([one for one in events if isinstance(one, metarank.InteractionEvent)])
    status = "ok" if not call.problems else "partial" if call.accepted else "rejected"
    took = _milliseconds(start)
    answer = metarank.FeedbackAnswer(status, call.accepted, call.updated, took, call.problems[:PROBLEMS])
    return msgspec.json.encode(answer)


class _MetarankFeedback:
    """One call to /feedback."""

    def __init__(self, engine: Engine, caller: Key) -> None:
        self.engine, self.caller = engine, caller
        self.accepted = self.updated = 0
        self.problems: list[str] = []
        self.lost: list[str | None] = []  # as in `_report`
        # rankers that were imported from Metarank have values of interactions
        self.models = [
            live for live in engine.rankers.values() if live.row.spec.interactions and caller.is_for(live.row.name)
        ]
        self._named = sorted({name for live in self.models if (name := live.row.spec.catalog) is not None})
        self.catalogs = [name for name in self._named if caller.may_use(name)]

    def require_catalogs(self) -> None:
        """Refuse a caller who may not change the catalogs of the models."""
        self.caller.require_scope("admin")
        if self._named and not self.catalogs:
            self.caller.require_catalog(self._named[0])

    async def made_here(self, events: Sequence[metarank.RankingEvent]) -> set[str]:
        """Which of these rankings this service made; the others become impressions, which need the scope `rank`."""
        if not events:
            return set()
        found = set(await _impressions(self.engine, self.caller, (one.id for one in events)))
        if self.models and any(one.id not in found for one in events):
            self.caller.require_scope("rank")
        return found

    async def update_catalogs(self, rows: Sequence[tuple[str, list[metarank.MessageField] | None]], kind: Kind) -> None:
        """Merge items, or users, into the catalogs of the models."""
        if not rows:
            return
        if not self.catalogs:
            self.problems.append(f"no ranker has a catalog for {kind}; `rankloop import metarank` makes one")
            return
        lines = b"\n".join(msgspec.json.encode({**metarank.values(fields), "id": key}) for key, fields in rows)
        for name in self.catalogs:
            answer = await self.engine.operations.run(catalogs.put, self.engine, name, kind, lines, True)
            self.updated += answer.counts.get("accepted", 0)
            self.problems += [f"{one.id}: {one.reason}" for one in answer.results if one.status == "rejected"]
            refused = answer.counts.get("rejected", 0)
        self.accepted += len(rows) - refused

    async def rankings(self, events: Sequence[metarank.RankingEvent], made_here: Collection[str]) -> None:
        """Adopt rankings that were made elsewhere; those made here are known."""
        for one in events:
            if one.id in made_here or not self.models:
                self.accepted += one.id in made_here
                if one.id not in made_here:
                    self.problems.append(f"ranking {one.id}: no ranker is made from a model of Metarank")
                continue
            adopted = False
            for live in self.models:
                try:
                    call = live.schema.parse(_asked(live, one), self.engine.settings.max_candidates)
                    await self.engine.answer(live, call._replace(as_shown=True), False, time.perf_counter())
                    adopted = True
                except RankloopError as error:
                    self.problems.append(f"ranking {one.id}, ranker {live.row.name}: {error}")
            self.accepted += adopted

    async def interactions(self, events: Sequence[metarank.InteractionEvent]) -> None:
        """Report interactions as feedback to the impressions of their rankings."""
        if not events and not self.lost:
            return
        known = await _impressions(self.engine, self.caller, (one.ranking for one in events))
        made: list[FeedbackEvent] = []
        for one in events:
            found = known.get(one.ranking or "", [])
            if not found:
                why = "names no ranking" if not one.ranking else f"names the unknown ranking {one.ranking!r}"
                self.problems.append(f"interaction {one.id} {why}; it is not learned")
                self.lost.append(None)
                continue
            self.accepted += 1
            pairs = [(each, live.row.spec) for each in found if (live := self.engine.rankers.get(each.ranker))]
            for each, spec in pairs:
                event = _as_feedback(spec, _event_id(each.id, one.id), each, one.type, one.item)
                if event is not None:
                    made.append(event)
            values = [spec.interactions for _, spec in pairs]
            if not any(one.type in value or (one.type == "click" and not value) for value in values):
                self.problems.append(
                    f"interaction {one.id} is a {one.type!r}, which has no value; name it in `interactions` of the "
                    "ranker, with 0 to ignore it"
                )
        for receipt in await _report(self.engine, made, self.caller, self.lost):
            self.updated += receipt.status == "accepted"
            if receipt.status in ("rejected", "orphan"):
                self.problems.append(receipt.reason or "an interaction was refused")


def _milliseconds(start: float) -> int:
    return round((time.perf_counter() - start) * 1000)


# -- Azure Personalizer --------------------------------------------------------------------------------------------


def ranker_of(name: str | None, key: Key) -> str:
    """The ranker of a call: the one in the path, else the only one that the key is for, else `personalizer`."""
    if name is not None:
        return name
    return next(iter(key.rankers)) if key.rankers is not None and len(key.rankers) == 1 else USUAL


async def personalizer_rank(engine: Engine, name: str, body: bytes) -> bytes:
    """Choose an action."""
    start = time.perf_counter()
    check_counts(body, engine.settings.max_candidates)
    request = personalizer.rank_request(body)
    actions = personalizer.allowed(request)
    live = await _live(engine, name)
    event = request.event_id or new_id()
    width = live.row.spec.width
    if not width:
        raise Conflict(f"ranker {name!r} has declared features, not hashed ones; {_remedy(name)}")
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
    chances = known if len(known) == len(answer.chances) else None
    first, best = str(answer.items[0].id), list(answer.chances)
    return msgspec.json.encode(personalizer.response(request, event, first, best, chances))


async def personalizer_reward(engine: Engine, name: str, event_id: str, body: bytes, caller: Key) -> None:
    """Report the reward of an event. The first is learned at once, or rewards are summed until the attribution window
    ends, as the ranker's spec says."""
    value = personalizer.reward_value(body)
    live = await _live(engine, name)
    one = await _event(engine, caller, name, event_id)
    first = live.row.spec.reward_aggregation == "earliest"
    own = f"{one.id}~reward" if first else f"{one.id}~{new_id()}"
    final = first and one.viewed != 0  # an event that waits for its activation stays open
    await _report_one(engine, FeedbackEvent(own, one.id, rewards={one.top: value}, final=final), caller)


async def personalizer_activate(engine: Engine, name: str, event_id: str, caller: Key) -> None:
    """Report that the action of a deferred event was shown."""
    await _live(engine, name)
    one = await _event(engine, caller, name, event_id)
    await _report_one(engine, FeedbackEvent(f"{one.id}~activate", one.id, seen=1), caller)


async def _live(engine: Engine, name: str) -> LiveRanker:
    try:
        return engine.rankers.get(name) or await engine.find(name)
    except UnknownRanker:
        raise UnknownRanker(f"there is no ranker {name!r} for Personalizer's calls; {_remedy(name)}") from None


def _remedy(name: str) -> str:
    return f"`rankloop import personalizer --ranker {name}` makes one (docs/migrate-personalizer.md)"


async def _event(engine: Engine, caller: Key, name: str, event_id: str) -> ImpressionRef:
    """The impression of an event."""
    for one in (await _impressions(engine, caller, [event_id])).get(event_id, []):
        if one.ranker == name:
            return one
    raise UnknownEvent(f"no event {event_id!r} of ranker {name!r}; it was never ranked here, or is past retention")


async def _report_one(engine: Engine, event: FeedbackEvent, caller: Key) -> None:
    """Report an event; as with Personalizer, a late or duplicate one is not an error."""
    (receipt,) = await _report(engine, [event], caller)
    if receipt.status in ("rejected", "orphan"):
        remedy = " Personalizer took values from -1 to 1: send (value + 1) / 2." if event.rewards else ""
        raise InvalidInput(f"{receipt.reason}.{remedy}")


# -- UBI -----------------------------------------------------------------------------------------------------------


async def ubi_events(engine: Engine, body: bytes, caller: Key) -> bytes:
    """Take events; each has its own result, in the order sent."""
    read: list[ubi.Event | Receipt] = []
    for one in _bounded_events(engine, body):
        try:
            read.append(ubi.event(one))
        except msgspec.MsgspecError as error:
            read.append(Receipt(None, "rejected", str(error)))
    known = await _impressions(engine, caller, (one.query_id for one in read if isinstance(one, ubi.Event)))
    events: list[FeedbackEvent] = []
    places: list[int] = []
    results: list[Receipt | None] = []
    for place, each in enumerate(read):
        made = each if isinstance(each, Receipt) else _ubi_feedback(engine, each, known)
        results.append(made if isinstance(made, Receipt) else None)
        if not isinstance(made, Receipt):
            events += made
            places += [place] * len(made)
    lost = [one.reason for one in read if isinstance(one, Receipt)]
    lost += [None for one in results if one is not None and one.status == "orphan"]
    for place, receipt in zip(places, await _report(engine, events, caller, lost), strict=True):
        if results[place] is None or receipt.status == "accepted":
            results[place] = receipt
    final = [given or Receipt(None, "rejected", "it caused no feedback") for given in results]
    return msgspec.json.encode(FeedbackAnswer(final, dict(Counter(given.status for given in final))))


def _ubi_feedback(
    engine: Engine, one: ubi.Event, known: dict[str, list[ImpressionRef]]
) -> list[FeedbackEvent] | Receipt:
    """An event as feedback to each impression of its query; or why it is none."""
    if not one.query_id:
        return Receipt(None, "rejected", "it has no query_id; send the request_id, or the impression_id, of a ranking")
    if one.item is None:
        reason = "it has no event_attributes.object.object_id; only what is done with an item is feedback"
        return Receipt(None, "rejected", reason)
    found = known.get(one.query_id, [])
    if not found:
        reason = f"no ranking has query_id {one.query_id!r}; it was never ranked here, or is past retention"
        return Receipt(None, "orphan", reason)
    made: list[FeedbackEvent] = []
    for each in found:
        own = _event_id(each.id, one.action_name, one.client_id, one.session_id, str(one.timestamp), one.item)
        live = engine.rankers.get(each.ranker)
        event = None if live is None else _as_feedback(live.row.spec, own, each, one.action_name, one.item)
        if live is not None and event is None and one.action_name in ubi.VIEWS:
            event = FeedbackEvent(own, each.id, viewed=[one.item])
        if event is not None:
            made.append(event)
    if not made:
        reason = f"action {one.action_name!r} has no value; name it in the ranker's `interactions`"
        return Receipt(None, "rejected", reason)
    return made
