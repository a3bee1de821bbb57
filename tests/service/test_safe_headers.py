"""What answers tell a browser to do with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.app_fixtures import Service, items, service

__all__ = ["service"]


def test_data_is_kept_by_nobody_and_taken_for_nothing_else(service: Service) -> None:
    service.put("shop", learner="base")
    for answer in (
        service.http.get("/v1/rankers"),
        service.http.get("/metrics"),
        service.http.get("/openapi.json"),
        service.http.get("/nowhere"),
        service.http.put("/v1/rankers/shop", json={"learner": "base"}),
        service.http.get("/v1/rankers", headers={"host": "evil.example"}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_what_can_be_neither_embedded_nor_kept_says_only_what_it_answers(service: Service) -> None:
    """The calls that come with every user."""
    service.put("lean", learner="base")
    answer = service.http.post("/v1/rankers/lean/rank", json={"candidates": items(2)})
    assert set(answer.headers) == {"content-type", "content-length", "x-request-id"}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_runs_only_its_own_script_and_stands_in_no_frame(service: Service, path: str) -> None:
    headers = service.http.get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind in ("script-src", "style-src"):
        assert policy[kind].startswith("'sha256-")
        assert "unsafe" not in policy[kind]
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-cache"
    assert headers.get_list("cache-control") == ["no-cache"]


def test_a_page_of_an_origin_that_was_let_in_may_read(tmp_path: Path) -> None:
    with Service(tmp_path / "in.db", origins="http://localhost:3000") as one:
        answer = one.http.get("/v1/rankers", headers={"origin": "http://localhost:3000"})
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
