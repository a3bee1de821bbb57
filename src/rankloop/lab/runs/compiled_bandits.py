"""Click bandits with one query and one simulated user, millions of rounds: the compiled loop of each learner.

The loop calls the kernels that serve requests, on the arrays of the learner's own table, so when it ends the learner is
where so many requests would have brought it: bit for bit, if they drew the same random numbers. Regret is exact: what
the best list is expected to get less what the shown one is expected to get, by the user's own probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.errors import InvalidParameter
from rankloop.kernels import bandits as kernels
from rankloop.kernels import batchrank, bubblerank, cascade, toprank
from rankloop.kernels.click_models import CHAIN, POSITION, ClickChances, expected_clicks
from rankloop.learner import Learner
from rankloop.learners.bandits.batchrank import BatchRank
from rankloop.learners.bandits.bubblerank import BubbleRank
from rankloop.learners.bandits.cascade_ucb1 import CascadeUCB1
from rankloop.learners.bandits.toprank import TopRank
from rankloop.types import Array

QUERY = "query"  # what the one query is called
CHUNK = 4096  # rounds whose random numbers are drawn at once; any number gives the same run

Step = Callable[[Array, Array, Array], None]  # coins, the user's coins, account


class Outcome(NamedTuple):
    """What came of a run."""

    at: Array  # (c,) rounds
    regret: Array  # (c,) up to then
    unsafe: int  # lists with more pairs the wrong way round than allowed
    harmful: int  # changes of BubbleRank's base list that made it worse


def best_clicks(user: ClickChances, k: int, top: int) -> float:
    """The most clicks that any list of k is expected to get in its first `top` positions.

    That is the list by attraction; where ranks are looked at whatever happens above (POSITION), the most attractive
    documents stand at the most examined of these positions, which need not be the highest.
    """
    by_attraction = np.argsort(-user.attraction, kind="stable")[:k]
    top = min(top, k)
    if user.kind == POSITION:
        ranks = np.minimum(np.arange(top), len(user.examination) - 1)
        examined = np.sort(user.examination[ranks, 0])[::-1]
        return float(examined @ user.attraction[by_attraction[:top]])
    return expected_clicks(user, by_attraction, top, np.zeros((3, k + 1)))


def play(
    learner: Learner,
    user: ClickChances,
    at: Sequence[int] | Array,
    seed: int,
    *,
    k: int | None = None,
    top: int = 5,
    most: int = -1,
    chunk: int = CHUNK,
    on_progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Let a fresh `learner` serve `user` until the last of the rounds `at`, after each of which regret is noted.

    The documents of `user` are the candidates, in base order; lists have k of them, all if None. `most` ≥ 0 counts
    lists with more than so many pairs the wrong way round.

    >>> from rankloop.registry import make
    >>> from rankloop.kernels.click_models import CASCADE
    >>> user = ClickChances(CASCADE, np.array([0.1, 0.8]), np.zeros(2), np.ones(1), 1.0, np.ones((1, 1)))
    >>> learner = make("cascade-klucb")
    >>> play(learner, user, [100, 1000], seed=1, top=1).regret.round(1)
    array([0.7, 0.7])
    """
    m = user.attraction.size
    k = m if k is None else min(k, m)
    best, account = best_clicks(user, k, top), np.zeros(3)
    step, finish, shape = _loop(learner, user, m, k, top, best, most)
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
    found = account[[kernels.UNSAFE, kernels.HARMFUL]].astype(np.int64).tolist()
    return Outcome(np.array(at), np.array(regret), *found)


def _loop(
    learner: Learner, user: ClickChances, m: int, k: int, top: int, best: float, most: int
) -> tuple[Step, Callable[[int], None], tuple[int, ...]]:
    """What advances the learner, what ends the run after so many rounds, and the shape of its coins in a round."""
    if not isinstance(learner, BubbleRank | CascadeUCB1 | TopRank | BatchRank):
        raise InvalidParameter(
            f"{type(learner).__name__} has no compiled loop; simulate it with rankloop.lab.runs.simulate"
        )
    table = learner.queries_
    if m > learner.max_items or len(table):
        raise InvalidParameter(f"the loop needs a fresh learner with max_items of at least {m}, the user's documents")
    slot = table.enter(QUERY, np.arange(m)).slot
    arrays = table.of(slot)
    rounds = 0

    def finish(done: int) -> None:
        table.set_rounds(slot, done)

    if isinstance(learner, BubbleRank):
        places, leads, duels = arrays
        base, horizon = np.arange(m), float(learner.horizon or 0)

        def bubble(coins: Array, clicks: Array, account: Array) -> None:
            nonlocal rounds
            rounds = bubblerank.simulate(
                base, leads, duels, rounds, horizon, user, coins, clicks, top, best, most, account
            )
            places[base] = np.arange(m)

        return bubble, finish, (min(k + 1, m) // 2,)
    if isinstance(learner, CascadeUCB1):
        shows, wins = arrays
        kind, last, ties = learner._kind(), learner.observe == "last", learner.ties == "random"

        def climb(coins: Array, clicks: Array, account: Array) -> None:
            nonlocal rounds
            coins *= ties
            rounds = cascade.simulate(shows, wins, rounds, kind, last, user, coins, clicks, k, top, best, most, account)

        return climb, finish, (m,)
    if isinstance(learner, TopRank):
        leads, duels = arrays
        bar = math.log(toprank.C * learner.horizon)

        def shuffle(coins: Array, clicks: Array, account: Array) -> None:
            toprank.simulate(leads, duels, bar, user, coins, clicks, k, top, best, most, account)

        return shuffle, finish, (m,)
    homes, spans, stages, stamps, shows, wins, clock = arrays
    variant, log_horizon = learner._variant(), math.log(learner.horizon)

    def part(coins: Array, clicks: Array, account: Array) -> None:
        batches = homes, spans, stages, stamps, shows, wins, clock
        batchrank.simulate(*batches, variant, log_horizon, user, coins, clicks, top, best, most, account)

    return part, finish, (2, m)
