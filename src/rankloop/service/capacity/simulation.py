"""A fleet under load, second by second: a discrete-event model of the service, fed with measured times.

A request comes to a process that ranks, drawn at random among those the balancer believes in, waits for the process,
takes it up for a while, and joins what its writer commits next; the writer takes what has gathered, as the service's
does, first lists, then events, whose ranker's number it holds until they are on the disk. Commits share the cores of
one database. An event is learned by the one process that has its ranker. Times are the plan's; how they vary is drawn
from what one caller measured. What is not in it: networks that lose packets, vacuum, limits of disks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.service.capacity.constants import Constants
from rankloop.service.capacity.events import Clock, Lock, Station
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.plan import Plan, costs

BATCH = 256  # writes a commit takes at most, as the service's writer
NOTICED = 2.0  # seconds until a balancer that asks /readyz takes a lost machine out
RETRY = 0.1  # seconds after which a caller who was refused tries again
PATIENCE = 1.0  # seconds after which a caller whose machine was lost under the request tries again
TAKEN_OVER = 4.0  # seconds until a lost machine's rankers are learned elsewhere: the lease, and loading
DRAWN = 1 << 16  # numbers at a time


@dataclass(frozen=True)
class Fleet:
    """Machines that rank, processes on each, processes that learn, cores of the database.

    `feedback`: processes that take nothing but events; 0: those that rank take them. They and those that learn are
    spread over the machines.
    """

    machines: int
    processes: int
    learners: int
    database_cores: int
    feedback: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "feedback" else 1
            if not least <= value <= 10_000:
                raise InvalidParameter(f"{name} is {value}; a fleet has {least} to 10,000")


@dataclass(frozen=True)
class Times:
    """Seconds, means."""

    list_hold: float
    event_hold: float
    list_trip: float
    event_trip: float
    database_list: float
    database_event: float
    outcome: float
    spread: tuple[float, ...] = (1.0,)  # by how much a time differs from its mean: as likely one as the other


@dataclass(frozen=True)
class Story:
    """What happens to the fleet: the rate over time, and a share of the machines that is lost at a moment."""

    seconds: float = 30.0
    rate: tuple[tuple[float, float], ...] = ((0.0, 1.0),)  # (from second, times load.requests), steps
    lose: float = 0.0
    at: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 3600:
            raise InvalidParameter(f"seconds is {self.seconds}; simulate 1 to 3600")
        if not 0 <= self.lose < 1:
            raise InvalidParameter(f"lose is {self.lose}; give a share of the machines from 0 to below 1")
        if not all(0 < factor <= 100 for _, factor in self.rate) or self.rate[0][0] != 0:
            raise InvalidParameter(f"rate is {self.rate}; give (second, factor) from second 0 on, factors above 0")

    def factor(self, second: float) -> float:
        """Of the load's requests, at a time."""
        return [factor for begin, factor in self.rate if begin <= second][-1]


class Second(NamedTuple):
    """What was seen in one second."""

    at: float
    asked: int
    answered: int
    p50: float  # of lists answered in it, seconds
    p99: float
    waiting: int  # lists that are not answered, at its end
    ranking: float  # of all processes that rank and are there, how much is taken up
    database: float  # of its cores
    lag: int  # outcomes that are not learned, at its end
    retried: int


def times_of(load: Load, constants: Constants) -> Times:
    """From the constants, for lists of a load's size."""
    store, cost = constants.store(load.store), costs(load, constants)
    return Times(
        list_hold=cost.list_hold,
        event_hold=cost.event_hold,
        list_trip=store.list_trip,
        event_trip=store.event_trip,
        database_list=store.database_list.at(load.size),
        database_event=store.database_event.at(load.size),
        outcome=cost.outcome,
        spread=store.spread,
    )


class _List:
    """A request on its way."""

    __slots__ = ("came", "clicks", "ranker")

    def __init__(self, came: float, ranker: int, clicks: int) -> None:
        self.came, self.ranker, self.clicks = came, ranker, clicks


class _Event(NamedTuple):
    """A click on its way."""

    ranker: int
    settles: bool  # one of a list does, and is learned from


class _Process:
    """One that ranks: a loop, and a writer that takes what has gathered."""

    def __init__(self, fleet: _Running) -> None:
        self._fleet, self.alive = fleet, True
        self.loop = Station(fleet.clock, 1)
        self.lists: dict[_List, None] = {}  # all that would be lost with it
        self.events: list[_Event] = []
        self._ready: list[_List] = []
        self._writing = False

    def rank(self, one: _List) -> None:
        self.lists[one] = None
        self.loop.take(self._fleet.times.list_hold * self._fleet.varied(), self._ranked, one)

    def report(self, event: _Event) -> None:
        self.loop.take(self._fleet.times.event_hold * self._fleet.varied(), self._reported, event)

    def _ranked(self, one: _List) -> None:
        self._ready.append(one)
        self._write_lists()

    def _reported(self, event: _Event) -> None:
        if not self.alive:
            self._fleet.clock.after(PATIENCE, self._fleet.report, event)
            return
        self.events.append(event)
        self._write_lists()

    def _write_lists(self) -> None:
        if self._writing or not self.alive or not (self._ready or self.events):
            return
        self._writing = True
        if not self._ready:
            self._write_events()
            return
        batch, self._ready = self._ready[:BATCH], self._ready[BATCH:]
        fleet = self._fleet
        work = fleet.times.database_list * len(batch)
        fleet.clock.after(fleet.times.list_trip * fleet.varied(), fleet.database.take, work, self._lists_stored, batch)

    def _lists_stored(self, batch: list[_List]) -> None:
        if not self.alive:
            return
        for one in batch:
            del self.lists[one]
            self._fleet.answered(one)
        self._write_events()

    def _write_events(self) -> None:
        if not self.events:
            self._writing = False
            self._write_lists()
            return
        batch, self.events = self.events[:BATCH], self.events[BATCH:]
        self._numbered(sorted({event.ranker for event in batch}), 0, batch)

    def _numbered(self, rankers: list[int], have: int, batch: list[_Event]) -> None:
        """Take the next number of each ranker in turn, and keep it from others until the commit."""
        if have < len(rankers):
            self._fleet.heads[rankers[have]].take(self._numbered, rankers, have + 1, batch)
            return
        fleet = self._fleet
        work = fleet.times.database_event * len(batch)
        wait = fleet.times.event_trip * fleet.varied()
        fleet.clock.after(wait, fleet.database.take, work, self._events_stored, rankers, batch)

    def _events_stored(self, rankers: list[int], batch: list[_Event]) -> None:
        fleet = self._fleet
        for ranker in rankers:
            fleet.heads[ranker].give()
        for event in batch:
            if not self.alive:  # its connection was cut with it, and the caller sends it again
                fleet.clock.after(PATIENCE, fleet.report, event)
            elif event.settles:
                fleet.learn(event.ranker)
        self._writing = False
        self._write_lists()


class _Running:
    """A fleet while its story is told."""

    def __init__(self, load: Load, fleet: Fleet, times: Times, story: Story) -> None:
        self.clock, self.times, self.load, self.story, self.fleet = Clock(), times, load, story, fleet
        self.database = Station(self.clock, fleet.database_cores)
        self.processes = [_Process(self) for _ in range(fleet.machines * fleet.processes)]
        self.reporters = [_Process(self) for _ in range(fleet.feedback)]
        self.known = list(self.processes)  # those the balancer sends to
        self.known_for_events = list(self.reporters) or self.known
        self.heads = [Lock() for _ in range(load.rankers)]
        self.learners = [Station(self.clock, 1) for _ in range(fleet.learners)]
        self.took: list[float] = []
        self.asked = self.retried = self.under_way = 0
        self._streams, self._block, self._at = Rng(story.seed), 0, DRAWN
        self._numbers = np.empty(0)

    def draw(self) -> float:
        """A number from 0 to 1."""
        if self._at == DRAWN:
            self._numbers = self._streams.for_event("capacity/simulation", self._block).random(DRAWN).tolist()
            self._block, self._at = self._block + 1, 0
        self._at += 1
        return float(self._numbers[self._at - 1])

    def varied(self) -> float:
        """A factor as drawn from what was measured."""
        return self.times.spread[int(self.draw() * len(self.times.spread))]

    def arrive(self) -> None:
        """The next request, and the one after it."""
        rate = self.load.requests * self.story.factor(self.clock.now)
        self.clock.after(-math.log(1 - self.draw()) / rate, self.arrive)
        hot = self.load.rankers == 1 or self.draw() < self.load.share
        ranker = 0 if hot else 1 + int(self.draw() * (self.load.rankers - 1))
        self.asked += 1
        self.under_way += 1
        whole, rest = divmod(self.load.clicks_per_list, 1.0)
        self.ask(_List(self.clock.now, ranker, int(whole) + (self.draw() < rest)))

    def ask(self, one: _List) -> None:
        """Send it to a process; from one that is gone it comes back."""
        process = self.known[int(self.draw() * len(self.known))]
        if process.alive:
            process.rank(one)
        else:
            self.retried += 1
            self.clock.after(RETRY, self.ask, one)

    def answered(self, one: _List) -> None:
        """A list is stored, and its caller has it; some click, a moment later."""
        self.under_way -= 1
        self.took.append(self.clock.now - one.came)
        for number in range(one.clicks):
            self.clock.after(-math.log(1 - self.draw()), self.report, _Event(one.ranker, number == 0))

    def report(self, event: _Event) -> None:
        """An event comes to some process."""
        process = self.known_for_events[int(self.draw() * len(self.known_for_events))]
        if process.alive:
            process.report(event)
        else:
            self.retried += 1
            self.clock.after(RETRY, self.report, event)

    def learn(self, ranker: int) -> None:
        """By the process that has the ranker: the busiest has one to itself where there is more than one."""
        others = max(len(self.learners) - 1, 1)
        learner = 0 if ranker == 0 else len(self.learners) - others + (ranker - 1) % others
        self.learners[learner].take(self.times.outcome * self.varied(), _nothing)

    def lose(self) -> None:
        """A share of the machines is gone, with what was on them."""
        gone = math.ceil(self.story.lose * self.fleet.machines)
        reporters = self.reporters[: math.ceil(self.story.lose * len(self.reporters))]
        for process in [*self.processes[: gone * self.fleet.processes], *reporters]:
            process.alive = False
            process.loop.open = False
            for one in process.lists:
                self.retried += 1
                self.clock.after(PATIENCE, self.ask, one)
            for event in process.events:
                self.clock.after(PATIENCE, self.report, event)
        self.clock.after(NOTICED, self._notice)
        for learner in self.learners[: math.ceil(self.story.lose * len(self.learners))]:
            learner.open = False
            self.clock.after(TAKEN_OVER, _taken_over, learner)

    def _notice(self) -> None:
        self.known = [process for process in self.processes if process.alive]
        self.known_for_events = [process for process in self.reporters if process.alive] or self.known


def _nothing() -> None:
    pass


def _taken_over(learner: Station) -> None:
    learner.open = True
    learner.reopen()


def simulate(
    load: Load, fleet: Fleet, times: Times, story: Story, on_second: Callable[[], None] = lambda: None
) -> list[Second]:
    """Tell a story, second by second."""
    if story.lose and math.ceil(story.lose * fleet.machines) >= fleet.machines:
        raise InvalidParameter(f"{story.lose:g} of {fleet.machines} machines leaves none; lose fewer, or have more")
    running = _Running(load, fleet, times, story)
    running.clock.after(0.0, running.arrive)
    if story.lose:
        running.clock.after(story.at, running.lose)
    seconds: list[Second] = []
    before = (0.0, 0.0, 0, 0)
    for second in range(1, math.ceil(story.seconds) + 1):
        running.took = []
        running.clock.run(float(second))
        seen = (
            sum(process.loop.busy for process in running.processes),
            running.database.busy,
            running.asked,
            running.retried,
        )
        there = sum(process.alive for process in running.processes)
        p50, p99 = np.percentile(running.took, [50, 99]) if running.took else (math.nan, math.nan)
        seconds.append(
            Second(
                at=float(second),
                asked=seen[2] - before[2],
                answered=len(running.took),
                p50=float(p50),
                p99=float(p99),
                waiting=running.under_way,
                ranking=min((seen[0] - before[0]) / there, 1.0),
                database=min((seen[1] - before[1]) / fleet.database_cores, 1.0),
                lag=sum(learner.waiting for learner in running.learners),
                retried=seen[3] - before[3],
            )
        )
        before = seen
        on_second()
    return seconds


def fleet_of(plan: Plan) -> Fleet:
    """What a plan says, in whole machines."""
    load = plan.load
    machines = plan.value("machines that rank") if load.store == "postgresql" else 1
    return Fleet(
        machines=int(machines),
        processes=int(plan.value("ranking processes a machine")),
        learners=int(plan.value("learning processes")),
        database_cores=math.ceil(plan.value("cores of the database")) if load.store == "postgresql" else load.cores,
        feedback=int(plan.value("processes that take feedback")) if load.feedback_apart else 0,
    )
