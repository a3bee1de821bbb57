"""Versions, promote, rollback, reset, pause, and users who are forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rankloop.service.maintenance.housekeeping import Retention
from tests.service.app_fixtures import Service, fine, items, names, refused, service, teach

__all__ = ["service"]  # a fixture


# -- versions ------------------------------------------------------------------------------------------------------


def weights(service: Service, name: str) -> list[float]:
    """The weights that rank now, as answers explain them."""
    answer = service.rank(name, items(2), explain=True)
    return [share["weight"] for share in answer["items"][0]["features"].values()]


def test_versions_are_kept_listed_and_never_change(service: Service) -> None:
    service.put("kept", features=names(3), exposure="full")
    assert service.versions("kept") == []
    teach(service, "kept", 2)
    response = service.http.post("/v1/rankers/kept/versions", json={"note": "after two"})
    assert response.status_code == 201
    version = response.json()
    assert (version["version"], version["learned_impressions"], version["note"]) == (1, 2, "after two")
    teach(service, "kept", 2)
    service.http.post("/v1/rankers/kept/versions").raise_for_status()  # a body is not needed
    listed = service.versions("kept")
    assert [v["version"] for v in listed] == [2, 1]
    assert [v["learned_impressions"] for v in listed] == [4, 2]
    assert listed[1] == version
    assert not any(v["serving"] for v in listed)


def test_a_promoted_version_serves_while_learning_goes_on_behind_it(service: Service) -> None:
    service.put("promoted", features=names(3), exposure="full")
    teach(service, "promoted", 3)
    before = weights(service, "promoted")
    status = service.act("promoted", "promote", note="good one")
    assert status["serving"] == "v1"
    assert service.versions("promoted")[0] | {"created": 0} == {
        "generation": 1,
        "model_impressions": 3,
        "version": 1,
        "learned_impressions": 3,
        "created": 0,
        "note": "good one",
        "serving": True,
    }
    teach(service, "promoted", 4, seed=50)
    answer = service.rank("promoted", items(4))
    assert answer["version"] == "v1"
    assert weights(service, "promoted") == before
    status = service.status("promoted")
    assert (status["learned_impressions"], status["serving"]) == (7, "v1")

    assert service.act("promoted", "promote", version="live")["serving"] == "live"
    assert service.rank("promoted", items(4))["version"] == "live@7"
    assert weights(service, "promoted") != before

    assert service.act("promoted", "promote", version=1)["serving"] == "v1"
    assert weights(service, "promoted") == before
    refused(service.http.post("/v1/rankers/promoted/promote", json={"version": 9}), 404)
    assert service.status("promoted")["serving"] == "v1"


def test_rollback_restores_the_very_bits_and_a_second_one_undoes_it(service: Service) -> None:
    service.put("back", features=names(3), exposure="full")
    teach(service, "back", 3)
    old, old_weights = service.state("back"), weights(service, "back")
    service.http.post("/v1/rankers/back/versions").raise_for_status()
    teach(service, "back", 3, seed=90)
    new, new_weights = service.state("back"), weights(service, "back")
    assert new != old

    status = service.act("back", "rollback")
    assert service.state("back") == service.snapshot("back") == old
    assert weights(service, "back") == old_weights
    assert status["unlearned_impressions"] == 0
    assert service.rank("back", items(4))["version"] == "live@6"  # the log goes on, it is not rewritten
    assert service.versions("back")[0]["note"] == "before the rollback to v1"
    service.act("back", "rollback")
    assert service.state("back") == service.snapshot("back") == new
    assert weights(service, "back") == new_weights
    service.act("back", "rollback", version=1, note="that was better")
    assert service.state("back") == old
    assert service.versions("back")[0]["note"] == "that was better"

    teach(service, "back", 2, seed=120)  # and it learns on from there
    assert service.state("back") != old
    assert service.status("back")["learned_impressions"] == 8


def test_rollback_ends_a_promotion(service: Service) -> None:
    service.put("back-live", features=names(3), exposure="full")
    teach(service, "back-live", 2)
    service.act("back-live", "promote")
    teach(service, "back-live", 2, seed=9)
    assert service.act("back-live", "rollback", version=1)["serving"] == "live"
    assert not any(version["serving"] for version in service.versions("back-live"))


def test_rollback_needs_a_version(service: Service) -> None:
    service.put("no-way-back", learner="base")
    refused(service.http.post("/v1/rankers/no-way-back/rollback"), 409)
    service.act("no-way-back", "versions")
    refused(service.http.post("/v1/rankers/no-way-back/rollback", json={"version": 7}), 404)
    refused(service.http.post("/v1/rankers/no-way-back/rollback", json={"version": "live"}), 422)
    for version in (0, -1, 1.5, "v1", True, 2**70):
        for action in ("rollback", "promote"):
            response = service.http.post(f"/v1/rankers/no-way-back/{action}", json={"version": version})
            refused(response, 400, "$.version")
    refused(service.http.post("/v1/rankers/no-way-back/versions", json={"note": "x" * 513}), 400, "$.note")
    refused(service.http.post("/v1/rankers/no-way-back/versions", json={"note": "a\0b"}), 422, "NUL")


def test_a_version_of_another_spec_is_neither_served_nor_gone_back_to(service: Service) -> None:
    """A ranker that cannot be loaded must never get into the store."""
    service.put("other-spec", features=names(3), exposure="full")
    teach(service, "other-spec", 2)
    service.act("other-spec", "reset", note="the old learner")
    service.put("other-spec", features=names(2), learner="pdgd", exposure="full")
    for action in ("promote", "rollback"):
        response = service.http.post(f"/v1/rankers/other-spec/{action}", json={"version": 1})
        refused(response, 422, "spec", "learner")
    assert service.status("other-spec")["serving"] == "live"
    service.engine.cycle()
    teach(service, "other-spec", 1, width=2)


def test_reset_forgets_but_keeps_a_version_and_what_was_shown_before_is_late(service: Service) -> None:
    service.put("reset", features=names(3), exposure="full")
    fresh = service.state("reset")
    teach(service, "reset", 3)
    learned = service.state("reset")
    shown_before = service.rank("reset", items(4))
    assert service.report(shown_before, ["i1"], final=False) == "accepted"
    status = service.act("reset", "reset", note="start again")
    assert service.state("reset") == service.snapshot("reset") == fresh
    assert service.versions("reset")[0]["note"] == "start again"
    assert (status["serving"], status["unlearned_impressions"]) == ("live", 0)
    event = {"event_id": "reset-late", "impression_id": shown_before["impression_id"], "clicks": ["i1"], "final": True}
    assert service.feedback(event)[0]["status"] == "late"
    assert "reset" in service.feedback({**event, "event_id": "reset-later"})[0]["reason"]
    assert service.state("reset") == fresh
    teach(service, "reset", 1)
    assert service.state("reset") != fresh
    service.act("reset", "rollback", version=1)
    assert service.state("reset") == learned


def test_what_comes_while_paused_is_kept_but_never_learned(service: Service) -> None:
    service.put("paused", features=names(3), exposure="full")
    teach(service, "paused", 2)
    before = service.state("paused")
    assert service.act("paused", "pause")["learning"] is False
    first = service.rank("paused", items(5))
    assert service.report(first, ["i3"]) == "accepted"
    waiting = service.rank("paused", items(5))
    assert service.settle("paused") == 3
    assert service.state("paused") == before
    assert service.report(first, ["i3"]) == "late"
    assert service.act("paused", "resume")["learning"] is True
    assert service.settle("paused") == 3
    assert service.state("paused") == before
    assert service.report(waiting, ["i3"]) == "accepted"  # shown while paused, reported after
    assert service.settle("paused") == 4
    assert service.state("paused") != before
    assert service.metric("rankloop_learned_total", ranker="paused") == 3


def test_actions_on_an_unknown_ranker(service: Service) -> None:
    for action in ("promote", "rollback", "reset", "pause", "resume", "versions"):
        refused(service.http.post(f"/v1/rankers/nobody/{action}"), 404, "'nobody'", error="unknown")
        refused(service.http.post(f"/v1/rankers/nobody/{action}", content=b'{"note": "\xff"}'), 400, "UTF-8")
        refused(service.http.post(f"/v1/rankers/nobody/{action}", content=b'{"note"'), 400)


# -- users ---------------------------------------------------------------------------------------------------------


def stored_of(service: Service, user: str) -> tuple[int, int]:
    """How many impressions carry a user's name, and how many events are in the store at all."""

    def count(connection: Any) -> tuple[int, int]:
        own = connection.row("SELECT COUNT(*) FROM impressions WHERE person = ?", user)
        return own[0], connection.row("SELECT COUNT(*) FROM events")[0]

    try:
        return service.engine.database.read(count)
    finally:
        service.engine.database.close_thread()


def counts(erased: Any) -> dict[str, int]:
    """How many rows of each table were erased."""
    return {name: erased[name] for name in ("impressions", "events", "outcomes", "pending", "entries")}


def test_what_learning_still_needs_of_a_user_is_unlinked_now_and_deleted_later(tmp_path: Path) -> None:
    with Service(tmp_path / "users.db", snapshot_seconds=3600) as one:
        one.ready().put("shop", features=names(3), exposure="full")
        assert one.engine.learning is not None
        fold = one.engine.learning.folds["shop"]
        fold.snapshot_cost = 1e9  # no snapshot before it is asked for
        answer = one.rank("shop", items(4), user="ann")
        assert one.report(answer, ["i1"]) == "accepted"
        one.settle("shop")
        erased = fine(one.http.delete("/v1/users/ann"))
        assert counts(erased) == {"impressions": 0, "events": 1, "outcomes": 0, "pending": 1, "entries": 0}
        assert stored_of(one, "ann") == (0, 0)
        one.engine.learning.save(fold)
        Retention(one.engine).delete()
        assert stored_of(one, "ann") == (0, 0)


@pytest.mark.parametrize("user", ["a/b", "/a", "a//b", "a/", "auth0|12 3", "ä😀", "a?b#c", "50%2F", "x" * 512, "rank"])
def test_any_user_that_can_be_sent_can_be_erased(service: Service, user: str) -> None:
    service.put("anyone", learner="base")
    service.rank("anyone", [{"id": 1}], user=user)
    assert stored_of(service, user)[0] == 1
    path = "/v1/users/" + quote(user, safe="")
    erased = fine(service.http.request("DELETE", service.http.base_url.copy_with(raw_path=path.encode())))
    assert erased["impressions"] + erased["pending"] == 1
    assert stored_of(service, user)[0] == 0
