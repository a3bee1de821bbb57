"""Randomness is a function of seed, purpose and event number."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng


def test_an_event_has_the_same_numbers_whatever_was_drawn_before() -> None:
    fresh = Rng(3).for_event("rank", 5).random(8)
    used = Rng(3)
    used.for_event("rank", 4).random(1000)
    used.for_event("rank", 9).integers(10, size=3, dtype=np.uint32)  # leaves half a word in numpy's buffer
    assert (used.for_event("rank", 5).random(8) == fresh).all()
    assert (used.for_event("rank", 5).random(8) == fresh).all()


def test_seeds_purposes_and_events_have_different_numbers() -> None:
    draws = {
        Rng(seed).for_event(purpose, n).random()
        for seed in (0, 1, 2**70)
        for purpose in ("rank", "learn")
        for n in (0, 1, 2**63 - 1)
    }
    assert len(draws) == 18


def test_an_event_is_the_third_word_of_the_counter() -> None:
    """What runs of all versions rest on: numpy's Philox at (0, 0, n, 0), its key a digest of seed and purpose."""
    digest = blake2b(b"7/rank", digest_size=16).digest()
    philox = np.random.Philox(key=np.frombuffer(digest, dtype="<u8").astype(np.uint64), counter=[0, 0, 1234, 0])
    assert Rng(7).for_event("rank", 1234).random(5).tolist() == np.random.Generator(philox).random(5).tolist()


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_bad_seed_is_named(seed: object) -> None:
    with pytest.raises(InvalidParameter, match=r"seed is .*"):
        Rng(seed)  # type: ignore[arg-type]
