"""Metarank's calls: a model is a ranker, items and users are in its catalog, interactions are rewards."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from rankloop.core.errors import InvalidInput, RankloopError
from rankloop.integrations import metarank
from rankloop.integrations.bodies import raw_events
from rankloop.service.access.keys import Key
from rankloop.service.control import catalogs
from rankloop.service.control._foreign_events import event_id, report, shown, told
from rankloop.service.errors import OverLimit
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.ranking.parsing import check_counts
from rankloop.service.serving.engine import Engine
from rankloop.service.storage.catalog import Kind
from rankloop.wire.calls import FeedbackEvent, RankAnswer, RankedItem

PROBLEMS = 20  # that an answer names
_answer = msgspec.json.Decoder(RankAnswer).decode


async def rank(engine: Engine, name: str, body: bytes, explain: bool) -> bytes:
    """Rank the items of a request; the answer in Metarank's words."""
    start = time.perf_counter()
    check_counts(body, engine.settings.max_candidates)
    request = metarank.rank_request(body)
    live = engine.rankers.get(name) or await engine.find(name)
    answer = _answer(await engine.rank(name, _asked(live, request), explain))
    items = [_item(one, len(answer.items)) for one in answer.items]
    return msgspec.json.encode(metarank.RankAnswer(_milliseconds(start), items))


def _asked(live: LiveRanker, request: metarank.RankRequest) -> bytes:
    """A request in our words: the query apart, other fields beside it, and what items bring by themselves."""
    fields = metarank.values(request.fields)
    query = fields.pop("query", "")
    ids = [item.id for item in request.items]
    asked: dict[str, Any] = {"ids": ids, "k": min(len(ids), 1000), "request_id": request.id, "query": str(query)[:512]}
    if user := request.user or request.session:
        asked["user"] = user[:512]
    if fields and live.row.spec.catalog is not None:
        asked["fields"] = fields
    names = [one for one in live.row.spec.features if isinstance(one, str)]
    if names:
        told = [metarank.item_values(item) for item in request.items]
        asked["features"] = {name: [_number(name, one.get(name)) for one in told] for name in names}
    return msgspec.json.encode(asked)


def _number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    raise InvalidInput(f"field {name!r} of an item is {value!r:.60}; the ranker takes it as a number")


def _item(one: RankedItem, count: int) -> metarank.RankedItem:
    """With its score; a list without scores (the order as it came) has places."""
    score = float(count - one.position) if one.score is None else one.score
    features = None
    if isinstance(one.features, dict):
        features = metarank.explained({name: part.value for name, part in one.features.items()})
    return metarank.RankedItem(str(one.id), score, features)


async def feedback(engine: Engine, body: bytes, caller: Key) -> bytes:
    """Take events: items and users first, then rankings, then what was done with them, whatever the order in a body.

    Each kind of event needs what the service's own call for it needs: items and users the scope `admin` and the
    catalog, rankings that were made elsewhere the scope `rank`. If the key lacks it, nothing of the body is taken.
    """
    start = time.perf_counter()
    raw = raw_events(body)
    if not raw:
        raise InvalidInput("the body has no events; send an event, an array of them, or one a line")
    if len(raw) > engine.settings.max_events:
        raise OverLimit(f"{len(raw)} events; the limit max_events is {engine.settings.max_events}: send several calls")
    call = _Feedback(engine, caller)
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
    there = await call.made_here(rankings)
    await call.known(items, "items")
    await call.known(users, "users")
    await call.rankings(rankings, there)
    await call.interactions([one for one in events if isinstance(one, metarank.InteractionEvent)])
    status = "ok" if not call.problems else "partial" if call.accepted else "rejected"
    took = _milliseconds(start)
    answer = metarank.FeedbackAnswer(status, call.accepted, call.updated, took, call.problems[:PROBLEMS])
    return msgspec.json.encode(answer)


class _Feedback:
    """One call to /feedback."""

    def __init__(self, engine: Engine, caller: Key) -> None:
        self.engine, self.caller = engine, caller
        self.accepted = self.updated = 0
        self.problems: list[str] = []
        self.lost: list[str | None] = []  # events that are only counted, as in `report`
        # those made from Metarank's models: they say what interactions are worth
        self.models = [
            live for live in engine.rankers.values() if live.row.spec.interactions and caller.is_for(live.row.name)
        ]
        self._named = sorted({name for live in self.models if (name := live.row.spec.catalog) is not None})
        self.catalogs = [name for name in self._named if caller.may_use(name)]

    def require_catalogs(self) -> None:
        """Refuse a caller who may not change the catalogs of the models by the service's own call either."""
        self.caller.require_scope("admin")
        if self._named and not self.catalogs:
            self.caller.require_catalog(self._named[0])

    async def made_here(self, events: Sequence[metarank.RankingEvent]) -> set[str]:
        """Which of these rankings were asked for here; the others become impressions, for which `rank` is needed."""
        if not events:
            return set()
        found = set(await shown(self.engine, self.caller, _plain(one.id for one in events)))
        if self.models and any(one.id not in found for one in events):
            self.caller.require_scope("rank")
        return found

    async def known(self, events: Sequence[metarank.ItemEvent | metarank.UserEvent], kind: Kind) -> None:
        """Items, or users, go to the catalogs of the models; fields that an event does not have stay."""
        if not events:
            return
        if not self.catalogs:
            self.problems.append(f"no ranker has a catalog for {kind}; `rankloop import metarank` makes one")
            return
        lines = b"\n".join(msgspec.json.encode({**metarank.values(one.fields), "id": _whose(one)}) for one in events)
        for name in self.catalogs:
            answer = await self.engine.operations.run(catalogs.put, self.engine, name, kind, lines, True)
            self.updated += answer.counts.get("accepted", 0)
            self.problems += [f"{one.id}: {one.reason}" for one in answer.results if one.status == "rejected"]
            refused = answer.counts.get("rejected", 0)
        self.accepted += len(events) - refused

    async def rankings(self, events: Sequence[metarank.RankingEvent], there: Collection[str]) -> None:
        """A ranking that was asked for here is known; another was made elsewhere, and is learned from as it stands."""
        for one in events:
            if one.id in there or not self.models:
                self.accepted += one.id in there
                if one.id not in there:
                    self.problems.append(f"ranking {one.id}: no ranker is made from a model of Metarank")
                continue
            fine = False
            for live in self.models:
                try:
                    call = live.schema.parse(_asked(live, one), self.engine.settings.max_candidates)._replace(
                        as_shown=True
                    )
                    await self.engine.answer(live, call, False, time.perf_counter())
                    fine = True
                except RankloopError as error:
                    self.problems.append(f"ranking {one.id}, ranker {live.row.name}: {error}")
            self.accepted += fine

    async def interactions(self, events: Sequence[metarank.InteractionEvent]) -> None:
        """What was done with the items of rankings."""
        if not events and not self.lost:
            return
        lists = await shown(self.engine, self.caller, _plain(one.ranking for one in events if one.ranking))
        made: list[FeedbackEvent] = []
        for one in events:
            found = lists.get(one.ranking or "", [])
            if not found:
                why = "names no ranking" if not one.ranking else f"is about ranking {one.ranking!r}, which is not known"
                self.problems.append(f"interaction {one.id} {why}; it teaches nothing")
                self.lost.append(None)
                continue
            self.accepted += 1
            for each in found:
                live = self.engine.rankers.get(each.ranker)
                event = None
                if live is not None:
                    event = told(live.row.spec, event_id(each.id, one.id), each, one.type, one.item)
                if event is not None:
                    made.append(event)
            known = [live.row.spec.interactions for each in found if (live := self.engine.rankers.get(each.ranker))]
            if not any(one.type in worth or (one.type == "click" and not worth) for worth in known):
                self.problems.append(
                    f"interaction {one.id} is a {one.type!r}, which is worth nothing; name it in `interactions` of the "
                    "ranker, with 0 to hear no more of it"
                )
        for receipt in await report(self.engine, made, self.caller, self.lost):
            self.updated += receipt.status == "accepted"
            if receipt.status in ("rejected", "orphan"):
                self.problems.append(receipt.reason or "an interaction was refused")


def _whose(one: metarank.ItemEvent | metarank.UserEvent) -> str:
    return one.item if isinstance(one, metarank.ItemEvent) else one.user


def _plain(names: Iterable[str]) -> list[str]:
    """Without those that no database takes."""
    return [name for name in names if "\0" not in name]


def _milliseconds(start: float) -> int:
    return round((time.perf_counter() - start) * 1000)
