"""olRankNet: a neural ranker that explores only the pairs it is unsure of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.feature_map import FeatureMap
from rankloop.core.rng import as_rng
from rankloop.core.learner import checked_order, checked_values, make_impression, require, require_choice, require_flag, require_number, require_whole, resolve_k, seen_of
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.kernels import certainty, listwise, preferences
from rankloop.kernels.ranking import epsilon_greedy_log_probability, top_k
from rankloop.learners.neural import _confidence, networks
from rankloop.learners.neural._adam import Training
from rankloop.learners.neural._buffer import Entry, Lists
from rankloop.learners.neural._confidence import Known
from rankloop.learners.neural._lined import LinedRanker
from rankloop.learners.neural._neural import MOST, Shapes
from rankloop.learners.neural.networks import Forward
from rankloop.learners.pairwise._debias import notes, pair_weights, told
from rankloop.learners.pairwise._linear import PAIR_RULES
from rankloop.learners.query_table import query_hash

NO_LIMIT = 2**40
LOGIT = 4.0  # σ(s) - 1/2 is s/4 at most: so much wider is an interval of scores than one of probabilities


@dataclass
class OLRankNet(LinedRanker):
    """RankNet with a network beside a line: pairs whose order is certain keep it, the others come in a random one.

    What `pairrank` is for linear scores, for any network: choose it where relevance may be more than a weighted sum of
    features and there will be thousands of clicks. Scores are θ·x + g·net(x): θ is PairRank's own, and g is how far the
    network has proved itself beside it, so that where a line is all there is to learn it ranks as `pairrank` does. It
    costs milliseconds an event and not fractions of one.

    Parameters
    ----------
    line
        "pairrank": a line beside the network, learned as `PairRank` learns, and a gate (`gate`) that says how much of
        the network counts. "none": the network alone, as in the paper.
    init, prior_strength
        What the line knows at first, as in `PairRank`: nothing ("zero"), the caller's order ("base") or given weights,
        and how many clicks that is worth. The network does not see the caller's order.
    line_alpha
        Width of the line's part of the confidence interval.
    validate
        One query in so many never trains the network. How well it foretells their clicks says how far to believe it
        where it has not been.
    explore
        "tangent": with a line, a pair is certain iff s_i - s_j > √(α_line²‖x_ij‖² + (4αg)²‖g_ij/√m‖²), in the norms of
        the inverse confidence matrices of both, g_ij being the gradient of the network's score in its weights.
        Alone: iff σ(f_i - f_j) - α‖g_ij/√m‖ > 1/2. "ensemble": iff all of several networks, trained on noisy labels,
        agree; dearer to learn, cheaper to rank. "none": show the highest scores.
    covariance
        A as its "diagonal" (the paper's experiments) or "full", for small networks only.
    update
        "replay": a fixed number of Adam steps on lists drawn from the last `memory` ones; cost an event stays flat.
        "refit": passes over all lists so far, the paper's; memory and time an event grow with the lists seen.
    pairs
        Which clicked and examined unclicked documents become pairs: "all", "matched" (each at most once, at random) or
        "adjacent" (disjoint neighbours); the last two are the paper's independent pairs.
    debias
        What a pair counts: "propensity", how likely the list with the two swapped was, as in `PairRank`; "none": 1.
    alpha
        Width of the network's part of the confidence interval; 0 is greedy.
    prior
        λ of A, as a number of pairs: with so many seen, half of the first uncertainty is left.
    rate, ridge, units, optimiser
        The step size, the weight of ‖θ - θ₀‖²/2, what these numbers are told in, and Adam or plain descent
        (`AdamRanker`). With units="none" λ of A is `prior` itself.
    steps
        Of Adam for an event with "replay"; with "refit" passes over all lists.
    batch
        Lists a step; with "replay" the newest is always among them.
    memory
        Lists that "replay" keeps; the state grows until they are there.
    reinit
        Let every "refit" begin at the start again, as the published code does.
    nets, noise
        Of "ensemble": how many networks, and the standard deviation of the noise on their labels.
    examine_next
        Take the document below the last click as seen.
    net, width, seed
        The network, its hidden units, and where it starts (`NeuralRanker`).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> learner = OLRankNet(width=20)
    >>> shoes = Candidates("shoes", ["plain", "liked"], [[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(100):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, Feedback.clicked(shown, ["liked"]), rng)
    >>> shoes.items[learner.best(shoes, 1)], learner.certain(shoes, np.array([0, 1]))[1, 0]
    (array(['liked'], dtype='<U5'), np.True_)

    Notes
    -----
    Yiling Jia and Hongning Wang. Learning Neural Ranking Models Online from Implicit User Feedback. WWW 2022 (paper
    001): Algorithm 1, Definition 3.4 (its -ε(m) must be +; ε(m) = 0 as in its experiments). The list is a random
    topological order of the certain pairs, made without those that cannot matter for the first k. The ensemble is
    P²NeurRank's (Jia and Wang, SIGIR 2022); the noise of a pair is drawn once, or replaying would average it out.

    **Two steps an event.** The line learns the list exactly as PairRank would, and the network as if it were alone;
    neither looks at the other. (A network that learns what the line leaves ended lower: what lists the two show
    together changes what a line finds in them, and the network had to follow.)

    **The gate.** Before a list is learned its pairs are foretold, by c times the line and shares of 0 to 1 of the
    network; what has surely gained most over the line alone, at its own best c, says g (`_gate`). A network knows
    the queries that it was trained on far better than others, so there is one g for queries among the lists kept and
    one for the rest, which lists of queries seen for the first time and of those never trained on (`validate`) decide.
    At g = 0 lists, propensities and what is learned from them are PairRank's, bit for bit. Beyond 500 candidates the
    network's part of the interval is left out, since it costs time that is quadratic in them.

    Where we differ: the line, replay, all pairs and propensities by default; rate, ridge and prior in units that follow
    from the first list, so that one setting fits any features and network. g and A are of the weights at the moment of
    learning, which with feedback at once are those that were served; gradients of display time would be megabytes in a
    memo. Ridge is shared out over the pairs seen: what is minimised is the paper's sum, a batch at a time. Matrix
    products are float32, as the networks people bring are, and half as dear; weights, A and sums are float64. Bit-exact
    with one BLAS thread. A loss that is not finite or beyond 1,000 is a `Diverged` error, and nothing of that event is
    kept.
    """

    explore: Literal["tangent", "ensemble", "none"] = "tangent"
    covariance: Literal["diagonal", "full"] = "diagonal"
    update: Literal["replay", "refit"] = "replay"
    alpha: float = 0.03
    prior: float = 100.0
    steps: int = 4
    batch: int = 32
    memory: int = 5000
    reinit: bool = False
    nets: int = 5
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("explore", self.explore, ("tangent", "ensemble", "none"))
        require_choice("covariance", self.covariance, ("diagonal", "full"))
        require_choice("update", self.update, ("replay", "refit"))
        require_number("alpha", self.alpha, 0)
        require_number("noise", self.noise, 0)
        require_number("prior", self.prior, 0, above=True)
        for name, least in (("steps", 1), ("batch", 1), ("memory", 1), ("nets", 2)):
            require_whole(name, getattr(self, name), least, MOST)
        require_flag("reinit", self.reinit)
        require(not self.reinit or self.update == "refit", "reinit", self.reinit, 'needs update="refit"')
        fixed = self.explore == "ensemble" and networks.is_fixed(self.net)
        require(not fixed, "net", type(self.net).__name__, 'has one start; explore="ensemble" needs a function or name')
        self.spread_: Array = np.zeros((0, 0))  # diagonal of A (1, p), or A⁻¹ (p, p)
        self.seen_: Array = np.zeros(1)  # pairs, by what they count
        self._set_lists(Lists.empty(self._noisy()))

    @property
    def grows(self) -> str:
        """Why its state grows with the events seen."""
        return "keeps every list: the paper's refit" if self.update == "refit" else "until `memory` lists are kept"

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """The first k of a random order that respects every certain pair."""
        k, rng = resolve_k(candidates, k), as_rng(rng)
        known, n = self._known(candidates), candidates.n
        mean = known.scores.mean(0)
        if self.explore == "none":
            order = top_k(mean, rng.random(n), k)
            chance = epsilon_greedy_log_probability(mean, order, 0.0)
            shares: Callable[[], Array] = partial(np.zeros, (k, k))
        elif known.doubt is not None and self.explore == "tangent":
            order, chance, shares = known.doubt.draw(k, rng, False)
        elif known.alike():  # nobody is above anybody, as at the start
            order = _confidence.anyone(n, rng.random(k))
            chance = epsilon_greedy_log_probability(mean, order, 1.0)
            shares = partial(certainty.block_swap_shares, np.array([n]), k)
        else:
            running, relation = self._relation(known, k)
            picked = certainty.random_topological(relation, rng.random(k), k)
            order = running[picked]
            chance = certainty.topological_log_probability(relation, picked)
            shares = partial(certainty.topological_swap_shares, relation, picked)
        return make_impression(candidates, order, notes(mean, order, self.debias, shares), chance)

    def log_propensity(self, candidates: Candidates, order: Array) -> float:
        """The product over positions of 1 / (documents free to be picked)."""
        known = self._known(candidates)
        if self.explore == "none":
            return float(epsilon_greedy_log_probability(known.scores.mean(0), order, 0.0))
        if known.doubt is not None and self.explore == "tangent":
            return known.doubt.log_chance(order, False)
        if known.alike():
            return float(epsilon_greedy_log_probability(known.scores.mean(0), order, 1.0))
        running, relation = self._relation(known, len(order))
        if not np.isin(order, running).all():
            return -np.inf
        return float(certainty.topological_log_probability(relation, np.searchsorted(running, order)))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; it was not drawn, so its pairs count as those in a fixed order."""
        order, scores = checked_order(candidates, order), self._scores(candidates).mean(0)
        return told(candidates, scores, order, self.debias, self.examine_next)

    def certain(self, candidates: Candidates, positions: Array) -> Array:
        """(k, k) which of the documents at these positions is certainly better than which."""
        running, relation = self._relation(self._known(candidates, positions), len(positions))
        whole = np.zeros((len(positions), len(positions)), np.bool_)
        whole[np.ix_(running, running)] = relation
        return whole

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Turn the clicks into pairs, let the line learn them, and train on them and on lists from before."""
        clicks, seen = checked_values(self, impression, feedback), seen_of(impression, feedback)
        line = copy.copy(self._line)  # nothing is kept of an event that goes wrong
        if line is not None:
            line.learn(impression, feedback, rng)
        pairs = preferences.click_pairs(
            clicks, self.examine_next, seen, PAIR_RULES[self.pairs], rng.random(clicks.size)
        )
        if len(pairs) == 0:
            return
        rows, counts = self._rows(impression), pair_weights(impression, clicks, pairs, self.debias)
        pairs, counts = pairs[counts > 0.0], counts[counts > 0.0]
        if len(pairs) == 0:
            return
        evidence, query = self._foretold(impression, clicks, rows, pairs, counts), query_hash(impression.query)
        if self._line is not None and query % self.validate == 0:
            self._line = line
            self._set_evidence(evidence)
            return
        training = Training(self, rows, again=self.reinit)
        spread = self.spread_
        if self.explore == "tangent":
            model = self._forward(rows)[0]
            spread = _confidence.widened(self._spread(rows, training.unit), model, pairs, counts, self.covariance)
        event, size = int(self.events_[0]), preferences.examined_count(clicks, self.examine_next, seen)
        slot, most = (event % self.memory, self.memory) if self.update == "replay" else (event, NO_LIMIT)
        lists = self._lists().with_room(slot, impression.k, rows.shape[1], most)
        before = lists.entry(slot)
        preferred = np.zeros((size, size))
        preferred[pairs[:, 0], pairs[:, 1]] = counts
        targets = 1.0 + self.noise * rng.standard_normal((self._noisy(), size, size))
        lists.put(slot, Entry(rows[:size], np.array(size), clicks[:size], preferred, targets, np.array(query)))
        seen = self.seen_ + counts.sum()
        try:
            for chosen in self._batches(min(event + 1, most), slot, rng):
                batch, offsets = listwise.gathered(lists.rows, lists.sizes, chosen)
                training.step(batch, partial(self._pulls, lists, chosen, offsets), float(seen[0]))
            training.keep(rows[:size], partial(self._pulls, lists, np.array([slot]), np.array([0, size])))
        except BaseException:
            lists.put(slot, before)
            raise
        self._set_lists(lists)
        self._set_evidence(evidence)
        self.seen_, self.spread_, self._line = seen, spread, line

    # -- parts -----------------------------------------------------------------------------------------------------

    def _members(self) -> int:
        return self.nets if self.explore == "ensemble" else 1

    def _remap(self, columns: FeatureMap) -> None:
        level, inputs = self._level(float(self.unit_[0]), columns.before), self._inputs(columns)
        super()._remap(columns)
        self._set_lists(self._lists()._replace(rows=columns.rows(self._lists().rows)))
        if self.covariance == "full":
            self.spread_ = inputs.covariance(self.spread_, 1.0 / level)
        else:  # A = level + what was seen of each weight
            self.spread_ = inputs.weights(self.spread_ - level, power=-2) + level

    def _noisy(self) -> int:
        """How many members learn from labels of their own."""
        return self.nets if self.explore == "ensemble" else 0

    def _known(self, candidates: Candidates, positions: Array | None = None) -> Known:
        """What is known of candidates, or of those at some positions."""
        rows = self._rows(candidates)
        some = rows if positions is None else rows[positions]
        if self._line is None:
            forward = self._forward(some)
            return Known(some, np.stack([member.scores for member in forward]), None, forward)
        if self.weights_.size == 0:
            self._forward(rows)  # a module that is no network for these rows is named now, not when clicks come
        doubt, gate = self._line._doubt(candidates), self.gate(candidates.query)
        if positions is not None:
            doubt = doubt._replace(rows=doubt.rows[positions], scores=doubt.scores[positions])
        if gate == 0.0:
            return Known(some, np.tile(doubt.scores, (self._members(), 1)), doubt, [])
        forward = self._forward(some)
        scores = doubt.scores + gate * np.stack([member.scores for member in forward])
        if self.explore == "tangent":
            spread = self._spread(rows, self._unit(rows))
            wider = _confidence.Tangents(some, self._first, spread, LOGIT * gate * self.alpha, self.covariance)
            doubt = doubt._replace(scores=scores[0], wider=wider)
        return Known(some, scores, doubt, forward)

    def _first(self, rows: Array) -> Forward:
        return self._forward(rows)[0]

    def _scores(self, candidates: Candidates) -> Array:
        return self._known(candidates).scores

    def _relation(self, known: Known, k: int) -> tuple[Array, Array]:
        """Documents that can be among the first k, and the certain relation between them."""
        everyone = np.arange(len(known.rows))
        if known.doubt is None and self.explore == "tangent":
            spread = self._spread(known.rows, self._unit(known.rows))
            return _confidence.relation(spread, known.forward[0], self.alpha, k, self.covariance)
        if known.doubt is None:
            return everyone, certainty.agreed_pairs(known.scores)
        if self.explore == "tangent":
            return everyone, known.doubt.certain()
        sure = [known.doubt._replace(scores=member).certain() for member in known.scores]
        return everyone, np.logical_and.reduce(sure)

    def _spread(self, rows: Array, unit: float) -> Array:
        """A as it is, or as it begins: each of the p weights has 1/p of what `prior` pairs would add."""
        if self.spread_.size:
            return self.spread_
        level = self._level(unit, rows.shape[1])
        return _confidence.begun(self._networks(rows.shape[1])[0], self.covariance, level)

    def _level(self, unit: float, features: int) -> float:
        """λ, with which A begins."""
        return self.prior * unit / self._networks(features)[0].parameters if self.units == "data" else self.prior

    def _batches(self, kept: int, slot: int, rng: np.random.Generator) -> Iterator[Array]:
        """The lists of each step: drawn from those kept, with the newest, or all of them in a random order."""
        for _ in range(self.steps):
            if self.update == "replay":
                chosen = (rng.random(self.batch) * kept).astype(np.int64)
                chosen[0] = slot
                yield chosen
            else:
                order = rng.permutation(kept)
                yield from (order[at : at + self.batch] for at in range(0, kept, self.batch))

    def _pulls(self, lists: Lists, chosen: Array, offsets: Array, member: int, scores: Array) -> tuple[Array, float]:
        """The loss of lists and its slope in their documents' scores."""
        targets = lists.targets[member] if len(lists.targets) else lists.pairs[:0]
        slope, loss, _ = listwise.pair_pulls(
            scores, offsets, chosen, lists.pairs, lists.labels, targets, self._pair_rule()
        )
        return slope, loss

    def _pair_rule(self) -> int:
        """What a pair counts in the loss, beside its propensity."""
        return listwise.EQUAL

    def _check_loaded(self) -> None:
        super()._check_loaded()
        p, longest = self.weights_.shape[1], self.rows_.shape[1]
        if self.sizes_.size and not 0 <= self.sizes_.min() <= self.sizes_.max() <= longest:
            raise InvalidInput(
                f"state 'sizes_' goes from {self.sizes_.min()} to {self.sizes_.max()}, not 0 to {longest}"
            )
        if self.rows_.size and self.rows_.shape[2] != self.features_[0]:
            raise InvalidInput(f"state 'rows_' has {self.rows_.shape[2]} features, not {self.features_[0]}")
        wanted = (0, 0) if p == 0 or self.explore != "tangent" else (p if self.covariance == "full" else 1, p)
        if self.spread_.shape != wanted:
            raise InvalidInput(f"state 'spread_' has shape {self.spread_.shape}; it must be {wanted}")

    def _knows(self, query: int) -> bool:
        return self._lists().knows(query)

    def _lists(self) -> Lists:
        return Lists(self.rows_, self.sizes_, self.labels_, self.pairs_, self.targets_, self.queries_)

    def _set_lists(self, lists: Lists) -> None:
        self.rows_, self.sizes_, self.labels_, self.pairs_, self.targets_, self.queries_ = lists

    def _shapes(self) -> Shapes:
        return {
            **super()._shapes(),
            "spread_": ("s", "q"),
            "seen_": (1,),
            "rows_": ("c", "k", "d"),
            "sizes_": ("c",),
            "labels_": ("c", "k"),
            "pairs_": ("c", "k", "k"),
            "targets_": (self._noisy(), "c", "k", "k"),
            "queries_": ("c",),
        }
