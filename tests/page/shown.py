"""What a person with a browser sees and does, and what the service says about it."""

from __future__ import annotations

import http.client
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import uvicorn

from rankloop.service.api.app import create_served
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.supervisor.run import server_options
from tests.service.running import SPEC, Answer, ask, free_port, rank_request
from tests.waiting import PATIENCE, wait_for

T = TypeVar("T")


class Served:
    """A service in a thread of the test's own process, where kernels are warm; it can go away and come back."""

    def __init__(self, store: Path, **settings: Any) -> None:
        self.port = free_port()
        self._settings = Settings(store=str(store), port=self.port, **settings)
        self.start()

    def start(self) -> None:
        engine = Engine(self._settings)
        options = {**server_options(self._settings), "log_config": None}
        self._server = uvicorn.Server(uvicorn.Config(create_served(engine=engine), **options))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        try:
            wait_for(lambda: self._server.started, "the service to start")
            assert engine.kernels_ready.wait(PATIENCE)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True  # pages keep their connections open
        self._thread.join()

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            return ask(connection, method, path, body)
        finally:
            connection.close()

    def put_ranker(self, name: str, **changes: Any) -> None:
        """One that starts from nothing, if not told otherwise: something is tried from its first list on."""
        start = {**SPEC, "parameters": {**SPEC["parameters"], "init": "zero"}}
        answer = self.ask("PUT", f"/v1/rankers/{name}", {**start, "guardrail": None, **changes})
        assert answer.status in (200, 201), answer
        wait_for(lambda: self.status(name)["ready"], f"the kernels of {name}")

    def status(self, name: str) -> Any:
        return get(self, f"/v1/rankers/{name}")


class Looker:
    """A tab. Whatever it complains about is collected, and must be expected."""

    def __init__(self, browser: Any, url: str, *, width: int = 1280, height: int = 900, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(f"{request.method} {request.url}"))
        self.url = url
        try:
            self.page.goto(url)
        except BaseException:
            self.context.close()
            raise

    def _heard(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def close(self) -> None:
        self.context.close()
        unexpected = [text for text in self.complaints if not any(word in text for word in self.expected)]
        assert not unexpected, unexpected

    def wait_for(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait for a condition while the page goes on: its requests reach the handlers of `page.route`."""

        def checked() -> T | None:
            self.page.wait_for_timeout(50)
            return condition()

        return wait_for(checked, what, every=0.0)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until it is on the page."""
        self.page.get_by_text(text).first.wait_for()

    def told(self, text: str) -> None:
        """Wait until an action has been told of in these words."""
        self.page.locator("#told", has_text=text).wait_for()

    def agree(self, confirm: str) -> None:
        """Press the button of the dialog that asks whether one is sure."""
        self.page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()

    def open_ranker(self, name: str) -> None:
        nav = self.page.get_by_role("navigation", name="Rankers")
        nav.get_by_role("link", name=re.compile(f"^{re.escape(name)}")).click()
        self.page.get_by_role("heading", level=1, name=name, exact=True).wait_for()


def at(service: Served, name: str = "") -> str:
    """The address of the page, or of a ranker on it."""
    return f"http://127.0.0.1:{service.port}/" + (f"#/{quote(name)}" if name else "")


def get(service: Served, path: str) -> Any:
    answer = service.ask("GET", path)
    assert answer.status == 200, answer
    return answer.json


def traffic(service: Served, name: str, rounds: int, seed: int = 0) -> None:
    """Users who like feature 0 best: they click the best of what they see."""
    rng = random.Random(seed)
    for t in range(rounds):
        request = rank_request(rng)
        answer = service.ask("POST", f"/v1/rankers/{name}/rank", request).json
        liked = {c["id"]: c["features"][0] for c in request["candidates"]}
        best = max((item["id"] for item in answer["items"]), key=liked.__getitem__)
        event = {
            "event_id": f"{name}-{seed}-{t}",
            "impression_id": answer["impression_id"],
            "clicks": [best],
            "final": True,
        }
        assert service.ask("POST", "/v1/feedback", {**event, "final": True}).status == 200
    wait_for(lambda: service.status(name)["unlearned_impressions"] == 0, f"{name} to learn")
    wait_for(lambda: counted(service, name) >= rounds, "the curves to be written")


def counted(service: Served, name: str) -> int:
    points = get(service, f"/v1/rankers/{name}/series?seconds=3600")["points"]
    return sum(point.get("closed_impressions", 0) for point in points)


def fresh(service: Served, name: str, rounds: int = 10) -> str:
    """A ranker of a test's own, with two versions."""
    service.put_ranker(name, window_seconds=60)
    traffic(service, name, rounds)
    for note in ("first", "second"):
        assert service.ask("POST", f"/v1/rankers/{name}/versions", {"note": note}).status == 201
        traffic(service, name, rounds, seed=len(note))
    return name
