"""`rankloop simulate`, `compare`, `sweep` and `reproduce`: learners against simulated users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.lab.run import Record, Trial

HEADLINES = {
    "online.cndcg": "cumulative NDCG",
    "online.ndcg": "online NDCG@k",
    "offline.ndcg@10": "held-out NDCG@10",
    "rounds_per_second": "rounds/s",
}


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(simulate)
    app.command(compare)
    app.command(sweep)
    reproductions = App(name="reproduce", help="Repeat a paper's experiments and say, claim by claim, what was seen.")
    reproductions.command(reproduce_pairrank, name="pairrank")
    app.command(reproductions)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What simulate and compare have in common."""

    data: str = "synthetic:mslr"
    """`synthetic:NAME[?queries=…&docs=…&seed=…&relevance=nonlinear]` (mslr, yahoo, mq2007, mq2008, np2003), or a path to a LETOR file or folder."""  # noqa: E501
    user: str = "perfect"
    """perfect, navigational, informational or almost-random; `?stop_requires_click=false` for the published code's rule."""  # noqa: E501
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
    evaluate_on: str = "test"
    """Held-out part to measure on: test, or vali when you choose parameters."""
    processes: int = 1
    """Runs at the same time."""

    def trials(self, learner: str, params: dict[str, Any]) -> list[Trial]:
        """One trial a seed."""
        from rankloop.errors import InvalidParameter
        from rankloop.lab.run import Trial

        if self.seeds < 1:
            raise InvalidParameter(f"seeds is {self.seeds}; it must be at least 1")
        first = Trial(
            learner,
            params=params,
            **{name: getattr(self, name) for name in ("data", "user", "rounds", "k", "gamma", "delays", "evaluate_on")},
        )
        return [replace(first, seed=self.seed + i) for i in range(self.seeds)]


Params = Annotated[list[str] | None, Parameter(name="--param", negative=())]


def simulate(learner: str, /, *, setting: Setting = Setting(), param: Params = None, json: bool = False) -> None:  # noqa: B008
    """Let one learner serve simulated users, and print how well they were served and what it learned.

    Example: rankloop simulate pairrank --user navigational --rounds 5000 --seeds 5

    Parameters
    ----------
    learner
        A name from `rankloop learners`.
    setting
        What, for whom, how long.
    param
        A parameter of the learner as name=value; may be repeated.
    json
        Print one JSON object instead of a table.
    """
    records = _run(setting.trials(learner, _params(learner, param)), setting.processes)
    summary = _summary(records)
    if json:
        _out.print_json(summary)
    else:
        _print_summaries(f"{records[0].trial.label} · {setting.data} · {setting.user}", [summary])


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
        Draw held-out and cumulative NDCG over the rounds into this .png or .svg file.
    json
        Print a JSON list instead of a table.
    """
    from rankloop.errors import InvalidParameter

    if not learners:
        raise InvalidParameter("no learners to compare; try: rankloop compare pairrank pdgd greedy random")
    trials = []
    for name, params in _parsed_learners(learners, param):
        trials += setting.trials(name, params)
    records = _run(trials, setting.processes)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.trial.label, []).append(record)
    summaries = [_summary(group) for group in groups.values()]
    if figure is not None:
        from rankloop.lab.figures import comparison

        comparison([row for record in records for row in record.rows()], figure)
    if json:
        _out.print_json(summaries)
    else:
        _print_summaries(f"{setting.data} · {setting.user} users · {setting.rounds} rounds", summaries)
        if figure is not None:
            _out.people.print(f"wrote {figure}")


def _params(learner: str, texts: Sequence[str] | None) -> dict[str, Any]:
    from rankloop.registry import make, parse_parameters

    params = parse_parameters(learner, texts or ())
    make(learner, **params)  # a wrong name or value is told before the data is opened
    return params


def _parsed_learners(specs: Sequence[str], shared: Sequence[str] | None) -> list[tuple[str, dict[str, Any]]]:
    """Names and parameters of `name?key=value` specs, with the shared ones for those learners that have them."""
    from dataclasses import fields

    from rankloop.errors import InvalidParameter
    from rankloop.registry import learner_class

    parsed, used = [], set()
    for spec in specs:
        name, _, own = spec.partition("?")
        has = {field.name for field in fields(learner_class(name))}
        fitting = [text for text in shared or () if text.partition("=")[0] in has]
        used.update(fitting)
        parsed.append((name, _params(name, [*fitting, *filter(None, own.split("&"))])))
    for text in shared or ():
        if text not in used:
            raise InvalidParameter(f"no learner of {', '.join(specs)} has the parameter of {text!r}")
    return parsed


def _run(trials: Sequence[Trial], processes: int) -> list[Record]:
    """Carry out trials with a bar over all their rounds."""
    from rankloop.lab.experiments import run_all

    _out.say_when_compiling()
    with _out.progress_bars() as bars:
        task = bars.add_task("rounds", total=sum(trial.rounds for trial in trials))
        return run_all(trials, processes, lambda rounds: bars.advance(task, rounds))


def _summary(records: Sequence[Record]) -> dict[str, Any]:
    """One learner's runs as one object: means over seeds, and standard errors where there are several."""
    import numpy as np

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
        "params": dict(trial.params),
        "data": trial.data,
        "user": trial.user,
        "rounds": trial.rounds,
        "k": trial.k,
        **({"seed": seeds[0]} if len(seeds) == 1 else {"seeds": seeds}),
        **found,
        **({"standard_error": errors} if len(seeds) > 1 else {}),
        "rounds_per_second": float(np.mean([record.rounds_per_second for record in records])),
        "seconds": sum(record.seconds for record in records),
        "conventions": first.conventions,
    }


def _print_summaries(title: str, summaries: Sequence[dict[str, Any]]) -> None:
    rows = []
    for summary in sorted(summaries, key=lambda s: -s["online"]["cndcg"]):
        cells = [_label(summary)]
        for measure in HEADLINES:
            where, _, name = measure.partition(".")
            if not name:
                cells.append(f"{summary[where]:,.0f}")
                continue
            value, error = summary[where][name], summary.get("standard_error", {}).get(where, {}).get(name)
            digits = 1 if name == "cndcg" else 4
            cells.append(f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if error is not None else ""))
        rows.append(cells)
    _out.print_table(title, ["learner", *HEADLINES.values()], rows)


def _label(summary: dict[str, Any]) -> str:
    given = ", ".join(f"{name}={value}" for name, value in summary["params"].items())
    return f"{summary['learner']} ({given})" if given else str(summary["learner"])


def sweep(file: Path, /, *, out: Path = Path("results"), processes: int = 2) -> None:
    """Carry out a sweep of runs written down in a TOML file; interrupted, it goes on where it stopped.

    Parameters
    ----------
    file
        The sweep: [shared] settings, [vary] lists, [[learners]]. docs/lab.md shows one.
    out
        Folder for the results: NAME.parquet and its figures.
    processes
        Runs at the same time.
    """
    from rankloop.lab.experiments import load_sweep
    from rankloop.lab.reproduce import carry_out_and_draw

    raise SystemExit((load_sweep, carry_out_and_draw, file, out, processes) and 0)


def reproduce_pairrank(
    *, quick: bool = False, data: list[str] | None = None, out: Path = Path("results/pairrank"), processes: int = 2
) -> None:
    """PairRank (Jia et al., WWW 2021): Figures 3 to 7 and the claims made from them.

    Parameters
    ----------
    quick
        Smaller: a few minutes instead of an hour.
    data
        LETOR folders (MSLR-WEB10K, Yahoo) or data specs; generated look-alikes of both if not given.
    out
        Folder for report.html, figures and results.
    processes
        Runs at the same time.
    """
    from rankloop.lab.reproduce.pairrank import reproduce

    raise SystemExit((reproduce, quick, data, out, processes) and 0)
