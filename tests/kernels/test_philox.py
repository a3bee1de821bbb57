"""The numbers of many events at once are those of `Rng`, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.rng import Rng
from rankloop.kernels.philox import uniforms


@given(st.integers(0, 10**6), st.sampled_from(["rank", "world"]), st.integers(0, 2**40), st.integers(1, 30))
def test_they_are_those_of_the_streams(seed: int, purpose: str, first: int, width: int) -> None:
    streams, found = Rng(seed), np.empty((3, width))
    uniforms(streams.key(purpose), first, found)
    wanted = np.array([streams.for_event(purpose, first + i).random(width) for i in range(3)])
    assert found.tobytes() == wanted.tobytes()
