"""MGD: Multileave Gradient Descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankloop.core.learner import cut, require_whole
from rankloop.core.types import Candidates, Impression
from rankloop.kernels import dueling
from rankloop.learners.dueling import _duel
from rankloop.learners.dueling.dbgd import DBGD


@dataclass
class MGD(DBGD):
    """DBGD with several random changes at once, all mixed into one list; go towards the mean of those that win.

    Each list tells about several directions, so it learns faster than `dbgd` for the same clicks, at the price of more
    rankers to score. Choose it as a baseline, or below `m3l`.

    Parameters
    ----------
    candidates
        How many changes to try on a list; 9, 19 and 49 are usual.
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
    learning to rank. WSDM 2016, the variant that goes to the mean of the winners (MGD-M), with its team draft
    multileaving and its η = .03: the default is `mgd@paper`. The released P-MGD (Oosterhuis et al., ECIR 2016) mixes
    probabilistically, with 49 candidates and .01: `mgd@code`. A candidate wins if it is more likely to own more clicks
    than the current ranker than to own fewer, by the exact law of the difference. The authors' code lets those win that
    own most, unless the current ranker is one of them: the same where each ranker has one result at most.

    With .03 in place of .01 users are served better, whatever the mixing, at times at the price of a worse ranker in
    the end (docs/learners/dueling.md).
    """

    rate: float = 0.03
    mixing: Literal["probabilistic", "team-draft"] = "team-draft"
    candidates: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("candidates", self.candidates, 1)

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """A list mixed from the ranker and random changes of it."""
        k = cut(candidates, k, rng)
        theta = _duel.weights_of(self.theta_, candidates)
        directions = dueling.unit_rows(rng.standard_normal((self.candidates, theta.size)))
        return _duel.duel(candidates, k, theta, directions, self.delta, self.mixing, rng)
