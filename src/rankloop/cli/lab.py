"""`rankloop simulate`, `compare` and `sweep`: learners against simulated users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.lab.runs.trial import Record, Trial
    from rankloop.lab.runs.workers import Event, OnEvent

HEADLINES = {
    "online.cndcg": "cumulative NDCG",
    "online.ndcg": "online NDCG@k",
    "offline.ndcg@10": "held-out NDCG@10",
    "online.regret": "regret",
    "online.recovery": "rounds to recover",
    "rounds_per_second": "rounds/s",
}
DIGITS = {"online.cndcg": 1, "online.regret": 1, "online.recovery": 0}


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(simulate)
    app.command(compare)
    app.command(sweep)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What simulate and compare have in common."""

    data: str = "synthetic:mslr"
    """`synthetic:NAME[?queries=…&docs=…&seed=…&relevance=nonlinear]` (mslr, yahoo, mq2007, mq2008, np2003), or a path to a LETOR file or folder."""  # noqa: E501
    user: str = "perfect"
    """perfect, navigational, informational or almost-random; `?stop_requires_click=false` for the published code's rule. Or a click model whose attraction follows the grade: cascade, `pbm?eta=1`, `dbn?gamma=0.9`, each with `table=` one of those names; or `fitted:FILE`, a model from `rankloop clicks fit`. For learners of grades: grader, or `grader?top=2`."""  # noqa: E501
    rounds: int = 1000
    """Queries that the users bring."""
    k: int = 10
    """Positions shown."""
    seed: int = 0
    """First seed: same seed, same run, bit for bit."""
    seeds: int = 1
    """How many seeds to run, from the first one up."""
    gamma: float = 0.9995
    """Probability that a user goes on after a query; discounts cumulative NDCG."""
    delays: str = "none"
    """`late?mean=5&lost=0.1&duplicated=0.05`: feedback that comes late, never or twice."""
    world: str = "stationary"
    """stationary, or one that changes: `swap?probability=0.3`, `piecewise?every=1000`, `drift?period=1000`, `recurring?every=500&tastes=2`."""  # noqa: E501
    evaluate_on: str = "test"
    """Held-out part to measure on: test, or vali when you choose parameters."""
    processes: int = 1
    """Runs at the same time."""

    def trials(self, learner: str, params: dict[str, Any]) -> list[Trial]:
        """One trial a seed."""
        from rankloop.errors import InvalidParameter
        from rankloop.lab.runs.trial import Trial

        if self.seeds < 1:
            raise InvalidParameter(f"seeds is {self.seeds}; it must be at least 1")
        same = ("data", "user", "rounds", "k", "gamma", "delays", "world", "evaluate_on")
        first = Trial(learner, params=params, **{name: getattr(self, name) for name in same})
        return [replace(first, seed=self.seed + i) for i in range(self.seeds)]


Params = Annotated[list[str] | None, Parameter(name="--param", negative=())]


def simulate(learner: str, /, *, setting: Setting = Setting(), param: Params = None, json: bool = False) -> None:  # noqa: B008
    """Let one learner serve simulated users, and print how well they were served and what it learned.

    Example: rankloop simulate pairrank --user navigational --rounds 5000 --seeds 5

    Parameters
    ----------
    learner
        A name from `rankloop learners`, with parameters if wanted: `pairrank?alpha=0.1`.
    setting
        What, for whom, how long.
    param
        A parameter of the learner as name=value; may be repeated.
    json
        Print one JSON object instead of a table.
    """
    ((name, params),) = parsed_learners([learner], param)
    records = _run(setting.trials(name, params), setting.processes)
    summary = _summary(records)
    if json:
        _out.print_json(summary)
    else:
        _print_summaries(f"{records[0].trial.label} · {setting.data} · {setting.user}{_where(setting)}", [summary])


def compare(
    *learners: str,
    setting: Setting = Setting(),  # noqa: B008
    param: Params = None,
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Let several learners serve the same users, and print them side by side.

    Example: rankloop compare pairrank "pairrank?explore=random" pdgd greedy --seeds 5 --figure curves.png

    Parameters
    ----------
    learners
        Names from `rankloop learners`, each with its own parameters if wanted: `pairrank?alpha=0.1`.
    setting
        What, for whom, how long.
    param
        A parameter as name=value for every learner that has it; may be repeated.
    figure
        Draw held-out and cumulative NDCG over the rounds into this .png or .svg file; in a world that changes, NDCG
        over time and the regret, with the changes marked.
    json
        Print a JSON list instead of a table.
    """
    from rankloop.errors import InvalidParameter

    if not learners:
        raise InvalidParameter("no learners to compare; try: rankloop compare pairrank pdgd greedy random")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg"):
        raise InvalidParameter(f"figure {figure} ends in {figure.suffix!r}; figures are written as .png or .svg")
    trials = []
    for name, params in parsed_learners(learners, param):
        trials += setting.trials(name, params)
    records = _run(trials, setting.processes)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.trial.label, []).append(record)
    summaries = [_summary(group) for group in groups.values()]
    if figure is not None:
        from rankloop.lab.figures import learning as figures
        from rankloop.lab.runs import results

        rows = [row for record in records for row in results.rows_of(record)]
        figures.save_as(figures.comparison(results.table_of(rows)), figure)
    if json:
        _out.print_json(summaries)
    else:
        title = f"{setting.data} · {setting.user} users · {setting.rounds} rounds{_where(setting)}"
        _print_summaries(title, summaries)
        if figure is not None:
            _out.people.print(f"wrote {figure}")


def parsed_learners(specs: Sequence[str], shared: Sequence[str] | None) -> list[tuple[str, dict[str, Any]]]:
    """Names and parameters of `name?key=value` specs, with the shared ones for those learners that have them."""
    from dataclasses import fields

    from rankloop.errors import InvalidParameter
    from rankloop.registry import learner_class, make, parse_learner

    parsed, used = [], set()
    for spec in specs:
        has = {field.name for field in fields(learner_class(spec.partition("?")[0]))}
        fitting = [text for text in shared or () if len(specs) == 1 or text.partition("=")[0] in has]
        used.update(fitting)
        name, parameters = parse_learner(spec, fitting)
        make(name, **parameters)  # a wrong value is told before any data is opened
        parsed.append((name, parameters))
    for text in shared or ():
        if text not in used:
            raise InvalidParameter(f"no learner of {', '.join(specs)} has the parameter of {text!r}")
    return parsed


def _run(trials: Sequence[Trial], processes: int) -> list[Record]:
    """Carry out trials in the order asked for; the first failure ends them all."""
    from rankloop.errors import RankloopError
    from rankloop.lab.runs.sweep import check_trials
    from rankloop.lab.runs.trial import Record
    from rankloop.lab.runs.workers import Failure, outcomes

    check_trials(trials)
    found: dict[str, Record] = {}
    with _watched(trials) as on_event:
        for trial, outcome in outcomes(trials, processes, on_event):
            if isinstance(outcome, Failure):
                if outcome.details:  # not an error of the caller's: whoever mends it needs to see where
                    _out.people.print(outcome.details, markup=False, highlight=False)
                raise RankloopError(outcome.reason)
            assert isinstance(outcome, Record)  # what a Trial gives
            found[trial.id] = outcome
    return [found[trial.id] for trial in trials]


@contextmanager
def _watched(trials: Sequence[Trial] = ()) -> Iterator[OnEvent]:
    """A bar over the rounds of all runs, with the time left."""
    _out.say_when_compiling()
    done: dict[str, int] = {}
    total = {trial.id: trial.rounds for trial in trials}
    with _out.progress_bars() as bars:
        task = bars.add_task("rounds", total=sum(total.values()) or None)

        def on_event(event: Event) -> None:
            if event.runs:  # part of a sweep, which knows how far it is
                everything = event.runs * event.trial.rounds
                bars.update(task, completed=round(event.share * everything), total=everything)
                return
            done[event.trial.id] = event.trial.rounds if event.kind in ("finished", "failed") else event.rounds
            bars.update(task, completed=sum(done.values()))

        yield on_event


def _summary(records: Sequence[Record]) -> dict[str, Any]:
    """One learner's runs as one object: means over seeds, and standard errors where there are several."""
    import numpy as np

    from rankloop.learner import params
    from rankloop.registry import make

    first = records[0]
    seeds = [record.trial.seed for record in records]
    found: dict[str, dict[str, float]] = {"online": {}, "offline": {}}
    errors: dict[str, dict[str, float]] = {"online": {}, "offline": {}}
    for measure in first.measures:
        where, _, name = measure.partition(".")
        values = np.array([record.last(measure) for record in records])
        found[where][name] = float(values.mean())
        if len(values) > 1:
            errors[where][name] = float(values.std(ddof=1) / np.sqrt(len(values)))
    trial = first.trial
    return {
        "learner": trial.learner,
        "params": params(make(trial.learner, **trial.params)),
        "label": trial.label,
        "data": trial.data,
        "user": trial.user,
        "world": trial.world,
        "rounds": trial.rounds,
        "k": trial.k,
        **({"seed": seeds[0]} if len(seeds) == 1 else {"seeds": seeds}),
        **found,
        **({"standard_error": errors} if len(seeds) > 1 else {}),
        "rounds_per_second": float(np.mean([record.rounds_per_second for record in records])),
        "seconds": sum(record.seconds for record in records),
        "conventions": first.conventions,
    }


def _where(setting: Setting) -> str:
    return "" if setting.world == "stationary" else f" · world {setting.world}"


def _print_summaries(title: str, summaries: Sequence[dict[str, Any]]) -> None:
    rows = []
    measured = {f"{where}.{name}" for where in ("online", "offline") for name in summaries[0][where]}
    changing = "online.window_ndcg" in measured
    headlines = {
        measure: said
        for measure, said in HEADLINES.items()
        if "." not in measure or (measure in measured and (changing or measure != "online.regret"))
    }
    for summary in sorted(summaries, key=lambda s: -s["online"]["cndcg"]):
        cells = [summary["label"]]
        for measure in headlines:
            where, _, name = measure.partition(".")
            if not name:
                cells.append(f"{summary[where]:,.0f}")
                continue
            error = summary.get("standard_error", {}).get(where, {}).get(name)
            cells.append(_plus_minus(summary[where][name], error, measure))
        rows.append(cells)
    _out.print_table(title, ["learner", *headlines.values()], rows)


def _plus_minus(value: float | None, error: float | None, measure: str) -> str:
    from rankloop.lab.figures.report import plus_minus

    return plus_minus(value, error, DIGITS.get(measure, 4))


def sweep(file: Path, /, *, out: Path = Path("results"), processes: int = 2) -> None:
    """Carry out the runs written down in a TOML file; interrupted, it goes on where it stopped.

    Parameters
    ----------
    file
        The sweep: [shared] settings, [vary] lists, [[learners]]. docs/lab.md shows one.
    out
        Folder for NAME.parquet and the figures.
    processes
        Runs at the same time.
    """
    from rankloop.lab.figures import learning as figures
    from rankloop.lab.runs import results
    from rankloop.lab.runs.sweep import carry_out, load_sweep

    asked = load_sweep(file)
    with _watched(asked.trials) as on_event:
        table = carry_out(asked.trials, out / f"{asked.name}.parquet", processes, on_event)
    table = results.relabelled(table, asked.names)
    drawn = {"online.cndcg": "online", "offline.ndcg@10": "offline"}
    if results.curves(table, "online.window_ndcg"):  # some world changes
        drawn |= {"online.regret": "regret", "online.window_ndcg": "over-time"}
    measures = [measure for measure in drawn if measure in HEADLINES]
    cells = [
        [row["data"], row["user"], row["label"], *(_plus_minus(row[m], row[f"{m} ±"], m) for m in measures)]
        for row in results.summarise(table, measures)
    ]
    _out.print_table(asked.name, ["data", "user", "learner", *(HEADLINES[m] for m in measures)], cells, numbers_from=3)
    for measure, name in drawn.items():
        for path in figures.save(figures.learning_curves(table, measure), out / f"{asked.name}-{name}"):
            _out.people.print(f"wrote {path}")
    _out.people.print(f"wrote {out / asked.name}.parquet")
