"""The report on the experiments with top-k feedback: figures, slopes, claims, what can be learned at all."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankloop import __version__, codec
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures import report
from rankloop.lab.papers import PAPERS
from rankloop.lab.papers.topk_claims import NDCG, REGRET, Slope, claims, slopes_of
from rankloop.lab.papers.topk_settings import (
    BLOCKS,
    CONTENDERS,
    FEEDBACK,
    FORMULA,
    FULL,
    FULL_INFORMATION,
    LEADER,
    NUMERATORS,
    QUICK,
    ROUNDS,
    SMALL,
    WORLD,
    Scale,
    blocks_label,
    feedback_label,
)
from rankloop.lab.papers.topk_theory import tables
from rankloop.lab.runs.results import summarise

# Average regret at the end as our notes have it from another implementation; the paper has curves only
REFERENCE = {
    **dict(zip(map(blocks_label, BLOCKS), (0.53, 0.32, 0.33, 0.46, 0.78), strict=True)),
    **dict(zip(map(feedback_label, FEEDBACK), (0.46, 0.19, 0.16), strict=True)),
    FULL_INFORMATION: 0.02,
}
_RULE = (
    "Differences are between runs of the same seed. A difference is sure when it is more than twice its standard error "
    "over the seeds (with one seed: when it is not zero). That one is above another counts as seen if more than half "
    "of the comparisons surely say so and none surely says the opposite; where the paper says throughout or all, every "
    "mean must say so."
)
_BELOW = (
    "In a round that explores, the paper allows any order below the items explored. Its figures are those of a random "
    f"one, and so are ours but for '{LEADER}', where the perturbed leader stands there."
)
_GROWTH = (
    "Regret against the best fixed ranking of the rounds so far (items, under DCG), or against the best fixed ranker "
    "in a ball, found by convex optimisation (surrogates). A known horizon is another run for each column. Slopes are "
    "those of a line through all points of the row, and through the last two, both axes logarithmic: 2/3 is what the "
    "paper proves, 1 is no learning. Where the world changes, regret can be below 0: a learner that follows beats any "
    "fixed ranking. With mismatch=gamma, the paper's practice, estimates are biased, and the surrogate's regret need "
    "not stay below T^(2/3)."
)
_CHOSEN = (
    "For each learner and data set, step and exploration are a/t^(2/3) and b/t^(1/3) (ListNet: a/√t) with the a and b "
    f"of {', '.join(map(str, NUMERATORS))} that gave the highest average NDCG@10 in three runs of half the length with "
    "other seeds. The paper chose over its whole runs. mismatch=gamma throughout, as in the paper."
)


def write(
    out: Path, scale: Scale, items: pa.Table, slopes: pa.Table, context: pa.Table, chosen: dict[tuple[str, str], Any]
) -> Path:
    """Figures, tables.md, claims.md and report.html in the folder `out`; the report's path."""
    title, pictures = "Top-k feedback, the experiments repeated", out / "figures"
    found = claims(items, slopes, context)
    ends, growth, quality = _ends(items), _growth(slopes), _quality(context)
    numerators, theory = _numerators(scale, chosen), tables()
    report.write_claims(out / "claims.md", title, found, _few(scale))
    written = (ends, *growth, quality, numerators, *theory)
    codec.write(out / "tables.md", "\n".join(table.markdown() for table in written).encode())
    sections = [
        report.Section("Claims", [report.Claims(found), report.Text(_RULE), report.Text(_few(scale))]),
        report.Section("Figures 1 to 3: items", [*_item_pictures(items, pictures), ends, report.Text(_BELOW)]),
        report.Section("How regret grows", [report.Text(_GROWTH), *growth]),
        report.Section(
            "Figures 4 and 5: data sets",
            [_context_picture(context, pictures), quality, report.Text(_CHOSEN), numerators],
        ),
        report.Section("What can be learned at all", theory),
        report.Section("How this was run", _how(scale, items)),
    ]
    return report.write_report(out / "report.html", title, sections, PAPERS["topk"].title)


def _only(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    return table.filter(pc.is_in(table["label"], pa.array(labels)))


def _item_pictures(table: pa.Table, folder: Path) -> list[report.Block]:
    curves = {
        "blocks": ([*map(blocks_label, BLOCKS)], "Figure 1: average regret under DCG, top-1 feedback, by block count."),
        "feedback": ([*map(feedback_label, FEEDBACK)], "Figure 2: 200 blocks, by the number of positions graded."),
        "full": ([feedback_label(1), FULL_INFORMATION], "Figure 3: top-1 feedback against all grades."),
        "ours": ([blocks_label(200), FORMULA, LEADER], "Not in the paper: the block count of Corollary 10."),
    }
    return [
        report.Picture(
            figures.save(figures.learning_curves(_only(table, labels), REGRET, log_x=True), folder / name)[1],
            f"{text} Lines are means over seeds, bands one standard error.",
            f"{text} The table has the values at the end.",
        )
        for name, (labels, text) in curves.items()
    ]


def _ends(table: pa.Table) -> report.Table:
    rows = [
        (row["label"], report.plus_minus(row[REGRET], row[f"{REGRET} ±"]), f"{REFERENCE.get(row['label'], np.nan):.2f}")
        for row in summarise(table, (REGRET,))
    ]
    rows = [(label, mean, "" if reference == "nan" else reference) for label, mean, reference in rows]
    caption = f"Average regret under DCG after {ROUNDS:,} rounds, mean ± standard error, and the reference"
    return report.Table(caption, ("curve", "average regret", "reference"), rows)


def _growth(table: pa.Table) -> list[report.Table]:
    found = slopes_of(table)
    items, surrogates = [s for s in found if s.data != SMALL], [s for s in found if s.data == SMALL]
    others = [s for name in ("sumloss", "precision") for s in slopes_of(table, f"regret.{name}") if s.data == WORLD]
    return [
        _slope_table("Regret under DCG by rounds, mean over seeds", items),
        _slope_table("The world of Figures 1 to 3, regret under other measures", others, "measure"),
        _slope_table("Regret of the surrogate by rounds (10 documents of 10 features)", surrogates, ""),
    ]


def _slope_table(caption: str, found: Sequence[Slope], first: str = "world") -> report.Table:
    rounds = sorted({t for slope in found for t in slope.rounds})
    rows = []
    for slope in found:
        regret = dict(zip(slope.rounds, slope.regret, strict=True))
        about = {"world": slope.data.replace("&", ", "), "measure": slope.measure.removeprefix("regret.")}
        cells = [f"{regret[t]:,.0f}" if t in regret else "" for t in rounds]
        cells += [f"{value:.2f}" if np.isfinite(value) else "–" for value in (slope.overall, slope.last)]
        rows.append((*([about[first]] if first else []), slope.label, *cells))
    columns = (*([first] if first else []), "learner", *(f"{t:,}" for t in rounds), "slope", "last")
    return report.Table(caption, columns, rows, words=2 if first else 1)


def _context_picture(table: pa.Table, folder: Path) -> report.Picture:
    text = "Figures 4 and 5: average NDCG@10 of the lists shown so far."
    path = figures.save(figures.learning_curves(table, NDCG, log_x=True), folder / "ndcg")[1]
    return report.Picture(path, f"{text} Lines are means over seeds, bands one standard error.", text)


def _quality(table: pa.Table) -> report.Table:
    rows = summarise(table, (NDCG,))
    names = figures.short_names(row["data"] for row in rows)
    found = {(row["data"], row["label"]): report.plus_minus(row[NDCG], row[f"{NDCG} ±"], 4) for row in rows}
    labels = [contender.name for contender in CONTENDERS]
    cells = [(label, *(found.get((data, label), "–") for data in names)) for label in labels]
    return report.Table("Average NDCG@10 at the end, mean ± standard error", ("learner", *names.values()), cells)


def _numerators(scale: Scale, chosen: dict[tuple[str, str], Any]) -> report.Table:
    names = figures.short_names(scale.data)
    rows = [
        (
            contender.name,
            *(", ".join(f"{key} {value:g}" for key, value in chosen[data, contender.name].items()) for data in names),
        )
        for contender in CONTENDERS
        if contender.tuned
    ]
    return report.Table("Numerators chosen", ("learner", *names.values()), rows, words=1 + len(names))


def _few(scale: Scale) -> str:
    paper = "The paper ran one seed of 10,000 rounds for items, and 200,000 (Yahoo) and 100,000 (Yandex) on data sets"
    small = scale.rounds < FULL.rounds
    return f"{paper}; these are {scale.item_seeds} seeds, and {scale.seeds} of {scale.rounds:,} rounds" + (
        ": a quick look; not seen is not refuted." if small else "."
    )


def _how(scale: Scale, table: pa.Table) -> list[report.Block]:
    given = "" if scale.data in (FULL.data, QUICK.data) else "".join(f" --data '{data}'" for data in scale.data)
    command = f"rankloop reproduce topk{' --quick' if scale.rounds == QUICK.rounds else ''}{given}"
    versions = f"rankloop {__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    conventions = "\n".join(
        f"{name}: {meaning}"
        for setting in json.loads(table.schema.metadata[b"rankloop.conventions"])
        for name, meaning in setting.items()
    )
    return [
        report.Text(
            f"Items: {WORLD}, other items relevant for each seed. Data sets: queries drawn uniformly, features min-max "
            "normalised per query, 10 documents shown (ListNet: all), NDCG@10. The same command goes on with what is "
            "missing. All results are in the .parquet files beside this one."
        ),
        report.Code(f"{command}\n\n# {versions}"),
        report.Text("What the numbers mean:"),
        report.Code(conventions),
    ]
