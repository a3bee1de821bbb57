"""The search program as it is started and stopped, and the simulated people who search in it."""

from __future__ import annotations

import re
import signal
import sysconfig
import threading
from pathlib import Path

import pytest
from examples.search.__main__ import run
from examples.search.simulation import ASKED, HELD_OUT, People

from rankloop.core.errors import InvalidInput, InvalidParameter
from tests.examples.library import library, searching, started
from tests.waiting import PATIENCE, wait_for

STDLIB = Path(sysconfig.get_path("stdlib"))
LARGE = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml")


@pytest.mark.slow
def test_it_reads_serves_stops_at_ctrl_c_and_keeps_its_index(tmp_path: Path) -> None:
    path, cache, log = str(library(tmp_path / "lib")), str(tmp_path / "cache"), tmp_path / "log"
    with started("search", log, "--path", path, RANKLOOP_CACHE=cache) as process:
        wait_for(lambda: "read 5 of 5 files" in log.read_text(), "the source to be read")
        assert re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, log.read_text()
    (kept,) = Path(cache).glob("search-*")
    assert {file.name for file in kept.glob("*.db")} == {"index.db", "clicks.db"}
    for options, read in (((), False), (("--reindex",), True)):
        with started("search", log, "--path", path, "--minutes", "0.02", *options, RANKLOOP_CACHE=cache) as process:
            assert process.wait(PATIENCE) == 0, log.read_text()
        assert ("read 5 of 5 files" in log.read_text()) == read


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="no-such-folder is not a folder"):
        run(tmp_path, [Path("no-such-folder")], port=0, stop=threading.Event(), opened=lambda *_: None)


def test_people_need_something_to_search(tmp_path: Path) -> None:
    with (
        searching(tmp_path, [library(tmp_path / "lib")]) as search,
        pytest.raises(InvalidInput, match="0 queries of 260"),
    ):
        People(search, 0)


@pytest.mark.slow
def test_people_teach_it_what_the_engine_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in LARGE:
        (tmp_path / "lib" / name).symlink_to(STDLIB / name)
    with searching(tmp_path, [(tmp_path / "lib" / name) for name in LARGE]) as search:
        people = People(search, 0)
        assert (len(people.asked), len(people.held_out)) == (ASKED, HELD_OUT)
        assert not set(people.asked) & set(people.held_out)
        assert People(search, 0).asked == people.asked != People(search, 1).asked
        engine, learned = people.quality()
        assert learned == pytest.approx(engine, abs=0.03)  # it starts as the engine's order, except for exploration
        for _ in range(150):
            assert 0 <= people.visit() <= 1
        wait_for(lambda: search.client.ranker("search").unlearned_impressions == 0, "everything to be learned")
        engine, learned = people.quality()
        assert learned > engine + 0.03
        assert "engine 0." in people.summary()
