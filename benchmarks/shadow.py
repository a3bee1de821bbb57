"""Held-out NDCG of learners that adopt the production ranking (shadow) beside learners whose rankings are shown."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import User, open_user
from rankloop.core.learner import Learner
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation import statistics
from rankloop.evaluation.metrics import mean_ndcg
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.plots.figures import short_names
from rankloop.lab.runs.probes import held_out
from rankloop.lab.worlds.world import Stationary, World

DATA = ["synthetic:mslr", "synthetic:mq2007"]
LEARNERS = ["pairrank", "pdgd"]
USERS = ["perfect", "navigational", "informational"]


def in_production_order(split: Split, noise: float) -> Split:
    """The same data with each query's documents sorted as the production ranker would."""
    train, streams = split.train, Rng(0)
    signals = [(feature, sign) for feature in range(train.width) for sign in (1.0, -1.0)]
    worth = [mean_ndcg(sign * train.features[:, j], train.grades, train.offsets) for j, sign in signals]
    feature, sign = signals[int(np.argmax(worth))]
    spread = noise * float(train.features[:, feature].std())

    def sorted_part(part: Dataset, number: int) -> Dataset:
        scores = sign * part.features[:, feature]
        scores = scores + spread * streams.for_event("production", number).normal(size=scores.size)
        order = np.lexsort((-scores, np.repeat(np.arange(len(part)), np.diff(part.offsets))))
        features, grades = part.features[order], part.grades[order]
        return Dataset(part.name, features, grades, part.offsets, part.queries, part.normalization, part.scale)

    return Split(sorted_part(train, 0), None, sorted_part(split.test, 1))


def teach(learner: Learner, world: World, user: User, rounds: int, seed: int, shadow: bool) -> None:
    """`rounds` rounds of `rankloop.lab.runs.simulate`; in shadow the list is not the learner's but the first k."""
    streams = Rng(seed)
    for t in range(rounds):
        query = world.at(t, streams.for_event("world", t))
        if shadow:
            shown = learner.adopt(query.candidates, np.arange(min(world.k, query.candidates.n)))
        else:
            shown = learner.rank(query.candidates, world.k, streams.for_event("rank", t))
        learner.learn(
            shown, user.react(query.grades[shown.order], streams.for_event("user", t)), streams.for_event("learn", t)
        )


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", default=DATA)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--noise", type=float, default=1.0)
    asked = parser.parse_args()
    rows, names = [], short_names(asked.data)
    for data in asked.data:
        split = in_production_order(open_split(data), asked.noise)
        world, probe = Stationary(split.train), held_out(split.test)
        for name in USERS:
            user = open_user(f"{name}?stop_requires_click=false", split.train.highest_grade)
            row = {"data": names[data], "user": name, "production": _cell(list(probe(make("base")).values()))}
            for spec in asked.learners:
                found: dict[bool, list[float]] = {False: [], True: []}
                for shadow, seed in ((shadow, seed) for shadow in found for seed in range(asked.seeds)):
                    kind, parameters = parse_learner(spec)
                    learner = make(kind, **parameters)
                    teach(learner, world, user, asked.rounds, seed, shadow)
                    found[shadow] += probe(learner).values()
                row[f"{spec} live"] = _cell(found[False])
                row[f"{spec} shadow"] = f"{_cell(found[True])} ({_cell(np.subtract(found[True], found[False]), '+')})"
            rows.append(row)
    print(f"Machine: {machine()}; {asked.rounds} rounds, {asked.seeds} seeds, noise {asked.noise:g}\n")
    print_rows(rows)


def _cell(values: Sequence[float] | Array, sign: str = "") -> str:
    """Mean ± standard error."""
    found = statistics.mean(values)
    return f"{found.value:{sign}.4f}" + (f" ± {found.error:.4f}" if found.n > 1 else "")


if __name__ == "__main__":
    main()
