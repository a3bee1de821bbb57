"""Click bandits on one query with items 0 … m-1, written from ALGORITHMS.md sections 3 and 8 and the papers.

Lists, dictionaries, bisection. `display` gets the numbers that decide the coin tosses, `update` the clicks on the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product

Pair = tuple[int, int]


def kl(p: float, q: float) -> float:
    """The divergence of two Bernoulli distributions."""

    def part(a: float, b: float) -> float:
        if a == 0.0:
            return 0.0
        return math.inf if b == 0.0 else a * math.log(a / b)

    return part(p, q) + part(1.0 - p, 1.0 - q)


def kl_upper(rate: float, count: float, budget: float) -> float:
    """The largest q with count · KL(rate, q) ≤ budget, by bisection."""
    low, high = rate, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if count * kl(rate, middle) <= budget:
            low = middle
        else:
            high = middle
    return low if high < 1.0 or count * kl(rate, 1.0) > budget else 1.0


def kl_lower(rate: float, count: float, budget: float) -> float:
    """The smallest."""
    low, high = 0.0, rate
    for _ in range(60):
        middle = (low + high) / 2
        if count * kl(rate, middle) <= budget:
            high = middle
        else:
            low = middle
    return high


class BubbleRank:
    """Paper 002, Algorithm 1, and ALGORITHMS.md section 3: the parity is a coin's, only randomized pairs count, and an
    item from outside that is not decided against takes part in the last pair. `log` is log(1/δ) in round t."""

    def __init__(self, m: int, k: int, log: Callable[[int], float]) -> None:
        self.base, self.k, self.log, self.t = list(range(m)), k, log, 1
        self.s = {(i, j): 0 for i in range(m) for j in range(m)}
        self.n = dict(self.s)
        self.randomized: list[tuple[int, int]] = []  # (upper, lower) of the base list
        self.ever: set[frozenset[int]] = set()

    def decided(self, i: int, j: int) -> bool:
        """Whether i is better than j for sure."""
        return self.s[i, j] > 2 * math.sqrt(self.n[i, j] * self.log(self.t))

    def display(self, coins: Sequence[float]) -> list[int]:
        """`coins`: the parity's, one for each pair, and, with k below m, the draw's."""
        h = 0 if coins[0] < 0.5 else 1
        self.outside = [item for item in self.base[self.k :] if not self.decided(self.base[self.k - 1], item)]
        shown = self.base[: self.k]
        if self.outside:
            self.outside = [self.outside[int(coins[-1] * len(self.outside))]]
        if self.k % 2 == h:  # the last position makes a pair with the one above it, or is the only one
            self.outside = []
        shown += self.outside
        self.randomized, listed = [], list(shown)
        for pair, p in enumerate(range(h, len(listed) - 1, 2)):
            i, j = listed[p], listed[p + 1]
            if not self.decided(i, j):
                self.randomized.append((i, j))
                self.ever.add(frozenset((i, j)))
                if coins[1 + pair] < 0.5:
                    shown[p], shown[p + 1] = j, i
        self.shown = shown
        return shown[: self.k]

    def chance(self, order: Sequence[int]) -> float:
        """How likely a list is, by trying every coin: heads or tails of each, and every draw."""
        tosses, free = 1 + min(self.k + 1, len(self.base)) // 2, len(self.base) - self.k
        total, draws = 0.0, 60  # a multiple of 1 to 6: equally many for each of the items drawn among
        for coins in product((0.25, 0.75), repeat=tosses):
            for draw in range(draws if free else 1):
                if self.display([*coins, (draw + 0.5) / draws]) == list(order):
                    total += 1.0
        return float(total / 2**tosses / (draws if free else 1))

    def update(self, clicks: Sequence[float]) -> None:
        clicked = {item for item, click in zip(self.shown[: self.k], clicks, strict=True) if click}
        for i, j in self.randomized:
            if (i in clicked) != (j in clicked):
                won = 1 if i in clicked else -1
                self.s[i, j] += won
                self.s[j, i] -= won
                self.n[i, j] += 1
                self.n[j, i] += 1
        for p, q in pairwise([*range(self.k), *(self.base.index(item) for item in self.outside)]):
            if self.decided(self.base[q], self.base[p]):
                self.base[p], self.base[q] = self.base[q], self.base[p]
        self.t += 1


class Cascade:
    """CascadeKL-UCB and CascadeUCB1; `rule` is "kl", "published" or "ucb1"."""

    def __init__(self, m: int, k: int, rule: str, last: bool) -> None:
        self.m, self.k, self.rule, self.last, self.t = m, k, rule, last, 1
        self.shows, self.wins = [0] * m, [0] * m

    def index(self, i: int) -> float:
        """The upper confidence bound in round t."""
        if self.shows[i] == 0:
            return math.inf if self.rule == "ucb1" else 1.0
        rate = self.wins[i] / self.shows[i]
        if self.rule == "ucb1":
            return rate + math.sqrt(1.5 * math.log(self.t - 1) / self.shows[i])
        budget = math.log(self.t)
        if self.rule == "kl" and self.t > 1:
            budget = max(0.0, budget + 3 * math.log(math.log(self.t)))
        return kl_upper(rate, self.shows[i], budget)

    def display(self, coins: Sequence[float]) -> list[int]:
        keys = [-self.index(i) for i in range(self.m)]
        unseen = [i for i in range(self.m) if self.shows[i] == 0]
        if self.rule == "published" and unseen:
            keys[unseen[0]] = -math.inf
        self.shown = sorted(range(self.m), key=lambda i: (keys[i], coins[i]))[: self.k]
        return self.shown

    def update(self, clicks: Sequence[float]) -> None:
        positions = [p for p in range(self.k) if clicks[p]]
        end = self.k if not positions else 1 + (positions[-1] if self.last else positions[0])
        for p in range(end):
            self.shows[self.shown[p]] += 1
            self.wins[self.shown[p]] += bool(clicks[p])
        self.t += 1


class TopRank:
    """Lattimore et al. 2018, Algorithm 1."""

    def __init__(self, m: int, k: int, horizon: float) -> None:
        self.m, self.k, self.delta = m, k, 1 / horizon
        self.S = {(i, j): 0 for i in range(m) for j in range(m)}
        self.N = dict(self.S)
        self.worse: set[Pair] = set()  # (i, j): i goes below j

    def blocks(self) -> list[list[int]]:
        left, found = list(range(self.m)), []
        while left:
            free = [i for i in left if not any((i, j) in self.worse for j in left)] or left
            found.append(free)
            left = [i for i in left if i not in free]
        return found

    def display(self, coins: Sequence[float]) -> list[int]:
        self.shown_blocks = self.blocks()
        self.order = [i for block in self.shown_blocks for i in sorted(block, key=lambda i: coins[i])]
        return self.order[: self.k]

    def update(self, clicks: Sequence[float]) -> None:
        clicked = {item: bool(click) for item, click in zip(self.order[: self.k], clicks, strict=True)}
        c = 4 * math.sqrt(2 / math.pi) / math.erf(math.sqrt(2))
        for block in self.shown_blocks:
            for i in block:
                for j in block:
                    u = clicked.get(i, False) - clicked.get(j, False)
                    self.S[i, j] += u
                    self.N[i, j] += abs(u)
        for (i, j), n in self.N.items():
            if n and self.S[i, j] >= math.sqrt(2 * n * math.log(c * math.sqrt(n) / self.delta)):
                self.worse.add((j, i))


class Batch:
    """A batch: positions first … first + length - 1, its items, its stage, and counts since it began."""

    def __init__(self, first: int, length: int, items: list[int]) -> None:
        self.first, self.length, self.items, self.stage = first, length, items, 0
        self.c, self.n = dict.fromkeys(items, 0), dict.fromkeys(items, 0)


class BatchRank:
    """Zoghi et al. 2017, Algorithms 1-3, or the variant of ALGORITHMS.md section 8."""

    def __init__(self, m: int, k: int, horizon: float, merge: bool) -> None:
        self.m, self.k, self.T, self.merge = m, k, horizon, merge
        self.batches = [Batch(0, k, list(range(m)))]

    def display(self, coins: Sequence[Sequence[float]]) -> list[int]:
        shown = []
        for batch in self.batches:
            if self.merge:
                seated = sorted(batch.items, key=lambda i: coins[1][i])[: batch.length]
            else:
                seated = sorted(batch.items, key=lambda i: (batch.n[i], coins[0][i]))[: batch.length]
                seated.sort(key=lambda i: coins[1][i])
            shown += seated
        self.shown = shown
        return shown

    def update(self, clicks: Sequence[float]) -> None:
        clicked = dict(zip(self.shown, clicks, strict=True))
        after = []
        for batch in self.batches:
            least = min(batch.n.values())
            for i in batch.items:
                if i in clicked and (self.merge or batch.n[i] == least):
                    batch.n[i] += 1
                    batch.c[i] += bool(clicked[i])
            after += self.look(batch)
        self.batches = after

    def look(self, batch: Batch) -> list[Batch]:
        log = math.log(self.m * self.T) if self.merge else math.log(self.T)
        if self.merge:
            delta = 0.5 / 2**batch.stage
            if min(batch.n.values()) < log / delta**2:
                return [batch]
            budget = log
        else:
            if min(batch.n.values()) < math.ceil(16 * 4**batch.stage * log):
                return [batch]
            budget = log + 3 * math.log(log)
        U = {i: kl_upper(batch.c[i] / batch.n[i], batch.n[i], budget) for i in batch.items}
        L = {i: kl_lower(batch.c[i] / batch.n[i], batch.n[i], budget) for i in batch.items}
        d = sorted(batch.items, key=lambda i: -L[i])
        dropped = False
        if self.merge and len(d) > batch.length:
            d, dropped = self._kept(d, L, U, batch)
        cuts = [s for s in range(1, min(batch.length, len(d))) if L[d[s - 1]] > max(U[i] for i in d[s:])]
        if not self.merge:
            cuts = cuts[-1:]
        if cuts:
            edges, parts = [0, *cuts, len(d)], []
            for number, (a, b) in enumerate(pairwise(edges)):
                last = number == len(cuts)
                parts.append(Batch(batch.first + a, batch.length - a if last else b - a, sorted(d[a:b])))
            return parts
        if not self.merge:
            if len(d) > batch.length:
                d, _ = self._kept(d, L, U, batch)
            fresh = Batch(batch.first, batch.length, sorted(d))
            fresh.stage = batch.stage + 1
            return [fresh]
        if dropped:
            batch.items = sorted(d)
            batch.n = {i: batch.n[i] for i in d}
            batch.c = {i: batch.c[i] for i in d}
        else:
            batch.stage += 1
        return self.look(batch)

    @staticmethod
    def _kept(d: list[int], L: dict[int, float], U: dict[int, float], batch: Batch) -> tuple[list[int], bool]:
        at_the_cut = L[d[batch.length - 1]]
        kept = [i for i in d if at_the_cut <= U[i]]
        return kept, len(kept) < len(d)


def base_list(base: Sequence[int], candidates: Sequence[int]) -> list[int]:
    """Candidates in the order of `base`; those that are not in it stand where they are."""
    known = [item for item in base if item in candidates]
    return [known.pop(0) if item in base else item for item in candidates]


def admitted(base: Sequence[int], listed: Sequence[int], behind: int = -1) -> list[int]:
    """A base list with the new ones of `listed` put in, each behind the one before it, or on top; the last one behind
    `behind`, if that is anybody."""
    after = list(base)
    for p, item in enumerate(listed):
        if item not in after:
            above = behind if behind >= 0 and p == len(listed) - 1 else listed[p - 1] if p else None
            after.insert(0 if above is None else after.index(above) + 1, item)
    return after
