"""A clock that goes back: no window closes early, nothing is deleted too soon, the lease stays."""

from __future__ import annotations

import asyncio

from rankloop.service.control import rankers
from rankloop.service.maintenance.housekeeping import Retention
from rankloop.service.settings import Settings
from rankloop.service.storage import open_database, schema
from rankloop.service.storage import rankers as stored_rankers
from rankloop.wire.rankers import Spec
from tests.service.inside import click, rank, running
from tests.service.running import PATIENCE, SPEC, wait_for
from tests.service.truths import check_state, read, snapshot_of


def test_the_clock_goes_back(store_url: str) -> None:
    now = 1_700_000_000.0
    settings = Settings(
        store=store_url,
        snapshot_seconds=0.05,
        refresh_seconds=0.1,
        lease_seconds=0.5,
        store_timeout_ms=PATIENCE * 1e3,
    )
    with running(settings, lambda: now) as engine:
        rankers.put(engine, "shop", Spec(**{**SPEC, "window_seconds": 60.0}))

        async def story() -> None:
            nonlocal now
            before = [await rank(engine, i) for i in range(6)]
            assert await click(engine, "early", before[0]) == ["accepted"]
            now -= 3600
            after = [await rank(engine, i) for i in range(6)]
            ids = [answer.impression_id for answer in before + after]
            assert None not in ids
            assert len(set(ids)) == 12
            # Lists from before and after the jump take feedback, in one event or several.
            assert await click(engine, "old", before[1]) == ["accepted"]
            assert await click(engine, "part", before[2], final=False) == ["accepted"]
            assert await click(engine, "new", after[0]) == ["accepted"]
            assert await click(engine, "early", before[0]) == ["duplicate"]
            await asyncio.sleep(1.5)  # three times the life of a lease that does not beat
            wait_for(lambda: rankers.status(engine, "shop").unlearned_impressions == 0, "all to be learned")
            status = rankers.status(engine, "shop")
            assert status.learner_process == engine.worker
            assert (status.closed_impressions, status.unlearned_impressions, status.open_impressions) == (
                3,
                0,
                9,
            )  # no window closes early

            now += 61  # windows of lists from after the jump end
            wait_for(lambda: rankers.status(engine, "shop").closed_impressions == 8, "windows to close")
            assert await click(engine, "late", after[1]) == ["late"]
            assert await click(engine, "rest", before[2]) == ["accepted"]  # those from before wait an hour longer
            now += 3600
            wait_for(lambda: rankers.status(engine, "shop").closed_impressions == 12, "windows to close")
            wait_for(lambda: rankers.status(engine, "shop").unlearned_impressions == 0, "all to be learned")

        asyncio.run(story())
    found = read(store_url, "SELECT kind FROM outcomes ORDER BY seq")
    assert [row[0] for row in found].count("final") == 4
    assert len(found) == 12
    assert check_state(store_url, "shop") == 12


def test_retention_with_a_clock_that_went_back(store_url: str) -> None:
    """What seems to come from the future is not old."""
    database = open_database(store_url)
    schema.migrate(database)
    database.close_thread()
    now = 1_700_000_000.0
    settings = Settings(
        store=store_url,
        snapshot_seconds=0.05,
        refresh_seconds=0.1,
        retention_days=1.0,
        store_timeout_ms=PATIENCE * 1e3,
    )
    with running(settings, lambda: now) as engine:
        rankers.put(engine, "shop", Spec(**SPEC))

        async def story() -> None:
            nonlocal now
            assert await click(engine, "e1", await rank(engine)) == ["accepted"]
            wait_for(lambda: (rankers.status(engine, "shop").snapshot_impressions or 0) == 1, "a snapshot")
            now -= 7200
            Retention(engine).delete()
            assert len(read(store_url, "SELECT id FROM impressions")) == 1
            now += 7200 + 86400 + 1
            Retention(engine).delete()
            assert read(store_url, "SELECT id FROM impressions") == []
            assert await click(engine, "e2", await rank(engine)) == ["accepted"]

        asyncio.run(story())
        assert engine.writer.do(stored_rankers.list_rankers)[0].name == "shop"
    assert snapshot_of(store_url, "shop").seq == 2
