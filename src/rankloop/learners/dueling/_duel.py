"""What the learners that duel in model space share: exploring rankers mixed into one list, and who of them won."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.learner import (
    Learner,
    bernoulli_clicks,
    checked_order,
    checked_values,
    make_impression,
    resolve_k,
    rows_of,
    seen_of,
)
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.evaluation.interleaving import TAU
from rankloop.kernels import dueling
from rankloop.kernels.click_loop import SoftRanks
from rankloop.kernels.interleaving import interleave, rankings, soft_ranks, team_draft, win_and_loss

MIXINGS = ("probabilistic", "team-draft")
EXAMINED_BELOW = 3  # Wang et al. 2019, section 3.2: documents down to three below the last click count as examined


def weights_of(theta: Array, candidates: Candidates) -> Array:
    """θ at the width of the candidates: zeros while nothing has been learned."""
    width = rows_of(candidates, theta.size).shape[1]
    return theta if theta.size else np.zeros(width)


def duel(
    candidates: Candidates,
    k: int,
    theta: Array,
    directions: Array,
    delta: float,
    mixing: str,
    rng: np.random.Generator,
) -> Impression:
    """A list mixed from θ and θ + δu of each direction u (m, d); directions and credit travel in the memo."""
    features, k = rows_of(candidates, theta.size), resolve_k(candidates, k)
    if mixing != "probabilistic":
        order, credit = mixed(dueling.explorer_scores(theta, directions, delta, features), k, mixing, rng)
        return make_impression(candidates, order, {"directions": directions, "credit": credit})
    ties, coins = rng.random(len(features)), rng.random((2, k))
    order, rows, credit = dueling.duel(features, theta, directions, delta, ties, coins, *soft_ranks_of(len(features)))
    return make_impression(candidates, order, {"directions": directions, "credit": credit}, rows=rows)


def mixed(scores: Array, k: int, mixing: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """(k,) a list mixed from R rankers' scores (R, n), and (k, R) how likely each put each document there."""
    n: int = scores.shape[1]
    ties = rng.random(n)
    if mixing == "probabilistic":
        return interleave(scores, ties, rng.random((2, k)), *soft_ranks_of(n))
    order, team = team_draft(rankings(scores, ties), rng.random(k), k)
    credit = np.zeros((k, len(scores)))
    credit[np.arange(k), team] = 1.0  # a team's document is its own for sure
    return order, credit


@lru_cache(maxsize=256)
def soft_ranks_of(n: int) -> tuple[Array, Array]:
    """Of n documents; kept, since their powers take longer than the rest of the mixing."""
    found: tuple[Array, Array] = soft_ranks(n, TAU)
    return found


class Numbers(NamedTuple):
    """What the duels of several rounds are drawn with."""

    normals: Array  # (B, d)
    ties: Array  # (B, longest list)
    coins: Array  # (B, 2k)


@lru_cache(maxsize=16)
def soft_ranks_of_all(lengths: tuple[int, ...]) -> SoftRanks:
    """Those of lists of several lengths, one after the other."""
    found = [soft_ranks_of(n) for n in lengths]
    begins = np.zeros(max(lengths) + 1, np.int64)
    begins[list(lengths)] = np.cumsum([0, *lengths[:-1]])
    weights, tails = (np.concatenate(part) for part in zip(*found, strict=True))
    return SoftRanks(weights, tails, begins)


def no_duel(candidates: Candidates, order: Array, width: int) -> Impression:
    """A list that someone else ordered: nobody was compared on it, so there is nothing to learn from."""
    order = checked_order(candidates, order)
    d = rows_of(candidates, width).shape[1]
    return make_impression(candidates, order, {"directions": np.zeros((0, d)), "credit": np.zeros((len(order), 1))})


def duel_of(impression: Impression, width: int) -> tuple[Array, Array, Array]:
    """(k, d) rows, (m, d) directions and (k, m + 1) credit of an impression; refused if they do not fit together."""
    rows = rows_of(impression, width)
    directions, credit = impression.memo.get("directions"), impression.memo.get("credit")
    fits = (
        directions is not None
        and credit is not None
        and directions.dtype == credit.dtype == np.float64
        and directions.ndim == 2
        and directions.shape[1] == rows.shape[1]
        and credit.shape == (impression.k, len(directions) + 1)
    )
    if not fits or directions is None or credit is None:
        raise InvalidInput(
            "the impression's memo does not have 'directions' (m, d) and 'credit' (k, m + 1) as float64; "
            "learn from what this kind of learner has ranked"
        )
    return rows, directions, credit


class Verdict(NamedTuple):
    """What the clicks on a mixed list say of the rankers in it."""

    clicks: Array  # (k,)
    seen: int  # how many of the first came into view, -1: not known
    rows: Array  # (k, d)
    directions: Array  # (m, d)
    credit: Array  # (k, m + 1)
    win: Array  # (m + 1,) probability that each ranker owns more clicks than the first, exact
    loss: Array  # (m + 1,) that it owns fewer


def verdict_of(
    learner: Learner, impression: Impression, feedback: Feedback, width: int, rng: np.random.Generator
) -> Verdict | None:
    """Who won, None if nobody clicked or nobody was compared."""
    clicks = bernoulli_clicks(checked_values(learner, impression, feedback), rng)
    rows, directions, credit = duel_of(impression, width)
    if len(directions) == 0 or not any(clicks.tolist()):  # a short list: quicker than clicks.any()
        return None
    win, loss = win_and_loss(credit, clicks, 0)
    return Verdict(clicks, seen_of(impression, feedback), rows, directions, credit, win, loss)


def examined_rows(rows: Array, clicks: Array, seen: int) -> Array:
    """The rows of documents that were looked at: down to three below the last click, or the first `seen` if known."""
    last = int(np.flatnonzero(clicks)[-1])
    return rows[: last + 1 + EXAMINED_BELOW if seen < 0 else max(last + 1, seen)]
