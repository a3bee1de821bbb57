"""The page when there is nothing to show: no ranker, no key, no service, no traffic."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.page.shown import Looker, Served, at, traffic
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]
ADMIN, WEB = "an-admin-key-for-tests", "a-web-key-for-the-tests"


def test_without_rankers_the_page_says_how_to_make_one_and_shows_it_when_it_is_there(
    serve: Callable[..., Served], look: Look
) -> None:
    service = serve()
    looker = look(at(service))
    looker.sees("No ranker yet")
    line = looker.page.locator("pre").inner_text()
    assert f"curl -X PUT http://127.0.0.1:{service.port}/v1/rankers/shop" in line
    body = json.loads(re.search(r"-d '(.*)'", line)[1])  # type: ignore[index]
    assert service.ask("PUT", "/v1/rankers/shop", body).status == 201
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()
    looker.sees("No ranking has been shown yet.")
    looker.sees("Nothing is learned yet. Every weight is 0.")
    looker.sees("No impression has feedback yet in this period.")
    looker.page.locator(".plot .nothing >> visible=true").first.wait_for()


def test_a_service_that_goes_away_is_told_and_found_again(serve: Callable[..., Served], look: Look) -> None:
    service = serve()
    service.put_ranker("shop", window_seconds=60)
    traffic(service, "shop", 3)
    looker = look(at(service))
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()
    looker.expected = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "503")
    service.stop()
    alert = looker.page.get_by_role("alert")
    alert.wait_for()
    assert "Is it running? Trying again" in alert.inner_text()
    assert looker.page.locator(".pulse").inner_text() == "no answer"
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()  # what was known stays to be read
    service.start()
    alert.wait_for(state="hidden")
    assert looker.page.locator(".pulse").inner_text() == "live"


def test_a_service_with_keys_asks_for_one_and_keeps_it_in_the_tab(serve: Callable[..., Served], look: Look) -> None:
    service = serve(keys=f"{ADMIN}:admin,{WEB}:rank+feedback")
    looker = look(at(service))
    looker.expected = ("401", "403")
    looker.sees("This service asks for a key")
    page = looker.page
    page.get_by_label("Key").fill("not-a-key-at-all-no")
    page.get_by_role("button", name="Open").click()
    looker.sees(re.compile("the key is unknown"))
    page.get_by_label("Key").fill(WEB)
    page.get_by_role("button", name="Open").click()
    looker.sees(re.compile("needs a key with scope 'read'"))
    page.get_by_label("Key").fill(ADMIN)
    page.get_by_role("button", name="Open").click()
    looker.sees("No ranker yet")
    assert page.evaluate("sessionStorage.getItem('rankloop-key')") == ADMIN
    assert page.evaluate("JSON.stringify(localStorage)") == "{}"
    page.reload()
    looker.sees("No ranker yet")
    other = looker.context.new_page()  # another tab asks again
    other.goto(at(service))
    other.get_by_text("This service asks for a key").wait_for()


@pytest.fixture
def read_only(serve: Callable[..., Served], look: Look) -> Iterator[tuple[Looker, http.client.HTTPConnection]]:
    """A page that was opened with a key of scope `read`, and a connection for requests with an admin key."""
    reader = "read-0123456789abcdef"
    service = serve(keys=f"{ADMIN}:admin,{reader}:read")
    asked = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    admin(asked, "PUT", "/v1/rankers/shop", {"learner": "base", "exposure": "full", "guardrail": None})
    admin(asked, "POST", "/v1/rankers/shop/versions", {})
    looker = look(at(service))
    looker.expected = ("401", "403")
    looker.page.get_by_label("Key").fill(reader)
    looker.page.get_by_role("button", name="Open").click()
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()
    looker.button("Keep a version now").wait_for()
    yield looker, asked
    asked.close()


def admin(asked: http.client.HTTPConnection, method: str, path: str, body: object = None) -> Any:
    asked.request(method, path, None if body is None else json.dumps(body), {"Authorization": f"Bearer {ADMIN}"})
    answer = asked.getresponse()
    found = json.loads(answer.read())
    assert answer.status in (200, 201), found
    return found


CONTROLS = "main :is(button:not(.small), input, select)"


def test_with_a_read_only_key_every_control_is_disabled_and_says_why(
    read_only: tuple[Looker, http.client.HTTPConnection],
) -> None:
    looker, _ = read_only
    controls = looker.page.locator(CONTROLS)
    assert controls.count() >= 8  # exposure (3), pause, an experiment (3), keep, promote, roll back
    states = controls.evaluate_all("all => all.map(one => [one.disabled, one.title])")
    assert all(disabled and "admin" in title for disabled, title in states), states
    choice = looker.page.get_by_role("group", name="Exposure")
    choice.get_by_text("shadow").click(force=True)
    assert choice.get_by_role("radio", name="full").is_checked()
    assert looker.page.locator(".pulse").inner_text() == "live"


def test_controls_show_what_the_service_answers_and_not_what_was_pressed(
    read_only: tuple[Looker, http.client.HTTPConnection],
) -> None:
    """As if the key had lost its scope while the page was open: the page still takes it for an admin's."""
    looker, asked = read_only
    everything = {"name": "x", "scopes": ["read", "admin"], "rankers": None, "catalogs": None}
    looker.page.route("**/v1/keys/self", lambda route: route.fulfill(json=everything))
    choice = looker.page.get_by_role("group", name="Exposure")
    looker.wait_for(lambda: choice.get_by_role("radio", name="full").is_enabled(), "the controls")
    choice.get_by_text("shadow").click()
    looker.told("Refused: ")
    looker.wait_for(lambda: choice.get_by_role("radio", name="full").is_checked(), "exposure to be put back")
    looker.button("Pause learning").click()
    looker.told("Refused: ")
    looker.button("Pause learning").wait_for()
    status = admin(asked, "GET", "/v1/rankers/shop")
    assert (status["spec"]["exposure"], status["learning"]) == ("full", True)
    # An answer that differs from what was asked for is what is shown.
    looker.page.route("**/v1/rankers/shop/pause", lambda route: route.fulfill(json=status))
    looker.button("Pause learning").click()
    looker.told("shop is learning.")
    looker.button("Pause learning").wait_for()


def test_a_demoted_ranker_shows_the_evidence(serve: Callable[..., Served], look: Look) -> None:
    service = serve()
    service.put_ranker("shop", exposure="shadow")
    looker = look(at(service))
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()

    def demoted(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        (status,) = answer.json()
        evidence = {"when": 1.7e9, "lists": 812, "preference": -0.123, "interval": [-0.2, -0.04]}
        route.fulfill(json=[{**status, "demoted": evidence}])  # type: ignore[attr-defined]

    looker.page.route("**/v1/rankers", demoted)
    looker.sees("Set to shadow by the guardrail.")
    text = looker.page.locator(".warning").inner_text()
    assert "\u22120.12 (\u22120.20 to \u22120.04) over 812 impressions" in text
    assert "demoted" in looker.page.get_by_role("navigation").inner_text()


def test_an_experiment_says_how_long_it_may_take(serve: Callable[..., Served], look: Look) -> None:
    service = serve()
    service.put_ranker("shop", exposure="full")
    assert service.ask("POST", "/v1/rankers/shop/experiments", {"share": 0.5, "effect": 0.2}).status == 201
    told = {"lists": 30, "decided": 12, "preference": 0.1, "interval": [-0.3, 0.4]}
    needs: dict[str, object] = {}

    def measured(route: object) -> None:
        (one,) = route.fetch().json()  # type: ignore[attr-defined]
        route.fulfill(json=[{**one, **told, **needs}])  # type: ignore[attr-defined]

    looker = look("about:blank")
    looker.page.route("**/experiments", measured)
    needs |= {"lists_needed": None, "lists_likely": None}
    looker.page.goto(at(service))
    proof = looker.page.get_by_role("region", name="Experiments")
    proof.get_by_text(
        "+0.10, 95% interval \u22120.30 to +0.40; 30 impressions, 12 decided. The duration cannot be"
    ).wait_for()
    needs |= {"lists_needed": 1234, "seconds_needed": 360.0, "lists_likely": 56}
    looker.page.reload()
    words = (
        "1,234 more impressions (6 minutes at the current rate) find a preference of 0.20 or more with 95% probability."
    )
    proof.get_by_text(words).wait_for()
    needs |= {"lists_needed": 0}
    looker.page.reload()
    proof.get_by_text("a preference of 0.20 or more would have been found by now.").wait_for()


def answered(looker: Looker, **changes: object) -> None:
    """From now on the page is told this of every ranker, too."""

    def change(route: object) -> None:
        found = route.fetch().json()  # type: ignore[attr-defined]
        route.fulfill(json=[{**one, **changes} for one in found])  # type: ignore[attr-defined]

    looker.page.route("**/v1/rankers", change)


def test_a_ranker_that_is_not_ready_says_what_it_waits_for(serve: Callable[..., Served], look: Look) -> None:
    service = serve()
    service.put_ranker("shop")
    looker = look("about:blank")
    answered(looker, ready=False, waiting_for="kernels are being compiled", fallbacks={"compiling": 1234, "timeout": 2})
    looker.page.goto(at(service))
    looker.sees("Not ready yet: kernels are being compiled.")
    assert "compiling · pairrank" in looker.page.get_by_role("navigation").inner_text()
    looker.sees("1,234 because kernels were being compiled, 2 because the learner took too long")
    looker.page.unroute("**/v1/rankers")
    looker.page.locator(".warning").wait_for(state="detached")
    assert "learning · pairrank" in looker.page.get_by_role("navigation").inner_text()


def test_after_a_rollback_the_page_says_what_was_learned_since_and_where_the_rest_is(
    serve: Callable[..., Served], look: Look
) -> None:
    service = serve()
    service.put_ranker("shop", window_seconds=60)
    traffic(service, "shop", 4)
    assert service.ask("POST", "/v1/rankers/shop/versions").status == 201
    traffic(service, "shop", 3, seed=1)
    assert service.ask("POST", "/v1/rankers/shop/rollback", {"version": 1}).status == 200
    traffic(service, "shop", 2, seed=2)
    looker = look(at(service, "shop"))
    looker.sees("6 impressions, 2 of them since the rollback to v1")
    looker.sees(re.compile(r"^rolled back to v1 on .*; the model from before is v2$"))


def test_what_is_pressed_is_about_the_ranker_that_is_shown(serve: Callable[..., Served], look: Look) -> None:
    """Someone else was quicker and the page does not know it yet: nothing is undone, and it says so."""
    service = serve()
    service.put_ranker("shop", exposure="full")
    looker = look("about:blank")
    old = service.status("shop")
    answered(looker, etag=old["etag"], spec=old["spec"])
    service.put_ranker("shop", exposure="full", k=3)
    looker.page.goto(at(service))
    looker.expected = ("412",)
    looker.page.get_by_role("group", name="Exposure").get_by_text("shadow").click()
    looker.told("has changed since")
    assert service.status("shop")["spec"]["exposure"] == "full"
    other = look(at(service))
    other.page.get_by_role("group", name="Exposure").get_by_text("shadow").click()
    other.told("shop is shadow.")
    spec = service.status("shop")["spec"]
    assert (spec["exposure"], spec["k"]) == ("shadow", 3)  # and nothing else of it has changed


REJECTED = {
    "rejected": 12,
    "late": 3,
    "duplicate": 1,
    "orphan": 0,
    "needs_attention": 4,
    "last_rejected": {"time": 1.7e9, "event_id": "e17", "reason": "reward 49.9 is not between 0 and 1"},
    "days": [{"start": 1.7e9, "rejected": 2, "late": 0, "duplicate": 1, "orphan": 0}],
}


def test_rejected_events_and_warnings_are_shown_first(serve: Callable[..., Served], look: Look) -> None:
    service = serve()
    service.put_ranker("shop")
    looker = look("about:blank", width=400)
    answered(looker, events=REJECTED, warnings=["feature 'price' reads item.prize"])
    looker.page.goto(at(service))
    notice = looker.page.locator(".warning:not(.calm)")
    notice.wait_for()
    words = notice.inner_text()
    assert "2 events" in words
    assert "4 impressions" in words
    assert "reward 49.9" in words
    assert "e17" in words
    looker.page.locator(".warning.calm", has_text="item.prize").wait_for()
    assert notice.bounding_box()["y"] < looker.page.locator(".charts").bounding_box()["y"]
    table = looker.page.get_by_role("region", name="Events").get_by_role("table")
    red = {row.locator("th").inner_text(): row.locator(".alarm").count() for row in table.locator("tbody tr").all()}
    assert {name: count for name, count in red.items() if count} == {"Need attention": 1, "Rejected": 1}
    assert "rejected events" in looker.page.get_by_role("navigation").inner_text()
    assert looker.page.evaluate("document.documentElement.scrollWidth") == 400
    looker.page.unroute("**/v1/rankers")
    answered(looker, events={**REJECTED, "needs_attention": 0, "days": []}, warnings=[])
    notice.wait_for(state="detached")
