"""No learner can hurt: one that misbehaves gives the caller's own order, and what is shown stays within the bound."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.core.registry import LEARNERS
from rankloop.service.serving.live_ranker import THREADS
from rankloop.service.worker.hang_supervisor import MOST_HANGING
from tests.service import misbehaving
from tests.service.app_fixtures import (
    Service,
    check_bounded,
    items,
    model_of,
    names,
    service,
    shown,
    teach,
    until,
)
from tests.service.misbehaving import HARMLESS, RUBBISH, Hangs
from tests.service.running import PATIENCE

__all__ = ["service"]  # a fixture

LEARNING = [name for name, entry in LEARNERS.items() if entry.learns]
WIDTH = 3


# -- learners that fail --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows the misbehaving learners."""
    with pytest.MonkeyPatch.context() as patch:
        misbehaving.install(patch)
        with Service(tmp_path_factory.mktemp("odd") / "odd.db") as running:
            yield running.ready()


@pytest.fixture
def quiet() -> Iterator[None]:
    """What these learners do is logged, at length."""
    logger = logging.getLogger("rankloop")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def check_fallback(service: Service, name: str, reason: str, n: int = 6, **more: Any) -> Any:
    """Ask for a ranking that must be the base order for this reason; its feedback is taken but not learned."""
    answer = service.rank(name, items(n, WIDTH), **more)
    assert (answer["fallback"], answer["reason"]) == (True, reason)
    assert shown(answer) == [f"i{i}" for i in range(min(n, 10))]
    assert [item["score"] for item in answer["items"]] == [None] * len(answer["items"])
    learned = service.metric("rankloop_learned_total", ranker=name)
    outcomes = service.settle(name)
    assert service.report(answer, ["i1"]) == "accepted"
    assert service.settle(name) == outcomes + 1
    assert service.metric("rankloop_learned_total", ranker=name) == learned
    return answer


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", misbehaving.ERRORS)
@pytest.mark.parametrize("where", ["rank", "best", "adopt"])
def test_failing_learners_give_the_baseline_ranking(odd: Service, where: str, what: str) -> None:
    reason = "timeout" if what == "timeout" else "error"
    for exposure in ("full", "bounded", "shadow"):
        name = f"raise-{where}-{what}-{exposure}"
        parameters = {"where": where, "what": what}
        odd.put(name, learner="raises", parameters=parameters, exposure=exposure, displacement=1)
        used = {"rank": ("full", "bounded"), "best": ("full", "bounded"), "adopt": ("bounded", "shadow")}[where]
        if exposure in used:
            check_fallback(odd, name, reason)
            assert sum(odd.status(name)["fallbacks"].values()) == 1
            assert odd.metric("rankloop_rank_fallbacks_total", ranker=name, reason=reason) == 1
        else:
            assert not odd.rank(name, items(6))["fallback"]
    assert odd.engine.rankers[name].hanging == 0


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", [what for what in misbehaving.ERRORS if what != "memory"])
def test_unlearnable_outcomes_are_skipped(odd: Service, what: str) -> None:
    name = f"learn-{what}"
    odd.put(name, learner="raises", parameters={"where": "learn", "what": what}, exposure="full")
    answers = [odd.rank(name, items(4), query=query) for query in ("a", "poison", "b", "poison", "c")]
    for answer in answers:
        assert odd.report(answer, ["i0"]) == "accepted"
    assert odd.settle(name) == 5
    assert model_of(odd.engine.rankers[name]).learner.state()["learned_"][0] == 3
    assert odd.metric("rankloop_learned_total", ranker=name) == 3
    assert odd.metric("rankloop_learn_errors_total", ranker=name) == 2


@pytest.mark.usefixtures("quiet")
def test_outcomes_wait_while_memory_is_short(odd: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little memory is not the outcome's fault: passing it over would make this fold another than a replay."""
    odd.put("memory", learner="raises", parameters={"where": "learn", "what": "memory"}, exposure="full")
    for query in ("a", "poison", "b"):
        assert odd.report(odd.rank("memory", items(4), query=query), ["i0"]) == "accepted"
    until(lambda: odd.status("memory")["learned_impressions"] == 1)
    time.sleep(0.5)
    assert odd.status("memory")["unlearned_impressions"] == 2
    monkeypatch.setattr(misbehaving.Raises, "_raise", lambda *_: None)
    assert odd.settle("memory") == 3
    assert model_of(odd.engine.rankers["memory"]).learner.state()["learned_"][0] == 3


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", RUBBISH)
@pytest.mark.parametrize("where", ["rank", "adopt"])
def test_invalid_rankings_are_not_shown(odd: Service, where: str, kind: str) -> None:
    for exposure in ("full", "bounded") if where == "rank" else ("bounded", "shadow"):
        name = f"rubbish-{where}-{kind}-{exposure}"
        parameters = {"kind": kind, "where": where}
        odd.put(name, learner="rubbish", parameters=parameters, exposure=exposure, displacement=1)
        check_fallback(odd, name, "error")


@pytest.mark.parametrize("kind", HARMLESS)
@pytest.mark.parametrize("where", ["rank", "adopt"])
def test_items_shown_come_from_the_request(odd: Service, where: str, kind: str) -> None:
    """A ranking with odd things around it is a ranking; nothing of what is around it reaches the user."""
    exposure = "full" if where == "rank" else "shadow"
    name = f"harmless-{where}-{kind}"
    odd.put(name, learner="rubbish", parameters={"kind": kind, "where": where}, exposure=exposure)
    answer = odd.rank(name, items(5))
    assert not answer["fallback"]
    assert shown(answer) == ["i0", "i1", "i2", "i3", "i4"]
    assert odd.report(answer, ["i3"]) == "accepted"
    odd.settle(name)
    assert odd.metric("rankloop_learned_total", ranker=name) == 1


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", RUBBISH)
def test_the_bound_holds_for_any_best_order(odd: Service, kind: str) -> None:
    for exposure, n, s in (("bounded", 9, 1), ("bounded", 40, 3), ("full", 6, 0)):
        name = f"best-{kind}-{exposure}"
        parameters = {"kind": kind, "where": "best"}
        odd.put(name, learner="rubbish", parameters=parameters, exposure=exposure, displacement=s)
        answer = odd.rank(name, items(n))
        if exposure == "bounded":
            check_bounded([f"i{i}" for i in range(n)], shown(answer), 10, s)
        assert len(set(shown(answer))) == min(n, 10)
        assert odd.report(answer, ["i1"]) == "accepted"


@pytest.mark.usefixtures("quiet")
def test_adopting_another_order_gives_the_baseline(odd: Service) -> None:
    for exposure in ("bounded", "shadow"):
        for in_place in (False, True):
            name = f"disobedient-{exposure}-{in_place}"
            odd.put(name, learner="disobedient", parameters={"in_place": in_place}, exposure=exposure, displacement=1)
            check_fallback(odd, name, "error")


@pytest.mark.usefixtures("quiet")
def test_nan_scores_become_null(odd: Service) -> None:
    for exposure in ("full", "bounded", "shadow"):
        odd.put("nan", learner="notanumber", features=names(WIDTH), exposure=exposure)
        answer = odd.rank("nan", items(6), explain=True)
        assert not answer["fallback"]
        assert [item["score"] for item in answer["items"]] == [None] * 6
        assert odd.report(answer, ["i1"]) == "accepted"


@pytest.mark.usefixtures("quiet")
def test_learners_cannot_change_the_request(odd: Service) -> None:
    odd.put("vandal", learner="vandal", features=names(WIDTH), exposure="full")
    body = {"candidates": items(5), "request_id": "r"}
    first = odd.http.post("/v1/rankers/vandal/rank", json=body)
    assert first.status_code == 200
    assert odd.http.post("/v1/rankers/vandal/rank", json=body).content == first.content
    assert odd.report(first.json(), ["i1"]) == "accepted"
    odd.settle("vandal")


# -- learners that hang --------------------------------------------------------------------------------------------


@pytest.fixture
def held_up() -> Iterator[Callable[[], None]]:
    """While learners hang; call it to let them go."""
    Hangs.free.clear()
    yield Hangs.free.set
    Hangs.free.set()


@pytest.mark.usefixtures("quiet")
def test_hanging_learners_do_not_stop_requests(odd: Service, held_up: Callable[[], None]) -> None:
    odd.put("hangs", learner="hangs", exposure="full", timeout_ms=1000.0)
    odd.put("other", learner="pdgd", features=names(WIDTH), exposure="full")
    live, threads = odd.engine.rankers["hangs"], threading.active_count()
    assert not odd.rank("hangs", items(6))["fallback"]
    for hung in range(1, MOST_HANGING + 1):
        answer = odd.rank("hangs", items(6), query="hang")  # while the learner is held up
        assert (answer["fallback"], answer["reason"]) == (True, "timeout")
        assert shown(answer) == [f"i{i}" for i in range(6)]
        assert live.hanging == hung
        if hung < MOST_HANGING:  # a request that does not hang is answered, though another one of this ranker does
            assert not odd.rank("hangs", items(6))["fallback"]
    check_fallback(odd, "hangs", "hanging")  # not asked any more, and nothing is learned of it
    for _ in range(5):
        assert odd.rank("hangs", items(6), query="hang")["reason"] == "hanging"
    assert odd.metric("rankloop_rank_fallbacks_total", ranker="hangs", reason="timeout") == MOST_HANGING
    assert odd.metric("rankloop_rank_fallbacks_total", ranker="hangs", reason="hanging") == 6

    teach(odd, "other", 3)  # all others rank and learn meanwhile
    for path in ("/healthz", "/readyz", "/v1/rankers/hangs", "/metrics"):
        assert odd.http.get(path).status_code == 200
    odd.act("hangs", "versions")

    held_up()
    until(lambda: live.hanging == 0, "the threads to come back")
    assert not odd.rank("hangs", items(6), query="hang")["fallback"]
    until(lambda: threading.active_count() <= threads + 3, "the threads to end")


@pytest.mark.usefixtures("quiet")
def test_learning_continues_while_a_request_hangs(odd: Service, held_up: Callable[[], None]) -> None:
    """Learning, keeping a version and saving wait for nobody who ranks."""
    odd.put("hangs-learn", learner="hangs", exposure="full", timeout_ms=1000.0)
    fine = odd.rank("hangs-learn", items(4))
    answers: list[Any] = []
    hanging = threading.Thread(target=lambda: answers.append(odd.rank("hangs-learn", items(4), query="hang")))
    hanging.start()
    live = odd.engine.rankers["hangs-learn"]
    until(lambda: bool(live._inside), "the thread to hang")
    assert odd.report(fine, ["i2"]) == "accepted"
    hanging.join(PATIENCE)
    assert answers[0]["reason"] == "timeout"
    assert odd.settle("hangs-learn") == 1
    odd.put("hangs-bystander", learner="greedy", features=names(WIDTH), exposure="full")
    teach(odd, "hangs-bystander", 2)
    assert odd.act("hangs-learn", "versions")["learned_impressions"] == 1
    held_up()
    until(lambda: live.hanging == 0)


@pytest.mark.usefixtures("quiet")
def test_learners_that_hang_at_start_do_not_stop_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_up: Callable[[], None]
) -> None:
    """It hangs while it is warmed up, when it is made and when the service starts again."""
    misbehaving.install(monkeypatch)
    for _ in range(2):
        with Service(tmp_path / "hang.db", compile_seconds=0.3) as one:
            one.ready().put_cold("hangs", learner="hangs", parameters={"always": True}, exposure="full")
            assert one.http.get("/readyz").json()["reasons"][0]["rankers"] == ["hangs"]
            one.put("fine", learner="base", exposure="full")
            assert one.rank("hangs", items(3))["reason"] == "compiling"
            until(lambda: not one.rank("fine", items(3))["fallback"])
            one.engine.cycle()
    held_up()


@pytest.mark.usefixtures("quiet")
def test_queued_requests_do_not_count_as_hanging(odd: Service, held_up: Callable[[], None]) -> None:
    """A crowd is not a hang: once it has gone, the learner is asked again."""
    odd.put("crowd", learner="hangs", exposure="full", timeout_ms=100.0)
    until(lambda: not odd.rank("crowd", items(3))["fallback"])
    live = odd.engine.rankers["crowd"]
    busy, begun = threading.Event(), threading.Barrier(THREADS + 1)

    def keep_busy() -> None:
        begun.wait(PATIENCE)
        busy.wait(PATIENCE)

    others = [threading.Thread(target=lambda: asyncio.run(live.pool.run(keep_busy, PATIENCE))) for _ in range(THREADS)]

    def ask() -> None:
        assert odd.rank("crowd", items(3))["reason"] == "timeout"

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in others:
        thread.start()
    begun.wait(PATIENCE)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.hanging == 0
    busy.set()
    for thread in others:
        thread.join()
    until(lambda: live.hanging == 0, "the threads to come back")
    until(lambda: not odd.rank("crowd", items(3))["fallback"], "the learner to be asked again")
    held_up()


# -- and the service says so ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_a_damaged_ranker_does_not_stop_other_rankers(tmp_path: Path) -> None:
    store = tmp_path / "damaged.db"
    with Service(store) as one:
        one.ready().put("fine", learner="greedy", features=names(WIDTH), exposure="full")
        one.put("broken", learner="greedy", features=names(WIDTH), exposure="full")
        one.engine.writer.do(lambda c: c.run("UPDATE snapshots SET state = ? WHERE ranker = 'broken'", b"rubbish"))
    with Service(store) as again:
        again.ready()
        teach(again, "fine", 2)
        answer = again.rank("broken", items(3))  # whatever happens, rank answers
        assert (answer["fallback"], answer["reason"], shown(answer)) == (True, "damaged", ["i0", "i1", "i2"])
        assert again.report(answer, ["i1"]) == "accepted"
        assert "'broken'" in again.status("broken")["trouble"]
        assert again.status("fine")["trouble"] is None
        again.put("new", learner="base")
        assert [ranker["name"] for ranker in again.http.get("/v1/rankers").json()] == ["broken", "fine", "new"]
        assert again.http.delete("/v1/rankers/broken").status_code == 204
