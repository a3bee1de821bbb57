"""Random numbers as a function of seed, purpose and event number."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter


def as_rng(rng: np.random.Generator | int) -> np.random.Generator:
    """Return a generator: the given one, or that of a seed.

    >>> as_rng("now")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.InvalidInput: rng is 'now'; give a numpy.random.Generator, or a whole number of at least 0
    as seed
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise InvalidInput(f"rng is {rng!r}; give a numpy.random.Generator, or a whole number of at least 0 as seed")


class Rng:
    """Random generators of one seed, one for each purpose and event.

    `Rng(seed).for_event(purpose, n)` is a function of its arguments: events can be replayed, skipped or computed in
    another process. It is counter-based (Philox), so going to event n takes about a microsecond. The returned generator
    is reused: it is valid until the next `for_event` with the same purpose.

    Examples
    --------
    >>> rng = Rng(7)
    >>> first = rng.for_event("rank", 3).random()
    >>> _ = rng.for_event("rank", 4).random()
    >>> rng.for_event("rank", 3).random() == first, rng.for_event("learn", 3).random() == first
    (True, False)
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise InvalidParameter(f"seed is {seed!r}; it must be an integer of at least 0")
        self.seed = int(seed)
        self._open: dict[str, tuple[np.random.Generator, np.random.Philox, Any, Any]] = {}

    def for_event(self, purpose: str, n: int) -> np.random.Generator:
        """Return the generator of event `n` >= 0 for `purpose`, at its start."""
        try:
            generator, philox, state, counter = self._open[purpose]
        except KeyError:
            generator, philox, state, counter = self._open[purpose] = self._new(purpose)
        counter[2] = n  # the two words below count the numbers drawn: 2**130 per event
        philox.state = state  # also empties the buffer of the event before
        return generator

    def key(self, purpose: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the (2,) key of the Philox generator of `purpose`."""
        digest = blake2b(f"{self.seed}/{purpose}".encode(), digest_size=16).digest()
        return np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    def _new(self, purpose: str) -> tuple[np.random.Generator, np.random.Philox, Any, Any]:
        philox = np.random.Philox(key=self.key(purpose))
        state: Any = philox.state
        # Plain numbers: numpy reads a state number by number, out of lists in half the time that arrays take.
        state["buffer"] = state["buffer"].tolist()
        state["state"] = {name: words.tolist() for name, words in state["state"].items()}
        return np.random.Generator(philox), philox, state, state["state"]["counter"]
