"""Impression ids: 26 letters and digits that sort by time and do not collide."""

from __future__ import annotations

import os
import random
import time

_chance = random.Random(os.urandom(32))  # a call to the system for every id would hand the interpreter to others
os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread


def new_id(now: float | None = None) -> str:
    """48 bits of milliseconds, 80 bits of chance; inserts then go to the end of an index.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    milliseconds = int((time.time() if now is None else now) * 1000) & (2**48 - 1)
    value = milliseconds << 80 | _chance.getrandbits(80)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
