"""Other learners on the log of a ranker: list by list they first say what they would have shown, then learn.

The log keeps the rows of the items that were shown, not those of all candidates. So a challenger is asked for its order
of *these* items, and every figure is about that: the items that were shown, in another order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop import codec, registry
from rankloop.errors import InvalidInput, InvalidParameter, RankloopError
from rankloop.examination import Examination, harvest, swap_wins
from rankloop.kernels import plackett_luce, ranking
from rankloop.learner import clone
from rankloop.offpolicy.intervals import GROUPS
from rankloop.raw_features import plain_of, standardised
from rankloop.service.offline.replay import Progress, find_ranker, outcomes
from rankloop.service.ranking.rules import heard
from rankloop.service.store import log
from rankloop.service.store.database import Database
from rankloop.streams import Streams
from rankloop.telling import KnowsPropensity
from rankloop.types import Array, Candidates, Feedback, Impression, taken

LOGGED, BASE = "as logged", "base order"
DEEPEST = 50  # ranks below it tell nothing of examination here: swaps so far down are rare
Shows = Literal["rank", "best"]
OnPage = Callable[[Impression, Array], None]  # told of every list and its clicks


class Lists(NamedTuple):
    """N lists as numbers, the shorter ones filled up to K."""

    clicks: Array  # (N, K)
    ranks: dict[str, Array]  # policy -> (N, K) the rank at which it puts each slot's item, -1 beyond the list's end
    log_weights: dict[str, Array]  # policy -> (N,) log P_new(list) - log P_logged(list), NaN where that is not known
    users: Array | None  # (N,) a number for whose list it was, one of its own where that is not known; None: all are


class Challenger:
    """A learner that is tried, and what it did."""

    def __init__(self, spec: str, logged: str, seed: int, raw: bool) -> None:
        name, parameters = registry.parse_learner(spec)
        self.label, self.learner = spec, registry.make(name, **parameters)
        if self.learner.feedback != "clicks":
            raise InvalidParameter(f"{spec} learns from {self.learner.feedback}, but the log has clicks; try another")
        self.own = (
            registry.name_of(self.learner) == logged
        )  # lists of its own kind say how they were drawn, and it learns from them as they are
        if raw and self.learner.contextual:
            self.learner = standardised(self.learner)
        self.streams = Streams(seed)

    def order(self, candidates: Candidates, seq: int, shows: Shows) -> Array:
        """What it would have shown."""
        if shows == "best":
            return self.learner.best(candidates, candidates.n)
        return self.learner.rank(candidates, candidates.n, self.streams.at("rank", seq)).order

    def log_probability(self, candidates: Candidates, shown: Array, own: Array, shows: Shows) -> float:
        """How likely it would have been to show what was `shown`; `own` is what it would have."""
        if shows == "rank" and isinstance(self.learner, KnowsPropensity):
            return self.learner.log_propensity(candidates, shown)
        return 0.0 if np.array_equal(shown, own) else -np.inf  # right on average, where the probability is not known

    def learn(self, candidates: Candidates, shown: Array, impression: Impression, feedback: Feedback, seq: int) -> None:
        """Take in what users did."""
        rng = self.streams.at("learn", seq)
        if self.own:
            try:
                self.learner.learn(impression, feedback, rng)
                return
            except InvalidInput:  # a list without notes, or parameters for which others would have been taken
                pass
        self.learner.learn(self.learner.adopt(candidates, shown), feedback, rng)


class Tries:
    """Gathers what the estimates need, list by list.

    Parameters
    ----------
    challengers
        Learners as the command line names them: `pairrank?alpha=0.1`.
    logged
        The learner whose lists the log has.
    seed
        Of the challengers' random numbers.
    shows
        "rank": what a challenger would have shown, trials and all; "best": what it would have believed best.
    on_page
        Is told of every list.
    raw
        Lists have features as they came: challengers learn their sizes, as the ranker does.
    """

    def __init__(
        self,
        challengers: Sequence[str],
        logged: str,
        seed: int,
        shows: Shows = "rank",
        on_page: OnPage | None = None,
        raw: bool = False,
    ) -> None:
        if len(set(challengers)) < len(challengers):
            raise InvalidParameter(f"{', '.join(challengers)}: one stands there twice; name each once")
        self._may_be_uniform = logged in ("random", "pairrank")
        self.challengers = [Challenger(spec, logged, seed, raw) for spec in challengers]
        self.shows, self.on_page = shows, on_page
        self.wins = np.zeros((GROUPS, DEEPEST, DEEPEST))  # what swaps tell of examination, by group of lists
        self.drawn = self.whole = 0  # lists whose probability is known; those of them that had all candidates
        self._lengths, self._clicks = array("H"), bytearray()
        self._users, self._known = array("q"), dict[str, int]()
        self._fresh = 0  # the number of the next user
        self._ranks = {label: array("h") for label in [BASE, *challengers]}
        self._weights = {label: array("d") for label in [LOGGED, BASE, *challengers]}

    def __len__(self) -> int:
        return len(self._lengths)

    def add(
        self,
        seq: int,
        impression: Impression,
        values: Array,
        learn: bool = True,
        user: str | None = None,
        seen: int | None = None,
    ) -> None:
        """One outcome: estimate first, then let the challengers learn, if the ranker did. Estimates count clicks,
        whatever each was worth; challengers learn from rewards as the ranker does."""
        k = impression.k
        feedback = heard(impression, Feedback("clicks", np.asarray(values, np.float64), seen))
        values = feedback.values
        fresh = self._fresh
        self._users.append(fresh if user is None else self._known.setdefault(user, fresh))
        self._fresh = max(fresh, self._users[-1] + 1)
        clicks = np.zeros(k, np.uint8)
        clicks[: len(values)] = np.asarray(values)[:k] > 0
        slots = np.argsort(impression.order)  # in base order
        shown = np.empty(k, np.int64)  # where each slot's item stands in it
        shown[slots] = np.arange(k)
        candidates = Candidates(impression.query, impression.items[slots], taken(impression.features, slots))
        chance = self._chance(impression, clicks)
        if self.on_page:
            self.on_page(impression, clicks)
        self._lengths.append(k)
        self._clicks += clicks.tobytes()
        self._ranks[BASE].extend(shown.tolist())
        self._weigh(LOGGED, chance, chance)
        self._weigh(BASE, chance, 0.0 if np.array_equal(shown, np.arange(k)) else -np.inf)
        for one in self.challengers:
            try:
                own = one.order(candidates, seq, self.shows)
                rank_of = np.empty(k, np.int64)
                rank_of[own] = np.arange(k)
                self._ranks[one.label].extend(rank_of[shown].tolist())
                told = np.nan if np.isnan(chance) else one.log_probability(candidates, shown, own, self.shows)
                self._weigh(one.label, chance, told)
                if learn:
                    one.learn(candidates, shown, impression, feedback, seq)
            except RankloopError as error:
                raise InvalidInput(f"{one.label} cannot be tried on this log: {error}") from error

    def idle(self) -> list[str]:
        """Challengers that could learn and have learned nothing: those that duel learn from lists of their own only."""
        return [
            one.label
            for one in self.challengers
            if registry.entry_of(registry.name_of(plain_of(one.learner))).learns
            and codec.dumps(one.learner.state()) == codec.dumps(clone(one.learner).state())
        ]

    def lists(self) -> Lists:
        """All that was added, as arrays."""
        lengths = np.array(self._lengths, np.int64)
        if lengths.size == 0:
            raise InvalidInput("the log has no lists with feedback in this range; there is nothing to estimate from")
        there = np.arange(lengths.max()) < lengths[:, None]

        def filled(flat: Array, empty: int) -> Array:
            whole = np.full(there.shape, empty, np.int64)
            whole[there] = flat
            return whole

        logged = np.where(there, np.arange(there.shape[1]), -1)
        ranks = {label: filled(np.array(flat, np.int64), -1) for label, flat in self._ranks.items()}
        weights = {label: np.array(flat) for label, flat in self._weights.items()}
        users = np.array(self._users, np.int64) if self._known else None
        clicks = filled(np.frombuffer(bytes(self._clicks), np.uint8), 0)
        return Lists(clicks, {LOGGED: logged, **ranks}, weights, users)

    def examination(self) -> Examination:
        """How often ranks are looked at, from lists in which chance could have swapped two items."""
        longest = max(self._lengths, default=1)
        found = harvest(self.wins[: min(GROUPS, self._fresh), :longest, :longest])
        return found if longest <= DEEPEST else found.longer(longest)

    def _weigh(self, label: str, logged: float, new: float) -> None:
        self._weights[label].append(new - logged)

    def _chance(self, impression: Impression, clicks: Array) -> float:
        """log P(list) if it was drawn from all candidates there were, NaN if not; on the way, what its swaps tell."""
        memo = impression.memo
        if "log_propensity" not in memo or "candidates" not in memo:
            return float("nan")
        self.drawn += 1
        # Of a list that another ranker drew, the memo tells what ours makes of it, not what chance could have swapped.
        shares = None if "logged" in memo else swap_shares(impression, self._may_be_uniform)
        if shares is not None:
            depth = min(impression.k, DEEPEST)
            group = self._users[-1] % GROUPS  # as `offpolicy.intervals.Units` has it: no user in two groups
            self.wins[group, :depth, :depth] += swap_wins(clicks[:depth], shares[:depth, :depth])
        if memo["candidates"][0] != impression.k:
            return float("nan")  # which items were shown was chance, too, and the challenger only orders them
        self.whole += 1
        return float(memo["log_propensity"][0])


def swap_shares(impression: Impression, may_be_uniform: bool) -> Array | None:
    """(k, k) P(R*) / (P(R) + P(R*)) for every two slots of a drawn list, if the memo tells; None if not.

    PairRank writes it down, BubbleRank which neighbours it tossed a coin for, TopRank the blocks that it shuffled.
    Lists of Plackett-Luce are known by their probability. So are uniformly random ones, if no list of the learner's is
    less likely than those (`may_be_uniform`; ε-greedy's are, and one of them may be as likely by accident).
    """
    memo, k = impression.memo, impression.k
    told = float(memo["log_propensity"][0])
    if "shares" in memo:
        return np.asarray(memo["shares"])
    if "pairs" in memo:
        tossed = 0.5 * (memo["pairs"][: k - 1] > 0)
        return np.diag(tossed, 1) + np.diag(tossed, -1)
    if "blocks" in memo:
        block = memo["blocks"][:k]
        together = (block[:, None] == block) & (block >= 0) & ~np.eye(k, dtype=np.bool_)
        return np.where(together, 0.5, 0.0)
    pairs = np.argwhere(np.triu(np.ones((k, k), np.bool_), 1))
    if "scores" in memo and "rest" in memo:
        rest = float(memo["rest"][0])
        if not np.isclose(plackett_luce.log_probability(memo["scores"], rest), told, rtol=1e-9, atol=1e-9):
            return None
        shares = np.zeros((k, k))
        shares[pairs[:, 0], pairs[:, 1]] = plackett_luce.swap_shares(memo["scores"], rest, pairs)
        return shares + shares.T
    uniform = ranking.epsilon_greedy_log_probability(np.zeros(int(memo["candidates"][0])), np.arange(k), 1.0)
    if may_be_uniform and k > 1 and np.isclose(uniform, told, rtol=1e-9, atol=1e-9):
        return 0.5 * (1.0 - np.eye(k))
    return None


def try_out(
    database: Database,
    name: str,
    challengers: Sequence[str],
    since: int = 0,
    at: int | None = None,
    seed: int | None = None,
    shows: Shows = "rank",
    on_page: OnPage | None = None,
    on_progress: Progress | None = None,
) -> Tries:
    """Try learners on the outcomes since … at-1 of a ranker, as far as they are of its present epoch and in the log."""
    row = find_ranker(database, name)
    kind: Any = registry.learner_class(row.spec.learner).feedback
    if kind != "clicks":
        raise InvalidParameter(
            f"ranker {name!r} takes {kind}; estimates are of clicks, so there is nothing to try here"
        )
    seed, raw = row.spec.seed if seed is None else seed, row.spec.normalisation == "stream"
    tries = Tries(challengers, row.spec.learner, seed, shows, on_page, raw)
    end = database.read(log.heads).get(name, 0)
    end = end if at is None else min(at, end)
    for outcome in outcomes(database, name, since, end):
        if outcome.body is not None and outcome.epoch == row.epoch:
            impression = codec.load_impression(outcome.body, f"the list of outcome {outcome.seq}")
            values = np.array(outcome.values)
            tries.add(outcome.seq, impression, values, outcome.learn, outcome.person, outcome.viewed)
        if on_progress and outcome.seq % 100 == 0:
            on_progress(outcome.seq - since, end - since)
    return tries
