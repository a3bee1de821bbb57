"""Operator actions keep every acknowledged outcome, take place once, and are recorded with the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks import operator_actions

from rankloop.service.access import digest, new_token
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.storage import keys as stored
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage import snapshots
from rankloop.service.storage.database import Connection, Retryable
from rankloop.service.storage.keys import StoredKey
from rankloop.service.storage.writer import Write, Writer
from tests.service.app_fixtures import Service, fine, refused
from tests.service.conftest import Postgres
from tests.service.running import PATIENCE

PAIR = [{"id": "x", "features": [1.0, 0.0]}, {"id": "y", "features": [0.0, 1.0]}]


@pytest.fixture
def open_service(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Service]:
    """Services on one store; one that does not learn is not waited for."""

    def opened(learn: bool = True) -> Service:
        monkeypatch.setattr("rankloop.service.serving.engine.CURRENT_SECONDS", PATIENCE if learn else 0.1)
        return Service(store_url, learn=learn)  # type: ignore[arg-type]

    return opened


def click(service: Service, times: int) -> None:
    for _ in range(times):
        assert service.report(service.rank("shop", PAIR), ["y"]) == "accepted"


def make_shop(service: Service, outcomes: int = 5) -> None:
    service.ready().put("shop", learner="pairrank", features=["a", "b"], exposure="full")
    click(service, outcomes)


def keep(service: Service, **body: Any) -> int:
    version: int = fine(service.http.post("/v1/rankers/shop/versions", json=body))["version"]
    return version


def post(service: Service, action: str, key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return service.http.post(f"/v1/rankers/shop/{action}", json=body, headers=headers)


def audit(service: Service) -> list[tuple[str, str]]:
    """(action, text), the oldest first."""
    found: list[Any] = fine(service.http.get("/v1/audit?ranker=shop"))
    return [(one["action"], one["text"]) for one in reversed(found)]


@contextmanager
def lost_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The acknowledgment of the first COMMIT that changes rankers or versions gets lost; what was lost."""
    lost: list[str] = []
    real = Writer._try

    def changed(connection: Connection) -> list[Any]:
        rankers = connection.rows("SELECT name, generation, learning, serving, spec FROM rankers ORDER BY name")
        kept = connection.rows("SELECT ranker, version FROM versions ORDER BY ranker, version")
        return [rankers, kept, connection.rows("SELECT ranker, id, state FROM experiments ORDER BY ranker, id")]

    def lossy(self: Writer, writes: list[Write[Any]], durable: bool) -> list[Any]:
        before = self.database.read(changed)
        results = real(self, writes, durable)
        if not lost and self.database.read(changed) != before:
            lost.append("an acknowledgment")
            raise Retryable("server closed the connection unexpectedly")
        return results

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_try", lossy)
        yield lost
    assert lost


# -- acknowledged outcomes -----------------------------------------------------------------------------------------


def test_rollback_with_unlearned_outcomes_is_refused_and_loses_none(open_service: Callable[..., Service]) -> None:
    with open_service() as service:
        make_shop(service)
        assert keep(service) == 1
    with open_service(learn=False) as service:
        service.ready()
        click(service, 20)
        before = service.status("shop")
        refused(post(service, "rollback", version=1), 409, "5 of 25", "20", "force", error="not-learned")
        assert [version["version"] for version in service.versions("shop")] == [1]
        assert service.status("shop")["etag"] == before["etag"]
        assert audit(service)[-1][0] == "keep"
    with open_service() as service:
        service.ready()
        assert service.settle("shop") == 25
        assert service.status("shop")["model_impressions"] == 25


def test_a_forced_rollback_reports_what_the_kept_version_lacks_and_learns_it(
    open_service: Callable[..., Service], store_url: str
) -> None:
    with open_service() as service:
        make_shop(service)
        assert keep(service) == 1
    with open_service(learn=False) as service:
        service.ready()
        click(service, 20)
        assert fine(post(service, "rollback", version=1, force=True))["model_impressions"] == 5
        assert audit(service)[-1] == (
            "rollback",
            "rolled back to v1; what was is v2, without 20 of 25 acknowledged outcomes (forced)",
        )
    with open_service() as service:
        service.ready()
        assert service.settle("shop") == 25
        assert service.status("shop")["model_impressions"] == 25  # the five of v1, and the twenty that were not in v2
        assert [(one["version"], one["model_impressions"]) for one in service.versions("shop")] == [(2, 5), (1, 5)]
    with open_store(store_url) as database:
        found = rebuild(database, "shop")
    assert (found.start, found.learned, found.equal) == ("rollback", 20, True)


@pytest.mark.parametrize("action", ["versions", "promote", "reset"])
def test_an_action_that_keeps_a_version_is_refused_while_outcomes_are_not_learned(
    open_service: Callable[..., Service], action: str
) -> None:
    with open_service(learn=False) as service:
        make_shop(service, 3)
        refused(post(service, action), 409, "0 of 3", error="not-learned")
        assert service.versions("shop") == []
        fine(post(service, action, force=True))
        assert [version["model_impressions"] for version in service.versions("shop")] == [0]
        assert "without 3 of 3 acknowledged outcomes (forced)" in audit(service)[-1][1]
        fine(post(service, "promote", version="live"))  # keeps nothing, so it needs nothing to be learned


@pytest.mark.parametrize(("action", "knows"), [("rollback", 9), ("reset", 4)])
def test_outcomes_that_arrive_during_an_action_are_learned_afterwards(
    open_service: Callable[..., Service],
    store_url: str,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    knows: int,
) -> None:
    """Under load the snapshot never covers the head of the log; the new generation begins where the snapshot ends."""
    with open_service() as service:
        make_shop(service)
        assert keep(service) == 1
        click(service, 10)
        service.settle("shop")
        save_now = service.engine.save_now

        def and_more(name: str) -> Any:
            acknowledged = save_now(name)
            with monkeypatch.context() as patch:  # nobody saves them before the action is carried out
                patch.setattr(snapshots, "save_snapshot", lambda *_: False)
                click(service, 4)
            return acknowledged

        monkeypatch.setattr(service.engine, "save_now", and_more)
        body: dict[str, Any] = {"version": 1} if action == "rollback" else {}
        fine(post(service, action, **body))
        service.settle("shop")
        status, (kept, *_) = service.status("shop"), service.versions("shop")
        assert (kept["learned_impressions"], kept["model_impressions"]) == (15, 15)
        assert (status["closed_impressions"], status["learned_impressions"], status["model_impressions"]) == (
            19,
            19,
            knows,
        )
    with open_store(store_url) as database:
        found = rebuild(database, "shop")
    assert (found.start_seq, found.learned, found.equal) == (15, 4, True)


def test_feedback_that_meets_a_reset_is_late_or_learned(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL a reset may be committed while feedback is being joined; accepted feedback must not be dropped."""
    with Service(postgres.database()) as service:  # type: ignore[arg-type]
        make_shop(service)
        service.settle("shop")
        answer = service.rank("shop", PAIR)
        real, met = stored_outcomes.load_rankers, list[str]()

        def interrupted(*arguments: Any) -> Any:
            found = real(*arguments)
            if found and not met:
                met.append("reset")
                connection = service.engine.database.connect()
                with connection.transaction():
                    snapshots.replace_state(connection, "shop", service.snapshot("shop"), 1.0, reset=True)
                connection.close()
            return found

        monkeypatch.setattr("rankloop.service.storage.events.load_rankers", interrupted)
        assert service.report(answer, ["y"]) == "late"
        assert met
        assert service.status("shop")["closed_impressions"] == 5


def test_another_learner_can_be_put_after_pause_and_reset_while_feedback_arrives(
    open_service: Callable[..., Service],
) -> None:
    with open_service() as service:
        make_shop(service)
        for action in ("pause", "reset"):
            fine(post(service, action))
            click(service, 2)
        service.put("shop", learner="pairrank", features=["b"])
        assert service.settle("shop") == 9
        assert service.status("shop")["origin"]["how"] == "changed"
        answer = service.rank("shop", [{"id": "x", "features": [1.0]}, {"id": "y", "features": [0.0]}])
        fine(post(service, "resume"))
        assert service.report(answer, ["x"]) == "accepted"


@pytest.mark.slow
def test_random_actions_under_load_with_lost_commits_lose_nothing(store_url: str) -> None:
    counts = operator_actions.run(store_url, actions=12, seconds=PATIENCE, share=0.3, seed=1, every=4)
    assert counts["actions"] == 12
    assert counts["states"] > 0
    assert (counts["differences"], counts["missing"], counts["not once"]) == (0, 0, 0)


# -- once ----------------------------------------------------------------------------------------------------------


def test_a_lost_commit_does_not_undo_a_rollback(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_service() as service:
        make_shop(service)
        assert keep(service) == 1
        click(service, 20)
        with lost_commit(monkeypatch):
            answer = fine(post(service, "rollback"))
        assert (answer["model_impressions"], answer["origin"]["version"], answer["origin"]["kept"]) == (5, 1, 2)
        assert [version["version"] for version in service.versions("shop")] == [2, 1]
        assert [action for action, _ in audit(service)] == ["put", "keep", "rollback"]


@pytest.mark.parametrize("action", ["versions", "promote", "reset"])
def test_a_lost_commit_does_not_keep_a_second_version(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    with open_service() as service:
        make_shop(service)
        with lost_commit(monkeypatch):
            fine(post(service, action))
        assert [version["version"] for version in service.versions("shop")] == [1]
        assert len(audit(service)) == 2


def test_a_lost_commit_of_a_delete_is_no_error(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_service() as service:
        make_shop(service, 1)
        with lost_commit(monkeypatch):
            assert service.http.delete("/v1/rankers/shop").status_code == 204
        refused(service.http.get("/v1/rankers/shop"), 404)
        assert [action for action, _ in audit(service)] == ["put", "delete"]


def test_a_lost_commit_makes_one_ranker_and_one_experiment(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"learner": "pairrank", "features": ["a", "b"], "exposure": "full", "guardrail": None}
    with open_service() as service:
        service.ready()
        with lost_commit(monkeypatch):
            assert service.http.put("/v1/rankers/shop", json=spec).status_code == 201
        with lost_commit(monkeypatch):
            assert fine(post(service, "experiments"))["number"] == 1
        with lost_commit(monkeypatch):
            assert fine(post(service, "experiments/1/stop"))["state"] == "stopped"
        with lost_commit(monkeypatch):
            assert fine(service.http.patch("/v1/rankers/shop", json={"k": 3}))["spec"]["k"] == 3
        with lost_commit(monkeypatch):
            assert fine(post(service, "pause"))["learning"] is False
        actions = ["put", "experiment", "stop-experiment", "patch", "pause"]
        assert [action for action, _ in audit(service)] == actions


def test_a_repeated_idempotency_key_gets_the_first_result(open_service: Callable[..., Service]) -> None:
    with open_service() as service:
        make_shop(service)
        assert keep(service) == 1
        click(service, 3)
        first = fine(post(service, "rollback", key="monday"))
        assert fine(post(service, "rollback", key="monday"))["etag"] == first["etag"]
        assert len(service.versions("shop")) == 2
        refused(post(service, "rollback", key="monday", version=1), 409, "'monday'", error="key-reused")
        refused(post(service, "reset", key="monday"), 409, error="key-reused")
        assert fine(post(service, "rollback", key="tuesday"))["origin"]["version"] == 2
        assert [fine(post(service, "versions", key="kept"))["version"] for _ in range(2)] == [4, 4]
        for _ in range(2):
            gone = service.http.delete("/v1/rankers/shop", headers={"Idempotency-Key": "gone"})
            assert gone.status_code == 204
        refused(service.http.delete("/v1/rankers/shop"), 404)
        refused(post(service, "pause", key="k" * 256), 400, error="malformed")


def test_a_repeated_request_is_answered_although_its_if_match_no_longer_holds(
    open_service: Callable[..., Service],
) -> None:
    with open_service() as service:
        make_shop(service, 1)
        headers = {"Idempotency-Key": "k", "If-Match": service.status("shop")["etag"]}
        for _ in range(2):
            assert fine(service.http.patch("/v1/rankers/shop", json={"k": 3}, headers=headers))["spec"]["k"] == 3
        headers["Idempotency-Key"] = "other"
        refused(service.http.patch("/v1/rankers/shop", json={"k": 4}, headers=headers), 412)


def test_idempotency_keys_of_two_api_keys_are_independent(open_service: Callable[..., Service]) -> None:
    with open_service() as service:
        service.ready()
        tokens = {"one": new_token(), "two": new_token()}
        for name, token in tokens.items():
            key = StoredKey(digest(token), name, "admin", 1.0)
            assert service.engine.writer.do(lambda c, key=key: stored.add(c, key))  # type: ignore[misc]
        service.engine.cycle()
        for name, token in tokens.items():
            headers = {"authorization": f"Bearer {token}", "Idempotency-Key": "1"}
            made = service.http.put(f"/v1/rankers/{name}", json={"learner": "base"}, headers=headers)
            assert made.status_code == 201


# -- audit ---------------------------------------------------------------------------------------------------------


def test_a_change_whose_audit_entry_cannot_be_written_is_not_made(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("made for this test")

    with open_service() as service:
        make_shop(service)
        before = service.status("shop")["etag"]
        with monkeypatch.context() as patch:
            patch.setattr("rankloop.service.storage.audit.add", broken)
            for action in ("pause", "versions", "promote", "reset"):
                assert post(service, action).status_code == 500
            assert service.http.delete("/v1/rankers/shop").status_code == 500
        assert service.status("shop")["etag"] == before
        assert service.versions("shop") == []
        assert [action for action, _ in audit(service)] == ["put"]
        fine(post(service, "pause"))
        assert [action for action, _ in audit(service)] == ["put", "pause"]
