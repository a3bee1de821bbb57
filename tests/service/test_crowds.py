"""More connections than there is room for: those inside are served, and the store keeps its file descriptors."""

from __future__ import annotations

import contextlib
import resource
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.running import PATIENCE, Service, wait_for

ASK = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def beats(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        found = connection.execute("SELECT heartbeat FROM leases").fetchall()
        return int(found[0][0]) if found else 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux takes descriptors from a running process")
def test_a_crowd_does_not_take_the_lease_away(tmp_path: Path, start_service: Callable[..., Service]) -> None:
    store = tmp_path / "store.db"
    service = start_service(store=store, lease_seconds=3, max_connections=10, learn_in="thread")
    service.put_ranker("shop", learner="base", parameters={}, features=[])
    wait_for(lambda: beats(store) > 0, "the lease to be taken")
    room = sum(1 for _ in Path(f"/proc/{service.pid}/fd").iterdir()) + 24
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (room, room))
    with contextlib.ExitStack() as stack:
        inside = [
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE))
            for _ in range(60)
        ]
        before = beats(store)
        wait_for(lambda: beats(store) >= before + 3, "three more beats")
        said = []
        for one in inside:
            one.settimeout(PATIENCE)
            with contextlib.suppress(OSError):  # hung up before it could be told why
                one.sendall(ASK)
                said.append(one.recv(65536)[:12])
        assert said.count(b"HTTP/1.1 200") in (9, 10)
        assert set(said) <= {b"HTTP/1.1 200", b"HTTP/1.1 503", b""}
    wait_for(lambda: service.ask("GET", "/v1/rankers/shop").status == 200, "room again")
    assert service.stop() == 0, service.log()
