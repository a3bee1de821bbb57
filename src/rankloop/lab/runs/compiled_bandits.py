"""Click bandits with one query and one simulated user, millions of rounds, by the compiled loop of each learner.

A learner that has one says so by its method `compiled_loop` (`rankloop.core.compiled_rounds.CompiledClicks`). The
loop calls the
kernels that serve requests, on the arrays of the learner's own table, so when it ends the learner is where so many
requests would have brought it: bit for bit, if they drew the same random numbers. Regret is exact: what the best list
is expected to get less what the shown one is expected to get, by the user's own probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rankloop.core.compiled_rounds import ClickWorld, CompiledClicks
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.types import Array
from rankloop.kernels import bandits as kernels
from rankloop.kernels.click_models import CASCADE, CHAIN, POSITION, ClickParameters

QUERY = "query"  # what the one query is called
CHUNK = 4096  # rounds whose random numbers are drawn at once; any number gives the same run
LISTS = 10**8  # that may be looked through for the best one


class Outcome(NamedTuple):
    """What came of a run."""

    at: Array  # (c,) rounds
    regret: Array  # (c,) up to then
    unsafe: int  # lists with more pairs the wrong way round than allowed
    harmful: int  # changes of BubbleRank's base list that made it worse


def best_clicks(user: ClickParameters, k: int, top: int) -> float:
    """The most clicks that any list of k is expected to get in its first `top` positions, exactly.

    Readers who leave with their first click (CASCADE) want the most attractive documents in any order. Where ranks are
    looked at whatever happens above (POSITION), the most attractive stand at the most examined of these positions,
    which need not be the highest. Else it may be better to hold back a document that ends the visit, so all lists are
    looked through, but those that cannot be better than the best one found.
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
    if lists > LISTS:
        raise InvalidParameter(
            f"the best first {top} of {user.attraction.size} documents is one of {lists:.0e} lists, more than can be "
            f"looked through for this click model ({LISTS:.0e}); give fewer documents or a smaller top"
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
    chunk: int = CHUNK,
    on_progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Let a fresh `learner` serve `user` until the last of the rounds `at`, after each of which regret is noted.

    The documents of `user` are the candidates, in base order; lists have k of them, all if None. `most` ≥ 0 counts
    lists with more than so many pairs the wrong way round.

    >>> from rankloop.core.registry import make
    >>> from rankloop.kernels.click_models import CASCADE
    >>> user = ClickParameters(CASCADE, np.array([0.1, 0.8]), np.zeros(2), np.ones(1), 1.0, np.ones((1, 1)))
    >>> learner = make("cascade-klucb")
    >>> play(learner, user, [100, 1000], seed=1, top=1).regret.round(1)
    array([0.7, 0.7])
    """
    m = user.attraction.size
    k = m if k is None else min(k, m)
    if learner.feedback != "clicks" or not isinstance(learner, CompiledClicks):
        raise InvalidParameter(
            f"{type(learner).__name__} has no compiled loop for clicks; simulate it with rankloop.lab.runs.simulate"
        )
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
    found = account[[kernels.UNSAFE, kernels.HARMFUL]].astype(np.int64).tolist()
    return Outcome(np.array(at), np.array(regret), *found)
