"""A table says what a dictionary of dictionaries would say, whatever was put in, replaced and taken out before."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput
from rankloop.features.table import FIRST, Table

NUMBERS = st.floats(-1e6, 1e6)
WORDS = st.sampled_from(["", "red", "blue", "green", "a b", "b c a"])
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "price": NUMBERS,
        "sold": st.booleans(),
        "brand": WORDS,
        "tags": st.lists(WORDS, max_size=4),
        "place": st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=2),
        "title": WORDS,
    },
)
STEPS = st.lists(st.tuples(st.integers(0, 40), st.none() | ITEM), max_size=120)


def told(values: dict[str, Any], lists_known: bool) -> dict[str, Any]:
    """What a table should give back of an item."""
    found: dict[str, Any] = {name: float(value) if isinstance(value, bool) else value for name, value in values.items()}
    if "tags" in found:
        found["tags"] = list(dict.fromkeys(found["tags"]))
        if not found["tags"] and not lists_known:
            del found["tags"]  # an empty list says nothing of a field that nobody knows
    return found


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_table_is_a_dictionary_of_dictionaries(steps: list[tuple[int, dict[str, Any] | None]]) -> None:
    table, twin = Table(), dict[str, dict[str, Any]]()
    table.derive("words", "title", str.split)
    for item, values in steps:
        if values is None:
            assert table.delete(item) == (twin.pop(str(item), None) is not None)
        else:
            table.upsert(item, values)
            twin[str(item)] = told(values, "tags" in table.fields)
    assert len(table) == len(twin)
    assert sorted(table.ids) == sorted(twin)
    for name, known in twin.items():
        assert table.get(name) == known
    rows = table.rows([str(item) for item in range(42)])
    assert (rows >= 0).tolist() == [str(item) in twin for item in range(42)]
    assert len(set(rows[rows >= 0].tolist())) == len(twin)
    assert np.array_equal(rows, table.rows(range(42)))
    if "price" in table.fields:
        wanted = [twin.get(str(item), {}).get("price", math.nan) for item in range(42)]
        np.testing.assert_array_equal(table.numbers("price")[rows], wanted)
    if "tags" in table.fields:
        counts = table.lists("tags").vocabulary.counts
        for word in ("red", "blue"):
            code = table.lists("tags").vocabulary.code(word)
            assert (counts[code] if code >= 0 else 0) == sum(word in one.get("tags", []) for one in twin.values())
    for name, known in twin.items():
        title = known.get("title")
        row = int(table.rows([name])[0])
        assert table.lists("words").get(row) == (None if title is None else list(dict.fromkeys(title.split())))


def test_the_row_of_an_unknown_id_reads_as_missing_in_every_column_however_often_the_table_grew() -> None:
    table = Table()
    for item in range(5 * FIRST):
        table.upsert(item, {"n": item, "s": "x", "l": ["y"], "v": [1.0, 2.0]})
    assert np.isnan(table.numbers("n")[-1])
    assert table.strings("s").codes[-1] == -1
    assert table.lists("l").starts[-1] == -1
    assert table.lists("l").lengths[-1] == 0
    assert np.isnan(table.vectors("v")[-1]).all()


def test_rows_codes_and_stretches_of_the_pool_are_used_again() -> None:
    table = Table()
    for turn in range(3000):
        table.upsert(turn % 10, {"name": f"name {turn}", "tags": [f"{turn}", f"{turn + 1}"]})
        if turn % 3 == 0:
            table.delete(turn % 10)
    assert len(table.strings("name").codes) == FIRST + 1
    assert len(table.strings("name").vocabulary.words) <= 11
    assert len(table.lists("tags").pool) <= 128
    assert table.nbytes < 10_000


def test_a_value_of_another_kind_is_refused_and_nothing_of_the_item_is_taken() -> None:
    table = Table()
    table.upsert("a", {"price": 3, "when": "2026-03-01T12:00:00Z", "vector": [1, 2]})
    assert table.get("a") == {"price": 3.0, "when": 1772366400.0, "vector": [1.0, 2.0]}
    for values, text in (
        ({"price": "3"}, "field 'price' holds numbers, but here it is '3'"),
        ({"price": True}, "field 'price' holds numbers, but here it is True"),
        ({"price": math.inf}, "field 'price' is inf; numbers must be finite"),
        ({"price": [1.0]}, "field 'price' holds numbers"),
        ({"when": "tomorrow"}, "field 'when' holds times as RFC 3339"),
        ({"vector": [1, 2, 3]}, "field 'vector' holds vectors of 2 numbers, but here are 3"),
        ({"vector": ["1", "2"]}, "field 'vector' holds lists of finite numbers"),
        ({"new": {"a": 1}}, "flatten objects"),
        ({"mixed": [1, "a"]}, "field 'mixed' holds lists of finite numbers"),
        ({"": 1}, "names have 1 to 128 characters"),
    ):
        with pytest.raises(InvalidInput, match=text.replace("(", r"\(")):
            table.upsert("a", {"fresh": 1.0, **values})
    assert "fresh" not in table.fields
    assert table.get("a") == {"price": 3.0, "when": 1772366400.0, "vector": [1.0, 2.0]}


def test_the_size_is_bounded() -> None:
    table = Table(most_rows=2)
    table.upsert(1, {"a": 1})
    table.upsert(2, {"a": 1})
    table.upsert(2, {"a": 2})
    with pytest.raises(InvalidInput, match="one more than 2 items"):
        table.upsert(3, {"a": 1})
    table.delete(1)
    table.upsert(3, {"a": 1})
    small = Table(most_bytes=100_000)
    wide = {f"f{j}": 1.0 for j in range(50)}
    for item in range(150):
        small.upsert(item, wide)
    small.reserve(200)
    with pytest.raises(InvalidInput, match=r"the limit is 100,000"):
        small.reserve(1000)
    assert len(small) == 150
    assert small.nbytes <= 100_000
