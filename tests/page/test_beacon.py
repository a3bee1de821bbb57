"""A page of a shop, in a real browser: it reports clicks with the token of its list, as docs/browser.md says."""

from __future__ import annotations

import json
import random
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.page.shown import Looker, Served
from tests.service.running import rank_request
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

KEY = "key-0123456789abcdef"
PAGE = (Path(__file__).parents[2] / "docs" / "browser.md").read_text("utf-8")
((SNIPPET,),) = [re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)]


def call(service: Served, method: str, path: str, body: Any = None) -> Any:
    """As the shop's backend, which has a key."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{service.port}{path}",
        None if body is None else json.dumps(body).encode(),
        {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def clicked(service: Served, impression: str) -> list[str]:
    (found,) = [
        one for one in call(service, "GET", "/v1/rankers/shop/impressions") if one["impression_id"] == impression
    ]
    return [item["id"] for item in found["items"] if item["value"]]


def test_a_click_that_leaves_the_page_is_reported(
    serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str
) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins=elsewhere)
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base"})
    request = {"candidates": [{"id": one["id"]} for one in rank_request(random.Random(1))["candidates"]]}
    first, second = (call(service, "POST", "/v1/rankers/shop/rank", {**request, "token": True}) for _ in range(2))
    item = first["items"][2]["id"]

    looker = look(elsewhere)
    url = f"http://127.0.0.1:{service.port}"
    looker.page.add_script_tag(content=SNIPPET.replace("https://rank.shop.example", url))
    looker.page.evaluate(
        """([token, item]) => {
          const link = document.createElement("a");
          link.href = "?gone"; link.textContent = "A hat"; link.onclick = () => reportClick(token, item);
          document.body.append(link);
        }""",
        [first["token"], item],
    )
    with looker.page.expect_navigation():
        looker.page.get_by_role("link", name="A hat").click()
    wait_for(lambda: clicked(service, first["impression_id"]) == [item], "the click to arrive")
    assert clicked(service, second["impression_id"]) == []

    # What the page says with `fetch` it may also read, and that is all it may do.
    looker.expected = ("401", "Failed to load resource", "CORS")
    said = looker.page.evaluate(
        """async ([url, token, item]) => {
          const body = JSON.stringify({token, event_id: "1", clicks: [item]});
          const answer = await fetch(`${url}/v1/beacon`, {method: "POST", keepalive: true, body});
          const list = await fetch(`${url}/v1/rankers`, {headers: {Authorization: `Bearer ${token}`}});
          const named = answer.headers.get("x-request-id") !== null;
          return [answer.status, (await answer.json()).counts, named, list.status];
        }""",
        [url, second["token"], item],
    )
    assert said == [200, {"accepted": 1}, True, 401]


def test_a_page_that_was_not_let_in_reports_nothing(
    serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str
) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins="https://shop.example")
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base"})
    answer = call(service, "POST", "/v1/rankers/shop/rank", {"candidates": [{"id": "a"}], "token": True})
    looker = look(elsewhere)
    looker.expected = ("",)
    body = json.dumps({"token": answer["token"], "event_id": "1", "clicks": ["a"], "final": True})
    send = "([url, body]) => fetch(url, {method: 'POST', mode: 'no-cors', body}).then(a => a.type, () => 'blocked')"
    looker.page.evaluate(send, [f"http://127.0.0.1:{service.port}/v1/beacon", body])
    assert clicked(service, answer["impression_id"]) == []


LIST = """(items) => {
  const list = document.createElement("ul");
  list.id = "results";
  list.innerHTML = items.map(id => `<li style="height: 300px"><a data-rankloop-id="${id}" href="?gone"
    style="display: block; height: 280px">${id}</a></li>`).join("");
  document.body.replaceChildren(list);
}"""


def told(service: Served, impression: str) -> Any:
    (found,) = [
        one for one in call(service, "GET", "/v1/rankers/shop/impressions") if one["impression_id"] == impression
    ]
    return found


def test_the_script_reports_views_and_clicks_with_a_token_and_nothing_else(
    serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str
) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins=elsewhere)
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base", "silence": "ignore"})
    request = {"candidates": [{"id": f"i{i}"} for i in range(8)], "token": True, "k": 8}
    answer, other = (call(service, "POST", "/v1/rankers/shop/rank", request) for _ in range(2))
    looker = look(elsewhere)
    page, url = looker.page, f"http://127.0.0.1:{service.port}"
    ids = [item["id"] for item in answer["items"]]

    page.evaluate(LIST, ids)
    page.add_script_tag(url=f"{url}/rankloop.js")
    for nothing in ("", None):
        page.evaluate("(token) => { rankloop.watch(document.querySelector('#results'), token); }", nothing)
    page.evaluate(
        "() => document.querySelector('[data-rankloop-id]').addEventListener('click', e => e.preventDefault())"
    )
    page.get_by_role("link", name="i0").click()
    page.wait_for_timeout(1500)
    assert not [asked for asked in looker.asked if asked.startswith("POST")], "without a token nothing is reported"

    page.evaluate("(token) => { rankloop.watch(document.querySelector('#results'), token); }", answer["token"])
    wait_for(lambda: told(service, answer["impression_id"])["seen"] == 3, "what is in view to be reported")
    assert clicked(service, answer["impression_id"]) == []
    page.evaluate("() => window.scrollTo(0, 600)")
    wait_for(lambda: told(service, answer["impression_id"])["seen"] == 5, "what was scrolled to to be reported")
    with page.expect_navigation():
        page.get_by_role("link", name="i4").click()
    wait_for(lambda: clicked(service, answer["impression_id"]) == ["i4"], "the click to arrive")
    assert told(service, other["impression_id"])["seen"] is None
    assert {asked for asked in looker.asked if asked.startswith("POST")} == {f"POST {url}/v1/beacon"}


def test_the_script_respects_who_does_not_want_to_be_tracked(
    serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str
) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins=elsewhere)
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base"})
    request = {"candidates": [{"id": "a"}, {"id": "b"}], "token": True}
    first, second = (call(service, "POST", "/v1/rankers/shop/rank", request) for _ in range(2))
    looker = look(elsewhere)
    page = looker.page
    page.evaluate("() => Object.defineProperty(navigator, 'doNotTrack', {get: () => '1'})")
    page.evaluate(LIST, ["a", "b"])
    page.add_script_tag(url=f"http://127.0.0.1:{service.port}/rankloop.js")
    watch = "([token, dnt]) => { window.list = rankloop.watch(document.querySelector('#results'), token, {dnt}); }"
    page.evaluate(watch, [first["token"], True])
    page.evaluate("() => window.list.reward('a', 1)")
    page.evaluate(watch, [second["token"], False])
    page.evaluate("() => window.list.reward('a', .5)")
    wait_for(lambda: told(service, second["impression_id"])["items"][0]["value"] == 0.5, "the reward to arrive")
    assert told(service, first["impression_id"])["items"][0]["value"] is None


def test_what_fails_is_sent_again(serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins=elsewhere)
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base"})
    answer = call(service, "POST", "/v1/rankers/shop/rank", {"candidates": [{"id": "a"}, {"id": "b"}], "token": True})
    looker = look(elsewhere)
    looker.expected = ("503", "ERR_FAILED", "Failed to load")
    page, tries = looker.page, []

    def fail_once(route: Any) -> None:
        tries.append(route.request.post_data)
        if len(tries) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/beacon", fail_once)
    page.evaluate(LIST, ["a", "b"])
    page.add_script_tag(url=f"http://127.0.0.1:{service.port}/rankloop.js")
    page.evaluate("(token) => { rankloop.watch(document.querySelector('#results'), token); }", answer["token"])
    looker.wait_for(lambda: told(service, answer["impression_id"])["seen"] == 2, "the second try to arrive")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    tries.clear()
    page.evaluate("() => document.querySelector('#results').addEventListener('click', e => e.preventDefault())")
    page.get_by_role("link", name="b").click()
    looker.wait_for(lambda: clicked(service, answer["impression_id"]) == ["b"], "a click that is sent again")
    assert len(tries) == 2
    assert tries[0] == tries[1]


def test_a_rejected_event_is_in_the_console(
    serve: Callable[..., Served], look: Callable[..., Looker], elsewhere: str
) -> None:
    service = serve(keys=f"{KEY}:admin+rank+feedback", origins=elsewhere)
    call(service, "PUT", "/v1/rankers/shop", {"learner": "base"})
    answer = call(service, "POST", "/v1/rankers/shop/rank", {"candidates": [{"id": "a"}, {"id": "b"}], "token": True})
    looker = look(elsewhere)
    looker.expected = ("rankloop",)
    page = looker.page
    warnings: list[str] = []
    page.on("console", lambda said: warnings.append(said.text) if said.type == "warning" else None)
    page.evaluate(LIST, ["a", "b"])
    page.add_script_tag(url=f"http://127.0.0.1:{service.port}/rankloop.js")
    watch = "(token) => { window.list = rankloop.watch(document.querySelector('#results'), token); }"
    page.evaluate(watch, answer["token"])
    page.evaluate("() => window.list.reward('a', 49.9)")
    looker.wait_for(lambda: bool(warnings), "the warning")
    assert "rankloop" in warnings[0]
    assert call(service, "GET", "/v1/rankers/shop")["events"]["needs_attention"] == 1
    page.evaluate("() => window.list.reward('a', 0.5)")
    looker.wait_for(lambda: clicked(service, answer["impression_id"]) == ["a"], "a valid reward to arrive")
    assert len(warnings) == 1
