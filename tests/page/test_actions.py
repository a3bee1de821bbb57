"""What is pressed on the page happens, and is seen through the API."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.shown import Looker, Served, at, fresh, get, traffic
from tests.service.running import rank_request
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]


def test_promote_and_promote_live(service: Served, look: Look) -> None:
    name = fresh(service, "promoted")
    looker = look(at(service, name))
    looker.button("Promote version 1").click()
    looker.agree("Cancel")
    assert service.status(name)["serving"] == "live"
    looker.button("Promote version 1").click()
    looker.agree("Promote v1")
    looker.told("promoted serves v1.")
    assert service.status(name)["serving"] == "v1"
    looker.sees("Shows version v1")
    # The page may have asked for the weights just before: what it was told is told again for a second.
    assert wait_for(lambda: get(service, f"/v1/rankers/{name}/weights")["version"] == "v1", "the weights of v1")
    looker.button("Promote live").click()
    looker.agree("Promote live")
    looker.told("promoted serves live.")
    assert service.status(name)["serving"] == "live"


def test_rollback_takes_the_state_back_and_keeps_what_was(service: Served, look: Look) -> None:
    name = fresh(service, "rolled")

    def weights() -> Any:
        return get(service, f"/v1/rankers/{name}/weights?limit=8")["weights"]

    late = weights()
    looker = look(at(service, name))
    looker.button("Roll back to version 1").click()
    looker.agree("Roll back to v1")
    looker.told("rolled is back at v1.")
    assert wait_for(lambda: weights() != late, "the weights of then")
    versions = get(service, f"/v1/rankers/{name}/versions")
    assert [version["note"] for version in versions] == ["before the rollback to v1", "second", "first"]
    looker.button("Roll back to version 3").click()  # undo
    looker.agree("Roll back to v3")
    looker.told("rolled is back at v3.")
    assert wait_for(lambda: weights() == late, "the weights of before")


def test_pause_and_resume(service: Served, look: Look) -> None:
    name = fresh(service, "paused", 2)
    looker = look(at(service, name))
    looker.button("Pause learning").click()
    looker.told("paused is paused.")
    assert service.status(name)["learning"] is False
    nav = looker.page.get_by_role("navigation").get_by_role("link", name=re.compile("^paused"))
    wait_for(lambda: "paused ·" in nav.inner_text(), "the state in the list")
    looker.button("Resume learning").click()
    looker.told("paused is learning.")
    assert service.status(name)["learning"] is True
    looker.button("Pause learning").wait_for()


def test_exposure_is_asked_about_on_the_way_up_and_not_on_the_way_down(service: Served, look: Look) -> None:
    name = fresh(service, "exposed", 2)
    looker = look(at(service, name))

    def exposure() -> str:
        found: str = service.status(name)["spec"]["exposure"]
        return found

    choice = looker.page.get_by_role("group", name="Exposure")
    choice.get_by_text("shadow").click()
    looker.told("exposed is shadow.")
    assert exposure() == "shadow"
    choice.get_by_text("bounded").click()
    looker.agree("Cancel")
    wait_for(lambda: choice.get_by_role("radio", name="shadow").is_checked(), "the old choice to show again")
    assert exposure() == "shadow"
    choice.get_by_text("bounded").click()
    looker.agree("Set to bounded")
    looker.told("exposed is bounded.")
    assert exposure() == "bounded"
    moves = looker.page.get_by_role("spinbutton", name="positions an item may move")
    moves.fill("1")
    moves.press("Enter")
    looker.told("exposed moves items by at most 1 position.")
    assert service.status(name)["spec"]["displacement"] == 1
    assert service.status(name)["spec"]["features"] == [f"f{i}" for i in range(8)]  # the rest of the spec stays


def test_an_experiment_is_started_watched_and_stopped(service: Served, look: Look) -> None:
    name = fresh(service, "proved", 2)
    looker = look(at(service, name))
    proof = looker.page.get_by_role("region", name="Experiments")
    proof.get_by_role("spinbutton").fill("90")
    proof.get_by_role("button", name="Start").click()
    looker.told("The experiment has started.")
    (found,) = [one for one in get(service, f"/v1/rankers/{name}/experiments") if one["kind"] == "experiment"]
    assert (found["state"], found["against"], found["share"]) == ("running", "base", 0.9)
    traffic(service, name, 5, seed=9)
    looker.sees(re.compile("Undecided against"))
    wait_for(lambda: re.search(r"[1-5] impressions?, \d decided", proof.inner_text()), "the lists to be counted")
    looker.button(f"Stop experiment {found['number']}").click()
    looker.told("has stopped")
    assert get(service, f"/v1/rankers/{name}/experiments/{found['number']}")["state"] == "stopped"


def test_a_refusal_is_told(service: Served, look: Look) -> None:
    name = fresh(service, "refused", 2)
    looker = look(at(service, name))
    looker.button("Roll back to version 2").wait_for()
    assert service.ask("DELETE", f"/v1/rankers/{name}").status == 204
    looker.expected = ("404",)  # the browser itself writes these to the console
    looker.button("Roll back to version 2").click()
    looker.agree("Roll back to v2")
    looker.told("Refused: ")
    looker.page.get_by_role("heading", level=1, name="refused", exact=True).wait_for(state="detached")


def test_an_action_that_lacks_outcomes_shows_why_and_offers_to_force_it(
    serve: Callable[..., Served], look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankloop.service.serving.engine.CURRENT_SECONDS", 0.1)
    idle = serve(learn=False)
    idle.put_ranker("idle", learner="base", parameters={}, window_seconds=60, k=6)
    assert idle.ask("POST", "/v1/rankers/idle/versions").status == 201
    for number in range(3):
        answer = idle.ask("POST", "/v1/rankers/idle/rank", rank_request(random.Random(number))).json
        event = {"event_id": str(number), "impression_id": answer["impression_id"], "clicks": [], "final": True}
        assert idle.ask("POST", "/v1/feedback", event).status == 200
    looker = look(at(idle, "idle"))
    looker.expected = ("409",)
    for pressed, told in (("Cancel", "Refused: "), ("Roll back to v1 anyway", "idle is back at v1.")):
        looker.button("Roll back to version 1").click()
        looker.agree("Roll back to v1")
        looker.sees(re.compile("learned 0 of 3 acknowledged outcomes"))
        looker.agree(pressed)
        looker.told(told)
    assert idle.status("idle")["origin"]["how"] == "rollback"
