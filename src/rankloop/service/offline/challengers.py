"""Other learners on the log of a ranker: list by list they first say what they would have shown, then learn.

The log keeps the rows of the items that were shown, not those of all candidates. So a challenger is asked for its order
of *these* items, and every figure is about that: the items that were shown, in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.core import codec, registry
from rankloop.core.capabilities import KnowsPropensity
from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopError
from rankloop.core.learner import clone
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized, unwrapped
from rankloop.core.types import Array, Candidates, Feedback, Impression, taken
from rankloop.evaluation.off_policy import Gain
from rankloop.evaluation.off_policy_sums import groups_of, user_codes
from rankloop.service.maintenance.archive.columns import CANDIDATES, LOG_PROPENSITY, Chunk
from rankloop.service.offline.lists import BASE, LOGGED, UNIT, Block, Lists, blocks_in, blocks_of, clicked
from rankloop.service.offline.past import Past, past_of
from rankloop.service.offline.replay import Progress
from rankloop.service.offline.tally import Tally
from rankloop.service.storage.admin import Ranker
from rankloop.service.storage.database import Database

PORTION = 4096  # lists that are put under each other, where they come one by one
Shows = Literal["rank", "best"]
OnPage = Callable[[Impression, Array, int], None]  # told of every list, its clicks and its group


class Terms(NamedTuple):
    """What is asked of a log: which challengers, how they are asked, and what a click is worth."""

    challengers: tuple[str, ...]
    logged: str  # the learner whose lists the log has
    seed: int  # of the challengers' random numbers
    shows: Shows = "rank"  # what a challenger would have shown, trials and all, or what it would have believed best
    raw: bool = False  # lists have features as they came: challengers learn their sizes, as the ranker does
    gain: Gain = "clicks"
    clip: float = np.inf
    first: int = 0  # the outcome to begin with
    scale: float | None = None  # of rewards; None: clicks are what counts

    def tally(self) -> Tally:
        """Nothing yet."""
        return Tally(self.gain, self.clip, self.first, 1 if self.scale is None else UNIT)


class Challenger:
    """A learner that is tried, and what it did: one of the registry, which begins with nothing and learns as it walks
    along, or one that was saved, which stays as it is."""

    def __init__(self, spec: str, terms: Terms) -> None:
        self.label, self.fixed = spec, is_saved(spec)
        if self.fixed:
            self.learner = registry.load(spec)
        else:
            name, parameters = registry.parse_learner(spec)
            self.learner = registry.make(name, **parameters)
        if self.learner.feedback != "clicks":
            raise InvalidParameter(f"{spec} learns from {self.learner.feedback}, but the log has clicks; try another")
        self.own = (
            registry.name_of(self.learner) == terms.logged
        )  # lists of its own kind say how they were drawn, and it learns from them as they are
        if terms.raw and self.learner.contextual and not self.fixed:
            self.learner = standardized(self.learner)
        self.streams = Rng(terms.seed)
        self.ranks: list[Array] = []  # of the lists of a portion: where it puts the item of each slot
        self.told: list[float] = []  # and how likely it would have been to show what was shown

    def walk(self, seq: int, impression: Impression, feedback: Feedback, learn: bool, shows: Shows) -> None:
        """One list: say first, then learn."""
        k, memo = impression.k, impression.memo
        slots = np.argsort(impression.order)  # in base order
        shown = np.empty(k, np.int64)  # where each slot's item stands in it
        shown[slots] = np.arange(k)
        candidates = Candidates(impression.query, impression.items[slots], taken(impression.features, slots))
        try:
            own = self.order(candidates, seq, shows)
            rank_of = np.empty(k, np.int64)
            rank_of[own] = np.arange(k)
            self.ranks.append(rank_of[shown])
            known = LOG_PROPENSITY in memo and CANDIDATES in memo and memo[CANDIDATES][0] == k
            self.told.append(self.log_probability(candidates, shown, own, shows) if known else np.nan)
            if learn and not self.fixed:
                self.learn(candidates, shown, impression, feedback, seq)
        except RankloopError as error:
            raise InvalidInput(f"{self.label} cannot be tried on this log: {error}") from error

    def order(self, candidates: Candidates, seq: int, shows: Shows) -> Array:
        """What it would have shown."""
        if shows == "best":
            return self.learner.best(candidates, candidates.n)
        return self.learner.rank(candidates, candidates.n, self.streams.for_event("rank", seq)).order

    def log_probability(self, candidates: Candidates, shown: Array, own: Array, shows: Shows) -> float:
        """How likely it would have been to show what was `shown`; `own` is what it would have."""
        if shows == "rank" and isinstance(self.learner, KnowsPropensity):
            return self.learner.log_propensity(candidates, shown)
        return 0.0 if np.array_equal(shown, own) else -np.inf  # right on average, where the probability is not known

    def learn(self, candidates: Candidates, shown: Array, impression: Impression, feedback: Feedback, seq: int) -> None:
        """Take in what users did."""
        rng = self.streams.for_event("learn", seq)
        if self.own:
            try:
                self.learner.learn(impression, feedback, rng)
                return
            except InvalidInput:  # a list without notes, or parameters for which others would have been taken
                pass
        self.learner.learn(self.learner.adopt(candidates, shown), feedback, rng)


def is_saved(spec: str) -> bool:
    """Whether a challenger is a file with a saved learner."""
    return Path(spec).is_file()


class Tries:
    """Gathers what the estimates need, list by list or by the thousand.

    Parameters
    ----------
    terms
        What is asked.
    on_page
        Is told of every list.
    keep
        Keep the lists, in memory: estimates that a click model goes into cannot do without.
    """

    def __init__(self, terms: Terms, on_page: OnPage | None = None, keep: bool = False) -> None:
        if len(set(terms.challengers)) < len(terms.challengers):
            raise InvalidParameter(f"{', '.join(terms.challengers)}: one stands there twice; name each once")
        self.terms, self.on_page, self.keep = terms, on_page, keep
        self._may_be_uniform = terms.logged in ("random", "pairrank")
        self.challengers = [Challenger(spec, terms) for spec in terms.challengers]
        self._tally = terms.tally()
        self._kept: list[Lists] = []
        self._waiting: list[tuple[int, Impression, Array, str | None]] = []

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
        feedback, clicks = clicked(impression, values, seen)
        for one in self.challengers:
            one.walk(seq, impression, feedback, learn, self.terms.shows)
        self._waiting.append((seq, impression, clicks, user))
        if len(self._waiting) >= PORTION:
            self.flush()

    def flush(self) -> None:
        """Take in what waits."""
        if not self._waiting:
            return
        seq, impressions, clicks, users = zip(*self._waiting, strict=True)
        self._waiting = []
        group = self._add_portion(np.array(seq), user_codes(users), blocks_of(impressions, clicks))
        if self.on_page:
            for one in zip(impressions, clicks, group.tolist(), strict=True):
                self.on_page(*one)

    def add_chunk(self, chunk: Chunk, epoch: int) -> None:
        """Many at once: those of a ranker's life since its last reset."""
        wanted = chunk.epoch == epoch
        if not wanted.any():
            return
        blocks = list(blocks_in(chunk, wanted, self.terms.scale))
        users = user_codes([who for who, mine in zip(chunk.person, wanted.tolist(), strict=True) if mine])
        if self.challengers or self.on_page:
            rows = zip(chunk.seq.tolist(), chunk.impressions(), chunk.feedback(), chunk.learn.tolist(), chunk.viewed,
                       wanted.tolist(), groups_of(chunk.seq, user_codes(chunk.person)).tolist(),
                       strict=True)  # fmt: skip
            for seq, impression, values, learn, viewed, mine, group in rows:
                if not mine:
                    continue
                feedback, clicks = clicked(impression, values, viewed)
                for one in self.challengers:
                    one.walk(seq, impression, feedback, learn, self.terms.shows)
                if self.on_page:
                    self.on_page(impression, clicks, group)
        self._add_portion(chunk.seq[wanted], users, blocks)

    def _add_portion(self, seq: Array, users: Array, blocks: Sequence[Block]) -> Array:
        """Lists with what challengers have said of them; their groups."""
        n, K, group = len(seq), max(block.k for block in blocks), groups_of(seq, users)
        clicks, chance = np.zeros((n, K), np.uint8), np.full(n, np.nan)
        earned = clicks if self.terms.scale is None else np.zeros((n, K), np.int64)
        logged, base = np.full((n, K), -1), np.full((n, K), -1)
        stays = np.zeros(n, np.bool_)
        for block in blocks:
            rows, k = block.rows, block.k
            clicks[rows, :k], logged[rows, :k], base[rows, :k] = block.clicks, np.arange(k), block.base_ranks()
            earned[rows, :k] = block.earned
            chance[rows] = block.chances()
            stays[rows] = (base[rows, :k] == np.arange(k)).all(axis=1)
            self._tally.add_drawn(block, group[rows], self._may_be_uniform)
        ranks = {LOGGED: logged, BASE: base}
        told = {LOGGED: chance, BASE: np.where(stays, 0.0, -np.inf)}
        for one in self.challengers:
            flat, there = np.concatenate(one.ranks), logged >= 0
            ranks[one.label] = np.full((n, K), -1)
            ranks[one.label][there] = flat
            told[one.label] = np.array(one.told)
            one.ranks, one.told = [], []
        lists = Lists(seq, users, group, clicks, earned, ranks, {label: said - chance for label, said in told.items()})
        self._tally.add_units(lists)
        if self.keep:
            self._kept.append(lists)
        else:
            self._tally.add_policies(lists)
        return group

    def idle(self) -> list[str]:
        """Challengers that could learn and have learned nothing: those that duel learn from lists of their own only.
        What a scaler has learned does not count."""
        plain = [(one.label, unwrapped(one.learner)) for one in self.challengers if not one.fixed]
        return [
            label
            for label, learner in plain
            if registry.entry_of(registry.name_of(learner)).learns
            and codec.dumps(learner.state()) == codec.dumps(clone(learner).state())
        ]

    def lists(self) -> Lists:
        """All that was added and kept, as arrays."""
        self.flush()
        self._tally.check()
        K = self._tally.longest

        def filled(parts: list[Array], empty: int) -> Array:
            return np.concatenate(
                [np.pad(one, [(0, 0), (0, K - one.shape[1])], constant_values=empty) for one in parts]
            )

        kept = self._kept
        return Lists(
            np.concatenate([one.seq for one in kept]),
            np.concatenate([one.users for one in kept]),
            np.concatenate([one.group for one in kept]),
            filled([one.clicks for one in kept], 0),
            filled([one.earned for one in kept], 0),
            {label: filled([one.ranks[label] for one in kept], -1) for label in kept[0].ranks},
            {label: np.concatenate([one.log_weights[label] for one in kept]) for label in kept[0].ranks},
        )

    def tally(self) -> Tally:
        """The sums over all that was added; where lists are kept, without those of policies."""
        self.flush()
        return self._tally


class Walk(NamedTuple):
    """Where to walk along, and with what in mind."""

    past: Past
    row: Ranker
    terms: Terms
    end: int


def planned(
    source: Database | Path,
    name: str,
    challengers: Sequence[str],
    since: int = 0,
    at: int | None = None,
    seed: int | None = None,
    shows: Shows = "rank",
    gain: Gain = "clicks",
    clip: float = np.inf,
    by_reward: bool = False,
) -> Walk:
    """The outcomes since … at-1 of a ranker, as far as they are of its present epoch and in the log."""
    past = past_of(source)
    row = past.ranker(name)
    kind: Any = registry.learner_class(row.spec.learner).feedback
    if kind != "clicks":
        raise InvalidParameter(
            f"ranker {name!r} takes {kind}; estimates are of clicks, so there is nothing to try here"
        )
    seed, raw = row.spec.seed if seed is None else seed, row.spec.normalisation == "stream"
    end = past.look(name, lambda view: view.head())
    end = end if at is None else min(at, end)
    scale = past.look(name, lambda view: view.reward_scale()) if by_reward else None
    if by_reward and scale is None:
        raise InvalidParameter(
            f"ranker {name!r} declares no reward, or its scale is auto and no reward has come; estimate clicks"
        )
    terms = Terms(tuple(challengers), row.spec.learner, seed, shows, raw, gain, clip, since, scale)
    return Walk(past, row, terms, end)


def try_out(
    walk: Walk, on_page: OnPage | None = None, keep: bool = False, on_progress: Progress | None = None
) -> Tries:
    """Try learners on a log, in one process: it is read once, in its order."""
    tries, first = Tries(walk.terms, on_page, keep), walk.terms.first
    for chunk in walk.past.chunks(walk.row.name, first, walk.end):
        tries.add_chunk(chunk, walk.row.epoch)
        if on_progress:
            on_progress(int(chunk.seq[-1]) + 1 - first, walk.end - first)
    return tries
