"""The report on the experiment with users who change: Table 2, Figure 1, claims, and how it was run."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rankloop import __version__, codec
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures import report
from rankloop.lab.papers import PAPERS
from rankloop.lab.papers.nonstationary_claims import BYTES, MEASURE, MILLISECONDS, claims, with_milliseconds
from rankloop.lab.papers.nonstationary_settings import (
    CONTENDERS,
    DM2L,
    EVERY,
    FULL,
    GAMMA,
    PAIRS,
    PM2L,
    QUICK,
    WORLD,
    Scale,
)
from rankloop.lab.runs.results import Curve, Row, curves, summarise

_RULE = (
    "Differences are between runs of the same seed, which meet the same queries. A difference is sure when it is more "
    "than twice its standard error over the seeds (with one seed: when it is not zero). That one learner is above "
    "another counts as seen if more than half of the comparisons (each data set and user) surely say so and none "
    "surely says the opposite. Where the paper says consistently or on all, every mean must say so, sure or not."
)
_MEMORY = (
    "Time is of the whole loop with the simulated user, without held-out evaluation; whatever else the machine does "
    "makes it longer. Memory is the state that a learner keeps, where the paper gives that of the process: a meta "
    "learner keeps one weight vector for each expert. The lists that NSGD-DSP remembers differ in length."
)
_TRACKING = (
    f"Not in the paper: every {EVERY} rounds all users have a new taste. Recovery is the number of rounds until NDCG "
    "is back at 95 % of its level before a change; who has learned little has little to recover, so read it beside "
    "the regret. A fixed rate has to be known beforehand; the meta learner is told the number of rounds only."
)
_TRACKED = ("online.recovery", "online.regret", "online.ndcg")


def write(out: Path, scale: Scale, table: pa.Table, tracking: pa.Table) -> Path:
    """Figures, table.md, claims.md and report.html in the folder `out`; the report's path."""
    table = with_milliseconds(table)
    title = "Non-stationary dueling bandits, the experiment repeated"
    found, main, tracked = claims(table), table_two(table), _tracking_tables(tracking)
    report.write_claims(out / "claims.md", title, found, _few(scale))
    codec.write(out / "table.md", "\n".join(t.markdown() for t in (main, *tracked)).encode())
    sections = [
        report.Section("Claims", [report.Claims(found), report.Text(_RULE), report.Text(_few(scale))]),
        report.Section("Table 2", [main]),
        report.Section("Figure 1: time and memory", _costs(table, out / "figures")),
        report.Section(
            "Tastes that change at once", [report.Text(_TRACKING), *tracked, _picture(tracking, out / "figures")]
        ),
        report.Section("How this was run", _how(scale, table)),
    ]
    return report.write_report(out / "report.html", title, sections, PAPERS["nonstationary"].title)


def table_two(table: pa.Table) -> report.Table:
    """Cumulative NDCG in the paper's layout: users and learners down, data sets across."""
    found = curves(table, MEASURE)
    names = figures.short_names(data for data, _, _ in found)
    rows: list[tuple[str, ...]] = []
    for user in dict.fromkeys(user for _, user, _ in found):
        best = {data: max(_end(found, data, user, label)[0] for label in _labels(found)) for data in names}
        for label in _labels(found):
            cells = []
            for data in names:
                mean, deviation = _end(found, data, user, label)
                cells.append(_cell(mean, deviation) + (" ★" if mean == best[data] else ""))
            rows.append((user, label, *cells))
            base = next((base for base, meta in PAIRS.items() if meta == label), None)
            if base is not None:
                pairs = [(_end(found, data, user, base)[0], _end(found, data, user, label)[0]) for data in names]
                rows.append((user, f"{label} over {base}", *(improvement(*pair) for pair in pairs)))
    caption = (
        "Table 2: cumulative NDCG@10, mean (standard deviation over runs); percentages are the improvement of a meta "
        f"learner over its base; ★ is the highest for that user. {PM2L} is not in the paper."
    )
    return report.Table(caption, ("user", "learner", *names.values()), rows, words=2)


def improvement(base: float, meta: float) -> str:
    """By how much the meta learner is above its base, as the paper's table says it.

    >>> improvement(100.3, 118.1), improvement(50.0, 49.0), improvement(np.nan, 1.0)
    ('+17.7%', '-2.0%', '–')
    """
    return f"{100 * (meta / base - 1):+.1f}%" if np.isfinite(meta) and np.isfinite(base) and base > 0 else "–"


def _labels(found: Mapping[tuple[str, str, str], Curve]) -> list[str]:
    return list(dict.fromkeys(label for _, _, label in found))


def _end(found: Mapping[tuple[str, str, str], Curve], data: str, user: str, label: str) -> tuple[float, float]:
    """Mean and standard deviation over the runs at the last round; -inf, which is never best, if none ran."""
    curve = found.get((data, user, label))
    if curve is None:
        return -np.inf, np.nan
    last = np.array([values[-1] for values in curve.values.values()])
    return float(last.mean()), float(last.std(ddof=1)) if last.size > 1 else np.nan


def _cell(mean: float, deviation: float) -> str:
    if not np.isfinite(mean):
        return "–"
    return f"{mean:.1f}" + (f" ({deviation:.1f})" if np.isfinite(deviation) else "")


def _costs(table: pa.Table, folder: Path) -> list[report.Block]:
    rows = summarise(table, (MILLISECONDS, BYTES))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    panels = {
        "milliseconds a round": {label: _mean(rows, label, MILLISECONDS) for label in labels},
        "kilobytes of state at the end": {label: _mean(rows, label, BYTES) / 1000 for label in labels},
    }
    text = "Figure 1: time a round and memory of the state of each learner and of the meta learner over it"
    picture = figures.save(figures.paired_bars(panels, PAIRS), folder / "costs")[1]
    cells = [(label, *(f"{values[label]:.3g}" for values in panels.values())) for label in labels]
    return [
        report.Picture(picture, f"{text}, mean over data sets and users.", f"{text}. The table has the numbers."),
        report.Table("Mean over data sets and users", ("learner", *panels), cells),
        report.Text(_MEMORY),
    ]


def _mean(rows: Sequence[Row], label: str, measure: str) -> float:
    return float(np.mean([row[measure] for row in rows if row["label"] == label]))


def _tracking_tables(table: pa.Table) -> list[report.Table]:
    rows = summarise(table, _TRACKED)
    names, users = figures.short_names(row["data"] for row in rows), list(dict.fromkeys(row["user"] for row in rows))
    columns = ("data", "user", "learner, rate", *(figures.TITLES[measure] for measure in _TRACKED))
    digits = {"online.recovery": 0, "online.regret": 0, "online.ndcg": 3}
    cells = [
        (
            names[row["data"]],
            row["user"],
            row["label"],
            *(report.plus_minus(row[m], row[f"{m} ±"], digits[m]) for m in _TRACKED),
        )
        for row in sorted(rows, key=lambda row: (list(names).index(row["data"]), users.index(row["user"])))
    ]
    caption = f"A new taste every {EVERY} rounds: {DM2L} against fixed rates, mean ± standard error"
    return [report.Table(caption, columns, cells, words=3)]


def _picture(table: pa.Table, folder: Path) -> report.Picture:
    text = f"NDCG of the lists shown while tastes change every {EVERY} rounds."
    path = figures.save(figures.learning_curves(table, "online.window_ndcg"), folder / "tracking")[1]
    return report.Picture(path, f"{text} Lines are means over seeds, bands one standard error.", text)


def _few(scale: Scale) -> str:
    smaller = scale.seeds < FULL.seeds or scale.rounds < FULL.rounds
    paper = "The paper ran 1000 rounds and 10 seeds on NP2003, MQ2007, MQ2008, MSLR and Yahoo's set"
    return f"{paper}; this is {scale.rounds} and {scale.seeds}" + (
        ": a quick look, too small to decide most claims; not seen is not refuted." if smaller else "."
    )


def _how(scale: Scale, table: pa.Table) -> list[report.Block]:
    quick = replace(scale, data=QUICK.data, tracking_data=QUICK.tracking_data) == QUICK
    given = "" if scale.data in (FULL.data, QUICK.data) else "".join(f" --data '{data}'" for data in scale.data)
    command = f"rankloop reproduce nonstationary{' --quick' if quick else ''}{given}"
    versions = f"rankloop {__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    conventions = "\n".join(
        f"{name}: {meaning}"
        for setting in json.loads(table.schema.metadata[b"rankloop.conventions"])
        for name, meaning in setting.items()
    )
    seeds = f"seeds 0 to {scale.seeds - 1}" if scale.seeds > 1 else "seed 0"
    settings = [
        (
            c.name,
            c.learner,
            ", ".join(f"{name}={value}" for name, value in c.params(scale.rounds).items()) or "defaults",
        )
        for c in CONTENDERS
    ]
    return [
        report.Text(
            f"{scale.rounds} rounds, {seeds}, users {', '.join(scale.users)}, world {WORLD}, gamma {GAMMA}; the same "
            "command goes on with what is missing. Base learners have the settings of their own papers. The meta "
            "learners have rankloop's, which were chosen on other seeds of the generated worlds; the paper's own are "
            "finest=1, losses=paper, and some reach that it does not tell. Their steps follow from the number of "
            "rounds. All results are in nonstationary.parquet and tracking.parquet, a row for each run and checkpoint."
        ),
        report.Code(f"{command}\n\n# {versions}"),
        report.Table("Settings", ("name", "learner", "parameters (the others as they are)"), settings, words=3),
        report.Text("What the numbers mean:"),
        report.Code(conventions),
    ]
