"""One fixed round through every kernel of the click bandits, for `every_kernel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankloop.kernels import bandits, batchrank, bubblerank, cascade, confidence, gap_weighting, queries, toprank
from rankloop.kernels.click_models import BROWSING, CASCADE, CHAIN, POSITION, ClickChances
from rankloop.types import Array
from tests.kernels.inputs import frozen, positions

Results = dict[str, list[float] | list[int] | list[bool]]
ONE, TABLE = np.ones(1), np.ones((1, 1))


def results() -> Results:
    """Each kernel's output, flat; what it changes in place counts as output."""
    rng = np.random.default_rng(34)
    return {**_confidence(), **_table(), **_bubblerank(), **_blocks(rng), **_loops(rng), **_gap_weighting()}


def _call(kernel: Any, *arguments: Any) -> Any:
    """Arguments come as lists, of which no type checker knows the length."""
    return kernel(*arguments)


def _confidence() -> Results:
    cases = [(0.0, 3, 2.0), (1.0, 3, 2.0), (0.3, 10, 0.0), (0.3, 10, 4.0), (0.5, 2, 60.0), (0.01, 10**6, 16.0)]
    return {
        "kl_upper": [confidence.kl_upper(*case) for case in cases],
        "rise": [cascade.rise(9, wins, 0.9) for wins in (0, 4, 9)],
        "parted": [cascade.parted(positions([1, 0]), frozen([0.5, 0.6]), ONE, ONE, budget) for budget in (1.05, 1.5)],
        "kl_lower": [confidence.kl_lower(*case) for case in cases],
    }


def _gap_weighting() -> Results:
    scores, left = frozen([0.5, 0.2, 0.5, -0.1]), frozen([True, True, False, True], np.bool_)
    order, chance = gap_weighting.drawn_order(scores, frozen([0.9, 0.1]), 3.0, 1.0)
    theta, variance, level = np.array([0.1, -0.2]), np.array([0.5, 0.4]), np.array([0.0, 0.3])
    rows = frozen([[1.0, 0.5], [0.0, 1.0]])
    gap_weighting.regress(theta, variance, level, rows, frozen([1.0, 0.0]), 0.25)
    again = theta.copy(), variance.copy(), level.copy()
    table = positions([0, 2, 3]), positions([0, 1, 1]), frozen([1.0, 0.5, 1.0])
    gap_weighting.regress_sparse(*again, *table, frozen([0.0, 1.0]), 0.25)
    return {
        "regress_sparse": np.concatenate(again).tolist(),
        "chances": gap_weighting.chances(scores, left, 3.0, 1.0).tolist(),
        "drawn_order": order.tolist(),
        "drawn_order, chance": [chance],
        "order_log_probability": [gap_weighting.order_log_probability(scores, positions(order), 3.0, 1.0)],
        "regress": [*theta.tolist(), *variance.tolist(), *level.tolist()],
    }


def _table() -> Results:
    letters = np.array(["", "a", "zebra", "ä€"]).view(np.int32)
    seen, older, newer, ends = np.zeros(4, np.int32), np.full(3, -1), np.full(3, -1), np.full(2, -1)
    queries.stamp(seen, positions([2, -1, 0]), 7)
    for slot in (0, 1, 2, 0, 1):
        queries.touch(older, newer, ends, slot)
    rounds, again = np.array([3, 5, 8]), positions([8, 5])
    revisited = queries.revisit(positions([5, 3, 8]), seen, again, rounds, older, newer, ends, 2)
    packed = np.arange(10)
    used = queries.pack(packed, positions([6, 1]), positions([3, 2]), positions([1, 0]))
    order, starts, sizes = positions([1, 0, 9, 0]), positions([0, 3]), positions([2, 1])
    return {
        "fingerprints": queries.fingerprints(letters, 4).tolist(),
        "match": queries.match(positions([5, 3, 8]), positions([8, 1, 5, 5])).tolist(),
        "stamp": seen.tolist(),
        "revisit": [*revisited[0].tolist(), *revisited[1].tolist(), revisited[2], *rounds.tolist()],
        "touch": [*older.tolist(), *newer.tolist(), *ends.tolist()],
        "newest": [*queries.newest(older, ends, 2).tolist(), *queries.newest(older, ends, 9).tolist()],
        "chain_ends": [*queries.chain_ends(older, newer), *queries.chain_ends(newer[:1], older[:1])],
        "pack": [used, *packed[:used].tolist()],
        "are_permutations": [queries.are_permutations(order, starts, sizes)],
        "are_below": [queries.are_below(order, starts, sizes), queries.are_below(order, starts, positions([3, 1]))],
    }


def _bubblerank() -> Results:
    s, n = np.array([9, -3, 0, 0, 2, 1], np.int32), np.array([9, 5, 0, 2, 2, 1], np.int32)
    place, numbers = positions([2, 0, 1, 3]), positions([3, -1, 0, 2, 1])
    listed = positions([0, 1, -1, 2])
    flags, shown, again = np.zeros(3, np.int64), np.empty(4, np.int64), np.empty(3, np.int64)
    tossed = [bubblerank.randomise(listed, 3, s, n, 4.0, frozen([0.7, 0.2, 0.9, 0.9]), flags)]
    tossed += [bubblerank.randomise(listed, 3, s, n, 4.0, frozen([0.2, 0.9, 0.2, 0.9]), flags)]
    bubblerank.exchange(listed, positions(flags), 0, shown)
    bubblerank.exchange(listed, positions([0, 0, 2]), 0, again)
    places, changed = np.array([2, -1, 0, 1], np.int32), (s.copy(), n.copy())
    clicks = frozen([0.0, 1.0, 0.0])
    arguments: Any = (
        positions([0, 1, 3, 2]),
        frozen([False, True, False, False], np.bool_),
        2,
        positions([1, 0, 2]),
        0,
        clicks,
        4.0,
    )
    _call(bubblerank.update, places, *changed, *arguments)
    base = np.array([3, 2, 1, 0])
    swaps = bubblerank.improve(base, positions([0, 1, 3]), s, n, 4.0)
    return {
        "bar_of": [bubblerank.bar_of(100.0, 0.0, 5), bubblerank.bar_of(0.0, 4.0, 5)],
        "contenders": [bubblerank.contenders(listed, k, s, n, 4.0) for k in (1, 2, 4)],
        "challenger": [bubblerank.challenger(listed, 1, s, n, 4.0, coin) for coin in (0.1, 0.9)],
        "tosses": [bubblerank.tosses(m, k) for m, k in ((5, 5), (5, 3), (1, 1))],
        "log_chance": [
            bubblerank.log_chance(listed, positions(range(4)), positions(seats), s, n, 4.0)
            for seats in ([0, 1], [0, 2], [0, 2, 1], [1, 0])
        ],
        "ahead": [bubblerank.ahead(s, n, i, j, 4.0) for i in range(-1, 4) for j in range(4) if i != j],
        "randomise": [*flags.tolist(), *(number for found in tossed for number in found)],
        "exchange": [*shown.tolist(), *again.tolist()],
        "base_list": bubblerank.base_list(place, numbers).tolist(),
        "admitted": bubblerank.admitted(place, positions([3, 1]), frozen([False, True], np.bool_), 2).tolist(),
        "bubblerank update": [*places.tolist(), *changed[0].tolist(), *changed[1].tolist()],
        "improve": [swaps, *base.tolist()],
    }


def _blocks(rng: np.random.Generator) -> Results:
    s, n = np.array([40, -3, 0, 0, 2, -50], np.int32), np.array([40, 5, 0, 2, 2, 50], np.int32)
    block, numbers = np.empty(5, np.int64), positions([0, 1, 2, -1, 3])
    toprank.blocks(s, n, numbers, 2.0, block)
    order = np.arange(5)
    toprank.shuffled(positions(block), frozen(rng.random(5)), order)
    changed: Any = s.copy(), n.copy()
    settled = _call(toprank.update, *changed, numbers, positions([0, 0, 0, 0, 1]), frozen([1.0, 0.0, 1.0]), 2.0)
    homes: Any = [np.array(values, np.int32) for values in ([0, 0, 2, -2], [2, 2, 1, 0], [0, 0, 0, 0], [1, 1, 2, 0])]
    shows, wins, clock = np.array([40, 40, 3, 0], np.int32), np.array([39, 1, 2, 0], np.int32), np.array([2])
    seats = batchrank.seats(numbers, homes[0], homes[1], shows, homes[3], wins, 3)
    arranged = np.arange(5)
    batchrank.arrange(
        positions(seats[0]), positions(seats[1]), positions(seats[2]), 0, frozen(rng.random((2, 5))), arranged
    )
    arguments = positions([0, 1, 2, 3]), positions([1, 1, 2, 2]), frozen([1.0, 0.0, 1.0])
    _call(batchrank.update, *homes, shows, wins, clock, *arguments, batchrank.PAPER, 1.1)
    batches = [*homes, shows, wins, clock]
    return {
        "blocks": block.tolist(),
        "shuffled": order.tolist(),
        "decided": [toprank.decided(9.0, 9.0, 2.0), toprank.decided(40.0, 40.0, 2.0)],
        "toprank update": [int(settled), *changed[0].tolist(), *changed[1].tolist()],
        "net_wins": toprank.net_wins(s, numbers, positions(block)).tolist(),
        "needed": [float(batchrank.needed(variant, stage, 2.0, 9)) for variant in (0, 1) for stage in (0, 2)],
        "seats": seats.ravel().tolist(),
        "arrange": arranged.tolist(),
        "batchrank update": [int(value) for array in batches for value in array],
    }


def _loops(rng: np.random.Generator) -> Results:
    """Thirty rounds of each loop with each kind of user; arrays are as `play` hands them over: compiling takes long."""
    found: Results = {}
    attraction = rng.random(4)
    users = {
        "reader": ClickChances(CASCADE, attraction, np.zeros(4), ONE, 1.0, TABLE),
        "looker": ClickChances(POSITION, attraction, ONE, ONE, 1.0, rng.random((3, 1))),
        "chain": ClickChances(CHAIN, attraction, rng.random(4), ONE, 0.9, TABLE),
        "browser": ClickChances(BROWSING, attraction, ONE, ONE, 1.0, rng.random((3, 4))),
    }
    clicks = rng.random((30, 2, 3))
    for name, user in users.items():
        account, four = np.zeros(3), rng.random((30, 4))
        pairs: Any = [np.zeros(6, np.int32) for _ in range(6)]
        items: Any = [np.zeros(4, np.int32) for _ in range(9)]
        base, clock = np.arange(4), np.zeros(1, np.int64)
        rounds = _call(
            bubblerank.simulate, base, *pairs[:2], 0, 2.0, 0.0, user, rng.random((30, 4)), clicks, 2, 0.9, 1, account
        )
        for kind in (cascade.KL, cascade.KL_PUBLISHED, cascade.UCB1):
            more = items[2 * kind : 2 * kind + 2]
            rounds += _call(cascade.simulate, *more, 0, kind, kind == 1, user, four, clicks, 3, 2, 0.9, 1, account)
        _call(toprank.simulate, *pairs[2:4], 0.5, user, four, clicks, 3, 2, 0.9, 1, account)
        batches: Any = [np.full(4, batchrank.NEW, np.int32), *(np.zeros(4, np.int32) for _ in range(5)), clock]
        two = rng.random((30, 2, 4))
        _call(batchrank.simulate, *batches, batchrank.MERGE, 1.1, user, two, clicks, 2, 0.9, 1, account)
        counted: list[Array] = [base, *pairs, *items, *batches]
        found[f"loops, {name}"] = [rounds, *(int(value) for array in counted for value in array)]
        found[f"accounts, {name}"] = account.tolist()
    shown = positions([2, 0, 3])
    found["cascade_clicks"] = [bandits.cascade_clicks(attraction, shown, 2)]
    found["position_clicks"] = [bandits.position_clicks(attraction, users["looker"].examination, shown, 5)]
    found["misordered"] = [bandits.misordered(attraction, shown), bandits.misordered_above(attraction, shown, 1)]
    found["most_clicks"] = [bandits.most_clicks(users[name], 3) for name in ("chain", "browser")]
    return found
