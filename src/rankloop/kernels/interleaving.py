"""Mixing the rankings of several rankers, and dividing the clicks on the mixed list among them.

Rankings are (R, n): a row a ranker, document numbers from the top. Ranks count from 0.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.elementary import power
from rankloop.kernels.preferences import ALL, click_pairs
from rankloop.kernels.ranking import top_k

MORE = 4  # a ranking is sorted four times as far as was asked for


@jit
def rankings(scores: Array, ties: Array) -> Array:
    """(R, n) documents by descending score (R, n); among equal scores the smaller of `ties` (n,) comes first.

    The ties are the same for all rankers: those who score alike rank alike.
    """
    by_tie = np.argsort(ties, kind="mergesort")
    found = np.empty(scores.shape, np.int64)
    fall = np.empty(ties.size)
    for r in range(scores.shape[0]):
        for i in range(ties.size):
            fall[i] = -scores[r, by_tie[i]]
        found[r] = by_tie[np.argsort(fall, kind="mergesort")]  # stable: equal scores keep the order of the ties
    return found


@jit
def odd_one(rankings: Array) -> int:
    """The first row that is not a permutation of 0 … n-1; -1 if all are."""
    n = rankings.shape[1]
    met = np.full(n, -1, np.int64)
    for r in range(rankings.shape[0]):
        for j in range(n):
            document = rankings[r, j]
            if document < 0 or document >= n or met[document] == r:
                return r
            met[document] = r
    return -1


@jit
def ranks_of(rankings: Array) -> Array:
    """(n, R) the rank of each document in each ranking."""
    ranks = np.empty((rankings.shape[1], rankings.shape[0]), np.int64)
    for r in range(rankings.shape[0]):
        for j in range(rankings.shape[1]):
            ranks[rankings[r, j], r] = j
    return ranks


# -- team draft ----------------------------------------------------------------------------------------------------


@jit
def team_draft(rankings: Array, coins: Array, k: int) -> tuple[Array, Array]:
    """(k,) the mixed list, and (k,) who put each document there.

    In each round every ranker, in random order, adds its highest document that is not there yet. `coins` (k,): which
    of the rankers that are still to come in this round is next.
    """
    waiting = np.arange(rankings.shape[0])
    left = 0  # rankers still to come in this round; they stand first in `waiting`
    shown = np.zeros(rankings.shape[1], np.bool_)
    heads = np.zeros(rankings.shape[0], np.int64)
    order, team = np.empty(k, np.int64), np.empty(k, np.int64)
    for p in range(k):
        if left == 0:
            left = waiting.size
        at = int(coins[p] * left)
        left -= 1
        waiting[at], waiting[left] = waiting[left], waiting[at]
        r = waiting[left]
        while shown[rankings[r, heads[r]]]:
            heads[r] += 1
        order[p], team[p] = rankings[r, heads[r]], r
        shown[order[p]] = True
    return order, team


@jit
def two_team_draft(first: Array, second: Array, coins: Array, n: int, displacement: int, k: int) -> tuple[Array, Array]:
    """(k,) a list mixed of the heads of two rankings, and (k,) who put each document there: 1, -1, or 0 for neither.

    Where both want the same document next, it counts for neither. Else each shows the one it wants, in the order of a
    coin. What is shown after such a round does not depend on its coin: coins swap neighbors and nothing else, so
    clicks that do not look at documents favour no side. `first` and `second` hold k positions or more of a list of n.

    No document stands more than `displacement` below its position if none does in either ranking: one that a round
    would carry past that is shown now, for neither. None comes too high, for each side shows a document only after all
    that it has above it. Against the list's own order (second = 0, 1, 2 …) no document is ever shown that way.
    """
    shown = np.zeros(n, np.bool_)
    order, owner = np.empty(k, np.int64), np.zeros(k)
    a, b, oldest, p = 0, 0, 0, 0
    while p < k:
        while shown[first[a]]:
            a += 1
        while shown[second[b]]:
            b += 1
        while shown[oldest]:
            oldest += 1
        one, other = first[a], second[b]
        latest = oldest + displacement  # where the document that waits longest must stand at the latest
        left_out = latest == p + 1 < k and oldest != one and oldest != other
        if latest <= p or one == other or left_out:
            order[p] = oldest if latest <= p or one != other else one
            shown[order[p]] = True
            p += 1
            continue
        turn = coins[p] < 0.5
        order[p], owner[p] = (one, 1.0) if turn else (other, -1.0)
        shown[order[p]] = True
        p += 1
        if p < k:
            order[p], owner[p] = (other, -1.0) if turn else (one, 1.0)
            shown[order[p]] = True
            p += 1
    return order, owner


# -- probabilistic -------------------------------------------------------------------------------------------------


@jit
def soft_ranks(n: int, tau: float) -> tuple[Array, Array]:
    """(n,) the weight 1 / rank^τ of each rank, the first being 1, and (n,) the weight of it and all below."""
    weights, tails = np.empty(n), np.empty(n)
    total = 0.0
    for j in range(n - 1, -1, -1):  # small ones first: nothing is lost
        weights[j] = power(j + 1.0, -tau)
        total += weights[j]
        tails[j] = total
    return weights, tails


@jit
def _rank_in(scores: Array, ties: Array, document: int) -> int:
    """How many documents stand above `document` by score, equal scores by the smaller tie."""
    score, tie, above = scores[document], ties[document], 0
    for j in range(scores.size):  # no branches: compiled, several documents are compared at once
        above += (scores[j] > score) | ((scores[j] == score) & (ties[j] < tie))
    return above


@jit
def interleave(scores: Array, ties: Array, coins: Array, weights: Array, tails: Array) -> tuple[Array, Array]:
    """(k,) a list mixed probabilistically from R rankers' scores (R, n), and (k, R) who put each document there.

    At each position a ranker is drawn, and from it a document of those left, by its soft ranks. `coins` (2, k): the
    first row decides which ranker, the second which document. Rankings are sorted only as far as they are needed, and
    the ranks of the documents shown are counted.
    """
    R, n = scores.shape
    k = coins.shape[1]
    rankings = np.empty((k, n), np.int64)  # of the rankers drawn so far
    known = np.zeros(k, np.int64)  # how far
    row_of = np.full(R, -1, np.int64)
    drawn = 0
    shown = np.zeros(n, np.bool_)
    order = np.empty(k, np.int64)
    ranks = np.empty((k, R), np.int64)  # of the documents shown
    gone = np.zeros((R, n), np.bool_)  # the ranks of the documents shown
    heads = np.zeros(R, np.int64)  # each ranker's first rank that is not gone
    left = np.empty((k, R))  # what was left of each ranker's soft ranks before each position
    for p in range(k):
        for r in range(R):
            while gone[r, heads[r]]:
                heads[r] += 1
            left[p, r] = tails[heads[r]]
            for q in range(p):
                if ranks[q, r] > heads[r]:
                    left[p, r] -= weights[ranks[q, r]]
        r = int(coins[0, p] * R)
        if row_of[r] < 0:
            row_of[r] = drawn
            drawn += 1
        row = row_of[r]
        target = coins[1, p] * left[p, r]
        pick = heads[r]
        for j in range(heads[r], n):
            if j >= known[row]:
                known[row] = min(MORE * (j + 1), n)
                rankings[row, : known[row]] = top_k(scores[r], ties, known[row])
            if not shown[rankings[row, j]]:
                pick = j
                target -= weights[j]
                if target < 0.0:
                    break
        order[p] = rankings[row, pick]
        shown[order[p]] = True
        for r in range(R):
            ranks[p, r] = _rank_in(scores[r], ties, order[p])
            gone[r, ranks[p, r]] = True
    posterior = np.empty((k, R))
    for p in range(k):
        total = 0.0
        for r in range(R):
            posterior[p, r] = weights[ranks[p, r]] / left[p, r]
            total += posterior[p, r]
        for r in range(R):
            posterior[p, r] /= total
    return order, posterior


@jit
def probabilistic(rankings: Array, coins: Array, k: int, tau: float) -> tuple[Array, Array]:
    """`interleave` of R rankings (R, n)."""
    weights, tails = soft_ranks(rankings.shape[1], tau)
    scores = -ranks_of(rankings).T.astype(np.float64)
    return interleave(np.ascontiguousarray(scores), np.zeros(rankings.shape[1]), coins[:, :k], weights, tails)


@jit
def expected_clicks(posterior: Array, clicks: Array) -> Array:
    """(R,) the clicks that each ranker can expect to be its own: Σ posterior over the clicked positions."""
    credit = np.zeros(posterior.shape[1])
    for p in range(posterior.shape[0]):
        if clicks[p] > 0:
            for r in range(credit.size):
                credit[r] += posterior[p, r]
    return credit


@jit
def win_and_loss(posterior: Array, clicks: Array, against: int) -> Array:
    """(2, R) the probability that each ranker owns more clicks than ranker `against`, and that it owns fewer.

    Given the list, positions belong to rankers independently of each other. So a click adds 1 to the difference with
    probability a_r, takes 1 away with a_against and else changes nothing: its law is built click by click. With two
    rankers it is Poisson-binomial.
    """
    R = posterior.shape[1]
    m = 0
    for p in range(posterior.shape[0]):
        m += clicks[p] > 0
    law = np.zeros((2 * m + 3, R))  # law[m + 1 + x]: P(difference = x); a row to spare on both sides
    law[m + 1] = 1.0
    old = np.empty(R)
    reach = 0
    for p in range(posterior.shape[0]):
        if clicks[p] <= 0:
            continue
        reach += 1
        old[:] = 0.0  # what the row above held before this click
        down = posterior[p, against]
        for x in range(m + 1 - reach, m + 2 + reach):
            for r in range(R):
                up = posterior[p, r]
                rest = max(1.0 - (up + down), 0.0)
                before = law[x, r]
                # Both ways in one bracket: with equal rankers winning and losing stay equal to the last bit.
                law[x, r] = rest * before + (up * old[r] + down * law[x + 1, r])
                old[r] = before
    found = np.zeros((2, R))
    for x in range(1, m + 1):
        for r in range(R):
            found[0, r] += law[m + 1 + x, r]
            found[1, r] += law[m + 1 - x, r]
    found[:, against] = 0.0  # no ranker beats itself
    return found


# -- pairwise preference -------------------------------------------------------------------------------------------


@jit
def pairwise_preference(rankings: Array, coins: Array, k: int) -> tuple[Array, Array, Array]:
    """(k,) the mixed list, (k, R) its documents' ranks in each ranking, and (k,) how many could stand at each position.

    Position p takes a document uniformly from those that some ranker has among its first p + 1 and that are not there
    yet. `coins` (k,): which of them.
    """
    known = np.zeros(rankings.shape[1], np.bool_)
    pool = np.empty(rankings.shape[1], np.int64)
    order, choices = np.empty(k, np.int64), np.empty(k, np.int64)
    size = 0
    for p in range(k):
        for r in range(rankings.shape[0]):
            document = rankings[r, p]
            if not known[document]:
                known[document] = True
                pool[size] = document
                size += 1
        choices[p] = size
        at = int(coins[p] * size)
        order[p] = pool[at]
        size -= 1
        pool[at] = pool[size]
    return order, ranks_of(rankings)[order], choices


@jit
def pair_credit(ranks: Array, choices: Array, clicks: Array) -> Array:
    """(R,) the weight of the click pairs that each ranker has in the right order.

    A pair counts if both documents could have stood at either's position, for then their order was a coin's. Its
    weight is one over the chance that the one that may come first was still waiting when the other joined it.
    """
    first = np.empty(ranks.shape[0], np.int64)  # where a document may stand first: its best rank
    for p in range(first.size):
        first[p] = ranks[p].min()
    credit = np.zeros(ranks.shape[1])
    pairs = click_pairs(clicks, True, -1, ALL, clicks)
    for m in range(pairs.shape[0]):
        a, b = pairs[m, 0], pairs[m, 1]
        both = max(first[a], first[b])
        if min(a, b) < both:
            continue
        chance = 1.0
        for p in range(min(first[a], first[b]), both):
            chance *= 1.0 - 1.0 / choices[p]
        if chance > 0.0:  # else no such list was ever drawn
            for r in range(credit.size):
                if ranks[a, r] < ranks[b, r]:
                    credit[r] += 1.0 / chance
    return credit
