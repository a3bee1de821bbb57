"""Killed again and again under load: what was acknowledged is there, once, and what was learned is bit-equal."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.running import LOST, Load, Service, wait_for
from tests.service.truths import check_log, check_state, read, refolded, snapshot_of

LIFE = (0.05, 0.4)  # seconds between some feedback and SIGKILL


KILLS = int(os.environ.get("RANKLOOP_KILLS", "4"))  # over both stores and both settings four times as many


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path, start_service: Callable[..., Service]) -> None:
    kill_again_and_again(1, "feedback", str(tmp_path / "store.db"), start_service)


@pytest.mark.slow
@pytest.mark.timeout(1200 + 30 * KILLS)
@pytest.mark.parametrize("durability", ["feedback", "everything"])
def test_kill_nine(durability: str, store_url: str, start_service: Callable[..., Service]) -> None:
    kill_again_and_again(KILLS, durability, store_url, start_service)


def kill_again_and_again(kills: int, durability: str, store_url: str, start_service: Callable[..., Service]) -> None:
    # Snapshots at every look: kills fall before, into and after one, and between it and the log.
    fast = {"snapshot_seconds": 0.05, "refresh_seconds": 0.05}
    service = start_service(store=store_url, durability=durability, **fast)
    service.put_ranker("shop")
    rng = random.Random(store_url[:6])
    loads = [Load(f"load{i}", service.port) for i in range(2)]
    for load in loads:
        load.start()
    lengths, replayed, turns = [], 0, 2 + len(loads)
    for _ in range(kills):
        enough = sum(len(load.acknowledged) for load in loads) + turns
        wait_for(lambda n=enough: sum(len(load.acknowledged) for load in loads) > n, "feedback")  # type: ignore[misc]
        time.sleep(rng.uniform(*LIFE))
        service.kill()
        ((head,),) = read(store_url, "SELECT next_seq FROM log_offsets")
        lengths.append(int(head))
        replayed += int(head) - snapshot_of(store_url, "shop").seq
        service.start()
    enough = sum(len(load.acknowledged) for load in loads) + turns
    wait_for(lambda: sum(len(load.acknowledged) for load in loads) > enough, "feedback")
    for load in loads:
        load.end()

    # The load was real, and the kills hit it: outcomes, something to replay in some of many lives, connections cut.
    assert lengths[-1] > 0
    assert replayed > 0 or kills < 20
    assert sum(load.lost for load in loads) >= kills
    assert [answer.body for load in loads for answer in load.refused + load.unranked] == []

    def settled() -> bool:
        status = service.status("shop")
        return bool(status["open_impressions"] == 0 and status["unlearned_impressions"] == 0)

    wait_for(settled, "the last windows to close and all to be learned")
    assert service.stop() == 0, service.log()
    head = check_log(store_url, "shop", loads)
    assert snapshot_of(store_url, "shop").seq == head  # a drain saves at the head
    assert check_state(store_url, "shop") == head
    seq, state = refolded(store_url, "shop")
    assert (seq, state) == (head, snapshot_of(store_url, "shop").state)
    statuses = {status for load in loads for found in load.acknowledged.values() for status in found}
    assert "accepted" in statuses


@pytest.mark.slow
def test_a_drain_finishes_what_it_has_begun(store_url: str, start_service: Callable[..., Service]) -> None:
    service = start_service(store=store_url, snapshot_seconds=1000)
    service.put_ranker("shop", window_seconds=1000)
    loads = [Load(f"load{i}", service.port) for i in range(4)]
    for load in loads:
        load.start()
    wait_for(lambda: all(len(load.acknowledged) > 5 for load in loads), "feedback")
    assert service.stop() == 0, service.log()
    for load in loads:
        load.end()
    head = check_log(store_url, "shop", loads)
    assert head > 0
    assert check_state(store_url, "shop") == head
    for load in loads:  # refused, if at all, in words: whoever is told so sends it to another process
        assert all(answer.status == 503 for answer in load.refused + load.unranked)
    assert read(store_url, "SELECT * FROM leases") == []
    assert read(store_url, "SELECT id FROM workers") == []
    try:
        service.ask("GET", "/healthz")
    except LOST:
        return
    raise AssertionError("it still answers")
