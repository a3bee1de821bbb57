"""What a capacity plan is made of, measured here: `python -m benchmarks.capacity [--turns 3] [--out FILE]`.

Runs of a real service on SQLite and on a PostgreSQL from pip (pgserver), one process that ranks and more processes than
cores, lists of several sizes with and without feedback, and learners by themselves; curves through them go to the file
that `rankloop plan` reads (`src/rankloop/service/capacity/constants.json`), with the machine's name. `rankloop plan
measure`
does the same on a store of yours. The table says how far off each curve is at points that were left out of its fit.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import ArgumentParser
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rankloop.service.capacity.constants import SHIPPED, Constants, load
from rankloop.service.capacity.curves import Curve
from rankloop.service.capacity.measure.campaign import CARRIER, LEARNERS, Effort, constants_of, measured
from rankloop.service.capacity.measure.runs import Run, as_rows


def rows(constants: Constants) -> list[dict[str, Any]]:
    """A line for each curve."""
    groups = {**constants.stores, **constants.learners}
    return [
        {
            "of": group,
            "curve": name,
            "formula": value.text(1.0 if name in ("request", "answer", "event", "state") or _sized(name) else 1e-6),
            "unit": "rows" if name.startswith("rows") else "bytes" if name in SIZED or _sized(name) else "µs",
            "points": value.points,
            "typical error": f"{value.typical:.1%}",
            "worst": f"{value.worst:.1%}",
        }
        for group, parts in groups.items()
        for name, value in vars(parts).items()
        if isinstance(value, Curve)
    ]


SIZED = ("request", "answer", "event", "state")


def _sized(name: str) -> bool:
    return name.startswith(("wal", "stored", "rows"))


def run() -> list[dict[str, Any]]:
    """For `make bench`: measure, write the file, tell."""
    return rows(_measured(("sqlite", "postgresql"), Effort(turns=3), SHIPPED, None))


def _measured(stores: tuple[str, ...], effort: Effort, out: Path, raw: str | None) -> Constants:
    from benchmarks.wrk import store_at  # which imports the table of benches, in which this one stands

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankloop-capacity-")))
        places = [stack.enter_context(store_at("capacity", name == "postgresql", folder)) for name in stores]
        constants, runs = measured(places, LEARNERS, effort, lambda step: print(step, file=sys.stderr))
    constants.save(out)
    if raw:
        Path(raw).write_text(json.dumps(as_rows(runs)))
    return constants


def fitted_again(raw: Path, out: Path, turns: int) -> Constants:
    """Curves through runs that were kept (`--runs`), for who changes how they are fitted; learners as they are."""
    before, runs = load(out), [Run(**row) for row in json.loads(raw.read_text())]
    each = len(runs) // len(before.stores)
    middle = turns + (each - turns) // 2
    stores = {
        name: constants_of(
            runs[at : at + turns], runs[at + turns : at + middle], runs[at + middle : at + each],
            before.learners[CARRIER], before.cores,
        )
        for at, name in zip(range(0, len(runs), each), before.stores, strict=True)
    }  # fmt: skip
    found = replace(before, stores=stores)
    found.save(out)
    return found


def main() -> None:
    """Parse, measure, print."""
    from benchmarks.__main__ import print_rows

    parser = ArgumentParser("python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="a run")
    parser.add_argument("--out", default=str(SHIPPED))
    parser.add_argument("--runs", help="a JSON file for what the curves were fitted to")
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--again", action="store_true", help="measure nothing: fit anew to what --runs has kept")
    options = parser.parse_args()
    effort = Effort(options.turns, options.seconds)
    if options.again:
        constants = fitted_again(Path(options.runs), Path(options.out), options.turns)
    else:
        constants = _measured(tuple(options.stores), effort, Path(options.out), options.runs)
    print(f"Machine: {constants.machine}, the sender on the same machine\n")
    print_rows(rows(constants))


if __name__ == "__main__":
    main()
