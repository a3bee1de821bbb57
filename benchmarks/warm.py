"""What a log teaches before the first request: NDCG of learners with and without a warm start."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import User, open_user
from rankloop.core.learner import Learner
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.evaluation import statistics
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.world import World, open_world
from rankloop.logs import CandidateBuilder, LogReader, warm_start_file

DATA = "synthetic:mslr?features=20&queries=1000&vali=10&test=300"
WORLD = "stationary?base=model:10"
LEARNERS = ["pairrank?init=base", "hybrid?init=base"]
USERS = ["navigational", "informational"]
LATER = 10**9  # rounds of the log have other random numbers than those of serving


def write_log(path: Path, world: World, user: User, lists: int, seed: int) -> float:
    """Lists of the production order with what users did; the mean NDCG of them."""
    streams, k, found = Rng(seed), world.k, []
    with path.open("w") as file:
        for t in range(LATER, LATER + lists):
            query = world.at(t, streams.for_event("world", t))
            n = min(k, query.candidates.n)
            rows = query.candidates.features
            assert rows is not None
            clicks = user.react(query.grades[:n], streams.for_event("user", t)).values
            one = {
                "query": query.candidates.query,
                "items": query.candidates.items[:n].tolist(),
                "features": rows[:n].round(6).tolist(),
                "clicks": [*clicks.astype(int).tolist(), *[0] * (n - len(clicks))],
            }
            file.write(json.dumps(one) + "\n")
            if query.ideal > 0:
                found.append(dcg(query.grades[:n], k) / query.ideal)
    return float(np.mean(found))


def serve(learner: Learner, world: World, user: User, rounds: int, seed: int) -> float:
    """Mean NDCG of the first lists that a learner shows."""
    found = [
        dcg(step.round.grades[step.impression.order], world.k) / step.round.ideal
        for step in simulate(learner, world, user, rounds, seed)
        if step.round.ideal > 0
    ]
    return float(np.mean(found))


def learner_of(spec: str) -> Learner:
    """A fresh one."""
    name, parameters = parse_learner(spec)
    return make(name, **parameters)


def into_store(log: Path, folder: Path, spec: str) -> dict[str, object]:
    """The same log into a new SQLite store, learned there; and replayed, which must give the same bits."""
    from rankloop.service.control import rankers, warm_start
    from rankloop.service.offline.replay import open_store, rebuild
    from rankloop.service.serving.engine import Engine
    from rankloop.service.settings import Settings
    from rankloop.wire.rankers import Spec

    name, parameters = parse_learner(spec)
    features = [f"f{j}" for j in range(20)]
    engine = Engine(Settings(store=str(folder / "store.db")))
    engine.start()
    try:
        rankers.put(engine, "shop", Spec(learner=name, parameters=parameters, features=features))
        began = time.process_time()
        found = warm_start.warm(engine, "shop", LogReader([log]))
        spent = time.process_time() - began
        lag = rankers.status(engine, "shop").unlearned_impressions
    finally:
        engine.stop()
    again = time.perf_counter()
    with open_store(str(folder / "store.db")) as database:
        equal = rebuild(database, "shop").equal
    size = sum(path.stat().st_size for path in folder.glob("store.db*")) / 1e6
    row: dict[str, object] = {"ranker": spec, "lists": found.lists, "seconds": found.seconds, "of CPU": spent}
    return {
        **row,
        "behind": lag,
        "store MB": round(size),
        "replay seconds": time.perf_counter() - again,
        "bits equal": equal,
    }


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--users", nargs="+", default=USERS)
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    split = open_split(asked.data)
    rows: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    stored: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log.jsonl"
        for name, seed in ((name, seed) for name in asked.users for seed in asked.seeds):
            world = open_world(WORLD, split.train, seed=seed)
            test: Dataset = world.in_base_order(split.test)  # type: ignore[attr-defined]
            probe, user = held_out(test), open_user(name, split.train.highest_grade)
            base = rows[name, "production"]
            base["first lists"].append(write_log(log, world, user, asked.lists, seed))
            base["held-out"] += probe(make("base")).values()
            for spec in asked.learners:
                for start in ("cold", "warm"):
                    learner, found = learner_of(spec), rows[name, f"{spec}, {start}"]
                    if start == "warm":
                        began = time.process_time()
                        report = warm_start_file(
                            learner, Path(place) / "out", LogReader([log]), features=CandidateBuilder(scale=False)
                        )
                        assert report.lists == asked.lists
                        found["warm seconds"].append(report.seconds)
                        found["of CPU"].append(time.process_time() - began)
                    found["held-out"] += probe(learner).values()
                    found["first lists"].append(serve(learner, world, user, asked.rounds, seed))
                    found["held-out after"] += probe(learner).values()
                    print(f"{name}, seed {seed}: {spec}, {start}", file=sys.stderr, flush=True)
            if asked.store and not stored:
                stored.append(into_store(log, Path(place), asked.learners[0]))
    seeds = ", ".join(map(str, asked.seeds))
    print(f"Machine: {machine()}; {asked.lists:,} logged lists, first {asked.rounds:,} shown, seeds {seeds}\n")
    columns = ["warm seconds", "of CPU", "held-out", "first lists", "held-out after"]
    print_rows(
        [
            {"user": user, "learner": spec, **{column: _cell(found[column], column) for column in columns}}
            for (user, spec), found in rows.items()
        ]
    )
    if stored:
        print()
        print_rows(stored)


def _cell(values: list[float], column: str) -> str:
    """Mean ± standard error."""
    if not values:
        return ""
    found, digits = statistics.mean(values), 4 if "held" in column or "first" in column else 0
    return f"{found.value:,.{digits}f}" + (f" ± {found.error:.{digits}f}" if found.n > 1 else "")


if __name__ == "__main__":
    main()
