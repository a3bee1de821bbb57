"""Sums over a log: exact, and the same bits whatever the log was cut into."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.evaluation.off_policy import (
    RankingSums,
    RankMoves,
    by_position,
    by_ranking,
    by_ranking_sums,
    gains,
)
from rankloop.evaluation.off_policy_sums import (
    GROUPS,
    ExactSums,
    PolicySums,
    UnitSums,
    groups_of,
    user_codes,
)
from rankloop.evaluation.position_bias import Examination
from tests.kernels.inputs import SEEDS, some_lists

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, max_size=30), SEEDS)
def test_sums_are_exact_in_any_order(values: list[float], seed: int) -> None:
    """Rounded once, from the true sum: as fractions have it. In two parts, and in another order, the same bits."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 3, len(values))
    whole, half, rest = ExactSums((3,)), ExactSums((3,)), ExactSums((3,))
    whole.add(cells, np.array(values))
    order = rng.permutation(len(values))
    middle = len(values) // 2
    half.add(cells[order[:middle]], np.array(values)[order[:middle]])
    rest.add(cells[order[middle:]], np.array(values)[order[middle:]])
    half.merge(rest)
    true = [
        sum((Fraction(v) for v, cell in zip(values, cells, strict=True) if cell == c), Fraction(0)) for c in range(3)
    ]
    if max(map(abs, true)) >= 2**1023:
        return  # as Python's own floats, it overflows there
    assert whole.values().tolist() == half.values().tolist() == [float(one) for one in true]


def gathered(parts: list[slice], log: tuple[Array, ...], clip: float) -> tuple[PolicySums, UnitSums, UnitSums]:
    """Each part by itself, then put together."""
    seq, users, clicks, ranks, rewards, weights = log
    found: tuple[PolicySums, UnitSums, UnitSums] | None = None
    for part in parts:
        group = groups_of(seq[part], users[part])
        sums, units, whole = PolicySums(0), UnitSums(), UnitSums()
        longest = int((ranks[part] >= 0).sum(axis=1).max())  # a part may know of shorter lists only
        sums.add_moves(seq[part], group, clicks[part][:, :longest], ranks[part][:, :longest], None)
        sums.add_lists(group, rewards[part], weights[part], clip, None, None)
        units.add(users[part], group)
        whole.add(users[part], group)
        if found is None:
            found = sums, units, whole
        else:
            found[0].merge(sums)
            found[1].merge(units)
            found[2].merge(whole)
    assert found is not None
    return found


@given(seed=SEEDS, N=st.integers(3, 40), K=st.integers(1, 4), by_user=st.booleans())
def test_parts_of_a_log_add_up_to_the_whole_bit_for_bit(seed: int, N: int, K: int, by_user: bool) -> None:
    """And to what the functions of arrays say of the log as a whole."""
    rng = np.random.default_rng(seed)
    clicks, ranks, _ = some_lists(seed, N, K)
    clicks[0, 0] = 1
    seq = np.arange(N) + 5
    names = [f"user-{u}" if u else None for u in rng.integers(0, 4, N).tolist()]
    users = user_codes(names if by_user else [None] * N)
    rewards, weights = clicks.sum(axis=1).astype(float), rng.normal(size=N)
    log = (seq, users, clicks, ranks, rewards, weights)
    cuts = sorted({0, N, *rng.integers(1, N, 3).tolist()})
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    looked = Examination.known(np.arange(4.0, 0.0, -1.0))

    def told(parts: list[slice]) -> list[object]:
        sums, units, whole = gathered(parts, log, 2.0)
        moves = RankMoves.from_sums(sums, units)
        lists = RankingSums.from_sums(sums, whole, (0.0, float(rewards.max())), float(K), 2.0, False)
        curve = sums.curve.values(looked.values, gains("dcg", 4))
        position = by_position(moves, looked, "dcg", 2.0)["snips"].estimate()
        return [position, by_ranking_sums(lists, 2.0)["ips"].estimate(), curve, moves.units.number]

    whole = told([slice(0, N)])
    assert repr(told(parts)) == repr(told(parts[::-1])) == repr(whole)
    position, listed = whole[0], whole[1]
    plain = by_position(RankMoves.of(clicks, ranks), looked, "dcg", 2.0)["snips"]
    assert position.value == pytest.approx(plain.value, nan_ok=True)  # type: ignore[attr-defined]
    expected = by_ranking(rewards, weights, clip=2.0, most=float(K))["ips"].value
    assert listed.value == pytest.approx(expected)  # type: ignore[attr-defined]


def test_groups_are_by_user_or_by_number_and_empty_ones_do_not_count() -> None:
    users = user_codes(["ann", None, "bob", "ann"])
    group = groups_of(np.array([7, 207, 9, 10]), users)
    assert group[0] == group[3] == int(users[0]) % GROUPS
    assert group[1] == 7
    units = UnitSums()
    units.add(users, group)
    found, there = units.units(GROUPS)
    assert (found.number, int(there.sum()), found.share.sum()) == (3, 3, 1.0)
    alone = UnitSums()
    alone.add(user_codes([None] * 4), np.array([0, 1, 1, 2]))
    assert alone.units(GROUPS)[0].share.tolist() == [0.25, 0.5, 0.25]
    assert alone.units(GROUPS)[0].number == 4
