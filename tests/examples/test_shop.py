"""The shop: started as a newcomer starts it; its truth, and that there is something to learn and to follow."""

from __future__ import annotations

import re
import signal
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from examples.embedded import address, listen
from examples.shop.__main__ import COMPARED, RANKERS, specs
from examples.shop.shop import SEASONS, SHELVES, SHOWN, TASTES, Shop, Visit

from rankloop.client import Client
from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Candidates, Feedback
from rankloop.service.control.rankers import complete
from rankloop.service.ranking.model import make_learner
from tests.examples.library import started
from tests.waiting import PATIENCE, wait_for


def ndcg(client: Client, name: str) -> float:
    points = [point.ndcg for point in client.series(name).points if point.ndcg is not None]
    return points[-1] if points else 0.0


@pytest.mark.slow
def test_rankings_improve_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    log, temporary = tmp_path / "log", tmp_path / "tmp"
    temporary.mkdir()
    with started("shop", log, "--rate", "20", TMPDIR=str(temporary)) as process:
        wait_for(lambda: "http://" in log.read_text(), "the address")
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())
        with Client(url, timeout=PATIENCE) as client:
            assert {"production", "hybrid"} <= {status.name for status in client.rankers()} <= set(RANKERS)
            wait_for(lambda: ndcg(client, "hybrid") > ndcg(client, "production") + 0.2, "an improvement")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_kill_and_a_closed_terminal_leave_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    log, temporary = tmp_path / "log", tmp_path / "tmp"
    temporary.mkdir()
    with started("shop", log, "--rate", "2", TMPDIR=str(temporary)) as process:
        wait_for(lambda: "http://" in log.read_text(), "the address")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert list(temporary.iterdir()) == []


def test_a_taken_port_is_an_error_unless_it_is_the_default() -> None:
    with listen(0) as first:
        port = int(address(first).rpartition(":")[2])
        with pytest.raises(InvalidParameter, match=f"port {port} is taken"):
            listen(port)
    with listen(None), listen(None) as second:  # at least one of them finds 8080 taken
        assert address(second).startswith("http://127.0.0.1:")


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


def test_visits_and_clicks_are_a_function_of_the_seed(shop: Shop) -> None:
    again = Shop()
    for n in range(20):
        visit = shop.visit(n, 0)
        assert visit == again.visit(n, 0)
        shown = shop.products[visit.shelf][:SHOWN]
        assert shop.clicks(visit, shown, n) == again.clicks(visit, shown, n)


def test_tastes_have_the_shares_of_their_season(shop: Shop) -> None:
    for season, shares in enumerate(SEASONS):
        tastes = [shop.visit(n, season).taste for n in range(2000)]
        assert np.bincount(tastes, minlength=len(TASTES)) / 2000 == pytest.approx(shares, abs=0.04)


def test_quality_is_one_for_the_best_ranking_and_never_more(shop: Shop) -> None:
    for season in (0, 1):
        visit = Visit(2, 0, 0, season)
        products = shop.products[2]
        best = sorted(products, key=lambda item: -shop.quality(visit, [item]))
        assert shop.quality(visit, best[:3]) == pytest.approx(1.0)
        assert all(shop.quality(visit, list(shown)) <= 1.0 + 1e-12 for shown in permutations(products[:6], 3))
        assert shop.quality(visit, best[::-1][:SHOWN]) < 0.5


def test_the_learner_starts_as_the_baseline_improves_on_it_and_follows_the_change(shop: Shop) -> None:
    learner, rng, quality, baseline = make_learner(complete(specs()[COMPARED])), Rng(0), [], []
    for n in range(1200):
        visit = shop.visit(n, int(n >= 600))
        rows, products = shop.rows[visit.shelf], shop.products[visit.shelf]
        shown = learner.rank(Candidates(SHELVES[visit.shelf], products, rows), SHOWN, rng.for_event("rank", n))
        items = shown.items.tolist()
        assert n > 0 or items == products[:SHOWN]
        quality.append(shop.quality(visit, items))
        baseline.append(shop.quality(visit, products[:SHOWN]))
        learner.learn(shown, Feedback.clicked(shown, shop.clicks(visit, items, n)), rng.for_event("learn", n))
    ours, theirs = (np.array(values).reshape(-1, 100).mean(1) for values in (quality, baseline))
    assert ours[0] > theirs[0] - 0.01
    assert ours[2] > theirs[2] + 0.15
    assert ours[4] > 0.85
    assert ours[6] < 0.75  # tastes have changed
    assert ours[-1] > 0.8
