"""`rank` while the service is down, slow or failing: the baseline ranking, within the deadline, with the reason."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rankloop.client import AsyncClient, Client, ServiceError, exchange
from rankloop.client import requests as client_requests
from rankloop.client.exchange import Call, Reply
from rankloop.wire.calls import RankAnswer
from tests.service.asking import ANSWER, AWAY, HATS, Go, go, receipts, short_pauses
from tests.service.scripted import DROP, Asked, Said, Server, script

__all__ = ["go", "short_pauses"]  # fixtures


class Clock:
    """A clock that tests set, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(exchange, "time", made)
    monkeypatch.setattr(client_requests, "time", made)
    return made


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def ids(answer: RankAnswer) -> list[Any]:
    return [item.id for item in answer.items]


def walk(requests: client_requests.Requests, clock: Clock, *replies: tuple[float, Reply], **named: Any) -> RankAnswer:
    """A call of `rank` with these replies, each after so many seconds; the last one again and again."""
    steps, left = requests.rank("shop", HATS, **named), list(replies)
    reply: Reply | None = None
    try:
        while True:
            step = steps.send(reply)
            reply = None
            if isinstance(step, Call):
                seconds, reply = left.pop(0) if len(left) > 1 else left[0]
                clock.now += seconds
            elif isinstance(step, float):
                clock.now += step
    except StopIteration as end:
        answer: RankAnswer = end.value
        return answer


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (DROP, "unreachable"),
        (AWAY, "service error 503"),
        (Said(500, b"<html>"), "service error 500"),
        (Said(429, {"error": "too-many", "message": "later"}), "service error 429"),
        (Said(200, b"<html>"), "invalid answer"),
        (Said(200, b"\xff\xfe"), "invalid answer"),
        (Said(200, {"items": []}), "invalid answer"),
    ],
)
def test_a_failing_service_gives_the_baseline_ranking(go: Go, said: Said, reason: str) -> None:
    with Server(script(said)) as server:
        answer = go(server.url, "rank", "shop", HATS, request_id="mine")
    assert (ids(answer), [item.position for item in answer.items]) == (["hat", "shoe"], [1, 2])
    assert (answer.fallback, answer.reason, answer.impression_id) == (True, reason, None)
    assert (answer.ranker, answer.request_id) == ("shop", "mine")


def test_a_service_that_does_not_answer_in_time_gives_the_baseline_ranking(go: Go) -> None:
    with Server(script(Said(200, ANSWER, seconds=1.0))) as server:
        answer = go(server.url, "rank", "shop", HATS, settings={"rank_timeout": 0.1})
    assert (ids(answer), answer.reason) == (["hat", "shoe"], "timeout")
    assert len(server.asked) <= 1


def test_a_body_that_trickles_in_does_not_extend_the_deadline(go: Go) -> None:
    """Every byte comes in time for a time-out per read; the whole would take a minute."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        import threading

        ended = threading.Event()

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1200\r\n\r\n")
                while not ended.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        begin = time.monotonic()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        answer = go(url, "rank", "shop", HATS, settings={"rank_timeout": 0.3})
        took = time.monotonic() - begin
        ended.set()
        thread.join()
    assert answer.reason == "timeout"
    assert took < 30


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_what_the_program_has_to_change_is_raised(go: Go, status: int) -> None:
    with Server(script(Said(status, {"error": "no", "message": "no"}))) as server, pytest.raises(ServiceError) as got:
        go(server.url, "rank", "shop", HATS)
    assert got.value.status == status
    assert len(server.asked) == 1


def test_tries_and_pauses_share_one_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.1)
    requests = client_requests.Requests("http://x", retries=50, rank_timeout=0.25)
    for seconds in (0.0, 0.02, 0.2):
        begin = clock.now
        assert walk(requests, clock, (seconds, Reply(503))).reason == "service error 503"
        assert clock.now < begin + 0.25 + seconds  # no try begins after the deadline; the network ends the last one
        requests.breaker.answered()


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(clock: Clock) -> None:
    requests = client_requests.Requests("http://x", retries=3, rank_timeout=0.25)
    assert walk(requests, clock, (0.01, Reply(503, retry_after="1"))).fallback
    assert clock.now == pytest.approx(100.01)


def test_calls_are_skipped_after_failures_in_a_row_and_one_per_second_is_sent(clock: Clock) -> None:
    requests, frozen = client_requests.Requests("http://x", retries=3), (0.25, Reply(0, late=True))
    for _ in range(exchange.BREAK_AFTER):
        assert walk(requests, clock, frozen).reason == "timeout"
    begin = clock.now
    for _ in range(20):
        assert walk(requests, clock, frozen).reason == "skipped after timeout"
    assert clock.now == begin
    clock.now += exchange.BREAK_SECONDS
    assert walk(requests, clock, frozen).reason == "timeout"
    assert walk(requests, clock, frozen).reason == "skipped after timeout"
    clock.now += exchange.BREAK_SECONDS
    back = (
        0.0,
        Reply(
            200, b'{"impression_id":"i","ranker":"shop","version":"v","exposure":"full","fallback":false,"items":[]}'
        ),
    )
    assert not walk(requests, clock, back).fallback
    assert not walk(requests, clock, back).fallback


def test_a_fallback_keeps_k_pins_and_exclusions(go: Go, nowhere: str) -> None:
    def ranked(**named: Any) -> list[Any]:
        return ids(go(nowhere, "rank", "shop", **named, settings={"retries": 0}))

    assert ranked(ids=[1, 2, 3, 0], k=2) == [1, 2]
    assert ranked(ids=[1, 2, 3, 0], pinned={0: 1, 3: 3}) == [0, 1, 3, 2]
    assert ranked(ids=[1, 2, 3], pinned={3: 10}, k=10) == [1, 2, 3]
    assert ranked(ids=[3, 1, 2], pinned={3: 10, 1: 9}, k=10) == [2, 1, 3]
    assert ranked(ids=[1, 2, 3], excluded=[1, "2"]) == [3]
    assert ranked(ids=[1, 2], excluded=[1, 2]) == []
    assert ranked(ids=[1, 2, 3], k=2, pinned={3: 2}) == [1, 3]
    assert go(nowhere, "rank", "shop", HATS, token=True).token is None


@pytest.mark.parametrize("named", [{"candidates": []}, {"ids": []}, {"ids": [], "features": []}])
def test_without_candidates_there_is_an_empty_ranking_and_no_request(go: Go, named: dict[str, Any]) -> None:
    with Server(script(Said(500))) as server:
        answer = go(server.url, "rank", "shop", **named)
    assert (answer.items, answer.fallback, answer.impression_id) == ([], False, None)
    assert server.asked == []


def test_feedback_on_a_fallback_is_no_error_and_not_sent(nowhere: str) -> None:
    def answer(asked: Asked) -> Said:
        return receipts(asked)

    with Server(answer) as server, Client(server.url) as client, Client(nowhere, retries=0) as away:
        lost = away.rank("shop", HATS)
        assert client.click(lost, ["hat"]) is None
        client.feedback({"impression_id": lost.impression_id, "clicks": ["hat"]})
        assert client.flush()
    assert server.asked == []
    with Server(answer) as server, Client(server.url, queue=0) as client:
        receipt = client.click(lost, ["hat"], event_id="mine")
        assert receipt is not None
        assert (receipt.status, receipt.event_id) == ("orphan", "mine")
        sent = client.feedback([{"impression_id": None}, {"impression_id": "i1", "event_id": "e1"}])
        assert sent is not None
        assert [one.status for one in sent.results] == ["orphan", "accepted"]
        assert sent.counts == {"orphan": 1, "accepted": 1}
    assert [len(asked.json) for asked in server.asked] == [1]


def test_many_tasks_get_their_fallback_while_the_service_hangs() -> None:
    async def main(url: str) -> list[RankAnswer]:
        async with AsyncClient(url, rank_timeout=0.2) as client:
            return await asyncio.gather(*(client.rank("shop", HATS) for _ in range(30)))

    with Server(script(Said(200, ANSWER, seconds=1.0))) as server:
        assert all(answer.fallback for answer in asyncio.run(main(server.url)))
