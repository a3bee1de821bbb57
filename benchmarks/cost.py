"""What remembering queries and starting as the caller's order cost: `python -m benchmarks.cost`.

Processor time of `rank` and `learn`, in microseconds a list, and how many times that of the plain learner the sum is:
`pairrank` or `pdgd`, from zero. 50 queries come again and again (so that `hybrid` finds what it remembers), ten
documents are shown, users are navigational. Learners take turns of 100 lists and the medians over turns count, so that
what else the machine does meets all alike. Ids are strings, as a service has them, unless `--ids integer`.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from time import thread_time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.clicks.users import open_user
from rankloop.core.learner import Learner
from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates
from rankloop.lab.datasets.sources import open_split

LEARNERS = {  # and whom each is compared with
    "pairrank": "pairrank",
    "pairrank?init=base": "pairrank",
    "hybrid": "pairrank",
    "hybrid?init=base": "pairrank",
    "adaptive": "pairrank",
    "pdgd": "pdgd",
    "pdgd?init=base": "pdgd",
}
SHAPES = {"100 x 136": "docs=100&features=136", "20 x 20": "docs=20&features=20"}
QUERIES, TURN, K = 50, 100, 10


def measured(shape: str, turns: int, ids: str, seed: int) -> dict[str, Array]:
    """(turns, 2) microseconds of a rank and of a learn, by learner; a first turn, which warms up, is left out."""
    data = open_split(f"synthetic:mslr?queries={QUERIES}&sizes=fixed&vali=1&test=1&{SHAPES[shape]}").train
    user, streams = open_user("navigational", data.highest_grade), Rng(seed)
    known = [data.candidates(q) for q in range(len(data))]
    if ids == "text":
        known = [
            Candidates(one.query, [f"{one.query}/document-{item}" for item in one.items], one.features) for one in known
        ]
    learners: dict[str, Learner] = {spec: _made(spec) for spec in LEARNERS}
    spent = {spec: np.zeros((turns + 1, 2)) for spec in LEARNERS}
    for turn in range(turns + 1):
        for spec, learner in learners.items():
            for t in range(turn * TURN, (turn + 1) * TURN):
                q = int(streams.for_event("world", t).integers(len(known)))
                chance = streams.for_event("rank", t)
                begun = thread_time()
                shown = learner.rank(known[q], K, chance)
                spent[spec][turn, 0] += thread_time() - begun
                told = user.react(data.grades_of(q)[shown.order], streams.for_event("user", t))
                chance = streams.for_event("learn", t)
                begun = thread_time()
                learner.learn(shown, told, chance)
                spent[spec][turn, 1] += thread_time() - begun
    return {spec: 1e6 * values[1:] / TURN for spec, values in spent.items()}


def _made(spec: str) -> Learner:
    name, parameters = parse_learner(spec)
    return make(name, **parameters)


def main() -> None:
    """Print the table."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--turns", type=int, default=30)
    options.add_argument("--ids", choices=("text", "integer"), default="text")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    rows: dict[str, dict[str, str]] = {spec: {"learner": spec} for spec in LEARNERS}
    for shape in SHAPES:
        spent = measured(shape, given.turns, given.ids, given.seed)
        for spec, plain in LEARNERS.items():
            rank, learn = np.median(spent[spec], axis=0)
            ratio = np.median(spent[spec].sum(1) / spent[plain].sum(1))
            rows[spec][f"{shape}: rank, learn µs"] = f"{rank:.0f}, {learn:.0f}"
            rows[spec][f"{shape}: times plain"] = "" if spec == plain else f"{ratio:.2f}"
    print(f"Machine: {machine()}; {given.turns} turns of {TURN} lists, {given.ids} ids, seed {given.seed}\n")
    print_rows(list(rows.values()))


if __name__ == "__main__":
    main()
