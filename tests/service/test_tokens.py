"""Tokens: a browser reports on its own list, and on nothing else, until the list's window ends."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.access import SETTLED, Claim, Tokens
from rankloop.service.errors import BadToken
from rankloop.service.storage import keys as stored
from rankloop.service.storage import open_database, schema
from rankloop.service.storage.impressions import latest_impressions
from rankloop.service.storage.keys import LONGEST, Secret
from tests.service.app_fixtures import Clock, Service, fine, items, refused, until

KEY = "key-0123456789abcdef"
SHOP = "https://shop.example"
ADMIN = {"authorization": f"Bearer {KEY}"}


class Shop:
    """A service with keys, two rankers, and a page of an origin that was let in."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service, self.clock, self._events = service, clock, 0
        for name in ("shop", "films"):
            spec = {"learner": "base", "window_seconds": 60.0}
            fine(service.http.put(f"/v1/rankers/{name}", json=spec, headers=ADMIN))

    def rank(self, name: str = "shop", **more: Any) -> Any:
        body = {"candidates": items(3), "token": True, **more}
        return fine(self.service.http.post(f"/v1/rankers/{name}/rank", json=body, headers=ADMIN))

    def send(self, body: Any, **headers: str) -> Any:
        """As `navigator.sendBeacon` does it: plain text, no key."""
        sent = {"content-type": "text/plain;charset=UTF-8", "origin": SHOP, "sec-fetch-mode": "no-cors", **headers}
        text = body if isinstance(body, bytes) else json.dumps(body)
        return self.service.http.post("/v1/beacon", content=text, headers=sent)

    def beacon(self, token: str, *clicks: str, **more: Any) -> dict[str, Any]:
        self._events += 1
        return {"token": token, "event_id": str(self._events), "clicks": list(clicks), **more}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    clock, folder = Clock(), tmp_path_factory.mktemp("tokens")
    with Service(folder / "t.db", clock, keys=f"{KEY}:admin+rank+feedback", origins=SHOP, beacon_events=5) as running:
        yield Shop(running.ready(), clock)


def test_a_browser_reports_views_and_rewards(shop: Shop) -> None:
    answer = shop.rank()
    events = [
        {"token": answer["token"], "event_id": "v", "viewed": ["i0", "i1"]},
        {"token": answer["token"], "event_id": "r", "rewards": {"i1": 0.5}, "seen": 3},
        {"token": answer["token"], "event_id": "x", "rewards": {"i1": 7.0}},
    ]
    assert fine(shop.send(events))["counts"] == {"accepted": 2, "rejected": 1}
    (found,) = shop.service.engine.database.read(lambda connection: latest_impressions(connection, "shop", 1))
    assert (found.viewed, found.feedback) == (3, [0.0, 0.5, 0.0])


def test_a_browser_reports_on_its_list_without_a_key(shop: Shop) -> None:
    answer = shop.rank()
    response = shop.send(shop.beacon(answer["token"], "i1", final=True))
    assert fine(response)["counts"] == {"accepted": 1}
    assert response.headers["access-control-allow-origin"] == SHOP
    (seen,) = [
        one
        for one in fine(shop.service.http.get("/v1/rankers/shop/impressions", headers=ADMIN))
        if one["impression_id"] == answer["impression_id"]
    ]
    assert [item["value"] for item in seen["items"]] == [0.0, 1.0, 0.0]


def test_a_token_is_for_one_impression(shop: Shop) -> None:
    one, other = shop.rank(), shop.rank()
    name, ranker, expires, secret, signature = one["token"].split("~")
    assert (name, ranker) == (one["impression_id"], "shop")
    later = str(int(expires) + 3600)
    for parts in (
        (other["impression_id"], ranker, expires, secret, signature),
        (name, "films", expires, secret, signature),
        (name, ranker, later, secret, signature),
        (name, ranker, expires, secret, other["token"].split("~")[-1]),
        (name, ranker, expires, secret, signature[:-1]),
        (name, ranker, expires, secret, ""),
        (name, ranker, expires, "99", signature),
        (name, ranker, expires, signature),
        (name, ranker, "0x10", secret, signature),
        ("é", ranker, expires, secret, signature),
        ("",),
    ):
        refused(shop.send(shop.beacon("~".join(parts) or "x", "i1")), 401, "token", error="bad-token")
    body = shop.beacon(one["token"], "i1")
    assert shop.send({**body, "impression_id": other["impression_id"]}).status_code == 400  # the token says which
    assert shop.send({**body, "grades": {"i1": 3.0}}).status_code == 400
    for answer in (one, other):
        found = fine(
            shop.service.http.post(
                "/v1/feedback",
                json={"event_id": f"check-{answer['impression_id']}", "impression_id": answer["impression_id"],
                      "clicks": [], "final": True},
                headers=ADMIN,
            )
        )  # fmt: skip
        assert found["counts"] == {"accepted": 1}  # nothing had closed it


def test_a_token_does_not_reach_other_rankers(shop: Shop) -> None:
    """Even with a signature that is right: the ranker is looked at where the list is."""
    films = shop.rank("films")
    claim = Claim(films["impression_id"], "shop", int(shop.clock()) + 60)
    crossed = shop.service.engine.keys.tokens.sign(claim)
    assert fine(shop.send(shop.beacon(crossed, "i1")))["counts"] == {"orphan": 1}


def test_a_token_expires_with_the_attribution_window(shop: Shop) -> None:
    answer = shop.rank()
    shop.clock.ahead += 59.0
    try:
        assert fine(shop.send(shop.beacon(answer["token"], "i0")))["counts"] == {"accepted": 1}
        shop.clock.ahead += 3.0
        refused(shop.send(shop.beacon(answer["token"], "i1")), 401, "window_seconds", error="bad-token")
    finally:
        shop.clock.ahead = 0.0


def test_pages_of_other_origins_are_refused(shop: Shop) -> None:
    body = shop.beacon(shop.rank()["token"], "i1")
    refused(shop.send(body, origin="https://evil.example"), 403, "RANKLOOP_ORIGINS", error="foreign-origin")
    refused(shop.send(body, origin="null"), 403, "origins", error="foreign-origin")
    for path in ("//v1/beacon", "/v1//beacon", "/v1/beacon/"):  # the framework takes them for the same
        sent = shop.service.http.post(f"http://127.0.0.1{path}", json=body, headers={"origin": "https://evil.example"})
        refused(sent, 403, "RANKLOOP_ORIGINS")
    fine(shop.service.http.post("/v1/beacon", json=body))  # an app on a phone has no origin


def test_event_ids_of_tokens_do_not_collide(shop: Shop) -> None:
    one, other = shop.rank(), shop.rank()
    for answer in (one, other):
        sent = {"token": answer["token"], "event_id": "1", "clicks": ["i0"]}
        receipt = fine(shop.send(sent))["results"][0]
        assert receipt == {"event_id": "1", "status": "accepted"}
        assert fine(shop.send(sent))["counts"] == {"duplicate": 1}
    event = {"event_id": "1", "impression_id": one["impression_id"], "clicks": ["i0"]}
    assert fine(shop.service.http.post("/v1/feedback", json=event, headers=ADMIN))["counts"] == {"accepted": 1}


def test_events_per_token_are_limited(shop: Shop) -> None:
    answer, other = shop.rank(), shop.rank()
    for _ in range(5):
        fine(shop.send(shop.beacon(answer["token"], "i0")))
    refused(shop.send(shop.beacon(answer["token"], "i0")), 429, "beacon_events", error="too-many")
    fine(shop.send(shop.beacon(other["token"], "i0")))


def test_events_of_a_batch_are_answered_one_by_one(shop: Shop) -> None:
    good, altered = shop.rank()["token"], shop.rank()["token"][:-2]
    found = fine(shop.send([shop.beacon(good, "i0"), shop.beacon(altered, "i0"), 7, shop.beacon(good, "nobody")]))
    assert [one["status"] for one in found["results"]] == ["accepted", "rejected", "rejected", "rejected"]
    assert "altered" in found["results"][1]["reason"]


def test_compressed_beacons_are_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(*_: Any) -> bytes:
        raise AssertionError("it was unpacked")

    monkeypatch.setattr("rankloop.service.api.content_encoding.gunzip", unpack)
    body = gzip.compress(json.dumps(shop.beacon(shop.rank()["token"], "i1")).encode())
    refused(shop.send(body, **{"content-encoding": "gzip"}), 415, error="unknown-encoding")
    wrong = {"content-encoding": "gzip", "authorization": "Bearer wrong-0123456789abcdef"}
    refused(shop.send(body, **wrong), 415)


def test_open_services_check_the_origin_of_pages(tmp_path: Path) -> None:
    with Service(tmp_path / "open.db", origins="http://localhost:3000") as one:
        one.ready().put("shop", learner="base")
        token = one.rank("shop", items(3), token=True)["token"]
        body = json.dumps({"token": token, "event_id": "1", "clicks": ["i1"]})
        plain = {"content-type": "text/plain", "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}
        refused(one.http.post("/v1/beacon", content=body, headers={**plain, "origin": SHOP}), 403, "RANKLOOP_ORIGINS")
        refused(one.http.post("/v1/beacon", content=body, headers=plain), 403, "RANKLOOP_ORIGINS")
        fine(one.http.post("/v1/beacon", content=body, headers={**plain, "origin": "http://localhost:3000"}))


def test_processes_share_token_secrets(store_url: str) -> None:
    database = open_database(store_url)
    schema.migrate(database)
    connection = database.connect()
    with connection.transaction():
        stored.ensure_secret(connection, 1.0)
        first = stored.secrets(connection)
        stored.ensure_secret(connection, 2.0)
        assert stored.secrets(connection) == first
    assert len(first[0].secret) == 32
    one, other = Tokens(lambda: 5.0), Tokens(lambda: 5.0)
    one.refresh(first)
    other.refresh(first)
    claim = Claim("i", "shop", 60)
    assert other.read(one.sign(claim)) == claim
    with connection.transaction():
        assert stored.rotate_secret(connection, 10.0, at_once=False) == 1
        assert [row.id for row in stored.secrets(connection)] == [1, 2]
        assert stored.rotate_secret(connection, 11.0 + LONGEST, at_once=False) == 1  # what 2 signed may still be good
        assert [row.id for row in stored.secrets(connection)] == [2, 3]
        assert stored.rotate_secret(connection, 12.0 + LONGEST, at_once=True) == 0
        assert [row.id for row in stored.secrets(connection)] == [4]
    connection.close()
    database.close()


def test_new_secrets_sign_after_a_delay() -> None:
    now = [1000.0]
    old, new = Secret(1, b"o" * 32, 0.0), Secret(2, b"n" * 32, 1000.0)
    ahead, behind = Tokens(lambda: now[0]), Tokens(lambda: now[0])
    ahead.refresh([old, new])
    behind.refresh([old])
    before, claim = ahead.sign(Claim("i", "shop", 2000)), Claim("i", "shop", 2000)
    assert behind.read(before) == claim
    now[0] += SETTLED
    behind.refresh([new, old])
    after = ahead.sign(claim)
    assert after.split("~")[3] == "2"
    assert behind.read(after) == behind.read(before) == claim
    behind.refresh([new])
    with pytest.raises(BadToken):
        behind.read(before)


def test_secrets_are_replaced_by_the_command(tmp_path: Path) -> None:
    from rankloop.cli import main

    def rotate(*words: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["keys", "rotate-tokens", *words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code in (0, None)

    with Service(tmp_path / "s.db", origins=SHOP) as one:
        one.ready().put("shop", learner="base")
        before = one.rank("shop", items(2), token=True)["token"]
        rotate()

        def send(token: str, number: int) -> int:
            body = {"token": token, "event_id": str(number), "clicks": []}
            return one.http.post("/v1/beacon", json=body, headers={"origin": SHOP}).status_code

        one.engine.cycle()
        assert send(before, 1) == 200
        rotate("--at-once")
        until(lambda: send(before, 2) == 401, "the old secret to be gone")
        assert send(one.rank("shop", items(2), token=True)["token"], 3) == 200


def test_tokens_are_not_stored(shop: Shop) -> None:
    answer = shop.rank()
    fine(shop.send(shop.beacon(answer["token"], "i1")))
    signature = answer["token"].split("~")[-1]
    rows = shop.service.engine.database.read(
        lambda c: [
            c.rows("SELECT answer FROM impressions WHERE id = ?", answer["impression_id"]),
            c.rows("SELECT event_id, body FROM events WHERE impression_id = ?", answer["impression_id"]),
        ]
    )
    assert signature not in str([[tuple(map(bytes_or_text, row)) for row in part] for part in rows])


def bytes_or_text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()
