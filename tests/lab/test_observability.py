"""What the paper on top-k feedback proves about small games, decided by computing: Tables 1 to 3, Theorems 1, 4, 13."""

from __future__ import annotations

from fractions import Fraction
from math import log2

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.papers.observability import MEASURES, Game, value_of

TABLE_1 = """
123 0 3 2 5 1 4 3 6
132 0 2 3 5 1 3 4 6
213 0 3 1 4 2 5 3 6
231 0 1 3 4 2 3 5 6
312 0 2 1 3 3 5 4 6
321 0 1 2 3 3 4 5 6
"""
TABLE_2 = """
123 0 0 0 0 1 1 1 1
132 0 0 0 0 1 1 1 1
213 0 0 1 1 0 0 1 1
231 0 1 0 1 0 1 0 1
312 0 0 1 1 0 0 1 1
321 0 1 0 1 0 1 0 1
"""


def rows(table: str) -> dict[str, list[int]]:
    return {line.split()[0]: [int(v) for v in line.split()[1:]] for line in table.strip().splitlines()}


def named(game: Game) -> list[str]:
    return ["".join(map(str, ranks)) for ranks in game.rankings]


def difference(game: Game, one: str, other: str) -> list[float]:
    a, b = (game.losses[named(game).index(name)] for name in (one, other))
    return [float(x - y) for x, y in zip(a, b, strict=True)]


def test_table_1() -> None:
    game = Game("sumloss", 3)
    assert ["".join(map(str, r)) for r in game.vectors] == ["000", "001", "010", "011", "100", "101", "110", "111"]
    assert {name: [int(v) for v in row] for name, row in zip(named(game), game.losses, strict=True)} == rows(TABLE_1)


def test_table_2() -> None:
    game = Game("sumloss", 3)
    assert {n: [v[0] for v in row] for n, row in zip(named(game), game.feedback, strict=True)} == rows(TABLE_2)


@pytest.mark.parametrize(
    ("game", "globally", "locally", "regret"),
    [
        (Game("sumloss", 3), True, False, "T^(2/3)"),  # Theorems 1 and 4
        (Game("sumloss", 4), True, False, "T^(2/3)"),
        (Game("pairwise", 3), True, False, "T^(2/3)"),
        (Game("dcg", 3), True, False, "T^(2/3)"),
        (Game("dcg", 3, n=2), True, False, "T^(2/3)"),
        (Game("ndcg", 3), False, None, "T"),  # Lemma 12
        (Game("ap", 3), False, None, "T"),
        (Game("auc", 3), True, False, "T^(2/3)"),  # all normalizers are 2 there
        (Game("auc", 4), False, None, "T"),
        (Game("precision", 3, cut=1), True, True, "√T"),
        (Game("precision", 3, cut=2), True, True, "√T"),  # which the paper leaves open
        (Game("precision", 4, cut=2), True, True, "√T"),
        (Game("sumloss", 1), True, True, "0"),
        # k > 1, which the paper asks about: all but one grade make any of them learnable
        (Game("ndcg", 3, k=2), True, False, "T^(2/3)"),
        (Game("ap", 3, k=2), True, False, "T^(2/3)"),
        (Game("ndcg", 4, k=2), False, None, "T"),
        (Game("sumloss", 3, k=2), True, True, "√T"),
        (Game("sumloss", 3, k=3), True, True, "√T"),
    ],
)
def test_what_can_be_learned(game: Game, globally: bool, locally: bool | None, regret: str) -> None:
    assert game.globally_observable == globally
    if locally is not None:
        assert game.locally_observable == locally
    assert game.regret == regret
    assert game.gap == 0.0 if globally else game.gap > 0.05  # far above what the rounding of a logarithm could do


def test_the_rows_of_appendix_a() -> None:
    """Signs of gains are turned, so the differences of losses are minus those printed."""
    log3 = log2(3)
    ndcg = difference(Game("ndcg", 3), "123", "321")
    printed = [0, -1 / 2, 0, -log3 / (2 * (1 + log3)), 1 / 2, 0, log3 / (2 * (1 + log3)), 0]
    assert ndcg == pytest.approx([-v for v in printed])
    ap = difference(Game("ap", 3), "123", "321")
    assert ap == pytest.approx([-v for v in (0, -2 / 3, 0, -5 / 12, 2 / 3, 0, 5 / 12, 0)])
    auc = Game("auc", 4)
    words = "0000 0001 0010 0100 1000 0011 0101 1001 0110 1010 1100 0111 1011 1101 1110 1111"
    printed_order = words.split()
    columns = ["".join(map(str, r)) for r in auc.vectors]
    found = difference(auc, "1234", "4321")
    assert [found[columns.index(r)] for r in printed_order] == pytest.approx(
        [0, 1, 1 / 3, -1 / 3, -1, 1, 1 / 2, 0, 0, -1 / 2, -1, 1, 1 / 3, -1 / 3, -1, 0]
    )


def test_table_3_two_adversaries_that_top_1_feedback_cannot_tell_apart() -> None:
    """Theorem 21: the same expected grades, another order of the normalized gains."""
    vectors = ["000", "110", "101", "011", "100", "010", "001", "111"]
    p = [0.0, 0.1, 0.15, 0.05, 0.2, 0.3, 0.2, 0.0]
    other = [0.0, 0.3, 0.0, 0.0, 0.15, 0.15, 0.4, 0.0]
    grades = np.array([[int(g) for g in r] for r in vectors], dtype=float)
    ideal = np.array([sum(1 / log2(2 + i) for i in range(int(r.sum()))) or 1.0 for r in grades])
    for chances in (p, other):
        assert np.array(chances) @ grades == pytest.approx([0.45, 0.45, 0.4])
    normalized = grades / ideal[:, None]
    assert np.array(p) @ normalized == pytest.approx([0.3533, 0.3920, 0.3226], abs=5e-5)
    assert np.array(other) @ normalized == pytest.approx([0.3339, 0.3339, 0.4], abs=5e-5)


def test_values_by_hand() -> None:
    ranks, grades = (2, 1, 3), (1, 0, 1)  # item 2 first, then 1, then 3
    assert value_of("sumloss", ranks, grades) == 5
    assert value_of("pairwise", ranks, grades) == 2
    assert value_of("auc", ranks, grades) == 1
    assert value_of("precision", ranks, grades, 2) == 1
    assert value_of("ap", ranks, grades) == Fraction(1, 2) * (Fraction(1, 2) + Fraction(2, 3))
    assert float(value_of("dcg", ranks, grades)) == pytest.approx(1 / log2(3) + 1 / 2)
    assert float(value_of("ndcg", ranks, grades)) == pytest.approx((1 / log2(3) + 1 / 2) / (1 + 1 / log2(3)))
    assert float(value_of("dcg", (1, 2), (2, 1))) == pytest.approx(3 + 1 / log2(3))
    assert [value_of(name, (1, 2), (0, 0)) for name in MEASURES] == [0, 0, 0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Game("mrr", 3), "measure is 'mrr'"),
        (lambda: Game("ap", 3, n=2), "two grades only"),
        (lambda: Game("dcg", 3, k=4), "no more than all m = 3"),
        (lambda: Game("dcg", 0), "m is 0"),
        (lambda: Game("dcg", 12), "too large a game"),
        (lambda: Game("dcg", 7, n=3), "too large a game"),
    ],
)
def test_games_that_are_none(make: object, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        make()  # type: ignore[operator]
