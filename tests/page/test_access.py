"""For everyone: narrow and wide, dark and light, with a keyboard, with a screen reader."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.shown import Looker, Served, at, fresh
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]


@pytest.mark.parametrize("width", [1440, 820, 360])
def test_nothing_is_wider_than_the_window(service: Served, look: Look, width: int) -> None:
    looker = look(at(service, "shop"), width=width)
    looker.page.locator("li.shown").first.wait_for()
    looker.button("Keep a version now").wait_for()
    assert looker.page.evaluate("document.documentElement.scrollWidth") == width
    for button in ("Pause learning", "Keep a version now"):
        box = looker.button(button).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(service: Served, look: Look, scheme: str) -> None:
    """WCAG AA: 4.5 to 1, for every text on the page, against what is behind it."""
    looker = look(at(service, "shop"), color_scheme=scheme)
    looker.page.locator("li.shown").first.wait_for()
    looker.button("Keep a version now").wait_for()
    weak = looker.page.evaluate(CONTRAST)
    assert not weak
    assert looker.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(245, 246, 248)" if scheme == "light" else "rgb(14, 18, 23)"
    )


CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


def test_the_reader_can_choose_light_or_dark_and_it_stays(service: Served, look: Look) -> None:
    looker = look(at(service), color_scheme="light")
    dark = "getComputedStyle(document.documentElement).colorScheme"
    assert looker.page.evaluate(dark) == "light"
    looker.button("Use dark colors").click()
    assert looker.page.evaluate(dark) == "dark"
    looker.page.reload()
    assert looker.page.evaluate(dark) == "dark"
    looker.button("Use light colors").wait_for()


def test_everything_that_can_be_used_has_a_name_and_a_place_in_order(service: Served, look: Look) -> None:
    looker = look(at(service, "shop"))
    looker.page.locator("li.shown").first.wait_for()
    looker.button("Keep a version now").wait_for()
    session = looker.context.new_cdp_session(looker.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    focusable = [
        node
        for node in nodes
        if any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", ()))
        and node["role"]["value"] != "RootWebArea"
    ]
    assert len(focusable) > 20
    unnamed = [
        node["role"]["value"]
        for node in focusable
        if not node.get("name", {}).get("value") and node["role"]["value"] != "main"
    ]
    assert not unnamed
    roles = {node["role"]["value"] for node in nodes}
    assert {"banner", "navigation", "main", "contentinfo", "heading", "table", "region"} <= roles
    levels = [
        int(level)
        for level in looker.page.evaluate(
            "[...document.querySelectorAll('main :is(h1,h2,h3)')].map((h) => h.tagName[1])"
        )
    ]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_all_can_be_done_with_the_keyboard(service: Served, look: Look) -> None:
    name = fresh(service, "keys", 2)
    looker = look(at(service, name))
    looker.button("Roll back to version 2").wait_for()
    press = looker.page.keyboard.press
    press("Tab")
    assert looker.page.evaluate("document.activeElement.textContent") == "Skip to the ranker"
    press("Enter")
    assert looker.page.evaluate("document.activeElement.id") == "main"
    press("Tab")
    assert looker.page.evaluate("document.activeElement.name") == "exposure"
    press("ArrowLeft")  # from full to bounded
    looker.page.get_by_role("dialog").wait_for()
    press("Escape")
    looker.page.get_by_role("dialog").wait_for(state="hidden")
    assert service.status(name)["spec"]["exposure"] == "full"
    wait_for(lambda: looker.page.get_by_role("radio", name="full").is_checked(), "the old choice")
    looker.button("Roll back to version 2").focus()
    press("Enter")
    looker.page.get_by_role("dialog").wait_for()
    press("Tab")
    press("Tab")
    looker.page.keyboard.press("Escape")
    looker.page.get_by_role("dialog").wait_for(state="hidden")
    looker.page.evaluate("document.querySelector('.versions table').dataset.old = 'yes'")
    anew = "document.querySelector('.versions table').dataset.old === undefined"
    wait_for(lambda: looker.page.evaluate(anew), "the table to be drawn again")
    assert looker.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Roll back to version 2"
