"""How well a click model foresees what users did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankloop.clicks.log import SessionLog
from rankloop.core.types import Array
from rankloop.kernels.click_fits import score_pages
from rankloop.kernels.click_models import ClickChances

FLOOR = 1e-6  # no event is held for less likely than this, or one surprise would decide every comparison


@dataclass(frozen=True, eq=False)
class Score:
    """Log-likelihood and perplexity of a log under a model.

    - `log_likelihood`: natural logarithm of the probability of a page's clicks, mean over pages. Higher is better.
    - `perplexity`: at a rank, 2 to the mean of -log2 of the probability that the model gave, before the page was shown,
      to what happened there. 1 is perfect, 2 is a coin. Overall it is the mean over ranks, as the field reports it.
    - `conditional_perplexity`: the same with the clicks above known, as in the log-likelihood.

    Probabilities are kept within 1e-6 of 0 and 1; `impossible` counts the pages to which the model gives probability 0.
    """

    pages: int
    clicks: int
    log_likelihood: float
    perplexity: float
    conditional_perplexity: float
    perplexity_by_rank: Array  # (K,)
    conditional_perplexity_by_rank: Array  # (K,)
    impossible: int
    unseen: float  # share of what was shown that the model had never seen

    def summary(self) -> dict[str, Any]:
        """All of it, as JSON would say it."""
        found = dict(vars(self))
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def score(model: ClickChances, shown: Array, log: SessionLog) -> Score:
    """The score of a log whose documents have the numbers `shown` in the model, the last one for unseen ones."""
    pages, bits, conditional_bits, total, impossible = score_pages(model, shown, log.lengths, log.clicks, FLOOR)
    by_rank, conditional_by_rank = 2.0 ** (bits / pages), 2.0 ** (conditional_bits / pages)
    unseen = (shown == len(model.attraction) - 1).sum() / pages.sum()
    return Score(
        pages=len(log),
        clicks=int(log.clicks.sum()),
        log_likelihood=total / len(log),
        perplexity=float(by_rank.mean()),
        conditional_perplexity=float(conditional_by_rank.mean()),
        perplexity_by_rank=by_rank,
        conditional_perplexity_by_rank=conditional_by_rank,
        impossible=int(impossible),
        unseen=float(unseen),
    )
