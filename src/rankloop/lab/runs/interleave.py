"""Compare rankers by interleaving with simulated users, and by the grades of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.clicks.users import Grader, User, open_user, reaction
from rankloop.core import registry
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.core.presets import PUBLISHED
from rankloop.core.registry import LEARNERS
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates
from rankloop.evaluation import interleaving, statistics
from rankloop.evaluation.interleaving import METHODS, Method, preferences
from rankloop.evaluation.metrics import mean_ratio
from rankloop.kernels.interleaving import rankings as ranked
from rankloop.kernels.metrics import dcg, ragged_ideal_dcg
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.worlds.world import Stationary

Progress = Callable[[str, int, int], None]  # called with what is being done, how much is done, and of how much
Verdict = Literal["better", "worse", "undecided"]


# -- rankers -------------------------------------------------------------------------------------------------------


class Ranker(NamedTuple):
    """A name and a function from candidates to all their positions, best first; (n,) `ties` orders equal scores."""

    label: str
    rank: Callable[[Candidates, Array], Array]


def check_ranker(spec: str) -> None:
    """Refuse a spec that names no ranker, without opening anything."""
    if spec.startswith("feature:"):
        _feature_number(spec)
    elif registry.is_learner(spec.partition("?")[0]):
        name, parameters = registry.parse_learner(spec)
        registry.make(name, **parameters)
    elif not Path(spec).is_file():
        close = get_close_matches(spec.partition("?")[0], [*LEARNERS, *PUBLISHED], 1)
        raise UnknownName(
            f"no ranker is called {spec!r}; {f'did you mean {close[0]!r}? ' if close else ''}there are feature:NUMBER, "
            "the learners and files with a saved learner"
        )


def open_ranker(
    spec: str,
    split: Split,
    user: User,
    train_rounds: int = 1000,
    k: int = 10,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Ranker:
    """The ranker that a spec names.

    `feature:12` ranks by feature 12 (counted from 1), highest first, `feature:-12` lowest first. A learner,
    `pairrank?alpha=0.1`, first serves `user` for `train_rounds` queries of the train part (or is fitted to its grades),
    then ranks by `best`. A file is a learner that `rankloop.save` wrote.
    """
    check_ranker(spec)
    if spec.startswith("feature:"):
        column, sign = _feature_number(spec)
        if column >= split.train.width:
            raise InvalidParameter(
                f"{spec} asks for feature {column + 1}, but the data has {split.train.width} features"
            )
        return Ranker(spec, lambda candidates, ties: _by_feature(candidates, ties, column, sign))
    if registry.is_learner(spec.partition("?")[0]):
        name, parameters = registry.parse_learner(spec)
        learner = registry.make(name, **parameters)
        fit: Any = getattr(learner, "fit", None)
        if fit is not None:
            fit(split.train.features, split.train.grades, split.train.offsets)
        teacher = user if learner.feedback == "clicks" else Grader()
        for step in simulate(learner, Stationary(split.train, k), teacher, train_rounds, seed):
            _tell(on_progress, f"training {spec}", step.t + 1, train_rounds)
    else:
        learner = registry.load(spec)
    return Ranker(spec, lambda candidates, _: learner.best(candidates, candidates.n))


def rank_all(rankers: Sequence[Ranker], dataset: Dataset, seed: int = 0) -> list[Array]:
    """For each query (R, n) the rankings; documents that a feature cannot tell apart in an order drawn once a query."""
    streams = Rng(seed)
    found = []
    for q in range(len(dataset)):
        candidates = dataset.candidates(q)
        ties = streams.for_event("interleave/ties", q).random(candidates.n)
        found.append(np.array([ranker.rank(candidates, ties) for ranker in rankers]))
    return found


# -- comparison ----------------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def interval_of(values: Array) -> Interval:
    """From one value per impression."""
    found = statistics.mean(values)
    return Interval(found.value, *found.interval())


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of T impressions for R rankers, each against the first."""

    labels: list[str]
    method: Method
    k: int
    win: Array  # (T, R) the probability that the ranker won
    loss: Array  # (T, R)
    credit: Array  # (T, R)
    ndcg: Array  # (R,) true mean NDCG@k of the rankings, over queries with relevant documents

    def preference(self, r: int) -> Interval:
        """Mean of P(win) - P(loss) against the first ranker; above 0, r is better."""
        return interval_of(self.win[:, r] - self.loss[:, r])

    def lead(self, r: int) -> Interval:
        """Mean of how much more credit r has than the first ranker."""
        return interval_of(self.credit[:, r] - self.credit[:, 0])

    def verdict(self, r: int) -> Verdict:
        """Better or worse than the first ranker, if the interval of the lead in credit is on one side of 0.

        Credit decides, not wins, which are biased for pairwise preference (`rankloop.evaluation.interleaving`).
        """
        lead = self.lead(r)
        return "better" if lead.low > 0 else "worse" if lead.high < 0 else "undecided"

    def summary(self) -> list[dict[str, Any]]:
        """A row per ranker but the first."""
        rounds = len(self.win)
        rows = []
        for r in range(1, len(self.labels)):
            wins, losses = float(self.win[:, r].sum()), float(self.loss[:, r].sum())
            rows.append(
                {
                    "ranker": self.labels[r],
                    "against": self.labels[0],
                    "wins": wins,
                    "losses": losses,
                    "ties": max(rounds - wins - losses, 0.0),
                    "preference": self.preference(r)._asdict(),
                    "credit": self.lead(r)._asdict(),
                    "verdict": self.verdict(r),
                    "ndcg": float(self.ndcg[r]),
                    "ndcg difference": float(self.ndcg[r] - self.ndcg[0]),
                }
            )
        return rows


def compare(
    rankers: Sequence[Ranker],
    dataset: Dataset,
    user: User,
    rounds: int = 1000,
    method: Method = "probabilistic",
    k: int = 10,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Comparison:
    """Show `user` interleaved rankings for `rounds` queries drawn uniformly from `dataset`, and count wins.

    Same seed, same result. Where k is more than there are documents, all of them are shown.
    """
    _check(len(rankers), rounds, method, k)
    rankings = rank_all(rankers, dataset, seed)
    streams = Rng(seed)
    win, loss, credit = (np.zeros((rounds, len(rankers))) for _ in range(3))
    for t in range(rounds):
        q = int(streams.for_event("interleave/query", t).random() * len(dataset))
        mixed = interleaving.interleave(
            rankings[q], min(k, rankings[q].shape[1]), streams.for_event("interleave/mix", t), method
        )
        shown, grades = dataset.candidates(q), dataset.grades_of(q)[mixed.order]
        rng = streams.for_event("interleave/user", t)
        clicks = reaction(user, shown.query, shown.items[mixed.order], grades, rng).values
        credit[t] = interleaving.credit(mixed, clicks)
        win[t], loss[t] = preferences(mixed, clicks)
        _tell(on_progress, "impressions", t + 1, rounds)
    return Comparison([ranker.label for ranker in rankers], method, k, win, loss, credit, _ndcg(rankings, dataset, k))


def interleave(
    specs: Sequence[str],
    split: Split,
    user: str = "perfect",
    rounds: int = 1000,
    method: Method = "probabilistic",
    k: int = 10,
    seed: int = 0,
    train_rounds: int = 1000,
    on_progress: Progress | None = None,
) -> Comparison:
    """Open the rankers that `specs` name, and compare them on the test part.

    >>> from rankloop.lab.datasets.sources import open_split
    >>> split = open_split("synthetic:mq2008?queries=20&vali=5&test=20")
    >>> found = interleave(["feature:1", "offline-ranknet"], split, rounds=200)
    >>> found.verdict(1), bool(found.ndcg[1] > found.ndcg[0])
    ('better', True)
    """
    _check(len(specs), rounds, method, k, train_rounds)  # before anything is trained
    for spec in specs:
        check_ranker(spec)
    someone = open_user(user, split.train.highest_grade)
    rankers = [open_ranker(spec, split, someone, train_rounds, k, seed, on_progress) for spec in specs]
    return compare(rankers, split.test, someone, rounds, method, k, seed, on_progress)


def _check(rankers: int, rounds: int, method: str, k: int, train_rounds: int = 0) -> None:
    rules = (("rankers", rankers, 2), ("rounds", rounds, 2), ("k", k, 1), ("train_rounds", train_rounds, 0))
    for name, value, least in rules:
        if value < least:
            raise InvalidParameter(f"{name} is {value}; it must be at least {least}")
    if method not in METHODS:
        raise UnknownName.among("interleaving method", method, METHODS)


def _tell(on_progress: Progress | None, what: str, done: int, total: int) -> None:
    if on_progress and done % max(1, total // 100) == 0:
        on_progress(what, done, total)


def _ndcg(rankings: Sequence[Array], dataset: Dataset, k: int) -> Array:
    """(R,) mean NDCG@k; queries with nothing relevant are left out, as in all held-out numbers of the lab."""
    ideal = ragged_ideal_dcg(dataset.grades, dataset.offsets, k)
    found = np.array([[dcg(dataset.grades_of(q)[row], k) for row in rows] for q, rows in enumerate(rankings)])
    return np.array([mean_ratio(found[:, r], ideal, "skip") for r in range(found.shape[1])])


def _by_feature(candidates: Candidates, ties: Array, column: int, sign: int) -> Array:
    assert candidates.features is not None  # a data set has features
    order: Array = ranked(sign * candidates.features[None, :, column], ties)[0]
    return order


def _feature_number(spec: str) -> tuple[int, int]:
    """Column from 0, and 1 for highest first or -1 for lowest first."""
    text = spec.removeprefix("feature:")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 2**31):
        raise InvalidParameter(f"{spec!r} has no feature number; write feature:12, or feature:-12 for lowest first")
    return int(digits) - 1, -1 if text.startswith("-") else 1
