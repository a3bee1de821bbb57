"""Simulated live traffic: how often the guardrail stops good, cold and broken rankers; experiments."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks.common import machine, print_rows
from benchmarks.shop import TWIN, Deployment, Negated, Sorted, shop_spec, taught
from rankloop.core.learner import Learner
from rankloop.learners.pairwise.pairrank import PairRank
from rankloop.service.ranking.model import PublishedModel
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.storage.experiments import Tally, guardrail_request
from rankloop.service.storage.rankers import Ranker
from rankloop.service.training import evidence
from rankloop.wire.experiments import ExperimentRequest
from rankloop.wire.rankers import Guardrail

SHADOW = 1000  # requests in shadow before a good ranker goes live
PILOT = 200  # lists after which a forecast is taken
ALPHA, DEFAULT = ExperimentRequest().alpha, ExperimentRequest().effect
PAIRS = ("learned / twin of the shop", "learned / learned a little")
KINDS = ("sabotaged", "good", "twin", "cold", "breaks")


class Log:
    """What is done, on disk: a benchmark that was stopped goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, Sequence[Any]] = {}
        if path is not None and path.exists():
            self.found = dict(json.loads(line) for line in path.read_text("utf-8").splitlines())

    def once(self, key: str, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What was made before under this key, or is now."""
        if key not in self.found:
            self.found[key] = make()
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, self.found[key]]) + "\n")
        return self.found[key]


# -- guardrail -----------------------------------------------------------------------------------------------------


class Life(NamedTuple):
    """What became of a deployment."""

    demoted: int | None  # after how many requests; below 1: before it was broken
    lists: int
    preference: float


def live(kind: str, exposure: str, guardrail: Guardrail, requests: int, seed: int) -> Life:
    """Deploy a ranker, and see whether its guardrail takes it down."""
    learner: Any = {"good": PairRank, "cold": PairRank, "sabotaged": Negated}.get(kind, Negated)()
    if kind == "twin":
        learner = Sorted(feature=TWIN)
    elif kind != "cold":
        learner.load(taught(SHADOW, seed))
    spec = shop_spec(exposure, displacement=3, guardrail=guardrail)
    deployment = Deployment(learner, spec, 1_000_000 + seed, learns=kind != "twin")
    terms = guardrail_request(deployment.row)
    assert terms is not None
    deployment.try_out("guardrail", terms)
    good = requests if kind == "breaks" else 0
    for t in range(good + requests):
        if kind == "breaks":
            learner.negated = t >= good
        if deployment.request() and deployment.tally.verdict == "worse":
            return Life(t + 1 - good, deployment.tally.lists, evidence.watched(deployment.tally, 0.05).mean)
    return Life(None, deployment.tally.lists, evidence.watched(deployment.tally, 0.05).mean)


def guardrails(asked: Any, log: Log) -> list[dict[str, Any]]:
    """A row a kind of ranker and exposure."""
    rows: list[dict[str, Any]] = []
    guardrail = Guardrail(share=asked.share, alpha=asked.alpha)
    for kind in asked.kinds:
        for exposure in asked.exposures:
            lives = []
            for seed in range(asked.deployments):
                key = f"{kind} {exposure} {asked.share} {asked.alpha} {asked.requests} {seed}"
                made = partial(live, kind, exposure, guardrail, asked.requests, seed)
                lives.append(Life(*log.once(key, made)))
                _progress(f"{kind}, {exposure}", seed + 1, asked.deployments)
            after = [life.demoted for life in lives if life.demoted is not None]
            rows.append(
                {
                    "ranker": kind,
                    "exposure": exposure,
                    "preference": f"{np.mean([life.preference for life in lives]):+.3f}",
                    "demoted": f"{len(after)} of {len(lives)}",
                    "after requests: median": int(np.median(after)) if after else "",
                    "90 %": int(np.quantile(after, 0.9)) if after else "",
                    "all": max(after) if after else "",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


# -- experiments ---------------------------------------------------------------------------------------------------


def _pair(name: str) -> tuple[Learner, Learner]:
    """The better ranker, and its rival."""
    learned, beginner = PairRank(alpha=0.0), PairRank(alpha=0.0)
    learned.load(taught(1000, 0))
    beginner.load(taught(30, 0))
    return learned, Sorted(feature=TWIN) if name == PAIRS[0] else beginner


class Comparison(NamedTuple):
    """What an experiment came to."""

    verdict: str
    lists: int  # up to the verdict
    interval: Sequence[float]
    mean: float
    second: float  # moment: the share of lists that decide
    pilot: Any  # the tally after the first 200 lists; None if the verdict had fallen by then

    def predicted(self, effect: float) -> int:
        """The size that the forecast of the status gave after 200 lists."""
        if self.pilot is None:
            return PILOT
        more = evidence.forecast(msgspec.convert(self.pilot, Tally), ALPHA, effect).needed
        assert more is not None
        return PILOT + more

    def at(self, lists: int) -> str:
        """The verdict after so many lists."""
        return self.verdict if self.lists <= lists else "undecided"


def compare(name: str, mixing: str, seed: int, lists: int | None = None) -> Comparison:
    """An experiment of so many lists; or up to the verdict, which stays, but no further than the default forecast."""
    better, rival = _pair(name)
    deployment = Deployment(better, shop_spec("full"), 2_000_000 + seed, learns=False)
    other = Ranker("rival", deployment.spec, 0.0, 0, 0, 0, True, None)
    deployment.rankers["rival"] = LiveRanker(other, PublishedModel(rival, deployment.spec, 0, 0))
    deployment.rankers["rival"].compiled = True
    deployment.try_out("experiment", ExperimentRequest("rival", 1.0, mixing, "full", ALPHA))  # type: ignore[arg-type]
    tally, size, pilot = deployment.tally, lists or PILOT, None
    while tally.lists < size and (lists or tally.verdict == "undecided"):
        assert deployment.request()
        if tally.lists == PILOT and tally.verdict == "undecided":
            pilot = msgspec.to_builtins(tally)
            size = lists or PILOT + (evidence.forecast(tally, ALPHA, DEFAULT).needed or 0)
    watch = evidence.watched(tally, ALPHA)
    at = tally.lists if tally.evidence is None else tally.evidence.lists
    return Comparison(tally.verdict, at, watch.interval(), watch.mean, float(watch.sums_[2] / watch.n), pilot)


def experiments(asked: Any, log: Log) -> list[dict[str, Any]]:
    """A row a pair of rankers and way of mixing. The effect asked for is what the true preference surely has."""
    rows = []
    for name in PAIRS:
        for mixing in asked.mixing:
            long = partial(compare, name, mixing, 999_999, asked.truth)
            truth = Comparison(*log.once(f"{name} {mixing} {asked.truth}", long))
            effect = max(truth.interval[0], 0.0) / truth.second
            done = []
            for seed in range(asked.deployments):
                done.append(Comparison(*log.once(f"{name} {mixing} {seed}", partial(compare, name, mixing, seed))))
                _progress(f"{name}, {mixing}", seed + 1, asked.deployments)
            row: dict[str, Any] = {"rankers": name, "mixing": mixing}
            row["preference"] = f"{truth.mean:+.3f} ({truth.interval[0]:+.3f} to {truth.interval[1]:+.3f})"
            for what, wanted in (("surely", effect), ("default", DEFAULT)):
                sizes = [one.predicted(wanted) for one in done]
                verdicts = Counter(one.at(size) for one, size in zip(done, sizes, strict=True))
                row[f"effect: {what}"] = f"{wanted:.2f}"
                row[f"{what}: lists predicted"] = int(np.median([size for size in sizes if size > PILOT] or sizes))
                row[f"{what}: better wins"] = f"{verdicts['better']} of {len(done)}, {verdicts['worse']} wrong"
            row["decided after: median"] = int(np.median([one.lists for one in done]))
            rows.append(row)
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _progress(what: str, done: int, of: int) -> None:
    if done == of or sys.stderr.isatty():
        print(f"\r{what}: {done} of {of}" + " " * 10, end="\n" if done == of else "", file=sys.stderr, flush=True)


async def tables(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks guardrail", description=__doc__)
    parser.add_argument("what", nargs="*", default=["guardrail", "experiments"], help="guardrail, experiments, or both")
    parser.add_argument("--deployments", type=int, default=200)
    parser.add_argument("--requests", type=int, default=3_000, help="that a deployment lives")
    parser.add_argument("--share", type=float, default=Guardrail().share)
    parser.add_argument("--alpha", type=float, default=Guardrail().alpha)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--exposures", nargs="+", default=["full", "bounded"])
    parser.add_argument("--mixing", nargs="+", default=["team-draft", "probabilistic"])
    parser.add_argument("--truth", type=int, default=20_000, help="lists that tell which ranker is better")
    parser.add_argument("--log", type=Path, help="keep what is done in this file, and go on from it")
    asked = parser.parse_args(arguments)
    log = Log(asked.log)
    print(f"Machine: {machine()}; {asked.deployments} deployments each\n")
    if "guardrail" in asked.what:
        print(f"## guardrail: share {asked.share:g}, alpha {asked.alpha:g}, {asked.requests:,} requests\n")
        print_rows(guardrails(asked, log))
    if "experiments" in asked.what:
        print("\n## experiments\n")
        print_rows(experiments(asked, log))


def main() -> None:
    """Run."""
    asyncio.run(tables())


if __name__ == "__main__":
    main()
