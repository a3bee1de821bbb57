"""Who learns what: leases that are counted, not timed.

A holder adds one to its beat every second; whoever sees a beat stand still for `lease_seconds` on its own monotonic
clock may take the lease, so no clock that is wrong or moved can give a lease to two or to nobody. (Two would do no
harm: both fold the same log into the same bits.)
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from rankloop.service.store import admin

if TYPE_CHECKING:
    from rankloop.service.engine import Engine


class Leases:
    """What one process has seen of the others, and the leases it may take."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.alive: set[str] = {engine.worker}
        self._seen: dict[str, tuple[object, float]] = {}  # lease or worker -> what it was, since when (monotonic)

    def _stands_still(self, key: str, value: object) -> bool:
        """Whether `value` has not changed for `lease_seconds`, as far as this process has seen."""
        now = time.monotonic()
        known, since = self._seen.get(key, (None, now))
        if known != value:
            self._seen[key] = (value, now)
            return False
        return now - since > self.engine.settings.lease_seconds

    def _gone(self, worker: str) -> bool:
        """Whether a worker is a process of this machine that does not run any more."""
        machine, _, rest = worker.partition(":")
        process = rest.partition(":")[0]
        if machine != self.engine.machine or not process.isdigit():
            return False
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def look_around(self, workers: dict[str, tuple[str, int, bool]]) -> None:
        """See which processes live; those that do not are forgotten."""
        alive = {self.engine.worker}
        for name, (_, beat, learns) in workers.items():
            if name == self.engine.worker:
                continue
            if self._gone(name) or self._stands_still(f"worker {name}", beat):
                self.engine.writer.do(lambda c, n=name, b=beat: admin.forget_worker(c, n, b))  # type: ignore[misc]
            elif learns:
                alive.add(name)
        self.alive = alive

    def taken(self, mine: set[str]) -> set[str]:
        """Take leases that nobody keeps, as many as is fair; give back what is too much."""
        engine = self.engine
        names = sorted(engine.rankers)
        fair = -(-len(names) // len(self.alive))
        held = engine.database.read(admin.leases)
        for name in names:
            if len(mine) >= fair:
                break
            before = held.get(name)
            if before is not None:
                dead = before[0] not in self.alive and self._gone(before[0])
                if before[0] == engine.worker or not (dead or self._stands_still(f"lease {name}", before)):
                    continue
            if engine.writer.do(lambda c, n=name, b=before: admin.take_lease(c, n, engine.worker, b)):  # type: ignore[misc]
                mine = mine | {name}
        if len(mine) > fair and len(self.alive) > 1:
            name = max(mine)  # one a cycle: the others need time to take it
            live = engine.rankers.get(name)
            if live is not None:
                live.held = False
                engine.learning.save(live, force=True)
            engine.writer.do(lambda c: admin.release_lease(c, name, engine.worker))
            mine = mine - {name}
        return mine
