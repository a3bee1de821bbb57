"""What must be true of a store, whatever happened to the service: found out from the store alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankloop.core import codec, registry
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized
from rankloop.core.types import Array, Feedback
from rankloop.service.ranking import model as models
from rankloop.service.storage import open_database, rankers, snapshots
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage.events import SEPARATOR
from rankloop.service.training.fold import Fold
from tests.service.running import Load


def read(url: str, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Rows of a query, from a connection of its own."""
    connection = open_database(url).connect()
    try:
        with connection.transaction():
            return [
                tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)
                for row in connection.rows(sql, *parameters)
            ]
    finally:
        connection.close()


def sent_id(stored: str) -> str:
    """The event_id that a caller sent, of an event as it is stored: with the name of its ranker before it."""
    return stored.rpartition(SEPARATOR)[2]


def check_log(url: str, ranker: str, loads: Sequence[Load]) -> int:
    """Whatever was acknowledged is stored, once, and every outcome is the join of its events; how many there are."""
    events = {
        sent_id(row[0]): row[1:]
        for row in read(
            url,
            "SELECT e.event_id, e.impression_id, e.status, e.body FROM events e "
            "JOIN impressions i ON i.id = e.impression_id WHERE i.ranker = ?",
            ranker,
        )
    }
    impressions = {
        row[0]: row[1:]
        for row in read(
            url, "SELECT id, number, shown, open, seq, answer, request_id FROM impressions WHERE ranker = ?", ranker
        )
    }
    outcomes = read(
        url, "SELECT seq, impression_id, kind, feedback FROM outcomes WHERE ranker = ? ORDER BY seq", ranker
    )
    ((head,),) = read(url, "SELECT next_seq FROM log_offsets WHERE ranker = ?", ranker)

    # Numbers: of outcomes without a gap, of impressions never twice (their random numbers hang on it).
    assert [row[0] for row in outcomes] == list(range(head))
    assert len({row[0] for row in impressions.values()}) == len(impressions)
    # One outcome an impression, and each knows the other.
    assert {row[1]: row[0] for row in outcomes} == {
        name: row[3] for name, row in impressions.items() if row[3] is not None
    }
    assert len({row[1] for row in outcomes}) == len(outcomes)
    assert all(row[2] == 0 for row in impressions.values() if row[3] is not None)

    accepted: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for impression, status, body in events.values():
        assert status in ("accepted", "late")
        if status == "accepted":
            accepted[impression].append(json.loads(body))
    for _, impression, kind, feedback in outcomes:
        joined = accepted[impression]
        assert kind == ("final" if any(e.get("final") for e in joined) else "window" if joined else "silent")
        clicked = {item for event in joined for item in event.get("clicks") or ()}
        values = json.loads(feedback)
        shown = json.loads(impressions[impression][1])
        assert {item for item, value in zip(shown, values, strict=False) if value} == clicked, impression

    for load in loads:
        assert set(load.shown) <= set(impressions)
        for name, shown in load.shown.items():
            assert json.loads(impressions[name][1]) == shown
        stored = {row[5]: row[4] for row in impressions.values()}
        for request, answer in load.answers.items():
            assert stored[request] == answer
        for event, statuses in load.acknowledged.items():
            # Accepted at most once; once acknowledged, a duplicate ever after.
            assert set(statuses[:1]) <= {"accepted", "late", "duplicate"}, (event, statuses)
            assert set(statuses[1:]) <= {"duplicate"}, (event, statuses)
            impression, status, body = events[event]
            assert impression == load.sent[event]["impression_id"]
            assert json.loads(body) == load.sent[event]
            assert statuses[0] in (status, "duplicate")
            if status == "accepted" and load.sent[event].get("final"):
                assert impressions[impression][3] is not None
    unsent = set(events).difference(*(load.sent for load in loads))
    assert not unsent
    return int(head)


def snapshot_of(url: str, ranker: str) -> snapshots.Snapshot:
    database = open_database(url)
    found = database.read(lambda c: snapshots.snapshot(c, ranker))
    database.close()
    assert found is not None
    return found


def folded(url: str, ranker: str, since: int, until: int) -> dict[str, Array]:
    """The state after outcomes since … until-1, written down plainly: no code of the service but its tables."""
    ((text,),) = read(url, "SELECT spec FROM rankers WHERE name = ?", ranker)
    spec = json.loads(text)
    learner = registry.make(spec["learner"], **spec["parameters"])
    if spec["normalization"] == "stream" and learner.contextual:
        learner = standardized(learner)
    streams = Rng(spec["seed"])
    for seq, body, feedback in read(
        url,
        "SELECT o.seq, i.body, o.feedback FROM outcomes o JOIN impressions i ON i.id = o.impression_id "
        "WHERE o.ranker = ? AND o.seq >= ? AND o.seq < ? AND o.learn = 1 ORDER BY o.seq",
        ranker,
        since,
        until,
    ):
        values = np.array(json.loads(feedback), dtype=np.float64)
        learner.learn(codec.load_impression(body), Feedback(learner.feedback, values), streams.for_event("learn", seq))
    return learner.state()


def refolded(url: str, ranker: str) -> tuple[int, bytes]:
    """The same with the service's own fold, over the whole log at once."""
    database = open_database(url)
    row = database.read(lambda c: rankers.get_ranker(c, ranker))
    assert row is not None
    fold = Fold(row, models.make_learner(row.spec), 0)
    for outcome in database.read(lambda c: stored_outcomes.outcomes_from(c, ranker, 0, limit=10**9)):
        fold.learn(outcome)
    database.close()
    return fold.state()


def check_state(url: str, ranker: str, since: int = 0) -> int:
    """The last snapshot is bit-equal to an uninterrupted run of the same log (from a reset on); how far it goes."""
    snapshot = snapshot_of(url, ranker)
    arrays, _ = codec.loads(snapshot.state)
    plain = folded(url, ranker, since, snapshot.seq)
    assert arrays.keys() == plain.keys()
    for name, array in plain.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape), name
        assert arrays[name].tobytes() == array.tobytes(), f"{name} differs from the fold over the log"
    return snapshot.seq
