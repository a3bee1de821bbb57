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


def test_neighbouring_events_do_not_overlap() -> None:
    streams = Rng(0)
    first = streams.for_event("rank", 0).random(5000)
    second = streams.for_event("rank", 1).random(5000)
    assert not set(first.tolist()) & set(second.tolist())


def test_an_event_is_the_third_word_of_the_counter() -> None:
    """What runs of all versions rest on: numpy's Philox at (0, 0, n, 0), its key a digest of seed and purpose."""
    digest = blake2b(b"7/rank", digest_size=16).digest()
    philox = np.random.Philox(key=np.frombuffer(digest, dtype="<u8").astype(np.uint64), counter=[0, 0, 1234, 0])
    assert Rng(7).for_event("rank", 1234).random(5).tolist() == np.random.Generator(philox).random(5).tolist()


def test_numbers_look_uniform() -> None:
    streams = Rng(12)
    draws = np.array([streams.for_event("user", n).random() for n in range(20_000)])
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = .001


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_bad_seed_is_named(seed: object) -> None:
    with pytest.raises(InvalidParameter, match=r"seed is .*"):
        Rng(seed)  # type: ignore[arg-type]
