"""The simulation loop, and feedback that arrives late, twice or never."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rankloop.clicks.users import User
from rankloop.core.errors import Diverged, InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.specs import known_name, number, only, parse_spec
from rankloop.core.types import Feedback, Impression
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
    """Let `learner` serve `user` for `rounds` rounds of `world`, one step at a time.

    Every event has its own random numbers, so measuring between steps never changes the run. A learner with a method
    `label`, which only oracles have, receives the true grades of every candidate after a round.
    """
    rng, learned, k = Rng(seed), 0, world.k
    for_event, rank, learn, label = rng.for_event, learner.rank, learner.learn, getattr(learner, "label", None)
    react, react_to = user.react, getattr(user, "react_to", None)  # the second looks at items, not at grades
    for t in range(rounds):
        query = world.at(t, for_event("world", t))
        shown = rank(query.candidates, k, for_event("rank", t))
        if react_to is None:
            feedback = react(query.grades[shown.order], for_event("user", t))
        else:
            feedback = react_to(shown.query, shown.items, for_event("user", t))
        try:
            if delays is None:
                learn(shown, feedback, for_event("learn", t))
            else:
                for arrived in delays.exchange(t, shown, feedback, for_event("delay", t)):
                    learn(*arrived, for_event("learn", learned))
                    learned += 1  # several may arrive in one round, each with its own random numbers
            if label is not None:
                label(query.candidates, query.grades, for_event("label", t))
        except Diverged as error:  # the learner does not know the number of the round
            raise Diverged(f"round {t + 1}: {error}") from error
        yield Step(t, query, shown, feedback)


@dataclass
class Delays:
    """Feedback that arrives some rounds later, out of order, twice or never.

    Parameters
    ----------
    mean
        Mean delay in rounds (geometric); 0 delivers at once.
    lost, duplicated
        Probability that feedback never arrives; that it arrives a second time, with a delay of its own.
    """

    mean: float = 0.0
    lost: float = 0.0
    duplicated: float = 0.0
    _waiting: list[tuple[int, int, Impression, Feedback]] = field(default_factory=list, init=False, repr=False)
    _sent: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.mean < float("inf"):
            raise InvalidParameter(f"mean is {self.mean!r}; a delay is a finite number of rounds, at least 0")
        for name in ("lost", "duplicated"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InvalidParameter(f"{name} is {value!r}; it is a probability and must lie between 0 and 1")

    def exchange(
        self, t: int, impression: Impression, feedback: Feedback, rng: np.random.Generator
    ) -> list[tuple[Impression, Feedback]]:
        """Send the feedback of round t; return what arrives in it, in order of arrival."""
        copies = int(rng.random() >= self.lost)
        copies += copies and int(rng.random() < self.duplicated)
        for _ in range(copies):
            wait = int(rng.geometric(1.0 / (1.0 + self.mean))) - 1
            heapq.heappush(self._waiting, (t + wait, self._sent, impression, feedback))
            self._sent += 1  # breaks ties in arrival: first sent, first delivered
        arrived = []
        while self._waiting and self._waiting[0][0] <= t:
            arrived.append(heapq.heappop(self._waiting)[2:])
        return arrived


def open_delays(spec: str) -> Delays | None:
    """The delays that `spec` describes: `none`, or `late?mean=5&lost=0.1&duplicated=0.05`.

    >>> open_delays("late?mean=5").mean
    5.0
    """
    name, options = parse_spec(spec)
    known_name(name, ("none", "late"), "delay")
    only(options, () if name == "none" else ("mean", "lost", "duplicated"), f"delay {name!r}")
    return None if name == "none" else Delays(*(number(options, key, 0.0) for key in ("mean", "lost", "duplicated")))
