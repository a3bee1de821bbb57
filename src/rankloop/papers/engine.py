"""One engine for all papers: tune parameters, run, check the claims, draw, write the page.

A paper is a file of data: `Paper`, made of parts (which learners on which data, how long), claims, figures and tables.
All runs go through `rankloop.lab.runs.sweep.run_trials`, so an interrupted experiment continues where it was.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rankloop import __version__
from rankloop.core.registry import parse_learner
from rankloop.lab.plots import figures, report
from rankloop.lab.plots.cells import Results
from rankloop.lab.plots.tables import Ends, Growth
from rankloop.lab.runs.record import Runnable
from rankloop.lab.runs.sweep import OnEvent, run_trials
from rankloop.lab.runs.trial import Trial
from rankloop.papers.claims import RULE, Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Params = Mapping[str, Any]
Tuned = dict[tuple[str, str], Params]  # (data, contender) -> the parameters that were chosen for it
OnStep = Callable[[str], None]  # called with the name of a step when it begins

USERS = ("perfect", "navigational", "informational")
TUNING_SEED = 100  # parameters are tuned with seeds from here on, results are reported with seeds from 0 on
BANDS = "Lines are means over runs, bands one standard error."


# -- what a paper is made of -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A learner under the name that the paper gives it."""

    name: str
    learner: str  # name?parameter=value, or a preset
    grid: tuple[Params, ...] = ({},)  # parameters to choose from
    tuned_like: str = ""  # a contender whose choice this one takes, changed by its own parameters
    horizon: bool = False  # whether it has the number of rounds as its parameter `horizon`
    seeds: int = 0  # if not as many as the part's
    settings: Params = field(default_factory=dict)  # of its trials


class TuningStep(NamedTuple):
    """All parameters that are left run so long with so many seeds; the best `keep` go on."""

    rounds: int
    seeds: int = 1
    keep: int = 1


@dataclass(frozen=True)
class Part:
    """Runs of every contender on every data set, for every user, with every seed."""

    name: str
    contenders: tuple[Contender, ...]
    data: tuple[str, ...]
    rounds: int
    seeds: int
    users: tuple[str, ...] = USERS
    tuning: tuple[TuningStep, ...] = ()
    tune_by: str = "offline.ndcg@10"
    settings: Params = field(default_factory=dict)  # of all trials
    quick: Params = field(default_factory=dict)  # fields that differ in a quick look
    takes_data: bool = True  # whether the caller's data replaces this part's
    trial: Callable[[PlannedRun], Runnable] = field(default=lambda run: learning_trial(run))
    cells: Callable[[Part], Sequence[tuple[str, str]]] = field(
        default=lambda part: list(product(part.data, part.users))
    )


class PlannedRun(NamedTuple):
    """A run of a part."""

    part: Part
    contender: Contender
    params: Params
    data: str
    user: str
    rounds: int
    seed: int
    tuning: bool = False  # whether parameters are chosen by it: not on what is reported

    @property
    def learner(self) -> tuple[str, dict[str, Any]]:
        """Its name and all its parameters."""
        name, given = parse_learner(self.contender.learner)
        known = {"horizon": self.rounds} if self.contender.horizon else {}
        return name, {**given, **known, **self.params}


def learning_trial(run: PlannedRun) -> Trial:
    """A learner of clicks on a data set; parameters are tuned on the validation part."""
    name, params = run.learner
    if run.tuning:
        settings = {key: value for key, value in run.part.settings.items() if key != "probes"}
        settings |= {"evaluate_on": "vali", "evaluations": 1}
    else:
        settings = {**run.part.settings, **run.contender.settings}
    return Trial(name, run.data, run.user, params, run.rounds, seed=run.seed, **settings)


@dataclass(frozen=True)
class PaperFigure:
    """A figure: its file, what it shows, and the function that draws it."""

    name: str
    text: str
    draw: Callable[[Results], Figure]


def curves(name: str, text: str, measure: str, part: str = "main", *, log_x: bool = False) -> PaperFigure:
    """A measure over the rounds, a line per learner."""
    return PaperFigure(
        name,
        f"{text} {BANDS}",
        lambda results: figures.learning_curves(results.tables[part], measure, log_x=log_x),
    )


@dataclass(frozen=True)
class Paper:
    """The experiments of a paper as data."""

    name: str
    citation: str
    heading: str
    about: str  # what is run here
    original: str  # how much the paper ran, and on what
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    figures: tuple[PaperFigure, ...] = ()
    tables: tuple[Ends | Growth, ...] = ()
    notes: tuple[str, ...] = ()  # where this differs from the paper, and why
    theory: Callable[[], Sequence[report.Table]] = lambda: ()
    prepare: Callable[[str, pa.Table], pa.Table] = lambda _, table: table  # further columns of a part's table
    convert: Callable[[str, Path], str] = lambda source, _: source  # the caller's data, with files in a folder

    def at(self, quick: bool = False, data: Sequence[str] | None = None) -> Paper:
        """The experiments as they are run: in full or as a quick look, on their data or the caller's."""
        parts = [replace(part, **part.quick) if quick else part for part in self.parts]
        if data:
            parts = [replace(part, data=tuple(data)) if part.takes_data else part for part in parts]
        return replace(self, parts=tuple(parts))


class Reproduction(NamedTuple):
    """What a reproduction gave."""

    page: Path
    claims: list[report.ClaimResult]


# -- running it ------------------------------------------------------------------------------------------------------


def reproduce(
    paper: Paper,
    out: Path | str,
    *,
    quick: bool = False,
    data: Sequence[str] | None = None,
    executor: Executor | None = None,
    on_event: OnEvent | None = None,
    on_step: OnStep | None = None,
) -> Reproduction:
    """Run a paper's experiments into the folder `out`, or continue; in this process if there is no `executor`.

    The folder then has NAME.md, its figures in the folder NAME, and a Parquet file for each part.
    """
    out, report_step = Path(out), on_step or (lambda _: None)
    out.mkdir(parents=True, exist_ok=True)
    planned = paper.at(quick, [paper.convert(source, out) for source in data or ()])
    run = partial(run_trials, on_event=on_event, executor=executor)
    tuned: dict[str, Tuned] = {}
    tables: dict[str, pa.Table] = {}
    for part in planned.parts:
        tuned[part.name] = tune(part, out, run, report_step)
        trials = [(one, part.trial(one)) for one in runs_of(part, tuned[part.name])]
        report_step(f"{part.name}: {len(trials)} runs")
        found = run(_unique([trial for _, trial in trials]), out / f"{part.name}.parquet")
        names = [(trial.id, one.contender.name) for one, trial in trials]
        tables[part.name] = paper.prepare(part.name, name_runs(found, names))
    report_step("checking claims and drawing")
    results = Results(tables)
    claims = [claim.check(results) for claim in paper.claims]
    pictures = []
    for figure in paper.figures:
        path, _ = figures.save(figure.draw(results), out / paper.name / figure.name)
        pictures.append(report.Picture(path, figure.text))
    command = f"rankloop reproduce {paper.name}{' --quick' if quick else ''}"
    command += "".join(f" --data '{source}'" for source in data or ())
    sections = [
        report.Section("Claims", [report.claims_table(claims), report.Text(RULE), report.Text(_size(planned, quick))]),
        report.Section("Figures", pictures),
        report.Section("Numbers", [*(table.table(results) for table in paper.tables), *paper.theory()]),
        report.Section("How this was run", [report.Text(paper.about), *_how(planned, tuned, tables, command)]),
    ]
    sections = [section for section in sections if section.blocks]
    page = report.write_markdown(out / f"{paper.name}.md", paper.heading, sections, paper.citation)
    return Reproduction(page, claims)


def runs_of(part: Part, tuned: Tuned) -> list[PlannedRun]:
    """Every run of a part, in the order of its contenders."""
    return [
        PlannedRun(part, contender, tuned.get((data, contender.name), contender.grid[0]), data, user, part.rounds, seed)
        for contender in part.contenders
        for data, user in part.cells(part)
        for seed in range(contender.seeds or part.seeds)
    ]


def tune(part: Part, out: Path, run: Callable[[list[Runnable], Path], pa.Table], on_step: OnStep) -> Tuned:
    """The parameters of each contender for each data set: those with the highest mean, over users and seeds."""
    tunable = [c for c in part.contenders if len(c.grid) > 1]
    left = {(data, c.name): list(c.grid) for data in part.data for c in tunable}
    for number, step in enumerate(part.tuning if tunable else (), start=1):
        groups = {
            (data, c.name, i): [
                part.trial(PlannedRun(part, c, params, data, user, step.rounds, TUNING_SEED + seed, tuning=True))
                for user in part.users
                for seed in range(step.seeds)
            ]
            for data in part.data
            for c in tunable
            for i, params in enumerate(left[data, c.name])
        }
        trials = _unique([trial for group in groups.values() for trial in group])
        on_step(f"{part.name}: tuning, {number} of {len(part.tuning)}, {len(trials)} runs")
        table = run(trials, out / f"{part.name}-choice-{number}.parquet")
        ends = dict(zip(table["run"].to_pylist(), table[part.tune_by].to_pylist(), strict=True))  # the last rows
        for (data, name), grid in left.items():
            means = [float(np.mean([ends[trial.id] for trial in groups[data, name, i]])) for i in range(len(grid))]
            left[data, name] = [grid[i] for i in np.argsort(np.negative(means), kind="stable")[: step.keep]]
    tuned: Tuned = {key: grid[0] for key, grid in left.items()}
    first = {c.name: c.grid[0] for c in part.contenders}
    for contender, data in product(part.contenders, part.data):
        if contender.tuned_like:
            other = tuned.get((data, contender.tuned_like), first[contender.tuned_like])
            tuned[data, contender.name] = {**other, **contender.grid[0]}
    return tuned


def name_runs(table: pa.Table, names: Sequence[tuple[str, str]]) -> pa.Table:
    """The rows of each run under the name of its contender, in this order; two contenders may share a run."""
    rows: dict[str, list[int]] = {}
    for i, run in enumerate(table["run"].to_pylist()):
        rows.setdefault(run, []).append(i)
    taken = [(i, name) for run, name in names for i in rows.get(run, ())]
    column = pa.array([name for _, name in taken], pa.string())
    found = table.take(pa.array([i for i, _ in taken], pa.int64()))
    return found.set_column(found.column_names.index("label"), "label", column)


def _unique(trials: Sequence[Runnable]) -> list[Runnable]:
    return list({trial.id: trial for trial in trials}.values())


# -- the page --------------------------------------------------------------------------------------------------------


def _size(paper: Paper, quick: bool) -> str:
    ours = "; ".join(
        f"{part.name}: {part.rounds:,} rounds, {part.seeds} seed{'s' * (part.seeds > 1)}, "
        f"{len(part.cells(part))} x {len(part.contenders)} settings x learners"
        for part in paper.parts
    )
    last = " A quick look, too small to decide most claims." if quick else ""
    return f"The paper: {paper.original} Here: {ours}.{last}"


def _how(paper: Paper, tuned: Mapping[str, Tuned], tables: Mapping[str, pa.Table], command: str) -> list[report.Block]:
    runs = [dict(zip(table["run"].to_pylist(), table["seconds"].to_pylist(), strict=True)) for table in tables.values()]
    minutes = sum(sum(seconds.values()) for seconds in runs) / 60
    versions = f"rankloop {__version__}{_commit()}, numpy {np.__version__}, Python {platform.python_version()}"
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    steps = [
        f"{part.name}: " + ", then ".join(f"{step.rounds:,} rounds x {step.seeds}" for step in part.tuning)
        for part in paper.parts
        if part.tuning
    ]
    every = [(part, contender) for part in paper.parts for contender in part.contenders]
    rows = [(part.name, c.name, c.learner, _settings(part, c, tuned[part.name])) for part, c in every]
    grids = [(part.name, c.name, "; ".join(map(_shown, c.grid))) for part, c in every if len(c.grid) > 1]
    conventions = {
        f"{name}: {meaning}": None
        for table in tables.values()
        for setting in json.loads((table.schema.metadata or {}).get(b"rankloop.conventions", b"[]"))
        for name, meaning in setting.items()
    }
    by = f"Parameters were tuned with seeds from {TUNING_SEED} on, on validation data where there is some"
    return [
        *map(report.Text, paper.notes),
        *([report.Text(f"{by} ({'; '.join(steps)}).")] if steps else []),
        report.Code(f"{command}\n\n# {versions}\n# {machine}; {minutes:.0f} core-minutes of runs"),
        report.Table("Learners and parameters", ("part", "name", "learner", "beside its defaults"), rows, words=4),
        *([report.Table("Parameters to choose from", ("part", "name", "grid"), grids, words=3)] if grids else []),
        report.Text("What the numbers mean:"),
        report.Code("\n".join(conventions)),
    ]


def _settings(part: Part, contender: Contender, tuned: Tuned) -> str:
    of = {data: _shown(tuned.get((data, contender.name), contender.grid[0])) for data in part.data}
    names = figures.short_names(of)
    if len(set(of.values())) == 1:
        return next(iter(of.values()))
    return "; ".join(f"{names[data]}: {shown}" for data, shown in of.items())


def _shown(params: Params) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items()) or "nothing"


def _commit() -> str:
    """The commit of the sources, where they are a git checkout."""
    call = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    try:
        found = subprocess.run(call, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f" at {found.stdout.strip()}" if found.returncode == 0 else ""
