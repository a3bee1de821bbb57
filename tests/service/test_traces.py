"""A request has an id that its caller, its answer and the log share; what fails or is slow has a line, nothing else."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.api.middleware import MOST, RequestLog
from rankloop.service.observability import logs, tracing
from tests.service.app_fixtures import Service, items, refused, service
from tests.service.running import Service as Process

__all__ = ["service"]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@contextmanager
def heard(formatter: logging.Formatter) -> Iterator[Callable[[], list[str]]]:
    """What is written to the log meanwhile, line by line."""
    stream, logger = io.StringIO(), logging.getLogger("rankloop")
    handler, before = logging.StreamHandler(stream), logger.level
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lambda: stream.getvalue().splitlines()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def told() -> Iterator[Callable[[], list[Any]]]:
    """The same as objects, of requests and of what they did."""
    with heard(logs.JsonLines()) as lines:
        yield lambda: [line for text in lines() if "request_id" in (line := json.loads(text))]


def test_an_id_that_was_sent_comes_back(service: Service) -> None:
    for path in ("/healthz", "/", "/docs", "/v1/rankers", "/nowhere", "/v1/rankers/nobody/rank"):
        answer = service.http.get(path, headers={"x-request-id": "shop-7/a:b"})
        assert answer.headers["x-request-id"] == "shop-7/a:b", path
    answer = service.http.get("/healthz", headers={"x-request-id": "out", "host": "evil.example"})
    refused(answer, 403)
    assert answer.headers["x-request-id"] == "out"


def test_a_trace_goes_through(service: Service) -> None:
    with told() as lines:
        answer = service.http.post("/v1/rankers/nobody/rank", json={}, headers={"traceparent": PARENT})
        assert answer.headers["traceparent"] == PARENT
        (line,) = lines()
    assert line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    for broken in ("00-0-0-01", PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), f"ff{PARENT[2:]}", "x"):
        assert "traceparent" not in service.http.get("/healthz", headers={"traceparent": broken}).headers


def test_what_fails_has_a_line_and_what_goes_well_has_none(service: Service) -> None:
    service.put("plain", learner="base")
    with told() as lines:
        service.report(service.rank("plain", items(2)))
        service.http.get("/")
        assert lines() == []
        missing = service.http.post("/v1/rankers/nobody/rank?secret=1", json={"candidates": [{"id": 1}], "user": "ann"})
        (line,) = lines()
    assert line["request_id"] == missing.headers["x-request-id"] == missing.json()["request_id"]
    assert (line["level"], line["status"], line["error"]) == ("info", 404, "unknown")
    assert (line["method"], line["path"]) == ("POST", "/v1/rankers/nobody/rank")
    assert line["milliseconds"] >= 0
    assert "secret" not in str(line)
    assert "ann" not in str(line)


def test_a_bug_is_told_with_its_traceback(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> bytes:
        raise ZeroDivisionError("made for this test")

    monkeypatch.setattr(service.engine, "rank", broken)
    with told() as lines:
        answer = service.http.post("/v1/rankers/plain/rank", json={"candidates": [{"id": 1}]})
        assert answer.status_code == 500
        why, line = lines()
    assert "ZeroDivisionError: made for this test" in why["exception"]
    assert why["request_id"] == line["request_id"] == answer.json()["request_id"]
    assert (why["level"], line["level"], line["status"]) == ("error", "error", 500)


def test_nobodys_name_and_no_second_line_come_from_a_path(service: Service) -> None:
    with heard(logs.PlainLines()) as lines:
        service.http.request("DELETE", "/v1/users/ann%00")
        service.http.get("/nowhere%0A2026-11-17 ERROR all is lost")
        first, second = lines()
    assert "ann" not in first
    assert "DELETE /v1/users/…: 422 invalid" in first
    assert "GET /…: 404 unknown" in second
    assert "all is lost" not in second


def test_a_slow_request_has_a_line(tmp_path: Path) -> None:
    with Service(tmp_path / "slow.db", slow_seconds=1e-9) as slow, told() as lines:
        slow.http.get("/healthz")
        (line,) = lines()
        assert (line["level"], line["status"], line["path"]) == ("warning", 200, "/healthz")
    with Service(tmp_path / "off.db", slow_seconds=0) as off, told() as lines:
        off.http.get("/healthz")
        assert lines() == []


def test_rubbish_without_end_does_not_fill_the_disk() -> None:
    now = [10.0]
    log = RequestLog(0.0, lambda: now[0])
    trace = tracing.begun()
    trace.status = 400
    with heard(logs.PlainLines()) as lines:
        for _ in range(MOST + 7):
            log.log("GET", "/", trace)
        assert len(lines()) == MOST
        now[0] = 11.0
        log.log("GET", "/", trace)
        assert "7 further requests" in lines()[MOST]
        assert len(lines()) == MOST + 2


def test_two_requests_at_a_time_keep_their_ids_apart() -> None:
    import asyncio

    async def one(name: str) -> list[str]:
        tracing.current.set(tracing.begun(name.encode()))
        await asyncio.sleep(0)

        def inside() -> str:
            trace = tracing.current.get()
            return "" if trace is None else trace.id

        return [inside(), await asyncio.to_thread(inside)]

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(asyncio.create_task(one("a")), asyncio.create_task(one("b"))))

    assert asyncio.run(both()) == [["a", "a"], ["b", "b"]]


@pytest.mark.slow
def test_a_service_that_logs_for_programs_writes_nothing_else(tmp_path: Path) -> None:
    service = Process(tmp_path / "service.log", store=tmp_path / "store.db", log_format="json")
    service.start()
    try:
        assert service.ask("GET", "/nowhere").status == 404
        assert service.stop() == 0
    finally:
        service.kill()
    lines = [json.loads(line) for line in service.log_file.read_text("utf-8").splitlines()]
    assert {"time", "level", "process", "message"} <= set.intersection(*(set(line) for line in lines))
    assert any("serves http://" in line["message"] for line in lines)
    assert [line["status"] for line in lines if line.get("path") == "/…"] == [404]
