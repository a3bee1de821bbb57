"""Kernels of the click bandits and of the table of queries against their twins."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankloop.kernels import bandits, batchrank, bubblerank, cascade, queries, toprank
from rankloop.kernels.click_models import BROWSING, CASCADE, CHAIN, POSITION, ClickParameters, expected_clicks
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import bandits as naive

ONE, TABLE = np.ones(1), np.ones((1, 1))


# -- confidence ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**7), st.floats(0, 1), st.floats(0.1, 100))
@example(2, 0.5, 60.0)  # a bound so near to 1 that no number is nearer
@example(3, 1 / 3, 0.0)
def test_kl_bounds_are_what_bisection_finds(count: int, share: float, budget: float) -> None:
    rate = round(share * count) / count
    upper, lower = bandits.kl_upper(rate, count, budget), bandits.kl_lower(rate, count, budget)
    assert upper == pytest.approx(naive.kl_upper(rate, count, budget), abs=1e-10)
    assert lower == pytest.approx(naive.kl_lower(rate, count, budget), abs=1e-10)
    assert lower <= rate <= upper


# -- what a list is worth ------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 9), st.integers(1, 12))
def test_short_cuts_to_expected_clicks_are_exact(seed: int, k: int, top: int) -> None:
    rng = np.random.default_rng(seed)
    attraction, examination = frozen(rng.random(k + 2)), frozen(rng.random((k, 1)))
    shown, work = positions(rng.permutation(k + 2)[:k]), np.zeros((3, k + 1))
    reader = ClickParameters(CASCADE, attraction, frozen(np.zeros(k + 2)), ONE, 1.0, TABLE)
    looker = ClickParameters(POSITION, attraction, ONE, ONE, 1.0, examination)
    assert bandits.cascade_clicks(attraction, shown, top) == pytest.approx(expected_clicks(reader, shown, top, work))
    found = bandits.position_clicks(attraction, examination, shown, top)
    assert found == pytest.approx(expected_clicks(looker, shown, top, work))


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 6), st.integers(1, 5), st.sampled_from([CHAIN, BROWSING]))
def test_the_most_clicks_are_those_of_the_best_of_all_lists(seed: int, m: int, top: int, kind: int) -> None:
    """Readers with habits of all kinds: patience by rank as in DCM, satisfaction by document as in DBN, both."""
    rng, top = np.random.default_rng(seed), min(m, top)
    after_click, patience = rng.random(m) ** rng.integers(3), rng.random(top) ** rng.integers(2)
    examination = frozen(rng.random((top, top + 1)))
    user = ClickParameters(
        kind, frozen(rng.random(m)), frozen(after_click), frozen(patience), rng.random(), examination
    )
    work, lists = np.zeros((3, top + 1)), permutations(range(m), top)
    wanted = max(expected_clicks(user, positions(shown), top, work) for shown in lists)
    assert bandits.most_clicks(user, top) == pytest.approx(wanted, rel=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_misordered_pairs_are_those_with_the_less_attractive_above(grades: list[int]) -> None:
    attraction, shown = frozen(grades) / 4, positions(range(len(grades)))
    wanted = sum(grades[a] < grades[b] for b in range(len(grades)) for a in range(b))
    assert bandits.misordered(attraction, shown) == wanted
    for k in range(len(grades) + 1):
        above = sum(grades[a] < grades[b] for b in range(len(grades)) for a in range(min(b, k)))
        assert bandits.misordered_above(attraction, shown, k) == above


# -- BubbleRank ----------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(0, 8), st.integers(1, 8))
def test_known_candidates_stand_in_the_base_lists_order_and_unknown_ones_where_they_were(
    seed: int, m: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    base = rng.permutation(m)
    numbers = rng.permutation(np.concatenate([np.arange(m), np.full(n, -1)]))[:n]
    names = [int(i) if i >= 0 else 100 + c for c, i in enumerate(numbers)]  # unknown ones have names of their own
    listed = bubblerank.base_list(positions(np.argsort(base)), positions(numbers))
    assert [names[c] for c in listed] == naive.base_list(base.tolist(), names)


@given(SEEDS, st.integers(0, 7), st.integers(1, 7), st.booleans())
def test_fresh_items_enter_the_base_list_behind_the_one_above_them(seed: int, m: int, w: int, outside: bool) -> None:
    rng = np.random.default_rng(seed)
    base = rng.permutation(m)
    listed = rng.permutation(m + w)[:w]  # some known, some not
    renumbered = {item: m + i for i, item in enumerate(item for item in listed.tolist() if item >= m)}
    numbers = [renumbered.get(item, item) for item in listed.tolist()]
    place = np.concatenate([np.argsort(base), np.full(len(renumbered), -1)])
    behind = int(rng.integers(-1, m)) if outside else -1
    found = bubblerank.admitted(positions(place), positions(numbers), frozen(listed >= m, np.bool_), behind)
    assert found.tolist() == naive.admitted(base.tolist(), numbers, behind)


def test_a_number_that_a_new_item_took_over_leaves_its_old_place() -> None:
    """Items 0 1 2 stand as 2 1 0; number 1 now is another item, shown behind 0."""
    found = bubblerank.admitted(positions([2, -1, 0]), positions([0, 1]), frozen([False, True], np.bool_), -1)
    assert found.tolist() == [2, 0, 1]


def some_pairs(m: int, rng: np.random.Generator) -> naive.BubbleRank:
    """A twin in which some pairs are decided, at log(1/δ) = 1."""
    twin = naive.BubbleRank(m, m, lambda _: 1.0)
    for j in range(m):
        for i in range(j):
            twin.n[i, j] = twin.n[j, i] = 9
            twin.s[i, j] = int(rng.choice([-9, 0, 9]))
            twin.s[j, i] = -twin.s[i, j]
    return twin


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_a_list_is_as_likely_as_trying_every_coin_says(seed: int, m: int, k: int) -> None:
    rng, k = np.random.default_rng(seed), min(k, m)
    twin = some_pairs(m, rng)
    twin.k, twin.base = k, rng.permutation(m).tolist()
    s, n = (frozen([of[i, j] for j in range(m) for i in range(j)], np.int32) for of in (twin.s, twin.n))
    base, everyone, seats = positions(twin.base), positions(range(m)), rng.permutation(m)[:k]
    lists = [seats.tolist(), list(range(k))]
    lists += [[twin.base.index(i) for i in twin.display(rng.random(9).tolist())] for _ in range(3)]
    for places in lists:
        found = bubblerank.log_chance(base, everyone, positions(places), s, n, 4.0)
        assert math.exp(found) == pytest.approx(twin.chance([twin.base[p] for p in places]))


# -- cascading bandits ---------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=1, max_size=8), st.booleans(), st.integers(0, 8))
def test_who_was_observed_if_views_are_reported(clicks: list[float], last: bool, seen: int) -> None:
    """Without a click what came into view; else down to the click that counts, and with `last` what came into view."""
    hits = [p for p, click in enumerate(clicks) if click > 0]
    depth = min(seen, len(clicks))
    expected = depth if not hits else max(hits[-1] + 1, depth) if last else hits[0] + 1
    assert cascade.observed(frozen(clicks), last, seen) == expected


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.1, 30), st.floats(0, 5))
def test_a_bound_stays_below_its_tangent(shows: int, share: float, budget: float, more: float) -> None:
    wins = round(share * shows)
    now = bandits.kl_upper(wins / shows, shows, budget)
    later = bandits.kl_upper(wins / shows, shows, budget + more)
    assert now - 1e-10 <= later <= now + cascade.rise(shows, wins, now) * more + 1e-10


def test_an_order_is_certain_only_if_nobody_can_have_passed() -> None:
    order, bounds, rises = positions([1, 0, 2]), frozen([0.5, 0.6, 0.2]), frozen([0.1, 0.0, 1.0])
    assert cascade.parted(order, bounds, rises, frozen([3.0, 3.0, 3.0]), 3.2)
    assert not cascade.parted(order, bounds, rises, frozen([3.0, 3.0, 3.0]), 3.3)  # the last may be at .5 now
    assert not cascade.parted(order, bounds, rises, frozen([2.0, 3.0, 3.1]), 3.1)  # the middle one at .61
    assert not cascade.parted(order, frozen([0.6, 0.6, 0.2]), frozen([0.0, 0.0, 0.0]), frozen([3.0, 3.0, 3.0]), 3.0)


# -- TopRank -------------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 7), st.integers(0, 3))
def test_blocks_are_the_undominated_then_the_undominated_of_the_rest(seed: int, m: int, unknown: int) -> None:
    """With relations at random, cycles among them, and items that nothing is known of."""
    rng = np.random.default_rng(seed)
    pairs = m * (m - 1) // 2
    n = np.full(pairs, 1000, np.int32)
    s = (1000 * rng.integers(-1, 2, pairs)).astype(np.int32)
    twin = naive.TopRank(m + unknown, 1, 10.0)
    for j in range(m):
        for i in range(j):
            lead = s[j * (j - 1) // 2 + i]
            if lead:
                twin.worse.add((j, i) if lead > 0 else (i, j))
    block = np.empty(m + unknown, np.int64)
    numbers = positions([*range(m), *[-1] * unknown])
    toprank.blocks(frozen(s, np.int32), frozen(n, np.int32), numbers, math.log(10 * toprank.C), block)
    wanted = {item: level for level, items in enumerate(twin.blocks()) for item in items}
    assert block.tolist() == [wanted[i] for i in range(m + unknown)]


@given(st.integers(1, 10**6), st.floats(0.5, 1.5))
def test_a_pair_is_settled_at_the_papers_bound(count: int, share: float) -> None:
    delta = 1e-3
    bound = math.sqrt(2 * count * math.log(3.43 * math.sqrt(count) / delta))  # c is about 3.43
    lead = share * bound
    if abs(share - 1) > 1e-3:
        assert toprank.decided(lead, float(count), math.log(toprank.C / delta)) == (share > 1)


def test_net_wins_are_within_a_block() -> None:
    """Leads of 0 over 1, 0 over 2, 1 over 2; item 2 is in another block, the fourth is not known."""
    s = frozen([5, 7, -2], np.int32)
    assert toprank.net_wins(s, positions([0, 1, 2, -1]), positions([0, 0, 1, 0])).tolist() == [5.0, -5.0, 0.0, 0.0]


# -- BatchRank -----------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 9), st.sampled_from([batchrank.PAPER, batchrank.MERGE]))
def test_a_list_is_batch_by_batch_then_those_without_a_position_then_the_dropped(
    seed: int, c: int, variant: int
) -> None:
    """Batches of which some items are not there, so that one may be too short and another crowded."""
    rng = np.random.default_rng(seed)
    home = rng.choice([-1, 0, 2, 5], c)
    span = np.array([{-1: 0, 0: 2, 2: 3, 5: 1}[int(h)] for h in home])
    shows, coins = rng.integers(0, 3, c), rng.random((2, c))
    order = np.arange(c)
    batchrank.arrange(positions(home), positions(span), positions(shows), variant, frozen(coins), order)
    wanted: list[int] = []
    for first, places in ((0, 2), (2, 3), (5, 1)):
        items = [a for a in range(c) if home[a] == first]
        if variant == batchrank.PAPER:
            seated = sorted(items, key=lambda a: (shows[a], coins[0, a]))[:places]
        else:
            seated = sorted(items, key=lambda a: coins[1, a])[:places]
        wanted += sorted(seated, key=lambda a: coins[1, a])
    assert order[: len(wanted)].tolist() == wanted
    rest = order[len(wanted) :].tolist()
    assert sorted(wanted + rest) == list(range(c))
    dropped = [a for a in range(c) if home[a] < 0]
    assert rest[len(rest) - len(dropped) :] == dropped


# -- the table of queries ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=12, unique=True), st.lists(st.integers(0, 9), max_size=12))
def test_ids_are_found_where_they_stand(known: list[int], wanted: list[int]) -> None:
    found = queries.match(positions(known), positions(wanted)).tolist()
    seen: set[int] = set()
    for item, place in zip(wanted, found, strict=True):
        there = item in known and item not in seen  # a place is given once only
        assert place == (known.index(item) if there else -1)
        seen.add(item)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_the_chain_is_in_the_order_of_the_last_touches(touched: list[int]) -> None:
    older, newer, ends = np.full(6, -1), np.full(6, -1), np.full(2, -1)
    order: list[int] = []
    for slot in touched:
        queries.touch(older, newer, ends, slot)
        order = [*(other for other in order if other != slot), slot]
        walked, at = [], int(ends[0])
        while at >= 0:
            walked.append(at)
            at = int(newer[at])
        assert walked == order
        assert ends[1] == order[-1]
        for count in range(8):
            assert queries.newest(older, ends, count).tolist() == order[max(len(order) - count, 0) :]
    if len(order) == 6:
        assert queries.chain_ends(older, newer) == (order[0], order[-1])
        older[order[3]] = order[0]
        assert queries.chain_ends(older, newer) == (-1, -1)
