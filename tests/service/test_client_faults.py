"""The client while its service is killed, restarted, frozen and slow: no click is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.client_faults import run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_feedback_is_lost_while_the_service_fails(tmp_path: Path) -> None:
    rows = {row["phase"]: row for row in run(seconds=3.0, rate=20.0, folder=tmp_path)}
    assert {phase: row["lost"] for phase, row in rows.items()} == dict.fromkeys(
        ("no fault", "killed", "restarted", "frozen", "slow"), 0
    )
    assert all(row["acknowledged"] == row["clicks"] for row in rows.values())
    for phase in ("killed", "frozen", "slow"):
        assert rows[phase]["reasons"], f"a service that is {phase} gives fallbacks"
