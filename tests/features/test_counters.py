"""Counters are a fold: bounded, exact, and blind to where an item stood."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.core.errors import CodecError
from rankloop.core.types import Array
from rankloop.evaluation.position_bias import EVERY
from rankloop.features.counters import CLICKS, EXAMINATIONS, IMPRESSIONS, CountedOutcome, Counters
from rankloop.features.declarations import declaration
from rankloop.features.hashing import text_codes
from rankloop.features.keyed import LEAST, KeyedRows
from rankloop.kernels.certainty import block_swap_shares

DECLARED = [
    declaration({"name": "ctr", "kind": "rate", "by": "item", "window": "all"}),
    declaration({"name": "day", "kind": "rate", "by": "item", "window": "1d"}),
    declaration({"name": "mine", "kind": "count", "by": ["user", "item"], "window": "7d"}),
    declaration({"name": "again", "kind": "clicked", "of": "item", "last": 3}),
]


def outcomes(seed: int, count: int, items: int = 30, k: int = 5) -> list[CountedOutcome]:
    """Lists drawn at random, each swap as likely as itself, read from the top with less and less patience."""
    rng = np.random.default_rng(seed)
    codes, liked = text_codes([f"i{i}" for i in range(items)]), rng.uniform(0.1, 0.7, items)
    found = []
    for n in range(count):
        shown = rng.permutation(items)[:k]
        clicks = rng.random(k) < 0.6 ** np.arange(k) * liked[shown]
        notes = noted(codes[shown], user=int(rng.integers(1, 9)))
        found.append(CountedOutcome(1e9 + 600.0 * n, clicks.astype(np.float64), notes))
    return found


def noted(codes: Array, user: int = 0) -> dict[str, Array]:
    k = codes.size
    at = np.arange(k + 1, dtype=np.int32)
    notes = {"by/item": codes, "at/item": at, "shares": block_swap_shares(np.array([k]), k).astype(np.float32)}
    if user:
        notes |= {"user": np.array([user], np.uint64), "by/user,item": codes ^ np.uint64(user), "at/user,item": at}
    return notes


def folded(lists: list[CountedOutcome], capacity: int = 100_000) -> Counters:
    counters = Counters(DECLARED, capacity)
    for one in lists:
        counters.fold(one)
    return counters


def test_a_rebuilt_and_a_restored_fold_have_the_same_bits() -> None:
    lists = outcomes(1, 300)
    live = folded(lists)
    assert folded(lists).dumps() == live.dumps()
    restored = Counters(DECLARED)
    restored.loads(folded(lists[:100]).dumps())
    assert restored.folded == 100
    for one in lists[100:]:
        restored.fold(one)
    assert restored.dumps() == live.dumps()
    assert live.examination.lists > EVERY  # so that an estimate was made on the way


def test_bytes_of_other_declarations_are_refused() -> None:
    with pytest.raises(CodecError, match="other declarations"):
        Counters(DECLARED[:1]).loads(folded(outcomes(1, 3)).dumps())


def test_memory_is_bounded_and_what_was_longest_untouched_goes() -> None:
    counters = Counters(DECLARED[:1], LEAST)
    faithful = text_codes(["faithful"])
    for n in range(3 * LEAST // 4):
        codes = np.append(faithful, text_codes([f"{n}-{i}" for i in range(3)]))
        counters.fold(CountedOutcome(1e9, np.zeros(4), noted(codes)))
    assert counters.keys <= LEAST
    assert counters.evicted == 3 * (3 * LEAST // 4) + 2 - counters.keys  # and the faithful one, and all together
    assert counters.sums("all", "item", faithful, 1e9)[0, IMPRESSIONS] == 3 * LEAST // 4
    newest, oldest = text_codes([f"{3 * LEAST // 4 - 1}-0"]), text_codes(["0-0"])
    assert counters.sums("all", "item", newest, 1e9)[0, IMPRESSIONS] == 1
    assert counters.sums("all", "item", oldest, 1e9)[0, IMPRESSIONS] == 0
    again = Counters(DECLARED[:1], LEAST)
    again.loads(counters.dumps())
    assert again.dumps() == counters.dumps()


def test_rows_by_key_do_not_depend_on_restoring() -> None:
    rng = np.random.default_rng(3)
    live, restored = (KeyedRows(LEAST, seen=((), np.float64)) for _ in range(2))
    for turn in range(60):
        keys = rng.integers(0, 9000, 200).astype(np.uint64)
        for rows in (live, restored):
            there = rows.touch(keys, turn % 3)
            np.add.at(rows["seen"], there, 1.0)
        if turn % 7 == 0:
            state = restored.state()
            restored = KeyedRows(LEAST, seen=((), np.float64))
            restored.load(state)
        if turn % 20 == 0:
            assert live.forget(1) == restored.forget(1)
    assert live.evicted > 0
    for name, value in live.state().items():
        assert np.array_equal(value, restored.state()[name]), name


def test_late_and_unseen_slots() -> None:
    counters = Counters(DECLARED[1:2])
    codes = text_codes(["a", "b", "c"])
    counters.fold(CountedOutcome(1e9, np.array([1.0]), noted(codes), seen=2))  # the third was out of view
    sums = counters.sums("1d", "item", codes, 1e9)
    assert sums[:, IMPRESSIONS].tolist() == [1, 1, 0]
    assert sums[:, CLICKS].tolist() == [1, 0, 0]
    counters.fold(CountedOutcome(1e9 + 86400 * 3, np.zeros(0), noted(codes)))
    assert counters.sums("1d", "item", codes, 1e9 + 86400 * 3)[:, IMPRESSIONS].tolist() == [1, 1, 1]
    counters.fold(CountedOutcome(1e9, np.zeros(3), noted(codes)))
    assert counters.late == 4


def test_a_rate_does_not_depend_on_where_an_item_stood() -> None:
    """Two equal items, one mostly at the top and one mostly at the bottom: raw rates differ, ours do not."""
    rng = np.random.default_rng(7)
    codes, k = text_codes([f"i{i}" for i in range(6)]), 6
    seen = 0.7 ** np.arange(k)
    liked = np.array([0.3, 0.3, 0.5, 0.2, 0.4, 0.3])
    shares = block_swap_shares(np.array([k]), k)
    counters = Counters(DECLARED[:1])
    for n in range(20_000):
        order = rng.permutation(k)
        if n % 4:  # item 0 above item 1 in all but one of eight lists: someone else ordered these, no swap was likely
            a, b = np.flatnonzero(order == 0)[0], np.flatnonzero(order == 1)[0]
            if a > b:
                order[[a, b]] = order[[b, a]]
        clicks = (rng.random(k) < seen * liked[order]).astype(np.float64)
        notes = noted(codes[order])
        notes["shares"] = (np.zeros_like(shares) if n % 4 else shares).astype(np.float32)
        counters.fold(CountedOutcome(1e9 + n, clicks, notes))
    assert counters.examination.examination(k) == pytest.approx(seen, rel=0.1)
    sums = counters.sums("all", "item", codes, 1e9)
    raw, ours = sums[:, CLICKS] / sums[:, IMPRESSIONS], sums[:, CLICKS] / sums[:, EXAMINATIONS]
    noise = 4 * np.sqrt(1 / sums[0, CLICKS] + 1 / sums[1, CLICKS])
    assert raw[0] / raw[1] - 1 > 2 * noise
    assert abs(ours[0] / ours[1] - 1) < noise
    assert ours == pytest.approx(liked, rel=0.08)
