"""CascadeKL-UCB: a bandit for users who read from the top and leave with the first click, with tight bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankloop.core.learner import require_choice
from rankloop.kernels import cascade as kernels
from rankloop.learners.bandits.cascade_ucb1 import CascadeUCB1


@dataclass
class CascadeKLUCB(CascadeUCB1):
    """Show the items that may be the most attractive, by KL-UCB bounds.

    Next to the best that is possible if users look from the top and leave with their first click, and the fastest
    learner of this family then. If they do not, it may stay with a wrong list for ever: `bubblerank`, `toprank` and
    `batchrank` do without the assumption. It puts unknown items on top, however bad; where that must not be,
    `bubblerank` is the one to choose, and this one's list is a good start for it.

    Parameters
    ----------
    observe, ties, max_queries, max_items
        As for `cascade-ucb1`.
    variant
        "paper", or "published": the published code's budget log t in place of log t + 3 log log t, and while there are
        items that nobody has looked at, the first of them in the base order stands on top.

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
    bound max{q : T KL(w, q) ≤ log t + 3 log log t}. All bounds move with t, so those of all candidates are worked out
    for every list, by Newton's method: exact to 1e-10, in some 50 ns each. Otherwise as `cascade-ucb1`.
    """

    variant: Literal["paper", "published"] = "paper"

    def __post_init__(self) -> None:
        require_choice("variant", self.variant, ("paper", "published"))
        super().__post_init__()

    def _kind(self) -> int:
        return kernels.KL if self.variant == "paper" else kernels.KL_PUBLISHED
