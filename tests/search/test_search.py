"""`rankloop search`, as it is started and ended; and the simulated people who search in it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.search.run import Site
from rankloop.search.simulation import ASKED, HELD_OUT, People
from tests.search.library import library, searching
from tests.waiting import PATIENCE, wait_for

STDLIB = Path(sysconfig.get_path("stdlib"))
LARGE = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml")


def started(cache: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from rankloop.cli import main; main()", "search", "--no-browser", "--port", "0"]
    cache.mkdir(exist_ok=True)
    with (cache / "log").open("ab") as log:
        return subprocess.Popen([*command, *options], stderr=log, env={**os.environ, "RANKLOOP_CACHE": str(cache)})


@contextmanager
def running(cache: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = started(cache, *options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(cache: Path) -> str:
    return (cache / "log").read_text()


@pytest.mark.slow
def test_it_reads_serves_ends_at_ctrl_c_and_finds_its_index_again(tmp_path: Path) -> None:
    path, cache = str(library(tmp_path / "lib")), tmp_path / "cache"
    with running(cache, "--path", path) as process:
        wait_for(lambda: "read 5 files" in said(cache), "the source to be read")
        assert re.search(r"http://127\.0\.0\.1:\d+", said(cache))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, said(cache)
    assert "ended; what was learned is kept" in said(cache)
    (kept,) = cache.glob("search-*")
    assert {file.name for file in kept.glob("*.db")} == {"index.db", "clicks.db"}
    (cache / "log").unlink()
    told: list[tuple[int, int]] = []
    Site(kept, [Path(path)], port=0, minutes=0.02, told=lambda *read: told.append(read)).run(lambda *_: None)
    assert told == []  # it ended by itself, and had nothing to read again
    with running(cache, "--path", path, "--minutes", "0.02", "--reindex") as process:
        assert process.wait(PATIENCE) == 0, said(cache)
    assert "read 5 files" in said(cache)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"minutes": 0.0}, "minutes is 0"),
        ({"visits": 0}, "visits is 0"),
        ({"rate": 51.0}, "rate is 51"),
        ({"roots": [Path("no-such-folder")]}, "no-such-folder is no folder"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"roots": [tmp_path], "port": 0, **settings}
    with pytest.raises(InvalidParameter, match=words):
        Site(tmp_path, **given)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    first = Site(tmp_path, [tmp_path], port=0)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(InvalidParameter, match=f"port {port} is taken"):
        Site(tmp_path, [tmp_path], port=port)
    first.end()
    second = Site(tmp_path, [tmp_path], port=port)
    second.end()


def test_visits_without_visitors_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["search", "--visits", "3"])
    assert "visits is 3, but nobody is simulated; add --simulate" in capsys.readouterr().err


def test_people_need_something_to_search(tmp_path: Path) -> None:
    with (
        searching(tmp_path, [library(tmp_path / "lib")]) as search,
        pytest.raises(InvalidInput, match="0 queries of 260"),
    ):
        People(search, 0)


@pytest.mark.slow
def test_people_teach_it_what_the_engine_does_not_know(tmp_path: Path) -> None:
    """Real source, of this machine's standard library: what they like shows on queries that they never typed."""
    for name in LARGE:
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / name).symlink_to(STDLIB / name)
    with searching(tmp_path, [(tmp_path / "lib" / name) for name in LARGE]) as search:
        people = People(search, 0)
        assert (len(people.asked), len(people.held_out)) == (ASKED, HELD_OUT)
        assert not set(people.asked) & set(people.held_out)
        again = People(search, 0)
        assert (again.asked, again._weights) == (people.asked, people._weights)
        assert People(search, 1).asked != people.asked
        engine, learned = people.quality()
        assert learned == pytest.approx(engine, abs=0.03)  # it begins as the engine, but for what it tries
        for _ in range(150):
            assert 0 <= people.visit() <= 1
        wait_for(lambda: search.client.ranker("search").unlearned_impressions == 0, "everything to be learned")
        engine, learned = people.quality()
        assert learned > engine + 0.03
        assert re.search(r"NDCG .* engine 0\.\d+, learned 0\.\d+; clicks say: (better|undecided)", people.summary())
