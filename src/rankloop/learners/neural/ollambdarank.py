"""olLambdaRank: olRankNet whose pairs count by what they change of NDCG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankloop.kernels import listwise
from rankloop.learners.neural.olranknet import OLRankNet


@dataclass
class OLLambdaRank(OLRankNet):
    """olRankNet with LambdaRank's loss: a pair counts by |ΔNDCG| of swapping its two documents.

    It spends its capacity on the top of the ranking, where users look. Choose it if clicks are reliable.

    Parameters
    ----------
    net, width, seed, alpha, prior, rate, init, prior_strength, replay_size
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
    Jia and Wang, WWW 2022, section 3.2, "Extend to LambdaRank"; Burges, From RankNet to LambdaRank to LambdaMART, 2010.
    Labels are the clicks; the order is that of the network's present scores among the examined documents. Both are
    looked up again at every step, also when an impression is replayed.
    """

    pair_rule: ClassVar[int] = listwise.RAW
