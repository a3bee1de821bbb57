"""The demo's shop: its truth is a truth, its shoppers differ, and there is something to learn and to track."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from rankloop.core.rng import Rng
from rankloop.core.types import Candidates, Feedback
from rankloop.demo.run import TRIED, specs
from rankloop.demo.shop import FEATURES, SEASONS, SHELVES, SHOWN, TASTES, Shop, Visit
from rankloop.service.control.rankers import complete
from rankloop.service.ranking.model import make_learner


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


def test_shelves_have_twelve_products_with_all_features(shop: Shop) -> None:
    assert len(shop.products) == len(shop.rows) == len(SHELVES)
    for products, rows in zip(shop.products, shop.rows, strict=True):
        assert len(set(products)) == 12
        assert rows.shape == (12, len(FEATURES))
        assert np.isfinite(rows).all()
        assert (rows.max(0) > rows.min(0)).all()


def test_visits_and_clicks_repeat(shop: Shop) -> None:
    again = Shop()
    for n in range(20):
        visit = shop.visit(n, 0)
        assert visit == again.visit(n, 0)
        shown = shop.products[visit.shelf][:SHOWN]
        assert shop.clicks(visit, shown, n) == again.clicks(visit, shown, n)
        assert set(shop.clicks(visit, shown, n)) <= set(shown)


def test_shoppers_come_in_the_shares_of_their_season(shop: Shop) -> None:
    for season, shares in enumerate(SEASONS):
        assert sum(shares) == pytest.approx(1.0)
        tastes = [shop.visit(n, season).taste for n in range(2000)]
        found = np.bincount(tastes, minlength=len(TASTES)) / 2000
        assert found == pytest.approx(shares, abs=0.04)


def test_quality_is_one_for_the_best_list_and_never_more(shop: Shop) -> None:
    for season in (0, 1):
        visit = Visit(2, 0, 0, season)
        products = shop.products[2]
        alone = {item: shop.quality(visit, [item]) for item in products}
        best = sorted(products, key=lambda item: -alone[item])
        assert shop.quality(visit, best[:3]) == pytest.approx(1.0)
        assert all(shop.quality(visit, list(shown)) <= 1.0 + 1e-12 for shown in permutations(products[:6], 3))
        assert shop.quality(visit, best[::-1][:SHOWN]) < 0.5


def test_the_shops_own_order_can_be_bettered_and_tastes_do_change(shop: Shop) -> None:
    own = [shop.quality(Visit(s, 0, 0, 0), shop.products[s][:SHOWN]) for s in range(len(SHELVES))]
    assert 0.3 < np.mean(own) < 0.7

    def liked(season: int, shelf: int) -> list[str]:
        visit = Visit(shelf, 0, 0, season)
        return sorted(shop.products[shelf], key=lambda item: -shop.quality(visit, [item]))

    after = [shop.quality(Visit(s, 0, 0, 1), liked(0, s)[:SHOWN]) for s in range(len(SHELVES))]
    assert np.mean(after) < 0.7


def test_the_demos_ranker_begins_as_the_shop_betters_it_and_follows_the_change(shop: Shop) -> None:
    """What `rankloop demo` shows, without the service: the same learner, the same shoppers."""
    learner, streams, worth, own = make_learner(complete(specs()[TRIED])), Rng(0), [], []
    for n in range(1200):
        visit = shop.visit(n, int(n >= 600))
        rows, products = shop.rows[visit.shelf], shop.products[visit.shelf]
        shown = learner.rank(Candidates(SHELVES[visit.shelf], products, rows), SHOWN, streams.for_event("rank", n))
        items = shown.items.tolist()
        assert n > 0 or items == products[:SHOWN]
        worth.append(shop.quality(visit, items))
        own.append(shop.quality(visit, products[:SHOWN]))
        learner.learn(shown, Feedback.clicked(shown, shop.clicks(visit, items, n)), streams.for_event("learn", n))
    parts, shops = (np.array(values).reshape(-1, 100).mean(1) for values in (worth, own))
    assert parts[0] > shops[0] - 0.01  # never worse than what the shop has
    assert parts[2] > shops[2] + 0.15  # half a minute: the curves have parted
    assert parts[4] > 0.85  # a minute
    assert parts[6] < 0.75  # tastes have changed
    assert parts[-1] > 0.8  # and are followed
