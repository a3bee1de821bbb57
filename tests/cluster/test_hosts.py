"""Three hosts, load on all, faults drawn at random: nothing acknowledged is lost, nothing is learned twice."""

from __future__ import annotations

import pytest

from tests.cluster.checker import check, read_record
from tests.cluster.cluster import HOSTS, RANKERS, cluster
from tests.cluster.faults import KINDS, Faults, take_overs
from tests.cluster.spaces import lacking

pytestmark = pytest.mark.skipif(lacking() is not None, reason=lacking() or "")
SHORT = 3.0  # seconds of a window: at the end the last ones are waited for


@pytest.mark.parametrize(
    "count", [pytest.param(8, marks=pytest.mark.timeout(600)), pytest.param(60, marks=[pytest.mark.soak])]
)
def test_faults(count: int) -> None:
    with cluster(seed=count) as made:
        made.begin(window_seconds=SHORT)
        faults = Faults(made, seed=count)
        faults.run(count)
        left = made.settle()
        found = check(read_record(made.users.record), made.server.inside, RANKERS, faults.away(), faults.crashes)
        assert found.problems == [], "\n".join([*found.problems[:20], *(host.log() for host in made.hosts.values())])
        assert left == 0
        # The load was real, and the faults hit it.
        assert {fault.kind for fault in faults.made} <= set(KINDS)
        assert len(faults.made) == count
        assert {said["host"] for said in read_record(made.users.record).ranks} == set(HOSTS)
        assert found.told["accepted"] > 10 * count
        assert found.outcomes > 10 * count
        assert take_overs(faults, faults.made) != []
