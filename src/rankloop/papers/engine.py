"""One engine for all papers: choose settings, run, judge the claims, draw, write the page.

A paper is a file of data: `Paper`, made of parts (who runs on what, how long), claims, figures and tables. All runs go
through `rankloop.lab.runs.sweep.run_trials`, so an experiment that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
import re
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
from rankloop.lab.plots import learning, report
from rankloop.lab.plots.cells import Results
from rankloop.lab.plots.tables import Ends, Growth
from rankloop.lab.runs.record import Runnable
from rankloop.lab.runs.sweep import OnEvent, run_trials
from rankloop.lab.runs.trial import Trial
from rankloop.papers.claims import RULE, Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Params = Mapping[str, Any]
Chosen = dict[tuple[str, str], Params]  # (data, contender) -> what was chosen for it
OnStep = Callable[[str], None]  # told what begins

USERS = ("perfect", "navigational", "informational")
CHOICE_SEED = 100  # settings are chosen with seeds from here on, results are reported with seeds from 0 on
BANDS = "Lines are means over runs, bands one standard error."


# -- what a paper is made of -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A learner under the name that the paper gives it; of the settings in `tried`, the best is taken.

    One that is `like` another takes what was chosen for that one and changes it by its own settings, so that the two
    differ in nothing else.
    """

    name: str
    learner: str  # as anywhere: name?parameter=value, or a published configuration
    tried: tuple[Params, ...] = ({},)
    like: str = ""
    told: bool = False  # the number of rounds, as its `horizon`
    seeds: int = 0  # of its own, where it has fewer or more runs than the others
    more: Params = field(default_factory=dict)  # settings of its trials


class Look(NamedTuple):
    """A step of choosing settings: all that are left run so long with so many seeds, the best `keep` go on."""

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
    looks: tuple[Look, ...] = ()  # how settings are chosen, where there are several
    by: str = "offline.ndcg@10"  # the measure that they are chosen by
    more: Params = field(default_factory=dict)  # settings of all trials
    quick: Params = field(default_factory=dict)  # fields that are otherwise in a quick look
    own_data: bool = True  # whether the caller's data takes the place of this part's
    trial: Callable[[Asked], Runnable] = field(default=lambda asked: learning_trial(asked))
    cells: Callable[[Part], Sequence[tuple[str, str]]] = field(
        default=lambda part: list(product(part.data, part.users))
    )


class Asked(NamedTuple):
    """A run that a part wants."""

    part: Part
    contender: Contender
    params: Params
    data: str
    user: str
    rounds: int
    seed: int
    choosing: bool = False  # whether settings are chosen by it: not on what is reported

    @property
    def learner(self) -> tuple[str, dict[str, Any]]:
        """Its name and all its parameters."""
        name, given = parse_learner(self.contender.learner)
        horizon = {"horizon": self.rounds} if self.contender.told else {}
        return name, {**given, **horizon, **self.params}


def learning_trial(asked: Asked) -> Trial:
    """A learner of clicks on a data set; settings are chosen on the validation part."""
    name, params = asked.learner
    if asked.choosing:
        more = {key: value for key, value in asked.part.more.items() if key != "probes"}
        more |= {"evaluate_on": "vali", "evaluations": 1}
    else:
        more = {**asked.part.more, **asked.contender.more}
    return Trial(name, asked.data, asked.user, params, asked.rounds, seed=asked.seed, **more)


@dataclass(frozen=True)
class Drawing:
    """A figure: its file, what it shows, and the function that draws it."""

    name: str
    text: str
    draw: Callable[[Results], Figure]


def curves(name: str, text: str, measure: str, part: str = "main", *, log_x: bool = False) -> Drawing:
    """A measure over the rounds, a line a learner."""
    return Drawing(
        name,
        f"{text} {BANDS}",
        lambda results: learning.learning_curves(results.tables[part], measure, log_x=log_x),
    )


@dataclass(frozen=True)
class Paper:
    """An experiment as data."""

    name: str
    citation: str
    heading: str
    about: str  # what is run here
    had: str  # how much the paper ran, and on what
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Ends | Growth, ...] = ()
    notes: tuple[str, ...] = ()  # where this differs from the paper, and why
    theory: Callable[[], Sequence[report.Table]] = lambda: ()
    prepare: Callable[[str, pa.Table], pa.Table] = lambda _, table: table  # further columns of a part's table
    given: Callable[[str, Path], str] = lambda source, _: source  # what the caller's data is made into, in a folder

    def at(self, quick: bool = False, data: Sequence[str] | None = None) -> Paper:
        """The experiment as it is run: in full or as a quick look, on its data or the caller's."""
        parts = [replace(part, **part.quick) if quick else part for part in self.parts]
        if data:
            parts = [replace(part, data=tuple(data)) if part.own_data else part for part in parts]
        return replace(self, parts=tuple(parts))


class Done(NamedTuple):
    """What came of an experiment."""

    report: Path
    page: Path
    claims: list[report.Judged]


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
) -> Done:
    """Run a paper's experiment into the folder `out`, or go on with it; in this process if there is no `executor`.

    There are then report.html, which holds everything, NAME.md with its figures in the folder NAME, as
    docs/papers has them, and a Parquet file for each part.
    """
    out, tell = Path(out), on_step or (lambda _: None)
    out.mkdir(parents=True, exist_ok=True)
    asked = paper.at(quick, [paper.given(source, out) for source in data or ()])
    run = partial(run_trials, on_event=on_event, executor=executor)
    chosen: dict[str, Chosen] = {}
    tables: dict[str, pa.Table] = {}
    for part in asked.parts:
        chosen[part.name] = choose(part, out, run, tell)
        trials = [(asks, part.trial(asks)) for asks in runs_of(part, chosen[part.name])]
        tell(f"{part.name}: {len(trials)} runs")
        found = run(_once([trial for _, trial in trials]), out / f"{part.name}.parquet")
        named = [(trial.id, asks.contender.name) for asks, trial in trials]
        tables[part.name] = paper.prepare(part.name, called(found, named))
    tell("judging and drawing")
    results = Results(tables)
    judged = [claim.judged(results) for claim in paper.claims]
    pictures = [_picture(drawing, results, out / paper.name) for drawing in paper.drawings]
    command = f"rankloop reproduce {paper.name}{' --quick' if quick else ''}"
    command += "".join(f" --data '{source}'" for source in data or ())
    sections = [
        report.Section("Claims", [report.Claims(judged), report.Text(RULE), report.Text(_size(asked, quick))]),
        report.Section("Figures", pictures),
        report.Section("Numbers", [*(table.table(results) for table in paper.tables), *paper.theory()]),
        report.Section("How this was run", [report.Text(paper.about), *_how(asked, chosen, tables, command)]),
    ]
    sections = [section for section in sections if section.blocks]
    page = report.write_markdown(out / f"{paper.name}.md", paper.heading, sections, paper.citation)
    return Done(report.write_report(out / "report.html", paper.heading, sections, paper.citation), page, judged)


def runs_of(part: Part, chosen: Chosen) -> list[Asked]:
    """Every run of a part, in the order of its contenders."""
    return [
        Asked(part, contender, chosen.get((data, contender.name), contender.tried[0]), data, user, part.rounds, seed)
        for contender in part.contenders
        for data, user in part.cells(part)
        for seed in range(contender.seeds or part.seeds)
    ]


def choose(part: Part, out: Path, run: Callable[[list[Runnable], Path], pa.Table], tell: OnStep) -> Chosen:
    """The settings of each contender for each data set: those with the highest mean, over users and seeds."""
    tuned = [c for c in part.contenders if len(c.tried) > 1]
    left = {(data, c.name): list(c.tried) for data in part.data for c in tuned}
    for step, look in enumerate(part.looks if tuned else (), start=1):
        groups = {
            (data, c.name, i): [
                part.trial(Asked(part, c, params, data, user, look.rounds, CHOICE_SEED + seed, choosing=True))
                for user in part.users
                for seed in range(look.seeds)
            ]
            for data in part.data
            for c in tuned
            for i, params in enumerate(left[data, c.name])
        }
        trials = _once([trial for group in groups.values() for trial in group])
        tell(f"{part.name}: choosing settings, {step} of {len(part.looks)}, {len(trials)} runs")
        table = run(trials, out / f"{part.name}-choice-{step}.parquet")
        ends = dict(zip(table["run"].to_pylist(), table[part.by].to_pylist(), strict=True))  # the last row of each
        for (data, name), tried in left.items():
            means = [float(np.mean([ends[trial.id] for trial in groups[data, name, i]])) for i in range(len(tried))]
            left[data, name] = [tried[i] for i in np.argsort(np.negative(means), kind="stable")[: look.keep]]
    chosen: Chosen = {key: tried[0] for key, tried in left.items()}
    first = {c.name: c.tried[0] for c in part.contenders}
    for contender, data in product(part.contenders, part.data):
        if contender.like:
            like = chosen.get((data, contender.like), first[contender.like])
            chosen[data, contender.name] = {**like, **contender.tried[0]}
    return chosen


def called(table: pa.Table, names: Sequence[tuple[str, str]]) -> pa.Table:
    """The rows of each run under the name of its contender, in this order; two contenders may share a run."""
    rows: dict[str, list[int]] = {}
    for i, run in enumerate(table["run"].to_pylist()):
        rows.setdefault(run, []).append(i)
    taken = [(i, name) for run, name in names for i in rows.get(run, ())]
    column = pa.array([name for _, name in taken], pa.string())
    found = table.take(pa.array([i for i, _ in taken], pa.int64()))
    return found.set_column(found.column_names.index("label"), "label", column)


def _once(trials: Sequence[Runnable]) -> list[Runnable]:
    return list({trial.id: trial for trial in trials}.values())


# -- the page --------------------------------------------------------------------------------------------------------


def _picture(drawing: Drawing, results: Results, folder: Path) -> report.Picture:
    path = learning.save(drawing.draw(results), folder / drawing.name)[1]
    return report.Picture(path, drawing.text, f"{drawing.text} The numbers at the end stand in the tables.")


def _size(paper: Paper, quick: bool) -> str:
    ours = "; ".join(
        f"{part.name}: {part.rounds:,} rounds, {part.seeds} seed{'s' * (part.seeds > 1)}, "
        f"{len(part.cells(part))} x {len(part.contenders)} settings x learners"
        for part in paper.parts
    )
    last = " A quick look, too small to decide most claims." if quick else ""
    return f"The paper: {paper.had} Here: {ours}.{last}"


def _how(
    paper: Paper, chosen: Mapping[str, Chosen], tables: Mapping[str, pa.Table], command: str
) -> list[report.Block]:
    seconds = sum(_seconds(table) for table in tables.values())
    where = f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}"
    versions = f"rankloop {__version__}{_commit()}, numpy {np.__version__}, Python {platform.python_version()}"
    looks = [
        f"{part.name}: " + ", then ".join(f"{look.rounds:,} rounds x {look.seeds}" for look in part.looks)
        for part in paper.parts
        if part.looks
    ]
    by = f"Settings were chosen with seeds from {CHOICE_SEED} on, on validation data where there is some ({{}})."
    rows = [
        (part.name, c.name, c.learner, _settings(part, c, chosen[part.name]))
        for part in paper.parts
        for c in part.contenders
    ]
    grids = [
        (part.name, c.name, "; ".join(map(_said, c.tried)))
        for part in paper.parts
        for c in part.contenders
        if len(c.tried) > 1
    ]
    conventions = {
        f"{name}: {meaning}": None
        for table in tables.values()
        for setting in json.loads((table.schema.metadata or {}).get(b"rankloop.conventions", b"[]"))
        for name, meaning in setting.items()
    }
    tried = report.Table("What there was to choose from", ("part", "name", "tried"), grids, words=3)
    return [
        *map(report.Text, paper.notes),
        *([report.Text(by.format("; ".join(looks)))] if looks else []),
        report.Code(f"{command}\n\n# {versions}\n# {where}; {seconds / 60:.0f} core-minutes of runs"),
        report.Table("Who ran, with what", ("part", "name", "learner", "beside its defaults"), rows, words=4),
        *([tried] if grids else []),
        report.Text("What the numbers mean:"),
        report.Code("\n".join(conventions)),
    ]


def _settings(part: Part, contender: Contender, chosen: Chosen) -> str:
    of = {data: _said(chosen.get((data, contender.name), contender.tried[0])) for data in part.data}
    names = learning.short_names(of)
    if len(set(of.values())) == 1:
        return next(iter(of.values()))
    return "; ".join(f"{names[data]}: {said}" for data, said in of.items())


def _said(params: Params) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items()) or "nothing"


def _seconds(table: pa.Table) -> float:
    """Of all runs, each once."""
    return float(sum(dict(zip(table["run"].to_pylist(), table["seconds"].to_pylist(), strict=True)).values()))


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.system()


def _commit() -> str:
    """The commit of the sources, where they are a git checkout."""
    call = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    try:
        found = subprocess.run(call, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f" at {found.stdout.strip()}" if found.returncode == 0 else ""
