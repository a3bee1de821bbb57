"""Three hosts, load on all, faults drawn at random: nothing acknowledged is lost, nothing is learned twice."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.cluster.checker import check, read_record
from tests.cluster.cluster import HOSTS, RANKERS, Cluster, cluster
from tests.cluster.faults import KINDS, Faults
from tests.cluster.spaces import lacking
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(lacking() is not None, reason=lacking() or ""),
]
# A third of the times that a service has by itself, and of the faults' own.
QUICK: dict[str, Any] = {"lease_seconds": 1.0, "refresh_seconds": 0.3, "watchdog_seconds": 0, "log_format": "json"}
SCALE = 0.35
COUNT = 8  # faults


def wake_believing(made: Cluster) -> None:
    """Stop the process that learns a ranker until another host has learned on; it wakes up believing that it still has
    the lease."""
    watcher = made.watcher
    before = watcher.last("shop")
    assert before.holder is not None
    learner = made.hosts[before.holder].learner(watcher.learners)
    assert learner is not None
    os.kill(learner, signal.SIGSTOP)

    def learned_elsewhere() -> bool:
        look = watcher.last("shop")
        return look.holder not in (None, before.holder) and look.learned > before.head

    wait_for(learned_elsewhere, "another host to learn on")
    os.kill(learner, signal.SIGCONT)


def test_faults() -> None:
    """Eight faults in quick succession; `python -m benchmarks hosts` makes as many as asked for."""
    with cluster(seed=COUNT, **QUICK) as made:
        made.begin(window_seconds=2.0)
        wake_believing(made)
        faults = Faults(made, COUNT, SCALE)
        faults.run(COUNT)
        left = made.settle()
        record = read_record(made.users.record)
        found = check(record, made.server.inside, RANKERS, faults.away(), faults.crashes)
        assert found.problems == [], "\n".join([*found.problems[:20], *(host.log() for host in made.hosts.values())])
        assert left == 0
        lines = [line for host in made.hosts.values() for line in host.log_file.read_text().splitlines()]
        assert all(isinstance(json.loads(line), dict) for line in lines)
    # The load was real, and the faults hit it.
    assert len(faults.made) == COUNT
    assert len({fault.kind for fault in faults.made}) >= min(COUNT, len(KINDS))
    assert {said["host"] for said in record.ranks} == set(HOSTS)
    assert found.told["accepted"] > COUNT
    assert found.outcomes > COUNT
