"""The report on BubbleRank's experiments: Figures 1 to 3, regret and safety in tables, claims, and how it was run."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rankloop import __version__, codec
from rankloop.lab.figures import bandits as bandit_figures
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures import report
from rankloop.lab.figures.bandits import Dots, Regret
from rankloop.lab.papers import PAPERS
from rankloop.lab.papers.bubblerank_claims import MEASURE, averages, claims, growth, line_of, lists
from rankloop.lab.papers.bubblerank_settings import (
    BATCH,
    BUBBLE0,
    BUBBLEKL,
    CONTENDERS,
    FULL,
    KLUCB,
    POWERS,
    PRINTED,
    QUICK,
    TOP,
    Scale,
)
from rankloop.lab.runs.bandit_trial import WARM_ROUNDS
from rankloop.lab.runs.results import curves

PAPERS_QUERY = "query 82523"  # of Figure 1
_RULE = (
    "Regret is exact: what the best list is expected to get at the first five positions less what the shown one is, by "
    "the click model's own probabilities. Differences are between runs of the same seed and query, which meet the same "
    "luck of the user. That one learner is above another counts as seen if the mean difference over queries is more "
    "than twice its standard error. Growth is over the last decade of rounds, from a tenth of them to all: as n is "
    "linear, as n^0 none. A learner learns the best list if its mean regret grows slower than n^0.9; in single queries "
    "two documents may be so much alike that ten million rounds do not tell them apart, which costs little."
)
_WHO = (
    f"{BUBBLE0} starts from a random list, {BUBBLEKL} from the list that {KLUCB} has after {WARM_ROUNDS:,} rounds of "
    f"its own, whose regret does not count, as in the paper. {BATCH} is the variant that its authors benchmarked, "
    f"{PRINTED} the one of their paper. That one and {TOP} are not in paper 002."
)


def write(out: Path, scale: Scale, table: pa.Table, faint: pa.Table, safety: pa.Table) -> Path:
    """Figures, table.md, claims.md and report.html in the folder `out`; the report's path."""
    title = "BubbleRank, the experiments repeated"
    found, tables, folder = claims(table, faint, safety), [regret_table(table), safety_table(safety)], out / "figures"
    report.write_claims(out / "claims.md", title, found, _few(scale))
    codec.write(out / "table.md", "\n".join(t.markdown() for t in tables).encode())
    sections = [
        report.Section("Claims", [report.Claims(found), report.Text(_RULE), report.Text(_few(scale))]),
        report.Section("Figure 1: one query", [_one_query(table, folder)]),
        report.Section("Figure 2: all queries", [_all_queries(table, folder), tables[0], report.Text(_WHO)]),
        report.Section("Figure 3: what makes it hard", [_hard(table, faint, folder)]),
        report.Section("Safety", [tables[1]]),
        report.Section("How this was run", _how(scale, table)),
    ]
    return report.write_report(out / "report.html", title, sections, PAPERS["bubblerank"].title)


def regret_table(table: pa.Table) -> report.Table:
    """Where each learner ended, by click model: regret, its growth, and rounds a second."""
    found = averages(table)
    models = list(dict.fromkeys(model for model, _ in found))
    speed: dict[str, list[float]] = {}
    for label, rate in zip(table["label"].to_pylist(), table["rounds_per_second"].to_pylist(), strict=True):
        speed.setdefault(label, []).append(rate)
    rows = []
    for label in dict.fromkeys(label for _, label in found):
        cells = []
        for model in models:
            average = found.get((model, label))
            if average is None:
                cells += ["–", "–"]
                continue
            error = average.error[-1]
            cells += [
                report.plus_minus(float(average.mean[-1]), float(error) if np.isfinite(error) else None, 0),
                f"{growth(average):.2f}",
            ]
        runs = max(average.runs for (_, name), average in found.items() if name == label)
        rows.append((label, *cells, str(runs), f"{np.median(speed[label]) / 1e6:.2f}"))
    columns = [text for model in models for text in (f"{model}: regret", "∝ n^")]
    caption = "Regret at the end, mean ± standard error over all queries and runs, and how it grew over the last decade"
    return report.Table(caption, ("learner", *columns, "runs", "million rounds/s"), rows)


def safety_table(table: pa.Table) -> report.Table:
    """Unsafe lists and harmful changes by learner and click model, mean a run."""
    rows: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    names = ("label", "user", "run", "unsafe", "harmful")
    for label, model, run, unsafe, harmful in zip(*(table[name].to_pylist() for name in names), strict=True):
        rows.setdefault((label, model), {})[run] = (unsafe or 0.0, harmful or 0.0)
    rounds = max(table["round"].to_pylist())
    cells = [
        (label, model, f"{np.mean([u for u, _ in runs.values()]):,.0f}", _changes(label, runs), str(len(runs)))
        for (label, model), runs in rows.items()
    ]
    caption = (
        f"Lists of {rounds:,} with more pairs the wrong way round than the base list has, plus half the positions, and "
        "changes of the base list for the worse; mean a run. All but BubbleRank0 are measured against the list that "
        "BubbleRankKL starts from"
    )
    columns = ("learner", "click model", "unsafe lists", "harmful changes", "runs")
    return report.Table(caption, columns, cells, words=2)


def _changes(label: str, runs: dict[str, tuple[float, float]]) -> str:
    return f"{np.mean([h for _, h in runs.values()]):.2f}" if label in (BUBBLE0, BUBBLEKL) else "–"


def _one_query(table: pa.Table, folder: Path) -> report.Picture:
    found = curves(table, MEASURE)
    names = list(dict.fromkeys(data for data, _, _ in found))
    chosen = PAPERS_QUERY if PAPERS_QUERY in names else names[0]
    panels: dict[str, dict[str, Regret]] = {}
    for (data, model, label), curve in found.items():
        if data == chosen:
            panels.setdefault(model, {})[label] = Regret(curve.rounds, curve.mean, curve.error)
    path = figures.save(bandit_figures.regret_over_time(panels), folder / "one-query")[1]
    why = "" if chosen == PAPERS_QUERY else f" The paper's is {PAPERS_QUERY.removeprefix('query ')}."
    text = f"Regret with {chosen} over the rounds, in {' and '.join(panels)}"
    return report.Picture(path, f"{text}. Bands are one standard error over the runs.{why}", f"{text}.")


def _all_queries(table: pa.Table, folder: Path) -> report.Picture:
    panels: dict[str, dict[str, Regret]] = {}
    for (model, label), average in averages(table).items():
        panels.setdefault(model, {})[label] = Regret(average.rounds, average.mean, average.error)
    path = figures.save(bandit_figures.regret_over_time(panels), folder / "all-queries")[1]
    text = f"Regret over the rounds, averaged over all queries, in {' and '.join(panels)}"
    return report.Picture(path, f"{text}. Bands are one standard error over queries and runs.", f"{text}.")


def _hard(table: pa.Table, faint: pa.Table, folder: Path) -> report.Picture:
    panels = {}
    for model in dict.fromkeys(model for model, _ in averages(table)):
        wrong, regret, query = lists(table, model)
        line = None
        if np.unique(wrong).size >= 3:
            slope = line_of(wrong, regret, query).slope
            line = (float(slope), float(regret.mean() - slope * wrong.mean()))
        panels[model] = Dots(wrong, regret, query, line)
    over_time = {label: Regret(c.rounds, c.mean, c.error) for (_, _, label), c in curves(faint, MEASURE).items()}
    titles = ("pairs that start the wrong way round, |V0|", "PBM, last position examined")
    path = figures.save(bandit_figures.regret_against(panels, over_time, titles), folder / "hard")[1]
    text = f"Regret of {BUBBLE0} against |V0|, and over time when the last two positions are seldom examined"
    caption = f"{text}. A dot is a run, a colour a query; the line has each query's own level taken out."
    return report.Picture(path, caption, f"{text}.")


def _few(scale: Scale) -> str:
    smaller = scale.rounds < FULL.rounds or scale.runs < FULL.runs
    paper = "The paper ran 10 million rounds and 10 runs on 60 queries of the Yandex log"
    ours = f"this is {scale.rounds:,}, {scale.runs} ({scale.lists} random lists for {BUBBLE0}, 1 run of {PRINTED})"
    sources = ", ".join(scale.models)
    return f"{paper}; {ours}, and the click models of {sources}" + (
        ": a quick look, too small to decide most claims; not seen is not refuted." if smaller else "."
    )


def _how(scale: Scale, table: pa.Table) -> list[report.Block]:
    quick = replace(scale, models=QUICK.models) == QUICK
    given = "" if scale.models in (FULL.models, QUICK.models) else "".join(f" --models '{m}'" for m in scale.models)
    command = f"rankloop reproduce bubblerank{' --quick' if quick else ''}{given}"
    versions = f"rankloop {__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    settings = json.loads(table.schema.metadata[b"rankloop.conventions"])
    meant = {f"{name}: {meaning}": None for setting in settings for name, meaning in setting.items()}
    rows = [
        (
            c.name,
            c.learner,
            ", ".join(f"{name}={value}" for name, value in c.params(scale.rounds).items()) or "defaults",
            {"given": "does not matter", "random": "random", "warm": f"of {KLUCB}"}[c.start],
        )
        for c in CONTENDERS
    ]
    return [
        report.Text(
            f"{scale.rounds:,} rounds of each learner with each query and click model in the compiled loop, and "
            f"{scale.faint_rounds:,} rounds, {scale.faint_runs} runs, for examination probabilities 0.5 to "
            f"0.5^{POWERS[-1]}. The same command goes on with what is missing. Nothing was tuned. All results are in "
            "regret.parquet, examination.parquet and safety.parquet, a row for each run and checkpoint."
        ),
        report.Code(f"{command}\n\n# {versions}"),
        report.Table(
            "Settings", ("name", "learner", "parameters (the others as they are)", "base list"), rows, words=4
        ),
        report.Text("What the numbers mean:"),
        report.Code("\n".join(meant)),
    ]
