"""Which process learns which ranker: leases that are kept by counted heartbeats, placed by load.

A holder increments its lease's beat every second. Another process may take a lease whose beat does not change for
`lease_seconds` on its own monotonic clock, so no wrong clock can give a lease to two processes. A process that resumes
after SIGSTOP still believes it holds its leases; the store refuses what it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from rankloop.service.observability.shared_reports import has_ended
from rankloop.service.storage import leases
from rankloop.service.worker.process import Process

STAY = 10  # beats for which a busy ranker stays with the process that took it
IDLE = 0.001  # of a core: load of a ranker that has nothing to learn, so that idle ones are spread, too
SLACK = 0.2  # of its own load: a process gives a lease only if it keeps so much more than the receiver gets
QUIET = 0.02  # of a core: a ranker below it may be given away at any time
MAX_GIVEN = 8  # leases that a process gives back at a time


class HeldLeases(NamedTuple):
    """The leases of this process after a round."""

    mine: set[str]
    fresh: set[str]  # just taken
    spare: list[str]  # to be given back
    loads: dict[str, float]


class Leases:
    """What one process has seen of the others, and the leases that it may take."""

    def __init__(self, process: Process, clock: Callable[[], float] = time.monotonic) -> None:
        self.process, self._clock = process, clock
        self.alive: set[str] = {process.worker}  # processes that learn, and this one
        self.in_charge = False  # whether this process does the work that belongs to no learning process
        self.has_peers = False  # whether others follow what is learned here by the store
        self.learners: set[str] = set()  # processes that learn
        self._seen: dict[str, tuple[object, float]] = {}  # lease or worker -> value, since when (monotonic)
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
        """Whether a worker was a process of this machine and has ended."""
        return worker.startswith(f"{self.process.machine}:") and has_ended(worker)

    def look_around(self, workers: Mapping[str, tuple[str, int, bool]]) -> None:
        """See which processes live, and delete the others from the store. The first learning process is in charge of
        what no process learns; if none learns, the first of all is."""
        process, peers = self.process, False
        alive, learners, present = {process.worker}, set[str](), {process.worker}
        for name, (machine, beat, learns) in workers.items():
            if name == process.worker:
                learners.update([name] if learns else [])
                continue
            if self._gone(name) or self._stands_still(f"worker {name}", beat):
                process.writer.do(lambda c, n=name, b=beat: leases.remove_worker(c, n, b))  # type: ignore[misc]
                continue
            present.add(name)
            if learns:
                alive.add(name)
                learners.add(name)
            peers = peers or learns or machine != process.machine
        self.alive, self.has_peers, self.learners = alive, peers, learners
        self.in_charge = process.worker == min(learners or present)

    def learned(self) -> set[str]:
        """The rankers that a living process learns."""
        held = self.process.database.read(leases.list_leases)
        return {name for name, (holder, _) in held.items() if holder in self.learners}

    def take(self, names: Collection[str]) -> HeldLeases:
        """Take free leases of the rankers `names`, as far as they are this process's to take."""
        process, me, now = self.process, self.process.worker, self._clock()
        held, loads = process.database.read(lambda c: (leases.list_leases(c), leases.learning_loads(c)))
        free = [name for name in sorted(names) if self._is_free(name, held.get(name))]
        holders = {name: lease[0] for name, lease in held.items() if name not in free}
        wanted = to_take(me, self.alive, holders, loads, free)
        # The process that should have taken one may be unable to.
        wanted += [name for name in free if name not in wanted and self._stands_still(f"free {name}", "free")]
        for name in set(names).difference(free):
            self._seen.pop(f"free {name}", None)
        fresh = set()
        for name in wanted:
            before = held.get(name)
            if process.writer.do(lambda c, n=name, b=before: leases.take_lease(c, n, me, b)):  # type: ignore[misc]
                fresh.add(name)
                self._taken[name] = now
        holders |= dict.fromkeys(fresh, me)
        mine = {name for name, holder in holders.items() if holder == me}
        useless = mine.difference(names)
        stay = STAY * process.settings.beat_seconds
        staying = fresh | {
            name for name in mine if weight(name, loads) > QUIET and now - self._taken.get(name, now - stay) < stay
        }
        spare = [] if fresh else to_give(me, self.alive, holders, loads, staying | useless)
        return HeldLeases(mine - useless, fresh, [*spare, *sorted(useless)], loads)

    def _is_free(self, name: str, lease: tuple[str, int] | None) -> bool:
        """Whether nobody keeps a lease: there is none, or its holder is dead or sends no heartbeats."""
        if lease is None:
            return True
        holder = lease[0]
        if holder == self.process.worker:
            return False
        dead = holder not in self.alive and self._gone(holder)
        return dead or self._stands_still(f"lease {name}", lease)


def weight(name: str, loads: Mapping[str, float]) -> float:
    """Load of a ranker, in cores; never 0."""
    return IDLE + max(0.0, loads.get(name, 0.0))


def totals(alive: Iterable[str], holders: Mapping[str, str], loads: Mapping[str, float]) -> dict[str, float]:
    """Load of each living process."""
    found = dict.fromkeys(alive, 0.0)
    for name, holder in holders.items():
        if holder in found:
            found[holder] += weight(name, loads)
    return found


def to_take(
    me: str, alive: Collection[str], holders: Mapping[str, str], loads: Mapping[str, float], free: Iterable[str]
) -> list[str]:
    """Free leases that are this process's to take: the heaviest first, each for the process with the least load. Every
    process computes the same from the store, so no coordinator is needed.

    >>> to_take("b", ["a", "b"], {"x": "a"}, {"x": 0.2, "y": 0.5, "z": 0.4}, ["y", "z"])
    ['y']
    """
    have = totals(alive, holders, loads)
    mine = []
    for name in sorted(free, key=lambda name: (-weight(name, loads), name)):
        least = min(have, key=lambda worker: (have[worker], worker))
        have[least] += weight(name, loads)
        if least == me:
            mine.append(name)
    return mine


def to_give(
    me: str,
    alive: Collection[str],
    holders: Mapping[str, str],
    loads: Mapping[str, float],
    staying: Collection[str] = (),
) -> list[str]:
    """Leases of this process that are better given back, without those `staying`: after each, the process with the
    least load still has clearly less than this one had, so that small differences in load do not bring it back.

    The largest that does not make the other one the busier of the two, else the smallest: a ranker that is more than
    half of all there is stays where it is, and the others leave it alone with its process.

    >>> to_give("a", ["a", "b"], dict.fromkeys("xyz", "a"), {"x": 0.9, "y": 0.1, "z": 0.1})
    ['z', 'y']
    >>> to_give("a", ["a", "b"], {"x": "a", "y": "b"}, {"x": 0.5, "y": 0.4})
    []
    """
    have = totals(alive, holders, loads)
    others = {worker: total for worker, total in have.items() if worker != me}
    own = {name: weight(name, loads) for name, holder in holders.items() if holder == me}
    given: list[str] = []
    while others and len(given) < MAX_GIVEN:
        least = min(others, key=lambda worker: (others[worker], worker))
        room = have[me] - others[least]
        fitting = [
            name
            for name, one in own.items()
            if name not in staying and name not in given and one + SLACK * have[me] <= room
        ]
        if not fitting:
            break
        halves = [name for name in fitting if 2 * own[name] <= room]
        name = max(halves, key=lambda name: (own[name], name)) if halves else min(fitting, key=lambda n: (own[n], n))
        given.append(name)
        have[me] -= own[name]
        others[least] += own[name]
    return given
