"""A store that commit a18f45f wrote opens, and continues with all its data."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path

import pytest

from rankloop.core.errors import RankloopError
from rankloop.service.offline.backup import verify
from rankloop.service.storage import open_database, partitions, schema
from rankloop.service.storage.sqlite import SQLite
from tests.service.app_fixtures import Service, fine, until
from tests.service.stores import Store
from tests.service.truths import read, sent_id

DUMP = Path(__file__).parent / "data" / "store-a18f45f.sql"
FEATURES = [{"id": item, "features": {"price": 1.0, "match": 0.5}} for item in "abc"]


def fill_postgres(url: str, dump: str) -> None:
    """Load a dump of SQLite into PostgreSQL, where commit a18f45f partitioned new stores."""
    dump = dump.replace("BLOB", "BYTEA").replace(" INTEGER", " BIGINT").replace(" REAL", " DOUBLE PRECISION")
    dump = dump.replace("migrations (id BIGINT", "migrations (id INTEGER")
    dump = re.sub(r"\bX'([0-9A-F]*)'", r"'\\x\1'", dump)
    statements = [one for one in re.split(r";\n", dump) if re.match(r"CREATE|INSERT|UPDATE", one)]
    tables = [one for one in statements if one.startswith("CREATE TABLE")]
    connection = open_database(url).connect(time_limits=False)
    with connection.transaction():
        for one in tables:
            connection._raw.execute(one)  # type: ignore[attr-defined]
        for one in statements:
            if one.startswith("CREATE") and not re.search(r"TABLE|ON (impressions|events|outcomes)\b", one):
                connection._raw.execute(one)  # type: ignore[attr-defined]
        partitions.create_partitioned(connection, 1.0)
        for one in statements:
            if one.startswith(("INSERT", "UPDATE")):
                connection._raw.execute(one)  # type: ignore[attr-defined]
    connection.close()


@pytest.fixture
def old_store(store_url: str) -> str:
    dump = DUMP.read_text().replace("COMMIT;", "UPDATE impressions SET closes = 1e11 WHERE open = 1;\nCOMMIT;")
    if "://" in store_url:
        fill_postgres(store_url, dump)
    else:
        with sqlite3.connect(store_url) as connection:
            connection.executescript(dump)
        connection.close()
    return store_url


def columns(url: str) -> set[tuple[str, ...]]:
    """The columns of all tables of a store: name, type and whether they may be null."""
    if "://" in url:
        sql = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        rows = read(url, f"{sql} WHERE table_schema = current_schema() AND table_name NOT LIKE 'impressions\\_%%'")
        return {row for row in rows if not re.match(r"(events|outcomes|impressions)_\w", row[0]) or "counts" in row[0]}
    names = [row[0] for row in read(url, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {(name, *row[1:4]) for name in names for row in read(url, f"PRAGMA table_info({name})")}
    indexes = read(url, "SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'")
    return found | {(name, table) for name, table in indexes}


def test_store_of_a18f45f_opens_and_continues(old_store: str) -> None:
    ((before,),) = read(old_store, "SELECT state FROM snapshots")
    answers = dict(read(old_store, "SELECT request_id, answer FROM impressions"))
    events = {row[0] for row in read(old_store, "SELECT event_id FROM events")}
    with Service(old_store, retention_days=0.0) as service:  # type: ignore[arg-type]
        service.ready()
        until(lambda: "shop" in service.engine.rankers, "the ranker")
        assert service.snapshot("shop") == bytes(before)
        assert [one["note"] for one in service.versions("shop")] == ["before the rollback to v1", "first"]
        assert service.status("shop")["spec"]["catalog"] == "goods"
        assert fine(service.http.get("/v1/catalogs/goods/items/a"))["fields"] == {"price": 1.5}
        assert {sent_id(row[0]) for row in read(old_store, "SELECT event_id FROM events")} == events
        again = service.rank("shop", FEATURES, request_id="other")
        (open_id,) = [row[0] for row in read(old_store, "SELECT id FROM impressions WHERE request_id = 'open'")]
        send = {"impression_id": open_id, "clicks": ["b"], "final": True}
        assert service.feedback({**send, "event_id": "partial"})[0]["status"] == "duplicate"
        assert service.feedback({**send, "event_id": "new"})[0]["status"] == "accepted"
        assert service.report(again, ["a"]) == "accepted"
        assert service.settle("shop") == service.status("shop")["closed_impressions"] == 8
        service.act("shop", "rollback", version=1)
        service.settle("shop")
    assert dict(read(old_store, "SELECT request_id, answer FROM impressions")).items() >= answers.items()
    database = open_database(old_store)
    found = verify(database)
    database.close()
    assert found.sound, found.problems
    assert found.migrations == schema.CURRENT


def test_upgraded_tables_are_those_of_a_new_store(
    old_store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database = open_database(old_store)
    assert schema.migrate(database) == len(schema.STEPS)
    assert schema.migrate(database) == 0
    database.close()
    new = request.getfixturevalue("postgres").database() if "://" in old_store else str(tmp_path / "new.db")
    Store(new).close()
    assert columns(old_store) == columns(new)


def test_store_is_not_upgraded_while_an_older_process_writes_heartbeats(
    old_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(old_store)
    connection = database.connect()

    def beat(_: float) -> None:
        with connection.transaction():
            connection.run("UPDATE workers SET beat = beat + 1")

    with connection.transaction():
        connection.run("INSERT INTO workers (id, machine, beat, learns, report) VALUES ('old', 'm', 0, 1, '')")
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", beat)
        with pytest.raises(schema.StoreInUse, match="old"):
            schema.migrate(database)
        patch.setattr(time, "sleep", lambda _: None)  # it was killed
        assert schema.migrate(database) == len(schema.STEPS)
    connection.close()
    database.close()


def test_stores_that_are_too_old_or_too_new_are_refused(tmp_path: Path) -> None:
    database = SQLite(tmp_path / "a.db")
    connection = database.connect()
    with connection.transaction():
        connection.run("CREATE TABLE migrations (id INTEGER PRIMARY KEY)")
        connection.run("INSERT INTO migrations (id) VALUES (0)")
    with pytest.raises(RankloopError, match="opens stores"):
        schema.migrate(database)
    with connection.transaction():
        connection.many("INSERT INTO migrations (id) VALUES (?)", [(n,) for n in range(1, schema.CURRENT + 1)])
    with pytest.raises(schema.NewerStore):
        schema.migrate(database)
    connection.close()
    database.close()
