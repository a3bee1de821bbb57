"""Replay: any version from the log, bit for bit, on both stores; what is gone, and what was tampered with, is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.cli import main
from rankloop.core import codec, registry
from rankloop.core.errors import RankloopError
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.offline import log_source, replay
from rankloop.service.offline.log_source import open_log_source
from rankloop.service.offline.replay import LogTruncated, open_store, rebuild
from rankloop.service.storage import open_database, schema
from rankloop.service.storage.database import Connection, Database
from tests.service.app_fixtures import Service, items, names, teach
from tests.service.eventful import Shop, same_bits


def change(url: str, work: Callable[[Connection], Any]) -> None:
    connection = open_database(url).connect()
    with connection.transaction():
        work(connection)
    connection.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "exported"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One of either kind for all tests, which only look; and what was exported of one."""
    if request.param == "exported":
        made: Shop = copy(request.getfixturevalue("local"))
        made.exported = tmp_path_factory.mktemp("exported") / "log"
        with open_store(made.url) as opened:
            export_log(opened, made.exported, ["shop"])
        return made
    if request.param == "sqlite":
        return Shop(str(tmp_path_factory.mktemp("replay") / "shop.db"))
    server: Any = request.getfixturevalue("postgres")
    return Shop(server.database())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """In a file."""
    return Shop(str(tmp_path_factory.mktemp("replay") / "shop.db"))


@pytest.fixture
def spoiled(local: Shop, tmp_path: Path) -> Shop:
    """A copy that a test may change."""
    other = copy(local)
    other.url = str(tmp_path / "copy.db")
    with closing(sqlite3.connect(local.url)) as source, closing(sqlite3.connect(other.url)) as target:
        source.backup(target)
    return other


@pytest.fixture
def database(shop: Shop) -> Iterator[Database | Path]:
    if shop.exported:
        yield shop.exported
        return
    with open_store(shop.url) as opened:
        yield opened


# -- what was learned ----------------------------------------------------------------------------------------------


def test_every_version_is_rebuilt_bit_for_bit(shop: Shop, database: Database | Path) -> None:
    """Through a pause, a rollback, a reset and another spec; every state kept on the way is met."""
    expected = {
        1: ("fresh", 0, 8, ["v1"]),
        2: ("fresh", 0, 20, ["v1", "v2", "v3"]),
        3: ("fresh", 0, 20, ["v1", "v2", "v3"]),
        4: ("rollback", 20, 27, ["v4", "v5"]),
        5: ("rollback", 20, 27, ["v4", "v5"]),
        6: ("fresh", 27, 36, ["v6"]),
    }
    for version, (start, start_seq, seq, met) in expected.items():
        found = rebuild(database, "shop", version=version)
        assert (found.start, found.start_seq, found.seq) == (start, start_seq, seq), version
        assert [one.name for one in found.compared] == met
        assert found.equal
        assert same_bits(found.learner, shop.states[version])
        assert not found.note
    assert shop.states[4] == shop.before_reset

    newest = rebuild(database, "shop")
    assert (newest.seq, [one.name for one in newest.compared]) == (39, ["v6", "snapshot"])
    assert newest.equal
    assert same_bits(newest.learner, shop.last)
    assert rebuild(database, "shop", version=2).learned == 19  # and one that came while learning was paused
    assert rebuild(database, "shop", version=1).learned == 8


def test_the_log_is_read_in_portions(shop: Shop, database: Database | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(log_source, "BATCH", 7)
    monkeypatch.setattr(replay, "TELL", 5)
    found = rebuild(database, "shop", version=4, on_progress=lambda n, of: told.append((n, of)))
    assert same_bits(found.learner, shop.states[4])
    assert told == [(5, 7)]
    assert [outcome.seq for outcome in open_log_source(database).outcomes("shop", 3, 25)] == list(range(3, 25))


# -- what cannot be ------------------------------------------------------------------------------------------------


def test_a_log_that_was_tampered_with_is_noticed(spoiled: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    change(spoiled.url, lambda c: c.run("UPDATE outcomes SET feedback = ? WHERE seq = 9", b"[]"))
    with open_store(spoiled.url) as database:
        found = rebuild(database, "shop", version=2)
    assert [(one.name, one.equal) for one in found.compared] == [("v1", True), ("v2", False), ("v3", False)]
    assert not found.equal
    assert call("replay", "shop", "--store", spoiled.url, "--version", "2") == 1
    assert "NOT EQUAL" in capsys.readouterr().out


def test_what_is_gone_from_the_log_is_told(spoiled: Shop) -> None:
    """Outcomes 0-9 past retention: v2 can be had as it is, not rebuilt; what came after the rollback can."""
    change(spoiled.url, lambda c: c.run("DELETE FROM outcomes WHERE seq < 10"))
    with open_store(spoiled.url) as database:
        with pytest.raises(LogTruncated, match="'shop'"):
            rebuild(database, "shop", version=1)
        with pytest.raises(LogTruncated, match=r"10.*20"):
            rebuild(database, "shop", version=2)
        as_it_is = rebuild(database, "shop", version=2, start=2)
        assert same_bits(as_it_is.learner, spoiled.states[2])
        assert rebuild(database, "shop", version=4).equal
    change(spoiled.url, lambda c: c.run("DELETE FROM outcomes WHERE seq = 30"))
    with open_store(spoiled.url) as database:
        with pytest.raises(LogTruncated, match="31"):
            rebuild(database, "shop", version=6)
        rest = rebuild(database, "shop")
    assert rest.note == "outcomes before 31 are not all in the log any more: begun with v6"
    assert [(one.name, one.equal) for one in rest.compared] == [("snapshot", True)]
    assert same_bits(rest.learner, spoiled.last)


def test_outcomes_that_are_deleted_meanwhile_are_noticed(spoiled: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = log_source.StoreLog.outcomes
    monkeypatch.setattr(log_source.StoreLog, "outcomes", lambda *a: (one for one in whole(*a) if one.seq != 4))
    with open_store(spoiled.url) as database, pytest.raises(LogTruncated, match="outcome"):
        rebuild(database, "shop", version=1)


def test_a_store_of_an_earlier_release(spoiled: Shop) -> None:
    """It did not note where learning began, nor which fold a version is of."""

    def age(connection: Connection) -> None:
        connection.run("DELETE FROM origins")
        connection.run("UPDATE versions SET generation = NULL")

    change(spoiled.url, age)
    with open_store(spoiled.url) as database:
        found = rebuild(database, "shop", at=36)
    assert "earlier release" in found.note
    assert ("v6", True) in [(one.name, one.equal) for one in found.compared]  # the epoch leaves out what was before
    assert ("v4", False) in [(one.name, one.equal) for one in found.compared]


def opening(url: str) -> None:
    with open_store(url):
        pass


def test_stores_of_other_releases_are_left_alone(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(store_url)
    schema.migrate(database)
    monkeypatch.setattr(schema, "CURRENT", schema.CURRENT + 1)
    with pytest.raises(RankloopError):
        opening(store_url)
    monkeypatch.setattr(schema, "CURRENT", schema.CURRENT - 2)
    with pytest.raises(schema.NewerStore):
        opening(store_url)
    database.close_thread()


def test_an_outcome_that_the_learner_refused_is_refused_again(store_url: str) -> None:
    path: Any = store_url
    with Service(path) as service:
        service.ready().put("shop", features=names(3), exposure="full")
        teach(service, "shop", 3)
        answer = service.rank("shop", items(4))
        body = {"q": answer["impression_id"]}
        damaged = codec.dumps({"order": np.arange(4), "items": np.arange(4)}, {"query": "q"})
        change(store_url, lambda c: c.run("UPDATE impressions SET body = ? WHERE id = ?", damaged, body["q"]))
        assert service.report(answer, ["i1"]) == "accepted"
        teach(service, "shop", 2, seed=50)
        live = service.state("shop")
    with open_store(store_url) as database:
        found = rebuild(database, "shop")
    assert (found.learned, found.failed, found.seq) == (5, 1, 6)
    assert found.equal
    assert same_bits(found.learner, live)


# -- the command ---------------------------------------------------------------------------------------------------


def call(*arguments: str) -> int:
    """Exit code of a command."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a command prints."""
    assert call(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_rebuilds_and_saves(local: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "v4.rankloop"
    found = run(capsys, "replay", "shop", "--store", local.url, "--version", "4", "--out", str(out))
    assert (found["equal"], found["begun_with"], found["begun_at"], found["outcomes"]) == (True, "rollback", 20, 27)
    assert found["compared"] == [{"name": "v4", "seq": 27, "equal": True}, {"name": "v5", "seq": 27, "equal": True}]
    assert same_bits(registry.load(out), local.states[4])
    assert call("replay", "shop", "--store", local.url) == 0
    text = capsys.readouterr().out
    assert "snapshot" in text
    assert "equal" in text
    assert "12 outcomes from fresh at 27 to 39" in text
    assert call("replay", "shop", "--store", local.url, "--at", "30") == 0
    assert "nothing is stored at that point" in capsys.readouterr().out


def test_the_command_tries_learners(local: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("replay", "shop", "--store", local.url, "--try", "pdgd", "--try", "dbgd", "--examination", "1/rank")
    found = run(capsys, *arguments)
    assert found["lists"] == 12  # since the reset
    assert [one["policy"] for one in found["policies"]] == ["as logged", "base order", "pdgd", "dbgd"]
    assert found["examination"]["source"] == "1/rank"
    assert found["learned_nothing"] == ["dbgd"]
    assert "no other candidates" in found["about"]
    logged = found["policies"][0]
    assert logged["value"]["value"] == pytest.approx(found["clicks"] / 12)
    assert logged["against_logged"] is None
    assert call(*arguments, "--at", "33") == 0
    text = capsys.readouterr().out
    assert "6 lists" in text
    assert "effective" in text
    assert "dbgd: learned nothing" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--try", "pdgd", "--version", "1"], "--try cannot be combined with"),
        (["--try", "pdg"], "no learner is called 'pdg'"),
        (["--try", "pdgd", "--try", "pdgd"], "name each once"),
        (["--try", "pdgd", "--examination", "often"], "examination is 'often'"),
        (["--try", "pdgd", "--examination", "1,0.5"], "has 2 numbers"),
        (["--try", "pdgd", "--examination", "swaps"], "swaps do not tell"),
        (["--try", "pdgd", "--since", "39"], "no lists with feedback"),
        (["--try", "pdgd", "--since", "-1"], "since is -1"),
        (["--try", "pdgd", "--level", "2"], "level is 2"),
        (["--try", "pdgd", "--clip", "0"], "clip is 0"),
    ],
)
def test_a_wrong_call_is_one_line(
    local: Shop, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("replay", "shop", "--store", local.url, *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


# -- inspect -------------------------------------------------------------------------------------------------------


def test_inspect_tells_what_is_there(local: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "inspect", local.url, "shop")
    assert (found["ranker"], found["serving"], found["learning"]) == ("shop", "live", True)
    assert (found["closed_impressions"], found["learned_impressions"], found["unlearned_impressions"]) == (39, 39, 0)
    assert found["learner"]["parameters"]["pairs"] == "matched"
    theta = codec.loads(local.last)[0]["theta_"]
    assert [one["weight"] for one in found["learner"]["weights"]] == theta.tolist()
    assert [one["feature"] for one in found["learner"]["weights"]] == ["f0", "f1", "baseline"]
    assert found["learner"]["state"]["theta_"] == "float64 3"
    assert [one["version"] for one in found["versions"]] == [6, 5, 4, 3, 2, 1]
    assert run(capsys, "inspect", local.url) == ["shop"]


def test_inspect_prints_tables(local: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", local.url, "shop") == 0
    text = capsys.readouterr().out
    for words in ("theta_", "Versions", "before the reset", "f1", "bounded"):
        assert words in text
    registry.save(registry.make("pdgd"), tmp_path / "fresh.rankloop")
    assert call("inspect", str(tmp_path / "fresh.rankloop")) == 0
    assert "pdgd" in capsys.readouterr().out
    assert run(capsys, "inspect", str(tmp_path / "fresh.rankloop"))["parameters"]["rate"] == 0.1
    assert call("inspect", local.url) == 0
    assert "bounded" in capsys.readouterr().out
    for arguments, words in (([local.url, "shopp"], "did you mean 'shop'"), (["none.db"], "there is no store")):
        assert call("inspect", *arguments) == 2
        assert words in capsys.readouterr().err
