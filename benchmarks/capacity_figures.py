"""Draws the figures of docs/scaling.md and prints what they show: `python -m benchmarks.capacity_figures`.

Stories of 10,000 requests a second, told by the simulation with the constants that ship: the fleet of the plan with
more and more coming, where processes that rank take feedback and where it goes apart; one ranker that gets 80 %; a
third of the machines lost, with one machine to spare and with as many as that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.__main__ import print_rows
from rankloop.cli._plan_figure import over_time
from rankloop.lab.plots.learning import save_as
from rankloop.service.capacity.constants import load
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.plan import make_plan
from rankloop.service.capacity.simulation import Fleet, Second, Story, fleet_of, simulate, times_of

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
TOGETHER = Load(requests=10_000, candidates=100, features=136, rankers=20)
ASKED = replace(TOGETHER, feedback_apart=True)
LENGTH, AT = 20.0, 6.0


class Told(NamedTuple):
    """A story by its name, and what was seen."""

    name: str
    title: str
    fleet: Fleet
    story: Story
    seconds: list[Second]


def stories() -> Iterator[Told]:
    """One after the other; a minute each."""
    constants = load()
    planned, together = (fleet_of(make_plan(one, constants)) for one in (ASKED, TOGETHER))
    third = math.ceil(planned.machines / 3)
    spare = fleet_of(make_plan(replace(ASKED, survive=ASKED.survive + third), constants))
    more = Story(LENGTH, rate=tuple((4.0 * step, 1 + 0.25 * step) for step in range(5)))
    lost, hot = Story(LENGTH, lose=1 / 3, at=AT), replace(ASKED, hottest=0.8)
    told: list[tuple[str, str, Load, Fleet, Story]] = [
        (
            "together",
            "10,000 a second and a quarter more every 4 s; all processes take feedback",
            TOGETHER,
            together,
            more,
        ),
        ("more", "the same, feedback goes to processes of its own", ASKED, planned, more),
        ("hot", "one of 20 rankers gets 80 % of 10,000 requests a second", hot, planned, Story(LENGTH)),
        ("lost", f"a third of the machines is lost at second {AT:g}; one was to spare", ASKED, planned, lost),
        ("spare", f"the same with {third} more to spare", ASKED, spare, lost),
    ]
    for name, title, asked, fleet, story in told:
        yield Told(name, title, fleet, story, simulate(asked, fleet, times_of(asked, constants), story))


def _row(one: Told, second: Second) -> dict[str, Any]:
    return {
        "story": one.name,
        "machines x processes": f"{one.fleet.machines} x {one.fleet.processes}",
        "second": round(second.at),
        "asked/s": second.asked,
        "p50 ms": round(1e3 * second.p50, 1),
        "p99 ms": round(1e3 * second.p99, 1),
        "under way": second.waiting,
        "rankers": f"{second.ranking:.0%}",
        "database": f"{second.database:.0%}",
        "lag": second.lag,
        "retried": second.retried,
    }


def main() -> None:
    """Simulate, draw, print."""
    rows: list[dict[str, Any]] = []
    for one in stories():
        moments = [one.story.at] if one.story.lose else [begin for begin, _ in one.story.rate[1:]]
        save_as(over_time(one.seconds, one.title, moments), FIGURES / f"scaling-{one.name}.svg")
        rows.extend(_row(one, second) for second in one.seconds[1::3])
    print(f"Constants of {load().machine}, measured {load().measured}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
