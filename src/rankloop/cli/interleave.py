"""`rankloop interleave`: compare rankers by interleaving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.lab.runs.interleave import Comparison

# repeated here, and compared by a test: help must not import numpy
Method = Literal["team-draft", "probabilistic", "pairwise-preference"]


def add_to(app: App) -> None:
    """Register the command."""
    app.command(interleave)


def interleave(
    *rankers: str,
    data: str = "synthetic:mslr",
    user: str = "navigational",
    rounds: int = 1000,
    method: Method = "probabilistic",
    k: int = 10,
    seed: int = 0,
    train_rounds: int = 1000,
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Interleave the rankings of two or more rankers for simulated users, and print which are preferred to the first.

    Example: rankloop interleave feature:5 pairrank pdgd --user informational --rounds 5000

    Parameters
    ----------
    rankers
        Two or more of: `feature:12` (highest first) or `feature:-12` (lowest first), counted from 1; a learner,
        `pairrank?alpha=0.1`, which is trained first and then ranks by `best`; a file with a saved learner.
    data
        `synthetic:NAME[?option=value&…]`, or a path to a LETOR file or folder. Learners are trained on its train part,
        the comparison is on its test part.
    user
        perfect, navigational, informational, almost-random, cascade, pbm, dbn or fitted:FILE: see docs/lab.md.
    rounds
        Impressions.
    method
        team-draft, probabilistic or pairwise-preference: docs/interleaving.md says when which.
    k
        Positions shown.
    seed
        Same seed, same result.
    train_rounds
        Queries that each learner serves before the comparison.
    figure
        Draw how the lead in credit settles into this .png or .svg file.
    json
        Print JSON instead of a table.
    """
    from rankloop.clicks.users import open_user
    from rankloop.core.errors import InvalidParameter
    from rankloop.lab.datasets.sources import check_spec, open_split
    from rankloop.lab.runs.interleave import check_ranker
    from rankloop.lab.runs.interleave import interleave as run

    if len(rankers) < 2:
        raise InvalidParameter(f"{len(rankers)} rankers; name at least two: rankloop interleave feature:5 pairrank")
    _out.check_figure(figure)
    for ranker in rankers:
        check_ranker(ranker)
    check_spec(data)
    open_user(user, highest_grade=1)  # a wrong name is reported before any data is opened
    _out.say_when_compiling()
    split = open_split(data)
    with _out.progress_bars() as bars:
        task = bars.add_task("impressions", total=rounds)

        def on_progress(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        found = run(rankers, split, user, rounds, method, k, seed, train_rounds, on_progress)
    if figure is not None:
        from rankloop.lab.plots import figures

        figures.save_as(figures.interleaving_figure(found), figure)
        _out.people.print(f"wrote {figure}")
    if json:
        setting = {"data": data, "user": user, "rounds": rounds, "method": method, "k": k, "seed": seed}
        first = {"ranker": found.labels[0], "ndcg": float(found.ndcg[0])}
        _out.print_json({**setting, "train_rounds": train_rounds, "first": first, "comparisons": found.summary()})
    else:
        _print_table(f"{data} · {user} users · {rounds:,} impressions · {method}", found)


def _print_table(title: str, found: Comparison) -> None:
    columns = [
        "against " + found.labels[0],
        "wins",
        "losses",
        "ties",
        "preference",
        "credit",
        "",
        f"true NDCG@{found.k}",
    ]
    rows = [
        [
            row["ranker"],
            *(f"{row[name]:,.1f}" for name in ("wins", "losses", "ties")),
            _interval(row["preference"]),
            _interval(row["credit"]),
            row["verdict"],
            f"{row['ndcg']:.4f} ({row['ndcg difference']:+.4f})",
        ]
        for row in found.summary()
    ]
    rows.append([f"{found.labels[0]} itself", *[""] * 6, f"{found.ndcg[0]:.4f}"])
    _out.print_table(title, columns, rows)


def _interval(interval: dict[str, Any]) -> str:
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"
