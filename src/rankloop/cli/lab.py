"""`rankloop simulate`, `compare` and `sweep`: learners against simulated users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out

if TYPE_CHECKING:
    import pyarrow as pa

    from rankloop.lab.runs.sweep import Event, OnEvent
    from rankloop.lab.runs.trial import Trial

HEADLINES = {
    "online.cndcg": "cumulative NDCG",
    "online.ndcg": "online NDCG@k",
    "offline.ndcg@10": "held-out NDCG@10",
    "online.regret": "regret",
    "online.recovery": "rounds to recover",
    "rounds_per_second": "rounds/s",
}
NOTE = "± is one standard error. A query with nothing relevant counts 0 online and is left out held-out."
_PROGRESS_SECONDS = 30.0  # between two lines of progress where there is no terminal for a bar
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
    """Probability that a user continues after a query; discounts cumulative NDCG."""
    delays: str = "none"
    """`late?mean=5&lost=0.1&duplicated=0.05`: feedback that arrives late, never or twice."""
    world: str = "stationary"
    """stationary, or one that changes: `swap?probability=0.3`, `piecewise?every=1000`, `drift?period=1000`, `recurring?every=500&tastes=2`. All take `base=`, the order in which candidates come (random, feature, `feature:7`, `model:10`, `model:half`, reversed), and `queries=500`, `frequency=zipf:1`, `fresh=1000`: which queries come how often."""  # noqa: E501
    evaluate_on: str = "test"
    """Held-out part to measure on: test, or vali when you choose parameters."""
    out: Path | None = None
    """Store every run in this .parquet file when it ends; the same command continues from it."""
    processes: int = 1
    """Runs at the same time, in processes of this machine."""
    cluster: str | None = None
    """Address of a Dask scheduler (`tcp://10.0.0.5:8786`) whose workers carry out the runs, in place of --processes."""

    def trials(self, learner: str, params: dict[str, Any]) -> list[Trial]:
        """One trial a seed."""
        from rankloop.core.errors import InvalidParameter
        from rankloop.lab.runs.trial import Trial

        if self.seeds < 1:
            raise InvalidParameter(f"seeds is {self.seeds}; it must be at least 1")
        same = ("data", "user", "rounds", "k", "gamma", "delays", "world", "evaluate_on")
        first = Trial(learner, params=params, **{name: getattr(self, name) for name in same})
        return [replace(first, seed=self.seed + i) for i in range(self.seeds)]


Params = Annotated[list[str] | None, Parameter(name="--param", negative=())]


def simulate(learner: str, /, *, setting: Setting = Setting(), param: Params = None, json: bool = False) -> None:  # noqa: B008
    """Let one learner serve simulated users, and print online and held-out NDCG.

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
    from rankloop.lab.runs.sweep import check_trials, run_trials

    ((name, params),) = parsed_learners([learner], param)
    trials = setting.trials(name, params)
    check_trials(trials)
    with _out.executor(setting.processes, setting.cluster) as executor, watched("rounds") as on_event:
        table = run_trials(trials, setting.out, on_event=on_event, executor=executor)
    (summary,) = _summaries(table)
    if json:
        _out.print_json(summary)
    else:
        _print_summaries(f"{summary['label']} · {setting.data} · {setting.user}{_where(setting)}", [summary])


def compare(
    *learners: str,
    setting: Setting = Setting(),  # noqa: B008
    param: Params = None,
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Let several learners serve the same users, and print them side by side.

    Example: rankloop compare pairrank "pairrank?explore=blocks" pdgd greedy --seeds 5 --figure curves.png

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
    from rankloop.core.errors import InvalidParameter
    from rankloop.lab.runs.sweep import check_trials, run_trials

    if not learners:
        raise InvalidParameter("no learners to compare; try: rankloop compare pairrank pdgd greedy random")
    _out.check_figure(figure)
    trials = []
    for name, params in parsed_learners(learners, param):
        trials += setting.trials(name, params)
    check_trials(trials)
    with _out.executor(setting.processes, setting.cluster) as executor, watched("rounds") as on_event:
        table = run_trials(trials, setting.out, on_event=on_event, executor=executor)
    summaries = _summaries(table)
    if figure is not None:
        from rankloop.lab.plots import figures

        figures.save_as(figures.comparison(table), figure)
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

    from rankloop.core.errors import InvalidParameter
    from rankloop.core.registry import learner_class, make, parse_learner

    parsed, used = [], set()
    for spec in specs:
        has = {field.name for field in fields(learner_class(spec.partition("?")[0]))}
        fitting = [text for text in shared or () if len(specs) == 1 or text.partition("=")[0] in has]
        used.update(fitting)
        name, parameters = parse_learner(spec, fitting)
        make(name, **parameters)  # a wrong value is reported before any data is opened
        parsed.append((name, parameters))
    for text in shared or ():
        if text not in used:
            raise InvalidParameter(f"no learner of {', '.join(specs)} has the parameter of {text!r}")
    return parsed


@contextmanager
def watched(what: str) -> Iterator[OnEvent]:
    """A bar over the rounds of all runs, with the time left; and what had to be run again, and why."""
    from collections import Counter

    _out.say_when_compiling()
    again: Counter[str] = Counter()
    last = monotonic()
    with _out.progress_bars() as bars:
        task = bars.add_task(what, total=None)

        def on_event(event: Event) -> None:
            nonlocal last
            if event.kind == "outdated":
                again[event.reason] += 1
            elif event.kind != "kept" and again:
                counts = " and ".join(f"{runs} of {why}" for why, runs in again.items())
                _out.people.print(f"stored runs are outdated and run again: {counts}")
                again.clear()
            bars.update(task, completed=round(1000 * event.share), total=1000)
            if not _out.people.is_terminal and monotonic() - last > _PROGRESS_SECONDS:
                last = monotonic()
                line = f"  {what}: {event.done} of {event.runs} runs, {event.share:.0%} of the rounds"
                _out.people.print(line, highlight=False)

        yield on_event


def _summaries(table: pa.Table) -> list[dict[str, Any]]:
    """A learner's runs as one object: means over runs, and standard errors where there are several."""
    import json

    from rankloop.core.learner import params
    from rankloop.core.registry import make
    from rankloop.lab.runs import results

    measures = [name for name in table.column_names if name.startswith(("online.", "offline."))]
    ends: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["round"] == row["rounds"]:
            ends.setdefault((row["data"], row["user"], row["label"]), []).append(row)
    values = {measure: results.curves(table, measure) for measure in measures}
    made = []
    for key, rows in ends.items():
        found: dict[str, dict[str, float]] = {"online": {}, "offline": {}}
        errors: dict[str, dict[str, float]] = {"online": {}, "offline": {}}
        for measure in measures:
            if rows[0][measure] is None:
                continue
            where, _, name = measure.partition(".")
            curve = values[measure].get(key)
            found[where][name] = float(curve.mean[-1]) if curve else float("nan")
            errors[where][name] = float(curve.error[-1]) if curve else float("nan")
        first, seeds = rows[0], [row["seed"] for row in rows]
        made.append(
            {
                "learner": first["learner"],
                "params": params(make(first["learner"], **json.loads(first["params"]))),
                **{name: first[name] for name in ("label", "data", "user", "world", "rounds", "k")},
                **({"seed": seeds[0]} if len(seeds) == 1 else {"seeds": seeds}),
                **found,
                **({"standard_error": errors} if len(seeds) > 1 else {}),
                "rounds_per_second": sum(row["rounds_per_second"] for row in rows) / len(rows),
                "seconds": sum(row["seconds"] for row in rows),
                "conventions": json.loads(first["conventions"]),
            }
        )
    return made


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
    _out.print_table(title, ["learner", *headlines.values()], rows, note=NOTE)


def _plus_minus(value: float | None, error: float | None, measure: str) -> str:
    from rankloop.lab.plots.report import plus_minus

    return plus_minus(value, error, DIGITS.get(measure, 4))


def sweep(file: Path, /, *, out: Path = Path("results"), processes: int = 2, cluster: str | None = None) -> None:
    """Carry out the runs written down in a TOML file; an interrupted sweep continues where it stopped.

    Parameters
    ----------
    file
        The sweep: [shared] settings, [vary] lists, [[learners]]. docs/lab.md shows one.
    out
        Folder for NAME.parquet and the figures.
    processes
        Runs at the same time, in processes of this machine.
    cluster
        Address of a Dask scheduler (`tcp://10.0.0.5:8786`) whose workers carry out the runs, in place of --processes.
    """
    from rankloop.lab.plots import figures
    from rankloop.lab.runs import results
    from rankloop.lab.runs.sweep import load_sweep, run_trials

    asked = load_sweep(file)
    with _out.executor(processes, cluster) as executor, watched("rounds") as on_event:
        table = run_trials(asked.trials, out / f"{asked.name}.parquet", on_event=on_event, executor=executor)
    table = results.relabeled(table, asked.names)
    drawn = {"online.cndcg": "online", "offline.ndcg@10": "offline"}
    if results.curves(table, "online.window_ndcg"):  # some world changes
        drawn |= {"online.regret": "regret", "online.window_ndcg": "over-time"}
    measures = [measure for measure in drawn if measure in HEADLINES]
    cells = [
        [row["data"], row["user"], row["label"], *(_plus_minus(row[m], row[f"{m} ±"], m) for m in measures)]
        for row in results.summarize(table, measures)
    ]
    heads = ["data", "user", "learner", *(HEADLINES[m] for m in measures)]
    _out.print_table(asked.name, heads, cells, numbers_from=3, note=NOTE)
    for measure, name in drawn.items():
        for path in figures.save(figures.learning_curves(table, measure), out / f"{asked.name}-{name}"):
            _out.people.print(f"wrote {path}")
    _out.people.print(f"wrote {out / asked.name}.parquet")
