"""Impression ids: 26 letters and digits that sort by time and cannot be guessed."""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread


def new_id(now: float | None = None) -> str:
    """48 bits of milliseconds, 80 bits of chance; inserts then go to the end of an index.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    milliseconds = int((time.time() if now is None else now) * 1000) & (2**48 - 1)
    value = milliseconds << 80 | int.from_bytes(os.urandom(10))
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
