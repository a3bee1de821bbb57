"""Adaptive: PairRank that notices when users change, and goes on with what it has learned since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from rankloop.core.capabilities import Drift
from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import clone, load_state, require, require_number, require_whole
from rankloop.core.types import Array, Candidates, Feedback, Impression, SparseRows  # noqa: F401  (the example needs candidates)
from rankloop.kernels import pairwise
from rankloop.kernels.forgetting import fade, foretold
from rankloop.learners.pairwise._linear import carried_over
from rankloop.learners.pairwise._rows import Rows
from rankloop.learners.pairwise.pairrank import PairRank

LATEST = 32  # alarms of which the moment is kept
SURE = 7.0  # log of how many times likelier than the former a new model makes what follows, for an alarm: a thousand
OWN = (
    "models_",
    "inverses_",
    "evidence_",
    "former_",
    "trial_",
    "lists_",
    "taught_",
    "fades_",
    "since_",
    "ripe_",
    "alarms_",
    "latest_",
)


@dataclass
class Adaptive(PairRank):
    """PairRank beside rivals that forget or remember: one that foretells the clicks better takes over, with an alarm.

    Choose it where tastes may change: by season, by fashion, between weekdays and weekends. While nothing changes its
    lists are PairRank's, bit for bit. It costs about 1.3 to 1.5 times PairRank's time a round and, with `past` models
    kept, 2 + past times its memory.

    One rival learns from the same lists: a PairRank whose evidence fades (`short`). The others wait: the models that
    ranked before the latest changes, as they were then (`past`), for tastes that come back. Before each list is learned
    from, every model foretells its pairs. A rival's evidence is the log of how much better it has done than the model
    that ranks, since it last was no better (CUSUM). Beyond a bar it takes over, and who ranked joins the past. It must
    be better by its direction: one that forgets soon has a longer θ, which foretells better while nothing changes, so a
    longer rival is brought to the length of the model that ranks first.

    Who fades goes on fading while he ranks, so that slow drift is followed all the time. Beside him learns one that
    started as he did and keeps everything since; by the same test he takes over where nothing changes any more, or he
    joins the past when that is over. A model of the past that is back keeps everything; who fades goes on beside him as
    he was, for a new taste that all the past is wrong about is his to find.

    If a hand-over was wrong, who ranked will be back: that costs little, so the bar is low. An alarm is another matter:
    it is given when those who rank after a hand-over have foretold what came a thousand times likelier than the former
    would have, within 4 / (1 - short) lists. The former is who kept everything; he must have done so for as many.

    Parameters
    ----------
    explore, certainty, pairs, update, loss, debias, alpha, prior, ridge, scale, forget, init, prior_strength, delta
    tempered, confidence, examine_next, batch
        As in `PairRank`, of the model that ranks; `update` must be "onepass", `confidence` "full" and `batch` 1.
    short
        How much evidence who fades keeps an event, as `forget`; 1: he forgets nothing and never is better.
    bar
        The evidence by which a rival takes over: 2.5 is 12 times likelier. Higher, changes are followed later; lower,
        they are followed where there are none. The notes tell what is proved of that.
    past
        How many former models are kept, at least 1.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = Adaptive(prior=1.0)
    >>> shoes = Candidates("shoes", ["plain", "bright", "warm"], np.eye(3))
    >>> for liked in ["bright"] * 300 + ["warm"] * 300:
    ...     shown = learner.rank(shoes, 3, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, [liked]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.drift().alarms
    (array(['warm'], dtype='<U6'), 1)

    Notes
    -----
    The model is that of Jia et al., PairRank (WWW 2021); the test is E. S. Page, Continuous Inspection Schemes
    (Biometrika 1954), with likelihood ratios of models that learn. Paper 004 (Lu et al., Non-Stationary Dueling Bandits
    for Online Learning to Rank) follows change with many step sizes at once, weighed by Hedge: `dm2l` and its sisters.

    What is proved. If the model that ranks is right, the likelihood ratio of a list against any rival fixed before it
    has mean 1 at most (`kernels.forgetting.foretold` says how pairs are counted for this; `tempered` has no part in it:
    it is about what θ may learn from pairs that share documents). exp(evidence) is at most
    Shiryaev's and Roberts' R ← (1 + R)·ratio, and the sum of these over m rivals less m·t has a mean that never grows;
    so wrong hand-overs are e^bar / m lists apart on average, at least (optional stopping; Lorden 1971 has it for one
    rival). That is far from sharp, and at a low bar says nothing: a rival that has forgotten is further from the truth
    than who ranks, so that between changes its evidence falls back to 0; how rare they are is measured. And of the
    trials of a former that is right at most one in e^7 = 1,097 ends in an alarm, however many take over meanwhile
    (Ville's inequality: each list is foretold by who ranks, fixed before it). If the former is back, the trial ends.

    Measured in docs/learners/pairwise.md: nothing lost where nothing changes, 6 to 8 % above PairRank where tastes do.
    A fixed rate that suits is 1.5 to 2.4 % better after sudden changes, all of it with users whose clicks are few or
    noisy, for whom changes are noticed late; where tastes come back it is 4 % worse.
    """

    short: float = 0.98
    bar: float = 2.5
    past: int = 2

    carries: ClassVar[str] = f"{PairRank.carries}; the same for its rivals"
    extended: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.update == "onepass", "update", self.update, 'must be "onepass": rivals keep no history')
        full = (
            "must be full: rivals are compared with whole matrices. Wide and changing: pairrank, diagonal, with forget"
        )
        require(self.confidence == "full", "confidence", self.confidence, full)
        require(self.batch == 1, "batch", self.batch, "must be 1: rivals are compared list by list")
        require_number("short", self.short, 0, above=True)
        require(self.short <= 1, "short", self.short, "must be at most 1")
        require_number("bar", self.bar, 0, above=True)
        require_whole("past", self.past, 1)
        self._before: Array = self.theta_  # θ as it was when a list was foretold
        self.models_: Array = np.zeros((0, 0))  # (r, d) θ of the rivals: who learns, then the past, oldest first
        self.inverses_: Array = np.zeros((0, 0, 0))  # (r, d, d) their inverse confidence matrices
        self.evidence_: Array = np.zeros(0)  # (r,) the CUSUM of each
        self.former_: Array = np.zeros(0)  # (d,) θ of who kept everything before the trial
        self.trial_: Array = np.zeros(3)  # the evidence against him, lists left for it, list it began at
        self.lists_: Array = np.zeros(1, np.int64)  # learned from
        self.taught_: Array = np.zeros(1, np.int64)  # of them, those that the rival learned from too
        self.fades_: Array = np.zeros(1, np.int64)  # 1: the model that ranks fades, and the rival keeps; 0: as at first
        self.since_: Array = np.zeros(1, np.int64)  # the list at which the model that ranks took over
        self.ripe_: Array = np.array([self._long()])  # the list from which on he has learned enough to be held to
        self.alarms_: Array = np.zeros(1, np.int64)
        self.latest_: Array = np.zeros(0, np.int64)  # (m,) since_ of the latest alarms

    def drift(self) -> Drift:
        """The alarms so far, and since when the model that ranks does."""
        return Drift(int(self.lists_[0]), int(self.since_[0]), int(self.alarms_[0]), self.latest_.copy())

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """As PairRank; then ask who foretold the pairs, let the rival learn them too, look at the bar."""
        self._before, lists = self.theta_, self.lists_
        super().learn(impression, feedback, rng)
        if self.lists_ is lists:  # a list without pairs
            self.lists_ = lists + 1

    def _extend(self, impression: Impression, rows: Rows, pairs: Array, weights: Array, tempering: float) -> None:  # noqa: ARG002
        assert not isinstance(rows, SparseRows)
        before, self.lists_ = self._before, self.lists_ + 1
        if before.size == 0:
            self.models_, self.inverses_ = self.theta_[None].copy(), self.inverse_[None].copy()
            self.evidence_ = np.zeros(1)
            return
        told = weights / tempering  # `foretold` sees to it that no document counts twice
        self.evidence_ = np.maximum(self.evidence_, 0.0) + foretold(rows, pairs, told, before, self.models_)
        if self.trial_[1] > 0.0:
            self._try(float(foretold(rows, pairs, told, self.former_, before[None])[0]))
        keep = self.forget if self.fades_[0] else self.short
        if keep < 1.0:
            fade(self.inverses_[0], keep, self.prior * self.unit_[0], self.taught_[0])
        pairwise.onepass(self.models_[0], self.inverses_[0], rows, pairs, weights)
        self.taught_ = self.taught_ + 1
        if max(self.evidence_.tolist()) > self.bar:  # of a few numbers: quicker than numpy
            self._hand_over(int(self.evidence_.argmax()))

    def rescale(self, growth: Array) -> None:
        """As of PairRank, with the models of its rivals."""
        super().rescale(growth)
        self.models_ = np.array([carried_over(theta, growth) for theta in self.models_]).reshape(self.models_.shape)
        self.former_ = carried_over(self.former_, growth)

    def remap(self, columns: FeatureMap) -> None:
        """As of PairRank, with the models of its rivals."""
        if columns.nothing and self.theta_.size:
            vars(self).update(vars(clone(self)))
            return
        super().remap(columns)
        self.models_ = columns.weights(self.models_)
        self.inverses_ = columns.covariance(self.inverses_, 1.0 / self._prior(columns.source.size))
        self.former_ = columns.weights(self.former_)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        shared = {field.name: getattr(self, field.name) for field in fields(PairRank)}
        plain = PairRank(**shared)
        plain.load({name: value for name, value in state.items() if name not in OWN})
        d = plain.theta_.size
        shapes: dict[str, tuple[str | int, ...]] = {name: value.shape for name, value in plain.state().items()}
        rivals = len(np.atleast_1d(state.get("models_", ())))
        if rivals > 1 + self.past or (d > 0) != (rivals > 0):
            raise InvalidInput(f"state has {rivals} rivals; it must have one, and up to {self.past} more of the past")
        shapes |= {
            "models_": ("r", d),
            "inverses_": ("r", d, d),
            "evidence_": ("r",),
            "latest_": ("m",),
            "former_": ("f",),
        }
        load_state(
            self,
            state,
            {
                **shapes,
                "lists_": (1,),
                "taught_": (1,),
                "fades_": (1,),
                "since_": (1,),
                "alarms_": (1,),
                "trial_": (3,),
                "ripe_": (1,),
            },
        )

    def _keep(self) -> float:
        """What the model that ranks keeps of its evidence: `short` while he is one that fades."""
        return self.short if self.fades_[0] else self.forget

    def _long(self) -> int:
        """Lists that a trial may take."""
        return int(np.ceil(4.0 / max(1.0 - self.short, 1e-6)))

    def _try(self, gain: float) -> None:
        """One list more by which to tell whether the hand-over was right; if that is sure, it is an alarm."""
        evidence, left, start = self.trial_ + np.array([gain, -1.0, 0.0])
        self.trial_ = np.array([evidence, left, start])
        if evidence > SURE:
            self.trial_ = np.zeros(3)
            self.alarms_ = self.alarms_ + 1
            self.latest_ = np.append(self.latest_, np.int64(start))[-LATEST:]

    def _hand_over(self, rival: int) -> None:
        """Let a rival rank; find who learns beside him, and who waits.

        Three kinds: one that fades begins to rank, one that kept everything beside him settles, a past is back.
        """
        ranked, learned = (self.theta_, self.inverse_), (self.models_[0], self.inverses_[0])
        chosen = self.models_[rival].copy(), self.inverses_[rival].copy()
        fades, keeps = (ranked, learned) if self.fades_[0] else (learned, ranked)
        past = [(self.models_[e], self.inverses_[e]) for e in range(1, len(self.models_)) if e != rival]
        begins, settles = rival == 0 and self.fades_[0] == 0, rival == 0 and self.fades_[0] == 1
        if not settles:
            self._begin_trial(keeps[0], chosen[0])
            past = [*past, keeps][-self.past :]
        if begins:
            self.turn_ = self.taught_.copy()
        beside = chosen if begins else fades  # who fades goes on as he was, whether he ranked or not
        self.theta_, self.inverse_ = chosen
        self.fades_ = np.array([begins], np.int64)
        self.models_ = np.stack([theta for theta, _ in (beside, *past)])
        self.inverses_ = np.stack([inverse for _, inverse in (beside, *past)])
        self.evidence_ = np.zeros(len(self.models_))
        self.since_ = self.lists_.copy()

    def _begin_trial(self, former: Array, chosen: Array) -> None:
        """Find out whether a hand-over is news; one more, while that is being found out, changes nothing.

        It is none if the former himself is back. Nor is he held to if he began a few lists ago: he still learned a lot
        from each, and as he was will soon be behind though nothing changes.
        """
        left, now = self.trial_[1], self.lists_[0]
        if left > 0.0:
            if np.array_equal(chosen, self.former_):
                self.trial_ = np.zeros(3)
        elif now >= self.ripe_[0]:
            self.former_, self.trial_ = former.copy(), np.array([0.0, self._long(), now])
        self.ripe_ = self.lists_ + self._long()
