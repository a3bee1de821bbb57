"""What a store does a few times a second, or with every request, costs the same whatever is in it already.

SQLite guesses which index will do, and a wrong guess reads the whole log: nobody notices in a test with ten lists, and
after half an hour of traffic lists take half a second. So its steps are counted, in a small store and in a large one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.learner import make_impression
from rankloop.core.types import Candidates
from rankloop.service.storage import (
    NewEvent,
    NewImpression,
    catalog,
    events,
    experiments,
    impressions,
    open_database,
    outcomes,
    rankers,
    retention,
    schema,
)
from rankloop.service.storage.catalog import Limits, NewRow
from rankloop.service.storage.database import Connection
from rankloop.service.storage.ids import new_id
from rankloop.service.storage.sqlite import SQLiteConnection
from rankloop.wire.calls import FeedbackEvent
from rankloop.wire.rankers import Spec

SMALL, LARGE = 500, 8000
RANKERS = ("shop", "other")
SPEC = Spec(learner="pairrank", features=["a"])
BODY = codec.dump_impression(make_impression(Candidates("q", ["x", "y"], [[1.0], [0.0]]), np.arange(2)))
KINDS = {"pairrank": "clicks"}


def impression(number: int, ranker: str, now: float, window: float) -> NewImpression:
    return NewImpression(
        id=new_id(now),
        ranker=ranker,
        epoch=1,
        number=number,
        created=now,
        closes=now + window,
        person=f"user{number}",
        request_id=f"request{number}",
        digest=b"",
        learn=True,
        body=BODY,
        answer=b"{}",
        shown=msgspec.json.encode(["x", "y"]),
    )


def event(list_id: str, name: str) -> NewEvent:
    made = FeedbackEvent(event_id=name, impression_id=list_id, clicks=["x"], final=True)
    return NewEvent(made, msgspec.json.encode(made))


class _Undone(Exception):
    pass


class Filled:
    """A store with so many closed lists, and twenty that are open, of which five are over their time."""

    def __init__(self, path: Path, lists: int) -> None:
        database = open_database(str(path))
        schema.migrate(database)
        connection = database.connect()
        assert isinstance(connection, SQLiteConnection)
        self.connection, self.now, self.steps = connection, time.time(), 0
        with connection.transaction():
            for name in RANKERS:
                rankers.add_ranker(connection, name, SPEC, b"", 0.001)  # epoch 1
            past = [impression(i, RANKERS[i % 2], self.now - 5000 + i / 10, 1e6) for i in range(lists)]
            impressions.add_impressions(connection, past)
            for start in range(0, lists, 500):
                some = past[start : start + 500]
                events.add_events(connection, [event(one.id, one.id) for one in some], self.now, KINDS)
            connection.run("UPDATE snapshots SET seq = 100000")
            items = [NewRow(f"i{i}", {"price": i}) for i in range(lists)]
            catalog.write(connection, "shop", "items", items, False, Limits(10**6, 2**30), self.now)
            catalog.delete(connection, "shop", "items", ["i1"], self.now)
        with connection.transaction():
            self.open = [impression(lists + i, "shop", self.now - 100 + i, 95.0 if i < 5 else 1000) for i in range(20)]
            impressions.add_impressions(connection, self.open)
        self.heads = outcomes.log_offsets(connection)
        assert self.heads["shop"] == lists // 2  # the past is closed
        connection._raw.set_progress_handler(self._count, 1)

    def _count(self) -> int:
        self.steps += 1
        return 0

    def cost(self, work: Callable[[Filled], Any]) -> int:
        """Steps of SQLite's machine that a piece of work takes; what it does is undone."""
        self.steps = 0
        with suppress(_Undone), self.connection.transaction():
            assert work(self) is not None
            raise _Undone
        return self.steps


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Filled, Filled]:
    folder = tmp_path_factory.mktemp("growth")
    return Filled(folder / "small.db", SMALL), Filled(folder / "large.db", LARGE)


def swept(connection: Connection) -> int:
    return retention.delete_old(connection, None)


WORK: dict[str, Callable[[Filled], Any]] = {
    "a list": lambda s: impressions.add_impressions(s.connection, [impression(10**6, "shop", s.now, 10.0)]),
    "a list asked for twice": lambda s: impressions.add_impressions(s.connection, [s.open[-1]]),
    "feedback": lambda s: events.add_events(s.connection, [event(s.open[-1].id, "new")], s.now, KINDS),
    "feedback to a closed list": lambda s: events.add_events(s.connection, [event(s.open[0].id, "new")], s.now, KINDS),
    "numbers": lambda s: impressions.reserve_numbers(s.connection, "shop", 10),
    "windows to close": lambda s: outcomes.any_window_ended(s.connection, s.now),
    "closing windows": lambda s: outcomes.close_windows(s.connection, s.now, KINDS),
    "closing none": lambda s: outcomes.close_windows(s.connection, s.now - 1000, KINDS),
    "open lists": lambda s: impressions.open_counts(s.connection),
    "heads": lambda s: outcomes.log_offsets(s.connection),
    "outcomes to learn": lambda s: outcomes.outcomes_from(s.connection, "shop", s.heads["shop"] - 10),
    "lists of an experiment": lambda s: experiments.interleaved_outcomes(
        s.connection, "shop", 1, s.heads["shop"] - 10, s.heads["shop"], 100
    ),
    "lists by the names of requests": lambda s: impressions.find_impressions(
        s.connection, RANKERS, [s.open[-1].request_id or "", s.open[0].id, "nobody"]
    ),
    "lists on the page": lambda s: impressions.latest_impressions(s.connection, "shop", 20),
    "bodies to explain": lambda s: impressions.latest_learned_bodies(s.connection, "shop", 1, s.now - 50, 8),
    "bodies of a ranker": lambda s: impressions.latest_bodies(s.connection, "shop", 1, 20),
    "what may go, when nothing is old": lambda s: swept(s.connection),
    "what may go of a catalog, when nothing may": lambda s: catalog.delete_unused(s.connection, s.now, 200),
    "a deleted item of a catalog": lambda s: catalog.delete_unused(
        s.connection, s.now + 2 * catalog.DELETED_SECONDS, 200
    ),
    "old lists, when there are none": lambda s: retention.delete_old(s.connection, s.now - 10**6),
}


class Behind(Filled):
    """A store with a ranker that nobody learns: so many of its impressions are older than all others, and are open
    although their windows have ended, or closed and in no snapshot."""

    def __init__(self, path: Path, lists: int, *, still_open: bool) -> None:
        super().__init__(path, SMALL)
        connection = self.connection
        with connection.transaction():
            rankers.add_ranker(connection, "behind", SPEC, b"", 0.001)
            old = [impression(10**6 + i, "behind", self.now - 10_000 + i / 10, 1.0) for i in range(lists)]
            impressions.add_impressions(connection, old)
            for start in range(0, 0 if still_open else lists, 500):
                some = old[start : start + 500]
                events.add_events(connection, [event(one.id, one.id) for one in some], self.now - 9000, KINDS)


BEHIND: dict[str, Callable[[Filled], Any]] = {
    "windows to close": lambda s: outcomes.any_window_ended(s.connection, s.now),
    "old lists": lambda s: retention.delete_old(s.connection, s.now - 5500, 20),
    "closing windows": lambda s: outcomes.close_windows(s.connection, s.now, KINDS, 20),
    "open lists": lambda s: impressions.open_counts(s.connection),
    "what may go": lambda s: swept(s.connection),
}


@pytest.mark.parametrize("still_open", [True, False], ids=["open", "in no snapshot"])
def test_cost_does_not_grow_with_the_log_of_an_unlearned_ranker(
    tmp_path: Path, still_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(impressions, "COUNTED", 200)
    monkeypatch.setattr(retention, "OLDEST", 200)
    small, large = (Behind(tmp_path / f"{lists}.db", lists, still_open=still_open) for lists in (SMALL, LARGE))
    for what, work in BEHIND.items():
        first, second = small.cost(work), large.cost(work)
        assert second <= 1.5 * first + 100, f"{what}: {first} steps with {SMALL} lists, {second} with {LARGE}"


def test_retention_of_other_rankers_continues_while_one_is_not_learned(tmp_path: Path) -> None:
    store = Behind(tmp_path / "store.db", SMALL, still_open=False)
    with store.connection.transaction():
        before = store.now - 4990
        old = store.connection.rows("SELECT COUNT(*) FROM impressions WHERE ranker <> 'behind' AND created < ?", before)
        gone = 0
        while found := retention.delete_old(store.connection, before, 50):
            gone += found
        assert [(gone,)] == old
        assert gone > 0
        left = store.connection.rows("SELECT COUNT(*) FROM impressions WHERE ranker = 'behind'")
        assert left == [(SMALL,)]


@pytest.mark.parametrize("what", WORK)
def test_cost_does_not_grow_with_the_store(what: str, stores: tuple[Filled, Filled]) -> None:
    small, large = (store.cost(WORK[what]) for store in stores)
    assert large <= 1.5 * small + 100, f"{small} steps with {SMALL} lists, {large} with {LARGE}"
