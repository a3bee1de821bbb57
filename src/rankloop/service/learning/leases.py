"""Who learns what: leases that are counted, not timed.

A holder adds one to its beat every second; whoever sees a beat stand still for `lease_seconds` on its own monotonic
clock may take the lease, so no clock that is wrong or moved can give a lease to two or to nobody. (Two would do no
harm: both fold the same log into the same bits.)
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from rankloop.service.process import Process
from rankloop.service.store import admin

if TYPE_CHECKING:
    from rankloop.service.learning.learning import Learning


class Leases:
    """What one process has seen of the others, and the leases it may take."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.alive: set[str] = {process.worker}  # those that learn
        self.strangers = False  # whether processes of other machines live: they know what is learned from the store
        self._seen: dict[str, tuple[object, float]] = {}  # lease or worker -> what it was, since when (monotonic)

    def _stands_still(self, key: str, value: object) -> bool:
        """Whether `value` has not changed for `lease_seconds`, as far as this process has seen."""
        now = time.monotonic()
        known, since = self._seen.get(key, (None, now))
        if known != value:
            self._seen[key] = (value, now)
            return False
        return now - since > self.process.settings.lease_seconds

    def _gone(self, worker: str) -> bool:
        """Whether a worker is a process of this machine that does not run any more."""
        machine, _, rest = worker.partition(":")
        process = rest.partition(":")[0]
        if machine != self.process.machine or not process.isdigit():
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
        process, alive, strangers = self.process, {self.process.worker}, False
        for name, (machine, beat, learns) in workers.items():
            if name == process.worker:
                continue
            if self._gone(name) or self._stands_still(f"worker {name}", beat):
                process.writer.do(lambda c, n=name, b=beat: admin.forget_worker(c, n, b))  # type: ignore[misc]
                continue
            if learns:
                alive.add(name)
            strangers = strangers or learns or machine != process.machine
        self.alive, self.strangers = alive, strangers

    def taken(self, mine: set[str], learning: Learning) -> set[str]:
        """Take leases that nobody keeps, as many as is fair; give back what is too much."""
        process, folds = self.process, learning.folds
        names = sorted(folds)
        mine = mine & set(names)
        fair = -(-len(names) // len(self.alive))
        held = process.database.read(admin.leases)
        for name in names:
            if len(mine) >= fair:
                break
            before = held.get(name)
            if before is not None:
                dead = before[0] not in self.alive and self._gone(before[0])
                if before[0] == process.worker or not (dead or self._stands_still(f"lease {name}", before)):
                    continue
            if process.writer.do(lambda c, n=name, b=before: admin.take_lease(c, n, process.worker, b)):  # type: ignore[misc]
                mine = mine | {name}
        if len(mine) > fair and len(self.alive) > 1:
            name = max(mine)  # one a cycle: the others need time to take it
            fold = folds.get(name)
            if fold is not None:
                fold.held = False
                learning.save(fold, force=True)
            process.writer.do(lambda c: admin.release_lease(c, name, process.worker))
            mine = mine - {name}
        return mine
