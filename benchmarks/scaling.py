"""NDCG with per-request min-max scaling, with scaling learned over the stream, and of the exported model."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.registry import make, parse_learner
from rankloop.core.scaling import standardized
from rankloop.core.types import Array, Candidates
from rankloop.evaluation import statistics
from rankloop.integrations.linear_model import LinearModel, linear_model
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots.figures import short_names
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.results import Curve, curves
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.sweep import run_trials
from rankloop.lab.runs.trial import Trial
from rankloop.lab.worlds.world import DataWorld, open_world

LEARNER = "hybrid?init=base"
USERS = ["navigational", "informational"]
SCALINGS = ["query-minmax", "stream"]
MEASURES = {"online": "online.ndcg", "held-out": "offline.ndcg@10"}
WORLD = "stationary?base=feature"


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--learner", default=LEARNER)
    parser.add_argument("--users", nargs="+", default=USERS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/scaling.parquet"))
    parser.add_argument("--export", action="store_true", help="compare the exported model with the ranker")
    asked = parser.parse_args()
    print(f"Machine: {machine()}; {asked.learner}, {asked.rounds} impressions, {asked.seeds} seeds, simulated users\n")
    print_rows(exported(asked) if asked.export else compared(asked))


def compared(asked: Namespace) -> list[dict[str, str]]:
    """A row for each data set and user, of both kinds of scaling."""
    name, parameters = parse_learner(asked.learner)
    users = {user: f"{user}?stop_requires_click=false" for user in asked.users}
    specs = {data: {how: _with_scaling(data, how) for how in SCALINGS} for data in asked.data}
    trials = [
        Trial(name, spec, user, parameters, asked.rounds, seed=seed, evaluations=2, world=WORLD)
        for seed in range(asked.seeds)
        for scalings in specs.values()
        for user in users.values()
        for spec in scalings.values()
    ]
    table = run_trials(trials, asked.out, asked.processes)
    found = {measure: curves(table, measure) for measure in MEASURES.values()}
    names, label = short_names(asked.data), trials[0].label
    rows = []
    for data, scalings in specs.items():
        for user, spec in users.items():
            row = {"data": names[data], "user": user}
            for title, measure in MEASURES.items():
                minmax, stream = (found[measure][scalings[how], spec, label] for how in SCALINGS)
                row |= {f"{title}, query-minmax": _cell(minmax), f"{title}, stream": _cell(stream)}
                row[f"{title}, difference"] = _difference(stream, minmax)
            rows.append(row)
    return rows


def exported(asked: Namespace) -> list[dict[str, str]]:
    """A row for each data set and user: held-out NDCG@10 of the baseline, the ranker and the exported model."""
    rows, names = [], short_names(asked.data)
    for data in asked.data:
        split = open_split(_with_scaling(data, "stream"))
        for user_name in asked.users:
            user: Any = open_user(f"{user_name}?stop_requires_click=false", split.train.highest_grade, "clicks")
            found: dict[str, list[float]] = {"baseline": [], "ranker": [], "exported": []}
            for seed in range(asked.seeds):
                world = open_world(WORLD, split.train, 10, seed)
                assert isinstance(world, DataWorld)
                learner = standardized(make(asked.learner))
                for _ in simulate(learner, world, user, asked.rounds, seed):
                    pass
                test = world.in_base_order(split.test)
                model = linear_model(learner, [str(j) for j in range(test.width)], "stream", "model")
                ranked: dict[str, Any] = {"baseline": make("base"), "ranker": learner, "exported": _Engine(model)}
                for title, one in ranked.items():
                    found[title] += held_out(test)(one).values()
            gap = statistics.mean(np.subtract(found["exported"], found["ranker"]))
            cells = {title: _text(statistics.mean(values)) for title, values in found.items()}
            rows.append({"data": names[data], "user": user_name, **cells, "exported - ranker": _text(gap, "+")})
    return rows


class _Engine:
    """A search engine with an exported model: it sees one document at a time, and no baseline."""

    def __init__(self, model: LinearModel) -> None:
        known = model.spread > 0.0
        self._weights = np.where(known, model.weights / np.where(known, model.spread, 1.0), 0.0)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The documents with the k highest scores; an offset of all of them does not matter."""
        return np.argsort(-(candidates.features @ self._weights), kind="stable")[:k]


def _with_scaling(data: str, how: str) -> str:
    return f"{data}{'&' if '?' in data else '?'}normalize={how}"


def _cell(curve: Curve) -> str:
    return f"{curve.mean[-1]:.4f}" + (f" ± {curve.error[-1]:.4f}" if curve.seeds > 1 else "")


def _difference(high: Curve, low: Curve) -> str:
    ends = ({seed: values[-1] for seed, values in one.values.items()} for one in (high, low))
    return _text(statistics.paired(*ends), "+")


def _text(found: statistics.Estimate, sign: str = "") -> str:
    return f"{found.value:{sign}.4f}" + (f" ± {found.error:.4f}" if found.n > 1 else "")


if __name__ == "__main__":
    main()
