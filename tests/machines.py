"""Every learner in a small world; as a program it prints what was shown, noted and learned, to compare machines.

`python -m tests.machines [NAME …]` prints a digest of each as JSON. Beside that it compiles most kernels, which is why
`make test` begins with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from rankloop.core.registry import LEARNERS, make
from rankloop.core.types import Array, Candidates, Feedback
from tests.test_contract import CONFIGURATIONS

ROUNDS, K, WIDTH = 60, 10, 33
SIZES = (5, 24, 40, 11)  # candidates of each query: fewer than are shown, and numbers that no vector unit divides


def digest(arrays: Iterable[Array]) -> str:
    """Of types, shapes and every bit."""
    made = blake2b(digest_size=8)
    for array in arrays:
        made.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def played(name: str, parameters: dict[str, Any]) -> dict[str, str]:
    """What a learner shows, notes in its memo and learns in some rounds with users who like high grades.

    The users' choices come from numbers drawn ahead and whole grades: they do not hang on the machine.
    """
    learner = make(name, **parameters)
    world, user = np.random.default_rng(5), np.random.default_rng(2)
    queries = [(f"q{q}", world.random((n, WIDTH)), world.integers(0, 5, n)) for q, n in enumerate(SIZES)]
    if hasattr(learner, "fit"):
        ends = np.concatenate([[0], np.cumsum(SIZES)])
        learner.fit(np.concatenate([q[1] for q in queries]), np.concatenate([q[2] for q in queries]), ends)
    shown, noted = [], []
    for t in range(ROUNDS):
        query, rows, grades = queries[user.integers(len(queries))]
        chances = user.random(K)
        impression = learner.rank(Candidates(query, features=rows), K, np.random.default_rng([1, t]))
        shown.append(impression.order)
        noted += [impression.memo[note] for note in sorted(impression.memo)]
        found = grades[impression.order]
        if learner.feedback == "grades":
            feedback = Feedback("grades", found.astype(np.float64))
        else:
            feedback = Feedback.clicks((chances[: len(found)] < 0.05 + 0.22 * found).astype(np.float64))
        learner.learn(impression, feedback, np.random.default_rng([2, t]))
    state = learner.state()
    return {"shown": digest(shown), "noted": digest(noted), "learned": digest(state[key] for key in sorted(state))}


def main(names: list[str]) -> None:
    found = {}
    for name, parameters in [*((name, {}) for name in LEARNERS), *CONFIGURATIONS]:
        title = f"{name}{parameters or ''}"
        if not names or title in names:
            found[title] = played(name, parameters)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
