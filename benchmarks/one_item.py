"""One item shown, one reward: learners in a world of ten actions and six kinds of users."""

from __future__ import annotations

import time
from argparse import ArgumentParser

import numpy as np

from rankloop.core.registry import make, parse_learner
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.integrations.personalizer import crossed_rows

ACTIONS, TYPES, KINDS = 10, 5, 6
LEARNERS = ("squarecb", "squarecb?gamma=0&epsilon=0.2", "pairrank", "random")


def world(seed: int, width: int) -> tuple[Array, Array]:
    """(kinds, actions) how likely each action is liked, and (kinds, actions, width) their rows."""
    rng = np.random.default_rng([1, seed])
    types, liking = rng.integers(0, TYPES, ACTIONS), rng.random((KINDS, TYPES)) * 0.5
    likely = liking[:, types] + rng.random(ACTIONS) * 0.2
    rows = [
        crossed_rows([{"user": f"k{k}"}], [(f"a{a}", [{"type": f"t{t}"}]) for a, t in enumerate(types)], width).dense()
        for k in range(KINDS)
    ]
    return likely, np.stack(rows)


def played(spec: str, seed: int, rounds: int, width: int) -> list[float]:
    """The share of what the best actions would have brought, in each quarter of the rounds.

    `pairrank` learns from pairs, so it shows a list of two, of which the user sees the first: a reward says that it is
    better than the second, none says nothing.
    """
    likely, rows = world(seed, width)
    name, parameters = parse_learner(spec)
    learner, rng = make(name, **parameters), np.random.default_rng([2, seed])
    k = 2 if name == "pairrank" else 1
    got, best = np.empty(rounds), np.empty(rounds)
    for t in range(rounds):
        kind = int(rng.integers(KINDS))
        shown = learner.rank(Candidates("", None, rows[kind]), k, np.random.default_rng([3, seed, t]))
        first = int(shown.order[0])
        reward = float(rng.random() < likely[kind, first])
        learner.learn(shown, Feedback.clicks([reward]), np.random.default_rng([4, seed, t]))
        got[t], best[t] = likely[kind, first], likely[kind].max()
    return [float(a.sum() / b.sum()) for a, b in zip(np.split(got, 4), np.split(best, 4), strict=True)]


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="requests; a multiple of four")
    parser.add_argument("--width", type=int, default=128, help="columns that features are hashed into")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13], help="worlds")
    given = parser.parse_args()
    print(
        f"{given.rounds} rounds, {given.width} columns: share of the best action's reward by quarter, mean of the seeds"
    )
    for spec in LEARNERS:
        began = time.perf_counter()
        found = np.mean([played(spec, seed, given.rounds, given.width) for seed in given.seeds], axis=0)
        print(f"| `{spec}` | {' | '.join(f'{share:.3f}' for share in found)} | {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
