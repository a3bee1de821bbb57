"""The road of a round stays short enough to be read."""

from __future__ import annotations

import pytest
from benchmarks.hops import road

MOST = 25


@pytest.mark.parametrize("learner", ["pairrank", "greedy"])
def test_a_round_passes_few_functions(learner: str) -> None:
    hops = road(learner)
    passed = [f"{hop.file}: {hop.function}" for hop in hops if not hop.kernel]
    assert {"cli/lab.py: compare", "lab/runs/simulate.py: simulate"} <= set(passed)  # it was the road that was watched
    assert any(hop.kernel for hop in hops)
    assert len(passed) <= MOST, "\n".join(passed)
