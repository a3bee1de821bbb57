"""What learners composed of a model share: the parts of the learner protocol that only ask the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from rankloop.core.capabilities import Explanation, Report, ScoreTerms
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import checked_order, checked_values, make_impression, resolve_k, seen_of
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.kernels.ranking import top_k
from rankloop.learners.click_pairs import ClickPairs, adopted, propensity_memo, weighted_pairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.gradient import GradientModel
from rankloop.learners.models.linear import CARRIES, CARRIES_CONFIDENCE
from rankloop.learners.policies import PAIR_POLICIES, PairPolicy


class Model(Protocol):
    """How good each document is; what is learned."""

    def scores(self, source: Candidates | Impression) -> Array: ...
    def remap(self, columns: FeatureMap) -> None: ...
    def state(self) -> dict[str, Array]: ...
    def load(self, state: Mapping[str, Array]) -> None: ...


class ConfidentModel(Model, Protocol):
    """A linear model that knows how sure it is of each pair."""

    @property
    def theta_(self) -> Array: ...
    @property
    def inverse_(self) -> Array: ...
    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence: ...
    def score_terms(self, impression: Impression) -> ScoreTerms: ...
    def half_widths(self, alpha: float) -> Array: ...
    def update(self, impression: Impression, pairs: ClickPairs) -> None: ...
    def rescale(self, growth: Array) -> None: ...


AnyModel = TypeVar("AnyModel", bound=Model)
AnyConfidentModel = TypeVar("AnyConfidentModel", bound=ConfidentModel)


class ModelLearner(Generic[AnyModel]):
    """A learner with a `model_`. Subclasses have `rank` and `learn`."""

    model_: AnyModel

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    def score(self, candidates: Candidates) -> Array:
        """(n,) how good each document is believed to be."""
        return self.model_.scores(candidates)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; equal ones keep the baseline order."""
        return top_k(self.score(candidates), np.zeros(candidates.n), resolve_k(candidates, k))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        self.score(candidates)  # features that do not fit are refused here, not when the clicks arrive
        return make_impression(candidates, checked_order(candidates, order))

    def remap(self, columns: FeatureMap) -> None:
        """Continue with features in other columns."""
        self.model_.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of everything learned."""
        return self.model_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`."""
        self.model_.load(state)


class GradientLearner(ModelLearner[GradientModel]):
    """A learner of linear scores without confidence. Subclasses have `rank`, `learn` and `log_propensity`."""

    @property
    def theta_(self) -> Array:
        """(d,) the weights of the features."""
        return self.model_.theta_

    @theta_.setter
    def theta_(self, theta: Array) -> None:
        self.model_.theta_ = theta

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """What the scores of a ranking are made of now."""
        return self.model_.score_terms(impression)

    def half_widths(self) -> Array:
        """Empty: gradient steps have no confidence."""
        return np.zeros(0)

    def rescale(self, growth: Array) -> None:
        """Continue with features divided by `growth`."""
        self.model_.rescale(growth)


class ConfidenceLearner(ModelLearner[AnyConfidentModel]):
    """A learner that explores the pairs its model is unsure of, by default with all pairs of a click list.

    Subclasses have the width `_alpha` of the intervals.
    """

    examine_next: bool = True

    carries: ClassVar[str] = CARRIES_CONFIDENCE

    @property
    def theta_(self) -> Array:
        """(d,) the weights of the features."""
        return self.model_.theta_

    @property
    def inverse_(self) -> Array:
        """(d, d) the inverse confidence matrix of the weights, or (d,) its diagonal."""
        return self.model_.inverse_

    @property
    def _alpha(self) -> float:
        """The width of the confidence intervals."""
        raise NotImplementedError

    @property
    def _policy(self) -> PairPolicy:
        return PAIR_POLICIES["conservative"]

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """A random order that respects every certain pair."""
        known = self.model_.confidence(candidates, self._alpha)
        draw = self._policy.draw(known, resolve_k(candidates, k), as_rng(rng))
        return make_impression(candidates, draw.order, propensity_memo(known.scores, draw), draw.log_propensity)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into weighted pairs and update the model."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        pairs = weighted_pairs(impression, clicks, seen, "all", self.examine_next, as_rng(rng))
        self.model_.update(impression, pairs)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        return self._policy.log_propensity(self.model_.confidence(candidates, self._alpha), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        return adopted(candidates, self.score(candidates), order, self.examine_next)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """What the scores of a ranking are made of now."""
        return self.model_.score_terms(impression)

    def half_widths(self) -> Array:
        """(d,) half the width of each weight's confidence interval."""
        return self.model_.half_widths(self._alpha)

    def rescale(self, growth: Array) -> None:
        """Continue with features divided by `growth`."""
        self.model_.rescale(growth)

    def blocks(self, candidates: Candidates) -> Array:
        """(b,) the rank at which each block ends, of all candidates sorted by score: [2, 5] is two, then three."""
        known = self.model_.confidence(candidates, self._alpha)
        return known.block_ends(top_k(known.scores, np.zeros(candidates.n), candidates.n), candidates.n)

    def explain(self, impression: Impression) -> Explanation:
        """The pairs that were uncertain when the ranking was drawn; of an adopted one, those that are uncertain now."""
        memo, known = impression.memo, self.model_.confidence(impression, self._alpha)
        scores = memo.get("scores", known.scores)
        if "shares" in memo and memo["doubt"][0] > 0.0:
            uncertain = memo["shares"] > 0.0
        else:
            certain = known.certain()
            uncertain = ~(certain | certain.T)
        pairs = impression.k * (impression.k - 1) // 2
        return Explanation(np.lexsort((impression.order, -scores)), np.argwhere(np.triu(uncertain, 1)), pairs)

    def report(self) -> Report:
        """Nothing to report."""
        return Report()
