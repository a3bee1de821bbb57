"""Which parameters of PairRank go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankloop.core.learner import require, require_choice, require_flag, require_number, require_whole
from rankloop.learners.pairwise._debias import DEBIASES
from rankloop.learners.pairwise._lemma import require_lemma_1
from rankloop.learners.pairwise._linear import PAIR_RULES
from rankloop.learners.pairwise._start import require_start

if TYPE_CHECKING:
    from rankloop.learners.pairwise.pairrank import PairRank

LARGEST = 2**20  # outcomes of a batch: beyond, nobody would see anything learned for hours


def require_parameters(learner: PairRank) -> None:
    """Refuse what is no parameter, and what cannot be together."""
    choices = {"explore": ("conservative", "random"), "certainty": ("logit", "probability"), "debias": DEBIASES}
    choices |= {"pairs": tuple(PAIR_RULES), "update": ("onepass", "refit"), "loss": ("sum", "mean")}
    for name, allowed in (choices | {"scale": ("data", "one")}).items():
        require_choice(name, getattr(learner, name), allowed)
    onepass = learner.update == "onepass"
    require(learner.loss == "sum" or not onepass, "loss", learner.loss, 'needs update="refit"')
    if isinstance(learner.alpha, str):
        require(learner.alpha == "theory", "alpha", learner.alpha, 'must be a number or "theory"')
        require_lemma_1(learner)
    else:
        require_number("alpha", learner.alpha, 0)
    require_start(learner.init)
    require(learner.init == "zero" or onepass, "init", learner.init, 'needs update="onepass"')
    for name in ("prior", "ridge", "forget", "prior_strength", "delta", "bound"):
        require_number(name, getattr(learner, name), 0, above=True)
    require(learner.forget <= 1, "forget", learner.forget, "must be at most 1")
    require(learner.forget == 1 or onepass, "forget", learner.forget, 'needs update="onepass"')
    require(learner.delta < 1, "delta", learner.delta, "is a probability and must be below 1")
    require_choice("confidence", learner.confidence, ("full", "diagonal"))
    require(learner.confidence == "full" or onepass, "confidence", learner.confidence, 'needs update="onepass"')
    for name in ("tempered", "examine_next"):
        require_flag(name, getattr(learner, name))
    require_whole("batch", learner.batch, 1, LARGEST)
    if learner.batch > 1:
        require(onepass, "batch", learner.batch, 'needs update="onepass": a refit reads all pairs anyway')
        diagonal = 'needs confidence="full": with one variance a feature a list costs next to nothing as it is'
        require(learner.confidence == "full", "batch", learner.batch, diagonal)
