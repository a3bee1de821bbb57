"""Diagonal precision against the full matrix: quality, speed, hashed columns."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.registry import make, parse_learner
from rankloop.core.types import Array, Candidates, Feedback, SparseRows
from rankloop.evaluation.metrics import ndcg
from rankloop.features import hashing
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.sources import open_split
from rankloop.learners.pairwise.pairrank import PairRank

SEEDS = (300, 301)
ROUNDS = 1_000
USERS = ("perfect", "navigational", "informational")
DATA = ("synthetic:mq2007?features=20", "synthetic:mslr?queries=300", "categories", "synthetic:yahoo?queries=300")
LEARNERS = ("pairrank", "pairrank?confidence=diagonal", "pairrank?confidence=diagonal&alpha=0.1")
FIELDS = {"kind": 5, "color": 12, "brand": 60, "seller": 200, "style": 30, "shape": 8, "origin": 100, "maker": 120}
WIDE = 100_000


class World(NamedTuple):
    """Queries to learn from and others to look at, with the grades of their candidates."""

    train: list[tuple[Candidates, Array]]
    test: list[tuple[Candidates, Array]]
    highest: int


def shop(seed: int, lists: tuple[int, int], n: int, width: int, crosses: int = 0, dense: bool = False) -> World:
    """Items of eight categories, some of whose values are common and most rare; each value is liked more or less.

    With `crosses`, so many pairs of categories are features, too.
    """
    rng, stock = np.random.default_rng(seed), 5_000
    values = {
        name: np.minimum(rng.pareto(1.0, stock) * size / 8, size - 1).astype(int) for name, size in FIELDS.items()
    }
    codes = [hashing.category_codes(name, [str(v) for v in range(size)])[values[name]] for name, size in FIELDS.items()]
    liked = sum(rng.normal(0.0, 0.5, size)[values[name]] for name, size in FIELDS.items())
    pairs = [(a, b) for a in range(len(codes)) for b in range(a)][:crosses]
    codes += [hashing.joined(codes[a], codes[b]) for a, b in pairs]
    columns = np.stack([hashing.columns(one, width)[0] for one in codes], axis=1)

    def drawn(count: int) -> list[tuple[Candidates, Array]]:
        found = []
        for q in range(count):
            some = rng.choice(stock, n, replace=False)
            rows = SparseRows(np.arange(n + 1) * len(codes), columns[some].ravel(), np.ones(n * len(codes)), width)
            grades = np.digitize(liked[some] + rng.normal(0.0, 0.7, n), [1.0, 2.2])
            found.append((Candidates(f"q{q}", some, rows.dense() if dense else rows), grades))
        return found

    return World(drawn(lists[0]), drawn(lists[1]), 2)


def opened(data: str, dense: bool) -> World:
    """A generated set, or the shop; its categories hashed into 512 columns."""
    if data == "categories":
        return shop(0, (300, 100), 40, 512, dense=dense)
    split = open_split(data)
    train, test = (
        [(part.candidates(q), part.grades_of(q)) for q in range(len(part))] for part in (split.train, split.test)
    )
    return World(train, test, split.train.highest_grade)


def served(world: World, learner: PairRank, name: str, seed: int) -> list[float]:
    """One run: NDCG shown and held-out, share of pairs left to chance, wrong ones among the certain."""
    user, total, chance = open_user(name, world.highest, "clicks"), 0.0, 0.0
    for t in range(ROUNDS):
        given, grades = world.train[int(np.random.default_rng([seed, 0, t]).integers(len(world.train)))]
        shown = learner.rank(given, 10, np.random.default_rng([seed, 1, t]))
        best = dcg(np.sort(grades)[::-1].astype(float), 10)
        total += dcg(grades[shown.order].astype(float), 10) / best if best else 0.0
        chance += (np.triu(shown.memo["shares"], 1) > 0.0).sum() / 45
        feedback = user.react(grades[shown.order], np.random.default_rng([seed, 2, t]))
        learner.learn(shown, feedback, np.random.default_rng([seed, 3, t]))
    held = np.mean([ndcg(grades[learner.best(given, 10)], 10, grades) for given, grades in world.test])
    certain = wrong = 0
    for given, grades in world.test[:50]:
        sure = learner.model_.confidence(given, learner.alpha).certain()
        certain += int((sure & (np.subtract.outer(grades, grades) != 0)).sum())
        wrong += int((sure & (np.subtract.outer(grades, grades) < 0)).sum())
    return [total / ROUNDS, float(held), chance / ROUNDS, wrong / max(certain, 1)]


def quality() -> None:
    """Print the first table, a row as soon as it is known."""
    print(f"Machine: {machine()}; {ROUNDS:,} rounds, seeds {SEEDS}, users {', '.join(USERS)}\n")
    heads = ["data", "d", "learner", *(f"shown: {user}" for user in USERS), *(f"held-out: {user}" for user in USERS)]
    print(f"| {' | '.join([*heads, 'left to chance', 'certain but wrong'])} |\n|{' --- |' * (len(heads) + 2)}")
    for data in DATA:
        worlds = {dense: opened(data, dense) for dense in ((True, False) if data == "categories" else (True,))}
        first: Array | None = None
        for spec in LEARNERS:
            name, params = parse_learner(spec)
            world = worlds["diagonal" not in spec or len(worlds) == 1]
            runs = np.array(
                [[served(world, make(name, **params), user, seed) for seed in SEEDS] for user in USERS]  # type: ignore[arg-type]
            )
            first = runs if first is None else first
            width = world.train[0][0].features.shape[1]
            cells = [_cell(runs[u, :, m], first[u, :, m], runs is first) for m in (0, 1) for u in range(len(USERS))]
            rest = [f"{runs[:, :, m].mean():.3f}" for m in (2, 3)]
            print(f"| {' | '.join([data.removeprefix('synthetic:'), str(width), spec, *cells, *rest])} |", flush=True)


def _cell(values: Array, base: Array, alone: bool) -> str:
    gap = values - base
    return (
        f"{values.mean():.3f}"
        if alone
        else f"{values.mean():.3f} ({gap.mean():+.3f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.3f})"
    )


def speed() -> None:
    """Print the second table: microseconds of processor time."""
    rows = []
    for d in (20, 136, 700):
        rng = np.random.default_rng(0)
        lists = [Candidates("q", features=rng.random((100, d))) for _ in range(50)]
        learners = {"full": PairRank(), "diagonal": PairRank(confidence="diagonal")}
        spent = {name: [[0.0, 0.0] for _ in range(5)] for name in learners}
        for part in range(6):  # the first warms up
            for name, learner in learners.items():
                rank, learn = _timed(learner, lists, 100 if d < 700 else 30, part)
                if part:
                    spent[name][part - 1] = [rank, learn]
        found = {name: np.median(times, axis=0) for name, times in spent.items()}
        row: dict[str, Any] = {"d": d}
        for name in learners:
            row |= {f"{name}: rank (µs)": float(found[name][0]), f"{name}: learn (µs)": float(found[name][1])}
        rows.append(row | {"times as fast": float(found["full"].sum() / found["diagonal"].sum())})
    print_rows(rows)


def _timed(learner: PairRank, lists: Sequence[Candidates], rounds: int, part: int) -> tuple[float, float]:
    """Processor time of a rank and of a learn, in microseconds."""
    rank = learn = 0.0
    for t in range(part * rounds, (part + 1) * rounds):
        given, rng = lists[t % len(lists)], np.random.default_rng(t)
        start = process_time()
        shown = learner.rank(given, 10, rng)
        rank += process_time() - start
        feedback = Feedback.clicks((rng.random(10) < 0.3).astype(float))
        start = process_time()
        learner.learn(shown, feedback, rng)
        learn += process_time() - start
    return 1e6 * rank / rounds, 1e6 * learn / rounds


def hashed() -> None:
    """Print the third table: rounds a second at 100,000 columns, and whether anything is learned."""
    world = shop(1, (400, 100), 100, WIDE, crosses=22)
    user = open_user("perfect", world.highest, "clicks")
    rows = []
    for spec in (
        "pairrank?confidence=diagonal",
        "hybrid?confidence=diagonal&init=base",
        "pairrank?confidence=diagonal&forget=0.999",
    ):
        name, params = parse_learner(spec)
        learner: Any = make(name, **params)
        spent, wall, shown_ndcg = 0.0, 0.0, []
        for t in range(3_000):
            given, grades = world.train[t % len(world.train)]
            rng, began, start = np.random.default_rng(t), perf_counter(), process_time()
            shown = learner.rank(given, 10, rng)
            rank, rank_wall = process_time() - start, perf_counter() - began
            feedback = user.react(grades[shown.order], rng)
            shown_ndcg.append(ndcg(grades[shown.order], 10, grades))
            began, start = perf_counter(), process_time()
            learner.learn(shown, feedback, rng)
            if t >= 500:
                spent, wall = spent + rank + process_time() - start, wall + rank_wall + perf_counter() - began
        rows.append(
            {
                "learner": spec,
                "rounds/s of processor time": 2_500 / spent,
                "rounds/s of the clock": 2_500 / wall,
                "NDCG@10 of lists 1-100": float(np.mean(shown_ndcg[:100])),
                "2,901-3,000": float(np.mean(shown_ndcg[-100:])),
            }
        )
    print_rows(rows)


def main() -> None:
    """Print the tables named."""
    tables = {"speed": speed, "hashed": hashed, "quality": quality}
    for name in sys.argv[1:] or tables:
        print(f"\n## {name}\n")
        tables[name]()


if __name__ == "__main__":
    main()
