"""An exported log is of one past, may be the only copy of it, and one ranker's trouble is not another's."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.errors import CodecError, RankloopError
from rankloop.core.types import Impression, SparseRows
from rankloop.service.maintenance.archive import exporting, parquet
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.offline.exported_log import ExportedLog
from tests.service.archived import NOON, impression, learned_bodies, settle
from tests.service.stores import Store

WHAT = "not of this store's past"


@pytest.fixture
def shop(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "a.db"))
    made.now = NOON
    made.ranker(learner="pairrank")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def read(folder: Path) -> list[bytes]:
    past = ExportedLog(folder)
    end = past.look("shop", lambda view: view.head())
    return [codec.dump_impression(one) for chunk in past.chunks("shop", 0, end) for one in chunk.impressions()]


def restored(shop: Store, tmp_path: Path) -> Store:
    """The store as it was when it had six lists; ten are exported."""
    copy = tmp_path / "copy.db"
    settle(shop, range(6))
    shop.do(lambda c: c.run("SELECT 1"))
    shop.alone(lambda c: c.run("VACUUM INTO ?", str(copy)))
    settle(shop, range(6, 10))
    export_log(shop.database, tmp_path / "log", ["shop"])
    shop.close()
    back = Store(str(copy))
    back.now = NOON + 86_400.0
    return back


@pytest.mark.parametrize("later", [2, 4, 9], ids=["behind the files", "level with them", "ahead"])
def test_a_store_that_was_restored_from_a_copy_does_not_go_on_in_files_of_another_past(
    shop: Store, folder: Path, tmp_path: Path, later: int
) -> None:
    """Its numbers are in files already, with other lists: to pass them over would be to lose them at retention."""
    back = restored(shop, tmp_path)
    settle(back, range(20, 20 + later))
    with pytest.raises(RankloopError, match=WHAT):
        export_log(back.database, folder, ["shop"])
    export_log(back.database, folder, ["shop"], aside=True)  # what a service does, which must go on
    assert read(folder) == learned_bodies(back)
    (other,) = folder.glob("aside-*-ranker=shop")
    assert len(list(other.glob("day=*/*.parquet"))) == 1
    assert parquet.rankers_in(folder) == ["shop"]
    back.close()


def test_one_that_cannot_be_exported_keeps_no_other_from_it(shop: Store, folder: Path) -> None:
    shop.ranker("other", learner="pairrank")
    settle(shop, range(3))
    settle(shop, range(4), ranker="other")
    shop.do(
        lambda c: c.run("UPDATE impressions SET body = ? WHERE seq = 1 AND ranker = 'shop'", b"RANKLOOP" + bytes(60))
    )
    with pytest.raises(RankloopError):
        export_log(shop.database, folder, ["shop", "other"])
    assert sum(one.end - one.first for one in parquet.files_of(folder, "other")) == 4
    shop.close()


def test_a_ranker_that_was_made_again_goes_on_beside_its_old_files(shop: Store, folder: Path) -> None:
    settle(shop, range(3))
    export_log(shop.database, folder, ["shop"])
    shop.delete()
    shop.now += 10
    shop.ranker(learner="pairrank")
    settle(shop, range(30, 35))
    export_log(shop.database, folder, ["shop"], aside=True)
    assert read(folder) == learned_bodies(shop)
    assert len(list(folder.glob("aside-*"))) == 1
    shop.close()


def test_files_say_whose_they_are_before_there_are_any(
    shop: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(shop, range(3))
    monkeypatch.setattr("rankloop.service.maintenance.archive.exporting._files", lambda *_: iter([][1]))
    with pytest.raises(IndexError):
        export_log(shop.database, folder, ["shop"])
    found = exporting.load_manifest(folder, "shop")
    assert found is not None
    assert (found.created, found.outcomes) == (shop.row().created, 0)
    shop.close()


def test_a_flipped_bit_is_noticed(shop: Store, folder: Path) -> None:
    """Wherever it is: features are random numbers, which compression leaves as they are."""
    settle(shop, range(200))
    export_log(shop.database, folder, ["shop"])
    (one,) = parquet.files_of(folder, "shop")
    whole, before, rng = one.path.read_bytes(), read(folder), random.Random(1)
    silent = 0
    for _ in range(60):
        spoiled = bytearray(whole)
        spoiled[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        one.path.write_bytes(spoiled)
        try:
            silent += read(folder) != before
        except CodecError as error:
            assert str(one.path) in str(error)  # noqa: PT017
        except RankloopError:
            pass
    assert silent == 0
    shop.close()


def test_a_file_that_a_worker_does_not_see_is_not_to_be_deleted(shop: Store, folder: Path) -> None:
    settle(shop, range(3))
    export_log(shop.database, folder, ["shop"])
    (one,) = parquet.files_of(folder, "shop")
    shutil.move(one.path, folder / "elsewhere")
    with pytest.raises(CodecError):
        parquet.opened(one)
    shop.close()


@pytest.mark.parametrize("widths", [(9, 4000), (4000, 9)])
def test_sparse_lists_of_two_widths_beside_each_other(shop: Store, folder: Path, widths: tuple[int, int]) -> None:
    """A ranker that was reset to another width: as many numbers in each list, and so the same layout."""
    made = []
    for number, width in enumerate(widths):
        rows = SparseRows(np.array([0, 2]), np.array([1, width - 1]), np.array([0.5, number + 1.0]), width)
        one = impression(2)
        made.append(Impression(one.query, one.order[:1], one.items[:1], rows, {}))
    for one in made:
        settle(shop, [2], body=codec.dump_impression(one), shown=f'["{one.items[0]}"]'.encode())
    export_log(shop.database, folder, ["shop"])
    assert read(folder) == [codec.dump_impression(one) for one in made]
    shop.close()
