"""The exported log: the same bits as in the store, every settled list once, whatever the export was interrupted by."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rankloop.cli import main
from rankloop.core import codec
from rankloop.core.errors import CodecError, DataError, RankloopError
from rankloop.service.maintenance.archive import columns, exporting, parquet
from rankloop.service.maintenance.archive.columns import Chunk
from rankloop.service.maintenance.archive.exporting import Exported, FolderInUse, export_log
from rankloop.service.storage import retention
from rankloop.service.storage.outcomes import Outcome
from tests.service.archived import NOON, impression, learned_bodies, settle
from tests.service.stores import Store, store

__all__ = ["store"]  # a fixture

DOCS = Path(__file__).parents[2] / "docs" / "replay.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the log goes; the store is beside it."""
    return tmp_path / "log"


@pytest.fixture
def shop(store: Store) -> Store:
    store.now = NOON
    store.ranker(learner="pairrank")
    return store


def exported(store: Store, folder: Path) -> Exported:
    (found,) = export_log(store.database, folder, ["shop"])
    return found


def chunks(folder: Path) -> list[Chunk]:
    return [
        parquet.chunk_from(pq.read_table(one.path, schema=parquet.SCHEMA)) for one in parquet.files_of(folder, "shop")
    ]


def bodies(folder: Path) -> list[bytes]:
    """The lists of the files as the codec writes them."""
    return [codec.dump_impression(one) for chunk in chunks(folder) for one in chunk.impressions()]


def test_what_is_exported_has_the_bits_of_the_store(shop: Store, folder: Path) -> None:
    """Lists of every kind; all that learning reads of an outcome comes back as it was."""
    settle(shop, range(60))
    found = exported(shop, folder)
    assert (found.rows, found.files, found.outcomes) == (60, 1, 60)
    assert bodies(folder) == learned_bodies(shop)
    (chunk,) = chunks(folder)
    for i, (one, values) in enumerate(zip(shop.outcomes(), chunk.feedback(), strict=True)):
        told = Outcome(int(chunk.seq[i]), bool(chunk.learn[i]), int(chunk.epoch[i]), one.body, values.tolist(),
                       chunk.person[i], chunk.viewed[i])  # fmt: skip
        assert told == one
    (table,) = [pq.read_table(one.path) for one in parquet.files_of(folder, "shop")]
    assert table["log_propensity"][2].as_py() == impression(2).memo["log_propensity"][0]
    assert table["log_propensity"][1].as_py() is None
    assert table["items"][3].as_py() == [str(one) for one in impression(3).items.tolist()]
    assert table["features"][4].as_py() == impression(4).features.ravel().tolist()
    assert (table["features"][1].as_py(), table["width"][1].as_py(), table["width"][2].as_py()) == (None, None, 9)
    assert table["shown_at"][0].as_py() == datetime.fromtimestamp(NOON, UTC)


def test_a_second_run_adds_only_what_is_new(shop: Store, folder: Path) -> None:
    settle(shop, range(5))
    waiting = shop.show(body=codec.dump_impression(impression(0)))
    assert exported(shop, folder).rows == 5
    before = {one.path: one.path.stat().st_mtime_ns for one in parquet.files_of(folder, "shop")}
    assert exported(shop, folder)[1:4] == (0, 0, 0)
    settle(shop, range(5, 9))
    assert exported(shop, folder).rows == 4  # and not the one that still waits
    assert waiting not in ds.dataset(folder, partitioning="hive").to_table()["impression_id"].to_pylist()
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert bodies(folder) == learned_bodies(shop)
    assert [(one.first, one.end) for one in parquet.files_of(folder, "shop")] == [(0, 5), (5, 9)]


def test_files_are_by_day_and_readers_of_folders_see_it(shop: Store, folder: Path) -> None:
    """Six hours between two lists: four a day, from noon on; hidden names and states are passed over."""
    settle(shop, range(10), seconds=6 * 3600.0)
    exported(shop, folder)
    found = parquet.files_of(folder, "shop")
    assert [(one.first, one.end) for one in found] == [(0, 2), (2, 6), (6, 10)]
    table = ds.dataset(folder, partitioning="hive").to_table()
    assert table.num_rows == 10
    assert set(table["ranker"].to_pylist()) == {"shop"}
    days = [f"{one.as_py():%Y-%m-%d}" for one in table["settled_at"]]
    assert table["day"].to_pylist() == days == [one.day for one in found for _ in range(one.end - one.first)]


def test_clocks_that_differ_do_not_tear_a_day_apart() -> None:
    midnight = np.array([-20.0, 5.0, -10.0, 8.0, -5.0, 20.0]) + 86_400
    assert exporting.days(midnight, None).tolist() == [0, 1, 1, 1, 1, 1]
    assert exporting.days(midnight[:1], 1).tolist() == [1]  # of the chunk before
    assert exporting.days(midnight[:1] - 7200, 1).tolist() == [0]  # hours back is no difference of clocks


def test_who_asked_to_be_forgotten_is_not_exported(shop: Store, folder: Path) -> None:
    """Though learning may still need the list, and a snapshot must cover it before it is deleted."""
    settle(shop, range(9))
    retention.erase_user(shop.writer, "user-0")  # of lists 0 and … every twelfth
    exported(shop, folder)
    assert [int(seq) for chunk in chunks(folder) for seq in chunk.seq] == list(range(1, 9))
    assert [(one.first, one.end) for one in parquet.files_of(folder, "shop")] == [(0, 9)]


def test_large_lists_come_in_small_portions(shop: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A portion is bounded in bytes, a file in rows; the files are the same log."""
    monkeypatch.setattr(columns, "PORTION_BYTES", 10_000)
    monkeypatch.setattr(exporting, "FILE_ROWS", 60)
    settle(shop, range(400))
    exported(shop, folder)
    found = parquet.files_of(folder, "shop")
    assert len(found) > 2
    assert [one.end for one in found[:-1]] == [one.first for one in found[1:]]
    groups = [pq.ParquetFile(one.path).metadata for one in found]
    assert max(group.row_group(i).num_rows for group in groups for i in range(group.num_row_groups)) <= 256
    assert bodies(folder) == learned_bodies(shop)


SCRIPT = """
import sys
from pathlib import Path
from rankloop.service.maintenance.archive import columns, exporting
from rankloop.service.storage import open_database
exporting.FILE_ROWS = columns.MOST = 20
print("begun", flush=True)
exporting.export_log(open_database(sys.argv[1]), Path(sys.argv[2]), ["shop"])
"""


@pytest.mark.slow
def test_an_export_killed_anywhere_leaves_whole_files_and_goes_on(tmp_path: Path, folder: Path) -> None:
    """kill -9 again and again while it writes: every file that is seen is whole, and in the end every list is there
    once. What a killed one left under hidden names is gone."""
    shop = Store(str(tmp_path / "store.db"))
    shop.now = NOON
    shop.ranker(learner="pairrank")
    settle(shop, range(300))
    chance, kills = random.Random(0), 0
    for _ in range(12):
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), shop.url, str(folder)],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(chance.random() * 0.12)
        os.kill(child.pid, signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
        child.stdout.close()
        seen = [int(seq) for chunk in chunks(folder) for seq in chunk.seq]
        assert seen == sorted(set(seen))
        if len(seen) == 300 or kills == 3:
            break
    assert kills >= 1
    exported(shop, folder)
    assert bodies(folder) == learned_bodies(shop)
    assert not list((folder / "ranker=shop").glob(".*"))
    shop.close()


def test_two_exports_do_not_write_at_once(shop: Store, folder: Path) -> None:
    settle(shop, range(3))
    with parquet.lock(folder) as mine:
        assert mine
        with pytest.raises(FolderInUse):
            exported(shop, folder)
    assert exported(shop, folder).rows == 3


def test_another_ranker_of_the_name_is_refused(shop: Store, folder: Path) -> None:
    """Its outcomes are numbered from 0 again: both in one folder would be one log of two rankers."""
    settle(shop, range(3))
    exported(shop, folder)
    shop.delete()
    shop.now += 10
    shop.ranker(learner="pairrank")
    settle(shop, range(2))
    with pytest.raises(RankloopError, match="'shop'"):
        exported(shop, folder)
    assert len(bodies(folder)) == 3


def test_states_go_along_once(shop: Store, folder: Path) -> None:
    """Where folds began, versions and the last snapshot; versions that the store has dropped stay."""
    from rankloop.service.storage import snapshots

    settle(shop, range(4))
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 2, b"two", shop.now)
    shop.do(snapshots.keep_version, "shop", "", shop.now)
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 3, b"three", shop.now)
    exported(shop, folder)
    shop.do(lambda c: c.run("DELETE FROM versions"))
    shop.do(snapshots.save_snapshot, "shop", shop.row().generation, 4, b"four", shop.now)
    exported(shop, folder)
    found = exporting.load_manifest(folder, "shop")
    assert found is not None
    assert (found.outcomes, found.row) == (4, shop.row())
    kept = {(one.kind, one.seq): exporting.read_state(folder, "shop", one) for one in found.states}
    assert kept == {("origin", 0): b"fresh", ("version", 2): b"two", ("snapshot", 4): b"four"}
    assert len(list((folder / "ranker=shop" / "_states").iterdir())) == 3


def test_a_manifest_names_only_files_in_the_folder_of_the_states(shop: Store, folder: Path, tmp_path: Path) -> None:
    settle(shop, range(3))
    exported(shop, folder)
    own = folder / "ranker=shop"
    outside = tmp_path / "secret"
    outside.write_bytes(b"secret")
    (own / "_states" / "linked").symlink_to(outside)
    (own / "_states" / "sub").mkdir()
    (own / "_states" / "sub" / "file").write_bytes(b"secret")
    for name in (str(outside), "../_manifest.json", "sub/file", "..", ".", "", "linked"):
        with pytest.raises(DataError, match="is not the name of a file in"):
            exporting.read_state(folder, "shop", exporting.Kept("version", name, 1, 1))


def test_files_of_others_and_of_releases_to_come_are_refused(shop: Store, folder: Path) -> None:
    settle(shop, range(3))
    exported(shop, folder)
    (one,) = parquet.files_of(folder, "shop")
    later = parquet.SCHEMA.with_metadata({parquet.KEY: str(parquet.VERSION + 1).encode()})
    for other, kind, text in (
        (pa.table({"x": [1]}), DataError, "no file of `rankloop export-log`"),
        (later.empty_table(), DataError, f"schema {parquet.VERSION + 1}, but this release reads up to"),
    ):
        pq.write_table(other, one.path)
        with pytest.raises(kind, match=re.escape(text)):
            parquet.opened(one)
    one.path.write_bytes(one.path.read_bytes()[:-40])
    with pytest.raises(CodecError):
        parquet.opened(one)
    one.path.rename(one.path.with_name("0000000000000000-0000000000000002.parquet"))
    pq.write_table(later.empty_table(), one.path.with_name("0000000000000001-0000000000000003.parquet"))
    with pytest.raises(RankloopError):
        parquet.files_of(folder, "shop")


def test_a_damaged_list_is_named(shop: Store, folder: Path) -> None:
    settle(shop, range(3))
    shop.do(lambda c: c.run("UPDATE impressions SET body = ? WHERE seq = 1", b"RANKLOOP" + bytes(60)))
    with pytest.raises(CodecError):
        exported(shop, folder)
    assert not parquet.files_of(folder, "shop")
    assert not list((folder / "ranker=shop").glob(".*"))


def test_the_schema_is_the_documented_one() -> None:
    """Every column with its type, in this order; a change of the schema is a new version and a line in the docs."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| (.+?) \|$", DOCS.read_text().split("log schema -->")[1], re.M)
    assert f"This is schema {parquet.VERSION}." in DOCS.read_text()
    told = [(name, kind) for name, kind, _ in rows]
    assert told == [(one.name, f"{one.type}{', may be null' * one.empty}") for one in parquet.COLUMNS]
    assert [text for *_, text in rows] == [one.text for one in parquet.COLUMNS]


def test_the_command(shop: Store, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settle(shop, range(7))

    def run(*more: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as stop:
            main(["export-log", "--store", shop.url, "--out", str(folder), *more])
        told = capsys.readouterr()
        return stop.value.code, told.out + told.err

    assert run()[0] == 0
    assert '"rows": 0' in run("--json")[1]
    assert len(bodies(folder)) == 7
    assert "shoop" in run("--ranker", "shoop")[1]
