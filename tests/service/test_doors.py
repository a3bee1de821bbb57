"""Who may come in while no key is asked for: not another site's page, not another name's, not whom a proxy brings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Service, fine, items, refused, service

__all__ = ["service"]
KEY = "admn-0123456789abcdef"
# What a browser or a proxy sends, and the setting or the remedy that the answer must name.
FOREIGN: dict[str, tuple[Mapping[str, str], str]] = {
    "another name for this machine": ({"host": "evil.example:8080"}, "hosts"),
    "a name that begins like one of ours": ({"host": "localhost.evil.example"}, "hosts"),
    "an address of another machine": ({"host": "192.168.1.5:8080"}, "hosts"),
    "a page of another site": ({"origin": "https://evil.example"}, "origins"),
    "a page of another port": ({"origin": "http://127.0.0.1:3000"}, "origins"),
    "a page without an origin of its own": ({"origin": "null"}, "origins"),
    "a page over TLS under our name": ({"origin": "https://127.0.0.1"}, "origins"),
    "a page that will not see the answer": ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "origins"),
    "the same from another port": ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, "origins"),
    "nginx": ({"x-forwarded-for": "203.0.113.7"}, "rankloop keys create"),
    "a proxy of another kind": ({"x-forwarded-proto": "https"}, "rankloop keys create"),
    "nginx, set up otherwise": ({"x-real-ip": "203.0.113.7"}, "rankloop keys create"),
    "a proxy that signs": ({"via": "1.1 proxy"}, "rankloop keys create"),
    "a proxy by the book": ({"forwarded": "for=203.0.113.7"}, "rankloop keys create"),
}
PLAIN = {"content-type": "text/plain"}  # what a page may send anywhere without asking first


@pytest.mark.parametrize("who", FOREIGN)
def test_strangers_can_neither_read_nor_change_anything(service: Service, who: str) -> None:
    headers, remedy = FOREIGN[who]
    name = f"door{list(FOREIGN).index(who)}"
    service.put(name, learner="base")
    answer = service.rank(name, items(3))
    event = f'{{"event_id": "e", "impression_id": "{answer["impression_id"]}", "clicks": ["i0"], "final": true}}'
    ranked = '{"candidates": [{"id": 1}]}'
    for method, path, body in (
        ("GET", f"/v1/rankers/{name}", None),
        ("GET", f"/v1/rankers/{name}/impressions", None),
        ("GET", "/metrics", None),
        ("PUT", f"/v1/rankers/{name}", '{"learner": "random"}'),
        ("POST", f"/v1/rankers/{name}/reset", "{}"),
        ("POST", f"/v1/rankers/{name}/pause", ""),
        ("POST", f"/v1/rankers/{name}/rank", ranked),
        ("POST", "/v1/feedback", event),
        ("DELETE", f"/v1/rankers/{name}", None),
    ):
        response = service.http.request(method, path, content=body, headers={**PLAIN, **headers})
        refused(response, 403, remedy)
        assert "access-control-allow-origin" not in response.headers
    status = service.status(name)
    assert (status["closed_impressions"], status["learning"], status["spec"]["learner"]) == (0, True, "base")
    assert service.metric("rankloop_http_requests_total", route="other", status="403") >= 9


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:8080"},
        {"host": "LOCALHOST"},
        {"host": "127.3.2.1:80"},
        {"host": "[::1]:8080"},
        {"host": "localhost:8080", "origin": "http://localhost:8080", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},  # a link that someone follows
    ],
)
def test_this_machine_and_the_page_itself_come_in(service: Service, headers: dict[str, str]) -> None:
    fine(service.http.get("/v1/rankers", headers=headers))
    assert service.http.get("/", headers=headers).status_code == 200


def test_a_form_that_someone_is_made_to_send_stays_out(service: Service) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    refused(service.http.post("/v1/rankers/none/reset", headers=headers), 403, "origins", error="foreign-origin")


def test_names_and_origins_can_be_let_in(tmp_path: Path) -> None:
    with Service(tmp_path / "in.db", hosts="search.local, box:9000", origins="http://localhost:3000/") as one:
        for host, there in (("search.local:8080", 200), ("box:9000", 200), ("box:9001", 403), ("other", 403)):
            assert one.http.get("/v1/rankers", headers={"host": host}).status_code == there, host
        let_in = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}
        fine(one.http.get("/v1/rankers", headers=let_in))
        refused(one.http.get("/v1/rankers", headers={"origin": "http://localhost:3001"}), 403, "RANKLOOP_ORIGINS")


@pytest.mark.parametrize("keys", ["", f"{KEY}:admin+rank+feedback"])
def test_browsers_are_told_of_origins_that_were_let_in(tmp_path: Path, keys: str) -> None:
    origin, key = {"origin": "http://localhost:3000"}, {"authorization": f"Bearer {KEY}"}
    with Service(tmp_path / "cors.db", keys=keys, origins="http://localhost:3000") as one:
        for path in ("/v1/rankers/shop/rank", "/v1/feedback", "/v1/rankers"):  # asked beforehand, without a key
            asked = one.http.options(path, headers={**origin, "access-control-request-method": "POST"})
            assert (asked.status_code, asked.content) == (204, b"")
            assert asked.headers["access-control-allow-origin"] == "http://localhost:3000"
            assert "authorization" in asked.headers["access-control-allow-headers"]
        fine(one.http.put("/v1/rankers/shop", json={"learner": "base"}, headers=key))
        body = {"candidates": items(2)}
        for answer in (
            one.http.get("/v1/rankers", headers={**origin, **key}),
            one.http.post("/v1/rankers/shop/rank", json=body, headers={**origin, **key}),
            one.http.post("/v1/rankers/shop/rank", json={}, headers={**origin, **key}),
        ):
            assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
            assert "origin" in answer.headers["vary"]
        other = one.http.get("/v1/rankers", headers={"origin": "http://localhost:3001", **key})
        assert "access-control-allow-origin" not in other.headers
        assert "access-control-allow-origin" not in one.http.get("/healthz").headers


def test_with_keys_the_key_decides(tmp_path: Path) -> None:
    """A proxy that ends TLS, in front of a service with keys, is how it is meant."""
    key: dict[str, Any] = {"authorization": f"Bearer {KEY}"}
    with Service(tmp_path / "keyed.db", keys=f"{KEY}:admin") as one:
        for headers, _ in FOREIGN.values():
            refused(one.http.get("/v1/rankers", headers=headers), 401)
            fine(one.http.get("/v1/rankers", headers={**headers, **key}))
