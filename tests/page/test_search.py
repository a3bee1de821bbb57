"""The page of the search example in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.search.__main__ import run

from rankloop.client import Client
from tests.examples.library import library
from tests.page.shown import Looker
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow


def read(client: Client) -> int:
    """How many entries the service has been told of; there is no catalog before the first."""
    return sum(one.items.count for one in client.catalogs() if one.name == "python")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its page and its service, as the example runs them, on a thread of this process."""
    folder = tmp_path_factory.mktemp("site")
    known: list[str] = []
    stop = threading.Event()
    thread = threading.Thread(
        target=run,
        args=(folder / "kept", [library(folder / "lib")]),
        kwargs={"port": 0, "stop": stop, "opened": lambda *urls: known.extend(urls)},
    )
    thread.start()
    try:
        wait_for(lambda: len(known) == 2, "the page to answer")
        with Client(known[1], timeout=PATIENCE) as client:
            client.wait_compiled("search", PATIENCE)
            wait_for(lambda: read(client) == 35, "all source to be read")
        yield known[0], known[1]
    finally:
        stop.set()
        thread.join()


def names(looker: Looker, side: str = "learned") -> list[str]:
    found: list[str] = looker.page.locator(f"#{side} li").evaluate_all("lines => lines.map(line => line.dataset.name)")
    return found


def line(looker: Looker, name: str) -> Any:
    return looker.page.locator(f'#learned li[data-name="{name}"]')


def search(looker: Looker, query: str) -> None:
    looker.page.get_by_role("searchbox").fill(query)
    with looker.page.expect_response(lambda answer: "/search?" in answer.url):
        looker.page.keyboard.press("Enter")
    looker.page.locator("#learned li").first.wait_for()


def opened(looker: Looker, name: str) -> None:
    """Open an entry, close it, and wait until the list was asked for anew: what was clicked is learned by then."""
    line(looker, name).get_by_role("link").click()
    looker.page.get_by_role("dialog").get_by_text("Source").wait_for()
    with looker.page.expect_response(lambda answer: "/search?" in answer.url):
        looker.page.keyboard.press("Escape")
    wait_for(lambda: looker.page.locator("#said").inner_text() != "", "what has moved to be told")


def test_search_click_and_see_it_move(site: tuple[str, str], look: Callable[..., Looker]) -> None:
    looker = look(site[0])
    search(looker, "write image")
    wanted = names(looker, "engine")[5]
    start = names(looker).index(wanted)
    for _ in range(10):
        if wanted not in names(looker):  # tried something else in its place; the next list may have it
            search(looker, "write image")
            continue
        if names(looker).index(wanted) == 0:
            break
        opened(looker, wanted)
    assert names(looker).index(wanted) < start
    assert names(looker, "engine")[5] == wanted  # the engine's own order stays as it is
    assert line(looker, wanted).locator(".moved").get_attribute("aria-label") == "up from position 6 of the engine"
    assert "clicks on this query" in line(looker, wanted).locator(".why").inner_text()
    with Client(site[1]) as client:
        assert client.ranker("search").learned_impressions >= 1
        clicked = [item.id for shown in client.impressions("search", 20) for item in shown.items if item.value]
        assert wanted in clicked


def test_all_of_it_can_be_done_with_the_keyboard(site: tuple[str, str], look: Callable[..., Looker]) -> None:
    looker = look(f"{site[0]}/?q=count+table")
    looker.page.locator("#learned li").first.wait_for()
    assert looker.page.get_by_role("searchbox").input_value() == "count table"
    looker.page.keyboard.press("ArrowDown")
    looker.page.keyboard.press("ArrowDown")
    second = names(looker)[1]
    assert looker.page.evaluate("document.activeElement.closest('li').dataset.name") == second
    looker.page.keyboard.press("Enter")
    looker.page.get_by_role("heading", name=second, exact=True).wait_for()
    looker.page.keyboard.press("Escape")
    looker.page.keyboard.press("/")
    assert looker.page.evaluate("document.activeElement.id") == "box"
    looker.page.locator("#proof", has_text="interleaved").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_fits_a_phone(site: tuple[str, str], look: Callable[..., Looker], scheme: str) -> None:
    looker = look(f"{site[0]}/?q=sort", width=360, color_scheme=scheme)
    looker.page.locator("#learned li").first.wait_for()
    looker.page.locator("#proof", has_text=" ").wait_for()
    assert looker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    pale = looker.page.evaluate((Path(__file__).parent / "contrast.js").read_text("utf-8"))
    assert pale == []
    long = "package." + "x" * 90  # names without a place to break them

    def lengthened(route: Any) -> None:
        found = route.fetch().json()
        for side in ("learned", "engine"):
            found[side] = [{**item, "name": f"{long}.{item['name']}"} for item in found[side]]
        found["learned"] = found["learned"][::-1] if looker.asked.count(search_url) % 2 else found["learned"]
        route.fulfill(json=found)

    search_url = f"GET {site[0]}/search?q=sort"
    looker.page.route("**/search?*", lengthened)
    for _ in range(2):
        search(looker, "sort")
    looker.page.locator("#learned .now").first.wait_for()
    assert looker.page.locator("#legend").is_visible()
    assert looker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    asked = {url.split()[1].split("/")[2] for url in looker.asked}
    assert asked <= {site[0].split("/")[2], site[1].split("/")[2]}  # nothing from elsewhere


def test_what_is_not_there_is_said(site: tuple[str, str], look: Callable[..., Looker]) -> None:
    looker = look(site[0])
    looker.page.get_by_role("searchbox").fill("<b>zebra</b>")
    looker.page.keyboard.press("Enter")
    looker.sees("Nothing found for “b zebra b”.")
    assert not looker.page.locator("#lists").is_visible()
