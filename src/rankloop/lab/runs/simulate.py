"""The loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankloop.errors import Diverged
from rankloop.lab.runs.delays import Delays
from rankloop.lab.users.user import User, reaction
from rankloop.lab.worlds.world import Round, World
from rankloop.learner import Learner
from rankloop.streams import Streams
from rankloop.types import Feedback, Impression


class Step(NamedTuple):
    """One round, after the learner has learned."""

    t: int
    round: Round
    impression: Impression
    feedback: Feedback


def simulate(
    learner: Learner, world: World, user: User, rounds: int, seed: int = 0, delays: Delays | None = None
) -> Iterator[Step]:
    """Let `learner` serve `user` for `rounds` rounds of `world`; stop between any two steps to look at it.

    Every event has its own random numbers, so looking, evaluating or saving between steps never changes the run. A
    learner with a method `label`, which only skylines have, is told the true grades of every candidate after a round.
    """
    streams, learned = Streams(seed), 0
    for t in range(rounds):
        query = world.at(t, streams.at("world", t))
        shown = learner.rank(query.candidates, world.k, streams.at("rank", t))
        feedback = reaction(user, shown.query, shown.items, query.grades[shown.order], streams.at("user", t))
        try:
            if delays is None:
                learner.learn(shown, feedback, streams.at("learn", t))
            else:
                for letter in delays.exchange(t, shown, feedback, streams.at("delay", t)):
                    learner.learn(*letter, streams.at("learn", learned))
                    learned += 1  # several letters may come in one round, each with its own random numbers
            if hasattr(learner, "label"):
                learner.label(query.candidates, query.grades, streams.at("label", t))
        except Diverged as error:  # the learner knows its events, but not which round of the run this is
            raise Diverged(f"round {t + 1}: {error}") from error
        yield Step(t, query, shown, feedback)
