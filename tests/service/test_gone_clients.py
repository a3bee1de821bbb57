"""A client that has gone shows another ranking: silence on the one it asked for is not evidence."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.service.running import Service
from tests.waiting import wait_for


def send(service: Service, request_id: str) -> socket.socket:
    body = json.dumps({"candidates": [{"id": "a"}, {"id": "b"}], "request_id": request_id}).encode()
    head = f"POST /v1/rankers/shop/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", service.port))
    connection.sendall(head.encode() + body)
    return connection


def impressions(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.ask("GET", "/v1/rankers/shop/impressions?limit=20").json
    return found


def test_a_ranking_whose_client_has_gone_counts_as_never_seen(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    service = start_service(store=tmp_path / "store.db")
    assert service.ask("PUT", "/v1/rankers/shop", {"learner": "base"}).status == 201
    with send(service, "waits") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    os.killpg(service.pid, signal.SIGSTOP)
    try:
        send(service, "gone").close()
    finally:
        os.killpg(service.pid, signal.SIGCONT)
    wait_for(lambda: len(impressions(service)) == 2, "both impressions")
    wait_for(lambda: impressions(service)[0]["seen"] == 0, "the withdrawal")
    assert impressions(service)[1]["seen"] is None
