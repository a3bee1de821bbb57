"""What estimates need of a log, gathered portion by portion, and added up from parts of it: always the same bits."""

from __future__ import annotations

import numpy as np

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array
from rankloop.evaluation import off_policy
from rankloop.evaluation.off_policy import Gain
from rankloop.evaluation.off_policy_sums import GROUPS, ExactSums, PolicySums, UnitSums, group_count
from rankloop.evaluation.position_bias import Examination, examination_from_swaps
from rankloop.service.offline.lists import Block, Lists

DEEPEST = 50  # ranks below it tell nothing of examination here: swaps so far down are rare


class Forecasts:
    """What a click model says of lists, for the doubly robust estimates: of one policy."""

    def __init__(self, attraction: Array, new: Array, shown: Array) -> None:
        self.attraction, self.new, self.shown = attraction, new, shown


class Tally:
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

    def add_drawn(self, block: Block, group: Array, may_be_uniform: bool) -> None:
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

    def add_units(self, lists: Lists) -> None:
        """Lists as such, whatever the policy."""
        self.units.add(lists.users, lists.group)
        self.clicks += int(lists.clicks.sum())
        self.longest = max(self.longest, lists.clicks.shape[1])

    def add_policies(self, lists: Lists, forecasts: dict[str, Forecasts] | None = None) -> None:
        """What each policy makes of lists."""
        worth = off_policy.gains(self.gain, lists.clicks.shape[1])
        rewards = np.zeros(len(lists.seq))
        for slot, value in enumerate(worth.tolist()):  # in this order, however long the longest list
            rewards += lists.earned[:, slot] * (value / self.unit)
        whole: Array | None = None
        for label, ranks in lists.ranks.items():
            sums = self.policies.setdefault(label, PolicySums(self.first, self.unit))
            said = None if forecasts is None else forecasts[label]
            sums.add_moves(lists.seq, lists.group, lists.earned, ranks, None if said is None else said.attraction)
            weights = lists.log_weights[label]
            if whole is None:
                whole = ~np.isnan(weights)
                self._add_whole(lists, rewards, whole)
            if whole.any():
                new, shown = (None, None) if said is None else (said.new[whole], said.shown[whole])
                sums.add_lists(lists.group[whole], rewards[whole], weights[whole], self.clip, new, shown)

    def _add_whole(self, lists: Lists, rewards: Array, whole: Array) -> None:
        if whole.any():
            self.whole_units.add(lists.users[whole], lists.group[whole])
            low, high = self._rewards
            self._rewards = min(low, float(rewards[whole].min())), max(high, float(rewards[whole].max()))

    def merge(self, other: Tally) -> None:
        """All of another part of the log."""
        self.units.merge(other.units)
        self.whole_units.merge(other.whole_units)
        self.clicks, self.drawn = self.clicks + other.clicks, self.drawn + other.drawn
        self.longest = max(self.longest, other.longest)
        self._wins.merge(other._wins)
        low, high = self._rewards
        self._rewards = min(low, other._rewards[0]), max(high, other._rewards[1])
        for label, sums in other.policies.items():
            if label in self.policies:
                self.policies[label].merge(sums)
            else:
                self.policies[label] = sums

    def examination(self) -> Examination:
        """How often ranks are looked at, from lists in which chance could have swapped two items."""
        G = group_count(GROUPS, self.longest)
        _, there = self.units.units(G)
        found = examination_from_swaps(self._wins.folded(G).values()[there][:, : self.longest, : self.longest])
        return found if self.longest <= DEEPEST else found.longer(self.longest)

    def moves(self, label: str, groups: int) -> off_policy.RankMoves:
        """A policy by position."""
        return off_policy.RankMoves.from_sums(self.policies[label], self.units, groups)

    def whole_lists(self, label: str, modelled: bool) -> off_policy.RankingSums:
        """A policy by list."""
        most = float(off_policy.gains(self.gain, self.longest).sum())
        sums = self.policies[label]
        return off_policy.RankingSums.from_sums(sums, self.whole_units, self._rewards, most, self.clip, modelled)

    def check(self) -> None:
        """Refuse a log without lists."""
        if self.lists == 0:
            raise InvalidInput("the log has no lists with feedback in this range; there is nothing to estimate from")
