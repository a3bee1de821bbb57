"""Who learns: several processes share the rankers, a dead one is replaced, nothing is lost and no bit differs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rankloop.service.control import rankers, versions
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import NewEvent, leases
from rankloop.wire.calls import FeedbackEvent, RankAnswer
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import model_of
from tests.service.conftest import Postgres
from tests.service.running import LOST, PATIENCE, SPEC, Load, Service, rank_request, wait_for
from tests.service.truths import check_log, check_state, read, sent_id, snapshot_of

Start = Callable[..., Service]
LEASE = 5.0  # seconds: on a busy machine a beat comes late, but not so late


def holders(url: str) -> dict[str, int]:
    """Ranker -> the process that learns it."""
    return {name: int(holder.split(":")[1]) for name, holder in read(url, "SELECT ranker, holder FROM leases")}


def services(url: str) -> dict[str, int]:
    """Ranker -> the service whose process learns it."""
    return {name: parent(pid) for name, pid in holders(url).items()}


def parent(pid: int) -> int:
    """Who started a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def learned(version: str) -> int:
    return int(version.removeprefix("live@"))


# -- processes that share a PostgreSQL -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_learner_is_replaced(postgres: Postgres, start_service: Start) -> None:
    url = postgres.database()
    rankers = ["r1", "r2", "r3", "r4"]
    shared = {"store": url, "lease_seconds": 5, "refresh_seconds": 0.3}
    first = start_service(**shared, learn=1)
    for ranker in rankers:
        first.put_ranker(ranker)
    assert wait_for(lambda: len(holders(url)) == 4, "all to be learned")  # alone it learns all
    second = start_service(**shared, learn=1)
    only_ranks = start_service(**shared, learn=0)

    def fair() -> bool:
        return Counter(services(url).values()) == {first.pid: 2, second.pid: 2}

    wait_for(fair, "each of the two that learn to have its share")
    before = services(url)
    victim = min(ranker for ranker in rankers if before[ranker] == first.pid)
    other = min(ranker for ranker in rankers if before[ranker] == second.pid)
    loads = {
        victim: [Load("through the second", second.port, victim), Load("through the third", only_ranks.port, victim)],
        other: [Load("other", only_ranks.port, other, pause=0.01)],
    }
    everyone = [load for some in loads.values() for load in some]
    for load in everyone:
        load.start()
    third = loads[victim][1]
    wait_for(lambda: any(learned(v) > 20 for v in third.versions), "snapshots to reach the process that only ranks")
    now = services(url)  # those that have nothing to learn may go where less is to be done, these stay
    assert (now[victim], now[other]) == (first.pid, second.pid)

    first.kill()
    wait_for(lambda: list(services(url).values()) == [second.pid] * 4, "the leases to be taken")
    reached = max(learned(version) for version in third.versions)
    wait_for(lambda: learned(third.versions[-1]) > reached + 20, "learning to go on")
    for load in everyone:
        load.end()
        assert load.refused == load.unranked == []
        assert set(load.reasons) <= {"compiling"}
        # What a process ranks with never goes back.
        made = [learned(version) for version in load.versions]
        assert made == sorted(made)

    def settled() -> bool:
        found = [second.status(ranker) for ranker in rankers]
        return all(one["unlearned_impressions"] == 0 and one["open_impressions"] == 0 for one in found)

    wait_for(settled, "all to be learned")
    assert only_ranks.stop() == 0
    assert second.stop() == 0
    for ranker, some in loads.items():
        head = check_log(url, ranker, some)
        assert check_state(url, ranker) == head
    assert read(url, "SELECT * FROM leases") == []


@pytest.mark.slow
def test_one_of_two_hot_rankers_moves_to_the_other_process(postgres: Postgres, start_service: Start) -> None:
    """While feedback comes to both: by what they take, not by their number, and nothing is lost or learned twice."""
    url = postgres.database()
    shared = {"store": url, "lease_seconds": 5, "refresh_seconds": 0.3}
    first = start_service(**shared)
    for ranker in ("r1", "r2", "r3", "r4"):
        first.put_ranker(ranker)
    second = start_service(**shared)
    wait_for(lambda: Counter(services(url).values()) == {first.pid: 2, second.pid: 2}, "each to have its share")
    hot = sorted(ranker for ranker, pid in services(url).items() if pid == first.pid)
    loads = {ranker: [Load(f"{ranker}-{i}", second.port, ranker) for i in range(2)] for ranker in hot}
    everyone = [load for some in loads.values() for load in some]
    for load in everyone:
        load.start()
    wait_for(lambda: {services(url).get(ranker) for ranker in hot} == {first.pid, second.pid}, "one of them to move")
    moved = next(ranker for ranker in hot if services(url).get(ranker) == second.pid)
    reached = max(learned(version) for version in loads[moved][0].versions)
    wait_for(lambda: learned(loads[moved][0].versions[-1]) > reached + 200, "it to be learned there")
    assert {services(url).get(ranker) for ranker in hot} == {first.pid, second.pid}  # and it stays
    for load in everyone:
        load.end()
        assert load.refused == load.unranked == []
        made = [learned(version) for version in load.versions]
        assert made == sorted(made)
    wait_for(
        lambda: all(
            second.status(ranker)["unlearned_impressions"] == second.status(ranker)["open_impressions"] == 0
            for ranker in hot
        ),
        "all to be learned",
    )
    assert first.stop() == second.stop() == 0
    for ranker, some in loads.items():
        assert check_state(url, ranker) == check_log(url, ranker, some)


# -- engines in this process: machines that cannot see each other's processes ---------------------------------------


def engine_of(url: str, machine: str) -> Engine:
    settings = Settings(
        store=url, lease_seconds=LEASE, refresh_seconds=0.1, snapshot_seconds=0.05, store_timeout_ms=PATIENCE * 1e3
    )
    engine = Engine(settings)
    engine.machine = machine
    engine.worker = f"{machine}:1:test"  # process 1 runs on every machine; only the name tells them apart
    return engine


@pytest.fixture
def engines(store_url: str) -> Iterator[Callable[[str], Engine]]:
    """Starts engines that believe to be on different machines."""
    interval, started = sys.getswitchinterval(), []

    def start(machine: str) -> Engine:
        engine = engine_of(store_url, machine)
        engine.start()
        started.append(engine)
        assert engine.kernels_ready.wait(PATIENCE)
        return engine

    yield start
    for engine in started:
        if not engine.draining:
            engine.stop()
    sys.setswitchinterval(interval)


def use(engine: Engine, rounds: int, ranker: str = "shop", **fields: str) -> list[str]:
    """Rank and click; the events' ids."""
    made = []

    async def story() -> None:
        for i in range(rounds):
            request = msgspec.json.encode(rank_request(random.Random(i)) | fields)
            answer = msgspec.json.decode(await engine.rank(ranker, request), type=RankAnswer)
            event = FeedbackEvent(
                f"e-{answer.impression_id}", str(answer.impression_id), [answer.items[1].id], final=True
            )
            found = await engine.feedback([NewEvent(event, msgspec.json.encode(event))])
            assert [receipt.status for receipt in found.receipts] in (["accepted"], ["late"])
            made.append(event.event_id)

    asyncio.run(story())
    return made


def holds(engine: Engine, ranker: str = "shop") -> bool:
    assert engine.learning is not None
    fold = engine.learning.folds.get(ranker)
    return fold is not None and fold.held


def fall_silent(engine: Engine) -> None:
    """As a machine that hangs: its learner goes on, its beat stands still."""
    assert engine.learning is not None
    engine.learning._lease_thread.stop()
    engine.learning._heartbeats.stop()
    engine.follower.stop()


@pytest.mark.slow
def test_a_silent_learner_on_another_machine_is_replaced(store_url: str, engines: Callable[[str], Engine]) -> None:
    one = engines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    assert holds(one)
    two = engines("there/2")
    sent = use(one, 10)
    time.sleep(1.5 * LEASE)
    assert holds(one)  # it beats: nobody takes its lease, however long it holds it
    assert not holds(two)

    fall_silent(one)
    sent += use(two, 10)
    wait_for(lambda: holds(two), "the lease to be taken")
    sent += use(two, 10) + use(one, 10)  # which does not know yet that it is not to learn
    wait_for(lambda: model_of(two.rankers["shop"]).learned == 40, "all to be learned")
    wait_for(lambda: snapshot_of(store_url, "shop").seq == 40, "a snapshot")
    one.cycle()  # it wakes up, and sees
    assert not holds(one)
    assert holds(two)
    wait_for(lambda: model_of(one.rankers["shop"]).learned == 40, "the snapshot to be loaded")
    assert model_of(one.rankers["shop"]).state() == model_of(two.rankers["shop"]).state()
    assert rankers.status(one, "shop").learner_process == two.worker
    assert check_state(store_url, "shop") == 40
    assert {sent_id(row[0]) for row in read(store_url, "SELECT event_id FROM events")} == set(sent)


def test_who_takes_over_goes_on_from_the_last_snapshot(store_url: str, engines: Callable[[str], Engine]) -> None:
    """What a snapshot covers may be deleted, so a successor with an older state must not begin there."""
    one = engines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = engines("there/2")
    use(one, 5)
    wait_for(lambda: model_of(two.rankers["shop"]).learned == 5, "the other to follow")
    fall_silent(two)  # it sees nothing of what comes now
    use(one, 10, user="ann")
    wait_for(lambda: snapshot_of(store_url, "shop").seq == 15, "a snapshot")
    assert rankers.erase_user(one, "ann").impressions == 10
    one.stop()

    two.cycle()  # sees a lease that nobody has, and takes it at once
    assert holds(two)
    use(two, 5)
    wait_for(lambda: model_of(two.rankers["shop"]).learned == 20, "learning to go on")
    assert b"learn_errors_total" not in two.report()


def test_leases_are_given_back_at_the_end(engines: Callable[[str], Engine]) -> None:
    one = engines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    use(one, 5)
    two = engines("there/2")
    fall_silent(two)
    one.stop()
    two.cycle()  # need not wait for a beat to stand still
    assert holds(two)
    wait_for(lambda: model_of(two.rankers["shop"]).learned == 5, "learning to go on")
    assert set(two.database.read(leases.list_workers)) == {two.worker}


def test_a_reset_by_a_process_that_does_not_learn(store_url: str, engines: Callable[[str], Engine]) -> None:
    one = engines("here/1")
    rankers.put(one, "shop", Spec(**SPEC))
    two = engines("there/2")
    use(one, 20)
    ((epoch, before),) = read(
        store_url, "SELECT r.epoch, h.next_seq FROM rankers r JOIN log_offsets h ON h.ranker = r.name"
    )
    versions.reset(two, "shop")
    use(two, 10)
    use(one, 10)  # which may not know of it yet: what it shows then is late
    wait_for(lambda: one.rankers["shop"].row.epoch == epoch + 1, "the learner to notice")
    use(one, 10)
    use(two, 10)
    wait_for(lambda: rankers.status(one, "shop").unlearned_impressions == 0, "all to be learned")
    wait_for(lambda: snapshot_of(store_url, "shop").seq == rankers.status(one, "shop").closed_impressions, "a snapshot")
    # Only lists of the new epoch are in it, all of them, from a fresh learner on.
    found = read(
        store_url,
        "SELECT o.seq, i.epoch, o.learn FROM outcomes o JOIN impressions i ON i.id = o.impression_id "
        "WHERE o.seq >= ? ORDER BY o.seq",
        before,
    )
    assert [row[0] for row in found] == list(range(before, before + len(found)))
    assert all(row[1:] in ((epoch + 1, 1), (epoch, 0)) for row in found)
    assert sum(row[2] for row in found) >= 30
    assert check_state(store_url, "shop", since=before) == before + len(found)


# -- workers that share a port -------------------------------------------------------------------------------------


def workers(url: str) -> set[int]:
    return {int(row[0].split(":")[1]) for row in read(url, "SELECT id FROM workers")}


@contextmanager
def asking(service: Service, ranker: str, threads: int = 3) -> Iterator[list[Load]]:
    loads = [Load(f"load{i}", service.port, ranker) for i in range(threads)]
    for load in loads:
        load.start()
    yield loads
    for load in loads:
        load.end()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks for worker processes in /proc")
def test_workers_share_a_port(tmp_path: Path, start_service: Start) -> None:
    url = str(tmp_path / "store.db")
    service = start_service(store=url, workers=2, lease_seconds=5, refresh_seconds=0.3)
    service.put_ranker("shop")
    wait_for(lambda: len(workers(url)) == 3, "two that rank and one that learns")
    wait_for(lambda: len(holders(url)) == 1, "it to learn")

    def served() -> set[int]:
        """Workers that have answered rankings."""
        text = service.ask("GET", "/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith("rankloop_rank_requests_total")]
        return {int(line.partition('worker="')[2].partition('"')[0]) for line in lines}

    def hello() -> bool:
        service.ask("POST", "/v1/rankers/shop/rank", rank_request(random.Random(0)))
        return served() >= workers(url) - set(holders(url).values())

    with asking(service, "shop") as loads:
        wait_for(hello, "both to have answered")
        learner = holders(url)["shop"]
        for victim in (learner, min(workers(url) - {learner})):
            assert parent(victim) == service.pid
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: len(workers(url)) == 3 and victim not in workers(url), "the supervisor to start another")  # noqa: B023
            before = len(loads[0].acknowledged)
            wait_for(lambda: len(loads[0].acknowledged) > before + 20, "the service to go on")  # noqa: B023
        assert holders(url)["shop"] not in (0, learner)
    for load in loads:
        assert load.refused == load.unranked == []

    def settled() -> bool:
        status = service.status("shop")
        return bool(status["unlearned_impressions"] == 0 and status["open_impressions"] == 0)

    wait_for(settled, "all to be learned")
    alive = workers(url)
    assert service.stop() == 0, service.log()
    for pid in alive:
        assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(LOST):
        service.ask("GET", "/healthz")
    head = check_log(url, "shop", loads)
    assert check_state(url, "shop") == head
