"""What PairRank's Lemma 1 was proved for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rankloop.core.learner import require
from rankloop.kernels.pairwise import sigmoid

if TYPE_CHECKING:
    from rankloop.learners.pairwise.pairrank import PairRank


def require_lemma_1(learner: PairRank) -> None:
    """Refuse a setting that Lemma 1 says nothing about."""
    alpha = learner.alpha
    needed = {"certainty": "probability", "update": "refit", "loss": "sum", "debias": "none"}
    for name, value in needed.items():
        given = getattr(learner, name)
        require(given == value, "alpha", alpha, f"is Lemma 1's and needs {name}={value!r}, not {given!r}")
    independent = 'needs independent pairs, each document in one at most: pairs="adjacent" or "matched", not "all"'
    require(learner.pairs != "all", "alpha", alpha, f"is Lemma 1's and {independent}")
    one = f"needs one λ for θ and M: prior = ridge, not {learner.prior} and {learner.ridge}"
    require(learner.prior == learner.ridge, "alpha", alpha, f"is Lemma 1's and {one}")


def width_of_lemma_1(learner: PairRank) -> float:
    """The width of the confidence interval, in units of the norm."""
    noise, k_mu = 0.5, 0.25  # a click difference is 1/2-sub-Gaussian; the sigmoid is 1/4-Lipschitz
    p = sigmoid(learner.bound * learner.longest_[0])
    c_mu = p * (1.0 - p)  # its smallest slope over ‖θ‖ ≤ bound and the pairs seen
    deviation = noise * np.sqrt(learner.log_det_[0] - 2.0 * math.log(learner.delta))
    return float(2.0 * k_mu / c_mu * (deviation + np.sqrt(learner.prior * learner.unit_[0]) * learner.bound))
