"""Follow the perturbed leader over one query's items, from the grades of the first positions or from all of them.

A query's numbers are a `Board`: its clock, and sums of what was graded. Time goes in blocks; in each, every item is
brought to the top once, at a random moment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import power
from rankloop.kernels.ranking import top_k

SUMLOSS, DCG, PRECISION = 0, 1, 2


class Board(NamedTuple):
    """What `rtopk-items` knows of a query: views of its table of queries, which `observe` writes to."""

    block: Array  # (1,) int64, how many blocks are over
    place: Array  # (1,) int64, rounds of this block that are over
    length: Array  # (1,) int64, rounds of this block; 0: nothing has been learned yet
    past: Array  # (1,) int64, rounds of all blocks that are over
    horizon: Array  # (1,) int64, rounds that are planned for
    blocks: Array  # (1,) int64, into how many blocks they are cut
    sums: Array  # (m,) gains graded in blocks that are over, each times the rounds its block stands for
    weights: Array  # (m,) those rounds
    new_sums: Array  # (m,) the same of what came since: it counts when this block is over
    new_weights: Array  # (m,)
    told: Array  # (m,) int64, the last block in which the item was explored and graded


class ItemRule(NamedTuple):
    """The parameters of `rtopk-items`, as its kernels take them."""

    measure: int  # SUMLOSS …
    highest: float  # grade
    top: int  # positions graded
    horizon: int  # 0: not known
    blocks: int  # 0: as the horizon says
    epsilon: float  # 0: as the number of blocks says
    random_below: bool  # what stands below the items explored


@jit
def gain(grade: float, measure: int) -> float:
    """What a grade is worth under a measure: 2^grade - 1, relevant or not, or the grade itself."""
    if measure == DCG:
        return power(2.0, grade) - 1.0
    if measure == PRECISION:
        return 1.0 if grade > 0.0 else 0.0
    return grade


@jit
def plan(m: int, top: int, horizon: int, blocks: int) -> tuple[int, int]:
    """How many blocks the horizon is cut into, and their length: K = m^(1/3) T^(2/3) / ⌈m/top⌉^(2/3) unless given.

    A block is never shorter than the ⌈m/top⌉ rounds that it explores.
    """
    cells = (m + top - 1) // top
    wanted = blocks
    if blocks == 0:
        wanted = int(np.round(power(m, 1.0 / 3.0) * power(horizon / cells, 2.0 / 3.0)))
    count = max(1, min(wanted, horizon // cells))
    return count, max(horizon // count, cells)


@jit
def first_horizon(m: int, rule: ItemRule) -> int:
    """The horizon, or the shortest for which the number of blocks is as `plan` wants it; it doubles from there."""
    return rule.horizon if rule.horizon > 0 else m * ((m + rule.top - 1) // rule.top)


@jit
def reach(m: int, count: int, rule: ItemRule) -> float:
    """1/ε: how far the leader is perturbed when it will be asked `count` times."""
    if rule.epsilon > 0.0:
        return 1.0 / rule.epsilon
    return gain(rule.highest, rule.measure) * float(np.sqrt(m * count))


@jit
def means(numbers: Array, sums: Array, weights: Array) -> Array:
    """(n,) the mean gain of each candidate; one that was never graded is taken to be like the others."""
    found = np.empty(numbers.size)
    known, total = 0, 0.0
    for i in range(numbers.size):
        number = numbers[i]
        if number >= 0 and weights[number] > 0.0:
            found[i] = sums[number] / weights[number]
            known += 1
            total += found[i]
        else:
            found[i] = -1.0
    for i in range(numbers.size):
        if found[i] < 0.0:
            found[i] = total / known if known else 0.0
    return found


@jit
def arrange(board: Board, numbers: Array, coins: Array, k: int, rule: ItemRule) -> tuple[Array, int, int]:
    """(k,) the candidates to show, how many of the first are there to be explored, and the length of the block.

    `numbers` (n,) are the candidates' on the board, -1: not known. `coins` (2n + 1,): the first decides whether to
    explore, n perturb the leader (or are the random order below what is explored), n choose what to explore.

    With c groups of items left to explore and r rounds left of the block, a round explores with probability c/r: then
    the moments are those of a draw without replacement, and no plan need be kept. Where the items do not make full
    groups, one group is smaller; each of those left is it with the same probability, so that no item comes earlier.
    """
    n = numbers.size
    count, length = board.blocks[0], board.length[0]
    if length == 0:
        count, length = plan(n, rule.top, first_horizon(n, rule), rule.blocks)
    left = 0
    for i in range(n):
        left += numbers[i] < 0 or board.told[numbers[i]] != board.block[0]
    size = min(rule.top, k)
    groups = (left + size - 1) // size
    chance = coins[0] * (length - board.place[0])  # below 1 in one of the rounds left, below c in c of them
    explore = chance < groups
    scores = coins[1 : n + 1].copy()
    if not (explore and rule.random_below):
        scale = reach(n, count, rule)
        gone = board.past[0] / length  # in blocks like this one
        mean = means(numbers, board.sums, board.weights)
        for i in range(n):
            scores[i] = gone * mean[i] + scale * scores[i]
    if not explore:
        return top_k(scores, coins[n + 1 :], k), 0, length
    keys = coins[n + 1 :].copy()
    for i in range(n):
        if numbers[i] >= 0 and board.told[numbers[i]] == board.block[0]:
            keys[i] = -1.0
    explored = size if left % size == 0 or chance >= 1.0 else left % size
    for i in top_k(keys, keys, explored):
        scores[i] = np.inf
    return top_k(scores, keys, k), explored, length


@jit
def observe(
    board: Board, numbers: Array, grades: Array, block: int, length: int, candidates: int, rule: ItemRule
) -> None:
    """Take in one round: the grades of the items explored in it, if any, and that a round of the block is over.

    `block` and `length` are those of the time when the list was shown, `candidates` how many items there were.
    """
    if board.length[0] == 0:
        board.horizon[0] = first_horizon(candidates, rule)
        board.blocks[0], board.length[0] = plan(candidates, rule.top, board.horizon[0], rule.blocks)
    for a in range(numbers.size):
        i = numbers[a]
        if i >= 0:
            board.new_sums[i] += length * gain(grades[a], rule.measure)
            board.new_weights[i] += length
            if block == board.block[0]:
                board.told[i] = block
    board.place[0] += 1
    if board.place[0] < board.length[0]:
        return
    for i in range(board.sums.size):
        board.sums[i] += board.new_sums[i]
        board.weights[i] += board.new_weights[i]
        board.new_sums[i] = 0.0
        board.new_weights[i] = 0.0
    board.block[0] += 1
    board.place[0] = 0
    board.past[0] += board.length[0]
    while rule.horizon == 0 and board.past[0] >= board.horizon[0]:
        board.horizon[0] *= 2
    board.blocks[0], board.length[0] = plan(candidates, rule.top, board.horizon[0], rule.blocks)


@jit
def follow(numbers: Array, sums: Array, weights: Array, rounds: int, coins: Array, k: int, rule: ItemRule) -> Array:
    """(k,) the perturbed leader's list with full information: every round is a block of its own.

    A horizon that is not known is the next power of two.
    """
    n = numbers.size
    horizon = rule.horizon
    if horizon == 0:
        horizon = 1
        while horizon <= rounds:
            horizon *= 2
    scale = reach(n, horizon, rule)
    mean = means(numbers, sums, weights)
    scores = np.empty(n)
    for i in range(n):
        scores[i] = rounds * mean[i] + scale * coins[i]
    return top_k(scores, coins, k)


@jit
def count_in(sums: Array, weights: Array, numbers: Array, grades: Array, measure: int) -> None:
    """Add the gains of one graded list."""
    for a in range(numbers.size):
        if numbers[a] >= 0:
            sums[numbers[a]] += gain(grades[a], measure)
            weights[numbers[a]] += 1.0


@jit
def corrupt(vectors: Array, drawn: Array, flip: float, highest: float) -> None:
    """Give each grade, where its number is below `flip`, one of the other grades 0 … highest, in place.

    What is left of the number says which one.
    """
    for t in range(vectors.shape[0]):
        for i in range(vectors.shape[1]):
            if drawn[t, i] < flip:
                away = 1.0 + min(np.floor(drawn[t, i] / flip * highest), highest - 1.0)
                vectors[t, i] = (vectors[t, i] + away) % (highest + 1.0)
