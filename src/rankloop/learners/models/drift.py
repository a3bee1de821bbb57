"""DriftDetection: a model that notices when users change and continues with what it learned since."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.capabilities import Drift, ScoreTerms
from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import load_state, require, require_number, require_whole, state_of
from rankloop.core.types import Array, Candidates, Impression
from rankloop.kernels import pairwise
from rankloop.kernels.forgetting import discount_precision, log_likelihood_ratio
from rankloop.learners.click_pairs import ClickPairs
from rankloop.learners.models.confidence import PairConfidence
from rankloop.learners.models.linear import LinearModel, rescaled
from rankloop.learners.models.rows import Rows

KEPT_ALARMS = 32  # alarms whose time is kept
ALARM_EVIDENCE = 7.0  # log-likelihood ratio against the former model for an alarm: a factor of a thousand


class DriftDetection:
    """A linear model beside rivals; a rival that predicts clicks better takes over.

    The first rival learns the same pairs but forgets (`fast_forget`). The others are the models that ranked before the
    latest changes, as they were then, for tastes that come back. Before an impression is learned, every model predicts
    its pairs. A rival's evidence is the CUSUM of its log-likelihood ratio against the model that ranks (Page 1954);
    above `threshold` it takes over and the model that ranked joins the past. A rival with longer weights is shrunk to
    the length of the model that ranks, so that it must be better by direction.

    While the forgetting model ranks, the first rival is one that started as a copy of it and keeps everything. A
    takeover counts as an alarm only if the model that ranks then predicts a thousand times better than the one that
    kept everything, within 4 / (1 - fast_forget) impressions. By Ville's inequality at most one in e^7 = 1,097 such
    trials of a correct former model ends in an alarm.

    Parameters
    ----------
    model
        The model that ranks.
    fast_forget
        Share of the old evidence that the forgetting rival keeps at each update; 1 switches it off.
    threshold
        Evidence at which a rival takes over: 2.5 is 12 times likelier.
    past_models
        How many former models are kept, at least 1.
    """

    def __init__(self, model: LinearModel, fast_forget: float, threshold: float, past_models: int) -> None:
        require_number("fast_forget", fast_forget, 0, above=True)
        require(fast_forget <= 1, "fast_forget", fast_forget, "must be at most 1")
        require_number("threshold", threshold, 0, above=True)
        require_whole("past_models", past_models, 1)
        self.model, self.fast_forget = model, fast_forget
        self.slow_forget, self.threshold, self.past_models = model.forget, threshold, past_models
        self._begin()

    def _begin(self) -> None:
        self.models_: Array = np.zeros((0, 0))  # (r, d) θ of the rivals: the one that learns, then the past
        self.inverses_: Array = np.zeros((0, 0, 0))  # (r, d, d) their inverse confidence matrices
        self.evidence_: Array = np.zeros(0)  # (r,)
        self.former_: Array = np.zeros(0)  # (d,) θ of the model that kept everything before the trial
        self.trial_: Array = np.zeros(3)  # evidence against it, impressions left, impression at which it began
        self.lists_: Array = np.zeros(1, np.int64)  # impressions learned from
        self.taught_: Array = np.zeros(1, np.int64)  # of them, those that the rival learned from too
        self.fades_: Array = np.zeros(1, np.int64)  # 1: the model that ranks forgets and the rival keeps everything
        self.since_: Array = np.zeros(1, np.int64)  # impression at which the model that ranks took over
        self.ripe_: Array = np.array([self._trial_length()])  # from this impression on a former model can be tried
        self.alarms_: Array = np.zeros(1, np.int64)
        self.latest_: Array = np.zeros(0, np.int64)  # (m,) impressions of the latest alarms

    @property
    def theta_(self) -> Array:
        """The weights of the model that ranks."""
        return self.model.theta_

    @property
    def inverse_(self) -> Array:
        """The inverse confidence matrix of the model that ranks."""
        return self.model.inverse_

    @property
    def forget(self) -> float:
        """The share of old evidence that the model keeps where nothing changes."""
        return self.slow_forget

    def drift(self) -> Drift:
        """The alarms so far, and since when the present model ranks."""
        return Drift(int(self.lists_[0]), int(self.since_[0]), int(self.alarms_[0]), self.latest_.copy())

    def rows(self, source: Candidates | Impression) -> Rows:
        """(n, d) the features."""
        return self.model.rows(source)

    def confidence(self, source: Candidates | Impression, alpha: float) -> PairConfidence:
        """That of the model that ranks."""
        return self.model.confidence(source, alpha)

    def scores(self, source: Candidates | Impression) -> Array:
        """(n,) of the model that ranks."""
        return self.model.scores(source)

    def score_terms(self, impression: Impression) -> ScoreTerms:
        """Those of the model that ranks."""
        return self.model.score_terms(impression)

    def half_widths(self, alpha: float) -> Array:
        """(d,) of the model that ranks."""
        return self.model.half_widths(alpha)

    def update(self, impression: Impression, pairs: ClickPairs) -> None:
        """Learn the pairs of one impression."""
        if len(pairs.pairs):
            self.update_rows(self.rows(impression), pairs)
        else:
            self.lists_ = self.lists_ + 1

    def update_rows(self, rows: Rows, pairs: ClickPairs) -> None:
        """Compare the predictions for these pairs, let the model and its rival learn them, and compare again."""
        assert isinstance(rows, np.ndarray)
        before, self.lists_ = self.theta_, self.lists_ + 1
        self.model.forget = self.fast_forget if self.fades_[0] else self.slow_forget
        self.model.update_rows(rows, pairs)
        if before.size == 0:
            self.models_, self.inverses_ = self.theta_[None].copy(), self.model.inverse_[None].copy()
            self.evidence_ = np.zeros(1)
            return
        weights = pairs.weights / pairs.tempering  # the ratio itself counts no document twice
        ratios = log_likelihood_ratio(rows, pairs.pairs, weights, before, self.models_)
        self.evidence_ = np.maximum(self.evidence_, 0.0) + ratios
        if self.trial_[1] > 0.0:
            self._try(float(log_likelihood_ratio(rows, pairs.pairs, weights, self.former_, before[None])[0]))
        keep = self.slow_forget if self.fades_[0] else self.fast_forget
        if keep < 1.0:
            discount_precision(self.inverses_[0], keep, self.model.prior * self.model.unit_[0], self.taught_[0])
        pairwise.onepass(self.models_[0], self.inverses_[0], rows, pairs.pairs, pairs.weights)
        self.taught_ = self.taught_ + 1
        if max(self.evidence_.tolist()) > self.threshold:  # of a few numbers: quicker than numpy
            self._take_over(int(self.evidence_.argmax()))

    def rescale(self, growth: Array) -> None:
        """Carry all models over to features divided by `growth`."""
        self.model.rescale(growth)
        self.models_ = np.array([rescaled(theta, growth) for theta in self.models_]).reshape(self.models_.shape)
        self.former_ = rescaled(self.former_, growth)

    def remap(self, columns: FeatureMap) -> None:
        """Carry all models over to other columns."""
        if columns.nothing and self.theta_.size:
            self.model.reset()
            self._begin()
            return
        self.model.remap(columns)
        self.models_ = columns.weights(self.models_)
        self.inverses_ = columns.covariance(self.inverses_, 1.0 / self.model.prior_precision(columns.source.size))
        self.former_ = columns.weights(self.former_)

    def state(self) -> dict[str, Array]:
        """Copies of the learned arrays."""
        return {**self.model.state(), **state_of(self)}

    def load(self, state: Mapping[str, Array]) -> None:
        """Continue from `state`, all or nothing."""
        own = set(state_of(self))
        twin = type(self.model)(self.model.prior, self.slow_forget, self.model.init, self.model.prior_strength)
        twin.load({name: array for name, array in state.items() if name not in own})
        d = twin.theta_.size
        rivals = len(np.atleast_1d(state.get("models_", ())))
        if rivals > 1 + self.past_models or (d > 0) != (rivals > 0):
            raise InvalidInput(
                f"state has {rivals} rivals; it must have one, and up to {self.past_models} more of the past"
            )
        shapes: dict[str, tuple[str | int, ...]] = dict.fromkeys(own, (1,))
        shapes |= {"models_": ("r", d), "inverses_": ("r", d, d), "evidence_": ("r",)}
        shapes |= {"former_": ("f",), "latest_": ("m",), "trial_": (3,)}
        load_state(self, {name: state[name] for name in own if name in state}, shapes)
        self.model = twin

    def _trial_length(self) -> int:
        """Impressions that a trial may take."""
        return int(np.ceil(4.0 / max(1.0 - self.fast_forget, 1e-6)))

    def _try(self, gain: float) -> None:
        """Add the evidence of one impression to the trial; enough of it is an alarm."""
        evidence, left, began = self.trial_ + np.array([gain, -1.0, 0.0])
        self.trial_ = np.array([evidence, left, began])
        if evidence > ALARM_EVIDENCE:
            self.trial_ = np.zeros(3)
            self.alarms_ = self.alarms_ + 1
            self.latest_ = np.append(self.latest_, np.int64(began))[-KEPT_ALARMS:]

    def _take_over(self, rival: int) -> None:
        """Let a rival rank, and decide which model learns beside it and which ones wait.

        Three cases: the forgetting model begins to rank; the model that kept everything beside it settles; a past
        model is back.
        """
        ranked, learned = (self.theta_, self.model.inverse_), (self.models_[0], self.inverses_[0])
        chosen = self.models_[rival].copy(), self.inverses_[rival].copy()
        forgets, keeps = (ranked, learned) if self.fades_[0] else (learned, ranked)
        past = [(self.models_[e], self.inverses_[e]) for e in range(1, len(self.models_)) if e != rival]
        begins, settles = rival == 0 and self.fades_[0] == 0, rival == 0 and self.fades_[0] == 1
        if not settles:
            self._begin_trial(keeps[0], chosen[0])
            past = [*past, keeps][-self.past_models :]
        if begins:
            self.model.turn_ = self.taught_.copy()
        beside = chosen if begins else forgets  # the forgetting model continues as it was
        self.model.theta_, self.model.inverse_ = chosen
        self.fades_ = np.array([begins], np.int64)
        self.models_ = np.stack([theta for theta, _ in (beside, *past)])
        self.inverses_ = np.stack([inverse for _, inverse in (beside, *past)])
        self.evidence_ = np.zeros(len(self.models_))
        self.since_ = self.lists_.copy()

    def _begin_trial(self, former: Array, chosen: Array) -> None:
        """Start to decide whether this takeover is a change of the users; a trial that runs continues.

        It is none if the former model itself is back, or if that began a few impressions ago: it still learned much
        from each, and as it was it would soon be behind though nothing changes.
        """
        left, now = self.trial_[1], self.lists_[0]
        if left > 0.0:
            if np.array_equal(chosen, self.former_):
                self.trial_ = np.zeros(3)
        elif now >= self.ripe_[0]:
            self.former_, self.trial_ = former.copy(), np.array([0.0, self._trial_length(), now])
        self.ripe_ = self.lists_ + self._trial_length()
