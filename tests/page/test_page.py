"""The status page: what is seen is what the API says."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.page.shown import Looker, Served, at, get, traffic
from tests.service.running import FEATURES
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]


def test_rankers_are_listed_with_their_state_and_can_be_switched(service: Served, look: Look) -> None:
    looker = look(at(service))
    nav = looker.page.get_by_role("navigation", name="Rankers")
    nav.get_by_role("link", name=re.compile("^shop")).wait_for()
    assert "learning · pairrank · full" in nav.get_by_role("link", name=re.compile("^shop")).inner_text()
    looker.open_ranker("shop")
    assert looker.page.title() == "shop · rankloop"
    looker.page.get_by_role("region", name="Details").get_by_text("60 impressions").wait_for()
    looker.open_ranker("old")
    assert looker.page.url.endswith("#/old")
    looker.sees("This learner has no feature weights.")
    assert nav.locator("[aria-current=page]").inner_text().startswith("old")
    looker.page.go_back()
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()


def test_a_chart_can_be_read_with_the_keyboard_and_with_the_pointer(service: Served, look: Look) -> None:
    looker = look(at(service, "shop"))
    card = looker.page.locator("section.card", has=looker.page.get_by_role("heading", name="Reciprocal rank of clicks"))
    card.locator("svg .strong, svg .dot").first.wait_for(state="attached")
    card.locator(".plot").focus()
    looker.page.keyboard.press("ArrowLeft")
    card.locator(".tip").wait_for()
    assert re.search(r"\d\d:\d\d:\d\d.*shop", card.locator("[aria-live]").text_content())
    looker.page.keyboard.press("Escape")
    card.locator(".tip").wait_for(state="hidden")
    card.locator(".plot").scroll_into_view_if_needed()
    place = card.locator("svg path.strong, svg circle.strong").first.bounding_box()  # of the ranker's first point
    looker.page.mouse.move(place["x"], place["y"])
    card.locator(".tip").wait_for()
    assert "shop" in card.locator(".tip").inner_text()


def test_clicks_by_position_and_weights_are_those_of_the_api(service: Served, look: Look) -> None:
    looker = look(at(service, "shop"))
    table = looker.page.get_by_role("region", name="Clicks by position").get_by_role("table")
    table.wait_for()
    rates = get(service, "/v1/rankers/shop/series?seconds=900")["positions"]
    shown = [
        row.locator("th").inner_text() + " " + row.locator("td.number").inner_text()
        for row in table.locator("tbody tr").all()
    ]
    assert shown == [f"{rate['position']} {percent(rate['clicked'] / rate['shown'])}" for rate in rates]
    weights = get(service, "/v1/rankers/shop/weights")["weights"]
    rows = looker.page.get_by_role("region", name="Weights").locator("tbody tr")
    rows.first.wait_for()
    assert [row.locator("th").inner_text() for row in rows.all()] == [weight["feature"] for weight in weights]
    assert weights[0]["feature"] == "f0"
    first = rows.first.locator("td.number").inner_text()
    assert first == f"{weights[0]['weight']:.2f} ± {weights[0]['confidence']:.2f}"
    faint = [row.get_attribute("class") == "soft" for row in rows.all()]
    assert faint == [abs(weight["weight"]) <= weight["confidence"] for weight in weights]


def test_a_line_says_what_the_catalog_has_and_what_requests_wanted_in_vain(service: Served, look: Look) -> None:
    price = {"name": "price", "kind": "field", "of": "item.price", "default": 0}
    service.ask("PUT", "/v1/catalogs/wares/items", [])
    service.put_ranker(
        "by-ids", learner="pairrank", features=[price], catalog="wares", parameters={}, window_seconds=60
    )
    looker = look(at(service, "by-ids"))
    looker.sees("wares: nothing is uploaded yet")
    service.ask("PUT", "/v1/catalogs/wares/items", [{"id": f"i{i}", "price": i} for i in range(5)])
    assert service.ask("POST", "/v1/rankers/by-ids/rank", {"ids": ["i1", "nobody"]}).status == 200
    looker.sees(re.compile("wares: 5 items, .* in memory; . ids? in requests since the start not in it"))


def test_a_line_says_how_far_a_ranker_has_moved_and_what_it_remembers(service: Served, look: Look) -> None:
    service.put_ranker(
        "memory", learner="hybrid", parameters={"init": [5.0] + [0.0] * (FEATURES - 1)}, window_seconds=60, k=6
    )
    service.put_ranker("follower", learner="adaptive", parameters={}, window_seconds=60, k=6)
    for name in ("memory", "follower"):
        traffic(service, name, 5)
    found = get(service, "/v1/rankers/memory/movement")
    looker = look(at(service, "memory"))

    def detail(name: str) -> str:
        entry = looker.page.locator(".details div", has=looker.page.get_by_text(name, exact=True))
        text: str = entry.locator("dd").inner_text()
        return text.replace("\u00a0", " ")

    moved = detail("Moved from the baseline").split("; ")
    assert moved[0] == f"{found['displacement']:.1f} positions per item"
    assert abs(float(moved[1].split()[0]) - 100 * found["agreement"]) <= 0.5
    assert detail("Queries remembered").startswith(f"{found['memory']['queries']} quer")
    looker.open_ranker("follower")
    assert detail("Drift") == "none found"
    looker.open_ranker("old")
    looker.sees("This learner has no feature weights.")
    assert looker.page.get_by_text("Moved from the baseline").count() == 0  # of a ranker that does not learn


def percent(value: float) -> str:
    text = f"{100 * value:.1f}"
    return text.removesuffix(".0") + "%"


def test_the_latest_lists_say_what_was_tried_and_clicked(service: Served, look: Look) -> None:
    lists = get(service, "/v1/rankers/shop/impressions?limit=6")
    looker = look(at(service, "shop"))
    shown = looker.page.locator("li.shown")
    shown.first.wait_for()
    assert shown.count() == 6
    for item, one in zip(shown.all(), lists, strict=True):
        names = item.locator(".chip .name").all_inner_texts()
        assert names == [each["id"] for each in one["items"]]
        clicked = item.locator(".chip.clicked .name").all_inner_texts()
        assert clicked == [each["id"] for each in one["items"] if each["value"]]
        why = item.locator(".why").inner_text()
        swaps = [doubt for doubt in one["doubts"] if doubt["swapped"]]
        if swaps:
            upper, lower = (one["items"][swaps[0][end] - 1]["id"] for end in ("upper", "lower"))
            assert why.startswith(f"Explored: {upper} above {lower}")
        else:
            assert why.startswith("In order of the estimate")
        if one["uncertain"]:
            assert f"Uncertain: {one['uncertain']} of {one['pairs']} pairs" in why
    moved = next(each for each in lists[0]["items"] if each["base"] != each["position"])
    chip = shown.first.locator(".chip").nth(moved["position"] - 1)
    assert (
        f"{abs(moved['base'] - moved['position'])} {'up' if moved['base'] > moved['position'] else 'down'}"
        in chip.inner_text()
    )


def test_what_users_write_is_text_and_nothing_else(service: Served, look: Look) -> None:
    service.put_ranker("hostile", window_seconds=60)
    evil = "<img src=x onerror=alert(1)>"
    body = {"query": evil, "candidates": [{"id": f"{evil}{i}", "features": [0.0] * 8} for i in range(3)]}
    assert service.ask("POST", "/v1/rankers/hostile/rank", body).status == 200
    service.ask("POST", "/v1/rankers/hostile/versions", {"note": evil})
    looker = look(at(service, "hostile"))
    looker.page.locator("li.shown").first.wait_for()
    assert looker.page.locator("li.shown b").first.inner_text() == evil
    assert looker.page.locator("img").count() == 0
    looker.sees("Versions")


ASKED = {  # path -> seconds between two requests of a page that shows the ranker `shop`
    "/v1/rankers": 3.0,
    "/v1/rankers/shop/series?seconds=900": 3.0,
    "/v1/rankers/shop/impressions?limit=6": 3.0,
    "/v1/rankers/shop/weights": 10.0,
    "/v1/rankers/shop/movement": 10.0,
    "/v1/rankers/shop/versions": 10.0,
    "/v1/rankers/shop/experiments": 10.0,
    "/v1/service": 10.0,
    "/v1/keys/self": 10.0,
}


def test_a_page_polls_at_its_intervals_and_not_at_all_when_hidden(service: Served, look: Look) -> None:
    looker = look(at(service, "shop"))
    looker.button("Keep a version now").wait_for()
    begin, before = time.monotonic(), len(looker.asked)

    def asked() -> Counter[str]:
        return Counter(line.partition(f":{service.port}")[2] for line in looker.asked[before:])

    looker.wait_for(lambda: set(ASKED) <= set(asked()), "every request to be repeated")
    seconds, found = time.monotonic() - begin, asked()
    others = {path for path in found if path.endswith("/series?seconds=900")}  # of rankers to compare with
    assert set(found) - others <= set(ASKED)
    assert len(others) <= 6
    for path, apart in ASKED.items():
        assert found[path] <= seconds / apart + 2, path
    looker.page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
    looker.page.wait_for_timeout(1000)
    before = len(looker.asked)
    looker.page.wait_for_timeout(4500)
    assert len(looker.asked) == before


def test_one_sentence_says_what_each_ranker_is_doing(service: Served, look: Callable[..., Looker]) -> None:
    careful = {"learner": "bubblerank", "parameters": {"horizon": 2}, "features": []}
    request = {"query": "hats", "ids": ["a", "b", "c"]}
    for name, changes in (("slow", careful), ("new", {})):
        service.ask("PUT", f"/v1/rankers/{name}", {"exposure": "full", "features": ["f"], **changes})
        wait_for(lambda name=name: service.status(name)["ready"], f"the kernels of {name}")  # type: ignore[misc]
    answer = service.ask("POST", "/v1/rankers/slow/rank", request).json
    event = {"event_id": "1", "impression_id": answer["impression_id"], "clicks": ["a"], "final": True}
    service.ask("POST", "/v1/feedback", event)
    wait_for(lambda: service.status("slow")["learned_impressions"] == 1, "the click to be learned")

    looker = look(at(service, "slow"))
    nav = looker.page.get_by_role("navigation", name="Rankers")
    said = {
        "old": "Shows the baseline ranking. It does not learn.",
        "new": "Shows the baseline ranking and waits for the first feedback.",
        "slow": "Shows the learned ranking. Exploration: no data yet.",  # of one impression
        "shop": re.compile(r"^Shows the learned ranking\."),
    }
    for name, words in said.items():
        line = nav.get_by_role("listitem").filter(has=looker.page.get_by_role("link", name=re.compile(f"^{name}")))
        line.get_by_text(words).wait_for()
    looker.page.locator("main > .doing", has_text="no data yet").wait_for()
    card = looker.page.locator("section.card", has=looker.page.get_by_role("heading", name="Explored"))
    assert card.locator("output").inner_text() == "no data yet"
    looker.page.get_by_role("region", name="Details").get_by_text("at least 12 clicks that agree").wait_for()
    for name in ("slow", "new"):
        service.ask("DELETE", f"/v1/rankers/{name}")


def test_header_and_cards_show_the_same_numbers_of_the_same_period(service: Served, look: Look) -> None:
    traffic(service, "shop", 3, seed=5)
    looker = look(at(service, "shop"))
    cards = [
        looker.page.locator("section.card", has=looker.page.get_by_role("heading", name=title))
        for title in ("Explored", "Uncertain pairs")
    ]

    def equal(name: str, seconds: int) -> bool:
        words = looker.page.locator("main > .doing").inner_text()
        said = re.search(rf"Last {name}: (\S+) of positions explored, (\S+) of pairs uncertain", words)
        total = get(service, f"/v1/rankers/shop/series?seconds={seconds}")["total"]
        known = (percent(total["explored"]), percent(total["uncertain"]))
        shown = tuple(card.locator("output").inner_text() for card in cards)
        return said is not None and said.groups() == known == shown

    for name, seconds in (("15 minutes", 900), ("hour", 3600)):
        looker.page.get_by_role("combobox", name="Time shown").select_option(label=name)
        looker.wait_for(lambda name=name, seconds=seconds: equal(name, seconds), "the same numbers")  # type: ignore[misc]
        assert [card.locator("small").inner_text() for card in cards] == [f"last {name}"] * 2
