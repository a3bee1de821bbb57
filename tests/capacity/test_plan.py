"""What a plan says follows from its constants, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankloop.core.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.service.capacity import constants as files
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.machine import throughput
from rankloop.service.capacity.plan import make_plan
from tests.capacity.made_up import constants, store

LOAD = Load(requests=1000, candidates=100, features=50, clicks_per_list=0.5, headroom=0.5, cores=4, survive=1)


def test_a_plan_by_hand() -> None:
    plan = make_plan(LOAD, constants())
    says = plan.value
    assert says("lists a second that one process can rank") == pytest.approx(1 / 1.5e-3)  # 1 ms, and half an event's 1
    assert says("ranking processes") == 3  # 1000 / (667 x .5)
    assert says("cores that rank") == pytest.approx(1000 * 0.75e-3 / (0.8 * 0.5))
    assert says("machines that rank") == 2  # 3 processes fit 4 cores; one may be lost
    assert says("outcomes a second that one ranker can learn") == pytest.approx(2000)
    assert says("of a core that the busiest ranker's learning takes") == pytest.approx(500 * 0.5e-3)
    assert says("learning processes") == 1
    assert says("cores of the database") == pytest.approx(1000 * 0.3e-3 / 0.5)
    assert says("commits a second") == pytest.approx(1500 * 0.25)
    assert says("rows a second") == pytest.approx(1000 + 500 * 3)
    assert says("write-ahead log") == pytest.approx(1000 * 5000 + 500 * 2000)
    assert says("the store grows by") == pytest.approx(86_400 * (1000 * 5000 + 500 * 1000))
    assert says("size of the store") == pytest.approx(30 * 86_400 * 5.5e6)
    assert says("network to the machines that rank") == pytest.approx(1000 * (35_100 + 800) + 500 * 500)
    assert plan.warnings == ()


def test_every_line_says_where_it_comes_from() -> None:
    plan = make_plan(LOAD, constants())
    assert all(line.formula for line in plan.lines)
    used = {name for line in plan.lines for name in line.constants}
    assert {"hold_list", "rank", "learn", "fold_event", "database_list", "stored_list", "usable", "request"} <= used


def test_learning_that_outgrows_a_core_is_said_with_what_to_do() -> None:
    plan = make_plan(replace(LOAD, requests=10_000, rankers=20, hottest=0.8), constants())
    assert plan.value("of a core that the busiest ranker's learning takes") == pytest.approx(2.0)
    (warning,) = (text for text in plan.warnings if "lag" in text)
    assert "batches" in warning
    assert "4 rankers" in warning
    even = make_plan(replace(LOAD, requests=10_000, rankers=20), constants())
    assert not [text for text in even.warnings if "lag" in text]


def test_events_that_take_turns_are_said_and_can_go_apart() -> None:
    """500 events a second and 2 ms each: one is always under way. Three processes take turns, lists behind them."""
    assert make_plan(LOAD, constants()).value("an event waits for its turn") == pytest.approx(3 * 2e-3)
    quiet = make_plan(replace(LOAD, requests=500), constants())
    assert quiet.value("an event waits for its turn") == pytest.approx(2e-3 / (1 - 0.5))
    many = replace(LOAD, requests=20_000, rankers=100, cores=64)
    (warning,) = make_plan(many, constants()).warnings
    assert "60 processes take feedback" in warning
    assert "120 ms a round" in warning
    apart = make_plan(replace(many, feedback_apart=True), constants())
    assert apart.warnings == ()
    assert apart.value("ranking processes") == 40
    assert apart.value("processes that take feedback") == 20


def test_a_database_that_is_too_small_is_said() -> None:
    load = replace(LOAD, requests=10_000, rankers=100, feedback_apart=True)
    (warning,) = make_plan(load, constants()).warnings
    assert warning.startswith("the database needs 6.0 cores and its machine has 4")


def test_sqlite_is_one_machine_s() -> None:
    small = make_plan(replace(LOAD, store="sqlite"), constants())
    assert not small.warnings
    assert all(line.name not in ("machines that rank", "cores of the database") for line in small.lines)
    (warning,) = make_plan(replace(LOAD, store="sqlite", requests=3000, rankers=10), constants()).warnings
    assert "--store postgresql" in warning


def test_more_of_anything_needs_no_less() -> None:
    known = files.load()
    names = [line.name for line in make_plan(LOAD, known).lines if "can" not in line.name]
    before = make_plan(LOAD, known)
    for more in ({"requests": 2000}, {"candidates": 200}, {"features": 100}, {"clicks_per_list": 1.0}):
        after = make_plan(replace(LOAD, **more), known)
        assert all(after.value(name) >= before.value(name) for name in names if "a machine" not in name), more


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"requests": 0}, "requests is 0"),
        ({"requests": float("nan")}, "requests is nan"),
        ({"features": 5000}, "features is 5000"),
        ({"headroom": 1.0}, "headroom is 1.0"),
        ({"store": "oracle"}, "store is 'oracle'"),
        ({"shown": 200}, "more than the 100 candidates"),
        ({"hottest": 0.8}, "give --rankers"),
        ({"rankers": 4, "hottest": 0.1}, "at least 1/4"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        replace(LOAD, **wrong)  # type: ignore[arg-type]


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"no learner 'nsgd'.*--learners nsgd"):
        make_plan(replace(LOAD, learner="nsgd"), constants())
    with pytest.raises(UnknownName, match="no store 'postgresql'"):
        make_plan(LOAD, replace(constants(), stores={"sqlite": store()}))


def test_a_machine_is_ended_by_its_processes_or_by_its_cores() -> None:
    asked = replace(LOAD, clicks_per_list=0.0)
    one, four = (throughput(asked, constants(), workers, 2, with_sender=True) for workers in (1, 4))
    assert [one.limit, four.limit] == ["processes", "cores"]
    assert one.rate == pytest.approx(1000)
    assert four.rate == pytest.approx(2 * 0.8 / 0.8e-3)
    alone = throughput(asked, constants(), 4, 2, with_sender=False)
    assert alone.rate == pytest.approx(2 * 0.8 / 0.7e-3)
    with pytest.raises(InvalidParameter, match="workers is 0"):
        throughput(asked, constants(), 0, 2, with_sender=False)


def test_constants_are_the_same_after_a_file(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    constants().save(path)
    assert files.load(path) == constants()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no file of constants"),
        ("[]", "format 1"),
        ('{"format": 1, "stores": {"sqlite": {}}, "learners": {}}', "lacks or does not know"),
        ('{"format": 1}', "rankloop plan measure"),
    ],
)
def test_a_file_of_something_else_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        files.load(path)


def test_the_constants_that_ship_name_their_machine_and_are_near_what_was_measured() -> None:
    known = files.load()
    assert {"sqlite", "postgresql"} == set(known.stores)
    assert "cores" in known.machine
    for parts in known.stores.values():
        assert parts.hold_list.points >= 7
        assert parts.hold_list.typical < 0.25
        assert 0.5 < parts.usable <= 1
