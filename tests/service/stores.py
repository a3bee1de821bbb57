"""A store under test, and short ways to say what is done with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest

from rankloop.service.storage import NewEvent, NewImpression, Outcome, Writer, rankers, schema
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage.database import open_database
from rankloop.service.storage.outcomes import Closing
from rankloop.service.storage.writer import in_batches
from rankloop.wire.calls import FeedbackEvent, Receipt
from rankloop.wire.rankers import Spec
from tests.service.running import PATIENCE
from tests.service.truths import read

T = TypeVar("T")
KINDS = {"pairrank": "clicks", "x": "grades"}
TABLES = [
    "rankers",
    "log_offsets",
    "impressions",
    "events",
    "outcomes",
    "snapshots",
    "versions",
    "leases",
    "workers",
    "keys",
]
TABLES += ["experiments", "origins", "facts", "tombstones"]


class Store:
    """A database with its writer, as one process has them, and a clock that stands still."""

    def __init__(self, url: str, time_limits: bool = False) -> None:
        self.url, self.now = url, 1000.0
        self.database = open_database(url, time_limits)
        schema.migrate(self.database)
        self.writer = Writer(self.database, KINDS, clock=lambda: self.now)
        self._numbers = count()

    def close(self) -> None:
        self.writer.close()
        self.database.close()

    def do(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return self.writer.do(lambda connection: work(connection, *arguments, **named))

    def see(self, work: Callable[..., T], *arguments: Any) -> T:
        return self.database.read(lambda connection: work(connection, *arguments))

    def ranker(self, name: str = "shop", **spec: Any) -> None:
        assert self.do(rankers.add_ranker, name, Spec(**spec), b"fresh", self.now)

    def delete(self, name: str = "shop") -> bool:
        """Delete a ranker and all that it leaves."""
        buried = self.do(rankers.delete_ranker, name, self.now)
        sum(in_batches(self.writer, rankers.delete_remains))
        return buried

    def alone(self, work: Callable[..., T], *arguments: Any) -> T:
        """With a connection of its own: for what has transactions of its own."""
        connection = self.database.connect()
        try:
            return work(connection, *arguments)
        finally:
            connection.close()

    def row(self, name: str = "shop") -> rankers.Ranker:
        found = self.see(rankers.get_ranker, name)
        assert found is not None
        return found

    def new(
        self, name: str | None = None, *, ranker: str = "shop", window: float = 10.0, **fields: Any
    ) -> NewImpression:
        number = next(self._numbers)
        name = name or f"imp{number}"
        made: dict[str, Any] = {
            "id": name,
            "ranker": ranker,
            "epoch": self._epoch(ranker),
            "number": number,
            "created": self.now,
            "closes": self.now + window,
            "person": None,
            "request_id": None,
            "digest": b"digest",
            "learn": True,
            "body": f"body of {name}".encode(),
            "answer": f"answer of {name}".encode(),
            "shown": b'["a","b","c"]',
        }
        return NewImpression(**(made | fields))

    def _epoch(self, ranker: str) -> int:
        found = self.see(rankers.get_ranker, ranker)
        return found.epoch if found else 0

    def show(self, name: str | None = None, **fields: Any) -> str:
        new = self.new(name, **fields)
        assert self.writer.impression(new).future.result(PATIENCE).fresh
        return new.id

    def send(self, *events: FeedbackEvent) -> list[Receipt]:
        return self.writer.events([as_new(event) for event in events]).future.result(PATIENCE).receipts

    def close_windows(self) -> list[Closing]:
        return self.do(stored_outcomes.close_windows, self.now, KINDS)

    def outcomes(self, ranker: str = "shop") -> list[Outcome]:
        return self.see(stored_outcomes.outcomes_from, ranker, 0)

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return read(self.url, sql, *parameters)

    def count(self, table: str) -> int:
        ((number,),) = self.rows(f"SELECT COUNT(*) FROM {table}")
        return int(number)


def as_new(event: FeedbackEvent) -> NewEvent:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return NewEvent(event, json.dumps(fields).encode())


def ev(event: str, impression: str, clicks: list[Any] | None = None, **fields: Any) -> FeedbackEvent:
    return FeedbackEvent(event, impression, clicks, **fields)


def statuses(receipts: Sequence[Receipt]) -> list[str]:
    return [receipt.status for receipt in receipts]


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    made = Store(store_url)
    yield made
    made.close()


@pytest.fixture
def shop(store: Store) -> Store:
    """A store with a ranker that takes clicks."""
    store.ranker()
    return store
