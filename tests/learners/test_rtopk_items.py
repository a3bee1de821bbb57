"""RTop-kF without context: the block estimate is unbiased by enumeration; late, missing and doubled grades."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import ftpl
from rankloop.learners.grades.ftpl_full import FTPLFull
from rankloop.learners.grades.rtopk_items import RTopKItems
from tests.kernels.test_ftpl import board_of

RULE = ftpl.ItemRule(ftpl.DCG, 3.0, 1, 0, 0, 0.0, False)


# -- the block estimate ----------------------------------------------------------------------------------------------


def moments(m: int, top: int, length: int) -> Iterator[tuple[Fraction, dict[int, int]]]:
    """All ways in which a block can go: probability, and for each item the round in which it was explored.

    Choices are enumerated through the kernel itself: the coin decides with a chance of c/r, and every order of the
    numbers that choose is equally likely.
    """
    rule = RULE._replace(top=top, horizon=length, blocks=1)
    orders = [np.array(keys) for keys in permutations(np.linspace(0.1, 0.9, m))]

    def go(told: tuple[int, ...], place: int) -> Iterator[tuple[Fraction, dict[int, int]]]:
        if place == length:
            yield Fraction(1), {}
            return
        board = board_of(m)
        board.length[0], board.blocks[0], board.horizon[0], board.place[0] = length, 1, length, place
        board.told[list(told)] = 0
        left = m - len(told)
        chance = Fraction(min(-(-left // top), length - place), length - place)
        one = Fraction(1, length - place)  # the chance to be the round of one given group
        coins_of = ((0.0, one), (float(one) * (1 + 1e-9), chance - one), (1.0 - 1e-12, 1 - chance))
        outcomes: dict[tuple[int, ...], Fraction] = {}
        for keys in orders:
            for coin, weight in coins_of if left else ((0.5, Fraction(1)),):
                if weight:
                    coins = np.concatenate([[coin], np.full(m, 0.5), keys])
                    order, explored, _ = ftpl.arrange(board, np.arange(m), coins, m, rule)
                    found = tuple(sorted(order[:explored].tolist()))
                    outcomes[found] = outcomes.get(found, Fraction(0)) + weight / len(orders)
        for found, weight in outcomes.items():
            for rest, then in go((*told, *found), place + 1):
                yield weight * rest, {**dict.fromkeys(found, place), **then}

    yield from go((), 0)


@pytest.mark.parametrize(
    ("m", "top", "length"), [(2, 1, 3), (3, 1, 3), (3, 1, 4), (3, 2, 2), (3, 2, 4), (4, 2, 3), (5, 2, 3), (5, 3, 3)]
)
def test_every_item_is_explored_once_at_a_uniform_moment(m: int, top: int, length: int) -> None:
    """Lemma 7: then what is revealed is an unbiased estimate of the block's mean vector, whatever the vectors are."""
    when = np.full((m, length), Fraction(0))
    for chance, found in moments(m, top, length):
        assert sorted(found) == list(range(m))
        for item, t in found.items():
            when[item, t] += chance
    assert (when == Fraction(1, length)).all()


@pytest.mark.parametrize(("m", "top", "length"), [(3, 1, 4), (4, 2, 3), (5, 2, 3)])
def test_the_block_estimate_is_unbiased(m: int, top: int, length: int) -> None:
    """By enumeration, through the learner's own sums: E[R̂] is the mean of 2^R - 1 over the block."""
    vectors = np.random.default_rng(m).integers(0, 4, (length, m)).astype(float)
    rule = RULE._replace(top=top, horizon=length, blocks=1)
    expected = np.zeros(m)
    for chance, found in moments(m, top, length):
        board = board_of(m)
        for t in range(length):
            seen = np.array([item for item, then in found.items() if then == t], dtype=np.int64)
            ftpl.observe(board, seen, vectors[t][seen], 0, length, m, rule)
        assert board.block[0] == 1
        expected += float(chance) * board.sums / board.weights
    assert expected == pytest.approx((2.0**vectors - 1.0).mean(0))


# -- a query's clock -------------------------------------------------------------------------------------------------


ITEMS = Candidates("q", ["a", "b", "c"])


def board_now(learner: RTopKItems) -> ftpl.Board:
    return ftpl.Board(*learner.queries_.values(learner.queries_.find("q")))


def explored(shown: Impression) -> list[str]:
    return [str(item) for item in shown.items[: int(shown.memo["round"][3])]]


def test_a_block_ends_when_its_rounds_are_learned() -> None:
    """Three items, one grade a list, horizon 12 in 3 blocks of 4: what is told counts at the end of its block."""
    learner, rng = RTopKItems("sumloss", grades=2, horizon=12, blocks=3), np.random.default_rng(0)
    grades = {"a": 0.0, "b": 2.0, "c": 1.0}
    for block in range(3):
        seen: list[str] = []
        for place in range(4):
            shown = learner.rank(ITEMS, 3, rng)
            assert shown.memo["round"][:3].tolist() == [block, 4, 3]
            seen += explored(shown)
            assert (board_now(learner).block[0], board_now(learner).place[0]) == (block, place)
            learner.learn(shown, Feedback.grades([grades[str(shown.items[0])]]), rng)
        assert sorted(seen) == ["a", "b", "c"]
        board = board_now(learner)
        assert board.weights.tolist() == [4.0 * (block + 1)] * 3
        assert sorted((board.sums / board.weights).tolist()) == [0.0, 1.0, 2.0]
    assert ITEMS.items[learner.best(ITEMS, 3)].tolist() == ["b", "c", "a"]


def test_an_unknown_horizon_doubles_and_keeps_what_was_learned() -> None:
    learner, rng = RTopKItems(top=1, grades=1), np.random.default_rng(0)
    lengths = []
    for _ in range(100):
        shown = learner.rank(ITEMS, 3, rng)
        learner.learn(shown, Feedback.grades([shown.items[0] == "b"]), rng)
        lengths.append(int(shown.memo["round"][1]))
    board = board_now(learner)
    assert board.horizon.tolist() == [144]  # 9 · 2⁴
    assert lengths[:9] == [3] * 9  # m⌈m/k⌉ = 9 rounds explore only
    assert lengths == sorted(lengths)
    assert board.weights.tolist() == [float(board.past[0])] * 3  # all blocks, long and short, still count
    assert ITEMS.items[learner.best(ITEMS, 1)].tolist() == ["b"]


def test_a_grade_that_never_came_is_filled_from_other_blocks() -> None:
    learner, rng = RTopKItems("sumloss", grades=2, horizon=60, blocks=20), np.random.default_rng(0)
    blocks, lost = 0, False
    while blocks < 4:
        shown = learner.rank(ITEMS, 3, rng)
        if explored(shown) == ["c"] and not lost:
            lost = True  # nobody answers: no round of the block is over
            continue
        learner.learn(shown, Feedback.grades([{"a": 0, "b": 2, "c": 1}[str(shown.items[0])]]), rng)
        blocks = int(board_now(learner).block[0])
    assert lost
    assert board_now(learner).weights.tolist() == [12.0] * 3  # the clock waited: each was graded in all four blocks

    late = RTopKItems("sumloss", grades=2, horizon=60, blocks=20)
    open_ = [late.rank(ITEMS, 3, np.random.default_rng(s)) for s in range(40)]  # all from the same state
    twice = [shown for shown in open_ if explored(shown) in (["a"], ["b"])][:6]
    for shown in twice:  # two blocks' worth of rounds, none of which has explored c
        late.learn(shown, Feedback.grades([2]), rng)
    board = board_now(late)
    assert board.block.tolist() == [2]
    assert board.weights.sum() == 18.0  # each of the six counts, doubled ones as more of the same
    numbers = late.queries_.numbers(0, late.queries_.items(0))
    assert set(ftpl.means(numbers, board.sums, board.weights).tolist()) == {2.0}
    assert ftpl.means(np.array([0, -1]), board.sums, board.weights)[1] == 2.0  # never graded: like the others


def test_late_grades_keep_the_weight_of_their_own_block() -> None:
    learner, rng = RTopKItems("sumloss", top=1, grades=2), np.random.default_rng(0)
    first = learner.rank(ITEMS, 3, rng)
    assert first.memo["round"][1] == 3
    while board_now(learner).length.tolist() != [4]:
        shown = learner.rank(ITEMS, 3, rng)
        learner.learn(shown, Feedback.grades([1]), rng)
    before = [array.copy() for array in board_now(learner)]
    learner.learn(first, Feedback.grades([2]), rng)  # shown in the first block, which had 3 rounds
    after, then = board_now(learner), ftpl.Board(*before)
    assert (after.new_weights - then.new_weights).sum() == 3.0
    assert (after.new_sums - then.new_sums).sum() == 6.0
    assert after.told.tolist() == then.told.tolist()  # it does not count as this block's exploration


def test_lists_of_others_count_as_explored() -> None:
    learner, rng = RTopKItems("sumloss", top=2, grades=2), np.random.default_rng(0)
    for _ in range(30):
        shown = learner.adopt(ITEMS, np.array([2, 0]))
        learner.learn(shown, Feedback.grades([2, 1]), rng)
    assert ITEMS.items[learner.best(ITEMS, 3)].tolist() == ["c", "b", "a"]  # b was never graded: like the mean


def test_the_order_below_the_explored_items() -> None:
    """After a block the leader is known: with ε large it stands below what is explored, unless that is random."""
    rng, found = np.random.default_rng(0), {}
    for below in ("leader", "random"):
        learner = RTopKItems("sumloss", grades=1, horizon=10**6, blocks=1000, epsilon=1e6, below=below)
        items = Candidates("q", np.arange(6))
        for _ in range(1000):
            shown = learner.rank(items, 6, rng)
            learner.learn(shown, Feedback.grades([shown.items[0] == 5]), rng)
        assert learner.state()["block_"][0] == 1
        tops = [shown for shown in (learner.rank(items, 6, rng) for _ in range(2000)) if shown.memo["round"][3]]
        found[below] = np.mean([shown.items[1] == 5 for shown in tops if shown.items[0] != 5])
    assert found["leader"] == 1.0
    assert found["random"] == pytest.approx(0.2, abs=0.2)


@pytest.mark.parametrize("cls", [RTopKItems, FTPLFull])
@pytest.mark.parametrize(
    ("values", "words"),
    [([2], "position 1 is 2"), ([np.nan], "finite number"), ([-1], "at least 0")],
)
def test_bad_grades_are_named_and_change_nothing(cls: Any, values: list[float], words: str) -> None:
    learner, rng = cls(grades=1), np.random.default_rng(0)
    for _ in range(5):
        shown = learner.rank(ITEMS, 3, rng)
        learner.learn(shown, Feedback.grades([1]), rng)
    before = {name: value.tobytes() for name, value in learner.state().items()}
    with pytest.raises(InvalidInput, match=words):
        learner.learn(shown, Feedback.grades(values), rng)
    assert before == {name: value.tobytes() for name, value in learner.state().items()}


def test_fewer_grades_than_asked_for_and_a_foreign_memo_are_refused() -> None:
    learner, rng = RTopKItems(top=2), np.random.default_rng(0)
    shown = learner.rank(ITEMS, 3, rng)
    with pytest.raises(InvalidInput, match="feedback has 1 grades"):
        learner.learn(shown, Feedback.grades([1]), rng)
    for wrong in ([-1.0, 3, 3, 1], [0.0, 0, 3, 1], [0.0, 3, 2, 1], [0.0, 3, 3, 3], [0.0, 3, np.nan, 1]):
        with pytest.raises(InvalidInput, match="pass it on as rank made it"):
            learner.learn(shown._replace(memo={"round": np.array(wrong)}), Feedback.grades([1, 1]), rng)
    assert all(array.size == 0 for array in learner.state().values())


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"blocks": 5}, "needs a horizon"),
        ({"horizon": -1}, "at least 0"),
        ({"horizon": 2**60}, "at most 9007199254740992"),
        ({"measure": "ndcg"}, "one of sumloss, dcg, precision"),
        ({"below": "best"}, "one of leader, random"),
        ({"epsilon": -0.1}, "at least 0"),
        ({"max_items": 0}, "at least 1"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        RTopKItems(**parameters)


# -- full information ------------------------------------------------------------------------------------------------


def test_the_full_leader_goes_by_means_where_grades_are_missing() -> None:
    learner, rng = FTPLFull("sumloss", grades=2), np.random.default_rng(0)
    for order, grades in (([0, 1, 2], [1, 2, 0]), ([1, 0], [2, 0]), ([2], [1])):
        learner.learn(learner.adopt(ITEMS, np.array(order)), Feedback.grades(grades), rng)
    assert ITEMS.items[learner.best(ITEMS, 3)].tolist() == ["b", "a", "c"]  # means 2, .5, .5
    learner.learn(learner.adopt(ITEMS, np.array([2])), Feedback.grades([]), rng)
    assert learner.queries_.rounds(0) == 3  # nothing graded, nothing learned


def test_without_perturbation_the_leader_is_followed() -> None:
    learner, rng = FTPLFull("dcg", grades=3, epsilon=1e9), np.random.default_rng(0)
    vectors: Array = rng.integers(0, 4, (30, 3))
    for grades in vectors:
        shown = learner.rank(ITEMS, 3, rng)
        learner.learn(shown, Feedback.grades(grades[shown.order]), rng)
    sums = (2.0**vectors - 1).sum(0)
    assert learner.rank(ITEMS, 3, rng).order.tolist() == np.argsort(-sums).tolist()


@pytest.mark.parametrize(("name", "value"), [("horizon_", 0), ("place_", -1), ("past_", 2**60)])
def test_a_clock_that_never_ran_is_not_loaded(name: str, value: int) -> None:
    learner, rng = RTopKItems(), np.random.default_rng(0)
    learner.learn(learner.rank(ITEMS, 3, rng), Feedback.grades([1]), rng)
    state = learner.state()
    with pytest.raises(InvalidInput, match="no rounds could have set"):
        learner.load({**state, name: np.array([value])})
    assert {key: array.tobytes() for key, array in learner.state().items()} == {
        key: array.tobytes() for key, array in state.items()
    }
