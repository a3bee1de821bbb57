"""Replay and off-policy estimates: speed, coverage of 95 % intervals, and the cost of writing propensities."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import tempfile
import time
import timeit
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.core import codec, registry
from rankloop.core.learner import DRAWN
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.evaluation import statistics
from rankloop.evaluation.off_policy import IntervalEstimate
from rankloop.service.control.rankers import complete
from rankloop.service.offline.off_policy_estimates import PolicyEstimates, SessionGathering, estimate_policies
from rankloop.service.offline.policy_comparison import (
    LOGGED,
    Comparison,
    ComparisonSettings,
    ImpressionTable,
    plan_comparison,
    run_comparison,
)
from rankloop.service.offline.replay import rebuild
from rankloop.service.ranking import model as models
from rankloop.service.storage import NewEvent, NewImpression, open_database, outcomes, rankers, schema, snapshots
from rankloop.service.storage import events as stored_events
from rankloop.service.storage import impressions as stored_impressions
from rankloop.service.storage.database import Database
from rankloop.service.training.fold import Fold
from rankloop.wire.calls import FeedbackEvent, RankAnswer, RankedItem
from rankloop.wire.rankers import Spec

BATCH = 500  # lists written at a time
STEEPNESS = 0.8  # examination of rank r is r^-.8: 1, .57, .42 …


class Shop(NamedTuple):
    """Queries with items that users like by linear reasons, in a base order that knows half of them."""

    features: Array  # (Q, n, d)
    attraction: Array  # (Q, n) probability of a click where it is looked at

    @classmethod
    def of(cls, rng: np.random.Generator, queries: int, n: int, d: int) -> Shop:
        """A random one."""
        features = rng.random((queries, n, d))
        liking = features @ rng.normal(size=d)
        liking = (liking - liking.mean()) / liking.std()
        base = np.argsort(-liking - rng.normal(size=liking.shape), axis=1)
        attraction = 1.0 / (1.0 + np.exp(0.5 - 1.2 * liking))
        return cls(np.take_along_axis(features, base[:, :, None], 1), np.take_along_axis(attraction, base, 1))

    def ask(self, q: int) -> Candidates:
        """The candidates of a query."""
        return Candidates(f"q{q}", np.arange(self.features.shape[1]), self.features[q])


def examination(k: int) -> Array:
    """(k,) how often users look at each rank."""
    return np.arange(1.0, k + 1.0) ** -STEEPNESS


# -- speed ---------------------------------------------------------------------------------------------------------


def write_store(url: str, lists: int, n: int, d: int, k: int, learner: str) -> Database:
    """A store as a service leaves it behind: impressions, outcomes, three versions, a snapshot."""
    database = open_database(url)
    schema.migrate(database)
    spec = complete(Spec(learner=learner, features=[f"f{j}" for j in range(d)], k=k, exposure="full"))
    connection = database.connect()
    with connection.transaction():
        rankers.add_ranker(connection, "shop", spec, models.fresh_state(spec), time.time())
    row = database.read(lambda c: rankers.get_ranker(c, "shop"))
    assert row is not None
    fold = Fold(row, models.make_learner(spec), 0)
    model = models.PublishedModel(fold.learner, spec, row.generation, 0)
    rng, theta = np.random.default_rng(0), examination(k)
    shop = Shop.of(rng, 200, n, d)
    kinds = {learner: "clicks"}
    for start in range(0, lists, BATCH):
        impressions, events = [], []
        for t in range(start, min(start + BATCH, lists)):
            q = int(rng.integers(200))
            ranked = model.rank(shop.ask(q), k, t, msgspec.structs.replace(spec, timeout_ms=60_000.0), None)
            order, items = ranked.choice.impression.order, ranked.choice.impression.items.tolist()
            told = [
                RankedItem(item, i, s) for i, (item, s) in enumerate(zip(items, ranked.scores or [], strict=True), 1)
            ]
            answer = msgspec.json.encode(RankAnswer(f"i{t}", "shop", f"live@{fold.learned}", "full", False, told))
            shown = msgspec.json.encode(items)
            impressions.append(
                NewImpression(
                    f"i{t}", "shop", row.epoch, t, float(t), 1e12, None, None, b"", True, ranked.body, answer, shown
                )
            )
            hits = np.flatnonzero(rng.random(k) < theta * shop.attraction[q][order])
            event = FeedbackEvent(f"e{t}", f"i{t}", [items[slot] for slot in hits], final=True)
            events.append(NewEvent(event, b"{}"))
        with connection.transaction():
            stored_impressions.add_impressions(connection, impressions)
            stored_events.add_events(connection, events, float(start), kinds)
        for outcome in database.read(lambda c: outcomes.outcomes_from(c, "shop", fold.learned, BATCH)):
            fold.learn(outcome)
        if any(start < lists * part <= start + BATCH for part in (0.25, 0.5, 0.75)):
            learned, state = fold.state()
            with connection.transaction():
                snapshots.save_snapshot(connection, "shop", row.generation, learned, state, time.time())
                snapshots.keep_version(connection, "shop", "", time.time())
    learned, state = fold.state()
    with connection.transaction():
        snapshots.save_snapshot(connection, "shop", row.generation, learned, state, time.time())
    connection.close()
    return database


def speed(lists: int) -> list[dict[str, Any]]:
    """Seconds to rebuild a log and to try a learner on it."""
    rows = []
    for n, d, learner in ((100, 136, "pairrank"), (20, 20, "pairrank"), (100, 136, "pdgd")):
        with tempfile.TemporaryDirectory(prefix="rankloop-replay-") as folder:
            path = Path(folder, "shop.db")
            database = write_store(str(path), lists, n, d, 10, learner)
            rebuild(database, "shop", at=0)  # kernels are loaded, the file is not read yet
            began, cpu = time.perf_counter(), time.process_time()
            found = rebuild(database, "shop")
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            assert found.equal
            assert len(found.compared) == 4
            began = time.perf_counter()
            tries = run_comparison(plan_comparison(database, "shop", ["pdgd"]), pages := SessionGathering())
            walked = time.perf_counter() - began
            began = time.perf_counter()
            estimate_policies(tries, lambda: pages)
            rows.append(
                {
                    "log of": f"{learner}, {n} x {d}, 10 shown",
                    "lists": lists,
                    "MB": path.stat().st_size / 1e6,
                    "rebuild s": seconds,
                    "of it CPU": cpu,
                    "lists/s": lists / seconds,
                    "bits": "equal",
                    "try pdgd s": walked,
                    "estimates s": time.perf_counter() - began,
                }
            )
    return rows


# -- coverage ------------------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A kind of log."""

    logged: str
    lists: int
    n: int
    k: int
    leaves: bool = False  # users leave after a click, as the dependent click model has it


# A kind of log, and what is asked of it.
SETTINGS: dict[Setting, dict[str, dict[str, Any]]] = {
    Setting("pairrank", 1000, 15, 6): {
        "examination known": {"examination": "known"},
        "from swaps": {"examination": "swaps"},
        "by query and item": {"examination": "pairs"},
    },
    Setting("pdgd", 1000, 15, 6): {
        "examination known": {"examination": "known"},
        "from swaps": {"examination": "swaps"},
    },
    Setting("bubblerank", 1000, 15, 6): {"from swaps": {"examination": "swaps"}},
    Setting("pdgd", 40, 15, 6): {"few lists": {"examination": "known"}},
    Setting("pdgd", 1000, 4, 4): {"all candidates shown": {"examination": "known"}},
}
CHALLENGERS = ["pdgd?rate=0.3", "greedy"]


class Simulated(NamedTuple):
    """A log with its tries, and what is true of every policy."""

    tries: Comparison
    pages: SessionGathering
    truth: dict[str, float]

    def sessions(self) -> SessionGathering:
        return self.pages


def simulated(setting: Setting, seed: int) -> Simulated:
    """Let the logged learner serve users, and the challengers walk along."""
    rng, streams = np.random.default_rng([8, seed]), Rng(seed)
    shop, theta = Shop.of(rng, 30, setting.n, 6), examination(setting.k)
    name, parameters = registry.parse_learner(setting.logged)
    learner = registry.make(name, **parameters)
    tables: list[ImpressionTable] = []
    settings = ComparisonSettings(tuple(CHALLENGERS), name, seed + 1)
    tries = Comparison(settings, pages := SessionGathering(), tables.append)
    liked = []
    chain = setting.leaves
    for t in range(setting.lists):
        q = int(rng.integers(30))
        shown = learner.rank(shop.ask(q), setting.k, streams.for_event("rank", t))
        liked.append(shop.attraction[q][shown.order])
        clicks = _chain(liked[-1], rng) if chain else (rng.random(setting.k) < theta * liked[-1]).astype(np.float64)
        tries.add(t, shown, clicks)
        learner.learn(shown, Feedback.clicks(clicks), streams.for_event("learn", t))
    attraction, truth = np.array(liked), {}
    tries.flush()
    for label in tables[0].ranks:
        ranks = np.concatenate([table.ranks[label] for table in tables])
        put = np.empty_like(attraction)  # attraction by rank of the policy's list
        np.put_along_axis(put, ranks, attraction, 1)
        if chain:
            left = np.cumprod(np.concatenate([np.ones((len(put), 1)), 1.0 - GOES * put[:, :-1]], axis=1), axis=1)
            truth[label] = float((left * put).sum(axis=1).mean())
        else:
            truth[label] = float((theta * put).sum(axis=1).mean())
    return Simulated(tries, pages, truth)


GOES = 0.6  # the share of those users of the dependent click model who leave after a click


def _chain(attraction: Array, rng: np.random.Generator) -> Array:
    clicks = (rng.random(attraction.size) < attraction).astype(np.float64)
    leaves = np.flatnonzero((clicks > 0) & (rng.random(attraction.size) < GOES))
    if leaves.size:
        clicks[leaves[0] + 1 :] = 0.0
    return clicks


def coverage(logs: int, minutes: float) -> list[dict[str, Any]]:
    """How often intervals hold the truth, by setting and kind of estimate; all policies together.

    Stops after so many `minutes` and tells of as many logs as there are then.
    """
    seen: dict[tuple[Setting, str, str, str], list[tuple[float, ...]]] = defaultdict(list)
    over = time.monotonic() + 60.0 * minutes
    for seed in range(logs):
        for setting, questions in SETTINGS.items():
            one = simulated(setting, seed)
            for name, options in questions.items():
                given = ",".join(map(str, examination(setting.k)))
                wanted = {**options, "examination": given} if options["examination"] == "known" else options
                for policy in estimate_policies(one.tries, one.sessions, **wanted).policies:
                    for (way, method), estimate, truth in _judged(policy, one.truth):
                        if setting.leaves and way != "by list":
                            continue  # by position is not meant for such users
                        holds = estimate.low <= truth <= estimate.high
                        error = (estimate.value - truth, estimate.high - estimate.low)
                        seen[setting, name, way, method].append((seed, holds, *error, bool(estimate.warning)))
        print(f"\r{seed + 1} of {logs} logs", end="", file=sys.stderr, flush=True)
        if time.monotonic() > over:
            break
    print(file=sys.stderr)
    rows = []
    for (setting, name, way, method), told in sorted(seen.items(), key=lambda item: list(SETTINGS).index(item[0][0])):
        log = f"{setting.logged}, {setting.lists} lists of {setting.k} of {setting.n}; {name}"
        rows.append({"log": log, "estimate": f"{way}, {method}", **_summed(told)})
    trusted = [one for told in seen.values() for one in told if not one[-1]]
    return [*rows, {"log": "all", "estimate": "without a warning", **_summed(trusted)}]


def _summed(told: list[tuple[float, ...]]) -> dict[str, Any]:
    """Intervals of one log share its clicks: the error of the rate allows for that."""
    seed, holds, bias, width, warned = np.array(told, np.float64).T
    held = statistics.clustered(holds, seed)
    return {
        "intervals": holds.size,
        "hold the truth": f"{held.value:.1%} ± {held.error:.1%}",
        "bias": f"{bias.mean():+.4f}",
        "width": f"{width.mean():.3f}",
        "with a warning": f"{warned.mean():.0%}",
    }


def _judged(
    policy: PolicyEstimates, truth: dict[str, float]
) -> Iterator[tuple[tuple[str, str], IntervalEstimate, float]]:
    """Every interval of a policy, with what is true."""
    if policy.label == LOGGED:
        yield ("by position", "as logged"), policy.value, truth[LOGGED]
        return
    assert policy.difference is not None
    yield ("by position", "difference to logged"), policy.difference, truth[policy.label] - truth[LOGGED]
    for name, estimate in policy.by_position.items():
        if name != "model":
            yield ("by position", name), estimate, truth[policy.label]
    for name, estimate in policy.by_list.items():
        if name not in ("model", "weights"):
            yield ("by list", name), estimate, truth[policy.label]


# -- what propensities cost ----------------------------------------------------------------------------------------


def propensities() -> list[dict[str, Any]]:
    """Bytes of a stored list with and without them, and the time of `rank` (they cannot be left out of it)."""
    rows, rng = [], np.random.default_rng(0)
    shop = Shop.of(rng, 50, 100, 136)
    for name in ("pairrank", "pdgd", "greedy", "epsilon-greedy", "random"):
        learner = registry.make(name)
        for t in range(300):
            shown = learner.rank(shop.ask(t % 50), 10, rng)
            learner.learn(shown, Feedback.clicks(rng.random(10) < 0.2), rng)
        candidates, order = shop.ask(0), shown.order
        with_, without = (
            len(codec.dump_impression(one))
            for one in (shown, shown._replace(memo={k: v for k, v in shown.memo.items() if k not in DRAWN}))
        )
        told: Any = learner
        once, ask = (
            _time(partial(told.rank, candidates, 10, rng)),
            _time(partial(told.log_propensity, candidates, order)),
        )
        rows.append(
            {
                "learner, 10 of 100 x 136": name,
                "bytes a list": with_,
                "of which propensity": with_ - without,
                "rank µs": once,
                "log_propensity alone, µs": ask,
            }
        )
    return rows


def _time(call: Callable[[], Any]) -> float:
    """CPU microseconds, the least of several rounds."""
    return min(timeit.repeat(call, number=200, repeat=7, timer=time.process_time)) / 200 * 1e6


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks replay", description=__doc__)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--propensities", action="store_true")
    parser.add_argument("--lists", type=int, default=100_000, help="in the log of --speed")
    parser.add_argument("--logs", type=int, default=300, help="simulated for --coverage")
    parser.add_argument("--minutes", type=float, default=120.0, help="that --coverage may take")
    parser.add_argument("--quick", action="store_true", help="a tenth of both")
    options = parser.parse_args()
    every = not (options.speed or options.coverage or options.propensities)
    part = 10 if options.quick else 1
    print(f"Machine: {machine()}\n")
    if every or options.propensities:
        print_rows(propensities())
        print()
    if every or options.speed:
        print_rows(speed(options.lists // part))
        print()
    if every or options.coverage:
        print_rows(coverage(options.logs // part, options.minutes))


if __name__ == "__main__":
    main()
