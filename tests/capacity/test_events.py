"""The simulation's stations against queueing theory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rankloop.core.rng import Rng
from rankloop.service.capacity.events import Clock, Lock, Station


def mean_wait(servers: int, rate: float, service: Callable[[float], float], jobs: int, seed: int) -> float:
    """Seconds in line, of jobs that come at random; the first tenth, which finds an empty station, is left out."""
    clock, numbers = Clock(), Rng(seed).for_event("test", 0).random((jobs, 2))
    station = Station(clock, servers)
    came = np.cumsum(-np.log(1 - numbers[:, 0]) / rate)
    waits = np.empty(jobs)

    def come(job: int) -> None:
        seconds = service(float(numbers[job, 1]))
        station.take(seconds, done, job, seconds)
        if job + 1 < jobs:
            clock.after(came[job + 1] - clock.now, come, job + 1)

    def done(job: int, seconds: float) -> None:
        waits[job] = clock.now - came[job] - seconds

    clock.after(came[0], come, 0)
    clock.run(float(came[-1] * 2 + 1e3))
    return float(waits[jobs // 10 :].mean())


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_server_and_random_times(load: float) -> None:
    """M/M/1: the mean wait is load / (1 - load) times the mean service."""
    waited = mean_wait(1, load, lambda u: -math.log(1 - u), 80_000, seed=3)
    assert waited == pytest.approx(load / (1 - load), rel=0.06)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (2, 0.8), (5, 0.85)])
def test_several_servers_and_equal_times(servers: int, load: float) -> None:
    """M/D/c: the number in the system a service time later is what is left of it now and what came meanwhile."""
    waited = mean_wait(servers, servers * load, lambda _: 1.0, 80_000, seed=5)
    assert waited == pytest.approx(exact_wait(servers, load), rel=0.06)


def exact_wait(servers: int, load: float) -> float:
    """The stationary distribution by repeated steps, and Little's law; service times are 1."""
    rate, most = servers * load, 400
    comes = np.array([math.exp(-rate + n * math.log(rate) - math.lgamma(n + 1)) for n in range(most)])
    there = np.zeros(most)
    there[0] = 1.0
    for _ in range(2000):
        left = np.concatenate([[there[: servers + 1].sum()], there[servers + 1 :]])
        there = np.convolve(left, comes)[:most]
        there /= there.sum()
    return float(there @ np.arange(most)) / rate - 1.0


def test_the_exact_formula_is_the_textbook_s_for_one_server() -> None:
    assert exact_wait(1, 0.6) == pytest.approx(0.6 / (2 * (1 - 0.6)), rel=1e-6)


def test_a_closed_station_keeps_its_line() -> None:
    clock = Clock()
    seen: list[str] = []
    station = Station(clock, 1)
    station.take(1.0, seen.append, "begun")
    station.open = False
    station.take(1.0, seen.append, "late")
    clock.run(10.0)
    assert (seen, station.waiting) == (["begun"], 1)
    station.open = True
    station.reopen()
    clock.run(12.0)
    assert (seen, station.waiting) == (["begun", "late"], 0)


def test_a_lock_has_one_holder_and_a_line() -> None:
    lock = Lock()
    seen: list[str] = []
    for name in "abc":
        lock.take(seen.append, name)
    assert seen == ["a"]
    lock.give()
    lock.give()
    assert seen == ["a", "b", "c"]
    lock.give()
    lock.take(seen.append, "d")
    assert seen[-1] == "d"
