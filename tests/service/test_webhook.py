"""Whoever runs the service is told of a demotion: at least once, over failures and restarts. Nobody waits for it."""

from __future__ import annotations

import hmac
import threading
from pathlib import Path
from typing import Any

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.maintenance import webhook_outbox
from rankloop.service.settings import Settings
from tests.service import misbehaving
from tests.service.app_fixtures import Clock, Service, until
from tests.service.running import PATIENCE, free_port
from tests.service.scripted import DROP, Asked, Said, Server, script
from tests.service.test_guardrail import demoted, visit
from tests.service.truths import read

BAD: dict[str, Any] = {"learner": "reverse", "exposure": "full", "k": 4, "guardrail": {"share": 1.0}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that users do not like, and tries that follow each other quickly."""
    misbehaving.install(monkeypatch)
    for name in ("LOOK_EVERY", "FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(webhook_outbox, name, 0.02)


def waiting(service: Service) -> int:
    return len(read(service.engine.settings.store, "SELECT id FROM webhook_outbox"))


def test_it_is_told_of_a_demotion_again_until_it_says_yes(tmp_path: Path) -> None:
    with (
        Server(script(DROP, Said(500), Said(302, headers=[("Location", "/elsewhere")]), Said(204))) as server,
        Service(tmp_path / "a.db", webhook=f"{server.url}/hook?team=search", webhook_secret="between us") as service,
    ):
        service.ready().put("shop", **BAD)
        visit(service, "ab", 20)
        status = demoted(service)
        until(
            lambda: service.metric("rankloop_webhook_notifications_total", result="delivered") == 1,
            "the webhook to be told",
        )
        assert service.metric("rankloop_webhook_notifications_total", result="failed") == 3
        until(lambda: service.metric("rankloop_webhook_notifications_waiting", ranker="shop") == 0, "nothing to wait")
        assert waiting(service) == 0
    assert {(asked.method, asked.path) for asked in server.asked} == {("POST", "/hook?team=search")}
    (body,) = {asked.body for asked in server.asked}  # the same each time
    assert len(server.asked) == 4
    told = server.asked[-1].json
    assert told == {
        "id": told["id"],
        "ranker": "shop",
        "what": "demoted",
        "before": "full",
        "now": "shadow",
        "when": told["when"],
        "evidence": status["demoted"],
    }
    headers = {name.lower(): value for name, value in server.asked[-1].headers.items()}
    assert headers["x-rankloop-notification"] == told["id"]
    assert headers["x-rankloop-signature"] == "sha256=" + hmac.new(b"between us", body, "sha256").hexdigest()


def test_what_could_not_be_told_before_a_stop_is_told_after_the_start(tmp_path: Path) -> None:
    store, nowhere = tmp_path / "a.db", f"http://127.0.0.1:{free_port()}/"
    with Service(store, webhook=nowhere) as service:
        service.ready().put("shop", **BAD)
        visit(service, "ab", 20)
        demoted(service)
        until(lambda: service.metric("rankloop_webhook_notifications_total", result="failed") > 1, "some tries")
        assert service.metric("rankloop_webhook_notifications_waiting", ranker="shop") == 1
    with Server(script(Said(200))) as server, Service(store, webhook=server.url) as service:
        until(lambda: waiting(service) == 0, "it to be told")
    assert [asked.json["what"] for asked in server.asked] == ["demoted"]
    assert "X-Rankloop-Signature" not in {name.title() for name in server.asked[0].headers}  # no secret, none


def test_nobody_waits_for_a_webhook_that_hangs(tmp_path: Path) -> None:
    asked, go = threading.Event(), threading.Event()

    def hang(_: Asked) -> Said:
        asked.set()
        assert go.wait(PATIENCE)
        return Said(200)

    with Server(hang) as server, Service(tmp_path / "a.db", webhook=server.url) as service:
        service.ready().put("shop", **BAD)
        visit(service, "ab", 20)
        assert asked.wait(PATIENCE)
        visit(service, "ab", 5)  # is ranked, reported and learned
        go.set()
        until(lambda: waiting(service) == 0, "it to be told")


def test_after_a_day_it_is_given_up_and_counted(tmp_path: Path) -> None:
    clock = Clock()
    with Server(script(Said(500))) as server, Service(tmp_path / "a.db", clock, webhook=server.url) as service:
        service.ready().put("shop", **BAD)
        visit(service, "ab", 20)
        until(lambda: service.metric("rankloop_webhook_notifications_total", result="failed") > 0, "a try")
        clock.ahead = webhook_outbox.GIVE_UP + 60.0
        until(lambda: waiting(service) == 0, "it to be given up")
        assert service.metric("rankloop_webhook_notifications_total", result="given-up") == 1


def test_without_a_webhook_nothing_piles_up(tmp_path: Path) -> None:
    with Service(tmp_path / "a.db") as service:
        service.ready().put("shop", **BAD)
        visit(service, "ab", 20)
        demoted(service)
        until(lambda: waiting(service) == 0, "the notice to go")


@pytest.mark.parametrize("url", ["secret.example/hook", "ftp://example.com", "http://", "http://example.com:x"])
def test_an_address_that_cannot_be_one_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidParameter, match="webhook") as refused:
        Settings(webhook=url)
    assert url not in str(refused.value)
