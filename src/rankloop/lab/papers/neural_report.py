"""The report on the experiment with neural rankers: figures, claims, tables, and how it was run."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rankloop import __version__, codec
from rankloop.lab.data.lda import Projection, project
from rankloop.lab.data.sources import open_split
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures import report
from rankloop.lab.papers import PAPERS
from rankloop.lab.papers.neural_claims import CERTAIN, OFFLINE, ONLINE, claims
from rankloop.lab.papers.neural_settings import CONTENDERS, FULL, QUICK, RANKNET, USERS, Chosen, Params, Scale
from rankloop.lab.runs.results import curves, summarise

_RULE = (
    "Differences are between runs of the same seed, which meet the same queries. A difference is sure when it is more "
    "than twice its standard error over the seeds (with one seed: when it is not zero). That one learner is above "
    "another counts as seen if more than half of the comparisons (each data set, user and pair of learners) surely say "
    "so and none surely says the opposite; other claims must hold in every comparison."
)
_REPLAY = (
    "The paper minimises the loss over all pairs again after every round. Here networks go on from where they are, a "
    "few steps of Adam a round on lists drawn from the last 5,000, so that a round costs the same at the end as at "
    "the start. PairRank is rankloop's, which weighs pairs by the propensities of its lists: a stronger rival than the "
    "paper's."
)


def write(out: Path, scale: Scale, chosen: Chosen, table: pa.Table) -> Path:
    """Figures, table.md, claims.md and report.html in the folder `out`; the report's path."""
    short = figures.short_names(scale.data)
    planes = {short[data]: project(open_split(data).train) for data in scale.data}
    found, ends = claims(table, planes), _table(table)
    title = "Neural rankers learned online, the experiment repeated"
    report.write_claims(out / "claims.md", title, found, _few(scale))
    codec.write(out / "table.md", ends.markdown().encode())
    sections = [
        report.Section("Claims", [report.Claims(found), report.Text(_RULE), report.Text(_few(scale))]),
        report.Section("Figures", _pictures(table, planes, out / "figures")),
        report.Section("Where each learner ended", [ends]),
        report.Section("How this was run", _how(scale, chosen, table)),
    ]
    return report.write_report(out / "report.html", title, sections, PAPERS["neural"].title)


def _pictures(table: pa.Table, planes: Mapping[str, Projection], folder: Path) -> list[report.Block]:
    points = {name: (plane.points, plane.grades) for name, plane in planes.items()}
    made = [
        ("lda", "Figure 3: documents in the plane that separates their grades best linearly.", figures.scatter(points)),
        (
            "offline",
            "Figure 4: quality of the learned ranker on held-out queries.",
            figures.learning_curves(table, OFFLINE),
        ),
        (
            "online",
            "Figure 5: cumulative discounted NDCG of the lists that users were shown.",
            figures.learning_curves(table, ONLINE),
        ),
    ]
    if curves(table, CERTAIN):
        made.append(
            (
                "certain",
                f"Figure 6: share of {RANKNET}'s pairs in the first ten whose order is certain.",
                figures.by_user(table, CERTAIN, RANKNET, figures.TITLES[CERTAIN]),
            )
        )
    bands = " Lines are means over seeds, bands one standard error."
    return [
        report.Picture(
            figures.save(figure, folder / name)[1],
            text + ("" if name == "lda" else bands),
            f"{text} The last values stand in the table below.",
        )
        for name, text, figure in made
    ]


def _table(table: pa.Table) -> report.Table:
    rows = summarise(table, (OFFLINE, ONLINE, CERTAIN, "rounds_per_second"))
    names = figures.short_names(row["data"] for row in rows)
    order = [(data, user) for data in names for user in USERS]
    cells = [
        (
            names[row["data"]],
            row["user"],
            row["label"],
            str(row["seeds"]),
            report.plus_minus(row[OFFLINE], row[f"{OFFLINE} ±"], 4),
            report.plus_minus(row[ONLINE], row[f"{ONLINE} ±"], 1),
            report.plus_minus(row[CERTAIN], row[f"{CERTAIN} ±"], 2),
            report.plus_minus(row["rounds_per_second"], None, 0),
        )
        for row in sorted(rows, key=lambda row: order.index((row["data"], row["user"])))
    ]
    columns = ("data", "user", "learner", "seeds", "held-out NDCG@10", "cumulative NDCG", "certain", "rounds/s")
    return report.Table("At the last round, mean ± standard error over seeds", columns, cells, words=3)


def _few(scale: Scale) -> str:
    smaller = scale.seeds < FULL.seeds or scale.rounds < FULL.rounds
    paper = "The paper ran 5000 rounds and 10 seeds on MSLR-WEB10K and Yahoo's set 1"
    return f"{paper}; this is {scale.rounds} and {scale.seeds}" + (
        ": smaller, so that fewer claims can be decided; not seen is not refuted." if smaller else "."
    )


def _how(scale: Scale, chosen: Chosen, table: pa.Table) -> list[report.Block]:
    settings = [
        (contender.name, data, contender.learner, _said(chosen[data, contender.name]))
        for contender in CONTENDERS
        for data in scale.data
    ]
    grid = [(c.name, "; ".join(_said(tried) for tried in c.settings)) for c in CONTENDERS]
    quick = replace(scale, data=QUICK.data) == QUICK
    given = "" if scale.data in (FULL.data, QUICK.data) else "".join(f" --data '{data}'" for data in scale.data)
    command = f"rankloop reproduce neural{' --quick' if quick else ''}{given}"
    versions = f"rankloop {__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    conventions = "\n".join(
        f"{name}: {meaning}"
        for setting in json.loads(table.schema.metadata[b"rankloop.conventions"])
        for name, meaning in setting.items()
    )
    seeds = f"seeds 0 to {scale.seeds - 1}" if scale.seeds > 1 else "seed 0"
    return [
        report.Text(
            f"{scale.rounds} rounds, {seeds}, users {', '.join(USERS)}; the same command goes on with what is missing. "
            f"Settings were chosen by held-out NDCG@10 on the validation part after {scale.choice_rounds} rounds, mean "
            "over the users, with one seed and as many tries for each learner; verdicts can change with what there was "
            "to choose from. All results are in neural.parquet, a row for each run and checkpoint."
        ),
        report.Text(_REPLAY),
        report.Code(f"{command}\n\n# {versions}"),
        report.Table("Settings", ("name", "data", "learner", "parameters (the others as they are)"), settings, words=4),
        report.Table("What there was to choose from", ("name", "tried"), grid, words=2),
        report.Text("What the numbers mean:"),
        report.Code(conventions),
    ]


def _said(settings: Params) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"
