"""Export and erasure of what is stored under one user id."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.cli import main
from rankloop.core.errors import InvalidParameter
from rankloop.service.control import users
from rankloop.service.settings import Settings
from rankloop.service.storage import counters, leases
from rankloop.service.supervisor.run import opened
from tests.service.app_fixtures import Service, fine, items, names, refused, until

USER = "ann-7f3a9c51-unique"  # found nowhere by accident
FEATURES = [
    {"name": "price", "kind": "field", "of": "item.price"},
    {"name": "mine", "kind": "count", "of": "clicks", "by": ["item", "user"], "window": "7d"},
    {"name": "again", "kind": "clicked", "of": "item", "last": 3, "window": "7d"},
]


@pytest.fixture
def filled(store_url: str) -> str:
    """A store in which two users have impressions, events, outcomes, catalog rows and counters."""
    with Service(store_url, snapshot_seconds=0.1) as service:  # type: ignore[arg-type]
        service.ready()
        put = service.http.put
        body = "\n".join(json.dumps({"id": f"i{i}", "price": i}) for i in range(5))
        fine(put("/v1/catalogs/shop/items", content=body))
        body = "\n".join(json.dumps({"id": user, "age": 30}) for user in (USER, "bob"))
        fine(put("/v1/catalogs/shop/users", content=body))
        service.put("shop", features=FEATURES, catalog="shop", exposure="full", normalization="none")
        service.put("plain", features=names(3), exposure="full")
        for user in (USER, "bob"):
            for n in range(3):
                answer = service.rank("shop", [{"id": f"i{i}"} for i in range(5)], user=user, query=f"q{n}")
                assert service.report(answer, ["i1"], final=n < 2) == "accepted"
            answer = service.rank("plain", items(4), user=user, request_id=f"request of {user}")
            assert service.report(answer, ["i2"], event_id=f"event of {user}") == "accepted"
        service.settle("shop")
        service.settle("plain")
        service.engine.rankers.counted.follow()  # they are stored when the service stops
    return store_url


def run(*arguments: str) -> Any:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def exported(url: str, capsys: pytest.CaptureFixture[str], user: str = USER) -> dict[str, Any]:
    capsys.readouterr()
    assert run("user", "export", user, "--store", url) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def erased(url: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run("user", "erase", USER, "--store", url, "--json", *more) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def assert_empty(found: dict[str, Any]) -> None:
    assert (found["impressions"], found["entries"], found["counters"]) == ([], [], [])


def bytes_left(url: str, text: str = USER) -> int:
    """How often a text occurs in the files of a SQLite store."""
    path = Path(url)
    return sum(file.read_bytes().count(text.encode()) for file in path.parent.glob(f"{path.name}*"))


def test_the_export_has_everything_under_the_id(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = exported(filled, capsys)
    assert found["user"] == USER
    assert found["not_listed"]
    assert found["entries"] == [{"catalog": "shop", "changed": found["entries"][0]["changed"], "fields": {"age": 30}}]
    assert len(found["impressions"]) == 4
    assert [one["ranker"] for one in found["impressions"]] == ["shop", "shop", "shop", "plain"]
    first, _, third, last = found["impressions"]
    assert (first["query"], first["open"], third["open"]) == ("q0", False, True)
    assert (first["outcome"]["kind"], third["outcome"]) == ("final", None)
    assert sum(first["outcome"]["feedback"]) == 1.0
    assert sorted(first["shown"]) == [f"i{i}" for i in range(5)]
    assert [item["id"] for item in first["answer"]["items"]] == first["shown"]
    assert [event["body"]["clicks"] for event in first["events"]] == [["i1"]]
    assert last["request_id"] == f"request of {USER}"
    assert [event["event_id"] for event in last["events"]] == [f"event of {USER}"]
    assert len(last["features"]) == 4
    assert len(last["features"][0]) == 3
    windows = {one["counter"]: one for one in found["counters"]}
    assert windows["window 7d"]["clicks"] == 2
    assert len(windows["last item"]["clicked_at"]) == 2
    assert_empty(exported(filled, capsys, "nobody"))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_export_over_http_is_in_pages(filled: str) -> None:
    with Service(filled) as service:  # type: ignore[arg-type]
        whole = fine(service.http.get(f"/v1/users/{USER}"))
        assert whole["next"] is None
        pages, after = [], ""
        while after is not None:
            page = fine(service.http.get(f"/v1/users/{USER}", params={"limit": 3, "after": after}))
            pages.append(page["impressions"])
            after = page["next"]
        assert [len(page) for page in pages] == [3, 1]
        assert [one for page in pages for one in page] == whole["impressions"]
        assert_empty(fine(service.http.get("/v1/users/nobody")))
        refused(service.http.get("/v1/users/a%00b"), 422, "NUL")
        refused(service.http.get(f"/v1/users/{USER}", params={"limit": 0}), 400, "limit")


def test_an_erased_user_has_nothing_to_export(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    bob = exported(filled, capsys, "bob")
    found = erased(filled, capsys)
    # A service that stops has stored a snapshot of all that it learned: nothing has to wait.
    assert (found["impressions"], found["events"], found["outcomes"], found["pending"]) == (4, 4, 3, 0)
    assert (found["entries"], found["counters"]) == (1, 6)  # five items, last clicks
    assert_empty(exported(filled, capsys))
    assert exported(filled, capsys, "bob") == bob
    again = erased(filled, capsys)
    assert [again[name] for name in ("impressions", "events", "outcomes", "entries", "counters", "pending")] == [0] * 6


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_counters_without_the_user_are_read_by_the_service(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    erased(filled, capsys)
    with Service(filled) as service:  # type: ignore[arg-type]
        service.ready()
        body = [{"id": f"i{i}"} for i in range(5)]

        def clicks(user: str) -> float:
            answer = service.rank("shop", body, explain=True, user=user)
            value: float = next(one for one in answer["items"] if one["id"] == "i1")["features"]["mine"]["value"]
            return value

        assert clicks(USER) == 0.0
        assert clicks("bob") == pytest.approx(np.log1p(2))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_no_byte_of_the_id_is_left_in_the_file(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bytes_left(filled) > 5
    found = erased(filled, capsys, "--vacuum")
    assert bytes_left(filled) == 0
    assert bytes_left(filled, "request of bob") > 0
    assert not [one for one in found["remains"] if "catalog_rows" in one["place"] or "erased_users" in one["place"]]
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM erased_users").fetchone() == (0,)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_without_vacuum_only_the_bare_id_of_the_catalog_row_is_left(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = erased(filled, capsys)
    places = [one["place"].split(":")[0] for one in found["remains"]]
    assert "catalog_rows" in places
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT body FROM catalog_rows WHERE id = ?", (USER,)).fetchall() == [(None,)]
    assert bytes_left(filled) <= 2  # the row and its index


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_running_service_erases_many_impressions_and_logs_no_id(
    store_url: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rankloop")
    with Service(Path(store_url), snapshot_seconds=0.1) as service:
        service.ready().put("shop", features=names(3), exposure="full")
        for n in range(30):
            user = USER if n % 3 else "bob"
            answer = service.rank("shop", items(4, seed=n), user=user, request_id=f"{user}-{n}")
            assert service.report(answer, ["i1"]) == "accepted"
        service.settle("shop")
        until(lambda: service.status("shop")["snapshot_impressions"] == 30, "a snapshot")
        found = fine(service.http.delete(f"/v1/users/{USER}"))
        assert (found["impressions"], found["outcomes"], found["pending"]) == (20, 20, 0)
        assert_empty(fine(service.http.get(f"/v1/users/{USER}")))
        assert USER not in json.dumps(fine(service.http.get("/v1/audit")))
        learned = service.state("shop")
    assert USER not in caplog.text
    assert "a user was forgotten" in caplog.text
    erased(store_url, capsys, "--vacuum")
    assert bytes_left(store_url) == 0
    with Service(Path(store_url)) as service:
        service.ready()
        assert service.state("shop") == learned


def test_what_learning_still_needs_does_not_lead_to_the_user(store_url: str) -> None:
    with Service(store_url, snapshot_seconds=3600) as service:  # type: ignore[arg-type]
        service.ready().put("shop", features=names(3), exposure="full")
        assert service.engine.learning is not None
        service.engine.learning.folds["shop"].snapshot_cost = 1e9  # no snapshot before it is asked for
        answer = service.rank("shop", items(4), user=USER, request_id=f"request of {USER}")
        assert service.report(answer, ["i1"], event_id=f"event of {USER}") == "accepted"
        service.settle("shop")
        found = fine(service.http.delete(f"/v1/users/{USER}"))
        assert (found["pending"], found["impressions"], found["events"], found["outcomes"]) == (1, 0, 1, 0)
        assert found["remains"][0]["rows"] == 1
        assert_empty(fine(service.http.get(f"/v1/users/{USER}")))
        rows = service.engine.database.read(lambda c: c.rows("SELECT * FROM impressions"))
        assert len(rows) == 1
        assert not [value for value in rows[0] if USER.encode() in (value if isinstance(value, bytes) else b"")]
        assert USER not in str(rows)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_store_is_not_rewritten_beside_a_running_process(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(Settings(store=store_url)) as writer:

        def beat(_: float) -> None:
            writer.do(lambda c: leases.heartbeat(c, "worker", "machine", True))

        beat(0.0)
        monkeypatch.setattr(time, "sleep", beat)
        with pytest.raises(InvalidParameter, match="stop them first"):
            users.erase(writer, USER, 1000.0, lambda _, __: None, vacuum=True)
        monkeypatch.setattr(time, "sleep", lambda _: None)  # one that was killed does not beat
        users.erase(writer, USER, 1000.0, lambda _, __: None, vacuum=True)
        assert writer.database.read(counters.erasures) == []


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("export", "erase"):
        assert run("user", command, USER, "--store", str(tmp_path / "missing.db")) == 2
    assert list(tmp_path.iterdir()) == []
    assert USER not in capsys.readouterr().err


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_export_is_written_to_a_private_file(
    filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "export.json"
    assert run("user", "export", USER, "--store", filled, "--out", str(out)) == 0
    assert json.loads(out.read_text()) == exported(filled, capsys)
    assert out.stat().st_mode & 0o777 == 0o600
