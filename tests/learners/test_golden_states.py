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
    "pairrank": "6a8d28a198804817",
    "pairrank?init=base": "ad8aafd882346cff",
    "pairrank?forget=0.98": "79370cc048e11ff4",
    "pairrank?pairs=matched&explore=blocks": "2c034f3f569690ae",
    "pairrank?confidence=diagonal": "1b2985de7eade6b5",
    "pairrank@paper": "91bcdd63d585e6a4",
    "hybrid": "0a831129e286f742",
    "hybrid?init=base&forget=0.99": "1a03b3a9c3999312",
    "adaptive": "c94feba3176477c9",
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
