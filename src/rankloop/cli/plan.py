"""`rankloop plan`: what a load needs, what a machine gives, and what happens when machines are lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter
from rankloop.service.capacity.load import Load

if TYPE_CHECKING:
    from rankloop.service.capacity.constants import Constants
    from rankloop.service.capacity.plan import Plan
    from rankloop.service.capacity.simulation import Second

plan = App(name="plan", help="What a load needs: processes, machines, a database; from measured constants.")
Asked = Annotated[Load, Parameter(name="*")]
DEFAULT = Load()


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(plan)


@plan.default
def needs(*, load: Asked = DEFAULT, constants: Path | None = None, why: bool = False, json: bool = False) -> None:
    """Say what a load needs: processes that rank and that learn, machines, the database's size and rates, memory.

    Everything is arithmetic on constants that were measured; `--why` prints each formula with its numbers, and
    `rankloop plan measure` makes constants of a machine of yours.

    Example: rankloop plan --requests 10000 --candidates 100 --features 136

    Example: rankloop plan --requests 200 --candidates 50 --features 30 --learner hybrid --store sqlite --why

    Parameters
    ----------
    constants
        A file from `rankloop plan measure`; else those that come with rankloop.
    why
        Print formulas and constants.
    json
        Print one JSON object instead of a table.
    """
    from rankloop.service.capacity.plan import make_plan

    made = make_plan(load, _constants(constants))
    if json:
        _out.print_json(made.as_dict())
    else:
        _print_plan(made, why)


@plan.command
def machine(
    *,
    load: Asked = DEFAULT,
    workers: tuple[int, ...] = (1, 2, 4),
    sender: bool = False,
    constants: Path | None = None,
    json: bool = False,
) -> None:
    """Say how many lists a second one machine gives that has everything on it: rankers, learner and database.

    `--requests` is not looked at: callers always have the next one ready.

    Example: rankloop plan machine --candidates 100 --features 136 --cores 2 --workers 1 --workers 4 --sender

    Parameters
    ----------
    workers
        Processes that rank, as in `rankloop serve --workers`; give it several times to compare.
    sender
        The process that sends the requests is on the machine, too, as in `python -m benchmarks.capacity_check`.
    constants
        A file from `rankloop plan measure`; else those that come with rankloop.
    json
        Print JSON.
    """
    from rankloop.service.capacity.machine import throughput

    known = _constants(constants)
    found = [throughput(load, known, processes, load.cores, sender) for processes in workers]
    if json:
        _out.print_json([{**vars(one), "limit": one.limit} for one in found])
        return
    rows = [
        [str(one.workers), *(f"{value:,.0f}" for value in (one.rate, one.by_processes, one.by_cores)), one.limit]
        for one in found
    ]
    title = f"{load.candidates} x {load.features} · {load.learner} · {load.store} · {load.cores} cores"
    columns = ["processes that rank", "lists/s", "as processes allow", "as cores allow", "what ends it"]
    _out.print_table(title, columns, rows, note=_of(known))


@plan.command
def measure(
    out: Path,
    /,
    *,
    store: tuple[str, ...] = (),
    learners: str = "",
    turns: int = 1,
    seconds: float = 1.5,
) -> None:
    """Measure the constants of this machine and write them to a file: a minute or two for a store.

    Starts a service on a fresh SQLite file, or on the store given, sends it lists of several sizes from this machine,
    and looks at the processor time of each process. Nothing else should run meanwhile. What it makes in a PostgreSQL
    stays there: take a database that is there for it.

    Example: rankloop plan measure here.json --store postgresql://localhost/plan --store sqlite

    Parameters
    ----------
    out
        The file to write.
    store
        postgresql://… of a server on this machine, or sqlite; several if given several times. sqlite if not given.
    learners
        Names to measure beside the usual ones, separated by commas.
    turns
        How often each run is repeated; medians count.
    seconds
        How long a run takes.
    """
    import tempfile

    from rankloop.service.capacity.measure.campaign import LEARNERS, Effort, measured, steps

    effort, wanted = Effort(turns, seconds), list(dict.fromkeys([*LEARNERS, *filter(None, learners.split(","))]))
    strange = [one for one in store if one != "sqlite" and not one.startswith(("postgresql://", "postgres://"))]
    if strange:
        raise InvalidParameter(f"store is {strange[0]!r}; give sqlite or a postgresql:// URL")
    _out.check_writable(out)
    _out.say_when_compiling()
    with tempfile.TemporaryDirectory(prefix="rankloop-plan-") as folder, _out.progress_bars() as bars:
        stores = [str(Path(folder, "plan.db")) if one == "sqlite" else one for one in store or ("sqlite",)]
        task = bars.add_task("measuring", total=steps(stores, wanted, effort))
        found, _ = measured(stores, wanted, effort, lambda step: bars.update(task, advance=1, description=step))
    found.save(out)
    rows = [
        [where, name, f"{curve.typical:.0%}", f"{curve.worst:.0%}"]
        for where, parts in {**found.stores, **found.learners}.items()
        for name, curve in vars(parts).items()
        if name in ("hold_list", "ranking_list", "database_list", "fold_event", "rank", "learn")
    ]
    _out.print_table(str(out), ["of", "curve", "typical error", "worst"], rows, numbers_from=2, note=_of(found))


@plan.command
def simulate(
    *,
    load: Asked = DEFAULT,
    machines: int = 0,
    processes: int = 0,
    learning: int = 0,
    database_cores: int = 0,
    seconds: float = 30.0,
    lose: float = 0.0,
    at: float = 10.0,
    surge: float = 1.0,
    seed: int = 0,
    constants: Path | None = None,
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Tell second by second what a fleet does under a load: latency, queues, lag, also when machines are lost.

    A discrete-event model of the service that is fed with measured times. The fleet is what the plan says, with what of
    it is given here in its place.

    Example: rankloop plan simulate --requests 10000 --candidates 100 --features 136 --lose 0.34 --figure lost.svg

    Example: rankloop plan simulate --requests 10000 --candidates 100 --features 136 --rankers 20 --hottest 0.8

    Parameters
    ----------
    machines
        That rank; 0: as the plan says.
    processes
        That rank, on each; 0: as the plan says.
    learning
        Processes that learn; 0: as the plan says.
    database_cores
        0: as the plan says.
    seconds
        How long.
    lose
        Share of the machines that is lost.
    at
        The second at which that happens, or the surge begins.
    surge
        What the rate is multiplied by from then on.
    seed
        Same seed, same story.
    constants
        A file from `rankloop plan measure`; else those that come with rankloop.
    figure
        Draw it into this file, .svg or .png.
    json
        Print one JSON object instead of a table.
    """
    from rankloop.service.capacity.plan import make_plan
    from rankloop.service.capacity.simulation import Fleet, Story, fleet_of, times_of
    from rankloop.service.capacity.simulation import simulate as told

    known = _constants(constants)
    says = fleet_of(make_plan(load, known))
    fleet = Fleet(
        machines or says.machines,
        processes or says.processes,
        learning or says.learners,
        database_cores or says.database_cores,
        says.feedback,
    )
    story = Story(seconds, ((0.0, 1.0), (at, surge)) if surge != 1 else ((0.0, 1.0),), lose, at, seed)
    with _out.progress_bars() as bars:
        task = bars.add_task("simulating", total=int(seconds))
        seen = told(load, fleet, times_of(load, known), story, lambda: bars.update(task, advance=1))
    moments = [at] if lose or surge != 1 else []
    if figure is not None:
        from rankloop.cli._plan_figure import over_time
        from rankloop.lab.plots.learning import save_as

        title = f"{load.requests:,.0f} requests a second, {fleet.machines} machines x {fleet.processes} processes"
        save_as(over_time(seen, title, moments), figure)
    if json:
        _out.print_json({"fleet": vars(fleet), "seconds": [one._asdict() for one in seen]})
    else:
        _print_story(seen, vars(fleet), known)


def _constants(path: Path | None) -> Constants:
    from rankloop.service.capacity.constants import SHIPPED, load

    return load(path or SHIPPED)


def _of(constants: Constants) -> str:
    return f"constants of {constants.machine}, measured {constants.measured} with rankloop {constants.rankloop}"


def _print_plan(made: Plan, why: bool) -> None:
    load = made.load
    title = (
        f"{load.requests:,.6g} lists/s · {load.candidates} x {load.features} · {load.learner} · {load.store} · "
        f"{load.clicks_per_list:g} clicks a list"
    )
    rows = [[line.name, _amount(line.value, line.unit), line.formula if why else ""] for line in made.lines]
    columns = ["", "", "how it comes about"] if why else ["", ""]
    _out.print_table(title, columns, [row[: len(columns)] for row in rows], numbers_from=2, note=f"of {made.machine}")
    if why:
        used = {name: text for line in made.lines for name, text in line.constants.items()}
        _out.print_table("constants", ["", "n candidates, d features, k shown"], [*map(list, used.items())], 2)
    for warning in made.warnings:
        print(f"! {warning}")


def _amount(value: float, unit: str) -> str:
    """With a prefix where bytes are many.

    >>> _amount(1.5e9, "bytes/s"), _amount(27, ""), _amount(3.456, "cores")
    ('1.5 GB/s', '27', '3.5 cores')
    """
    if unit.startswith("bytes"):
        for prefix, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {prefix}{unit.removeprefix('bytes')}"
        return f"{value:.0f} {unit}"
    if unit == "s":
        return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
    return f"{text} {unit}".strip() if not unit.startswith("/") else f"{text}{unit}"


def _print_story(seen: list[Second], fleet: dict[str, Any], known: Constants) -> None:
    every = max(len(seen) // 15, 1)
    rows = [
        [
            f"{one.at:.0f}",
            f"{one.asked:,}",
            f"{one.answered:,}",
            *(f"{1e3 * value:,.1f}" for value in (one.p50, one.p99)),
            f"{one.waiting:,}",
            f"{one.ranking:.0%}",
            f"{one.database:.0%}",
            f"{one.lag:,}",
            f"{one.retried:,}",
        ]
        for one in seen[every - 1 :: every]
    ]
    title = " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in fleet.items())
    columns = ["second", "asked", "answered", "p50 ms", "p99 ms", "under way", "rankers", "database", "lag", "retried"]
    _out.print_table(title, columns, rows, numbers_from=0, note=_of(known))
