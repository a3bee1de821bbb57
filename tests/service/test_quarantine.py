"""A learner that pauses or fails affects its own ranker only, and its ranker recovers by itself."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankloop.core.registry import learner_class
from rankloop.service.settings import Settings
from rankloop.service.storage import quarantine, rankers
from rankloop.service.supervisor.processes import Child, Supervisor
from rankloop.service.training.hang_detection import HangDetector, LearnerCall
from rankloop.service.training.learning import Learning
from rankloop.service.training.leases import Leases
from rankloop.service.worker.process import Process
from tests.service.app_fixtures import Service, items, names, until
from tests.service.experimenting import counted, start
from tests.service.stores import Store, shop, store

__all__ = ["shop", "store"]  # fixtures
PAIR = items(2, 2)


class Bad:
    """A learner whose methods pause until they are released, or raise, when the learning side calls them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._kind: Any = learner_class("greedy")
        self.released = threading.Event()

    def breaks(self, method: str, how: Callable[[], None]) -> None:
        real = getattr(self._kind, method, lambda *_: None)

        def broken(learner: Any, *arguments: Any, **more: Any) -> Any:
            places = [frame.filename.replace("\\", "/") for frame in traceback.extract_stack()]
            if not self.released.is_set() and any(
                re.search("/service/(training|maintenance)/", place) for place in places
            ):
                how()
            return real(learner, *arguments, **more)

        self._monkeypatch.setattr(self._kind, method, broken, raising=False)

    def pauses(self, method: str) -> None:
        self.breaks(method, lambda: cast(None, self.released.wait()))

    def raises(self, method: str, error: BaseException) -> None:
        def fail() -> None:
            raise error

        self.breaks(method, fail)


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bad]:
    monkeypatch.setattr(quarantine, "FIRST", 0.1, raising=False)
    made = Bad(monkeypatch)
    yield made
    made.released.set()


@pytest.fixture
def service(tmp_path: Path, bad: Bad) -> Iterator[Service]:
    """A service with rankers `bad` and `good`; windows of `bad` take half a second."""
    with Service(tmp_path / "store.db", learn_in="thread", learn_seconds=1.0) as running:
        running.ready()
        running.put("bad", learner="greedy", features=names(2), exposure="full", window_seconds=0.5)
        running.put("good", learner="pairrank", features=names(2), exposure="full")
        yield running
        bad.released.set()


def learning_of(service: Service) -> Learning:
    assert service.engine.learning is not None
    return service.engine.learning


def click(service: Service, name: str) -> None:
    assert service.report(service.rank(name, PAIR), ["i1"]) == "accepted"


def reload(service: Service, name: str) -> None:
    """Let the learning side load a ranker again."""
    until(lambda: name in learning_of(service).folds, "the ranker to be learned")
    learning_of(service).folds.pop(name).held = False


def check_recovers(service: Service, bad: Bad) -> None:
    """While `bad` is broken its windows close and `good` is learned; then `bad` is learned again."""
    before = service.status("bad")["closed_impressions"]
    for _ in range(3):
        service.rank("bad", PAIR)
    until(lambda: service.status("bad")["closed_impressions"] >= before + 3, "the windows to close")
    click(service, "good")
    service.settle("good")
    bad.released.set()
    click(service, "bad")
    until(lambda: service.status("bad")["unlearned_impressions"] == 0, "the ranker to be learned again")
    until(lambda: service.status("bad")["trouble"] is None, "the quarantine to end")
    assert service.status("bad")["learner_process"] == service.engine.worker
    assert learning_of(service).dead_threads() == []


# -- pauses --------------------------------------------------------------------------------------------------------


def test_a_pause_in_state_affects_its_own_ranker_and_recovers(service: Service, bad: Bad) -> None:
    bad.pauses("state")
    click(service, "bad")
    until(lambda: service.status("bad")["trouble"] is not None, "the pause to be noticed")
    check_recovers(service, bad)


def test_a_pause_in_load_affects_its_own_ranker_and_recovers(service: Service, bad: Bad) -> None:
    bad.pauses("load")
    reload(service, "bad")
    until(lambda: service.status("bad")["trouble"] is not None, "the pause to be noticed")
    check_recovers(service, bad)


def test_an_experiment_is_counted_while_its_ranker_is_in_quarantine(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST", 600.0, raising=False)
    number = start(service, "bad", share=1.0)["number"]
    row = service.engine.database.read(lambda c: rankers.get_ranker(c, "bad"))
    assert row is not None
    note = ("state", 0, "state hung", service.engine.clock(), 3, service.engine.worker)
    assert service.engine.writer.do(lambda c: quarantine.add_failure(c, row, *note))
    until(lambda: service.status("bad")["learner_process"] is None, "the lease to be given back")
    for _ in range(5):
        click(service, "bad")
    assert counted(service, "bad", number, 5)["lists"] == 5
    assert service.status("bad")["learned_impressions"] == 0


def test_quarantines_grow_up_to_a_limit_and_end_with_an_hour_of_rest(shop: Store) -> None:
    row = shop.row()

    def hangs(what: str = "state") -> float:
        shop.do(quarantine.add_failure, row, what, 0, f"{what} hung", shop.now, 3, "me")
        held = shop.see(quarantine.quarantined).get("shop")
        if held is None:
            return 0.0
        assert held.holds(row.revision, shop.now)
        assert held.holds(row.revision, held.end - 0.1)
        assert not held.holds(row.revision, held.end)
        assert not held.holds(row.revision + 1, shop.now)
        assert not held.holds(row.revision, shop.now - 1.0)  # the clock was set back
        return held.end - shop.now

    found = [hangs() for _ in range(10)]
    assert found[:3] == [quarantine.FIRST, 2 * quarantine.FIRST, 4 * quarantine.FIRST]
    assert found == sorted(found)
    assert found[-1] == quarantine.LONGEST
    shop.now += quarantine.FORGET + 1.0
    assert hangs() == quarantine.FIRST
    shop.do(quarantine.end_quarantine, "shop")
    assert shop.see(quarantine.failure_texts) == {}
    assert shop.see(quarantine.quarantined) == {}
    assert hangs() == 2 * quarantine.FIRST  # it has recovered, but not for long
    shop.now += quarantine.FORGET + 1.0
    assert [hangs("learn") > 0.0 for _ in range(3)] == [False, False, True]
    shop.do(quarantine.end_quarantine, "shop")
    assert "the outcome is skipped" in shop.see(quarantine.failure_texts)["shop"][1]


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), ValueError("no state")], ids=repr)
def test_an_error_in_state_affects_its_own_ranker(service: Service, bad: Bad, error: BaseException) -> None:
    bad.raises("state", error)
    click(service, "bad")
    until(lambda: service.metric("rankloop_learn_errors_total", ranker="bad") >= 2, "it to fail again")
    check_recovers(service, bad)


def test_an_error_in_load_affects_its_own_ranker(service: Service, bad: Bad) -> None:
    bad.raises("load", SystemExit())
    reload(service, "bad")
    until(lambda: service.status("bad")["learner_process"] is None, "the lease to be given back")
    service.put("later", learner="pairrank", features=names(2), exposure="full")
    click(service, "later")
    service.settle("later")
    check_recovers(service, bad)


def test_an_error_in_explain_affects_its_own_ranker(service: Service, bad: Bad) -> None:
    bad.raises("explain", SystemExit())
    for _ in range(3):
        click(service, "bad")
        click(service, "good")
    service.settle("bad")
    service.engine.maintenance.reports.record_lag()
    check_recovers(service, bad)


def test_a_thread_that_fails_begins_again_and_is_counted(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = learning_of(service)
    real = learning.catch_up

    def fail(_: bool = False) -> None:
        monkeypatch.setattr(learning, "catch_up", real)
        raise SystemExit

    monkeypatch.setattr(learning, "catch_up", fail)
    click(service, "good")
    service.settle("good")
    assert learning.dead_threads() == []
    until(lambda: service.metric("rankloop_thread_failures_total", thread="learning") == 1, "it to be counted")


def test_dead_threads_are_reported_while_the_process_should_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Service(tmp_path / "store.db", learn_in="thread") as service:
        learning = learning_of(service)
        assert service.engine.dead_threads() == []
        monkeypatch.setattr(learning._heartbeats, "_run", lambda: None)
        learning._heartbeats.replace()
        until(lambda: service.engine.dead_threads() == ["heartbeat"], "it to be noticed")
    assert learning.dead_threads() == []


# -- the whole process stands still --------------------------------------------------------------------------------


def test_time_in_which_the_whole_process_stood_still_is_not_the_learners(shop: Store) -> None:
    now = [0.0]
    hung: list[LearnerCall] = []
    process = SimpleNamespace(
        settings=Settings(learn_seconds=5.0, lease_seconds=3.0, refresh_seconds=1.0),
        database=shop.database,
        thread_failed=lambda _: None,
        worker="me",
    )
    detector = HangDetector(cast(Process, process), lambda: now[0])
    detector.on_hang = hung.append

    def tick() -> None:
        now[0] += 1.0
        detector.look()

    with detector.call(shop.row(), "state", 0):
        tick()
        now[0] += 100.0  # neither the learner nor the watch ran
        assert detector.hanging() == []
        detector.look()
        assert (detector.hanging(), hung) == ([], [])
        for _ in range(6):
            tick()
        assert [call.what for call in hung] == ["state"]
        assert detector.hanging_rankers() == {"shop"}
        tick()
        assert len(hung) == 1
    assert detector.hanging_rankers() == set()


def test_a_pause_of_the_machine_is_not_a_process_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("rankloop.service.supervisor.processes.os.kill", lambda pid, _: killed.append(pid))
    nothing: Any = print
    supervisor = Supervisor(Settings(watchdog_seconds=5.0, learn=False), [], nothing, nothing)
    child: Any = SimpleNamespace(name="a process", last_heartbeat=10.0, pid=77)
    for now in (10.0, 10.1, 100.0, 100.1):  # a pause of 90 seconds
        supervisor._notice_pause(now)
        supervisor._kill_if_hanging(cast(Child, child), now)
    assert killed == []
    for tenth in range(1002, 1060):
        supervisor._notice_pause(tenth / 10)
        supervisor._kill_if_hanging(cast(Child, child), tenth / 10)
    assert set(killed) == {77}


# -- windows without a learner -------------------------------------------------------------------------------------


def test_windows_close_without_a_process_that_learns(tmp_path: Path) -> None:
    with Service(tmp_path / "store.db", learn=False) as service:
        service.ready().put("shop", learner="pairrank", features=names(2), exposure="full", window_seconds=0.2)
        for _ in range(3):
            service.rank("shop", PAIR)
        until(lambda: service.status("shop")["closed_impressions"] == 3, "the windows to close")
        status = service.status("shop")
        assert (status["open_impressions"], status["learned_impressions"], status["learner_process"]) == (0, 0, None)


def test_who_is_in_charge_of_what_nobody_learns(shop: Store) -> None:
    now = [0.0]
    process: Any = SimpleNamespace(
        worker="host:2:b", machine="host", writer=shop.writer, settings=Settings(lease_seconds=3.0)
    )
    leases = Leases(process, lambda: now[0])

    def charged(**workers: tuple[int, bool]) -> bool:
        mine = {"host:2:b": ("host", 0, False)}
        leases.look_around(mine | {name: ("other", beat, learns) for name, (beat, learns) in workers.items()})
        return leases.in_charge

    assert charged()
    assert not charged(a=(0, False))  # the first of several
    assert charged(z=(0, False))
    assert not charged(z=(1, True))  # somebody learns
    now[0] = 4.0
    assert charged(z=(1, True))  # whose heartbeat stands still
    assert not charged(z=(2, True))
