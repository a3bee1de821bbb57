"""Outcomes per second that one core learns: the learner alone, a fold of the log, and the loop of a service."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import tempfile
import time
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core import codec
from rankloop.core.learner import clone
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Feedback, Impression
from rankloop.lab.datasets.sources import open_split
from rankloop.service.control.rankers import complete
from rankloop.service.ranking import model as models
from rankloop.service.settings import Settings
from rankloop.service.storage import NewEvent, NewImpression, outcomes, rankers
from rankloop.service.storage import events as stored_events
from rankloop.service.storage import impressions as stored_impressions
from rankloop.service.storage.database import Connection
from rankloop.service.training.fold import Fold
from rankloop.service.training.hang_detection import CrashBreadcrumb
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process
from rankloop.wire.calls import FeedbackEvent
from rankloop.wire.rankers import Spec

SHOWN, DOCUMENTS, QUERIES, PASSES = 10, 30, 100, 3
LEARNERS = ("pairrank", "pairrank?confidence=diagonal", "hybrid")
FEATURES = (136, 700)
BEFORE, LISTS = 2048, 1024  # learned before the clock runs, and while it does
USERS = ("navigational", "informational")


class Logged(NamedTuple):
    """One list and what the user did with it."""

    shown: Impression
    told: Feedback


def logged(features: int, user: str, lists: int, seed: int = 0) -> list[Logged]:
    """Lists that a diagonal `pairrank` drew, which is quick at any width; all that are alike learn from them."""
    data = open_split(
        f"synthetic:mslr?queries={QUERIES}&sizes=fixed&docs={DOCUMENTS}&features={features}&vali=1&test=1"
    ).train
    visitor, streams = open_user(user, data.highest_grade), Rng(seed)
    learner, found = _made("pairrank?confidence=diagonal"), []
    known = [data.candidates(q) for q in range(len(data))]
    for t in range(lists):
        q = int(streams.for_event("world", t).integers(len(known)))
        shown = learner.rank(known[q], SHOWN, streams.for_event("rank", t))
        told = visitor.react(data.grades_of(q)[shown.order], streams.for_event("user", t))
        learner.learn(shown, told, streams.for_event("learn", t))
        found.append(Logged(shown, told))
    return found


def _made(spec: str) -> Any:
    name, parameters = parse_learner(spec)
    return make(name, **parameters)


def in_library(spec: str, lists: list[Logged]) -> float:
    """Microseconds an outcome of `learn`."""
    first, streams = _made(spec), Rng(0)
    for t, (shown, told) in enumerate(lists[:BEFORE]):
        first.learn(shown, told, streams.for_event("learn", t))
    best = float("inf")
    for _ in range(PASSES):
        learner = clone(first)
        learner.load(first.state())
        spent = 0.0
        for t in range(BEFORE, len(lists)):
            shown, told = lists[t]
            chance = streams.for_event("learn", t)
            began = time.thread_time()
            learner.learn(shown, told, chance)
            spent += time.thread_time() - began
        best = min(best, spent)
    return 1e6 * best / (len(lists) - BEFORE)


def _row(spec: str, features: int) -> rankers.Ranker:
    name, parameters = parse_learner(spec)
    named = [f"f{j}" for j in range(features)]
    whole = complete(Spec(learner=name, parameters=parameters, features=named, k=SHOWN, exposure="full"))
    return rankers.Ranker("shop", whole, 0.0, 0, 0, 0, True, None)


def in_fold(spec: str, lists: list[Logged], features: int) -> float:
    """Microseconds an outcome of `Fold.learn`, from the bytes of the log."""
    row = _row(spec, features)
    steps = [
        outcomes.Outcome(t, True, 0, codec.dump_impression(shown), told.values.tolist())
        for t, (shown, told) in enumerate(lists)
    ]
    best = float("inf")
    first = Fold(row, models.make_learner(row.spec), 0)
    for step in steps[:BEFORE]:
        first.learn(step)
    kept = first.learner.state()
    for _ in range(PASSES):
        fold = Fold(row, models.make_learner(row.spec), BEFORE)
        fold.learner.load(kept)
        began = time.thread_time()
        for step in steps[BEFORE:]:
            fold.learn(step)
        best = min(best, time.thread_time() - began)
    return 1e6 * best / (len(lists) - BEFORE)


def in_service(spec: str, lists: list[Logged], features: int) -> float:
    """Microseconds an outcome of the loop that learns: the store is read, counts are kept, states published."""
    row = _row(spec, features)
    with tempfile.TemporaryDirectory(prefix="rankloop-learn-") as folder:
        process = Process(Settings(store=str(Path(folder, "shop.db"))))
        process.open()
        try:
            best = float("inf")
            process.writer.do(lambda c: rankers.add_ranker(c, "shop", row.spec, models.fresh_state(row.spec), 0.0))
            learning = Learning(process, lambda _: True)
            learning.hang_detector.breadcrumb = CrashBreadcrumb()
            learning.mine = {"shop"}
            learning.sync()
            fold = learning.folds["shop"]
            fold.held = fold.compiled = True
            _append(process, row.spec.learner, lists, 0, BEFORE)
            due = BEFORE
            for turn in range(PASSES + 1):  # learning goes on: the log comes again, as new lists
                began = time.thread_time()
                while fold.learned < due:
                    learning.catch_up()
                if turn:
                    best = min(best, time.thread_time() - began)
                _append(process, row.spec.learner, lists, BEFORE, len(lists), f"{turn}-")
                due += len(lists) - BEFORE
        finally:
            process.close()
    return 1e6 * best / (len(lists) - BEFORE)


def _append(process: Process, learner: str, lists: list[Logged], first: int, last: int, mark: str = "") -> None:
    for at in range(first, last, 500):
        impressions, events = [], []
        for t in range(at, min(at + 500, last)):
            shown, told = lists[t]
            items, name = shown.items.tolist(), f"{mark}{t}"
            body, seen = codec.dump_impression(shown), msgspec.json.encode(items)
            impressions.append(
                NewImpression(f"i{name}", "shop", 0, t, float(t), 1e12, None, None, b"", True, body, b"{}", seen)
            )
            clicked = [item for item, value in zip(items, told.values.tolist(), strict=False) if value > 0]
            events.append(NewEvent(FeedbackEvent(f"e{name}", f"i{name}", clicked, final=True), b"{}"))
        process.writer.do(partial(_write, impressions, events, learner))


def _write(impressions: list[NewImpression], events: list[NewEvent], learner: str, connection: Connection) -> None:
    stored_impressions.add_impressions(connection, impressions)
    stored_events.add_events(connection, events, 0.0, {learner: "clicks"})


def main() -> None:
    """Print the table."""
    parser = ArgumentParser("python -m benchmarks learn_rate", description=__doc__)
    parser.add_argument("--features", type=int, nargs="*", default=list(FEATURES))
    parser.add_argument("--users", nargs="*", default=list(USERS))
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS))
    parser.add_argument("--library", action="store_true", help="the learner alone")
    options = parser.parse_args()
    print(f"Machine: {machine()}\n")
    rows = []
    for features in options.features:
        for user in options.users:
            lists = logged(features, user, BEFORE + LISTS)
            gc.collect()
            gc.freeze()  # as the process that learns does: what the log takes here is not there
            for spec in options.learners:
                found = {"library": in_library(spec, lists)}
                if not options.library:
                    found |= {
                        "fold": in_fold(spec, lists, features),
                        "service": in_service(spec, lists, features),
                    }
                rows.append(
                    {"features": features, "users": user, "learner": spec}
                    | {f"{where}, µs": round(cost, 1) for where, cost in found.items()}
                    | {f"{where}, outcomes/s": round(1e6 / cost) for where, cost in found.items()}
                )
    print_rows(rows)


if __name__ == "__main__":
    main()
