"""Whole runs of linear learners with simulated users in compiled code: the learners' own kernels, round after round.

A round is that of `rankloop.lab.runs.simulate` with the world `stationary` and a dependent click user. Queries, random
numbers and coins come in as arrays, drawn as the plain loop draws them, so a run gives its bits; tests hold that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.dueling import duel, stepped, unit_rows, winning_direction
from rankloop.kernels.metrics import dcg
from rankloop.kernels.plackett_luce import draw, pdgd_gradient, pdgd_step
from rankloop.kernels.simulated_users import dependent_clicks


class Rounds(NamedTuple):
    """Some rounds, and what comes of them."""

    features: Array  # (N, d) of all queries
    grades: Array  # (N,)
    offsets: Array  # (Q + 1,)
    queries: Array  # (B,) whose turn it is
    coins: Array  # (B, 2k) the user's
    click: Array  # (g,) by grade
    stop: Array  # (g,)
    stop_requires_click: bool
    orders: Array  # (B, k) to be filled: what was shown, -1 below a list that is shorter than k
    clicks: Array  # (B, k) to be filled


class SoftRanks(NamedTuple):
    """Of lists of several lengths, one after the other."""

    weights: Array
    tails: Array
    begins: Array  # (longest + 1,) where those of a length begin, in both


@jit
def _user(rounds: Rounds, b: int, first: int, order: Array) -> Array:
    """(k,) what the user of round b clicks in the list, noted with it."""
    k = order.size
    graded = np.empty(k, np.int64)
    for p in range(k):
        graded[p] = rounds.grades[first + order[p]]
    coins = rounds.coins[b, : 2 * k].copy().reshape((2, k))  # a shorter list takes fewer coins
    clicks = dependent_clicks(graded, rounds.click, rounds.stop, coins, rounds.stop_requires_click)
    rounds.orders[b, :k], rounds.clicks[b, :k] = order, clicks
    rounds.orders[b, k:], rounds.clicks[b, k:] = -1, 0.0
    return clicks


@jit
def pdgd_rounds(
    rounds: Rounds, numbers: Array, theta: Array, rate: float, decay: float, examine_next: bool
) -> tuple[Array, float]:
    """(d,) θ and the step size of `pdgd` after these rounds; `numbers` (B, longest list) are what it ranks with."""
    k = rounds.orders.shape[1]
    for b in range(rounds.queries.size):
        first, end = rounds.offsets[rounds.queries[b]], rounds.offsets[rounds.queries[b] + 1]
        n = end - first
        order, rows, scores, rest, _ = draw(rounds.features[first:end], theta, numbers[b, :n], min(k, n))
        gradient = pdgd_gradient(rows, scores, rest, _user(rounds, b, first, order), examine_next, -1)
        if gradient.size:
            theta = pdgd_step(theta, gradient, rate)
            rate *= decay
    return theta, rate


@jit
def dbgd_rounds(
    rounds: Rounds,
    normals: Array,
    ties: Array,
    coins: Array,
    soft: SoftRanks,
    theta: Array,
    rate: float,
    delta: float,
    radius: float,
) -> Array:
    """(d,) θ of `dbgd` after these rounds; normals (B, d), ties (B, longest list) and coins (B, 2k) it ranks with.

    Empty, as it may come, while no explorer has won.
    """
    k = rounds.orders.shape[1]
    nothing = np.zeros(rounds.features.shape[1])
    for b in range(rounds.queries.size):
        first, end = rounds.offsets[rounds.queries[b]], rounds.offsets[rounds.queries[b] + 1]
        n = end - first
        shown = min(k, n)
        begin = soft.begins[n]
        directions = unit_rows(normals[b : b + 1])
        order, _, credit = duel(
            rounds.features[first:end],
            theta if theta.size else nothing,
            directions,
            delta,
            ties[b, :n],
            coins[b, : 2 * shown].copy().reshape((2, shown)),
            soft.weights[begin : begin + n],
            soft.tails[begin : begin + n],
        )
        step = winning_direction(directions, credit, _user(rounds, b, first, order))
        if step.size:
            theta = stepped(theta, step, rate, radius)
    return theta


@jit
def shown_ndcg(rounds: Rounds, ideal: Array) -> Array:
    """(B,) NDCG of the lists shown, 0 where nothing is relevant; `ideal` (Q,) is the best DCG of each query."""
    found = np.zeros(rounds.queries.size)
    graded = np.empty(rounds.orders.shape[1])
    for b in range(found.size):
        q = rounds.queries[b]
        shown = 0
        while shown < graded.size and rounds.orders[b, shown] >= 0:
            graded[shown] = rounds.grades[rounds.offsets[q] + rounds.orders[b, shown]]
            shown += 1
        if ideal[q] > 0.0:
            found[b] = dcg(graded[:shown], graded.size) / ideal[q]
    return found
