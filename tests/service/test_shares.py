"""Who learns what is a matter of load: a simulated clock, simulated processes, and what they measure is noisy."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rankloop.service.training.lease_placement import EACH, MOST, to_give, to_take, totals, weight
from rankloop.service.training.load_estimator import OUTCOMES, SECONDS, Work


class Simulated:
    """Processes that look once a second, one after the other in any order, and see what the store says."""

    def __init__(self, workers: int, loads: dict[str, float], seed: int = 0, noise: float = 0.0) -> None:
        self.alive = [f"w{i}" for i in range(workers)]
        self.true, self.noise = loads, noise
        self.holders: dict[str, str] = {}
        self.moves = 0
        self._rng = random.Random(seed)

    def measured(self) -> dict[str, float]:
        return {name: load * self._rng.uniform(1 - self.noise, 1 + self.noise) for name, load in self.true.items()}

    def second(self) -> None:
        loads = self.measured()
        for me in self._rng.sample(self.alive, len(self.alive)):
            held = {name: holder for name, holder in self.holders.items() if holder in self.alive}
            free = [name for name in self.true if name not in held]
            taken = to_take(me, self.alive, held, loads, free)
            self.holders = held | dict.fromkeys(taken, me)
            self.moves += len(taken)
            if not taken:
                for name in to_give(me, self.alive, self.holders, loads):
                    del self.holders[name]

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def busiest(self) -> float:
        return max(totals(self.alive, self.holders, self.true).values())

    def with_(self, name: str) -> set[str]:
        return {other for other, holder in self.holders.items() if holder == self.holders[name]}


def zipf(count: int, total: float) -> dict[str, float]:
    weights = [1 / (i + 1) for i in range(count)]
    return {f"r{i}": total * one / sum(weights) for i, one in enumerate(weights)}


def test_idle_rankers_are_spread_by_their_number() -> None:
    world = Simulated(3, dict.fromkeys((f"r{i}" for i in range(12)), 0.0))
    world.seconds(3)
    assert sorted(Counter(world.holders.values()).values()) == [4, 4, 4]


def test_all_are_taken_when_a_process_is_alone_and_shared_when_another_comes() -> None:
    world = Simulated(1, zipf(40, 2.0))
    world.second()
    assert set(world.holders.values()) == {"w0"}
    world.alive.append("w1")
    world.seconds(30)
    assert len(world.holders) == 40
    assert world.busiest() <= 1.25  # of 2.04, on two


def test_a_hot_ranker_is_alone_if_others_can_take_the_rest() -> None:
    loads = {"hot": 0.9, **dict.fromkeys((f"r{i}" for i in range(20)), 0.02)}
    world = Simulated(1, loads)
    world.second()
    world.alive += ["w1", "w2"]
    world.seconds(60)
    assert world.with_("hot") == {"hot"}
    assert len(world.holders) == 21


@pytest.mark.parametrize("seed", range(8))
def test_nothing_goes_back_and_forth(seed: int) -> None:
    """What is measured may be a sixth off, differently at each look: once it is spread it stays."""
    world = Simulated(5, zipf(60, 3.0), seed, noise=0.15)
    world.seconds(60)
    assert len(world.holders) == 60
    largest = max(weight(name, world.true) for name in world.true)
    even = sum(weight(name, world.true) for name in world.true) / 5
    assert world.busiest() <= max(largest, 1.5 * even)
    before = world.moves
    world.seconds(300)
    assert world.moves - before <= 3


def test_what_a_dead_process_had_is_spread_over_the_others() -> None:
    world = Simulated(4, zipf(40, 2.0), noise=0.1)
    world.seconds(40)
    world.alive.remove("w2")
    world.seconds(3)
    assert len(world.holders) == 40
    assert set(world.holders.values()) == {"w0", "w1", "w3"}
    assert world.busiest() <= 1.4 * 2.04 / 3


def test_few_are_given_back_at_a_time_and_those_that_stay_are_not() -> None:
    loads = dict.fromkeys((f"r{i}" for i in range(100)), 0.0)
    holders = dict.fromkeys(loads, "a")
    given = to_give("a", ["a", "b"], holders, loads)
    assert len(given) == MOST
    assert not set(to_give("a", ["a", "b"], holders, loads, given)) & set(given)
    assert to_give("a", ["a"], holders, loads) == []  # nobody else is there
    assert EACH > 0


# -- what is measured ----------------------------------------------------------------------------------------------


def test_load_is_what_comes_times_what_it_takes() -> None:
    work, now, head = Work(), 100.0, 0
    for _ in range(int(6 * SECONDS)):
        work.came(head, now)
        work.took(100, 100 * 0.002)
        head, now = head + 100, now + 1.0
    assert work.load == pytest.approx(0.2, rel=0.02)


def test_a_process_with_too_much_to_do_says_how_much_it_is() -> None:
    """It learns as fast as it can, all the time; what comes would take three of it."""
    work, head = Work(), 0
    for second in range(200):
        work.came(head, float(second))
        work.took(500, 1.0)
        head += 1500
    assert work.load == pytest.approx(3.0, rel=0.05)


def test_what_was_measured_elsewhere_counts_until_it_is_measured_here() -> None:
    work = Work()
    work.begin(0.5)
    assert work.load == 0.5
    assert work.news() is None
    for second in range(int(3 * SECONDS)):
        work.came(0, float(second))
    assert work.load == 0.0
    assert work.news() == 0.0  # worth telling
    work.told = 0.0
    assert work.news() is None
    work.took(int(OUTCOMES), 1.0)
    work.came(0, 4 * SECONDS)
    assert work.load == 0.0  # nothing comes
