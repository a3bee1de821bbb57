"""Runs of linear learners with simulated users, many rounds a call.

Where the world is `stationary`, the user one of the papers' and feedback comes at once, nothing has to happen in Python
between two rounds. A learner that can do without says so: its `compiled_rounds()` gives the function that takes it
through some rounds, made of the same kernels as its `rank` and `learn`, so runs are those of `simulate`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rankloop.clicks.users import DependentClickUser, User
from rankloop.core.compiled_rounds import CompiledRounds
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.click_loop import Rounds, shown_ndcg
from rankloop.kernels.metrics import ragged_ideal_dcg
from rankloop.kernels.philox import uniforms
from rankloop.lab.runs.delays import Delays
from rankloop.lab.worlds.arrivals import Arrivals
from rankloop.lab.worlds.world import Stationary, World

CHUNK = 256  # rounds a call: enough to forget what the call costs, few enough for their random numbers to stay in cache


class Stretch(NamedTuple):
    """Some rounds that were carried out, the last of which has number `end` - 1."""

    end: int
    ndcg: Array  # (B,) of the lists shown, 0 where nothing is relevant
    relevant: Array  # (B,) whether there was anything relevant
    rounds: Rounds


def compiled(
    learner: Learner, world: World, user: User, seed: int, delays: Delays | None
) -> Callable[[int, int], Iterator[Stretch]] | None:
    """What takes the learner from one round to another, a stretch at a time; None if only the plain loop can.

    >>> from rankloop.lab.datasets.sources import open_split
    >>> from rankloop.learners.pairwise.pdgd import PDGD
    >>> world = Stationary(open_split("synthetic:mq2008?queries=9&vali=1&test=1").train)
    >>> advance = compiled(PDGD(), world, DependentClickUser.named("perfect", 2), 0, None)
    >>> [stretch.end for stretch in advance(0, 300)]
    [256, 300]
    """
    if delays is not None or type(world) is not Stationary or type(user) is not DependentClickUser:
        return None
    loop = learner.compiled_rounds() if isinstance(learner, CompiledRounds) else None
    if loop is None:
        return None
    data, streams, k = world.dataset, Rng(seed), world.k
    features, grades = np.asarray(data.features), np.asarray(data.grades)
    ideal, arrivals = ragged_ideal_dcg(grades, data.offsets, k), world.arrivals or Arrivals(len(data))

    def advance(start: int, end: int) -> Iterator[Stretch]:
        for first in range(start, end, CHUNK):
            size = min(CHUNK, end - first)
            drawn, coins = np.empty((size, 1)), np.empty((size, 2 * k))
            uniforms(streams.key("world"), first, drawn)
            uniforms(streams.key("user"), first, coins)
            rounds = Rounds(
                features,
                grades,
                data.offsets,
                arrivals.many(first, drawn[:, 0]),
                coins,
                user.tables[0],
                user.tables[1],
                user.stop_requires_click,
                np.empty((size, k), np.int64),
                np.empty((size, k)),
            )
            loop(rounds, first, streams)
            yield Stretch(first + size, shown_ndcg(rounds, ideal), ideal[rounds.queries] > 0.0, rounds)

    return advance
