"""olLambdaRank: olRankNet whose pairs count by what they change of NDCG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankloop.core.learner import require_choice
from rankloop.kernels import listwise
from rankloop.learners.neural.olranknet import OLRankNet

RULES = {"raw": listwise.RAW, "batch": listwise.BATCH, "list": listwise.LIST}


@dataclass
class OLLambdaRank(OLRankNet):
    """olRankNet with LambdaRank's loss: a pair counts by |ΔNDCG| of swapping its two documents.

    It spends its capacity on the top of the list, where users look. Choose it where clicks are reliable.

    Parameters
    ----------
    weights
        What |ΔNDCG| is told in: "raw", as it is; "batch", as a multiple of its mean over the pairs of a step; "list",
        over the pairs of the list, where the only pair of a list counts the same wherever its documents stand.
    line, init, prior_strength, line_alpha, validate, explore, covariance, update, pairs, debias, alpha, prior, rate
        As in `OLRankNet`.
    steps, batch, memory, reinit, nets, noise, net, width, seed, examine_next, units, optimiser
        As in `OLRankNet`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankloop import Candidates, Feedback
    >>> rng, learner = np.random.default_rng(1), OLLambdaRank(width=20)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Jia and Wang, WWW 2022 (paper 001), section 3.2, "Extend to LambdaRank"; Burges, From RankNet to LambdaRank to
    LambdaMART, 2010. Labels are the clicks, the order is that of the network's present scores among the examined
    documents of the list; both are looked up anew at every step, also when a list is replayed. Where we differ:
    |ΔNDCG| is divided by its mean over the list's pairs, so that a list counts as much as in `OLRankNet` and lists with
    a single click, whose ideal DCG is small, do not outweigh the others (what that is worth: docs/learners/neural.md).
    """

    weights: Literal["raw", "batch", "list"] = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("weights", self.weights, tuple(RULES))

    def _pair_rule(self) -> int:
        return RULES[self.weights]
