"""PairRank: explore only the pairs of documents whose order is still uncertain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from rankloop.core.capabilities import Explanation, Parts
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import (
    checked_order,
    checked_values,
    cut,
    drawn,
    learned_names,
    load_state,
    rows_of,
    seen_of,
    state_of,
    wide_rows_of,
)
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression, SparseRows
from rankloop.kernels import pairwise, preferences
from rankloop.kernels.diagonal import faded
from rankloop.kernels.forgetting import fade
from rankloop.kernels.ranking import linear_scores, top_k
from rankloop.learners.pairwise import _batches, _diagonal
from rankloop.learners.pairwise._debias import notes, pair_weights, told
from rankloop.learners.pairwise._doubt import Doubt
from rankloop.learners.pairwise._lemma import width_of_lemma_1
from rankloop.learners.pairwise._linear import (
    HISTORY,
    PAIR_RULES,
    carried_over,
    carry_over,
    check_history,
    refitted,
    remap_history,
)
from rankloop.learners.pairwise._rows import Rows, mean_squared_distance, numbered
from rankloop.learners.pairwise._rules import require_parameters
from rankloop.learners.pairwise._start import CLICK, Start, first_weights


@dataclass
class PairRank:
    """Linear RankNet with confidence: certain pairs keep their order, uncertain ones are shown in a random one.

    Good lists from the first hundreds of clicks, at a price that users hardly notice, because it explores only where it
    does not know. Where features are so many (hundreds) that a d x d matrix hurts: `confidence="diagonal"`.

    Parameters
    ----------
    explore
        "conservative" (PairRank_C): a random order of the candidates in which every certain pair stands right.
        "random" (PairRank_R): candidates fall into blocks, certain against each other; each block is shuffled.
    certainty
        i is certainly better than j iff s_i - s_j > α‖x_ij‖ ("logit") or σ(s_i - s_j) - α‖x_ij‖ > 1/2 ("probability",
        the paper's Definition 1), in the norm of the inverse confidence matrix.
    pairs
        Which clicked and examined unclicked documents become pairs: "all", "matched" (each at most once, at random) or
        "adjacent" (the paper's disjoint neighbours).
    update
        "onepass": a Newton step a pair, O(k d²) an event however many pairs there are, no history.
        "refit": the paper's exact minimiser over all pairs so far; memory and time an event grow with the pairs seen.
    loss
        What "refit" minimises beside ridge/2 ‖θ‖²: the "sum" of the pairs' losses, whose ridge fades as pairs come in
        (the paper's Eq. (1)), or their "mean", whose ridge never does (the released code).
    debias
        What a pair counts, so that the order shown does not confirm itself. "propensity": ρ = P(R*) / (P(R) + P(R*)),
        how likely this learner was to show the list with the two swapped, exactly; pairs in a fixed order as the notes
        say. "plackett-luce": PDGD's ρ, as if scores had drawn the list. "none": 1, the paper.
    alpha
        Width of the confidence interval; 0 is greedy. "theory" is Lemma 1's α_t, which holds for what it was proved
        for only: certainty="probability", update="refit" with loss="sum" and debias="none", independent pairs
        ("adjacent" or "matched") and one λ (prior = ridge).
    prior
        λ: how sure to be at first that no feature matters.
    ridge
        The same for the θ of "refit", where the two are told apart.
    scale
        "data": prior and ridge are multiples of the mean squared distance between two documents of the first list
        learned from, so that they mean the same whatever the features' number and size. "one": plain numbers.
    forget
        Below 1, old evidence fades: H becomes forget·H before each event that teaches, and the prior is given back to
        one coordinate (or m) at a time, (1 - forget)·λ·d/m, in turn: forget·H + (1 - forget)·λI on average, for O(d²)
        an event instead of O(d³). m is such that no coordinate's prior leaves [λ/2, 1.7λ].
    init
        "zero": nothing is known, the first lists are random. "base": the caller's order is, as a feature of its own
        (-log(1 + position), weight 1): the first lists are his, but for neighbours further down (from the twentieth
        place on, about), which are not certain; clicks may overturn it like anything else. A list of weights: a linear
        model that he has, brought to scale.
    prior_strength
        How sure to be of the start: worth so many clicks.
    tempered
        With pairs="all" each counts 2/m in a list of m documents that were looked at. Such pairs share documents: the
        m answers "clicked or not" tell 2/m of what as many independent pairs would, however many clicks there are (the
        notes have the sum). Taken in full, one click below nine skips would be nine comparisons, and certain too soon.
    confidence
        "full": the matrix H, d² numbers. "diagonal": a variance a feature, O(d) in time and memory, or O(what is in the
        rows) where they are sparse (`SparseRows`), which only this takes. Needs update="onepass".
    delta, bound
        Of "theory": probability that the intervals fail, and the largest norm of the true θ.
    examine_next
        Take the document below the last click as seen.
    batch
        How many outcomes are learned in one step: what they teach is summed, and θ and its confidence, by which lists
        are made, move when a batch is full. 1: with every outcome. More: a fraction of the time an outcome where
        features are many (`Notes`). Batches begin small: none is larger than an eighth of the outcomes before it.
        Needs update="onepass" and confidence="full".

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = PairRank()
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.blocks(shoes)
    (array(['liked'], dtype='<U5'), array([1, 2]))

    Notes
    -----
    Yiling Jia, Huazheng Wang, Stephen Guo and Hongning Wang. PairRank: Online Pairwise Learning to Rank by
    Divide-and-Conquer. WWW 2021: Algorithm 1 (its norm must be that of M⁻¹), Definitions 1 and 2, Lemma 1.

    `pairrank@paper` is Algorithm 1 as printed, `pairrank@code` the released code. Lemma 1's proof (appendix B.1)
    projects θ̂ back into ‖θ‖ ≤ Q where it lies outside; nobody's experiments do, nor do we: at a θ̂ longer than `bound`
    the intervals of "theory" are not proved.

    Where we differ, by default: one-pass update, all pairs, logit certainty (a strict partial order, which lets long
    lists be cut to the documents that can come up at all), and the weights ρ. PDGD proves that with ρ documents liked
    alike are not pulled apart, whatever the position bias, if P is the probability of the list shown. PairRank's is
    known: a product of 1 / (documents free to be picked). Pairs in a fixed order need care, since "clicked below,
    skipped above" is always noticed and its opposite only sometimes: they count 1/2 where a click below shows that both
    were seen, else .3 of PDGD's ρ, which keeps a wrong certainty revisable where users click only once.

    Why 2/m. Of m documents looked at, c are clicked. As m answers of a logistic model with a level of its own they have
    the information m · c/m (1 - c/m) · S about θ, S being the covariance of the rows; as c(m - c) pairs, each with
    curvature 1/4 and a mean xxᵀ of 2S, they would have c(m - c)/2 · S: m/2 times as much, whatever c is.

    Defaults: the form was chosen on validation queries of websearch300, clueweb09 and the generated mslr and mq2007
    (three users, nine ways to weigh pairs); 2/m, prior and alpha then on mq2007 alone, websearch300, mslr and clueweb09
    being looked at once: there, from zero, clueweb09 was served a little worse than before (.280 and .235 against .291
    and .267, three seeds). docs/learners/pairwise.md has the tables and says which are of the defaults before. Where
    lists are short, `greedy` can serve better. One pass was within one standard error of the exact refit at equal
    exploration in 17 of 18 comparisons (1,000 rounds, 10 seeds, pairs counted in full).
    """

    explore: Literal["conservative", "random"] = "conservative"
    certainty: Literal["logit", "probability"] = "logit"
    pairs: Literal["all", "matched", "adjacent"] = "all"
    update: Literal["onepass", "refit"] = "onepass"
    loss: Literal["sum", "mean"] = "sum"
    debias: Literal["propensity", "plackett-luce", "none"] = "propensity"
    alpha: float | Literal["theory"] = 0.2
    prior: float = 10.0
    ridge: float = 10.0
    scale: Literal["data", "one"] = "data"
    forget: float = 1.0
    init: Start = "zero"
    prior_strength: float = 50.0
    tempered: bool = True
    confidence: Literal["full", "diagonal"] = "full"
    delta: float = 0.1
    bound: float = 1.0
    examine_next: bool = True
    batch: int = 1

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True
    carries: ClassVar[str] = (
        "weights and confidence of the features that stay; a removed feature is marginalized out; a new one starts at "
        "weight 0 with its prior variance"
    )
    extended: ClassVar[bool] = False  # whether a learner built on this one does more with the pairs of a list

    def __post_init__(self) -> None:
        require_parameters(self)
        self.theta_: Array = np.zeros(0)
        # of M (refit) or H (onepass), whose norm says how uncertain a pair is; or the variances (d,) of "diagonal"
        self.inverse_: Array = np.zeros((0, 0)) if self.confidence == "full" else np.zeros(0)
        if self.confidence == "diagonal":
            self.touched_: Array = np.zeros(0, np.int64)  # (d,) the turn at which each variance was last made to fade
        self.unit_: Array = np.ones(1)  # what prior and ridge are multiples of
        self.log_det_: Array = np.zeros(1)  # log of det M / det λI
        self.longest_: Array = np.zeros(1)  # the largest norm of a pair so far
        self.turn_: Array = np.zeros(1, np.int64)  # events that have made evidence fade
        # of "refit" only: the pairs so far, their weights, the running Hessian inverse
        self.rows_: Array = np.zeros((0, 0))
        self.weights_: Array = np.zeros(0)
        self.hessian_inverse_: Array = np.zeros((0, 0))
        if self.batch > 1:
            self.precision_: Array
            self.push_: Array
            self.gathered_: Array
            _batches.begin(self)

    @property
    def grows(self) -> str:
        """Why its state grows with the events seen."""
        return "keeps every pair: the exact minimiser reads all of them" if self.update == "refit" else ""

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator) -> Impression:
        """The first k of a random order that respects every certain pair (or block)."""
        k = cut(candidates, k, rng)
        doubt = self._doubt(candidates)
        order, chance, shares = doubt.draw(k, rng, self.explore == "random")
        return drawn(candidates, order, chance, notes(doubt.scores, order, self.debias, shares))

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The product over positions of 1 / (documents free to be picked)."""
        return self._doubt(candidates).log_chance(order, self.explore == "random")

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; it was not drawn, so its pairs count as those in a fixed order."""
        order = checked_order(candidates, order)
        return told(candidates, self.score(candidates), order, self.debias, self.examine_next)

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores; equal ones keep the base order."""
        return top_k(self.score(candidates), np.zeros(candidates.n), cut(candidates, k))

    def score(self, candidates: Candidates) -> Array:
        """(n,) x·θ, with the base order's part where the learner starts from it; at "zero", all 0 at first."""
        return self._doubt(candidates).scores

    def parts(self, impression: Impression) -> Parts:
        """Rows with the base order where the learner starts from it, and their weights."""
        doubt = self._doubt(impression)
        return Parts(doubt.rows if isinstance(doubt.rows, np.ndarray) else self._rows(impression), doubt.theta)

    def blocks(self, candidates: Candidates) -> Array:
        """(b,) the rank at which each block ends, of all candidates sorted by score: [2, 5] is two, then three."""
        doubt = self._doubt(candidates)
        return doubt.ends(top_k(doubt.scores, np.zeros(candidates.n), candidates.n), candidates.n)

    def explain(self, impression: Impression) -> Explanation:
        """What was uncertain when the list was drawn: the pairs that might as well have stood the other way round.

        A list that was adopted, or made without propensities, does not say; it is looked at with what is known now.
        """
        memo, doubt = impression.memo, self._doubt(impression)
        scores = memo.get("scores", doubt.scores)
        if "shares" in memo and memo["doubt"][0] > 0.0:
            open_ = memo["shares"] > 0.0
        else:
            certain = doubt.certain()
            open_ = ~(certain | certain.T)
        pairs = impression.k * (impression.k - 1) // 2
        return Explanation(np.lexsort((impression.order, -scores)), np.argwhere(np.triu(open_, 1)), pairs)

    def half_widths(self) -> Array:
        """(d,) α‖e_j‖: two documents that differ by 1 in feature j alone are certain iff |θ_j| is larger."""
        alpha = width_of_lemma_1(self) if isinstance(self.alpha, str) else self.alpha
        diagonal = self._variances(self.inverse_) if self.confidence == "diagonal" else np.diagonal(self.inverse_)
        return np.asarray(alpha * np.sqrt(diagonal))

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator) -> None:
        """Turn the clicks into pairs and take them in."""
        clicks = checked_values(self, impression, feedback)
        seen = -1 if feedback.seen is None else seen_of(impression, feedback)
        pairs = preferences.click_pairs(
            clicks, self.examine_next, seen, PAIR_RULES[self.pairs], rng.random(clicks.size)
        )
        if len(pairs) == 0:
            if self.batch > 1:
                _batches.count(self)
            return
        features = self._rows(impression)
        weights = pair_weights(impression, clicks, pairs, self.debias)
        tempering = 1.0
        if self.tempered and self.pairs == "all":
            tempering = min(1.0, 2.0 / preferences.examined_count(clicks, self.examine_next, seen))
        pairs, weights = preferences.that_count(pairs, weights, tempering)
        if len(pairs) == 0:
            if self.batch > 1:
                _batches.count(self)
            return
        if self.theta_.size == 0:
            self.theta_, self.inverse_, self.unit_ = self._fresh(features)
            if self.confidence == "diagonal" and self.forget < 1.0:
                self.touched_ = np.zeros(self.theta_.size, np.int64)
            if self.batch > 1:
                _batches.ready(self)
        if self.alpha == "theory" and not isinstance(features, SparseRows):
            self.longest_ = np.maximum(self.longest_, pairwise.longest_pair(features, pairs))
        shared = self._shared(impression, features, pairs, weights) if self.extended else weights
        if self.confidence == "diagonal":
            self.turn_ = self.turn_ + (self.forget < 1.0)
            known = self.theta_, self.inverse_, self.touched_
            self.theta_, self.inverse_, self.touched_ = _diagonal.learned(
                *known, features, pairs, shared, self.theta_.size - 1 if self.init == "base" else -1, self._fading()
            )
        elif isinstance(features, SparseRows):
            raise AssertionError("only variances take sparse rows")
        elif self.batch > 1:
            _batches.take_in(self, features, pairs, shared)
        elif self.update == "onepass":
            # kernels let other threads run: whoever ranks meanwhile keeps whole arrays
            theta, inverse, gained = self.theta_.copy(), self.inverse_.copy(), 0.0
            keep = self._keep() if self.extended else self.forget
            if keep < 1.0:
                gained = fade(inverse, keep, self.prior * self.unit_[0], self.turn_[0])
                self.turn_ = self.turn_ + 1
            gained += pairwise.onepass(theta, inverse, features, pairs, shared)
            self.theta_, self.inverse_, self.log_det_ = theta, inverse, self.log_det_ + gained
        else:
            self._refit(features[pairs[:, 0]] - features[pairs[:, 1]], shared)
        if self.extended:
            self._extend(impression, features, pairs, weights, tempering)
        if self.batch > 1:
            _batches.count(self)

    def _refit(self, rows: Array, weights: Array) -> None:
        """The exact minimiser with new pairs, their differences (m, d), among all."""
        inverse, ridge = self.inverse_.copy(), self.ridge * self.unit_[0]
        gained = sum(pairwise.rank_one_update(inverse, row, w) for row, w in zip(rows, weights, strict=True))
        history = self.theta_, self.hessian_inverse_, self.rows_, self.weights_
        found = refitted(*history, rows, weights, ridge, self.loss == "mean")
        self.theta_, self.hessian_inverse_, self.rows_, self.weights_ = found
        self.inverse_, self.log_det_ = inverse, self.log_det_ + gained

    def rescale(self, growth: Array) -> None:
        """Go on with features divided by `growth`; the gradient gathered is one of theirs, too."""
        carry_over(self, growth)
        if self.batch > 1:
            self.push_ = carried_over(self.push_, 1.0 / growth)

    def remap(self, columns: FeatureMap) -> None:
        """Go on with features in other columns.

        `log_det_` and `longest_`, of alpha="theory" only, stay: without a feature they are upper bounds.
        """
        if self.theta_.size == 0 or columns.identity:
            return
        if columns.nothing:  # not even the unit of the prior is known any more
            fresh = PairRank(**{one.name: getattr(self, one.name) for one in fields(PairRank)})
            vars(self).update({name: getattr(fresh, name) for name in learned_names(fresh)})
            return
        if self.batch > 1:
            _batches.take_gathered(self)
        if (columns.scale != 1.0).any():  # values are divided by the scale, squared distances by its square
            self.unit_ = self.unit_ / np.mean(columns.scale[columns.source >= 0] ** 2)
        prior = self._prior(columns.source.size)
        self.theta_ = columns.weights(self.theta_)
        if self.confidence == "diagonal":
            self.inverse_ = columns.weights(self.inverse_, 1.0 / prior, power=2)
            self.touched_ = columns.weights(self.touched_, int(self.turn_[0]), power=0)
        else:
            self.inverse_ = columns.covariance(self.inverse_, 1.0 / prior)
        remap_history(self, columns, 1.0 / (self.ridge * self.unit_[0]))
        if self.batch > 1:
            _batches.restart(self)

    def state(self) -> dict[str, Array]:
        """θ, the confidence matrix and, with "refit", the pairs so far."""
        return state_of(self)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        shapes: dict[str, tuple[str | int, ...]] = {
            "theta_": ("d",),
            "inverse_": ("d", "d"),
            "unit_": (1,),
            "log_det_": (1,),
            "longest_": (1,),
            "turn_": (1,),
            **HISTORY,
        }
        if self.confidence == "diagonal":
            shapes |= {"inverse_": ("d",), "touched_": ("d",) if self.forget < 1.0 else (0,)}
        if self.batch > 1:
            shapes |= {"precision_": ("d", "d"), "push_": ("d",), "gathered_": (3,)}
            _batches.check(self.batch, np.asarray(state.get("gathered_")))
        check_history(state)
        load_state(self, state, shapes)

    def _rows(self, source: Candidates | Impression) -> Rows:
        """What is ranked by: with the base order as last column where asked, sparse where the variances allow it."""
        take = wide_rows_of if self.confidence == "diagonal" else rows_of
        return take(source, self.theta_.size, self.init == "base")

    def _fresh(self, rows: Rows) -> tuple[Array, Array, Array]:
        """θ, the inverse confidence matrix and the unit of prior and ridge, sized and scaled by the first list."""
        d, base = rows.shape[1], self.init == "base"
        unit = mean_squared_distance(rows, base) if self.scale == "data" else 1.0
        prior = self._prior(d, unit)
        # the large one first: it may not fit into memory
        inverse = np.eye(d) / prior if self.confidence == "full" else np.full(d, 1.0 / prior)
        if base:
            inverse[(-1,) * inverse.ndim] = 1.0 / (CLICK * self.prior_strength)
        return first_weights(self.init, rows), inverse, np.array([unit])

    def _prior(self, features: int, unit: float | None = None) -> float:
        """The precision of a weight before anything is learned about it."""
        unit = float(self.unit_[0]) if unit is None else unit
        prior = self.prior * unit
        if not isinstance(self.init, str):  # so many clicks tell of every direction alike, we suppose
            prior += CLICK * self.prior_strength / features * unit
        return prior

    def _doubt(self, source: Candidates | Impression) -> Doubt:
        """What is known now of the order of candidates, or of what was shown."""
        rows, theta, inverse = self._rows(source), self.theta_, self.inverse_
        if theta.size == 0 and self.init != "zero":
            theta, inverse, _ = self._fresh(rows)
        alpha = width_of_lemma_1(self) if isinstance(self.alpha, str) else self.alpha
        logit = self.certainty == "logit"
        if isinstance(rows, SparseRows):
            some = numbered(rows)
            here = theta[some.columns] if theta.size else theta
            return Doubt(some, some.scores(here), theta, self._variances(inverse, some.columns), alpha, logit)
        if self.confidence == "diagonal":
            inverse = self._variances(inverse)
        return Doubt(rows, linear_scores(rows, theta), theta, inverse, alpha, logit)

    def _variances(self, variance: Array, some: Array | slice = slice(None)) -> Array:
        """Of some features, or all, as they stand now: what fades is made to where someone looks."""
        keep, prior, now = self._fading()
        if keep == 1.0 or self.touched_.size == 0:
            return variance[some] if variance.size else variance
        return faded(variance[some], keep, prior, now - self.touched_[some])

    def _fading(self) -> _diagonal.Fading:
        return _diagonal.Fading(self.forget, self.prior * self.unit_[0], int(self.turn_[0]))

    def _shared(self, impression: Impression, rows: Rows, pairs: Array, weights: Array) -> Array:  # noqa: ARG002
        """(m,) what each pair of a list counts for θ, of what it counts at all: for PairRank, all of it."""
        return weights

    def _keep(self) -> float:
        """How much of its evidence θ keeps at the next event; a learner built on this one may know better."""
        return self.forget

    def _extend(self, impression: Impression, rows: Rows, pairs: Array, weights: Array, tempering: float) -> None:
        """What a learner built on this one does with the pairs (m, 2) of a list after θ has learned them.

        `weights` (m,) have the factor `tempering` in them.
        """
