"""A fleet in a story: the same for the same seed, nobody forgotten, and in trouble where arithmetic says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.plan import make_plan
from rankloop.service.capacity.simulation import Fleet, Story, Times, fleet_of, simulate, times_of
from tests.capacity.made_up import constants

LOAD = Load(requests=500, candidates=20, features=20, clicks_per_list=0.5, rankers=5)
FLEET = Fleet(machines=3, processes=1, learners=2, database_cores=1)
TIMES = Times(1e-3, 1e-3, 0.5e-3, 1e-3, 0.2e-3, 0.2e-3, 0.5e-3, (0.5, 1.0, 1.5))


def test_the_same_seed_tells_the_same_story() -> None:
    story = Story(seconds=4, lose=0.3, at=2)
    first = simulate(LOAD, FLEET, TIMES, story)
    assert simulate(LOAD, FLEET, TIMES, story) == first
    assert simulate(LOAD, FLEET, TIMES, replace(story, seed=1)) != first


def test_every_request_is_answered_or_under_way() -> None:
    seconds = simulate(LOAD, FLEET, TIMES, Story(seconds=8, lose=0.3, at=3))
    assert sum(one.asked - one.answered for one in seconds) == seconds[-1].waiting
    assert sum(one.retried for one in seconds) > 0
    assert seconds[-1].waiting < 30  # two processes carry it


def test_a_quiet_fleet_takes_what_its_parts_take() -> None:
    """Hold, trip and database, one after the other; nobody waits for anybody."""
    times = replace(TIMES, spread=(1.0,))
    seconds = simulate(replace(LOAD, requests=5, clicks_per_list=0.0), FLEET, times, Story(seconds=10))
    assert seconds[5].p50 == pytest.approx(1e-3 + 0.5e-3 + 0.2e-3, rel=1e-6)


def test_what_is_taken_up_is_rate_times_work() -> None:
    seconds = simulate(LOAD, FLEET, TIMES, Story(seconds=20))[5:]
    mean = sum(one.ranking for one in seconds) / len(seconds)
    assert mean == pytest.approx(500 * (1e-3 + 0.5 * 1e-3) / 3, rel=0.05)
    database = sum(one.database for one in seconds) / len(seconds)
    assert database == pytest.approx(500 * 1.5 * 0.2e-3, rel=0.05)


def test_several_clicks_a_list_are_as_many_events_and_one_outcome() -> None:
    load = replace(LOAD, requests=200, clicks_per_list=2.5)
    seconds = simulate(load, replace(FLEET, learners=1), replace(TIMES, outcome=4e-3), Story(seconds=20))[5:]
    database = sum(one.database for one in seconds) / len(seconds)
    assert database == pytest.approx(200 * 3.5 * 0.2e-3, rel=0.05)
    assert seconds[-1].lag < 50  # 250 outcomes a second can be learned, of 200; not 500


def test_a_rate_above_what_processes_can_piles_up() -> None:
    story = Story(seconds=8, rate=((0.0, 1.0), (4.0, 6.0)))
    seconds = simulate(LOAD, FLEET, TIMES, story)
    assert seconds[3].waiting < 50
    assert seconds[-1].waiting > 1000
    assert seconds[-1].p50 > 10 * seconds[2].p50


def test_a_hot_ranker_falls_behind_while_lists_do_not() -> None:
    slow = replace(TIMES, outcome=12e-3)  # 83 outcomes a second; half of 300 lists are clicked
    spread = simulate(replace(LOAD, rankers=20, requests=300), replace(FLEET, learners=8), slow, Story(seconds=6))
    hot = simulate(
        replace(LOAD, rankers=20, requests=300, hottest=0.95), replace(FLEET, learners=8), slow, Story(seconds=6)
    )
    assert spread[-1].lag < 30
    assert hot[-1].lag > 200
    assert hot[-1].p99 < 2 * spread[-1].p99


def test_events_of_one_ranker_wait_for_each_other() -> None:
    """A number is held until it is on the disk, so processes that report on the same ranker take turns."""
    slow = replace(TIMES, event_trip=8e-3)
    many = replace(FLEET, machines=12, database_cores=4)
    one = simulate(replace(LOAD, rankers=1, clicks_per_list=1.0), many, slow, Story(seconds=4))
    spread = simulate(replace(LOAD, rankers=500, clicks_per_list=1.0), many, slow, Story(seconds=4))
    assert one[-1].p99 > 1.5 * spread[-1].p99


def test_lists_do_not_wait_for_events_that_go_elsewhere() -> None:
    slow = replace(TIMES, event_trip=8e-3)
    load, many = replace(LOAD, rankers=1, clicks_per_list=1.0), replace(FLEET, machines=12, database_cores=4)
    together = simulate(load, many, slow, Story(seconds=4))
    apart = simulate(load, replace(many, feedback=2), slow, Story(seconds=4))
    assert apart[-1].p99 < together[-1].p99 / 2
    assert sum(one.asked - one.answered for one in apart) == apart[-1].waiting
    lost = simulate(load, replace(many, feedback=2), slow, Story(seconds=10, lose=0.5, at=3))
    assert lost[-1].waiting < 50
    assert lost[-1].lag < 200


def test_a_lost_learner_is_taken_over() -> None:
    story = Story(seconds=12, lose=0.3, at=3)
    seconds = simulate(replace(LOAD, rankers=1), replace(FLEET, learners=1), TIMES, story)
    assert max(one.lag for one in seconds[3:6]) > 100
    assert seconds[-1].lag < 20


def test_a_plan_becomes_a_fleet_that_carries_it() -> None:
    load = Load(requests=2000, candidates=100, features=50, rankers=10)
    plan = make_plan(load, constants())
    fleet = fleet_of(plan)
    assert fleet.machines * fleet.processes >= plan.value("ranking processes")
    last = simulate(load, fleet, times_of(load, constants()), Story(seconds=4))[-1]
    assert last.waiting < 200
    assert last.ranking < 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"seconds": 0}, "seconds is 0"), ({"lose": 1.0}, "lose is 1.0"), ({"rate": ((1.0, 1.0),)}, "from second 0")],
)
def test_stories_that_cannot_be_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Story(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="machines is 0"):
        Fleet(0, 1, 1, 1)
    with pytest.raises(InvalidParameter, match="leaves none"):
        simulate(LOAD, replace(FLEET, machines=1), TIMES, Story(lose=0.5))
