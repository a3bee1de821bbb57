"""What goes wrong: faults drawn at random, several at a time on different hosts, and what each did to learning."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.checker import Away
from tests.cluster.cluster import HOSTS, RANKERS, TO_BEGIN, Cluster

PAUSE = 10.0  # seconds of SIGSTOP
LONG = (5.0, 10.0)  # seconds of a network that is broken
DOWN = (0.5, 4.0)  # seconds until a host that was killed is started again
GAP = (1.0, 3.0)  # seconds between two
CALM = 30.0  # seconds at most for which one fault at a time waits until each host learns a ranker
TICK = 0.02


@dataclass
class Fault:
    """Something that went wrong, and when."""

    kind: str
    host: str  # "db": of PostgreSQL
    since: float
    due: float  # when it is to be over
    until: float = 0.0  # when the host was as before
    held: dict[str, int] = field(default_factory=dict)  # rankers that were learned there -> outcomes logged by then
    data: dict[str, Any] = field(default_factory=dict)


class Faults:
    """Makes faults in a cluster until so many were made, and tells who could be reached when.

    Parameters
    ----------
    cluster
        Where.
    seed
        Of what is drawn.
    scale
        Of all times: where a lease is short, a fault that outlives it may be, too.
    """

    def __init__(self, cluster: Cluster, seed: int, scale: float = 1.0) -> None:
        self.cluster, self._rng, self._scale = cluster, random.Random(f"faults {seed}"), scale
        self.made: list[Fault] = []
        self.crashes: list[float] = []
        self._kinds: list[str] = []
        self._drawn: list[str] = []

    def run(
        self,
        count: int,
        at_once: int = 2,
        on_fault: Callable[[Fault], None] = lambda _fault: None,
        kinds: Sequence[str] = (),
    ) -> None:
        """Make `count` faults more, of some kinds or all, and wait until all is well again. One at a time begins when
        each host learns a ranker again; of several at once at least one host is well."""
        self._kinds, self._drawn = list(kinds or KINDS), []
        under_way: list[Fault] = []
        due, count = time.time(), count + len(self.made)
        while len(self.made) < count or under_way:
            now = time.time()
            for fault in [one for one in under_way if one.due <= now and self._over(one)]:
                under_way.remove(fault)
            self.cluster.tend()
            calm = at_once > 1 or self.cluster.spread() or now > due + CALM
            if now >= due and len(self.made) < count and len(under_way) < at_once and calm:
                fault = self._draw({one.host for one in under_way})
                if fault.data.get("missed"):  # there was no such process just then: nothing happened
                    continue
                under_way.append(fault)
                self.made.append(fault)
                on_fault(fault)
                due = now + self._scale * self._rng.uniform(*GAP)
            time.sleep(TICK)

    def away(self) -> list[Away]:
        """When hosts could not be reached by users, whatever they did."""
        return [Away(one.host, one.since - 0.1, one.until) for one in self.made if KINDS[one.kind].unreachable]

    def _draw(self, busy: set[str]) -> Fault:
        while not (free := [one for one in self._drawn if KINDS[one].place not in busy]):
            self._drawn += self._rng.sample(
                self._kinds, len(self._kinds)
            )  # each as often as any, in an order of chance
        kind = free[0]
        self._drawn.remove(kind)
        place = KINDS[kind].place
        if place is None:
            place = self._rng.choice([host for host in HOSTS if host not in busy])
        looks = {name: self.cluster.watcher.last(name) for name in RANKERS}
        held = {name: look.head for name, look in looks.items() if place in ("db", look.holder)}
        fault = Fault(kind, place, time.time(), 0.0, held=held)
        fault.due = fault.since + self._scale * KINDS[kind].begin(self.cluster, fault, self._rng)
        if fault.data.get("hard"):
            self.crashes.append(fault.since)
        return fault

    def _over(self, fault: Fault) -> bool:
        """Mend what was broken, once; whether the host is as before."""
        cluster = self.cluster
        if not fault.data.get("mended"):
            KINDS[fault.kind].end(cluster, fault)
            fault.data["mended"] = time.time()
        if fault.host != "db":
            ready, since = cluster.users.ready[fault.host]
            if not ready or (KINDS[fault.kind].unreachable and since < fault.since):
                assert time.time() < fault.data["mended"] + TO_BEGIN, cluster.hosts[fault.host].log()
                return False
        fault.until = time.time()
        return True


@dataclass
class Kind:
    """How a fault of a kind begins (for how long, in seconds) and ends."""

    about: str
    begin: Callable[[Cluster, Fault, random.Random], float]
    end: Callable[[Cluster, Fault], None]
    place: str | None = None  # None: some host
    unreachable: bool = False  # whether users cannot reach the host meanwhile


def _nothing(_cluster: Cluster, _fault: Fault) -> None:
    return


def _kill_host(cluster: Cluster, fault: Fault, rng: random.Random) -> float:
    cluster.down.add(fault.host)
    cluster.hosts[fault.host].kill()
    return rng.uniform(*DOWN)


def _boot(cluster: Cluster, fault: Fault) -> None:
    cluster.down.discard(fault.host)


def _kill_learner(cluster: Cluster, fault: Fault, _rng: random.Random) -> float:
    learner = cluster.hosts[fault.host].learner(cluster.watcher.learners)
    fault.data["missed"] = learner is None
    if learner is not None:
        with suppress(ProcessLookupError):
            os.kill(learner, signal.SIGKILL)
    return 2.0


def _pause_host(cluster: Cluster, fault: Fault, _rng: random.Random) -> float:
    cluster.hosts[fault.host].signal(signal.SIGSTOP)
    return PAUSE


def _wake_host(cluster: Cluster, fault: Fault) -> None:
    cluster.hosts[fault.host].signal(signal.SIGCONT)


def _pause_learner(cluster: Cluster, fault: Fault, _rng: random.Random) -> float:
    learner = cluster.hosts[fault.host].learner(cluster.watcher.learners)
    fault.data |= {"learner": learner, "missed": learner is None}
    if learner is not None:
        with suppress(ProcessLookupError):
            os.kill(learner, signal.SIGSTOP)
    return PAUSE


def _wake_learner(cluster: Cluster, fault: Fault) -> None:
    learner = fault.data["learner"]
    if learner is not None and learner in cluster.hosts[fault.host].processes().values():
        os.kill(learner, signal.SIGCONT)


def _way(source: str, target: str, **terms: Any) -> Callable[[Cluster, Fault, random.Random], float]:
    """Packets of one direction, or of both (`source` and `target` the same word, "both")."""

    def begin(cluster: Cluster, fault: Fault, rng: random.Random) -> float:
        if source == "both":
            cluster.network.ways(fault.host, target, **terms)
        else:
            names = {"host": fault.host}
            cluster.network.way(names.get(source, source), names.get(target, target), **terms)
        return rng.uniform(*LONG)

    return begin


def _isolate(cluster: Cluster, fault: Fault, rng: random.Random) -> float:
    for other in ("db", "users"):
        cluster.network.ways(fault.host, other, open=False)
    return rng.uniform(*LONG)


def _mend(cluster: Cluster, fault: Fault) -> None:
    for other in ("db", "users"):
        cluster.network.ways(fault.host, other)


def _restart_server(cluster: Cluster, fault: Fault, rng: random.Random) -> float:
    fault.data["hard"] = rng.random() < 0.5
    cluster.server.stop(fault.data["hard"])
    return rng.uniform(0.0, 2.0)


def _start_server(cluster: Cluster, _fault: Fault) -> None:
    cluster.server.start()


KINDS: dict[str, Kind] = {
    "kill -9, the host": Kind("all its processes; started again", _kill_host, _boot, unreachable=True),
    "kill -9, the learner": Kind("the process that learns", _kill_learner, _nothing),
    "stopped, the host": Kind("SIGSTOP to all, 10 s", _pause_host, _wake_host, unreachable=True),
    "stopped, the learner": Kind("wakes up believing it has the lease", _pause_learner, _wake_learner),
    "cut off from the store": Kind("both ways", _way("both", "db", open=False), _mend),
    "cannot send to the store": Kind("one way", _way("host", "db", open=False), _mend),
    "cannot hear the store": Kind("one way", _way("db", "host", open=False), _mend),
    "cut off from everyone": Kind("both ways, users too", _isolate, _mend, unreachable=True),
    "30 % loss": Kind("both ways, to the store", _way("both", "db", loss=0.3), _mend),
    "200 ms delay": Kind("each way, to the store", _way("both", "db", delay=0.2), _mend),
    "PostgreSQL restarted": Kind("shut down, or crashed", _restart_server, _start_server, place="db"),
}


@dataclass
class TakeOver:
    """How long after a fault learning went on, of a ranker that was learned where it struck."""

    kind: str
    ranker: str
    lease: float | None  # seconds until another host had the lease; None: it stayed
    learned: float  # seconds until something was learned and saved that was logged after the fault began
    taker: str | None
    elsewhere: bool  # whether another fault struck meanwhile


def take_overs(faults: Faults, some: Sequence[Fault]) -> list[TakeOver]:
    """Of some of the faults and every ranker; found in what the watcher saw, afterwards."""
    found = []
    for fault in some:
        for ranker, head in fault.held.items():
            looks = [look for look in faults.cluster.watcher.looks[ranker] if look.at >= fault.since]
            learned = next((look for look in looks if look.learned > head), None)
            if learned is None:
                continue  # nothing was logged after it
            moved = next(
                (one for one in looks if one.holder not in (None, fault.host) and one.at <= learned.at + 1.0), None
            )
            took = moved.at - fault.since if moved is not None and fault.host != "db" else None
            others = [one for one in faults.made if one is not fault and fault.since < one.until]
            elsewhere = any(one.since < learned.at for one in others)
            found.append(TakeOver(fault.kind, ranker, took, learned.at - fault.since, learned.holder, elsewhere))
    return found
