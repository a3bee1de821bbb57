"""`rankloop plan`: what a load needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.service.capacity import Load, Plan, load_constants, make_plan

DEFAULT = Load()


def add_to(app: App) -> None:
    """Register the command."""
    app.command(plan)


def plan(
    *,
    load: Annotated[Load, Parameter(name="*")] = DEFAULT,
    constants: Path | None = None,
    explain: bool = False,
    json: bool = False,
) -> None:
    """Compute what a load needs: processes that rank and learn, machines, database, storage, memory.

    The results are arithmetic on measured costs. From a checkout, `python -m benchmarks capacity --out FILE` measures
    those of your machine.

    Example: rankloop plan --requests 10000 --candidates 100 --features 136

    Example: rankloop plan --requests 200 --candidates 50 --features 30 --learner hybrid --store sqlite --explain

    Parameters
    ----------
    constants
        A file of measured costs; if not given, the one that comes with rankloop.
    explain
        Print the formulas.
    json
        Print one JSON object instead of a table.
    """
    costs = load_constants(constants) if constants else load_constants()
    made = make_plan(load, costs)
    if json:
        _out.print_json(asdict(made))
    else:
        _print_plan(made, explain, f"costs measured on {costs.machine}, {costs.measured}, rankloop {costs.rankloop}")


def _print_plan(made: Plan, explain: bool, note: str) -> None:
    load = made.load
    title = (
        f"{load.requests:,.6g} rankings/s · {load.candidates} x {load.features} · {load.learner} · {load.store} · "
        f"{load.feedback:g} events per ranking"
    )
    rows = [[line.name, _amount(line.value, line.unit), *([line.formula] if explain else [])] for line in made.lines]
    _out.print_table(title, ["", "", "formula"] if explain else ["", ""], rows, numbers_from=2, note=note)
    for warning in made.warnings:
        print(f"! {warning}")


def _amount(value: float, unit: str) -> str:
    """A value with its unit.

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
    return f"{text}{unit}" if unit.startswith("/") else f"{text} {unit}".strip()
