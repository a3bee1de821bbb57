"""A shop where likes are seen through declared features only."""

from __future__ import annotations

import numpy as np
from benchmarks.shop_features import DECLARED, WEIGHTS, Shop, visits

from rankloop.learners.pairwise.pairrank import PairRank


def test_a_visit_is_a_function_of_seed_and_number() -> None:
    one, other = Shop(3).at(17), Shop(3).at(17)
    assert one.request == other.request
    assert np.array_equal(one.grades, other.grades)
    assert Shop(4).at(17).request != one.request


def test_grades_follow_what_visitors_go_by() -> None:
    visit = Shop(1).at(5)
    low, high = visit.by_hand.min(axis=0), visit.by_hand.max(axis=0)
    utility = ((visit.by_hand - low) / np.where(high > low, high - low, 1.0)) @ WEIGHTS
    assert np.bincount(visit.grades, minlength=5).tolist() == [6, 5, 4, 3, 2]
    assert (np.diff(visit.grades[np.argsort(utility)]) >= 0).all()


def test_what_is_secret_stands_in_no_table() -> None:
    shop = Shop(1)
    assert set(shop.table.fields) == {"title", "brand", "price", "tags", "listed"}
    assert set(shop.users.fields) == {"likes"}
    assert len(DECLARED) == 8


def test_declared_features_come_near_the_hand_made_ones() -> None:
    """The benchmark with fewer visits: counts must have brought what fields cannot tell."""
    shown = {kind: visits(Shop(20), PairRank(), kind, 800)[-200:].mean() for kind in ("by hand", "declared", "static")}
    assert shown["declared"] > shown["static"] + 0.03
    assert shown["declared"] / shown["by hand"] > 0.85
