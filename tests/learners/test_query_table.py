"""The table of queries against dictionaries that do the same."""

from __future__ import annotations

import itertools
import string
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.kernels.queries import fingerprints
from rankloop.learners.query_table import Column, QueryTable, item_codes, pair_count

FIELDS = {
    "level": Column("query", np.float64, 0.5),
    "clicks": Column("item", np.int32, 2),
    "wins": Column("pair", np.int32, -7),
}


class Naive:
    """A dictionary of queries, each a dictionary of items and one of pairs; oldest first."""

    def __init__(self, max_queries: int, max_items: int) -> None:
        self.max_queries, self.max_items = max_queries, max_items
        self.queries: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def enter(self, query: str, items: list[int]) -> None:
        if query not in self.queries and len(self.queries) == self.max_queries:
            self.queries.popitem(last=False)
        entry = self.queries.setdefault(
            query, {"level": 0.5, "rounds": 0, "items": [], "clicks": {}, "seen": {}, "wins": {}}
        )
        self.queries.move_to_end(query)
        entry["rounds"] += 1
        for item in items:
            if item in entry["items"]:
                continue
            if len(entry["items"]) < self.max_items:
                entry["items"].append(item)
            else:
                absent = [old for old in entry["items"] if old not in items]
                if not absent:
                    continue
                oldest = min(absent, key=lambda old: entry["seen"][old])  # of equally old ones the first
                entry["items"][entry["items"].index(oldest)] = item
                del entry["clicks"][oldest], entry["seen"][oldest]
                entry["wins"] = {pair: won for pair, won in entry["wins"].items() if oldest not in pair}
            entry["wins"] |= {frozenset((item, other)): -7 for other in entry["clicks"]}
            entry["clicks"][item] = 2
        entry["seen"] |= {item: entry["rounds"] for item in items if item in entry["clicks"]}


def held(table: QueryTable, query: str) -> dict[str, Any] | None:
    """What the table says of a query, in the form of the naive one."""
    slot = table.find(query)
    if slot < 0:
        return None
    items = table.items(slot).tolist()
    level, clicks, wins = (view.tolist() for view in table.values(slot))
    pairs = {frozenset((items[i], items[j])): wins[pair_count(j) + i] for j in range(len(items)) for i in range(j)}
    return {
        "level": level[0],
        "rounds": table.rounds(slot),
        "clicks": dict(zip(items, clicks, strict=True)),
        "wins": pairs,
    }


def change(table: QueryTable, naive: Naive, query: str, items: list[int], rng: np.random.Generator) -> None:
    """The same event for both: some items come, and some numbers of theirs change."""
    slot, numbers, fresh = table.enter(query, np.array(items))
    naive.enter(query, items)
    entry = naive.queries[query]
    level, clicks, wins = table.values(slot)
    level += 1.0
    entry["level"] += 1.0
    for item, number, new in zip(items, numbers.tolist(), fresh.tolist(), strict=True):
        assert (number >= 0) == (item in entry["clicks"])
        assert not new or clicks[number] == 2
    known = [(item, number) for item, number in zip(items, numbers.tolist(), strict=True) if number >= 0]
    for item, number in known:
        step = int(rng.integers(5))
        clicks[number] += step
        entry["clicks"][item] += step
    for (a, i), (b, j) in itertools.pairwise(known):
        step = int(rng.integers(5))
        wins[pair_count(max(i, j)) + min(i, j)] += step
        entry["wins"][frozenset((a, b))] += step


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 7), st.booleans())
def test_a_table_is_a_dictionary_of_dictionaries(seed: int, max_queries: int, max_items: int, restart: bool) -> None:
    rng = np.random.default_rng(seed)
    table, naive = QueryTable(FIELDS, max_queries, max_items), Naive(max_queries, max_items)
    names = [f"q{i}" for i in range(9)]
    for step in range(80):
        count = int(rng.integers(1, 10))
        items = rng.permutation(12)[:count].tolist()
        change(table, naive, names[int(rng.integers(9))], items, rng)
        for name in names:
            wanted = naive.queries.get(name)
            assert held(table, name) == (wanted and {key: wanted[key] for key in ("level", "rounds", "clicks", "wins")})
        assert len(table) == len(naive.queries) <= max_queries
        assert table.used["item"] <= 2 * table.live["item"]
        assert table.used["pair"] <= 2 * table.live["pair"]
        if restart and step % 7 == 3:
            arrays, _ = codec.loads(codec.dumps(table.state()))
            again = QueryTable(FIELDS, max_queries, max_items)
            again.load(arrays)
            assert all((again.state()[name] == array).all() for name, array in table.state().items())
            table = again


def test_looking_changes_nothing() -> None:
    table = QueryTable(FIELDS, 3, 4)
    for t in range(5):
        table.enter(f"q{t}", np.arange(t + 1))
    before = {name: array.tobytes() for name, array in table.state().items()}
    for query in ("q4", "q0", "never"):
        slot = table.find(query)
        table.values(slot), table.items(slot), table.rounds(slot), table.numbers(slot, np.arange(9))
    assert before == {name: array.tobytes() for name, array in table.state().items()}


def test_a_query_never_seen_is_cold() -> None:
    table = QueryTable(FIELDS, 3, 4)
    level, clicks, wins = table.values(table.find("q"))
    assert (level.tolist(), clicks.size, wins.size, table.rounds(-1)) == ([0.5], 0, 0, 0)
    assert table.numbers(-1, np.array([1, 2])).tolist() == [-1, -1]


@given(st.lists(st.text(string.printable + "äß€😀", max_size=12), unique=True, min_size=1, max_size=30))
def test_fingerprints_tell_strings_apart_whatever_else_stands_in_the_list(texts: list[str]) -> None:
    texts = [text.rstrip("\0") for text in texts]
    codes = item_codes(np.array(texts))
    assert len(set(codes.tolist())) == len(set(texts))
    assert (codes < 0).all()  # integer ids are mostly not negative, so the two kinds keep apart
    alone = [item_codes(np.array([text]))[0] for text in texts]
    assert alone == codes.tolist()


def test_a_fingerprint_is_two_polynomials() -> None:
    def by_hand(text: str, base: int) -> int:
        value = 1
        for letter in text:
            value = value * base + ord(letter) + 1
        return value % (2**31 - 1)

    letters = np.array(["aß", "c"]).view(np.int32)
    wanted = [-1 - (by_hand(text, 1_193_910_307) * 2**31 + by_hand(text, 748_239_553)) for text in ("aß", "c")]
    assert fingerprints(letters, 2).tolist() == wanted


def some_table() -> QueryTable:
    table = QueryTable({"order": Column("item", holds="permutation"), "wins": Column("pair")}, 4, 6)
    for t in range(9):
        slot, _, _ = table.enter(f"q{t % 5}", np.arange(1 + t % 4))
        order = table.values(slot)[0]
        order[:] = np.arange(order.size)[::-1]
    return table


Change = tuple[str, int, int]


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("queries_", 0, None),
        ("sizes_", 1, 40),
        ("sizes_", 1, -1),
        ("rooms_", 2, 0),
        ("rooms_", 2, 99),
        ("starts_", 3, -1),
        ("starts_", 3, 10**6),
        ("pair_starts_", 3, 10**6),
        ("older_", 0, 0),
        ("older_", 0, 77),
        ("newer_", 1, -1),
        ("newer_", 1, 10**6),
        ("rounds_", 0, -2),
        ("order_", 0, 5),
        ("order_", 1, -1),
    ],
)
def test_a_state_that_is_no_table_is_refused_and_changes_nothing(name: str, at: int, value: int | None) -> None:
    table = some_table()
    before = table.state()
    table.load(before)
    wrong = {key: array.copy() for key, array in before.items()}
    wrong[name][at] = wrong[name][at + 1] if value is None else value
    with pytest.raises(InvalidInput):
        table.load(wrong)
    assert all((table.state()[key] == array).all() for key, array in before.items())


def test_a_state_of_larger_bounds_is_refused() -> None:
    state = some_table().state()
    fields = {"order": Column("item", holds="permutation"), "wins": Column("pair")}
    with pytest.raises(InvalidInput, match="max_queries is 3"):
        QueryTable(fields, 3, 6).load(state)
    with pytest.raises(InvalidInput, match="max_items is 2"):
        QueryTable(fields, 4, 2).load(state)


def blocks_of(table: QueryTable) -> Array:
    return table.arrays["starts"][: table.used["query"]]


def test_a_slot_that_becomes_free_is_used_again_in_place() -> None:
    table = QueryTable(FIELDS, 3, 10)
    for t in range(50):
        table.enter(f"q{t}", np.arange(5))
    assert table.used == {"query": 3, "item": 15, "pair": 30}
    assert sorted(blocks_of(table).tolist()) == [0, 5, 10]


def test_a_small_query_does_not_keep_the_block_of_a_large_one() -> None:
    table = QueryTable(FIELDS, 2, 50)
    for t in range(20):
        table.enter(f"q{t}", np.arange(40 if t < 2 else 3))
    assert table.live == {"item": 6, "pair": 6}
    assert table.used["item"] <= 12
