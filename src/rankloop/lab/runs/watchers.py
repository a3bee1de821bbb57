"""What to note of every round, where a trial asks for it: beside the loop, so that who does not ask does not pay."""

from __future__ import annotations

import numpy as np

from rankloop.kernels.metrics import misordered_pairs
from rankloop.lab.runs.simulate import Step
from rankloop.types import Array

KENDALL = (
    "sum over rounds of the pairs of candidates that stand the wrong way round (the Kendall distance to an ideal "
    "ranking): a document above one of a higher grade, those that are not shown below all that are"
)


class Trace:
    """What was asked, and how many slots were clicked; of a grader, the sum of the grades."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self._queries = rounds, list[str]()
        self._clicks = np.zeros(rounds)

    def __call__(self, step: Step) -> None:
        """Note a round."""
        self._queries.append(step.impression.query)
        self._clicks[step.t] = step.feedback.values.sum()

    @property
    def kept(self) -> dict[str, Array]:
        """(rounds,) each."""
        return {"query": np.array(self._queries), "clicks": self._clicks}


class Kendall:
    """Regret as PairRank's analysis counts it (Jia et al., WWW 2021): pairs in the wrong order.

    With k of at least the number of candidates it is that paper's own number.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds, self._wrong = rounds, np.zeros(rounds)

    def __call__(self, step: Step) -> None:
        """Count a round's."""
        self._wrong[step.t] = misordered(step.round.grades, step.impression.order)

    def measures(self, when: Array) -> dict[str, Array]:
        """The sum at each checkpoint."""
        return {"online.kendall": np.cumsum(self._wrong)[when - 1]}


def misordered(grades: Array, order: Array) -> int:
    """The pairs of candidates, with these (n,) grades, that showing `order` puts the wrong way round.

    What is not shown comes below what is; who stands where down there is not the list's doing.

    >>> misordered(np.array([0, 2, 1, 1]), np.array([0, 2]))  # 0 above 2, 1, 1, and 1 above 2
    4
    """
    rest = np.delete(grades, order)
    return int(misordered_pairs(np.concatenate([grades[order], np.sort(rest)[::-1]]).astype(np.float64)))
