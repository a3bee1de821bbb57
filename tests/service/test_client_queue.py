"""The feedback queue: what is sent, when the service is away, at the end of a program, after a crash and in a child."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankloop.client import AsyncClient, Client, RejectedEvent, feedback_queue, transport
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.wire.calls import FeedbackEvent, Receipt
from tests.service.asking import AWAY, receipts, short_pauses
from tests.service.scripted import DROP, Asked, Said, Server, script
from tests.waiting import PATIENCE, wait_for

__all__ = ["short_pauses"]  # a fixture


class Store:
    """A service that takes events, once it is there."""

    def __init__(self, *first: Said) -> None:
        self.first, self.there = list(first), threading.Event()
        self.events: list[dict[str, Any]] = []
        self.there.set()

    def __call__(self, asked: Asked) -> Said:
        if not self.there.is_set():
            return AWAY
        if self.first:
            return self.first.pop(0)
        self.events += asked.json
        return receipts(asked)

    @property
    def ids(self) -> list[str]:
        return [event["event_id"] for event in self.events]


def test_events_are_delivered_in_their_order_after_failures() -> None:
    store = Store(DROP, AWAY, Said(500, b"<html>"), Said(200, b"<html>"), Said(401, {}), Said(200, {"results": []}))
    with Server(store) as server, Client(server.url) as client:
        for i in range(40):
            assert client.click("i1", ["hat"], event_id=f"e{i}") is None
        assert client.flush(PATIENCE)
        assert client.queue is not None
        assert (client.queue.pending, client.queue.delivered, client.queue.last_error) == (0, 40, None)
    assert store.ids == [f"e{i}" for i in range(40)]
    assert {asked.path for asked in server.asked} == {"/v1/feedback"}


def test_calls_return_while_the_service_is_away_and_health_shows_it() -> None:
    store = Store()
    store.there.clear()
    with Server(store) as server, Client(server.url) as client:
        assert client.queue is not None
        client.feedback([{"impression_id": "i1", "clicks": []}, {"impression_id": "i2", "clicks": []}])
        wait_for(lambda: client.queue and client.queue.last_error, "a failed try")
        assert not client.flush(0.01)
        assert client.queue.pending == 2
        store.there.set()
        assert client.flush(PATIENCE)
    assert len(set(store.ids)) == 2


def test_asyncio_uses_the_same_queue(tmp_path: Path) -> None:
    async def main(url: str, **settings: Any) -> None:
        async with AsyncClient(url, **settings) as client:
            assert await client.click("i1", ["hat"]) is None
            assert await client.flush(PATIENCE)
            await client.click("i2")

    store = Store(DROP)
    with Server(store) as server:
        asyncio.run(main(server.url))
        asyncio.run(main(server.url, queue_file=tmp_path / "queue"))
    assert [event["impression_id"] for event in store.events] == ["i1", "i2"] * 2


def test_a_full_queue_drops_the_oldest_and_counts_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback_queue, "pause", lambda *_: 2 * PATIENCE)  # only `flush` ends it
    store = Store()
    store.there.clear()
    with Server(store) as server, Client(server.url, queue=5) as client:
        assert client.queue is not None
        client.click("i1", event_id="first")
        wait_for(lambda: client.queue and client.queue.last_error, "the sender to pause")
        for i in range(7):
            client.click("i1", event_id=f"e{i}")
        assert (client.queue.pending, client.queue.dropped) == (5, 3)
        client.feedback([{"impression_id": "i1", "event_id": f"many{i}"} for i in range(8)])
        assert (client.queue.pending, client.queue.dropped) == (5, 11)
        store.there.set()
        assert client.flush(PATIENCE)
    assert store.ids == [f"many{i}" for i in range(3, 8)]
    assert [one for one in caplog.records if one.levelname == "WARNING" and "dropped" in one.getMessage()]


def test_rejected_events_go_to_the_callback_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def answer(asked: Asked) -> Said:
        return receipts(asked, "rejected")

    got: list[tuple[Receipt, FeedbackEvent]] = []

    def taken(receipt: Receipt, event: FeedbackEvent) -> None:
        got.append((receipt, event))
        raise ValueError("a callback that fails")  # and must not end the queue

    with Server(answer) as server:
        with Client(server.url, on_rejected=taken) as client:
            client.click("i1", ["hat"], event_id="e1")
            assert client.flush(PATIENCE)
            client.click("i2", event_id="e2")
            assert client.flush(PATIENCE)
            assert client.queue is not None
            assert (client.queue.rejected, client.queue.delivered, client.queue.pending) == (2, 0, 0)
        with Client(server.url) as client:
            client.click("i3", event_id="e3")
    assert [(receipt.event_id, receipt.reason, event.impression_id) for receipt, event in got] == [
        ("e1", "why", "i1"),
        ("e2", "why", "i2"),
    ]
    assert [one for one in caplog.records if "e3" in one.getMessage()]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_event_that_cannot_be_taken_does_not_hold_up_the_others(status: int) -> None:
    def answer(asked: Asked) -> Said:
        if any(event["event_id"] == "bad" for event in asked.json) or len(asked.json) > 3:
            return Said(status, {"error": "no", "message": "not that one"})
        return receipts(asked)

    refused: list[Receipt] = []
    with Server(answer) as server, Client(server.url, on_rejected=lambda one, _: refused.append(one)) as client:
        client.feedback([{"event_id": name, "impression_id": "i1"} for name in ["a", "b", "bad", *"cdefgh"]])
        assert client.flush(PATIENCE)
        assert client.queue is not None
        assert client.queue.counts == {"accepted": 8, "rejected": 1}
    assert refused == [Receipt("bad", "rejected", "not that one")]


def test_without_a_queue_receipts_are_returned_and_a_rejected_event_is_raised() -> None:
    seen: list[str | None] = []
    with (
        Server(lambda asked: receipts(asked, "rejected")) as server,
        Client(server.url, queue=0, on_rejected=lambda one, _: seen.append(one.event_id)) as client,
    ):
        assert client.queue is None
        with pytest.raises(RejectedEvent) as got:
            client.click("i1", ["hat"])
        assert (got.value.status, got.value.error, got.value.message) == (422, "rejected", "why")
        many = client.feedback([{"impression_id": "i1", "event_id": "e1"}])
        assert many is not None
        assert (many.counts, seen) == ({"rejected": 1}, ["e1"])


def test_close_waits_a_bounded_time_and_counts_what_is_lost() -> None:
    with Server(script(AWAY)) as server:
        client = Client(server.url)
        client.click("i1")
        client.close(timeout=0.05)
        assert client.queue is not None
        assert (client.queue.dropped, client.queue.pending) == (1, 0)
        with pytest.raises(RankloopError):
            client.click("i2")
        client.close()


# -- other processes -----------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, time
from rankloop.client import feedback_queue, transport
from rankloop.client import Client
url, path, how = sys.argv[1:]
feedback_queue.EXIT_SECONDS = 200.0
feedback_queue.LEASE = 0.0 if how == "crash" else 200.0  # the start after a crash need not wait for it
client = Client(url, queue_file=path or None)
for i in range(20):
    client.click("i1", ["hat"], event_id=f"{how}{i}")
if how == "crash":
    print("queued", flush=True)
    time.sleep(1000)
"""


def run(url: str, path: str, how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, url, path, how], stdout=subprocess.PIPE)


def test_events_are_delivered_when_the_program_ends_without_close() -> None:
    store = Store(DROP)
    with Server(store) as server, run(server.url, "", "end") as program:
        assert program.wait(PATIENCE) == 0
    assert store.ids == [f"end{i}" for i in range(20)]


def test_events_in_a_file_survive_a_crash_and_are_sent_at_the_next_start(tmp_path: Path) -> None:
    store, path = Store(), tmp_path / "queue"
    store.there.clear()
    with Server(store) as server:
        with run(server.url, str(path), "crash") as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"queued\n"
            program.send_signal(signal.SIGKILL)
        store.there.set()
        with Client(server.url, queue_file=path) as client:
            wait_for(lambda: len(set(store.ids)) == 20, "all events")
            assert client.flush(PATIENCE)
        with Client(server.url, queue_file=path) as client:
            assert client.queue is not None
            assert client.queue.pending == 0
    assert set(store.ids) == {f"crash{i}" for i in range(20)}


def test_processes_share_a_file_and_send_each_event_once(tmp_path: Path) -> None:
    store = Store()
    with Server(store) as server:
        programs = [run(server.url, str(tmp_path / "queue"), name) for name in ("a", "b", "c")]
        for program in programs:
            with program:
                assert program.wait(PATIENCE) == 0
    assert Counter(store.ids) == Counter(f"{name}{i}" for name in "abc" for i in range(20))


def in_child(work: Callable[[], None]) -> None:
    """Run work in a forked child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("durable", [False, True])
def test_a_client_made_before_a_fork_works_in_parent_and_child(tmp_path: Path, durable: bool) -> None:
    store = Store()
    store.there.clear()
    path = tmp_path / "queue" if durable else None
    with Server(store) as server, Client(server.url, queue_file=path) as client:
        client.click("i1", event_id="before")
        assert client.queue is not None
        wait_for(lambda: client.queue and client.queue.last_error, "a failed try")

        def work() -> None:
            assert client.queue is not None
            assert client.queue.counts == {}
            client.click("i1", event_id="child")
            client.close(timeout=0.0 if durable else PATIENCE)

        if durable:
            in_child(work)
            store.there.set()
        else:
            store.there.set()
            in_child(work)
        client.click("i1", event_id="parent")
        assert client.flush(PATIENCE)
    assert set(store.ids) == {"before", "child", "parent"}
    assert store.ids.count("before") == 1, "the child has sent what its parent sends"


def test_a_file_that_fails_does_not_break_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    with Server(store) as server, Client(server.url, queue_file=tmp_path / "queue") as client:
        assert client.queue is not None

        def broken() -> sqlite3.Connection:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(client.queue, "_database", broken)
            client.click("i1")
            assert client.queue.dropped == 1
        client.click("i1", event_id="later")
        assert client.flush(PATIENCE)
    assert store.ids == ["later"]


def test_a_file_of_another_kind_is_refused_when_the_client_is_made(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("not a database, but longer than the header of one, which has a hundred bytes" * 2)
    with pytest.raises(InvalidParameter):
        Client(queue_file=tmp_path / "queue")


def test_an_idle_thread_ends_and_the_next_event_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback_queue, "IDLE", 0.01)
    store = Store()
    with Server(store) as server, Client(server.url) as client:
        for i in range(3):
            client.click("i1", event_id=f"e{i}")
            assert client.flush(PATIENCE)
            wait_for(lambda: client.queue and client.queue._thread is None, "the thread to end")
    assert store.ids == ["e0", "e1", "e2"]


def test_a_thread_that_fails_does_not_stop_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = transport.send, []

    def failing(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("unexpected")
        return real(*arguments)

    monkeypatch.setattr(feedback_queue, "send", failing)
    store = Store()
    with Server(store) as server, Client(server.url) as client:
        client.click("i1", event_id="e1")
        wait_for(lambda: client.queue and client.queue._thread is None, "the thread to fail")
        client.click("i1", event_id="e2")
        assert client.flush(PATIENCE)
    assert store.ids == ["e1", "e2"]
