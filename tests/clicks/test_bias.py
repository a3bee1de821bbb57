"""Position bias by comparing pairs with themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from rankloop.clicks import Page, SessionLog
from rankloop.core.errors import DataError
from rankloop.core.types import Array
from rankloop.evaluation.position_bias import position_bias
from tests.clicks.truths import pages, truth


def log_of(*counts: tuple[str, int, int, int]) -> SessionLog:
    """(document, rank from 1, displays, clicks); the other ranks of a page hold what is never clicked nor repeated."""
    made, fresh = [], 0
    for document, rank, shows, clicks in counts:
        for n in range(shows):
            above = [f"filler {fresh + r}" for r in range(rank - 1)]
            fresh += rank
            made.append(Page(f"s{fresh}", "q", [*above, document], [0] * (rank - 1) + [int(n < clicks)]))
    return SessionLog.from_pages(made)


def test_one_pair_at_two_ranks_is_a_ratio_of_click_rates() -> None:
    found = position_bias(log_of(("a", 1, 10, 8), ("a", 2, 30, 6)))
    assert found.examination == pytest.approx([1.0, (6 / 30) / (8 / 10)])
    assert (found.pairs, found.shows.tolist(), found.clicks.tolist()) == (1, [10, 30], [8, 6])


def test_it_is_the_maximum_of_the_likelihood() -> None:
    """Against a general optimizer, on the clicks of each pair shared out among the ranks where it was shown."""
    rng = np.random.default_rng(0)
    log = truth("pbm").simulate(pages(400, rng, shortest=2), rng)
    shows, clicks = np.zeros((18, 5)), np.zeros((18, 5))
    for shown, length, flags in zip(log.shown, log.lengths, log.clicks, strict=True):
        for r in range(length):
            shows[shown[r], r] += 1
            clicks[shown[r], r] += flags[r]

    def minus(free: Array) -> float:
        p = np.exp(np.append(0.0, free))
        return -float((clicks * np.log(shows * p / (shows * p).sum(axis=1, keepdims=True))).sum())

    wanted = np.exp(minimize(minus, np.zeros(4), tol=1e-10).x)
    assert position_bias(log).examination[1:] == pytest.approx(wanted, abs=1e-4)


def test_it_finds_the_truth_within_its_errors() -> None:
    """Of 40 logs, errors in standard errors have mean about 0 and spread about 1."""
    rng, true = np.random.default_rng(1), truth("pbm")
    apart = []
    for _ in range(40):
        found = position_bias(true.simulate(pages(1_000, rng), rng))
        apart.append((found.examination - true.examination_)[1:] / found.error[1:])  # type: ignore[attr-defined]
    scores = np.array(apart)
    assert np.abs(scores.mean(axis=0)).max() < 4 / np.sqrt(40)
    assert scores.std() == pytest.approx(1.0, abs=0.2)
    assert (found.error[0], found.examination[0]) == (0.0, 1.0)


def test_pairs_that_never_moved_or_were_never_clicked_tell_nothing() -> None:
    moved = [("a", 1, 10, 5), ("a", 2, 10, 2), ("b", 1, 4, 1), ("b", 2, 9, 3)]
    alone = position_bias(log_of(*moved))
    more = position_bias(log_of(*moved, ("c", 1, 50, 40), ("d", 2, 50, 1), ("e", 1, 9, 0), ("e", 2, 9, 0)))
    assert more.examination.tolist() == alone.examination.tolist()
    assert more.error.tolist() == alone.error.tolist()
    assert (more.pairs, more.shows.tolist(), more.clicks.tolist()) == (2, [14, 19], [6, 5])


def test_ranks_that_nothing_connects_have_no_number() -> None:
    """Ranks 3 and 4 are compared with each other only; rank 5 was compared with the first, and never clicked."""
    found = position_bias(
        log_of(("a", 1, 9, 5), ("a", 2, 9, 3), ("b", 3, 9, 4), ("b", 4, 9, 2), ("c", 1, 9, 3), ("c", 5, 9, 0))
    )
    assert found.examination[:2] == pytest.approx([1.0, 3 / 5])
    assert np.isnan(found.examination[2:4]).all()
    assert found.examination[4] == 0.0
    assert np.isnan(found.error[2:]).all()


def test_a_log_in_which_nothing_moved() -> None:
    found = position_bias(log_of(("a", 1, 5, 2), ("b", 2, 5, 2)))
    assert found.examination[0] == 1.0
    assert np.isnan(found.examination[1])
    assert found.pairs == 0
    with pytest.raises(DataError, match="no pages"):
        position_bias(SessionLog.from_pages([]))
