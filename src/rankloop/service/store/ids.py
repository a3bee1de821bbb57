"""Impression ids: 26 letters and digits that sort by time, do not collide, and cannot be guessed from others."""

from __future__ import annotations

import os
import time

CHANCE = 10  # bytes an id
AT_ONCE = 256  # ids; a call to the system for each would hand the interpreter to another thread
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread
_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # as Python reads numbers to the base of 32
_ready: list[bytes] = []  # chance of the system's own that no id has used yet; `pop` is atomic
os.register_at_fork(after_in_child=_ready.clear)


def new_id(now: float | None = None) -> str:
    """48 bits of milliseconds, so that inserts go to the end of an index; 80 bits of chance, as keys are made of:
    whoever may report on his own list must not find out the ids of others.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    milliseconds = int((time.time() if now is None else now) * 1000) & (2**48 - 1)
    value = milliseconds << 80 | int.from_bytes(_chance(), "big")
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def created_at(identifier: str) -> float:
    """When an id was made, in seconds of Unix time, to the millisecond.

    >>> created_at(new_id(1234.567))
    1234.567
    """
    return (int(identifier.translate(_DIGITS), 32) >> 80) / 1000


def _chance() -> bytes:
    try:
        return _ready.pop()
    except IndexError:
        drawn = os.urandom(CHANCE * AT_ONCE)
        _ready.extend(drawn[at : at + CHANCE] for at in range(CHANCE, len(drawn), CHANCE))
        return drawn[:CHANCE]
