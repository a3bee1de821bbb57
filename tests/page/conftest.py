"""A real browser in front of a real service. Without Chromium these tests are skipped, and say so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.page.shown import Looker, Served, traffic
from tests.waiting import PATIENCE

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
# No sandbox: CI runs as root. The others keep Chromium from asking the internet for things.
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update"]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium without a window; its event loop must have ended before other tests run one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: the pages are not tested; pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the pages are not tested; apt-get install chromium")
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENCE)
        yield started
        started.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Looker]]:
    """Opens pages, and fails if one of them complained to the console."""
    opened: list[Looker] = []

    def start(url: str, **options: Any) -> Looker:
        looker = Looker(browser, url, **options)
        opened.append(looker)
        return looker

    with ExitStack() as stack:  # all are closed, also if one of them complained
        yield start
        for looker in opened:
            stack.callback(looker.close)


@pytest.fixture(scope="package")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Starts services; stopped at the end."""
    folder: Path = tmp_path_factory.mktemp("page")
    started: list[Served] = []

    def start(**settings: Any) -> Served:
        started.append(Served(folder / f"{len(started)}.db", **settings))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="package")
def service(serve: Callable[..., Served]) -> Served:
    running = serve()
    running.put_ranker("shop", window_seconds=60, k=6)
    running.put_ranker("old", learner="base", parameters={}, window_seconds=60, k=6)
    traffic(running, "shop", 60)
    traffic(running, "old", 20)
    return running


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><link rel=icon href=data:,>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another site: another port is another origin to a browser."""
    server = HTTPServer(("127.0.0.1", 0), _Empty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()
