"""Head and tail queries with users of click models that were fitted to a real log.

There are 10,000 queries, each a copy of one of the ten queries of the models, with features and noise of its own;
features explain half of what attracts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from benchmarks.headtail import Kept, Spread, parser, rows_of, spread
from rankloop.clicks.bandit_models import open_models
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.click_models import ClickParameters, react
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.runs.provenance import provenance
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.arrivals import Arrivals
from rankloop.lab.worlds.world import Round

MODELS = Path(__file__).resolve().parents[2] / "shared" / "data" / "yandex-click-models" / "queries10.json"
COPIES, WIDTH, EXPLAINED, COSINE, TOP = 10_000, 5, 0.5, 0.6, 5
OFTEN = 1000  # times that a query came, by when a learner ought to have its best list
DISCOUNT = 1.0 / np.log2(2.0 + np.arange(TOP))


@dataclass
class Copies:
    """Queries that are copies of a few, with features that explain a part of what attracts; and who brings them."""

    users: Mapping[str, ClickParameters]
    seed: int
    rounds: int
    k: int = 10
    _made: dict[int, Round] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        rng = Rng(self.seed).for_event("copies", 0)
        self.names = list(self.users)
        self.copied = rng.integers(len(self.names), size=COPIES)
        odds = [np.log(user.attraction / (1.0 - user.attraction)) for user in self.users.values()]
        centred = [one - one.mean() for one in odds]
        self.latent = [one / np.concatenate(centred).std() for one in centred]
        self.best, aside = np.linalg.qr(rng.normal(size=(WIDTH, 2)))[0].T
        self.production = COSINE * self.best + np.sqrt(1.0 - COSINE**2) * aside
        arrivals = Arrivals(COPIES, frequency="zipf:1", seed=self.seed)
        self.come = arrivals.many(0, rng.random(self.rounds)).tolist()

    def at(self, t: int, rng: np.random.Generator) -> Round:  # noqa: ARG002
        """The query whose turn it is."""
        q = self.come[t]
        if q not in self._made:
            self._made[q] = self._round(q)
        return self._made[q]

    def grades(self, dataset: Dataset, t: int) -> Array:
        """There is no data set to grade."""
        raise NotImplementedError

    def _round(self, q: int) -> Round:
        """Documents in the production order; what attracts stands where grades do."""
        z = self.latent[self.copied[q]]
        rows = self.features(z, Rng(self.seed).for_event("features", q))
        order = np.argsort(-(rows @ self.production), kind="stable")
        attraction = self.users[self.names[self.copied[q]]].attraction
        ideal = _gain(np.sort(attraction)[::-1])
        return Round(Candidates(f"{q}", order, rows[order]), attraction[order], ideal)

    def features(self, z: Array, rng: np.random.Generator) -> Array:
        """(n, WIDTH) of documents that attract by `z`."""
        told = np.sqrt(EXPLAINED) * z + np.sqrt(1.0 - EXPLAINED) * rng.normal(size=z.size)
        rest = rng.normal(size=(z.size, WIDTH))
        return np.outer(told, self.best) + rest - np.outer(rest @ self.best, self.best)

    def react(self, grades: Array, rng: np.random.Generator) -> Feedback:
        """Not from what attracts alone."""
        raise NotImplementedError

    def react_to(self, query: str, items: Array, rng: np.random.Generator) -> Feedback:
        """The clicks of the copied query's user."""
        clicks = np.empty(len(items))
        react(self.users[self.names[self.copied[int(query)]]], items, rng.random((2, len(items))), clicks)
        return Feedback("clicks", clicks)


@dataclass(frozen=True)
class Served:
    """A run as data."""

    learner: str
    params: Mapping[str, Any]
    models: str
    model: str
    seed: int
    marks: tuple[int, ...]

    @property
    def key(self) -> str:
        """What it is known by, its code too."""
        return f"{self.learner} {dict(self.params)} {self.model} {self.seed} {self.marks} {provenance(self).code}"

    def run(self) -> Spread:
        """NDCG by kind of query and mark, and clicks a list."""
        rounds = self.marks[-1]
        world = Copies(open_models(self.models)[self.model], self.seed, rounds)
        query, ndcg, clicks = np.empty(rounds, np.int64), np.empty(rounds), 0.0
        for step in simulate(make(self.learner, **self.params), world, world, rounds, self.seed):
            query[step.t] = int(step.impression.query)
            ndcg[step.t] = _gain(step.round.grades[step.impression.order]) / step.round.ideal
            clicks += float(step.feedback.values.sum())
        often = np.bincount(query, minlength=COPIES)[query] >= OFTEN
        late = ndcg[often & (np.arange(rounds) >= 0.9 * rounds)]
        return {
            **spread(query, ndcg, self.marks),
            "late": float(late.mean()) if late.size else np.nan,
            "clicks": clicks / rounds,
        }


def _gain(attraction: Array) -> float:
    """DCG@5 with attraction as gain."""
    top = attraction[:TOP]
    return float(top @ DISCOUNT[: top.size])


def main() -> None:
    """Run what is not there yet, print the tables."""
    options = parser(__doc__, "results/yandex_hybrid.jsonl")
    options.add_argument("--models", default=str(MODELS))
    options.add_argument("--users", nargs="+", default=["CM", "PBM", "DCM", "DBN", "CCM", "UBM"])
    given = options.parse_args()
    marks, kept = tuple(sorted(given.marks)), Kept(given.out)
    runs: dict[str, dict[str, list[Spread]]] = {user: {spec: [] for spec in given.learners} for user in given.users}
    for seed in given.seeds:  # seed by seed, so that an interrupted benchmark has something of all
        for user in given.users:
            for spec in given.learners:
                trial = Served(*parse_learner(spec), given.models, user, seed, marks)
                runs[user][spec].append(kept.of(trial.key, trial.run, f"{user}, seed {seed}: {spec}"))
    rows: list[dict[str, Any]] = []
    for user, found in runs.items():
        rows += rows_of(user, given.learners, found, marks)
        for row in rows[-len(given.learners) :]:
            for name in ("late", "clicks"):
                row[name] = f"{np.mean([one[name] for one in found[row['learner']]]):.3f}"
    print(f"Machine: {machine()}; {COPIES:,} copies of ten queries, seeds {', '.join(map(str, given.seeds))}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
