"""Leases are placed by load: a simulated clock, simulated processes, noisy measurements."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rankloop.service.training.fold import COST_OUTCOMES, RATE_SECONDS, LoadEstimator
from rankloop.service.training.leases import MAX_GIVEN, to_give, to_take, totals, weight


class Simulated:
    """Processes that look at the store once a second, one after the other in any order."""

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


@pytest.mark.parametrize("seed", range(4))
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
    assert len(given) == MAX_GIVEN
    assert not set(to_give("a", ["a", "b"], holders, loads, given)) & set(given)
    assert to_give("a", ["a"], holders, loads) == []  # nobody else is there


def test_load_is_rate_times_cost_also_beyond_a_core() -> None:
    for rate, learned, seconds, load in ((100, 100, 0.2, 0.2), (1500, 500, 1.0, 3.0)):
        estimator = LoadEstimator()
        for second in range(200):
            estimator.logged(rate * second, float(second))
            estimator.learned(learned, seconds)
        assert estimator.load == pytest.approx(load, rel=0.05)


def test_an_inherited_load_counts_until_it_is_measured_here() -> None:
    estimator = LoadEstimator()
    estimator.inherit(0.5)
    assert estimator.load == 0.5
    assert estimator.to_report() is None
    for second in range(int(3 * RATE_SECONDS)):
        estimator.logged(0, float(second))
    assert estimator.load == 0.0
    assert estimator.to_report() == 0.0
    estimator.reported = 0.0
    assert estimator.to_report() is None
    estimator.learned(int(COST_OUTCOMES), 1.0)
    estimator.logged(0, 4 * RATE_SECONDS)
    assert estimator.load == 0.0  # no outcomes
