"""The road of a request to rank, from the socket to the answer: which files of the service it passes, in which order.

docs/how-data-flows.md has the same list.
"""

from __future__ import annotations

import http.client
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

import rankloop.service
from rankloop.service.engine import Engine
from rankloop.service.http.app import create_served
from rankloop.service.run import server_options
from rankloop.service.settings import Settings
from tests.service.running import PATIENCE, ask, wait_for

HOME = Path(rankloop.service.__file__).parent
MOST = 12


class Walk:
    """Files of the service whose functions are called, in the order of the first call."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.on = False

    def look(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(str(HOME)):
            name = Path(frame.f_code.co_filename).relative_to(HOME).with_suffix("").as_posix()
            if name not in self.passed:
                self.passed.append(name)


@contextmanager
def serving(tmp_path: Path, walk: Walk) -> Iterator[int]:
    """A service on a port of its own, in threads of this process."""
    settings = Settings(store=str(tmp_path / "store.db"), learn=False, refresh_seconds=3600.0, lease_seconds=10_000.0)
    taken = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_served(engine=Engine(settings)), **server_options(settings)))
    interval = sys.getswitchinterval()
    threading.setprofile(walk.look)
    thread = threading.Thread(target=server.run, args=([taken],), daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server")
        yield taken.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        threading.setprofile(None)
        sys.setswitchinterval(interval)


def test_a_request_to_rank_passes_twelve_files(tmp_path: Path) -> None:
    walk = Walk()
    body = {"query": "q", "candidates": [{"id": f"i{i}", "features": [i, 1.0]} for i in range(5)]}
    with serving(tmp_path, walk) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        spec = {"learner": "pairrank", "features": ["a", "b"], "exposure": "full", "guardrail": None}
        assert ask(connection, "PUT", "/v1/rankers/shop", spec).status == 201

        def ranked() -> bool:
            answer = ask(connection, "POST", "/v1/rankers/shop/rank", body)
            return answer.status == 200 and not answer.json["fallback"]

        wait_for(ranked, "it to be warm")
        time.sleep(0.5)  # what others do behind the scenes is done
        walk.on = True
        assert ranked()
        walk.on = False
        connection.close()
    assert len(walk.passed) <= MOST, walk.passed
    page = (Path(__file__).parents[2] / "docs" / "how-data-flows.md").read_text("utf-8")
    listed = re.search(r"<!-- rank road -->\n(.*?)\n\n", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`([a-z_/]+)`", listed[1]) == walk.passed
