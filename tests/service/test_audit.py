"""Who changed what, and when: every call that changes something is in the list, by the name of its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.access import digest, new_token
from rankloop.service.maintenance.housekeeping import Retention
from rankloop.service.storage import audit, open_database, schema
from rankloop.service.storage import keys as stored
from rankloop.service.storage.audit import Entry
from rankloop.service.storage.keys import StoredKey
from tests.service.app_fixtures import Clock, Service, fine, names, refused, service, teach
from tests.service.test_api_operations import routes

__all__ = ["service"]
EVERY_USER = {("POST", "/v1/rankers/{name}/rank"), ("POST", "/v1/feedback"), ("POST", "/v1/beacon")}
# Everything else that changes something: a call, the word it has in the list, and what the line says.
CHANGES: list[tuple[str, str, Any, str, str]] = [
    ("PUT", "/v1/rankers/{name}", {"features": names(3), "guardrail": None}, "put", "made (hybrid, 3 features"),
    ("PUT", "/v1/rankers/{name}", {"features": names(3), "guardrail": None, "exposure": "full"},
     "put", "shadow -> full"),
    ("PATCH", "/v1/rankers/{name}", {"k": 7}, "patch", "k 10 -> 7"),
    ("POST", "/v1/rankers/{name}/warm", {"items": ["a", "b"], "clicks": ["a"], "features": [[1, 2, 3], [3, 2, 1]]},
     "warm", "1 logged lists with 1 clicks"),
    ("POST", "/v1/rankers/{name}/versions", {"note": "n"}, "keep", "v1 was kept"),
    ("POST", "/v1/rankers/{name}/promote", {"version": 1}, "promote", "serves v1"),
    ("POST", "/v1/rankers/{name}/rollback", {"version": 1}, "rollback", "rolled back to v1"),
    ("POST", "/v1/rankers/{name}/experiments", {"share": 0.5}, "experiment", "experiment 1 began, against base"),
    ("POST", "/v1/rankers/{name}/experiments/{number}/stop", None, "stop-experiment", "experiment 1 was stopped"),
    ("POST", "/v1/rankers/{name}/pause", None, "pause", "paused"),
    ("POST", "/v1/rankers/{name}/resume", None, "resume", "goes on"),
    ("POST", "/v1/rankers/{name}/reset", None, "reset", "reset; what was is v"),
    ("DELETE", "/v1/rankers/{name}", None, "delete", "deleted"),
    *(
        line
        for kind, path in ((kind, f"/v1/catalogs/{{catalog}}/{kind}") for kind in ("items", "users"))
        for line in (
            ("PUT", path, [{"id": "a", "x": 1}, {"id": "b", "x": 1}], "catalog", f"catalog wares: 2 {kind} put"),
            ("PATCH", path, [{"id": "a", "x": 2}], "catalog", f"1 {kind} changed"),
            ("POST", f"{path}/delete", ["b"], "catalog", f"1 {kind} deleted"),
            ("DELETE", f"{path}/{{key}}", None, "catalog", f"one of its {kind} was deleted"),
            ("DELETE", path, None, "catalog", f"all 0 {kind} were deleted"),
        )
    ),
    ("DELETE", "/v1/catalogs/{catalog}", None, "catalog", "catalog wares was deleted"),
    ("DELETE", "/v1/users/{user}", None, "erase", "a user was forgotten"),
]  # fmt: skip


def changes(service: Service, query: str = "", **headers: str) -> list[Any]:
    found: list[Any] = fine(service.http.get(f"/v1/audit{query}", headers=headers))
    return found


def test_every_call_that_changes_something_is_in_the_list(tmp_path: Path) -> None:
    token = new_token()
    key = {"authorization": f"Bearer {token}"}
    with Service(tmp_path / "a.db") as one:
        made = StoredKey(digest(token), "ops", "admin", 1.0)
        assert one.ready().engine.writer.do(lambda c: stored.add(c, made))
        one.engine.cycle()
        for number, (method, path, body, _, _) in enumerate(CHANGES):
            url = path.replace("{name}", "shop").replace("{user}", "ann-who-left").replace("{number}", "1")
            url = url.replace("{catalog}", "wares").replace("{key}", "a")
            sent = None if body is None else json.dumps(body)
            answer = one.http.request(method, url, content=sent, headers={**key, "x-request-id": f"call-{number}"})
            assert answer.is_success, (method, path, answer.text)
        found = list(reversed(changes(one, **key)))
        mine = changes(one, "?limit=2&ranker=shop", **key)
    assert {(method, path) for method, path, *_ in CHANGES} == {
        route for route in routes() if route[0] != "GET" and route not in EVERY_USER
    }
    assert len(found) == len(CHANGES)
    for number, (entry, (_, path, _, action, text)) in enumerate(zip(found, CHANGES, strict=True)):
        assert (entry["key"], entry["action"], entry["request_id"]) == ("ops", action, f"call-{number}")
        assert text in entry["text"]
        assert entry["ranker"] == ("shop" if "{name}" in path else None)
    assert token not in str(found)
    assert "ann" not in str(found)
    assert [entry["action"] for entry in mine] == ["delete", "reset"]


def test_what_was_refused_or_changed_nothing_is_not_in_it(service: Service) -> None:
    service.put("kept", learner="base")
    before = changes(service)
    service.put("kept", learner="base")  # the same again
    service.http.post("/v1/rankers/nobody/reset")
    service.http.post("/v1/rankers/kept/rollback")  # there is nothing to go back to
    service.http.put("/v1/rankers/kept", json={"learner": "nonsense"})
    service.status("kept")
    assert changes(service) == before
    assert before[0]["key"] == ""  # no key is asked for


def test_a_key_for_some_rankers_sees_their_part(tmp_path: Path) -> None:
    token, all_of = new_token(), "key-0123456789abcdef"
    admin, key = {"authorization": f"Bearer {all_of}"}, {"authorization": f"Bearer {token}"}
    with Service(tmp_path / "a.db", keys=f"{all_of}:admin") as one:
        made = StoredKey(digest(token), "films", "admin", 1.0, frozenset({"films"}))
        assert one.ready().engine.writer.do(lambda c: stored.add(c, made))
        one.engine.cycle()
        for name in ("shop", "films"):
            fine(one.http.put(f"/v1/rankers/{name}", json={"learner": "base"}, headers=admin))
        assert [entry["ranker"] for entry in changes(one, **key)] == ["films"]
        assert len(changes(one, **admin)) == 2
        assert changes(one, **admin)[0]["key"] == "RANKLOOP_KEYS #1"
        refused(one.http.get("/v1/audit?ranker=shop", headers=key), 403, "films")
        for query in ("limit=0", "limit=1001", "ranker=a/b"):
            refused(one.http.get(f"/v1/audit?{query}", headers=admin), 400, error="malformed")


def test_it_is_kept_for_its_own_time_and_survives_its_ranker(tmp_path: Path) -> None:
    clock = Clock()
    with Service(tmp_path / "a.db", clock, retention_days=1.0, audit_days=10.0) as one:
        one.ready().put("shop", features=names(3))
        teach(one, "shop", 3)
        assert one.http.delete("/v1/rankers/shop").is_success
        clock.ahead = 9 * 86400.0
        Retention(one.engine).delete()
        assert [entry["action"] for entry in changes(one)] == ["delete", "put"]
        clock.ahead = 11 * 86400.0
        Retention(one.engine).delete()
        assert changes(one) == []


def test_both_stores_keep_it_in_order(store_url: str) -> None:
    database = open_database(store_url)
    schema.migrate(database)
    connection = database.connect()
    entries = [Entry(float(t), "ops", "put", name, f"change {t}", "r") for t, name in ((1, "a"), (2, "b"), (3, None))]
    with connection.transaction():
        audit.add(connection, entries)
        assert audit.entries(connection, 10) == entries[::-1]
        assert audit.entries(connection, 1) == entries[2:]
        assert audit.entries(connection, 10, ["a", "b"]) == entries[1::-1]
        assert audit.entries(connection, 10, ()) == []
        assert audit.delete_old(connection, 2.5) == 2
        assert audit.entries(connection, 10) == entries[2:]
    connection.close()
    database.close()


def test_the_command_shows_it_with_what_was_done_to_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli import main

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code in (0, None)
        return capsys.readouterr().out

    token = run("keys", "create", "web", "--scopes", "rank").strip()
    run("keys", "revoke", "web")
    run("keys", "rotate-tokens")
    table = run("audit")
    assert token not in table
    for text in ("key web: made (rank)", "key web: revoked", "tokens: a new secret", "(command line)"):
        assert text in table
    found = json.loads(run("audit", "--json", "--limit", "2"))
    assert [entry["action"] for entry in found] == ["rotate-tokens", "revoke-key"]
    assert run("audit", "--json", "--ranker", "shop").strip() == "[]"
