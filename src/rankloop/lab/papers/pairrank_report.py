"""The report on the PairRank experiment: figures, claims, tables, and how it was run."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rankloop import __version__
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures import report
from rankloop.lab.papers import PAPERS
from rankloop.lab.papers.pairrank_claims import CONSERVATIVE, EPSILON, SGD, claims
from rankloop.lab.papers.pairrank_settings import (
    ALPHAS,
    CONTENDERS,
    FULL,
    LAMBDAS,
    QUICK,
    RATES,
    USERS,
    Chosen,
    Params,
    Scale,
)
from rankloop.lab.runs.results import summarise

_RULE = (
    "Differences are between runs of the same seed, which meet the same queries. A difference is sure when it is more "
    "than twice its standard error over the seeds (with one seed: when it is not zero). That one learner is above "
    "another counts as seen if more than half of the comparisons (each data set, user and pair of learners) surely say "
    "so and none surely says the opposite; other claims must hold in every comparison."
)
_REFIT = (
    "The paper, and PairRank_C and PairRank_R above, minimise the loss over all pairs again after every round, which "
    "takes ever longer. The one-pass update takes one Newton step for each pair instead; here both run with the same "
    "settings on the first data set. Its confidence matrix counts a pair by its curvature, at most 1/4, so the same α "
    "is more cautious with it."
)
_MEASURES = ("offline.ndcg@10", "online.cndcg", "cosine")


def write(out: Path, scale: Scale, chosen: Chosen, table: pa.Table, refit: pa.Table) -> Path:
    """Figures, claims.md and report.html in the folder `out`; the report's path."""
    found = claims(table)
    title = "PairRank, the experiment repeated"
    report.write_claims(out / "claims.md", title, found, _few(scale))
    sections = [
        report.Section("Claims", [report.Claims(found), report.Text(_RULE), report.Text(_few(scale))]),
        report.Section("Figures", _pictures(table, out / "figures")),
        report.Section("Where each learner ended", _tables(table, scale)),
        report.Section("One-pass update and exact refit", [report.Text(_REFIT), *_refit_table(refit)]),
        report.Section("How this was run", _how(scale, chosen, table)),
    ]
    return report.write_report(out / "report.html", title, sections, PAPERS["pairrank"].title)


def _few(scale: Scale) -> str:
    smaller = scale.seeds < FULL.seeds or scale.rounds < FULL.rounds
    paper = "The paper ran 5000 rounds and 20 seeds on MSLR-WEB10K and Yahoo's set 1"
    return f"{paper}; this is {scale.rounds} and {scale.seeds}" + (
        ": a quick look, too small to decide most claims; not seen is not refuted." if smaller else "."
    )


def _pictures(table: pa.Table, folder: Path) -> list[report.Block]:
    drawn = [
        ("offline", "Figure 3: quality of the learned ranker on held-out queries.", ("offline.ndcg@10", False)),
        ("online", "Figure 4: cumulative discounted NDCG of the lists that users were shown.", ("online.cndcg", False)),
        ("online-mean", "Figure 4 seen closer: mean NDCG of the lists shown so far.", ("online.ndcg", True)),
        ("closeness", "Figure 5: cosine between a learner's weights and the offline model's.", ("cosine", True)),
    ]
    made = [(name, text, figures.learning_curves(table, m, log_x=log)) for name, text, (m, log) in drawn]
    made += [
        (
            "block-sizes",
            f"Figure 6: size of {CONSERVATIVE}'s blocks by rank.",
            figures.block_sizes(table, CONSERVATIVE),
        ),
        ("block-counts", f"Figure 7b: number of {CONSERVATIVE}'s blocks.", figures.block_counts(table, CONSERVATIVE)),
    ]
    bands = "Lines are means over seeds, bands one standard error."
    return [
        report.Picture(
            figures.save(figure, folder / name)[1],
            f"{text} {bands}",
            f"{text} The last values stand in the tables below.",
        )
        for name, text, figure in made
    ]


def _tables(table: pa.Table, scale: Scale) -> list[report.Block]:
    rows = summarise(table, _MEASURES)
    return [
        report.Table(
            f"{data}, {user} users: after {scale.rounds} rounds, mean ± standard error",
            ("learner", *(figures.TITLES[measure] for measure in _MEASURES)),
            [
                (
                    row["label"],
                    report.plus_minus(row["offline.ndcg@10"], row["offline.ndcg@10 ±"]),
                    report.plus_minus(row["online.cndcg"], row["online.cndcg ±"], 1),
                    report.plus_minus(row["cosine"], row["cosine ±"]),
                )
                for row in rows
                if (row["data"], row["user"]) == (data, user)
            ],
        )
        for data in scale.data
        for user in USERS
    ]


def _refit_table(table: pa.Table) -> list[report.Block]:
    rows = [
        (
            row["user"],
            row["label"],
            str(row["round"]),
            report.plus_minus(row["offline.ndcg@10"], row["offline.ndcg@10 ±"]),
            report.plus_minus(row["online.cndcg"], row["online.cndcg ±"], 1),
            report.plus_minus(row["rounds_per_second"], None, 0),
        )
        for row in summarise(table, ("offline.ndcg@10", "online.cndcg", "rounds_per_second"))
    ]
    columns = ("user", "update", "rounds", "held-out NDCG@10", "cumulative NDCG", "rounds a second")
    return [report.Table("", columns, rows, words=2)]


def _how(scale: Scale, chosen: Chosen, table: pa.Table) -> list[report.Block]:
    settings = [
        (contender.name, data, contender.learner, _said(chosen[data, contender.name]))
        for contender in CONTENDERS
        for data in scale.data
    ]
    quick = replace(scale, data=QUICK.data) == QUICK
    given = "" if scale in (FULL, QUICK) else "".join(f" --data '{data}'" for data in scale.data)
    command = f"rankloop reproduce pairrank{' --quick' if quick else ''}{given}"
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
            "over the users, with one seed; verdicts can change with what there was to choose from. PairRank_R runs "
            "with what was chosen for PairRank_C. All results are in pairrank.parquet, a row for each run and "
            "checkpoint."
        ),
        report.Code(f"{command}\n\n# {versions}"),
        report.Table("Settings", ("name", "data", "learner", "parameters (the others as they are)"), settings, words=4),
        report.Text(
            f"There was to choose from: α {_listed(ALPHAS)} and λ {_listed(LAMBDAS)} for {CONSERVATIVE}, "
            f"rate {_listed(RATES)} for {SGD} and {EPSILON}."
        ),
        report.Text("What the numbers mean:"),
        report.Code(conventions),
    ]


def _said(settings: Params) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
