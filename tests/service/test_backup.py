"""Back up a store in use, restore it, and verify that nothing is missing."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.service.offline.backup import back_up, restore, verify
from rankloop.service.offline.replay import open_store
from rankloop.service.storage import audit as audits
from rankloop.service.storage import open_database, schema
from rankloop.service.storage.schema import CURRENT
from rankloop.service.storage.sqlite import Checkpointer, SQLite
from tests.service.app_fixtures import Service, items, names, teach
from tests.service.eventful import Shop
from tests.service.test_store_upgrade import DUMP
from tests.service.truths import sent_id


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A SQLite store that tests only read."""
    return Shop(str(tmp_path_factory.mktemp("backup") / "shop.db"))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, local: Shop) -> Shop:
    if request.param == "sqlite":
        return local
    server: Any = request.getfixturevalue("postgres")
    return Shop(server.database())


def change(path: Path, sql: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, parameters)


def read(path: Path | str, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(autouse=True)
def same_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup lowers the priority of its process, which here is that of the tests."""
    monkeypatch.setattr(os, "nice", lambda _: 0)


def run(*arguments: str) -> Any:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_a_backup_under_load_has_every_outcome_acknowledged_before_it(tmp_path: Path) -> None:
    store, target = tmp_path / "shop.db", tmp_path / "backup.db"
    stop, acknowledged = threading.Event(), list[str]()
    with Service(store) as service:
        service.ready().put("shop", features=names(3), exposure="full")
        teach(service, "shop", 5)

        def load() -> None:
            seed = 100
            while not stop.is_set():
                answer = service.rank("shop", items(5, seed=seed))
                assert service.report(answer, ["i1"]) == "accepted"
                acknowledged.append(answer["impression_id"])
                seed += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            while len(acknowledged) < 20:
                stop.wait(0.01)
            before = list(acknowledged)
            made = back_up(str(store), target)
        finally:
            stop.set()
            thread.join()
        assert len(acknowledged) > len(before)
        answer = service.rank("shop", items(5, seed=1))
        assert service.report(answer, ["i1"]) == "accepted"
    assert made.bytes == target.stat().st_size
    assert made.check.sound
    assert {row[0] for row in read(target, "SELECT impression_id FROM outcomes")} >= set(before)
    (ranker,) = made.check.rankers
    assert ranker.outcomes == read(target, "SELECT next_seq FROM log_offsets")[0][0] >= len(before) + 5
    assert ranker.compared
    assert all(one.equal for one in ranker.compared)
    assert made.check.last_event == read(target, "SELECT MAX(received) FROM events")[0][0]
    assert sorted(path.name for path in tmp_path.iterdir() if "backup" in path.name) == ["backup.db"]
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_restored_store_learns_on_from_where_the_backup_was(local: Shop, tmp_path: Path) -> None:
    target, store = tmp_path / "backup.db", tmp_path / "restored.db"
    back_up(local.url, target)
    change(target, "INSERT INTO leases (ranker, holder, heartbeat) VALUES ('shop', 'gone', 3)")
    change(target, "INSERT INTO workers (id, machine, heartbeat, learns) VALUES ('gone', 'old', 3, 1)")
    made = restore(target, str(store))
    assert read(store, "SELECT COUNT(*) FROM leases") == read(store, "SELECT COUNT(*) FROM workers") == [(0,)]
    assert made.check.taken is not None
    (entry,) = open_database(str(store)).read(lambda c: audits.entries(c, 1))
    assert entry.action == "restore"
    tables = ("rankers", "log_offsets", "impressions", "events", "outcomes", "snapshots", "versions", "origins", "keys")
    for table in tables:
        assert read(store, f"SELECT * FROM {table}") == read(local.url, f"SELECT * FROM {table}"), table
    with Service(store) as service:
        service.ready()
        assert service.state("shop") == local.last
        again = next(iter(read(local.url, "SELECT event_id, impression_id FROM events ORDER BY received DESC")))
        event = {"event_id": sent_id(again[0]), "impression_id": again[1], "clicks": ["i1"], "final": True}
        assert [one["status"] for one in service.feedback(event)] == ["duplicate"]
        lost = {"event_id": "lost", "impression_id": "made-after-the-backup", "clicks": ["i1"], "final": True}
        assert [one["status"] for one in service.feedback(lost)] == ["orphan"]
        teach(service, "shop", 2, width=2, seed=300)
    assert not read(store, "SELECT name FROM facts WHERE name = 'backup'")


def test_every_store_can_be_verified(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "--store", shop.url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is True
    assert found["integrity"] is (None if "://" in shop.url else True)
    assert found["migrations"] == CURRENT
    (ranker,) = found["rankers"]
    assert ranker["ranker"] == "shop"
    assert ranker["versions"] == 6
    assert {one["name"] for one in ranker["compared"]} == {"v6", "snapshot"}
    assert ranker["begun_with"] == "fresh"


def test_verification_finds_a_log_that_gives_another_state(local: Shop, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.db"
    back_up(local.url, spoiled)
    change(
        spoiled, "UPDATE outcomes SET feedback = ? WHERE seq = (SELECT MAX(seq) - 5 FROM outcomes)", b"[0,1,1,1,1,1]"
    )
    with open_store(str(spoiled)) as database:
        found = verify(database)
    assert not found.sound
    assert found.rankers[0].problem is not None
    with open_store(str(spoiled)) as database:
        assert verify(database, fold=False).sound  # the file itself is whole
    with pytest.raises(RankloopError, match="damaged"):
        restore(spoiled, str(tmp_path / "store.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spoiled.db"]


def test_verification_finds_a_missing_outcome_and_a_damaged_version(local: Shop, tmp_path: Path) -> None:
    for number, sql in enumerate(
        (
            "DELETE FROM outcomes WHERE seq = (SELECT MAX(seq) FROM outcomes)",
            "UPDATE versions SET state = x'00' WHERE version = 2",
        )
    ):
        spoiled = tmp_path / f"spoiled-{number}.db"
        back_up(local.url, spoiled, fold=False)
        change(spoiled, "UPDATE log_offsets SET next_seq = next_seq + 1")  # an outcome that no snapshot covers
        change(spoiled, sql)
        with open_store(str(spoiled)) as database:
            assert not verify(database).sound


def test_verification_finds_a_damaged_file(local: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoiled = tmp_path / "spoiled.db"
    back_up(local.url, spoiled, fold=False)
    with spoiled.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096 * 4)
    assert run("verify", "--store", str(spoiled)) == 1
    assert "NOT SOUND" in capsys.readouterr().out
    with pytest.raises(RankloopError):
        restore(spoiled, str(tmp_path / "store.db"))
    assert not (tmp_path / "store.db").exists()


def test_nothing_is_overwritten(local: Shop, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    back_up(local.url, target, fold=False)
    before = target.read_bytes()
    with pytest.raises(InvalidParameter, match="not overwritten"):
        back_up(local.url, target)
    with pytest.raises(InvalidParameter, match="not overwritten"):
        restore(target, str(target))
    assert target.read_bytes() == before
    # A write-ahead log that is left over would be applied to the restored store.
    (tmp_path / "store.db-wal").write_bytes(b"left over")
    with pytest.raises(InvalidParameter, match="db-wal exists"):
        restore(target, str(tmp_path / "store.db"))


def test_a_failed_backup_leaves_nothing_and_the_next_one_takes_its_place(local: Shop, tmp_path: Path) -> None:
    target, partial = tmp_path / "backup.db", tmp_path / ".backup.db.partial"

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(local.url, target, on_progress=stopped)
    assert list(tmp_path.iterdir()) == []
    partial.write_bytes(b"of a process that was killed")
    partial.with_name(f"{partial.name}-wal").write_bytes(b"of a process that was killed")
    back_up(local.url, target)
    assert list(tmp_path.iterdir()) == [target]


def test_two_backups_do_not_write_one_file(local: Shop, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"

    def second(*_: Any) -> None:
        with pytest.raises(InvalidParameter, match="another process"):
            back_up(local.url, target)

    back_up(local.url, target, on_progress=second)
    assert target.exists()


def test_a_backup_of_an_earlier_release_is_brought_up_to_date_when_it_is_restored(
    tmp_path: Path,
) -> None:
    old, target, store = tmp_path / "old.db", tmp_path / "backup.db", tmp_path / "store.db"
    with sqlite3.connect(old) as connection:
        connection.executescript(DUMP.read_text())
    made = back_up(str(old), target)
    assert made.check.sound
    assert (made.check.migrations, made.check.folded) == (schema.OLDEST, False)
    assert restore(target, str(store)).check.migrations == CURRENT
    for number in range(schema.OLDEST, CURRENT + 1):
        change(target, "INSERT INTO migrations (id) VALUES (?)", number)
    with pytest.raises(schema.NewerStore):
        restore(target, str(tmp_path / "other.db"))


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.db", tmp_path / "text.db"
    change(empty, "CREATE TABLE other (id INTEGER)")
    text.write_text("not a database, but long enough to be taken for one" * 100)
    for source in (empty, text, tmp_path / "missing.db"):
        with pytest.raises(RankloopError):
            restore(source, str(tmp_path / "store.db"))
        with pytest.raises(RankloopError):
            back_up(str(source), tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == ["empty.db", "text.db"]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_postgresql_url_gets_instructions(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "x.db", "--store", "postgresql://me:secret@db/rankloop") == 2
    said = capsys.readouterr().err
    assert "pg_dump" in said
    assert "rankloop verify" in said
    assert "secret" not in said


def test_the_commands_print_the_recovery_point(local: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, store = tmp_path / "backup.db", tmp_path / "store.db"
    assert run("backup", str(target), "--store", local.url) == 0
    said = capsys.readouterr().out
    assert "Recovery point" in said
    assert "shop" in said
    assert run("restore", str(target), "--store", str(store), "--quick", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(store)
    assert found["bytes"] == store.stat().st_size
    assert found["check"]["folded"] is False
    assert found["check"]["rankers"][0]["outcomes"] == read(local.url, "SELECT next_seq FROM log_offsets")[0][0]


def test_a_reader_does_not_make_writers_wait_for_the_log_to_be_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SQLite(tmp_path / "log.db")
    schema.migrate(database)
    monkeypatch.setattr("rankloop.service.storage.sqlite.CHECKPOINT_BYTES", 1)
    monkeypatch.setattr("rankloop.service.storage.sqlite.TRUNCATE_BYTES", 1)
    emptied: list[bool] = []

    class CountingCopier(Checkpointer):  # stores of other tests in this process have copiers too
        def truncate(self) -> bool:
            emptied.append(True)
            return True

    writer, copier = database.connect(), CountingCopier(database.path)

    def write() -> None:
        with writer.transaction():
            writer.run("INSERT INTO facts (name, since) SELECT 'fact ' || COUNT(*), 1.0 FROM facts")

    write()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM facts").fetchone()
        write()
        copier.checkpoint()
        assert emptied == []
    write()
    copier.checkpoint()
    assert len(emptied) == 1
    writer.close()
    copier.close()
    database.close()
