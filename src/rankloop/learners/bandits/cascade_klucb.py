"""CascadeKL-UCB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankloop.core.learner import require_choice
from rankloop.kernels import cascade as kernels
from rankloop.learners.bandits.cascade_ucb1 import CascadeUCB1


@dataclass
class CascadeKLUCB(CascadeUCB1):
    """Show the items with the highest KL-UCB bounds of attractiveness.

    Nearly optimal for users who look from the top and leave with the first click, and the fastest learner of this
    family for them. For other users it can converge to a wrong list: `bubblerank`, `toprank` and `batchrank` do not
    need the assumption. New items are shown on top first, however bad they are.

    Parameters
    ----------
    observe, ties, max_queries, max_items
        As in `CascadeUCB1`.
    variant
        "paper", or "published": the published code's budget log t instead of log t + 3 log log t, and the first item
        that was never examined is on top.

    Examples
    --------
    >>> import numpy as np
    >>> from rankloop import Candidates, Feedback
    >>> rng = np.random.default_rng(1)
    >>> learner = CascadeKLUCB()
    >>> shoes = Candidates("shoes", ["plain", "red", "liked"])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicks(shown.items == "liked"), rng)
    >>> shoes.items[learner.best(shoes, 1)]
    array(['liked'], dtype='<U5')

    Notes
    -----
    Branislav Kveton et al. Cascading bandits: learning to rank in the cascade model. ICML 2015, Algorithm 1 with the
    bound max{q : T KL(w, q) ≤ log t + 3 log log t}, computed to 1e-10. Other differences as in `CascadeUCB1`.
    """

    variant: Literal["paper", "published"] = "paper"

    def __post_init__(self) -> None:
        require_choice("variant", self.variant, ("paper", "published"))
        super().__post_init__()

    def _kind(self) -> int:
        return kernels.KL if self.variant == "paper" else kernels.KL_PUBLISHED
