"""What pairwise learners learn from fixed clicks, to the bit: whoever makes them faster must not make them others.

The digests are those of the plain loops that came first. One that changes is a new learner to all who replay a log.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from rankloop.core.registry import make, parse_learner
from rankloop.core.rng import Rng
from rankloop.core.types import Candidates, Feedback

DIGESTS = {
    "pairrank": "e06689a81d51d2ce",
    "pairrank?init=base": "962f4b9e59910426",
    "pairrank?forget=0.98": "8ec5c978fd215389",
    "pairrank?pairs=matched&debias=plackett-luce": "87312da486c5cb05",
    "pairrank?debias=none&tempered=false": "6875c2a005311f0b",
    "pairrank?confidence=diagonal": "186ee00c02c17ca6",
    "pairrank?update=refit": "daa710d6e1464fe1",
    "hybrid": "bdf68fba3048ad45",
    "hybrid?init=base&forget=0.99": "cbddc303ac055d47",
    "adaptive": "2b1b03914fba48f5",
}


def digest(spec: str) -> str:
    """Of the state after 120 lists."""
    name, parameters = parse_learner(spec)
    learner, streams, found = make(name, **parameters), Rng(17), blake2b(digest_size=8)
    for t in range(120):
        world = streams.for_event("world", t)
        q = int(world.integers(6))
        table = np.random.Generator(np.random.Philox(q)).integers(-8, 9, (12, 9)) / 8.0
        shown = learner.rank(Candidates(f"q{q}", None, table), 7, streams.for_event("rank", t))
        clicks = (world.integers(0, 4, 7) == 0).astype(np.float64)
        learner.learn(shown, Feedback.clicks(clicks), streams.for_event("learn", t))
    for name, array in sorted(learner.state().items()):
        found.update(f"{name}{array.dtype}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("spec", DIGESTS)
def test_the_state_is_what_it_always_was(spec: str) -> None:
    assert digest(spec) == DIGESTS[spec]
