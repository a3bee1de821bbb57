"""No caller can keep the event loop, a thread pool or the memory of a process busy for others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rankloop.core.errors import UnknownName
from rankloop.features.table import Table
from rankloop.service.api import middleware
from rankloop.service.control import rankers, versions
from rankloop.service.observability import logs
from rankloop.service.serving import request_body
from rankloop.service.serving.catalog_cache import CachedCatalog
from rankloop.service.storage.catalog import RowChange
from tests.page.shown import Served
from tests.service.app_fixtures import Service, fine, items, names, refused, service, until
from tests.service.running import PATIENCE
from tests.service.test_traces import heard

__all__ = ["service"]
DOCS = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


# -- blocking calls ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def blocked_operations(
    service: Service, monkeypatch: pytest.MonkeyPatch, count: int
) -> Iterator[tuple[Callable[[], int], list[Any]]]:
    """So many `POST …/versions` that do not end; how many have begun, and their answers."""
    go_on, lock, begun = threading.Event(), threading.Lock(), [0]

    def keep(*_: Any) -> None:
        with lock:
            begun[0] += 1
        assert go_on.wait(2 * PATIENCE)
        raise UnknownName("made for this test")

    monkeypatch.setattr(versions, "keep", keep)
    with ThreadPoolExecutor(count) as callers:
        calls = [callers.submit(service.http.post, "/v1/rankers/packed/versions", json={}) for _ in range(count)]
        try:
            yield lambda: begun[0], calls
        finally:
            go_on.set()


def test_compressed_rank_does_not_wait_for_blocked_operations(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.put("packed", learner="base", features=names(136))
    body = gzip.compress(json.dumps({"candidates": items(100, width=136)}).encode())
    assert len(body) > 65536
    with blocked_operations(service, monkeypatch, 36) as (begun, _), ThreadPoolExecutor(1) as caller:
        until(lambda: begun() >= 6, "operations that block")
        headers = {"content-encoding": "gzip"}
        ranked = caller.submit(service.http.post, "/v1/rankers/packed/rank", content=body, headers=headers)
        assert len(fine(ranked.result(PATIENCE))["items"]) == 10
        looked_up = caller.submit(service.http.post, "/v1/rankers/nobody/rank", json={"candidates": items(1)})
        refused(looked_up.result(PATIENCE), 404)
        watched = caller.submit(service.http.get, "/v1/rankers/packed")
        assert fine(watched.result(PATIENCE))["name"] == "packed"


def test_operations_beyond_the_queue_are_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("packed", learner="base", features=names(136))
    limit = service.engine.operations.limit
    with blocked_operations(service, monkeypatch, limit + 3) as (_, calls):
        until(lambda: sum(call.done() for call in calls) == 3, "those that do not fit")
        for call in calls:
            if call.done():
                refused(call.result(), 503, error="busy")
                assert call.result().headers["retry-after"] == "1"
    assert sum(call.result().status_code == 503 for call in calls) == 3
    until(lambda: service.http.post("/v1/rankers/packed/pause").status_code == 200, "room again")


def test_executor_carries_context_and_hands_on_errors(service: Service) -> None:
    name: ContextVar[str] = ContextVar("name", default="none")

    def stop() -> None:
        raise StopIteration

    async def run() -> str:
        name.set("here")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await service.engine.lookups.run(stop)
        return await service.engine.lookups.run(name.get)

    assert asyncio.run(run()) == "here"


# -- clients that do not read ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("readers") / "store.db", request_seconds=1.0, idle_seconds=2)
    yield running
    running.stop()


@pytest.fixture
def complaints() -> Iterator[list[logging.LogRecord]]:
    """What the server and asyncio log meanwhile."""
    found: list[logging.LogRecord] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    collect, loggers = Collect(logging.ERROR), [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(collect)
    yield found
    for logger in loggers:
        logger.removeHandler(collect)


@contextlib.contextmanager
def unread(served: Served, sent: bytes) -> Iterator[socket.socket]:
    """A client that sends, and does not read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", served.port))
        client.sendall(sent)
        yield client


def dropped(client: socket.socket) -> bool:
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return any(event & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def counted(served: Served, route: str) -> float:
    lines = served.ask("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if f'route="{route}"' in line)


@pytest.mark.parametrize("sent", [DOCS, DOCS * 20, DOCS.replace(b"Host", b"Connection: close\r\nHost")])
def test_client_that_does_not_read_is_dropped(served: Served, complaints: list[logging.LogRecord], sent: bytes) -> None:
    before = counted(served, "/docs")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(unread(served, sent)) for _ in range(5)]
        until(lambda: all(map(dropped, clients)), "the connections to be closed")
    assert counted(served, "/docs") - before == 5  # requests behind an answer that is not read are not processed
    assert served.ask("GET", "/healthz").status == 200
    assert not complaints


def test_clients_that_hang_up_leave_no_traceback(served: Served, complaints: list[logging.LogRecord]) -> None:
    before = counted(served, "/docs")
    for _ in range(5):
        with unread(served, DOCS * 20):
            pass
    until(lambda: counted(served, "/docs") - before >= 5, "their requests")
    until(lambda: len(served._server.server_state.connections) <= 1, "their connections to go")
    assert not complaints


def test_answers_wait_for_a_client_that_reads_late(served: Served) -> None:
    """Answers larger than all buffers arrive whole and in order, and small ones behind them."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as client:
        client.sendall(DOCS * 3 + HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
        found = b""
        while part := client.recv(65536):
            found += part
    assert found.count(b"HTTP/1.1 200 ") == 4
    assert found.count(b"</html>") == 3
    assert found.endswith(b"}")


def test_requests_sent_ahead_are_answered_up_to_a_limit(served: Served) -> None:
    for count, all_answered in ((20, True), (500, False)):
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as client:
            client.sendall(HEALTH * count)
            found = b""
            with contextlib.suppress(ConnectionError):
                while found.count(b"HTTP/1.1 200 ") < count and (part := client.recv(65536)):
                    found += part
        assert (found.count(b"HTTP/1.1 200 ") == count) == all_answered


# -- what is used of other packages ------------------------------------------------------------------------------------


def test_uvicorn_has_what_the_protocol_uses() -> None:
    async def look() -> None:
        protocol = HttpToolsProtocol(uvicorn.Config(lambda: None), ServerState(), {})
        state = {"app", "loop", "transport", "flow", "cycle", "pipeline", "connections", "headers", "parser"}
        state |= {"timeout_keep_alive", "timeout_keep_alive_task"}
        assert state <= vars(protocol).keys()
        protocol.on_message_begin()
        assert protocol.url == b""

    asyncio.run(look())
    methods = {"connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"}
    methods |= {"on_message_begin", "on_header", "on_headers_complete", "on_body", "on_message_complete"}
    methods |= {"on_response_complete", "timeout_keep_alive_handler", "send_400_response", "shutdown"}
    assert all(callable(getattr(HttpToolsProtocol, name, None)) for name in methods)
    given: dict[str, Any] = dict.fromkeys(RequestResponseCycle.__init__.__code__.co_varnames[1:12])
    cycle = vars(RequestResponseCycle(**given)).keys()
    assert {"response_started", "response_complete", "disconnected", "message_event"} <= cycle
    assert {"write_paused", "read_paused"} <= vars(FlowControl(None)).keys()  # type: ignore[arg-type]
    assert callable(FlowControl.pause_reading)


# -- bodies ------------------------------------------------------------------------------------------------------------

ROWS = [f'{{"id": "a{i}", "features": [1, 2]}}' for i in range(6)]
BY_NAME = [f'{{"id": "a{i}", "features": {{"a": 1, "b": 2}}}}' for i in range(6)]
PACKED = base64.b64encode(np.zeros(12).tobytes()).decode()
WRONG = '{"id": [], "features": "none"}'
BODIES = {
    "rows": f'{{"candidates": [{", ".join([*ROWS, WRONG])}]}}',
    "by name": f'{{"candidates": [{", ".join([*BY_NAME, WRONG])}]}}',
    "not whole": f'{{"candidates": [{", ".join(ROWS)}, ',
    "columns": '{"ids": [1, 2, 3, 4, 5, 6, {}], "features": [[1, 2]]}',
    "by name in columns": '{"ids": [1, 2, 3, 4, 5, 6, {}], "features": {"a": [1], "b": [1]}}',
    "packed": f'{{"ids": [1, 2, 3, 4, 5, 6, {{}}], "features": "{PACKED}"}}',
    "ids": '{"ids": [1, 2, 3, 4, 5, 6, {}]}',
    "twice": f'{{"candidates": [{ROWS[0]}], "candidates": [{", ".join([*ROWS, WRONG])}]}}',
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("small") / "store.db", max_candidates=5, max_events=3) as running:
        running.put("dense", learner="base", features=["a", "b"])
        running.put("hashed", learner="base", width=1000, normalization="none", features=[])
        running.put("none", learner="base", features=[])
        yield running


@pytest.mark.parametrize("ranker", ["dense", "hashed", "none"])
@pytest.mark.parametrize("form", BODIES)
def test_candidates_over_the_limit_are_not_read(small: Service, form: str, ranker: str) -> None:
    """What is wrong behind the first candidate over the limit is not found, for it is not looked at."""
    answer = small.http.post(f"/v1/rankers/{ranker}/rank", content=BODIES[form].encode())
    refused(answer, 413, "max_candidates", error="over-limit")


def test_more_values_than_candidates_can_have_are_not_read(small: Service) -> None:
    body = b'{"candidates": [{"id": "a", "features": [' + b"1, " * 5000 + b"1]}]}"
    refused(small.http.post("/v1/rankers/dense/rank", content=body), 413, error="over-limit")


@pytest.mark.parametrize("rest", [b'{"event_id": 1}]', b", , ,"])
def test_events_over_the_limit_are_not_read(small: Service, rest: bytes) -> None:
    body = b"[" + b'{"event_id": "1", "impression_id": "1"}, ' * 4 + rest
    refused(small.http.post("/v1/feedback", content=body), 413, "max_events", error="over-limit")


def test_large_bodies_are_decoded_outside_of_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def plain(body: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return usual(body)

    usual = request_body.plain
    monkeypatch.setattr(request_body, "plain", plain)
    service.put("large", learner="base", width=1000, normalization="none", features=[])
    service.put("large-dense", learner="base", features=["a"], defaults={"a": 0.0})
    one = {f"name-{i}": 1.0 for i in range(40)}
    fine(service.http.post("/v1/rankers/large/rank", json={"candidates": [{"id": "x", "features": one}]}))
    many = [{"id": f"x{i}", "features": {f"{name}-{i}": 1.0 for name in one}} for i in range(100)]
    fine(service.http.post("/v1/rankers/large/rank", json={"candidates": many}))
    nulls = {"candidates": [{"id": "y" * 250 + str(i), "features": {"a": None}} for i in range(1000)]}
    body = json.dumps(nulls, indent=200).encode()
    assert len(body) > 2**20
    fine(service.http.post("/v1/rankers/large-dense/rank", content=body))
    assert [name.startswith("rankloop-reading") for name in threads] == [False, True, True]


def test_errors_of_large_bodies_name_the_place(service: Service) -> None:
    service.put("places", learner="base", features=["a"])
    body: dict[str, Any] = {"candidates": [{"id": "y" * 250 + str(i), "features": {"a": 1}} for i in range(1000)]}
    body["candidates"][700]["features"] = {"a": True}
    sent = json.dumps(body, indent=200).encode()
    assert len(sent) > 2**20
    refused(service.http.post("/v1/rankers/places/rank", content=sent), 400, "$.candidates[700].features")
    refused(service.http.post("/v1/rankers/places/rank", content=sent[:-1]), 400, error="malformed")


# -- ids of people in the log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/catalogs/c/users/ann@example.com"),
        ("DELETE", "/v1/catalogs/c/users/ann@example.com"),
        ("GET", "/v1/catalogs/c/items/ann@example.com"),
        ("DELETE", "/v1/users/ann@example.com%00"),
        ("GET", "/v1/users/ann@example.com%00"),
        ("GET", "/v1/user/ann@example.com"),
        ("GET", "/ann@example.com?user=ann@example.com"),
        ("POST", "/personalizer/v1.0/events/ann@example.com/reward"),
    ],
)
def test_ids_in_paths_are_not_logged(service: Service, monkeypatch: pytest.MonkeyPatch, method: str, path: str) -> None:
    monkeypatch.setattr(middleware, "MOST", 10**6)  # other tests may have used up this second's lines
    for formatter in (logs.PlainLines(), logs.JsonLines()):
        with heard(formatter) as lines:
            assert service.http.request(method, path).status_code >= 400
            assert any(method in line for line in lines())
            assert "ann@" not in str(lines())


def test_tracebacks_do_not_contain_the_id_in_the_path(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any, user: str) -> None:
        raise ZeroDivisionError(f"user {user!r} cannot be divided")

    monkeypatch.setattr(rankers, "erase_user", broken)
    for formatter in (logs.PlainLines(), logs.JsonLines()):
        with heard(formatter) as lines:
            assert service.http.request("DELETE", "/v1/users/ann%40example.com").status_code == 500
            text = "\n".join(lines())
        assert "ZeroDivisionError" in text
        assert "ann@" not in text


def test_an_entry_that_cannot_be_held_is_logged_without_its_id() -> None:
    held, small = CachedCatalog("shop"), Table(most_rows=1)
    with heard(logs.PlainLines()) as lines:
        held.apply(small, [RowChange("bob@example.com", 1, b"{}"), RowChange("ann@example.com", 2, b"{}")])
        assert len(lines()) == 1
        assert "ann@" not in lines()[0]
