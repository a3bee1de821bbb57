"""Speed on one core: rounds per second of learners, microseconds to rank and learn, evaluation, the LETOR reader."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Candidates
from rankloop.lab.datasets.letor import read_letor
from rankloop.lab.datasets.sources import open_split, write_letor
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.trial import run as run_trial

DATA = "synthetic:mslr?queries=500&docs=100&sizes=fixed&vali=1&test=1"
ROUNDS = {
    "pairrank": 20_000,
    "pairrank@paper": 500,
    "pdgd": 20_000,
    "greedy": 20_000,
    "random": 20_000,
    "dbgd": 10_000,
    "dm2l": 10_000,
    "pm2l": 10_000,
    "mgd?candidates=49&mixing=probabilistic": 4000,
    "nsgd": 3000,
    "nm2l": 3000,
    "hybrid": 10_000,
    "olranknet": 3000,
    "neural-pdgd": 3000,
}
WINDOW = 1000
TIMED = ("pairrank", "pairrank?init=base", "hybrid", "hybrid?init=base", "adaptive", "pdgd", "olranknet", "bubblerank")
SHAPES = {"100 x 136": "docs=100&features=136", "20 x 20": "docs=20&features=20"}
QUERIES, TURN, K = 50, 100, 10


def rounds() -> list[dict[str, Any]]:
    """Rounds per second with a simulated user, without evaluation; over all rounds, the first and the last 1,000."""
    split, rows = open_split(DATA), []
    for spec, count in ROUNDS.items():
        name, parameters = parse_learner(spec)
        marks: dict[int, float] = {}
        run_trial(Trial(name, DATA, "navigational", parameters, count, evaluations=1), split, partial(_mark, marks))
        begin, end = min(marks), max(marks)  # the first mark comes after opening the data and compilation
        row: dict[str, Any] = {"learner": spec, "rounds": count, "rounds/s": _rate(marks, begin, end)}
        if count > 2 * WINDOW:
            row["first 1,000"] = _rate(marks, begin, min(t for t in marks if t >= begin + WINDOW))
            row["last 1,000"] = _rate(marks, max(t for t in marks if t <= end - WINDOW), end)
        rows.append(row)
    return rows


def _mark(marks: dict[int, float], done: int) -> None:
    marks[done] = perf_counter()


def _rate(marks: dict[int, float], begin: int, end: int) -> int:
    return round((end - begin) / (marks[end] - marks[begin]))


def requests(turns: int = 30) -> list[dict[str, Any]]:
    """Processor time of `rank` and `learn`, medians over turns of 100 rankings, and of both relative to the first."""
    rows: dict[str, dict[str, Any]] = {spec: {"learner": spec} for spec in TIMED}
    for shape, size in SHAPES.items():
        data = open_split(f"synthetic:mslr?queries={QUERIES}&sizes=fixed&vali=1&test=1&{size}").train
        user, rng = open_user("navigational", data.highest_grade), Rng(0)
        asked = [data.candidates(q) for q in range(len(data))]
        asked = [Candidates(one.query, [f"{one.query}/{item}" for item in one.items], one.features) for one in asked]
        learners = {spec: make(parse_learner(spec)[0], **parse_learner(spec)[1]) for spec in TIMED}
        spent = {spec: np.zeros((turns + 1, 2)) for spec in TIMED}  # the first turn compiles
        for turn in range(turns + 1):
            for spec, learner in learners.items():
                for t in range(turn * TURN, (turn + 1) * TURN):
                    q, chance = int(rng.for_event("world", t).integers(len(asked))), rng.for_event("rank", t)
                    begun = thread_time()
                    shown = learner.rank(asked[q], K, chance)
                    spent[spec][turn, 0] += thread_time() - begun
                    feedback = user.react(data.grades_of(q)[shown.order], rng.for_event("user", t))
                    chance = rng.for_event("learn", t)
                    begun = thread_time()
                    learner.learn(shown, feedback, chance)
                    spent[spec][turn, 1] += thread_time() - begun
        for spec in TIMED:
            rank, learn = 1e6 * np.median(spent[spec][1:], axis=0) / TURN
            rows[spec][f"{shape}: rank, learn µs"] = f"{rank:.0f}, {learn:.0f}"
            ratio = np.median(spent[spec][1:].sum(1) / spent[TIMED[0]][1:].sum(1))
            rows[spec][f"{shape}: relative"] = f"{ratio:.2f}"
    return list(rows.values())


def evaluation() -> list[dict[str, Any]]:
    """One held-out evaluation of 2,000 queries with 120 documents, best of five."""
    split = open_split("synthetic:mslr?queries=2000&docs=120&sizes=fixed&vali=1&test=1")
    learner, probe = make("pdgd"), held_out(split.train)
    learner.load({"theta_": np.random.default_rng(0).normal(size=136), "rate_": np.array([0.1])})
    return [{"what": "held-out NDCG@10, 2,000 x 120", "ms": 1e3 * _best(lambda: probe(learner), 5)}]


def reader() -> list[dict[str, Any]]:
    """The LETOR reader beside scikit-learn's on the same file, best of three; a second load maps the cache."""
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder, "data.txt"), os.environ.get("RANKLOOP_CACHE")
        write_letor(open_split(DATA).train, path)
        size, ours = path.stat().st_size / 1e6, []
        try:
            for attempt in range(4):  # the first compiles
                os.environ["RANKLOOP_CACHE"] = str(Path(folder, f"cache-{attempt}"))
                start = perf_counter()
                read_letor(path, normalize="none")
                ours.append(perf_counter() - start)
            again = _best(lambda: read_letor(path, normalize="none"), 3)
        finally:
            os.environ.pop("RANKLOOP_CACHE")
            os.environ.update({"RANKLOOP_CACHE": before} if before else {})
        theirs = _best(lambda: load_svmlight_file(str(path))[0].toarray(), 3)
    first = min(ours[1:])
    return [
        {"MB": size, "MB/s": size / first, "scikit-learn MB/s": size / theirs, "second load ms": 1e3 * again},
    ]


def _best(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        start = perf_counter()
        work()
        found.append(perf_counter() - start)
    return min(found)


def main() -> None:
    """Print the tables."""
    tables = {"rounds": rounds, "requests": requests, "evaluation": evaluation, "reader": reader}
    parser = ArgumentParser("python -m benchmarks speed", description=__doc__)
    parser.add_argument("tables", nargs="*", choices=[*tables, []], default=list(tables))
    print(f"Machine: {machine()}\n")
    for name in parser.parse_args().tables:
        print(f"{tables[name].__doc__}\n")
        print_rows(tables[name]())
        print()


if __name__ == "__main__":
    main()
