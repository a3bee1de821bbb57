"""The past from a store and from files, read as a whole, in parts and by workers: always the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import past_store

from rankloop.cli import main
from rankloop.core import codec, registry
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.service.maintenance.archive import columns, exporting, parquet
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.maintenance.housekeeping import EXPORT_EVERY, RETRY_AFTER, Archive, Retention
from rankloop.service.offline.log_source import open_log_source
from rankloop.service.offline.off_policy_estimates import Estimates, SessionGathering, estimate_policies
from rankloop.service.offline.policy_comparison import ComparisonPlan, plan_comparison, run_comparison
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.settings import Settings
from rankloop.service.worker.process import Process
from tests.service.app_fixtures import Clock, Service, names, teach
from tests.service.running import wait_for

LISTS = 1500


class Logs:
    """A store, and its log in files of a few days."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log, self.saved = folder / "store.db", folder / "log", folder / "saved.rankloop"
        past_store.fill(str(self.store), LISTS, users=60)
        with open_store(str(self.store)) as database:
            export_log(database, self.log, ["shop"])
            registry.save(rebuild(database, "shop", at=300).learner, self.saved)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past_store, "PER_DAY", 400)
        patch.setattr(exporting, "FILE_ROWS", 256)
        patch.setattr(columns, "MOST", 256)
        yield Logs(tmp_path_factory.mktemp("past"))


def walked(source: Any, challengers: Sequence[str], **terms: Any) -> tuple[ComparisonPlan, str]:
    """The plan, and what is found in one process."""
    walk = plan_comparison(source, "shop", challengers, **terms)
    return walk, said(estimate_policies(run_comparison(walk)))


def said(found: Estimates) -> str:
    """All of it, to the last bit."""
    return repr([found, [value.hex() for value in found.examination.tolist()]])


@pytest.mark.slow
def test_estimates_have_the_same_bits_from_a_store_and_from_files(logs: Logs) -> None:
    """Users known, a saved learner among the challengers, and only a part of the log."""
    assert len(parquet.files_of(logs.log, "shop")) >= 6
    for challengers in ([], ["pdgd", "greedy", str(logs.saved)]):
        for terms in ({}, {"since": 130, "at": 1111, "gain": "dcg", "clip": 2.0, "shows": "best"}):
            _, told = walked(logs.log, challengers, **terms)
            with open_store(str(logs.store)) as database:
                assert walked(database, challengers, **terms)[1] == told


def test_examination_is_estimated_from_pairs(logs: Logs) -> None:
    plan, sessions = plan_comparison(logs.log, "shop", []), SessionGathering()
    comparison = run_comparison(plan, sessions)
    by_pairs = estimate_policies(comparison, lambda: sessions, examination="pairs")
    assert by_pairs.source == "pairs"
    assert by_pairs.examination == pytest.approx(past_store.looked(5), rel=0.5)


def test_figures_lie_near_what_the_users_do(logs: Logs) -> None:
    found = estimate_policies(run_comparison(plan_comparison(logs.log, "shop", [])))
    assert found.examination == pytest.approx(past_store.looked(5), rel=0.25)
    assert (found.lists, found.drawn, found.whole, found.source) == (LISTS, LISTS, LISTS, "swaps")
    base = found.policies[1]
    assert abs(base.by_list["snips"].value - base.value.value) < 4 * base.by_list["snips"].error


def test_a_saved_learner_stays_as_it_is(logs: Logs) -> None:
    before = logs.saved.read_bytes()
    tries = run_comparison(plan_comparison(logs.log, "shop", [str(logs.saved)]))
    assert codec.dumps(tries.challengers[0].learner.state()) == codec.dumps(registry.load(logs.saved).state())
    assert tries.idle() == []
    assert logs.saved.read_bytes() == before


def test_files_rebuild_the_bits_of_the_store(logs: Logs) -> None:
    with open_store(str(logs.store)) as database:
        for at in (0, 1, 255, 256, 777, None):
            one, other = rebuild(database, "shop", at=at), rebuild(logs.log, "shop", at=at)
            assert codec.dumps(one.learner.state()) == codec.dumps(other.learner.state())
            assert (one.seq, one.learned) == (other.seq, other.learned)
        outcomes = list(open_log_source(database).outcomes("shop", 250, 260))
    for mine, theirs in zip(open_log_source(logs.log).outcomes("shop", 250, 260), outcomes, strict=True):
        assert codec.dump_impression(mine.body) == theirs.body  # type: ignore[arg-type]
        assert mine._replace(body=None) == theirs._replace(body=None)


def test_what_cannot_be_is_said_before_anything_is_read(logs: Logs, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter):
        open_log_source(tmp_path)
    with pytest.raises(UnknownName, match="'shop'"):
        plan_comparison(logs.log, "shoop", [])
    (tmp_path / "ranker=shop").mkdir()
    with pytest.raises(InvalidParameter):
        plan_comparison(tmp_path, "shop", [])


def test_the_command_reads_files(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as stop:
            main(["replay", "shop", *arguments])
        told = capsys.readouterr()
        return stop.value.code, told.out + told.err

    code, told = run("--log", str(logs.log))
    assert (code, "1,500 outcomes from fresh at 0 to 1,500" in told) == (0, True)
    code, told = run("--log", str(logs.log), "--try", "pdgd", "--json")
    assert (code, '"lists": 1500' in told) == (0, True)
    assert "give one of them" in run("--log", str(logs.log), "--store", "x.db")[1]


# -- archive before deleting ---------------------------------------------------------------------------------------


def test_nothing_is_deleted_by_age_that_is_not_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, then a list that is still open, then all settled: only what is in the files goes."""
    clock, folder = Clock(), tmp_path / "archive"
    process = Process(Settings(store=str(tmp_path / "shop.db"), retention_days=1.0, archive=str(folder)), clock)
    with Service(tmp_path / "shop.db", clock, snapshot_seconds=0.05, retention_days=0.0) as service:
        service.ready().put("shop", features=names(3), window_seconds=30 * 86400.0)
        teach(service, "shop", 6)
        process.open()
        archive = Archive(process)
        opened = service.rank("shop", [{"id": "a", "features": dict.fromkeys(names(3), 0.5)}])
        clock.ahead = 3 * 86400.0

        def kept() -> int:
            Retention(process, archive).delete()
            return int(process.database.read(lambda c: c.rows("SELECT COUNT(*) FROM outcomes"))[0][0])

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            archive._look()
        assert archive.complete == float("-inf")
        assert kept() == 6
        archive._look()  # too soon after the failure
        assert archive.complete == float("-inf")
        clock.ahead += RETRY_AFTER + 1
        archive._look()
        assert [one.end for one in parquet.files_of(folder, "shop")] == [6]
        told = exporting.load_manifest(folder, "shop")
        assert told is not None
        assert told.outcomes == 6
        first = process.database.read(lambda c: c.rows("SELECT MIN(created) FROM impressions WHERE open = 1"))[0][0]
        assert archive.complete == pytest.approx(first)  # what is open may yet be settled, and must then be exported
        wait_for(lambda: kept() == 0, "a snapshot that covers them")
        assert service.report(opened, ["a"]) == "accepted"
        service.settle("shop")
        assert kept() == 1  # settled after the export
        clock.ahead += EXPORT_EVERY + 1
        archive._look()
        wait_for(lambda: kept() == 0, "a snapshot that covers it")
        assert [one.end for one in parquet.files_of(folder, "shop")] == [6, 7]
        assert np.isfinite(archive.complete)
        process.close()
