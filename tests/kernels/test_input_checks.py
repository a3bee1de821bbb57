"""Checks of input against plain Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.kernels import input_checks
from rankloop.kernels.input_checks import entry_counts
from tests.kernels.inputs import SEEDS, frozen


@given(SEEDS, st.integers(1, 6), st.integers(1, 9), st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e308, -1e308]))
def test_a_table_is_finite_if_all_of_it_is(seed: int, m: int, d: int, odd: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    rows[rng.integers(m), rng.integers(d)] = odd
    assert input_checks.all_finite(frozen(rows)) == np.isfinite(rows).all()


ANY = 10**9
COUNTED = ("candidates", "ids", "items", "actions")
TEXT = st.text(st.sampled_from('ab"\\,[]{}: é'), max_size=5)
VALUES = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


def counts(document: bytes, entries: int = ANY, values: int = ANY) -> tuple[int, int]:
    longest, found = entry_counts(np.frombuffer(document, np.uint8), entries, values)
    return int(longest), int(found)


def naive(value: Any) -> tuple[int, int]:
    """The same by a parser: an empty array counts as one, and so does the document."""
    lists = [value] if isinstance(value, list) else []
    if isinstance(value, dict):
        lists = [value[name] for name in COUNTED if isinstance(value.get(name), list)]

    def commas(part: Any) -> int:
        inner = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
        return max(0, len(inner) - 1) + sum(map(commas, inner))

    return max((max(1, len(one)) for one in lists), default=0), commas(value) + 1


@given(VALUES | st.dictionaries(st.sampled_from([*COUNTED, "features", "excluded"]), VALUES))
def test_counts_agree_with_a_parser(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert counts(text.encode()) == naive(value)


@pytest.mark.parametrize("name", COUNTED)
def test_counting_stops_at_the_first_entry_over_the_limit(name: str) -> None:
    document = b'{"%s": [' % name.encode() + b"1, " * 100
    assert counts(document, entries=7)[0] == 8
    assert counts(document, values=5)[1] == 6
    assert counts(document)[0] == 101


@given(st.binary(max_size=60))
def test_any_bytes_can_be_counted(document: bytes) -> None:
    longest, values = counts(document)
    assert 0 <= longest <= values <= len(document) + 1
