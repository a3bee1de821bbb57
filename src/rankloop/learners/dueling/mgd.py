"""Multileave Gradient Descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.learner import require_whole, resolve_k
from rankloop.core.rng import as_rng
from rankloop.core.types import Candidates, Impression
from rankloop.kernels import dueling
from rankloop.learners.dueling import _duel
from rankloop.learners.dueling.dbgd import DBGD


@dataclass
class MGD(DBGD):
    """DBGD with several variations in one multileaved list; step towards the mean of those that win.

    Learns faster than `dbgd` from the same clicks and scores more rankers. Choose it as a baseline, or inside `m3l`.

    Parameters
    ----------
    candidates
        How many variations a list compares; 9, 19 and 49 are usual.
    rate, delta, mixing, dsp, radius
        As in `DBGD`.

    Examples
    --------
    >>> learner = MGD(candidates=19)
    >>> learner.rank(Candidates(features=np.eye(3)), 2, np.random.default_rng(0)).memo["credit"].shape
    (2, 20)

    Notes
    -----
    Anne Schuth, Harrie Oosterhuis, Shimon Whiteson and Maarten de Rijke. Multileave gradient descent for fast online
    learning to rank. WSDM 2016, MGD-M. `mgd@code` is P-MGD (Oosterhuis et al., ECIR 2016). Difference: a candidate wins
    if it is more likely to own more clicks than the current ranker than to own fewer, computed exactly.
    """

    rate: float = 0.03
    mixing: Literal["probabilistic", "team-draft"] = "team-draft"
    candidates: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("candidates", self.candidates, 1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A list mixed from the ranker and random changes of it."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        theta = _duel.weights_of(self.theta_, candidates)
        directions = dueling.unit_rows(rng.standard_normal((self.candidates, theta.size)))
        return _duel.duel(candidates, k, theta, directions, self.delta, self.mixing, rng)
