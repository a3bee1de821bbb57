"""Machines whose clocks differ agree on the store's: windows are as long as they say, whoever learns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from rankloop.service.control import rankers
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage.database import Connection, Database, Row, Size
from rankloop.service.worker.process import StoreClock
from rankloop.wire.rankers import Spec
from tests.service.conftest import Postgres
from tests.service.inside import click, rank, running
from tests.service.running import PATIENCE, SPEC, wait_for
from tests.service.truths import read

T = TypeVar("T")


class Slow(Database):
    """A store ten seconds ahead, whose answers take as long as is said; all in one clock that the test moves."""

    clock = "what time is it"

    def __init__(self) -> None:
        self.now, self.there, self.back = 1000.0, 0.0, 0.0

    def rows(self, _sql: str) -> list[Row]:
        self.now += self.there
        read = self.now + 10.0
        self.now += self.back
        return [(read,)]

    def read(self, query: Callable[[Connection], T]) -> T:
        return query(self)  # type: ignore[arg-type]

    def connect(self, time_limits: bool = True) -> Connection:
        raise NotImplementedError

    def close(self) -> None:
        return

    def size(self) -> Size:
        raise NotImplementedError


def test_clock_offset_is_kept_within_the_round_trip_time() -> None:
    store = Slow()
    clock = StoreClock(store, lambda: store.now)
    clock.compare()
    assert clock.ahead == 10.0
    for store.there, store.back in ((3.0, 0.0), (0.0, 3.0), (0.2, 0.2)):  # a slow network is no reason to move
        clock.compare()
        assert clock.ahead == 10.0
    clock.ahead, store.there, store.back = 0.0, 0.5, 1.5  # wrong by more than that, and the truth is not known better
    clock.compare()
    assert clock.ahead == 10.0 + (0.5 - 1.5) / 2
    assert clock() == store.now + clock.ahead


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_windows_on_a_machine_whose_clock_is_wrong(wrong: float, postgres: Postgres) -> None:
    url = postgres.database()
    settings = Settings(store=url, refresh_seconds=0.1, store_timeout_ms=PATIENCE * 1e3)
    with running(settings) as learns:
        rankers.put(learns, "shop", Spec(**{**SPEC, "window_seconds": 15.0}))
        wait_for(lambda: rankers.status(learns, "shop").learner_process == learns.worker, "the lease")
        ranks = Engine(Settings(**{**vars(settings), "learn": False}))
        assert isinstance(ranks.clock, StoreClock)
        ranks.clock.own = lambda: time.time() + wrong
        ranks.start()
        try:
            answers = asyncio.run(_two_lists(ranks))
            assert asyncio.run(click(ranks, "in time", answers[0], final=False)) == ["accepted"]
            wait_for(
                lambda: rankers.status(learns, "shop").closed_impressions == 2, "both windows to close", every=0.01
            )
            ((since, until),) = read(url, "SELECT MIN(created), MIN(closes) FROM impressions")
            ((closed,),) = read(url, "SELECT MIN(created) FROM outcomes")
            assert abs(since - time.time()) < PATIENCE
            assert 0.0 <= closed - until < PATIENCE  # an hour is far from that
        finally:
            ranks.stop()


async def _two_lists(engine: Engine) -> list[Any]:
    return [await rank(engine, seed) for seed in range(2)]
