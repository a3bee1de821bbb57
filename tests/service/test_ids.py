"""Impression ids: plain, sorted by time, never the same."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.service.storage import ids as storage_ids
from rankloop.service.storage.ids import new_id

TIMES = st.floats(0, 2**47 / 1000, allow_nan=False)


def test_ids_are_plain_and_unique() -> None:
    ids = [new_id() for _ in range(5000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", one) for one in ids)


@given(TIMES, TIMES)
def test_later_ids_sort_later(one: float, other: float) -> None:
    if int(one * 1000) != int(other * 1000):
        assert (new_id(one) < new_id(other)) == (one < other)


def test_ids_use_random_bytes_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that can be worked out from what it gave would tell one user the ids of the next."""
    drawn = bytes(range(256)) * 10
    monkeypatch.setattr(storage_ids, "_random", [])
    monkeypatch.setattr(os, "urandom", lambda size: drawn[:size])
    values = []
    for _ in range(storage_ids.BATCH):
        value = 0
        for letter in new_id(0.0):
            value = value << 5 | "0123456789abcdefghjkmnpqrstvwxyz".index(letter)
        values.append(value.to_bytes(10, "big"))
    assert b"".join(sorted(values)) == b"".join(sorted(drawn[at : at + 10] for at in range(0, 2560, 10)))


def test_forked_process_does_not_repeat_ids() -> None:
    new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(writing, new_id(0.0).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 26).decode()
    os.close(reading)
    os.close(writing)
    assert theirs not in {new_id(0.0) for _ in range(storage_ids.BATCH)}
