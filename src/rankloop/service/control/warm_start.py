"""Warm start: logged lists become outcomes in a ranker's log, like lists shown in shadow whose feedback has come.

So nothing else has to know of them: what is learned stays a fold over the log, replay meets the same bits, versions and
rollbacks hold what they say, erasing a user covers them, and several processes may add and learn at the same time.
Blocking: call in a thread.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np

from rankloop.core.errors import DataError, InvalidInput, InvalidParameter
from rankloop.logs import LoggedImpression, LogReader, WarmStartReport, parse_line
from rankloop.service.control.actions import Action
from rankloop.service.errors import Conflict, OverLimit, UnknownRanker
from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.storage import outcomes
from rankloop.service.storage.database import Connection
from rankloop.service.storage.outcomes import AdoptedImpression, Backfilled
from rankloop.wire.calls import Candidate, RankRequest
from rankloop.wire.rankers import WarmAnswer

PORTION = 256  # lists a transaction of `warm`: the learner adopts them with what it has learned until before them
PROBLEMS = 20  # that a call names
Progress = Callable[[int, int], None]  # bytes done, of how many


def call(engine: Engine, name: str, body: bytes, strict: bool = False) -> WarmAnswer:
    """Logged lists as a request brings them: a JSON object a line."""
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise InvalidInput("the body is empty; send a JSON object a line")
    if len(lines) > engine.settings.max_events:
        limit = engine.settings.max_events
        raise OverLimit(f"{len(lines)} lists; the limit max_events is {limit}: send several calls")
    live = target(engine, name)
    whole = blake2b(body, digest_size=16).hexdigest()
    lists, problems = [], []
    for number, line in lines:
        try:
            one = parse_line(line)
            lists.append(adopted(engine, live, f"{whole}:{number}" if one.id is None else f"id:{one.id}", one))
        except InvalidInput as error:
            if strict:
                raise InvalidInput(f"line {number}: {error}; nothing of this call was taken") from None
            problems.append(f"line {number}: {error}")
    action = Action(engine, "warm", name)
    added = add(engine, live, lists, action, Backfilled(0, 0, 0))
    if added.lists:
        action.log(_text(added))
    engine.wake_learner([name])
    return WarmAnswer(added.lists, added.clicks, added.known, len(problems), problems[:PROBLEMS])


def warm(engine: Engine, name: str, reading: LogReader, on_progress: Progress | None = None) -> WarmStartReport:
    """The lists of files, portion by portion; those that are in the log already are passed over.

    If this process holds the lease, each portion is learned before the next is adopted; else the holder learns behind.
    """
    began, raws = time.perf_counter(), iter(reading)
    action, added, known = Action(engine, "warm", name), Backfilled(0, 0, 0), 0
    while some := list(islice(raws, PORTION)):
        live = target(engine, name)
        keys = [raw.key for raw in some]
        there = engine.database.read(lambda c, at=live, ks=keys: outcomes.known_keys(c, name, at.row.epoch, ks))  # type: ignore[misc]
        made: list[AdoptedImpression] = []
        known += len(there)
        try:
            for raw in some:
                one = None if raw.key in there else reading.parsed(raw, partial(adopted, engine, live, raw.key))
                if one is not None:
                    made.append(one)
        except DataError:  # strict: what came before the malformed one is kept
            add(engine, live, made, action, added)
            raise
        added = add(engine, live, made, action, added)
        if engine.learning is None or not engine.learning.learn_now(name):
            engine.wake_learner([name])
        if on_progress is not None:
            on_progress(reading.position, reading.total)
    return WarmStartReport(added.lists, added.clicks, reading.bad, known + added.known, time.perf_counter() - began)


def target(engine: Engine, name: str) -> LiveRanker:
    """The ranker, if it can learn from logged lists."""
    live = engine.rankers.get(name) or engine.load(name)
    if live is None:
        raise UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    if live.kind != "clicks":
        raise InvalidParameter(f"ranker {name!r} learns from {live.kind}; logged lists have clicks")
    if not live.row.learning:
        raise Conflict(f"ranker {name!r} is paused, so they would not be learned; POST /v1/rankers/{name}/resume first")
    return live


def adopted(engine: Engine, live: LiveRanker, key: str, one: LoggedImpression) -> AdoptedImpression:
    """A logged list as the ranker's learner takes it: features by the ranker's names, normalized as its own are."""
    if len(one.items) > engine.settings.max_candidates:
        limit = engine.settings.max_candidates
        raise InvalidInput(f"{len(one.items)} items; the limit max_candidates is {limit}")
    rows: Sequence[Any] = one.features or [None] * len(one.items)
    try:
        sent = [Candidate(item, row) for item, row in zip(one.items, rows, strict=True)]
        candidates = live.schema.candidates(live.schema.read(RankRequest(candidates=sent, query=one.query)))
    except (struct.error, OverflowError, TypeError) as error:
        raise InvalidInput(f"features are not numbers ({error})") from None
    told = {}
    if one.log_propensity is not None:  # `learn` does not need it; estimates of `rankloop replay --try` do
        told = {"log_propensity": np.array([one.log_propensity]), "candidates": np.array([candidates.n])}
        told["logged"] = np.ones(1)
    k = len(one.clicks)
    if live.model is None:
        raise Conflict(f"ranker {live.row.name!r} has no model: {live.load_error or 'its state is being loaded'}")
    return AdoptedImpression(key, one.user, one.items[:k], one.clicks, live.model.adopt(candidates, k, told))


def _text(added: Backfilled) -> str:
    return f"{added.lists} logged lists with {added.clicks} clicks were added"


def add(
    engine: Engine, live: LiveRanker, lists: Sequence[AdoptedImpression], action: Action, before: Backfilled
) -> Backfilled:
    """Append lists to the log; how many `action` has appended, with those `before`. Its audit entry counts them."""
    name, epoch, now = live.row.name, live.row.epoch, engine.clock()
    added = before
    for first in range(0, len(lists), PORTION):  # a transaction keeps others waiting for the head

        def work(
            connection: Connection,
            part: Sequence[AdoptedImpression] = lists[first : first + PORTION],
            sofar: Backfilled = added,
        ) -> Backfilled | None:
            found = outcomes.backfill(connection, name, epoch, part, now)
            if found is None:
                return None
            total = Backfilled(*(a + b for a, b in zip(sofar, found, strict=True)))
            if found.lists:
                action.update(connection, _text(total))
            return total

        found = engine.writer.do(work)
        if found is None:
            raise Conflict(f"ranker {name!r} was reset, paused or deleted meanwhile; look, and send the rest again")
        engine.metrics.count("outcomes_total", found.lists - added.lists, ranker=name, kind="logged")
        added = found
    return added
