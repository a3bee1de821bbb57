"""Tables of learners against LightGBM retrained every 1,000 impressions (docs/weekly.md)."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa

from benchmarks.common import machine, print_rows
from rankloop.core.registry import make, parse_learner
from rankloop.core.specs import parse_spec
from rankloop.evaluation import statistics
from rankloop.lab.datasets.sources import check_spec, open_split
from rankloop.lab.plots import figures
from rankloop.lab.runs.sweep import Event, run_trials
from rankloop.lab.runs.trial import Trial

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"  # beside the repository, where there is such a folder
DATA = ["websearch300", "clueweb09", "synthetic:mslr", "synthetic:yahoo", "synthetic:mq2007"]
RULES = ("", "?stop_requires_click=false")  # the text's, and the published code's
USERS = [f"{name}{rule}" for name in ("perfect", "navigational", "informational") for rule in RULES]
LEARNERS = ["weekly", "base", "pairrank", "pdgd", "bubblerank", "pair"]
OURS = {
    "weekly": "benchmarks.weekly:Weekly",
    "pair": "benchmarks.weekly:Pair",
    "vowpal": "benchmarks.vowpal:VowpalWabbit",  # if it is installed
}
NAMES = {  # in the figure
    "benchmarks.weekly:Weekly(labels=debiased)": "weekly trees",
    "hybrid(init=base)": "hybrid, from production's order",
    "benchmarks.weekly:Pair(labels=debiased,spec=hybrid?init=base)": "hybrid on the trees",
    "base": "production",
}
EARLY = (50, 100, 300, 1000)
STEP = 1000
SHOWN, HELD_OUT = "online.ndcg", "offline.ndcg@10"


@dataclass(frozen=True)
class Cell:
    """What learners are compared on."""

    data: str  # as asked for
    user: str
    recur: int
    base: str

    def trial(self, learner: str, seed: int, lists: Sequence[int], data: str, queries: int, part: str) -> Trial:
        """One run."""
        name, parameters = parse_learner(learner)
        last = max(lists)
        marks = tuple(sorted({*lists, *(mark for mark in EARLY if mark < last), *range(STEP, last + 1, STEP)}))
        world = f"stationary?base={self.base}&queries={queries}"
        return Trial(
            OURS.get(name, name),
            data,
            self.user,
            parameters,
            last,
            seed=seed,
            world=world,
            evaluate_on=part,
            evaluations=1,
            checkpoints=marks,
        )


def located(name: str, wanted: int) -> tuple[str, int] | None:
    """The data set of a name, and how many of its queries can come; None if it is not here."""
    plain, options = parse_spec(name)
    if plain.startswith("synthetic:"):
        check_spec(name)
        asked = int(options.pop("queries", 0)) or max(wanted, 100)
        rest = "".join(f"&{key}={value}" for key, value in options.items())
        return f"{plain}?queries={asked}{rest}", min(wanted, asked)
    place = REAL / plain if (REAL / plain).exists() else Path(plain)
    if not place.exists():
        return None
    rest = name.removeprefix(plain)
    data = f"{os.path.relpath(place)}{rest}"
    return data, min(wanted, len(open_split(data).train))


def print_tables(arguments: Sequence[str]) -> None:
    """Parse, run, print."""
    asked = _parsed(arguments)
    cells = [Cell(*parts, asked.base) for parts in product(asked.data, asked.users, asked.recur)]
    trials: dict[tuple[Cell, str], list[Trial]] = {}
    often: dict[Cell, str] = {}
    for cell in cells:
        wanted = max(1, round(max(asked.lists) / cell.recur))
        found = located(cell.data, wanted)
        if found is None:
            print(f"skipped: {cell.data} is not here", file=sys.stderr)
            continue
        data, queries = found
        often[cell] = f"{queries} × {max(asked.lists) / queries:.3g}"
        for learner in asked.learners:
            make_trial = partial(cell.trial, learner, lists=asked.lists, data=data, queries=queries)
            trials[cell, learner] = [make_trial(seed, part=asked.evaluate_on) for seed in asked.seeds]
    if not trials:
        return
    everything = list({trial.id: trial for runs in trials.values() for trial in runs}.values())
    table = run_trials(everything, asked.out, asked.processes, _Progress())
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["run"], {})[row["round"]] = row
    values = {key: [rows[trial.id] for trial in runs] for key, runs in trials.items()}
    print(f"Machine: {machine()}; seeds {', '.join(map(str, asked.seeds))}; base {asked.base}; {asked.evaluate_on}\n")
    early = [mark for mark in EARLY if mark <= max(asked.lists)]
    thousands = range(STEP, max(asked.lists) + 1, STEP)
    if asked.figure:
        _draw(rows, thousands, asked.figure)
    for title, columns in (
        ("After so many lists: mean NDCG of those shown, and held-out NDCG@10", _at_marks(asked.lists)),
        ("Mean NDCG of the first lists", {f"first {mark:,}": partial(_at, SHOWN, mark) for mark in early}),
        ("NDCG of the lists shown, thousand by thousand", {f"{t:,}": partial(_thousand, t) for t in thousands}),
    ):
        if columns:
            print(f"### {title}\n")
            print_rows([_row(cell, learner, often, values, asked, columns) for cell, learner in values])
            print()


def _parsed(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks weekly", description=__doc__)
    texts, numbers = partial(str.split, sep=","), _numbers
    parser.add_argument("--data", type=texts, default=DATA, help="names or data specs, with commas between")
    parser.add_argument("--users", type=texts, default=USERS)
    parser.add_argument("--recur", type=numbers, default=[5, 10, 50], help="how often a query comes in the longest run")
    parser.add_argument("--lists", type=numbers, default=[1000, 5000, 20000], help="after how many to measure")
    parser.add_argument("--seeds", type=numbers, default=list(range(10)), help="a list with commas, or 100-109")
    parser.add_argument("--learners", type=texts, default=LEARNERS, help="the first is what others are compared with")
    parser.add_argument("--base", default="feature", help="the production order: rankloop.lab.worlds.production")
    parser.add_argument("--evaluate-on", default="test", choices=("test", "vali"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/weekly.parquet"))
    parser.add_argument("--figure", type=Path, help="draw what users saw, thousand by thousand: a PNG and an SVG")
    asked = parser.parse_args(arguments)
    for spec in asked.learners:
        name, parameters = parse_learner(spec)
        make(OURS.get(name, name), **parameters)  # a wrong one is told now and not after hours
    return asked


def _numbers(text: str) -> list[int]:
    """`1,5,7` or `100-109`, all above or at 0."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]


# -- what is measured ----------------------------------------------------------------------------------------------

Run = dict[int, dict[str, Any]]  # rows of a run by round


def _at(measure: str, mark: int, run: Run) -> float:
    return float(run[mark][measure])


def _thousand(t: int, run: Run) -> float:
    """Mean NDCG of the thousand lists that end with list t."""
    before = run[t - STEP][SHOWN] * (t - STEP) if t > STEP else 0.0
    return float(run[t][SHOWN] * t - before) / STEP


def _at_marks(lists: Sequence[int]) -> dict[str, Any]:
    names = {SHOWN: "shown", HELD_OUT: "held-out"}
    return {f"{said} {mark:,}": partial(_at, measure, mark) for mark in lists for measure, said in names.items()}


def _row(
    cell: Cell,
    learner: str,
    often: dict[Cell, str],
    values: dict[tuple[Cell, str], list[Run]],
    asked: Namespace,
    columns: dict[str, Any],
) -> dict[str, Any]:
    first = asked.learners[0]
    row: dict[str, Any] = {"data": cell.data, "user": cell.user, "queries × times": often[cell], "learner": learner}
    for name, measure in columns.items():
        found = np.array([measure(run) for run in values[cell, learner]])
        row[name] = _said(found)
        if learner != first:
            row[name] += f" ({_said(found - np.array([measure(run) for run in values[cell, first]]), '+')})"
    return row


def _draw(rows: dict[str, Run], thousands: Sequence[int], path: Path) -> None:
    """A panel a data set and user, a line a learner: NDCG of the lists shown in each thousand."""
    table = [
        {**run[t], "label": NAMES.get(run[t]["label"], run[t]["label"]), "online.window_ndcg": _thousand(t, run)}
        for run in rows.values()
        for t in thousands
    ]
    figures.save(figures.learning_curves(pa.Table.from_pylist(table), "online.window_ndcg"), path.with_suffix(""))


def _said(values: Any, sign: str = "") -> str:
    found = statistics.mean(values)
    return f"{found.value:{sign}.3f}" + (f" ± {found.error:.3f}" if found.n > 1 else "")


class _Progress:
    """A line to stderr a finished run, with how long the rest may take."""

    def __init__(self) -> None:
        self.start, self.kept = time.monotonic(), 0.0

    def __call__(self, event: Event) -> None:
        if event.kind == "kept":
            self.kept = event.share
        if event.kind not in ("finished", "failed", "outdated"):
            return
        spent, share = time.monotonic() - self.start, event.share - self.kept
        left = spent / share * (1 - event.share) if share > 0 else float("nan")
        told = f"{event.done}/{event.runs} {event.kind} {event.trial.id} {event.reason}".rstrip()
        print(f"{told}; {spent / 60:.1f} min, {left / 60:.0f} min left", file=sys.stderr, flush=True)
