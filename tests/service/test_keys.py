"""Keys that are for some rankers only, keys that end, and keys to look with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.access import Keys, digest, new_token
from rankloop.service.settings import Settings
from rankloop.service.storage import keys as stored
from rankloop.service.storage import open_database, schema
from rankloop.service.storage.keys import StoredKey, StoredKeys
from tests.service.app_fixtures import Clock, Service, fine, items, refused

ADMIN = "admn-0123456789abcdef"


class Locked:
    """A service with keys, two rankers, and clients of several kinds."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service, self.clock, self.admin = service, clock, {"authorization": f"Bearer {ADMIN}"}
        for name in ("shop", "films"):
            fine(service.http.put(f"/v1/rankers/{name}", json={"learner": "base"}, headers=self.admin))

    def key(self, scopes: str, *rankers: str, days: float | None = None) -> dict[str, str]:
        """The headers of a new key."""
        token, now = new_token(), self.clock()
        only, end = frozenset(rankers) or None, None if days is None else now + days * 86400
        made = StoredKey(digest(token), token, scopes, now, only, end)
        assert self.service.engine.writer.do(lambda c: stored.add(c, made))
        self.service.engine.cycle()
        return {"authorization": f"Bearer {token}"}

    def ask(self, key: dict[str, str], method: str, path: str, **more: Any) -> Any:
        return self.service.http.request(method, path, headers=key, **more)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    clock, folder = Clock(), tmp_path_factory.mktemp("keys")
    with Service(folder / "keys.db", clock, keys=f"{ADMIN}:admin+rank+feedback") as running:
        yield Locked(running.ready(), clock)


def test_errors_do_not_name_rankers_of_others(locked: Locked) -> None:
    """Not even where one that it is for is not there."""
    key = locked.key("rank+admin", "shop", "gone")
    for method, path, body in (
        ("GET", "/gone", None),
        ("GET", "/gone/series", None),
        ("GET", "/gone/experiments", None),
        ("DELETE", "/gone", None),
        ("POST", "/gone/reset", None),
        ("POST", "/gone/rank", {"candidates": items(2)}),
        ("POST", "/shop/experiments", {"against": "gone", "exposure": "full"}),
    ):
        told = refused(locked.ask(key, method, f"/v1/rankers{path}", json=body), 404, error="unknown")
        assert "films" not in told, path
    assert "has no version 7" in refused(
        locked.ask(key, "POST", "/v1/rankers/shop/experiments", json={"against": 7, "exposure": "full"}), 404
    )
    assert "films" in refused(locked.ask(locked.admin, "GET", "/v1/rankers/gone"), 404)


def test_expired_keys_are_refused(locked: Locked) -> None:
    key = locked.key("read", days=1)
    fine(locked.ask(key, "GET", "/v1/rankers"))
    locked.clock.ahead += 86401
    try:
        refused(locked.ask(key, "GET", "/v1/rankers"), 401, "UTC", error="not-authenticated")
        refused(locked.ask({}, "GET", "/v1/rankers"), 401)
    finally:
        locked.clock.ahead -= 86401


def test_a_service_stays_closed_after_all_keys_expire() -> None:
    keys = Keys(Settings(), lambda: 100.0)
    assert keys.off
    keys.refresh(StoredKeys([StoredKey("d", "n", "admin", 1.0, None, 50.0)], True))
    assert not keys.off


def test_unknown_scopes_are_ignored() -> None:
    keys, token = Keys(Settings()), new_token()
    keys.refresh(StoredKeys([StoredKey(digest(token), "n", "rank+dance", 1.0)], True))
    assert keys.check(f"Bearer {token}", "rank").scopes == {"rank"}


def test_store_that_once_had_a_key_always_requires_one(store_url: str) -> None:
    database = open_database(store_url)
    schema.migrate(database)
    connection = database.connect()
    with connection.transaction():
        assert stored.add(connection, StoredKey("d", "web", "rank", 5.0))
    with connection.transaction():
        assert stored.load_keys(connection)[:2] == ([StoredKey("d", "web", "rank", 5.0)], True)
        assert stored.delete(connection, "web")
        assert stored.load_keys(connection)[:2] == ([], True)
    connection.close()


def test_keys_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli import main

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["keys", *words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code in (0, None), capsys.readouterr()
        return capsys.readouterr().out

    assert run("create", "web", "--rankers", "shop, films", "--days", "2").startswith("rl_")
    run("create", "all", "--scopes", "read")
    listed = run("list")
    assert "films, shop" in listed
    assert "never" in listed
    for words in (["--rankers", ""], ["--rankers", "a b"], ["--days", "0"], ["--days", "-1"]):
        with pytest.raises(SystemExit) as ended:
            main(["keys", "create", "bad", *words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code not in (0, None)
