"""What a commit waits for, what readers see, and what becomes of what the store cannot take."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from rankloop.service.errors import Conflict, StoreSlow, StoreUnavailable
from rankloop.service.storage import Writer, impressions, rankers, snapshots
from rankloop.service.storage.database import Connection, Retryable
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE, wait_for
from tests.service.stores import KINDS, Store, as_new, ev, shop, statuses, store
from tests.service.test_store_writer import held_up

__all__ = ["shop", "store"]  # fixtures


# -- what is on the disk -------------------------------------------------------------------------------------------


class Noted:
    """A database's `connect` that notes of each transaction whether it waited for the disk, and what was in it."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.seen: list[tuple[bool, int]] = []  # (durable, as the database has it; events in the store)

    def __call__(self) -> Connection:
        connection = self._connect()
        transaction = connection.transaction

        def noted(durable: bool = True, wait: bool = True) -> AbstractContextManager[None]:
            return self._within(connection, transaction(durable, wait))

        connection.transaction = noted  # type: ignore[method-assign]
        return connection

    def _within(self, connection: Connection, inner: AbstractContextManager[None]) -> AbstractContextManager[None]:
        noted = self

        class Within(AbstractContextManager[None]):
            def __enter__(self) -> None:
                inner.__enter__()

            def __exit__(self, *error: Any) -> bool | None:
                ((events,),) = connection.rows("SELECT COUNT(*) FROM events")
                noted.seen.append((waits_for_the_disk(connection), int(events)))
                return inner.__exit__(*error)

        return Within()


def waits_for_the_disk(connection: Connection) -> bool:
    if connection.lock_rows:  # PostgreSQL
        return connection.row("SHOW synchronous_commit") != ("off",)
    return connection.row("PRAGMA synchronous") == (2,)  # FULL


def noting(store: Store, **options: Any) -> Noted:
    store.writer.close()
    noted = Noted(store.database.connect)
    store.database.connect = noted  # type: ignore[method-assign, assignment]
    store.writer = Writer(store.database, KINDS, clock=lambda: store.now, **options)
    return noted


def test_feedback_waits_for_the_disk_and_impressions_do_not(shop: Store) -> None:
    noted = noting(shop, all_durable=False)
    name = shop.show()
    assert statuses(shop.send(ev("e1", name, ["a"]))) == ["accepted"]
    shop.show()
    shop.close_windows()
    assert noted.seen == [(False, 0), (True, 1), (False, 1), (True, 1)]


def test_impressions_are_committed_before_feedback_of_the_same_batch(shop: Store) -> None:
    noted = noting(shop, all_durable=False)
    shown = shop.show()
    go = held_up(shop)
    event = shop.writer.events([as_new(ev("e1", shown, ["a"]))])
    more = [shop.writer.impression(shop.new()) for _ in range(3)]
    go.set()
    assert all(write.future.result(PATIENCE).fresh for write in more)
    assert statuses(event.future.result(PATIENCE).receipts) == ["accepted"]
    assert noted.seen[-2:] == [(False, 0), (True, 1)]


def test_impressions_wait_for_the_disk_if_all_writes_are_durable(shop: Store) -> None:
    noted = noting(shop, all_durable=True)
    shop.send(ev("e1", shop.show(), ["a"]))
    assert {durable for durable, _ in noted.seen} == {True}


def test_synchronous_commit_is_turned_on(postgres: Postgres) -> None:
    """Feedback is on the disk when it is acknowledged, also where synchronous_commit is off by default."""
    lazy = Store(postgres.database() + "%20-csynchronous_commit%3Doff")
    try:
        assert lazy.do(waits_for_the_disk)
    finally:
        lazy.close()


# -- what readers see ----------------------------------------------------------------------------------------------


def test_a_read_sees_one_state(shop: Store) -> None:
    """A ranker's row and its snapshot belong together, whatever is replaced between the two looks."""

    def pair(connection: Connection) -> tuple[int, int]:
        row = rankers.get_ranker(connection, "shop")
        shop.do(snapshots.replace_state, "shop", b"another", shop.now, reset=True)
        snapshot = snapshots.snapshot(connection, "shop")
        assert row is not None
        assert snapshot is not None
        return row.generation, snapshot.generation

    before, of_state = shop.see(pair)
    assert before == of_state
    assert shop.row().generation == before + 1


def test_a_reader_cannot_write(postgres: Postgres) -> None:
    made = Store(postgres.database())
    try:
        with pytest.raises(StoreUnavailable):
            made.see(lambda connection: connection.run("DELETE FROM rankers"))
    finally:
        made.close()


# -- what the store cannot take ------------------------------------------------------------------------------------


def counting(store: Store) -> Counter[str]:
    """A new writer for a store, and what it counts as errors."""
    errors: Counter[str] = Counter()
    store.writer.close()
    store.writer = Writer(store.database, KINDS, on_error=lambda kind: errors.update([kind]), clock=lambda: store.now)
    return errors


def test_refused_requests_are_not_store_errors(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = counting(shop)
    shop.show()
    connections = Counter[str]()
    connect = shop.database.connect
    monkeypatch.setattr(shop.database, "connect", lambda: connections.update(["new"]) or connect())

    def refused(connection: Connection) -> None:
        rankers.touch(connection, "shop")
        raise Conflict("as it stands there")

    before = shop.row().revision
    go = held_up(shop)
    one, bad, two = (
        shop.writer.impression(shop.new("one")),
        shop.writer.run(refused),
        shop.writer.impression(shop.new("two")),
    )
    go.set()
    with pytest.raises(Conflict, match="as it stands there"):
        bad.future.result(PATIENCE)
    assert one.future.result(PATIENCE).fresh
    assert two.future.result(PATIENCE).fresh
    assert shop.row().revision == before  # what it did before it refused is undone
    assert not errors
    assert not connections


def test_full_writer_refuses_at_once(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.writer.MAX_WAITING", 10)
    errors = counting(shop)
    go = held_up(shop)
    taken = [shop.writer.impression(shop.new()) for _ in range(9)]
    for refused in (
        shop.writer.impression(shop.new()),
        shop.writer.events([as_new(ev("e1", "imp0", ["a"]))]),
        shop.writer.run(lambda _: None),
    ):
        with pytest.raises(StoreUnavailable, match="10"):
            refused.future.result(0)
    assert errors["full"] == 3
    go.set()
    assert all(write.future.result(PATIENCE).fresh for write in taken)
    assert shop.show()  # and there is room again


def test_waiting_writes_are_limited_in_bytes(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.writer.MAX_BYTES", 1_000_000)
    counting(shop)
    for _ in range(2):  # what has been written makes room
        go = held_up(shop)
        writes = [shop.writer.impression(shop.new(body=bytes(200_000))) for _ in range(8)]
        full = [write for write in writes if write.future.done()]
        go.set()
        assert len(full) == 4
        for write in full:
            with pytest.raises(StoreUnavailable):
                write.future.result(0)
        assert all(write.future.result(PATIENCE).fresh for write in writes if write not in full)


def test_event_loops_get_the_refusal(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.writer.MAX_WAITING", 1)
    go = held_up(shop)

    async def refused() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(StoreUnavailable):
            await shop.writer.impression(shop.new(), loop).done(PATIENCE)

    asyncio.run(refused())
    go.set()


def test_abandoned_work_that_has_not_started_is_not_run(shop: Store) -> None:
    go = held_up(shop)
    with pytest.raises(StoreUnavailable):
        shop.writer.do(lambda connection: rankers.touch(connection, "shop"), timeout=0.05)
    before = shop.row().revision
    go.set()
    shop.show()
    assert shop.row().revision == before


def test_abandoned_work_that_has_started_may_still_be_committed(shop: Store) -> None:
    go = threading.Event()

    def slow(connection: Connection) -> None:
        rankers.touch(connection, "shop")
        go.wait(PATIENCE)

    before = shop.row().revision
    seconds = iter([0.2, 1.0, 5.0, 25.0, 100.0])

    def given_up_while_it_ran() -> bool:
        try:
            shop.writer.do(slow, timeout=next(seconds))
        except StoreSlow:
            return True
        except StoreUnavailable:  # on a busy machine it may not have begun by then
            return False
        raise AssertionError("it was done")

    wait_for(given_up_while_it_ran, "it to be given up while it runs")
    go.set()
    shop.show()
    assert shop.row().revision == before + 1


def test_writes_fail_at_once_while_the_store_is_away(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.writer.PATIENCE", 0.2)
    counting(shop)
    tries: list[int] = []

    def away() -> Connection:
        tries.append(1)
        raise Retryable("nobody is there")

    with monkeypatch.context() as patch:
        patch.setattr(shop.database, "connect", away)
        for number in range(3):
            tries.clear()
            with pytest.raises(StoreUnavailable, match="nobody is there"):
                shop.do(rankers.touch, "shop")
            assert number == 0 or len(tries) == 1  # the first may be tried several times, and then each of them once
    assert shop.show()  # it is back: the next one finds out


def test_impressions_are_refused_while_a_commit_hangs(shop: Store) -> None:
    go = held_up(shop)
    first = shop.writer.impression(shop.new())
    shop.writer._stalled_after = 0.0
    with pytest.raises(StoreUnavailable):
        shop.writer.impression(shop.new()).future.result(0)

    async def reserve() -> None:  # the numbers of further lists
        with pytest.raises(StoreUnavailable):
            await shop.writer.run(
                lambda c: impressions.reserve_numbers(c, "shop", 1), asyncio.get_running_loop()
            ).done()

    asyncio.run(reserve())
    event = shop.writer.events([as_new(ev("e1", "nowhere", ["a"]))])  # feedback has more patience
    shop.writer._stalled_after = math.inf
    go.set()
    assert first.future.result(PATIENCE).fresh
    assert statuses(event.future.result(PATIENCE).receipts) == ["orphan"]
    assert shop.show()
