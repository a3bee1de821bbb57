"""The page when there is nothing to show: no ranker, no key, no service, no traffic."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable

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
    looker.sees("No list has been shown yet.")
    looker.sees("Nothing is learned yet: every feature weighs 0.")
    looker.sees("No list has its feedback yet in this time.")
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
    looker.sees(re.compile("the key is not known here"))
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


def test_a_key_to_look_with_looks_and_its_buttons_are_refused(serve: Callable[..., Served], look: Look) -> None:
    reader = "read-0123456789abcdef"
    service = serve(keys=f"{ADMIN}:admin,{reader}:read")
    asked = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    asked.request("PUT", "/v1/rankers/shop", '{"learner": "base"}', {"Authorization": f"Bearer {ADMIN}"})
    assert asked.getresponse().status == 201
    asked.close()
    looker = look(at(service))
    looker.expected = ("401", "403")
    looker.page.get_by_label("Key").fill(reader)
    looker.page.get_by_role("button", name="Open").click()
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()
    looker.button("Pause learning").click()
    looker.told("Refused: this needs a key with scope 'admin'")
    assert looker.page.locator(".pulse").inner_text() == "live"


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
    looker.sees("Put into shadow by the guardrail.")
    text = looker.page.locator(".warning").inner_text()
    assert "\u22120.12 (\u22120.20 to \u22120.04) over 812 lists" in text
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
    proof = looker.page.get_by_role("region", name="Proof")
    proof.get_by_text(
        "+0.10, 95% interval \u22120.30 to +0.40; 30 lists, 12 decided. How long it takes cannot be"
    ).wait_for()
    needs |= {"lists_needed": 1234, "seconds_needed": 360.0, "lists_likely": 56}
    looker.page.reload()
    words = "1,234 more lists (6 minutes at the present rate) find a preference of 0.20 or more with 95%."
    proof.get_by_text(f"{words} By what was seen so far, as likely as not after 56.").wait_for()
    needs |= {"lists_needed": 0}
    looker.page.reload()
    proof.get_by_text("With 95%, a preference of 0.20 or more would have been found by now.").wait_for()


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
    answered(looker, ready=False, warming="kernels are being compiled", fallbacks={"warming-up": 1234, "timeout": 2})
    looker.page.goto(at(service))
    looker.sees("Not ready yet: kernels are being compiled.")
    assert "warming up · pairrank" in looker.page.get_by_role("navigation").inner_text()
    looker.sees(
        "Your order instead of its own since the start: 1,234 because its kernels were being compiled, "
        "2 because the learner took too long"
    )
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
    looker.sees(re.compile("learned from 6 lists, 2 of them since it went back to v1"))
    looker.sees(re.compile(r"^Rolled back to v1 on .*; what it knew until then is v2$"))


def test_the_page_opens_with_a_ranker_that_learns_and_tells_how_large_the_store_is(service: Served, look: Look) -> None:
    looker = look(at(service))
    looker.page.get_by_role("heading", level=1, name="shop").wait_for()  # "old", before it, never learns
    looker.page.locator("#store", has_text="free").wait_for()
    assert re.fullmatch(r"\s*· store \S+\s[kM]B, \S+\s[GT]B free", looker.page.locator("#store").text_content())


def test_what_is_pressed_is_about_the_ranker_that_is_shown(serve: Callable[..., Served], look: Look) -> None:
    """Someone else was quicker and the page does not know it yet: nothing is undone, and it says what has changed."""
    service = serve()
    service.put_ranker("shop", exposure="full")
    looker = look("about:blank")
    old = service.status("shop")
    answered(looker, etag=old["etag"], spec=old["spec"])
    service.put_ranker("shop", exposure="full", k=3)
    looker.page.goto(at(service))
    looker.expected = ("412",)
    looker.page.get_by_role("group", name="Exposure").get_by_text("shadow").click()
    looker.told("k is 3 now")
    assert service.status("shop")["spec"]["exposure"] == "full"
    other = look(at(service))
    other.page.get_by_role("group", name="Exposure").get_by_text("shadow").click()
    other.told("shop is shadow.")
    spec = service.status("shop")["spec"]
    assert (spec["exposure"], spec["k"]) == ("shadow", 3)  # and nothing else of it has changed
