"""Runs without Python between the rounds: up to millions of rounds per second.

Learners with such a loop have the methods of `rankloop.core.compiled_rounds`. The loops call the kernels of `rank` and
`learn` with the random numbers of `rankloop.lab.runs.simulate`, so they give the same runs, bit for bit. Feedback
arrives at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.clicks.users import DependentClickUser, User
from rankloop.core.compiled_rounds import (
    ClickWorld,
    CompiledClicks,
    CompiledItems,
    CompiledQueries,
    CompiledRounds,
    GradedItems,
    GradedQueries,
)
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels import bandits as kernels
from rankloop.kernels.click_loop import Rounds, shown_ndcg
from rankloop.kernels.click_models import CASCADE, CHAIN, POSITION, ClickParameters
from rankloop.kernels.metrics import ragged_ideal_dcg
from rankloop.kernels.philox import uniforms
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.runs.hindsight import Regret
from rankloop.lab.runs.record import Progress
from rankloop.lab.runs.simulate import Delays
from rankloop.lab.worlds.arrivals import Arrivals
from rankloop.lab.worlds.item_worlds import ItemWorld
from rankloop.lab.worlds.world import Stationary, World

QUERY = "query"  # the id of a click bandit's only query
_CLICK_ROUNDS, _BANDIT_ROUNDS, _GRADE_ROUNDS = 256, 4096, 8192  # per call; any number gives the same run
_MOST_LISTS = 10**8  # that may be searched for the best one


def _no_loop(learner: Learner, over: str, method: str) -> InvalidParameter:
    return InvalidParameter(
        f"{type(learner).__name__} has no compiled loop over {over}; simulate it with rankloop.lab.runs.simulate, or "
        f"give it a method {method}"
    )


# -- learners of clicks with features ------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Rounds that were carried out together."""

    ndcg: Array  # (B,) of the rankings shown, 0 where nothing is relevant
    relevant: Array  # (B,) whether anything was relevant
    rounds: Rounds

    def rankings(self) -> Iterator[tuple[Array, Array]]:
        """The grades of all candidates, and the order shown, of each round."""
        rounds = self.rounds
        for q, order in zip(rounds.queries, rounds.orders, strict=True):
            yield rounds.grades[rounds.offsets[q] : rounds.offsets[q + 1]], order[order >= 0]


def compiled_rounds(
    learner: Learner, world: World, user: User, seed: int, delays: Delays | None
) -> Callable[[int, int], Iterator[Batch]] | None:
    """A function that carries out the rounds from one to another; None if only the plain loop can.

    It needs a learner with `compiled_rounds`, the world `stationary`, one of the papers' users and no delays.
    """
    if delays is not None or type(world) is not Stationary or type(user) is not DependentClickUser:
        return None
    loop = learner.compiled_rounds() if isinstance(learner, CompiledRounds) else None
    if loop is None:
        return None
    data, rng, k = world.dataset, Rng(seed), world.k
    features, grades = np.asarray(data.features), np.asarray(data.grades)
    ideal, arrivals = ragged_ideal_dcg(grades, data.offsets, k), world.arrivals or Arrivals(len(data))

    def advance(start: int, end: int) -> Iterator[Batch]:
        for first in range(start, end, _CLICK_ROUNDS):
            size = min(_CLICK_ROUNDS, end - first)
            drawn, coins = np.empty((size, 1)), np.empty((size, 2 * k))
            uniforms(rng.key("world"), first, drawn)
            uniforms(rng.key("user"), first, coins)
            queries, (click, stop) = arrivals.many(first, drawn[:, 0]), user.tables
            shown = np.empty((size, k), np.int64), np.empty((size, k))
            rounds = Rounds(
                features, grades, data.offsets, queries, coins, click, stop, user.stop_requires_click, *shown
            )
            loop(rounds, first, rng)
            yield Batch(shown_ndcg(rounds, ideal), ideal[queries] > 0.0, rounds)

    return advance


# -- click bandits -------------------------------------------------------------------------------------------------


class BanditRun(NamedTuple):
    """What a run of a click bandit gave."""

    at: Array  # (c,) rounds
    regret: Array  # (c,) up to then
    unsafe: int  # rankings with more misordered pairs than allowed
    harmful: int  # changes of BubbleRank's base list that made it worse


def best_clicks(user: ClickParameters, k: int, top: int) -> float:
    """The highest number of clicks to expect in the first `top` of k positions, over all rankings, exactly.

    Readers who leave with their first click (CASCADE) want the most attractive documents in any order. Where ranks are
    examined whatever stands above (POSITION), the most attractive stand at the most examined positions, which need not
    be the highest. Else it may be better to hold back a document that ends the visit, so all rankings are searched.
    """
    top = min(top, k)
    by_attraction = np.argsort(-user.attraction, kind="stable")[:top]
    if user.kind == CASCADE:
        return kernels.cascade_clicks(user.attraction, by_attraction, top)
    if user.kind == POSITION:
        ranks = np.minimum(np.arange(top), len(user.examination) - 1)
        examined = np.sort(user.examination[ranks, 0])[::-1]
        return float(examined @ user.attraction[by_attraction])
    lists = math.perm(user.attraction.size, top)
    if lists > _MOST_LISTS:
        raise InvalidParameter(
            f"the best first {top} of {user.attraction.size} documents is one of {lists:.0e} rankings, more than can "
            f"be searched for this click model ({_MOST_LISTS:.0e}); give fewer documents or a smaller top"
        )
    return kernels.most_clicks(user, top)


def play(
    learner: Learner,
    user: ClickParameters,
    at: Sequence[int] | Array,
    seed: int,
    *,
    k: int | None = None,
    top: int = 5,
    most: int = -1,
    chunk: int = _BANDIT_ROUNDS,
    on_progress: Progress | None = None,
) -> BanditRun:
    """Let a fresh `learner` serve `user` until the last of the rounds `at`; regret is measured after each of them.

    The documents of `user` are the candidates, in base order; k of them are shown, all if None. Regret is exact, by the
    user's own probabilities. `most` ≥ 0 counts rankings with more misordered pairs than that.

    >>> from rankloop.core.registry import make
    >>> from rankloop.kernels.click_models import CASCADE
    >>> user = ClickParameters(CASCADE, np.array([0.1, 0.8]), np.zeros(2), np.ones(1), 1.0, np.ones((1, 1)))
    >>> play(make("cascade-klucb"), user, [100, 1000], seed=1, top=1).regret.round(1)
    array([0.7, 0.7])
    """
    m = user.attraction.size
    k = m if k is None else min(k, m)
    if learner.feedback != "clicks" or not isinstance(learner, CompiledClicks):
        raise _no_loop(learner, "clicks", "compiled_loop")
    account = np.zeros(3)
    shape, step, finish = learner.compiled_loop(ClickWorld(QUERY, user, k, top, best_clicks(user, k, top), most))
    coins, clicks = np.empty((chunk, *shape)), np.empty((chunk, 2 if user.kind == CHAIN else 1, k))
    of_learner, of_user = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    done, regret = 0, []
    for until in at:
        while done < until:
            steps = min(chunk, int(until) - done)
            of_learner.random(out=coins[:steps])
            of_user.random(out=clicks[:steps])
            step(coins[:steps], clicks[:steps], account)
            done += steps
            if on_progress:
                on_progress(done)
        regret.append(account[kernels.REGRET])
    finish(done)
    unsafe, harmful = account[[kernels.UNSAFE, kernels.HARMFUL]].astype(np.int64).tolist()
    return BanditRun(np.array(at), np.array(regret), unsafe, harmful)


# -- learners of grades --------------------------------------------------------------------------------------------


class ItemsRun(NamedTuple):
    """What a run over one set of items gave."""

    rounds: Array  # (c,) rounds done at each checkpoint
    regret: dict[str, Array]  # (c,) by measure


class ContextualRun(NamedTuple):
    """What a run over the queries of a data set gave."""

    ndcg: Array  # (T,) NDCG@k of each ranking shown, 0 where nothing is relevant
    losses: Array  # (T,) the surrogate's loss under all grades, empty if not asked for
    theta: Array  # (d,) what was learned


def run_items(
    learner: Learner,
    world: ItemWorld,
    rounds: int,
    seed: int = 0,
    measures: Sequence[str] = ("dcg",),
    at: Sequence[int] | Array | None = None,
    cut: int = 10,
    on_progress: Progress | None = None,
) -> ItemsRun:
    """Let a fresh learner rank all items of `world`; measure regret after the rounds `at`.

    >>> from rankloop.core.registry import make
    >>> from rankloop.lab.worlds.item_worlds import Corrupted
    >>> world = Corrupted(items=6, relevant=2)
    >>> run = run_items(make("rtopk-items", grades=1, horizon=1000), world, 1000, at=[100, 1000])
    >>> bool(run.regret["dcg"][1] / 1000 < run.regret["dcg"][0] / 100)
    True
    """
    checkpoints = np.unique(np.asarray([rounds] if at is None else at, dtype=np.int64))
    if checkpoints.size == 0 or checkpoints[0] < 1 or checkpoints[-1] > rounds:
        raise InvalidParameter(f"checkpoints {checkpoints.tolist()}; they must lie between 1 and {rounds}, the rounds")
    if not isinstance(learner, CompiledItems):
        raise _no_loop(learner, "items without features", "compiled_items")
    rng, found = Rng(seed), {name: Regret(name, world.items, cut) for name in measures}
    step = learner.compiled_items(GradedItems(world.items, rng.key("rank")))
    orders = np.empty((_GRADE_ROUNDS, world.items), np.int64)
    values: dict[str, list[float]] = {name: [] for name in measures}
    done = 0
    for checkpoint in checkpoints:
        while done < checkpoint:
            size = min(_GRADE_ROUNDS, int(checkpoint) - done)
            grades = world.vectors(rng, done, size)
            step(grades, done, orders[:size])
            for regret in found.values():
                regret.add(orders[:size], grades)
            done += size
            if on_progress:
                on_progress(done)
        for name, regret in found.items():
            values[name].append(regret.value)
    return ItemsRun(checkpoints, {name: np.array(series) for name, series in values.items()})


def run_contextual(
    learner: Learner,
    dataset: Dataset,
    rounds: int,
    seed: int = 0,
    k: int = 10,
    losses: bool = False,
    on_progress: Progress | None = None,
) -> ContextualRun:
    """Let a fresh learner serve queries drawn uniformly from a data set; graders reveal the grades that it needs.

    `listnet-full` sees the grades of all documents; the others show k.
    """
    if not isinstance(learner, CompiledQueries):
        raise _no_loop(learner, "queries with features", "compiled_queries")
    rng = Rng(seed)
    keys = np.array([rng.key("world"), rng.key("rank")])
    features, grades, offsets = np.asarray(dataset.features), dataset.grades.astype(np.float64), dataset.offsets
    ideal = ragged_ideal_dcg(dataset.grades, offsets, k)
    ndcg, lost, theta = np.empty(rounds), np.empty(rounds if losses else 0), np.zeros(0)
    step = learner.compiled_queries(GradedQueries(features, grades, offsets, ideal, keys, k))
    for first in range(0, rounds, _GRADE_ROUNDS):
        part = ndcg[first : first + _GRADE_ROUNDS]
        theta = step(first, part, lost[first : first + _GRADE_ROUNDS])
        if on_progress:
            on_progress(first + part.size)
    return ContextualRun(ndcg, lost, theta)
