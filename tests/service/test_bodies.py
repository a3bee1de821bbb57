"""HEAD, packed bodies, one document of the API, and what a caller with few rights is told."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Service, fine, items, refused, service

__all__ = ["service"]
KEYS = {"rank": "rank-0123456789abcdef", "admin": "admn-0123456789abcdef"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/docs", "/openapi.json", "/v1/rankers"])
def test_head_is_get_without_the_body(service: Service, path: str) -> None:
    same = {"x-request-id": "one"}
    got, head = service.http.get(path, headers=same), service.http.head(path, headers=same)
    assert (head.status_code, head.content) == (200, b"")
    if path not in ("/metrics", "/v1/rankers"):  # these change from one call to the next
        assert head.headers == got.headers
    assert head.headers["content-type"] == got.headers["content-type"]


def packed(service: Service, method: str, path: str, body: Any, encoding: str = "gzip") -> Any:
    sent = gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode())
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    return service.http.request(method, path, content=sent, headers=headers)


def test_packed_bodies_are_read_on_every_road(service: Service) -> None:
    """Past the framework (rank, feedback) and through it (the others)."""
    fine(packed(service, "PUT", "/v1/rankers/packed", {"learner": "base", "guardrail": None, "features": ["a"]}))
    many = [{"id": f"i{i}", "features": [i / 7]} for i in range(1000)]
    answer = fine(packed(service, "POST", "/v1/rankers/packed/rank", {"candidates": many}))
    assert [item["id"] for item in answer["items"]] == [f"i{i}" for i in range(10)]
    event = {"event_id": "packed", "impression_id": answer["impression_id"], "clicks": ["i1"], "final": True}
    receipts = fine(packed(service, "POST", "/v1/feedback", [event], "GZIP"))["results"]
    assert receipts[0]["status"] == "accepted"
    logged = {"query": "q", "items": ["a", "b"], "features": [[1.0], [2.0]], "clicks": ["b"]}
    assert fine(packed(service, "POST", "/v1/rankers/packed/warm", json.dumps(logged).encode()))["lists"] == 1


@pytest.mark.parametrize("path", ["/v1/rankers/small/rank", "/v1/rankers/small/promote"])
def test_what_is_unpacked_has_the_limit_of_what_is_not(tmp_path: Path, path: str) -> None:
    """A bomb: a hundred kilobytes that would be a hundred megabytes."""
    with Service(tmp_path / "small.db", max_body_bytes=200_000) as small:
        small.put("small", learner="base")
        bomb = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        sent = b"".join(bomb.compress(b" " * 2**20) for _ in range(100)) + bomb.flush()
        assert len(sent) < 200_000
        response = small.http.post(path, content=sent, headers={"content-encoding": "gzip"})
        refused(response, 413, "max_body_bytes", "200,000")


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/rankers/whole/rank", "/v1/rankers/whole/promote"])
def test_what_cannot_be_unpacked_is_told(service: Service, path: str) -> None:
    service.put("whole", learner="base")
    headers, good = {"content-encoding": "gzip"}, gzip.compress(b"{}")
    refused(service.http.post(path, content=b"{}", headers=headers), 400, error="malformed")
    refused(service.http.post(path, content=good[:-4], headers=headers), 400, error="malformed")
    refused(service.http.post(path, content=good + good, headers=headers), 400, error="malformed")
    response = service.http.post(path, content=good, headers={"content-encoding": "br"})
    refused(response, 415, "'br'", error="unknown-encoding")
    assert response.headers["accept-encoding"] == "gzip"


def test_nothing_is_unpacked_for_who_has_no_key(tmp_path: Path) -> None:
    with Service(tmp_path / "keyed.db", keys=f"{KEYS['admin']}:admin") as locked:
        for path in ("/v1/feedback", "/v1/rankers/none/promote"):
            refused(locked.http.post(path, content=b"no gzip", headers={"content-encoding": "gzip"}), 401)


def test_who_may_only_rank_is_not_told_which_rankers_there_are(tmp_path: Path) -> None:
    keys = ",".join(f"{token}:{scope}" for scope, token in KEYS.items()) + f",{KEYS['admin']}-too:admin+rank"
    with Service(tmp_path / "keyed.db", keys=keys) as locked:
        tokens = (KEYS["admin"], f"{KEYS['admin']}-too", KEYS["rank"])
        admin, both, ranks = ({"authorization": f"Bearer {token}"} for token in tokens)
        fine(locked.http.put("/v1/rankers/secret", json={"learner": "base"}, headers=admin))
        body = {"candidates": items(2)}
        told = refused(locked.http.post("/v1/rankers/secre/rank", json=body, headers=ranks), 404, error="unknown")
        assert "secret" not in told
        refused(locked.http.post("/v1/rankers/secre/rank", json=body, headers=both), 404, "'secret'")
