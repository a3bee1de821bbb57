"""Status, health, metrics, keys, and documents that agree with the code."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.core.registry import LEARNERS
from rankloop.service.access import digest, new_token
from rankloop.service.api.routes import ROUTES
from rankloop.service.observability.metrics import METRICS
from rankloop.service.ranking import kernel_compilation
from rankloop.service.serving.live_ranker import BLOCK
from rankloop.service.serving.schema import Schema
from rankloop.service.settings import Settings
from rankloop.service.storage import keys as stored
from rankloop.service.storage.keys import StoredKey
from rankloop.service.supervisor.run import opened, prepare, prepare_ranker
from rankloop.wire.calls import FeedbackEvent, RankRequest
from rankloop.wire.rankers import Spec
from tests.service.access import scopes
from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, until
from tests.service.running import PATIENCE

__all__ = ["service"]  # a fixture

ROOT = Path(__file__).parents[2]


# -- status, health, metrics ---------------------------------------------------------------------------------------


def test_the_status_counts(service: Service) -> None:
    service.put("counted", learner="base", exposure="full")
    answers = [service.rank("counted", [{"id": "a"}, {"id": "b"}]) for _ in range(4)]
    assert service.report(answers[0], ["a"], event_id="counted-1") == "accepted"
    assert service.report(answers[0], ["a"], event_id="counted-1") == "duplicate"
    assert service.report(answers[0], ["b"]) == "late"
    assert service.report(answers[1], ["z"]) == "rejected"
    assert service.report(answers[2], ["b"], final=False) == "accepted"
    service.settle("counted")
    status = service.status("counted")
    assert (
        status["closed_impressions"],
        status["learned_impressions"],
        status["unlearned_impressions"],
        status["open_impressions"],
    ) == (1, 1, 0, 3)
    events = status["events"]
    assert [events[kind] for kind in ("duplicate", "late", "rejected", "needs_attention")] == [1, 1, 1, 1]
    assert events["last_rejected"]["reason"]
    assert status["learner_process"] == service.engine.worker
    assert status["serving"] == "live"
    assert status["created"] > 1.7e9


def test_not_ready_while_kernels_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rankings come as fallbacks meanwhile; a ranker that is made just then is warm in the end, too."""
    go = threading.Event()
    true_compile = kernel_compilation.compile_kernels

    def slow(spec: Spec) -> None:
        assert go.wait(PATIENCE)
        true_compile(spec)

    store = tmp_path / "cold.db"
    prepare_ranker(Settings(store=str(store)), "first", Spec(features=names(3), exposure="full"))
    monkeypatch.setattr(kernel_compilation, "compile_kernels", slow)
    with Service(store) as cold:
        response = cold.http.get("/readyz")
        assert (response.status_code, response.json()["error"]) == (503, "not-ready")
        assert [reason["code"] for reason in response.json()["reasons"]] == ["compiling"]
        assert response.headers["retry-after"] == "1"
        assert fine(cold.http.get("/healthz"))["status"] == "ok"
        answer = cold.rank("first", items(4))
        assert (answer["fallback"], answer["reason"]) == (True, "compiling")
        assert shown(answer) == ["i0", "i1", "i2", "i3"]
        assert cold.report(answer, ["i1"]) == "accepted"
        cold.put_cold("second", learner="pdgd", features=names(3), exposure="full")
        go.set()
        cold.ready()
        assert cold.http.get("/readyz").status_code == 200
        until(lambda: all(not cold.rank(name, items(4))["fallback"] for name in ("first", "second")), "the rankers")
        assert cold.settle("first") == 1
        assert cold.metric("rankloop_learned_total", ranker="first") == 0


SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$')


def test_the_metrics_are_prometheus_text_and_tell_the_story(service: Service) -> None:
    name = "measured"
    service.put(name, learner="random", features=names(2), exposure="full", k=3)
    answers = [service.rank(name, items(5, 2, seed=s)) for s in range(6)]
    for answer in answers[:4]:
        service.report(answer, [answer["items"][1]["id"]])
    service.report(answers[0], [])  # late
    event = {"event_id": "measured-twice", "impression_id": answers[4]["impression_id"], "clicks": []}
    service.feedback(event, event)
    orphans = service.metric("rankloop_feedback_events_total", status="orphan")
    service.feedback({"event_id": "measured-orphan", "impression_id": "nowhere", "clicks": []})
    service.settle(name)

    response = service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    typed = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            typed[line.split()[2]] = line.split()[3]
        elif not line.startswith("# HELP "):
            found = SAMPLE.match(line)
            assert found, line
            float(found[3])
            base = re.sub(r"_(bucket|sum|count)$", "", found[1])
            assert found[1] in typed or typed[base] == "histogram", line
            assert 'worker="' in line
    assert set(typed) <= {metric.prefix + key for key, metric in METRICS.items()}

    def value(metric: str, **labels: str) -> float:
        return service.metric(f"rankloop_{metric}", ranker=name, **labels)

    assert value("rank_requests_total", exposure="full") == 6
    assert value("rank_seconds_count") == 6
    assert {s: value("feedback_events_total", status=s) for s in ("accepted", "duplicate", "late")} == {
        "accepted": 5,
        "duplicate": 1,
        "late": 1,
    }
    assert service.metric("rankloop_feedback_events_total", status="orphan") == orphans + 1
    assert [value("shown_positions_total", position=str(p)) for p in (1, 2, 3, 4)] == [4, 4, 4, 0]
    assert [value("clicked_positions_total", position=str(p)) for p in (1, 2, 3)] == [0, 4, 0]
    assert value("ranked_positions_total") == 18
    assert 0 < value("explored_positions_total") < 18
    assert value("rank_fallbacks_total") == 0
    assert value("learner_lag") == 0
    assert value("learned_total") == value("outcomes_total", kind="final") == 4
    assert value("lease_held") == 1
    assert service.metric("rankloop_http_requests_total", route="/v1/rankers/{name}/rank", status="200") >= 6
    assert service.metric("rankloop_store_commit_seconds_count") > 0
    assert service.metric("process_resident_memory_bytes") > 1e7


def test_a_fallback_is_counted_by_its_reason(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put("fails", learner="random", exposure="full")
    monkeypatch.setattr("rankloop.learners.baselines.random_order.RandomOrder.rank", lambda *_: 1 / 0)
    logging.getLogger("rankloop").setLevel(logging.ERROR)
    try:
        assert service.rank("fails", items(3, 1))["reason"] == "error"
    finally:
        logging.getLogger("rankloop").setLevel(logging.NOTSET)
    assert service.metric("rankloop_rank_fallbacks_total", ranker="fails", reason="error") == 1
    assert service.status("fails")["fallbacks"] == {"error": 1}


def test_a_thousand_and_more_impression_numbers(tmp_path: Path) -> None:
    """Numbers are reserved in blocks; the second block goes on where the first ends."""
    with Service(tmp_path / "many.db") as one:
        one.ready().put("shop", learner="base", exposure="full")
        live = one.engine.rankers["shop"]
        one.rank("shop", [{"id": 1}])
        for _ in range(BLOCK - 2):
            live.numbers.take()
        for _ in range(2):
            one.rank("shop", [{"id": 1}])
        numbers = one.engine.database.read(lambda c: c.rows("SELECT number FROM impressions ORDER BY number"))
        one.engine.database.close_thread()
        assert [number for (number,) in numbers] == [0, BLOCK - 1, BLOCK]


# -- keys ----------------------------------------------------------------------------------------------------------


KEYS = {"rank": "rank-0123456789abcdef", "feedback": "feed-0123456789abcdef", "admin": "admn-0123456789abcdef"}
KEYS["read"] = "read-0123456789abcdef"
SCOPE_OF = scopes()


def routes() -> list[tuple[str, str]]:
    """(method, path) of everything that the service answers."""
    found = []
    for handler in ROUTES:
        for method in handler.http_methods:
            found += [(str(getattr(method, "value", method)), re.sub(r":\w+}", "}", path)) for path in handler.paths]
    return sorted(set(found))


def test_every_route_is_in_the_openapi_document(service: Service) -> None:
    document = fine(service.http.get("/openapi.json"))
    hidden = {("GET", path) for path in ("/", "/docs", "/openapi.json", "/rankloop.js")}
    listed = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert listed == set(routes()) - hidden
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
    assert "FeedbackEvent" in document["components"]["schemas"]
    assert document["info"]["title"] == "rankloop"


def test_on_loopback_without_keys_everything_is_open(service: Service) -> None:
    assert service.engine.keys.off
    assert service.http.get("/v1/rankers", headers={"authorization": "Bearer whatever"}).status_code == 200


def test_every_route_is_in_the_table_of_who_may_do_what() -> None:
    assert set(SCOPE_OF) == set(routes())


def test_every_route_asks_for_its_scope(tmp_path: Path) -> None:
    """As docs/access.md has it."""
    keys = ",".join(f"{token}:{scope}" for scope, token in KEYS.items())
    with Service(tmp_path / "keys.db", keys=keys) as locked:
        locked.ready()
        for method, path in routes():
            wanted = SCOPE_OF[method, path]
            url = path.replace("{name}", "nobody").replace("{user}", "ann").replace("{number}", "1")

            def ask(token: str | None, method: str = method, url: str = url, scheme: str = "Bearer") -> Any:
                headers = {} if token is None else {b"authorization": f"{scheme} {token}".encode("latin-1")}
                return locked.http.request(method, url, headers=headers)

            if wanted == "none":
                assert ask(None).status_code == 200
                continue
            if wanted == "token":  # it is in the body, of which there is none
                assert ask(None).status_code == ask(KEYS["admin"]).status_code == 400
                continue
            for response in (
                ask(None),
                ask("wrong-0123456789abcdef"),
                ask(KEYS["admin"], scheme="Basic"),
                ask("\xe4" * 9),
            ):
                refused(response, 401, error="not-authenticated")
                assert response.headers["www-authenticate"] == "Bearer"
            for scope, token in KEYS.items():
                response = ask(token)
                if wanted in (scope, "any") or (wanted, scope) == ("read", "admin"):
                    assert response.status_code not in (401, 403), (method, path, scope)
                else:
                    message = refused(response, 403, f"'{wanted}'", scope, error="not-allowed")
                    assert token not in message
            assert ask(KEYS[wanted] if wanted in KEYS else KEYS["rank"], scheme="bearer").status_code not in (401, 403)


def test_a_key_of_the_store_is_honoured_and_revoked_while_the_service_runs(tmp_path: Path) -> None:
    settings, token = Settings(store=str(tmp_path / "keys.db")), new_token()
    with Service(tmp_path / "keys.db") as one:
        one.ready().put("shop", learner="base")
        with opened(settings) as writer:
            assert writer.do(lambda c: stored.add(c, StoredKey(digest(token), "web", "rank+feedback", 0.0)))
        one.engine.cycle()
        key = {"authorization": f"Bearer {token}"}
        body = {"candidates": [{"id": 1}]}
        refused(one.http.post("/v1/rankers/shop/rank", json=body), 401)
        fine(one.http.post("/v1/rankers/shop/rank", json=body, headers=key))
        refused(one.http.get("/v1/rankers", headers=key), 403, "'read'")
        fine(one.http.get("/healthz"))
        with opened(settings) as writer:
            assert writer.do(lambda c: stored.delete(c, "web"))
        gone = "the key is unknown"
        until(lambda: gone in one.http.post("/v1/rankers/shop/rank", json=body, headers=key).text, "it to be gone")
        refused(one.http.post("/v1/rankers/shop/rank", json=body), 401)
    with Service(tmp_path / "keys.db") as again:
        refused(again.http.get("/v1/rankers"), 401)


def test_keys_of_the_settings_that_are_left_out_later_do_not_open_the_doors(tmp_path: Path) -> None:
    with Service(tmp_path / "keys.db", keys=f"{KEYS['admin']}:admin"):
        pass
    with Service(tmp_path / "keys.db") as later:
        refused(later.http.get("/v1/rankers"), 401)


def test_a_service_that_others_can_reach_needs_a_key(tmp_path: Path) -> None:
    store = str(tmp_path / "open.db")
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(InvalidParameter, match="API"):
            prepare(Settings(store=store, host=host))
    for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost"):
        prepare(Settings(store=store, host=host))
    prepare(Settings(store=store, host="0.0.0.0", keys=f"{KEYS['rank']}:rank"))
    with opened(Settings(store=store)) as writer:
        writer.do(lambda c: stored.add(c, StoredKey(digest(new_token()), "web", "rank", 0.0)))
    prepare(Settings(store=store, host="0.0.0.0"))


# -- the documents agree with the code -----------------------------------------------------------------------------


def test_the_example_in_the_docs_fits_the_wire() -> None:
    page = (ROOT / "docs" / "service.md").read_text("utf-8")
    blocks = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 3
    import msgspec

    spec = msgspec.json.decode(blocks[0], type=Spec)
    request = msgspec.json.decode(blocks[1], type=RankRequest)
    msgspec.json.decode(blocks[2], type=FeedbackEvent)
    assert spec.learner in LEARNERS
    assert len(Schema(spec).read(request).ids) == 2
    assert json.loads(blocks[1])["candidates"][1]["features"] == [7.2, 0.1, 20]
