"""Off-policy estimates: unbiased by enumeration, warnings where nothing can be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import inf, log, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array
from rankloop.evaluation import off_policy
from rankloop.evaluation.off_policy import RankMoves, by_position, by_ranking, gains
from rankloop.evaluation.position_bias import Examination, examination_from_swaps, swap_wins
from rankloop.kernels import certainty, plackett_luce
from tests.kernels.inputs import SEEDS, frozen, pair_rows, positions, some_lists
from tests.kernels.test_propensity import random_relation
from tests.reference import certainty as naive_certainty
from tests.reference import offpolicy as naive
from tests.reference import plackett_luce as naive_plackett_luce

THETA = np.array([1.0, 0.6, 0.25, 0.1])
LIKED = np.array([0.3, 0.9, 0.5, 0.7])


def click_patterns(chances: Sequence[float]) -> Iterator[tuple[Array, float]]:
    """Every way to click on independent slots, with its probability."""
    for flags in product([0, 1], repeat=len(chances)):
        yield np.array(flags), prod(p if flag else 1 - p for p, flag in zip(chances, flags, strict=True))


# -- by position ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", ["clicks", "dcg", "reciprocal"])
@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_by_position_is_unbiased(order: tuple[int, ...], gain: off_policy.Gain) -> None:
    """All click patterns of position-based users: the mean estimate is what the other order gets."""
    ranks, worth = np.array([order]), gains(gain, 4)
    truth = float((THETA[list(order)] * LIKED * worth[list(order)]).sum())
    mean = 0.0
    for clicks, chance in click_patterns(THETA * LIKED):
        mean += chance * by_position(RankMoves.of(clicks[None], ranks), Examination.known(3 * THETA), gain)["ips"].value
    assert mean == pytest.approx(truth, rel=1e-12)


@given(seed=SEEDS, N=st.integers(1, 9), K=st.integers(1, 4), clip=st.sampled_from([0.7, 1.2, 3.0, inf]))
def test_by_position_is_its_definition(seed: int, N: int, K: int, clip: float) -> None:
    clicks, ranks, attraction = some_lists(seed, N, K)
    clicks[0, 0] = 1  # without any click the model's scale is 0/0 in the plain version
    found = by_position(RankMoves.of(clicks, ranks, attraction), Examination.known(THETA), "dcg", clip)
    plain: tuple[Any, ...] = (clicks.tolist(), ranks.tolist(), THETA.tolist(), gains("dcg", 4).tolist(), clip)
    assert found["ips"].value == pytest.approx(naive.ips(*plain), rel=1e-12)
    assert found["snips"].value == pytest.approx(naive.snips(*plain), rel=1e-12)
    modeled: tuple[Any, ...] = (*plain, attraction.tolist())
    assert found["dr"].value == pytest.approx(naive.dr(*modeled), rel=1e-12, abs=1e-12)
    if clip == inf:
        assert found["snips"].value == pytest.approx(found["ips"].value, rel=1e-12)
        assert found["dr"].value == pytest.approx(found["ips"].value, rel=1e-12, abs=1e-12)


@given(seed=SEEDS, N=st.integers(2, 9), groups=st.integers(2, 9))
def test_left_out_is_the_estimate_without_a_group(seed: int, N: int, groups: int) -> None:
    clicks, ranks, attraction = some_lists(seed, N, 4)
    clicks[:, 0] = 1
    found = by_position(RankMoves.of(clicks, ranks, attraction, groups), Examination.known(THETA), clip=1.2)
    G = min(N, groups)
    for g in range(G):
        rest = [naive.without(rows.tolist(), g, G) for rows in (clicks, ranks, attraction)]
        plain: tuple[Any, ...] = (rest[0], rest[1], THETA.tolist(), [1.0] * 4, 1.2)
        modeled: tuple[Any, ...] = (*plain, rest[2])
        assert found["ips"].left_out[g] == pytest.approx(naive.ips(*plain), rel=1e-9)
        assert found["snips"].left_out[g] == pytest.approx(naive.snips(*plain), rel=1e-9)
        assert found["dr"].left_out[g] == pytest.approx(naive.dr(*modeled), rel=1e-9, abs=1e-12)


def test_clipping_loses_clicks_and_the_others_make_up_for_it() -> None:
    """With expected clicks in the place of clicks estimates are their own means: only ips is too low."""
    rng = np.random.default_rng(0)
    ranks = np.array([rng.permutation(4) for _ in range(50)])
    alike, liked = np.full((50, 4), 0.4), rng.random((50, 4))
    for attraction, exact in ((alike, ("snips", "dr")), (liked, ("dr",))):
        truth = float((THETA[ranks] * attraction).sum() / 50)
        found = by_position(RankMoves.of(THETA * attraction, ranks, attraction), Examination.known(THETA), clip=1.0)
        assert found["ips"].value < 0.8 * truth
        cut = 1 - found["ips"].value / truth
        assert all(found[name].warning.startswith(f"clipping removed {cut:.1%}") for name in ("ips", "snips", "dr"))
        assert found["model"].value == pytest.approx(truth)
        for name in exact:
            assert found[name].value == pytest.approx(truth), name
    wrong = by_position(RankMoves.of(THETA * liked, ranks, alike), Examination.known(THETA), clip=1.0)
    assert abs(wrong["dr"].value - truth) < abs(wrong["ips"].value - truth)


# -- examination from swaps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["plackett-luce", "topological"])
def test_swaps_tell_examination_whatever_the_items(law: str) -> None:
    """Every list and every click: the wins of two ranks are exactly as their examination."""
    n, k = 4, 3
    scores, certain = frozen([0.5, -1.0, 0.0, 2.0]), random_relation(4, 0.3, np.random.default_rng(2))
    wins = np.zeros((k, k))
    pairs = pair_rows(list(permutations(range(k), 2)))
    for order in permutations(range(n), k):
        if law == "topological":
            probability = naive_certainty.list_probability(certain, order)
            shares = certainty.topological_swap_shares(certain, positions(order))
        else:
            probability = float(naive_plackett_luce.probability(scores.tolist(), order))
            shares = np.zeros((k, k))
            rest = plackett_luce.rest_weight(scores, positions(order))
            shares[pairs[:, 0], pairs[:, 1]] = plackett_luce.swap_shares(frozen(scores[list(order)]), rest, pairs)
        for clicks, chance in click_patterns(THETA[:k] * LIKED[list(order)]) if probability else ():
            wins += probability * chance * swap_wins(clicks, shares)
    for p, q in permutations(range(k), 2):
        if wins[p, q]:
            assert wins[p, q] / wins[q, p] == pytest.approx(THETA[p] / THETA[q], rel=1e-9)
    assert examination_from_swaps(wins[None]).values == pytest.approx(THETA[:k], rel=1e-9)


def test_ranks_that_no_swap_connects_are_not_known() -> None:
    wins = np.zeros((1, 4, 4))
    wins[0, 0, 1], wins[0, 1, 0] = 4.0, 2.0
    wins[0, 2, 3], wins[0, 3, 2] = 3.0, 3.0  # known against each other, not against the first
    found = examination_from_swaps(wins).values
    assert found[:2].tolist() == pytest.approx([1.0, 0.5])
    assert np.isnan(found[2:]).all()
    wins[0, 1, 2] = 1.0  # one way only: rank 2 was never clicked where rank 1 could have been
    assert np.isnan(examination_from_swaps(wins).values[2:]).all()
    wins[0, 2, 1] = 1.0
    assert np.isfinite(examination_from_swaps(wins).values).all()


# -- by list -------------------------------------------------------------------------------------------------------


def cascade(order: Sequence[int]) -> Iterator[tuple[float, float]]:
    """(reward, probability) of users who leave after a click, worth 1/rank: not position-based at all."""
    left = 1.0
    for rank, item in enumerate(order, 1):
        yield 1.0 / rank, left * LIKED[item]
        left *= 1 - LIKED[item]
    yield 0.0, left


def test_by_list_is_unbiased_whatever_users_do_and_dr_whatever_the_model_says() -> None:
    """Two Plackett-Luce policies, every list, cascade users, and a model that is plainly wrong."""
    lists = list(permutations(range(4)))
    old, new = ([naive_plackett_luce.probability(s, order) for order in lists] for s in ([0, 1, 2, 0], [1.5, 0, 0, 1]))
    says = {order: sum(order[:2]) / 5 for order in lists}
    weights = np.array([log(float(b / a)) for a, b in zip(old, new, strict=True)])
    truth = sum(float(p) * reward * q for p, order in zip(new, lists, strict=True) for reward, q in cascade(order))
    told = sum(float(p) * says[order] for p, order in zip(new, lists, strict=True))
    ips = dr = mean = 0.0
    for p, order, weight in zip(old, lists, weights, strict=True):
        for reward, q in cascade(order):
            found = by_ranking(np.array([reward]), np.array([weight]), np.array([told]), np.array([says[order]]))
            ips += float(p) * q * found["ips"].value
            dr += float(p) * q * found["dr"].value
            mean += float(p) * q * found["weights"].value
    assert ips == pytest.approx(truth)
    assert dr == pytest.approx(truth)
    assert mean == pytest.approx(1.0)
    assert abs(told - truth) > 0.1


def test_lists_that_never_come_up_are_told() -> None:
    """The log shows one of two lists only; the new policy shows both alike: half of the weight is lacking."""
    found = by_ranking(np.ones(500), np.full(500, log(0.5)))
    assert found["weights"].value == 0.5
    assert "lacks" in found["ips"].warning
    assert "lacks" in found["snips"].estimate().warning
    fair = by_ranking(np.ones(500), np.where(np.arange(500) % 2 == 0, log(2.0), -inf))
    assert not fair["ips"].warning


# -- what is wrong is named ----------------------------------------------------------------------------------------


def test_bad_input_is_named() -> None:
    moves = RankMoves.of(np.ones((3, 2)), np.tile([1, 0], (3, 1)))
    with pytest.raises(InvalidInput, match=r"shape \(3, 2\) and ranks \(2, 2\)"):
        RankMoves.of(np.ones((3, 2)), np.ones((2, 2), int))
    with pytest.raises(InvalidInput, match="examination has 1 ranks, but rankings have 2"):
        by_position(moves, Examination.known([1.0]))
    with pytest.raises(InvalidInput, match="without 5 groups"):
        by_position(moves, Examination(np.ones(2), np.ones((5, 2))))
    with pytest.raises(InvalidParameter, match="clip is 0"):
        by_position(moves, Examination.known([1.0, 1.0]), clip=0)
    with pytest.raises(InvalidParameter, match="gain is 'likes'"):
        gains("likes", 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="rewards have shape"):
        by_ranking(np.ones(3), np.ones(2))
    for values in ([], [[1.0]], [1.0, -1.0], [1.0, inf]):
        with pytest.raises(InvalidParameter, match="examination"):
            Examination.known(values)
