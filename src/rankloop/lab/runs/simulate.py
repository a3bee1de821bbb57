"""The loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankloop.clicks.users import User
from rankloop.core.errors import Diverged
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.types import Feedback, Impression
from rankloop.lab.runs.delays import Delays
from rankloop.lab.worlds.world import Round, World


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
    streams, learned, k = Rng(seed), 0, world.k
    at, rank, learn, label = streams.for_event, learner.rank, learner.learn, getattr(learner, "label", None)
    react, react_to = user.react, getattr(user, "react_to", None)  # the second looks at items, not at grades
    for t in range(rounds):
        query = world.at(t, at("world", t))
        shown = rank(query.candidates, k, at("rank", t))
        if react_to is None:
            feedback = react(query.grades[shown.order], at("user", t))
        else:
            feedback = react_to(shown.query, shown.items, at("user", t))
        try:
            if delays is None:
                learn(shown, feedback, at("learn", t))
            else:
                for letter in delays.exchange(t, shown, feedback, at("delay", t)):
                    learn(*letter, at("learn", learned))
                    learned += 1  # several letters may come in one round, each with its own random numbers
            if label is not None:
                label(query.candidates, query.grades, at("label", t))
        except Diverged as error:  # the learner knows its events, but not which round of the run this is
            raise Diverged(f"round {t + 1}: {error}") from error
        yield Step(t, query, shown, feedback)
