"""What learners composed of a model share: everything in the learner protocol but `rank` and `learn`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from rankloop.core.capabilities import Explanation, Report, ScoreTerms
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import checked_order, make_impression, resolve_k
from rankloop.core.types import Array, Candidates, FeedbackKind, Impression
from rankloop.kernels.ranking import top_k
from rankloop.learners.click_pairs import ClickPairs, adopted
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.gradient import GradientModel
from rankloop.learners.models.linear import CARRIES, CARRIES_CONFIDENCE
from rankloop.learners.models.network import CARRIES as CARRIES_NETWORK
from rankloop.learners.models.network import NetworkModel
from rankloop.learners.policies import PAIR_POLICIES, PairPolicy


class Model(Protocol):
    """How good each document is, and how sure that is for each pair."""

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence: ...
    def scores(self, source: Candidates | Impression) -> Array: ...
    def score_terms(self, impression: Impression) -> ScoreTerms: ...
    def half_widths(self, alpha: float) -> Array: ...
    def update(self, impression: Impression, pairs: ClickPairs) -> None: ...
    def rescale(self, growth: Array) -> None: ...
    def remap(self, columns: FeatureMap) -> None: ...
    def state(self) -> dict[str, Array]: ...
    def load(self, state: Mapping[str, Array]) -> None: ...
    @property
    def theta_(self) -> Array: ...
    @property
    def inverse_(self) -> Array: ...


AnyModel = TypeVar("AnyModel", bound=Model)


class ModelLearner(Generic[AnyModel]):
    """A learner with a `model_`. Subclasses have `rank`, `learn`, and the width `_alpha` of their intervals."""

    model_: AnyModel
    examine_next: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
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

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The log-probability that `rank` shows this order."""
        return self._policy.log_propensity(self.model_.confidence(candidates, self._alpha), order)

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        return adopted(candidates, self.score(candidates), order, self.examine_next)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; equal ones keep the baseline order."""
        return top_k(self.score(candidates), np.zeros(candidates.n), resolve_k(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        """(n,) how good each document is believed to be."""
        return self.model_.scores(candidates)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """What the scores of a ranking are made of now."""
        return self.model_.score_terms(impression)

    def half_widths(self) -> Array:
        """(d,) half the width of each weight's confidence interval."""
        return self.model_.half_widths(self._alpha)

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

    def rescale(self, growth: Array) -> None:
        """Continue with features divided by `growth`."""
        self.model_.rescale(growth)

    def remap(self, columns: FeatureMap) -> None:
        """Continue with features in other columns."""
        self.model_.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of everything learned."""
        return self.model_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`."""
        self.model_.load(state)


class GradientLearner:
    """A learner with a `GradientModel`. Subclasses have `rank`, `learn` and `log_propensity`."""

    model_: GradientModel

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES

    @property
    def theta_(self) -> Array:
        """(d,) the weights of the features."""
        return self.model_.theta_

    @theta_.setter
    def theta_(self, theta: Array) -> None:
        self.model_.theta_ = theta

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        self.model_.rows(candidates)  # features that do not fit are refused here
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; equal ones keep the baseline order."""
        return top_k(self.score(candidates), np.zeros(candidates.n), resolve_k(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        """(n,) how good each document is believed to be."""
        return self.model_.scores(candidates)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """What the scores of a ranking are made of now."""
        return self.model_.score_terms(impression)

    def half_widths(self) -> Array:
        """Empty: gradient steps have no confidence."""
        return np.zeros(0)

    def rescale(self, growth: Array) -> None:
        """Continue with features divided by `growth`."""
        self.model_.rescale(growth)

    def remap(self, columns: FeatureMap) -> None:
        """Continue with features in other columns."""
        self.model_.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of everything learned."""
        return self.model_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`."""
        self.model_.load(state)


AnyNetwork = TypeVar("AnyNetwork", bound=NetworkModel)


class NetworkLearner(Generic[AnyNetwork]):
    """A learner with a `NetworkModel`. Subclasses have `rank` and `learn`."""

    model_: AnyNetwork

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = CARRIES_NETWORK

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The impression of showing an order that someone else chose."""
        self.model_.rows(candidates)  # features that do not fit are refused here
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; equal ones keep the baseline order."""
        return top_k(self.score(candidates), np.zeros(candidates.n), resolve_k(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        """(n,) the network's scores; those of an ensemble are averaged."""
        return np.asarray(self.model_.member_scores(candidates).mean(0))

    def module(self, member: int = 0) -> Any:
        """A copy of your own module with the learned weights."""
        return self.model_.module(member)

    def remap(self, columns: FeatureMap) -> None:
        """Continue with features in other columns."""
        self.model_.remap(columns)

    def state(self) -> dict[str, Array]:
        """Copies of everything learned."""
        return self.model_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`."""
        self.model_.load(state)
