"""The application: it begins as the engine, learns from clicks, says why, and is never without a list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples.search.app import SHOWN, Search, application
from litestar.testing import TestClient

from rankloop.client import Client
from tests.examples.library import library, searching
from tests.service.running import free_port
from tests.waiting import wait_for

SERVICE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    folder = tmp_path_factory.mktemp("search")
    with searching(folder, [library(folder / "lib")]) as made:
        yield made


def learned(search: Search) -> int:
    return int(search.state()["learned"])


def unmixed(search: Search, query: str) -> list[str]:
    while (found := search.find(query)).get("mixed"):
        pass
    return [item["name"] for item in found["learned"]]


def test_it_starts_as_the_engine_and_clicked_items_move_up(search: Search) -> None:
    first = search.find("Sort-records!")
    assert first["query"] == "sort records"
    assert [item["was"] for item in first["engine"]] == list(range(1, SHOWN + 1))
    wanted = first["engine"][6]["name"]
    before = learned(search)
    for n in range(12):
        found = search.find("sort records")
        there = [item["name"] for item in found["learned"] if item["name"] == wanted]
        search.client.click(found["impression"], there)
        wait_for(lambda n=n: learned(search) == before + n + 1, "the list to be learned")  # type: ignore[misc]
    assert unmixed(search, "sort records").index(wanted) < 3
    lifted = next(item for item in search.find("sort records")["learned"] if item["name"] == wanted)
    assert lifted["was"] == 7
    assert lifted["why"]["this query"] > 0
    assert {"name match", "imported by", "kind=function", "documentation", "baseline"} <= lifted["why"].keys()


def test_the_catalog_knows_what_can_be_found(search: Search) -> None:
    info = search.catalog.info()
    assert info.items.count == 35
    assert search.catalog.get("sorting.sort_list")["words"] == 3
    assert info.rankers == ["search"]


def test_a_second_start_continues_the_experiment(search: Search) -> None:
    trial = search.state()["trial"]
    assert (trial.against, trial.share, trial.state) == ("base", 0.2, "running")
    Search(search.index, search.client, "search")  # a second start goes on with it
    assert search.state()["trial"].number == trial.number


def test_without_the_service_the_engines_order_is_shown(search: Search) -> None:
    with Client(f"http://127.0.0.1:{free_port()}", retries=0) as away:
        alone = Search.__new__(Search)
        alone.index, alone.client, alone.ranker = search.index, away, "search"
        found = alone.find("copy image")
    assert [item["name"] for item in found["learned"]] == [item["name"] for item in found["engine"]]
    assert found["engine"] == search.find("copy image")["engine"]
    assert (found["token"], found["impression"], found["instead"]) == (None, None, "unreachable")


def test_a_very_long_query_gets_a_ranking(search: Search) -> None:
    found = search.find("sort records " * 60)
    assert found["learned"]
    assert found["impression"]


def test_a_query_without_candidates_makes_no_impression(search: Search) -> None:
    found = search.find("zebra")
    assert (found["engine"], found["learned"], found["impression"], found["instead"]) == ([], [], None, None)


def test_the_page_and_what_it_asks_for(search: Search) -> None:
    with TestClient(application(search, ["page.local:1"], SERVICE), base_url="http://page.local:1") as page:
        home = page.get("/")
        assert f'src="{SERVICE}/rankloop.js"' in home.text
        assert f"script-src 'self' {SERVICE}" in home.headers["content-security-policy"]
        for file in ("search.css", "search.js"):
            assert page.get(f"/page/{file}").status_code == 200
        assert len(page.get("/search", params={"q": "count list"}).json()["learned"]) == SHOWN
        assert page.get("/state").json()["trial"]["verdict"] == "undecided"
        entry = page.get("/entry", params={"name": "sorting.sort_table"}).json()
        assert entry["text"] == "Sort one table."
        assert entry["source"].startswith("def sort_table(it):")
        assert entry["line"] == 6
        missing = page.get("/entry", params={"name": "../secret"})
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            "there is no '../secret' in the index; search again, it may have been removed",
        )
        assert page.get("/page/../app.py").status_code == 404


def test_a_page_elsewhere_cannot_read_it_under_another_name(search: Search) -> None:
    """As DNS rebinding would have it: the address is ours, the name is not."""
    with TestClient(application(search, ["page.local:1"], SERVICE), base_url="http://evil.example:1") as page:
        assert page.get("/search", params={"q": "count"}).status_code == 400
