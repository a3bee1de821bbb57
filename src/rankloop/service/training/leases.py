"""Who learns what: leases that are counted, not timed.

A holder adds one to its beat every second; whoever sees a beat stand still for `lease_seconds` on its own monotonic
clock may take the lease, so no clock that is wrong or moved can give a lease to two or to nobody. Who takes what is a
matter of load (`shares`). One that was stopped and goes on believes for a moment that it still has its leases; the
store does not believe it, and keeps nothing that it saves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from rankloop.service.storage import admin, published
from rankloop.service.training import lease_placement
from rankloop.service.worker.process import Process

STAY = 10  # beats for which a ranker that makes work stays with whoever took it


class Turn(NamedTuple):
    """What a look at the leases came to."""

    mine: set[str]  # leases of this process
    fresh: set[str]  # those of them that it has just taken
    spare: list[str]  # those that it should give back
    loads: dict[str, float]


class Leases:
    """What one process has seen of the others, and the leases it may take."""

    def __init__(self, process: Process, clock: Callable[[], float] = time.monotonic) -> None:
        self.process, self._clock = process, clock
        self.alive: set[str] = {process.worker}  # those that learn
        self.in_charge = False  # whether this process does what nobody does who learns: see `look_around`
        self.strangers = False  # whether processes of other machines live: they know what is learned from the store
        self.learners: set[str] = set()  # those that have beaten and learn
        self._seen: dict[str, tuple[object, float]] = {}  # lease or worker -> what it was, since when (monotonic)
        self._taken: dict[str, float] = {}  # ranker -> when this process took its lease

    def _stands_still(self, key: str, value: object) -> bool:
        """Whether `value` has not changed for `lease_seconds`, as far as this process has seen."""
        now = self._clock()
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

    def look_around(self, workers: Mapping[str, tuple[str, int, bool]]) -> None:
        """See which processes live; those that do not are forgotten.

        The first of those that learn is in charge of what no process learns. If none learns, the first of all is.
        """
        process, strangers = self.process, False
        alive, learners, present = {process.worker}, set[str](), {process.worker}
        for name, (machine, beat, learns) in workers.items():
            if name == process.worker:
                learners.update([name] if learns else [])
                continue
            if self._gone(name) or self._stands_still(f"worker {name}", beat):
                process.writer.do(lambda c, n=name, b=beat: admin.forget_worker(c, n, b))  # type: ignore[misc]
                continue
            present.add(name)
            if learns:
                alive.add(name)
                learners.add(name)
            strangers = strangers or learns or machine != process.machine
        self.alive, self.strangers = alive, strangers
        self.learners = learners
        self.in_charge = process.worker == min(learners or present)

    def learned(self) -> set[str]:
        """The rankers that a living process learns."""
        held = self.process.database.read(admin.leases)
        return {name for name, (holder, _) in held.items() if holder in self.learners}

    def turn(self, names: Collection[str]) -> Turn:
        """Take leases that nobody keeps, as far as they are this process's to take, and say which are too many.

        `names` are the rankers that it can learn.
        """
        process, me, now = self.process, self.process.worker, self._clock()
        held, loads = process.database.read(lambda c: (admin.leases(c), published.loads(c)))
        free = [name for name in sorted(names) if self._is_free(name, held.get(name))]
        holders = {name: lease[0] for name, lease in held.items() if name not in free}
        wanted = lease_placement.to_take(me, self.alive, holders, loads, free)
        # Whoever should have taken it may be unable to: nothing is left lying for long.
        wanted += [name for name in free if name not in wanted and self._stands_still(f"free {name}", "free")]
        for name in set(names).difference(free):
            self._seen.pop(f"free {name}", None)
        fresh = set()
        for name in wanted:
            before = held.get(name)
            if process.writer.do(lambda c, n=name, b=before: admin.take_lease(c, n, me, b)):  # type: ignore[misc]
                fresh.add(name)
                self._taken[name] = now
        holders |= dict.fromkeys(fresh, me)
        mine = {name for name, holder in holders.items() if holder == me}
        useless = mine.difference(names)
        stay = STAY * process.settings.beat_seconds
        staying = fresh | {
            name
            for name in mine
            if lease_placement.weight(name, loads) > lease_placement.QUIET
            and now - self._taken.get(name, now - stay) < stay
        }
        spare = [] if fresh else lease_placement.to_give(me, self.alive, holders, loads, staying | useless)
        return Turn(mine - useless, fresh, [*spare, *sorted(useless)], loads)

    def _is_free(self, name: str, lease: tuple[str, int] | None) -> bool:
        """Whether nobody keeps a lease: there is none, or its holder is dead or silent."""
        if lease is None:
            return True
        holder = lease[0]
        if holder == self.process.worker:
            return False
        dead = holder not in self.alive and self._gone(holder)
        return dead or self._stands_still(f"lease {name}", lease)
