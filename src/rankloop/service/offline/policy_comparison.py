"""Other learners on the log of a ranker: for each impression they rank its items, then learn from its feedback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.core import codec, registry
from rankloop.core.capabilities import Propensity
from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopError
from rankloop.core.learner import clone
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized, unwrapped
from rankloop.core.types import Array, Candidates, Feedback, Impression, taken
from rankloop.evaluation import off_policy
from rankloop.evaluation.off_policy import Gain
from rankloop.evaluation.off_policy_sums import (
    GROUPS,
    ExactSums,
    PolicySums,
    UnitSums,
    group_count,
    groups_of,
    user_codes,
)
from rankloop.evaluation.position_bias import Examination, examination_from_swaps
from rankloop.kernels import plackett_luce, ranking
from rankloop.service.maintenance.archive.columns import CANDIDATES, LOG_PROPENSITY, Chunk
from rankloop.service.offline.log_source import LogSource, open_log_source
from rankloop.service.offline.replay import Progress
from rankloop.service.ranking.placement import SLOTS, feedback_without_pins
from rankloop.service.storage.database import Database
from rankloop.service.storage.rankers import Ranker

LOGGED, BASE = "as logged", "base order"
UNIT = 2**20  # what a reward of the whole scale counts: sums of integers are exact


class ImpressionTable(NamedTuple):
    """N lists as numbers, the shorter ones filled up to K."""

    seq: Array  # (N,) their outcomes
    users: Array  # (N,) a number for whose list it was, 0 where that is not known
    group: Array  # (N,) that it goes into, for the jackknife
    clicks: Array  # (N, K)
    earned: Array  # (N, K) what is estimated: the clicks, or rewards in 1 / UNIT of the scale
    ranks: dict[str, Array]  # policy -> (N, K) the rank at which it puts each slot's item, -1 beyond the list's end
    log_weights: dict[str, Array]  # policy -> (N,) log P_new(list) - log P_logged(list), NaN where that is not known


class ImpressionBlock(NamedTuple):
    """ImpressionTable of one length, with notes of the same names and shapes."""

    rows: Array  # (m,) which lists of a portion
    order: Array  # (m, k)
    clicks: Array  # (m, k)
    earned: Array  # (m, k)
    memo: dict[str, Array]  # (m, …) each

    @property
    def k(self) -> int:
        """How long they are."""
        return int(self.order.shape[1])

    def base_ranks(self) -> Array:
        """(m, k) where the caller's own order has the item of each slot, among those that were shown."""
        found = np.empty(self.order.shape, np.int64)
        places = np.argsort(self.order, axis=1)
        np.put_along_axis(found, places, np.broadcast_to(np.arange(self.k), places.shape), axis=1)
        return found

    @property
    def drawn(self) -> bool:
        """Whether the notes say how likely each list was."""
        return LOG_PROPENSITY in self.memo and CANDIDATES in self.memo

    def chances(self) -> Array:
        """(m,) log P of those that were drawn from all candidates there were, NaN of others: which items were shown
        was chance, too, and a challenger only orders them."""
        if not self.drawn:
            return np.full(len(self.rows), np.nan)
        whole = self.memo[CANDIDATES][:, 0] == self.k
        return np.where(whole, self.memo[LOG_PROPENSITY][:, 0], np.nan)

    def swap_shares(self, may_be_uniform: bool) -> tuple[Array, Array] | None:
        """P(R*) / (P(R) + P(R*)) for every two slots (m, k, k), R* being R with them swapped, and for which rankings
        (m,) it is known; None if for none.

        PairRank stores it, BubbleRank the neighbors that it swapped at random, TopRank the blocks that it shuffled.
        Plackett-Luce rankings are recognized by their propensity. So are uniformly random ones, unless the learner may
        show less likely ones (`may_be_uniform`; ε-greedy does, and one may have that propensity by accident).
        """
        memo, k, m = self.memo, self.k, len(self.rows)
        told, all_of_them = memo[LOG_PROPENSITY][:, 0], np.ones(m, np.bool_)
        if "shares" in memo:
            return all_of_them, memo["shares"]
        if "pairs" in memo:
            shares, at = np.zeros((m, k, k)), np.arange(k - 1)
            shares[:, at, at + 1] = shares[:, at + 1, at] = 0.5 * (memo["pairs"][:, : k - 1] > 0)
            return all_of_them, shares
        if "blocks" in memo:
            block = memo["blocks"][:, :k]
            together = (block[:, :, None] == block[:, None, :]) & (block[:, :, None] >= 0) & ~np.eye(k, dtype=np.bool_)
            return all_of_them, np.where(together, 0.5, 0.0)
        if "scores" in memo and "rest" in memo:
            scores, rest = np.ascontiguousarray(memo["scores"]), np.ascontiguousarray(memo["rest"][:, 0])
            found, shares = plackett_luce.swap_tables(scores, rest)
            return np.isclose(found, told, rtol=1e-9, atol=1e-9), shares
        if not may_be_uniform or k < 2:
            return None
        uniform = np.empty(m)
        for n in np.unique(memo[CANDIDATES][:, 0]).tolist():
            chance = ranking.epsilon_greedy_log_probability(np.zeros(int(n)), np.arange(k), 1.0)
            uniform[memo[CANDIDATES][:, 0] == n] = chance
        shares = np.broadcast_to(0.5 * (1.0 - np.eye(k)), (m, k, k))
        return np.isclose(uniform, told, rtol=1e-9, atol=1e-9), shares


def swap_shares(impression: Impression, may_be_uniform: bool) -> Array | None:
    """(k, k) of one drawn list, if its memo tells; None if not."""
    (block,) = blocks_of([impression], [np.zeros(impression.k)])
    found = block.swap_shares(may_be_uniform)
    return found[1][0] if found is not None and found[0][0] else None


def clicked(impression: Impression, values: Array, seen: int | None = None) -> tuple[Feedback, Array]:
    """What users did with what the learner put there, and (k,) which slots they clicked, whatever it was worth."""
    feedback = feedback_without_pins(impression, Feedback("clicks", np.asarray(values, np.float64), seen))
    clicks = np.zeros(impression.k, np.uint8)
    clicks[: len(feedback.values)] = feedback.values[: impression.k] > 0
    return feedback, clicks


def blocks_of(impressions: Sequence[Impression], clicks: Sequence[Array]) -> list[ImpressionBlock]:
    """ImpressionTable one by one, put under each other."""
    by_kind: dict[object, list[int]] = defaultdict(list)
    for row, one in enumerate(impressions):
        by_kind[one.k, tuple((name, value.shape) for name, value in one.memo.items())].append(row)
    return [
        ImpressionBlock(
            np.array(rows),
            np.stack([impressions[row].order for row in rows]),
            np.stack([clicks[row] for row in rows]),
            np.stack([clicks[row] for row in rows]),
            {name: np.stack([impressions[row].memo[name] for row in rows]) for name in impressions[rows[0]].memo},
        )
        for rows in by_kind.values()
    ]


def blocks_in(chunk: Chunk, wanted: Array, scale: float | None = None) -> Iterator[ImpressionBlock]:
    """The lists of a chunk that are `wanted` (n,); rows are counted among these. With a `scale`, rewards are what was
    earned, else clicks."""
    place = np.cumsum(wanted) - 1
    lengths = np.diff(chunk.ends)
    for one in chunk.alike:
        some = np.flatnonzero(wanted[one.rows])
        if some.size == 0:
            continue
        rows, memo = one.rows[some], {name: value[some] for name, value in one.memo.items()}
        order = one.arrays["order"][some]
        clicks = np.zeros(order.shape, np.uint8)
        if SLOTS in memo:  # pinned items stand between: rare, and worked out one by one
            for j, row in enumerate(rows.tolist()):
                bare = Impression("", order[j], order[j], None, {SLOTS: memo[SLOTS][j]})
                clicks[j] = clicked(bare, chunk.values[chunk.ends[row] : chunk.ends[row + 1]])[1]
        else:
            for length in np.unique(lengths[rows]).tolist():
                as_long = np.flatnonzero(lengths[rows] == length)
                upto = min(length, order.shape[1])
                at = chunk.ends[rows[as_long]][:, None] + np.arange(upto)
                clicks[as_long[:, None], np.arange(upto)] = chunk.values[at] > 0
        earned = clicks if scale is None else _rewards(chunk, rows, order.shape[1], memo, scale)
        yield ImpressionBlock(place[rows], order, clicks, earned, memo)


def _rewards(chunk: Chunk, rows: Array, k: int, memo: dict[str, Array], scale: float) -> Array:
    """(m, k) the rewards of some lists, cut at the scale."""
    found = np.zeros((len(rows), k), np.int64)
    for j, row in enumerate(rows.tolist()):
        if (given := chunk.rewards[row]) is not None:
            values = np.array(given)
            values = values[memo[SLOTS][j]] if SLOTS in memo else values[:k]  # without those of pinned items
            found[j, : len(values)] = np.rint(np.minimum(values / scale, 1.0) * UNIT)
    return found


DEEPEST = 50  # ranks below it tell nothing of examination here: swaps so far down are rare


class ComparisonSums:
    """Sums over lists.

    `gain` and `clip` are of the estimates by list, which are weighed before they are summed; `first` is the outcome
    that curves begin with; `unit` is what 1 is in the numbers that were earned.
    """

    def __init__(self, gain: Gain = "clicks", clip: float = np.inf, first: int = 0, unit: int = 1) -> None:
        self.gain, self.clip, self.first, self.unit = gain, clip, first, unit
        self.units, self.whole_units = UnitSums(), UnitSums()
        self.clicks = self.drawn = self.longest = 0
        self.policies: dict[str, PolicySums] = {}
        self._wins = ExactSums((GROUPS, DEEPEST, DEEPEST))
        self._rewards = (np.inf, -np.inf)

    @property
    def lists(self) -> int:
        """How many."""
        return int(self.units.lists.sum())

    @property
    def whole(self) -> int:
        """Those whose probability is known and that had all candidates."""
        return int(self.whole_units.lists.sum())

    @property
    def wins(self) -> Array:
        """(G, K, K) what swaps tell of examination, by group of lists."""
        return self._wins.values()

    def add_drawn(self, block: ImpressionBlock, group: Array, may_be_uniform: bool) -> None:
        """What swaps of lists tell; `group` (m,) are theirs."""
        if not block.drawn:
            return
        self.drawn += len(block.rows)
        # Of a list that another ranker drew, the memo tells what ours makes of it, not what chance could have swapped.
        found = None if "logged" in block.memo else block.swap_shares(may_be_uniform)
        if found is None:
            return
        depth = min(block.k, DEEPEST)
        one, at = np.nonzero((block.clicks[:, :depth] > 0) & found[0][:, None])
        shares = found[1][one, at, :depth]
        cell = (group[one] * DEEPEST + at)[:, None] * DEEPEST + np.arange(depth)
        self._wins.add(cell.reshape(-1), shares.reshape(-1))

    def add_units(self, lists: ImpressionTable) -> None:
        """ImpressionTable as such, whatever the policy."""
        self.units.add(lists.users, lists.group)
        self.clicks += int(lists.clicks.sum())
        self.longest = max(self.longest, lists.clicks.shape[1])

    def add_policies(self, lists: ImpressionTable) -> None:
        """What each policy makes of lists."""
        worth = off_policy.gains(self.gain, lists.clicks.shape[1])
        rewards = np.zeros(len(lists.seq))
        for slot, value in enumerate(worth.tolist()):  # in this order, however long the longest list
            rewards += lists.earned[:, slot] * (value / self.unit)
        whole: Array | None = None
        for label, ranks in lists.ranks.items():
            sums = self.policies.setdefault(label, PolicySums(self.first, self.unit))
            sums.add_moves(lists.seq, lists.group, lists.earned, ranks, None)
            weights = lists.log_weights[label]
            if whole is None:
                whole = ~np.isnan(weights)
                self._add_whole(lists, rewards, whole)
            if whole.any():
                sums.add_lists(lists.group[whole], rewards[whole], weights[whole], self.clip, None, None)

    def _add_whole(self, lists: ImpressionTable, rewards: Array, whole: Array) -> None:
        if whole.any():
            self.whole_units.add(lists.users[whole], lists.group[whole])
            low, high = self._rewards
            self._rewards = min(low, float(rewards[whole].min())), max(high, float(rewards[whole].max()))

    def examination(self) -> Examination:
        """How often ranks are looked at, from lists in which chance could have swapped two items."""
        G = group_count(GROUPS, self.longest)
        _, there = self.units.units(G)
        found = examination_from_swaps(self._wins.folded(G).values()[there][:, : self.longest, : self.longest])
        return found if self.longest <= DEEPEST else found.longer(self.longest)

    def moves(self, label: str, groups: int) -> off_policy.RankMoves:
        """A policy by position."""
        return off_policy.RankMoves.from_sums(self.policies[label], self.units, groups)

    def whole_lists(self, label: str) -> off_policy.RankingSums:
        """A policy by list."""
        most = float(off_policy.gains(self.gain, self.longest).sum())
        sums = self.policies[label]
        return off_policy.RankingSums.from_sums(sums, self.whole_units, self._rewards, most, self.clip, False)

    def check(self) -> None:
        """Refuse a log without lists."""
        if self.lists == 0:
            raise InvalidInput("the log has no lists with feedback in this range; there is nothing to estimate from")


PORTION = 4096  # lists that are put under each other, where they come one by one
Shows = Literal["rank", "best"]
OnImpression = Callable[[Impression, Array, int], None]  # an impression, its clicks and its group
OnTable = Callable[[ImpressionTable], None]


class ComparisonSettings(NamedTuple):
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

    def tally(self) -> ComparisonSums:
        """Nothing yet."""
        return ComparisonSums(self.gain, self.clip, self.first, 1 if self.scale is None else UNIT)


class Challenger:
    """A learner that is tried, and what it did: one of the registry, which begins with nothing and learns as it walks
    along, or one that was saved, which stays as it is."""

    def __init__(self, spec: str, settings: ComparisonSettings) -> None:
        self.label, self.fixed = spec, is_saved(spec)
        if self.fixed:
            self.learner = registry.load(spec)
        else:
            name, parameters = registry.parse_learner(spec)
            self.learner = registry.make(name, **parameters)
        if self.learner.feedback != "clicks":
            raise InvalidParameter(f"{spec} learns from {self.learner.feedback}, but the log has clicks; try another")
        self.own = (
            registry.name_of(self.learner) == settings.logged
        )  # lists of its own kind say how they were drawn, and it learns from them as they are
        if settings.raw and self.learner.contextual and not self.fixed:
            self.learner = standardized(self.learner)
        self.streams = Rng(settings.seed)
        self.ranks: list[Array] = []  # of the lists of a portion: where it puts the item of each slot
        self.told: list[float] = []  # and how likely it would have been to show what was shown

    def step(self, seq: int, impression: Impression, feedback: Feedback, learn: bool, shows: Shows) -> None:
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
        if shows == "rank" and isinstance(self.learner, Propensity):
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


class Comparison:
    """Gathers what the estimates need, list by list or by the thousand.

    Parameters
    ----------
    settings
        What is asked.
    on_impression
        Called with every impression.
    on_table
        Called with the table of every portion.
    """

    def __init__(
        self, settings: ComparisonSettings, on_impression: OnImpression | None = None, on_table: OnTable | None = None
    ) -> None:
        if len(set(settings.challengers)) < len(settings.challengers):
            raise InvalidParameter(f"{', '.join(settings.challengers)}: one stands there twice; name each once")
        self.settings, self.on_impression, self.on_table = settings, on_impression, on_table
        self._may_be_uniform = settings.logged in ("random", "pairrank")
        self.challengers = [Challenger(spec, settings) for spec in settings.challengers]
        self._tally = settings.tally()
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
            one.step(seq, impression, feedback, learn, self.settings.shows)
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
        if self.on_impression:
            for one in zip(impressions, clicks, group.tolist(), strict=True):
                self.on_impression(*one)

    def add_chunk(self, chunk: Chunk, epoch: int) -> None:
        """Many at once: those of a ranker's life since its last reset."""
        wanted = chunk.epoch == epoch
        if not wanted.any():
            return
        blocks = list(blocks_in(chunk, wanted, self.settings.scale))
        users = user_codes([who for who, mine in zip(chunk.person, wanted.tolist(), strict=True) if mine])
        if self.challengers or self.on_impression:
            rows = zip(chunk.seq.tolist(), chunk.impressions(), chunk.feedback(), chunk.learn.tolist(), chunk.viewed,
                       wanted.tolist(), groups_of(chunk.seq, user_codes(chunk.person)).tolist(),
                       strict=True)  # fmt: skip
            for seq, impression, values, learn, viewed, mine, group in rows:
                if not mine:
                    continue
                feedback, clicks = clicked(impression, values, viewed)
                for one in self.challengers:
                    one.step(seq, impression, feedback, learn, self.settings.shows)
                if self.on_impression:
                    self.on_impression(impression, clicks, group)
        self._add_portion(chunk.seq[wanted], users, blocks)

    def _add_portion(self, seq: Array, users: Array, blocks: Sequence[ImpressionBlock]) -> Array:
        """ImpressionTable with what challengers have said of them; their groups."""
        n, K, group = len(seq), max(block.k for block in blocks), groups_of(seq, users)
        clicks, chance = np.zeros((n, K), np.uint8), np.full(n, np.nan)
        earned = clicks if self.settings.scale is None else np.zeros((n, K), np.int64)
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
        lists = ImpressionTable(
            seq, users, group, clicks, earned, ranks, {label: said - chance for label, said in told.items()}
        )
        self._tally.add_units(lists)
        self._tally.add_policies(lists)
        if self.on_table:
            self.on_table(lists)
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

    def tally(self) -> ComparisonSums:
        """The sums over all that was added."""
        self.flush()
        return self._tally


class ComparisonPlan(NamedTuple):
    """Where to plan along, and with what in mind."""

    past: LogSource
    row: Ranker
    settings: ComparisonSettings
    end: int


def plan_comparison(
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
) -> ComparisonPlan:
    """The outcomes since … at-1 of a ranker, as far as they are of its present epoch and in the log."""
    past = open_log_source(source)
    row = past.ranker(name)
    kind: Any = registry.learner_class(row.spec.learner).feedback
    if kind != "clicks":
        raise InvalidParameter(
            f"ranker {name!r} takes {kind}; estimates are of clicks, so there is nothing to try here"
        )
    seed, raw = row.spec.seed if seed is None else seed, row.spec.normalization == "stream"
    end = past.look(name, lambda view: view.head())
    end = end if at is None else min(at, end)
    scale = past.look(name, lambda view: view.reward_scale()) if by_reward else None
    if by_reward and scale is None:
        raise InvalidParameter(
            f"ranker {name!r} declares no reward, or its scale is auto and no reward has come; estimate clicks"
        )
    settings = ComparisonSettings(tuple(challengers), row.spec.learner, seed, shows, raw, gain, clip, since, scale)
    return ComparisonPlan(past, row, settings, end)


def run_comparison(
    plan: ComparisonPlan,
    on_impression: OnImpression | None = None,
    on_table: OnTable | None = None,
    on_progress: Progress | None = None,
) -> Comparison:
    """Try learners on a log, in one process: it is read once, in its order."""
    comparison, first = Comparison(plan.settings, on_impression, on_table), plan.settings.first
    for chunk in plan.past.chunks(plan.row.name, first, plan.end):
        comparison.add_chunk(chunk, plan.row.epoch)
        if on_progress:
            on_progress(int(chunk.seq[-1]) + 1 - first, plan.end - first)
    return comparison
