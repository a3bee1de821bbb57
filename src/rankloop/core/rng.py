"""Randomness as a function: `Streams(seed).at(purpose, n)` is the generator of event n, whatever happened before.

A run is then a function of seed, data and feedback, bit for bit: events can be replayed, skipped or computed in
another process and still see the same numbers. The generator is counter-based (Philox): purpose and seed make its
key, the event number its counter, so going to event n costs a microsecond and no two events share numbers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidParameter


class Streams:
    """The random streams of one seed, one for each purpose.

    The generator that `at` returns is reused: it is good until the next `at` with the same purpose.

    Examples
    --------
    >>> streams = Streams(7)
    >>> first = streams.at("rank", 3).random()
    >>> _ = streams.at("rank", 4).random()
    >>> streams.at("rank", 3).random() == first, streams.at("learn", 3).random() == first
    (True, False)
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise InvalidParameter(f"seed is {seed!r}; it must be an integer of at least 0")
        self.seed = int(seed)
        self._open: dict[str, tuple[np.random.Generator, np.random.Philox, Any, Any]] = {}

    def at(self, purpose: str, n: int) -> np.random.Generator:
        """The generator of event `n` >= 0 for `purpose`, at its start."""
        try:
            generator, philox, state, counter = self._open[purpose]
        except KeyError:
            generator, philox, state, counter = self._open[purpose] = self._new(purpose)
        counter[2] = n  # the two words below count the numbers drawn: 2**130 an event
        philox.state = state  # also empties the buffer of the event before
        return generator

    def key(self, purpose: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """(2,) the key of the Philox generator of `purpose`; with an event's number it says all its numbers."""
        digest = blake2b(f"{self.seed}/{purpose}".encode(), digest_size=16).digest()
        return np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    def _new(self, purpose: str) -> tuple[np.random.Generator, np.random.Philox, Any, Any]:
        philox = np.random.Philox(key=self.key(purpose))
        state: Any = philox.state
        # Plain numbers: numpy reads a state number by number, out of lists in half the time that arrays take.
        state["buffer"] = state["buffer"].tolist()
        state["state"] = {name: words.tolist() for name, words in state["state"].items()}
        return np.random.Generator(philox), philox, state, state["state"]["counter"]
