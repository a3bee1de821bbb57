"""A page of a shop, in a real browser: it reports clicks with the token of its list, as docs/browser.md says."""

from __future__ import annotations

import json
import random
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.page.shown import Looker, Served
from tests.service.running import rank_request, wait_for

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
