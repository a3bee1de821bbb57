"""What can be learned at all from the grades of the top k: ranking as a game of partial monitoring, for few items.

The learner shows a ranking of m items, nature holds a relevance vector, and only the grades of the first k items are
revealed. Two properties of the game decide which regret is possible (Bartók et al., Partial monitoring, 2014): √T if it
is locally observable, T^(2/3) if it is only globally observable, else T. docs/observability.md has the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, permutations, product
from math import log2

import numpy as np

from rankloop.core.errors import InvalidParameter
from rankloop.lab.plots.report import Table

Vector = tuple[Fraction, ...]

LOSSES = ("sumloss", "pairwise", "auc")  # smaller is better
GAINS = ("dcg", "ndcg", "precision", "ap")  # larger is better
MEASURES = (*LOSSES, *GAINS)
BINARY = ("pairwise", "auc", "precision", "ap")  # of relevant or not, nothing between
_MOST = 200_000  # entries of a matrix that is built: the game grows with m! (n+1)^m
_LEAST = 1e-9  # what a linear program calls positive


@dataclass(frozen=True)
class Game:
    """A measure, m items, the grades of the first k revealed, grades 0 to n.

    Rows of its matrices are the learner's rankings, columns are nature's relevance vectors, both as in the paper's
    Tables 1 and 2: a ranking is written as the rank of each item, so "312" puts item 2 first and item 1 last.

    Numbers are fractions, so whether a vector lies in a span is decided exactly. Logarithms are irrational: 1/log2(3)
    and its like stand in as the fraction that the nearest double is. `gap` says how far the worst loss difference is
    from what the signals span: where it is many orders above 1e-16, that rounding has decided nothing.

    Examples
    --------
    >>> game = Game("sumloss", 3)
    >>> [int(value) for value in game.losses[2]], [seen[0] for seen in game.feedback[2]]  # the third rows of the tables
    ([0, 3, 1, 4, 2, 5, 3, 6], [0, 0, 1, 1, 0, 0, 1, 1])
    >>> game.globally_observable, game.locally_observable, game.regret
    (True, False, 'T^(2/3)')

    Chaudhuri and Tewari, Online Learning to Rank with Top-k Feedback, JMLR 2017, Definitions 1 to 5. Cells of two
    rankings touch in a face (they are neighbors) if some distribution over relevance vectors gives weight to each of
    them, makes both best, and every other ranking strictly worse, but for those whose losses lie between the two: a
    linear program, solved in floating point. Rankings with the same losses belong to the neighborhood (Lattimore and
    Szepesvári, Cleaning up the neighborhood, ALT 2019).
    """

    measure: str
    m: int
    k: int = 1
    n: int = 1
    cut: int = 1  # of Precision@cut

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise InvalidParameter(f"measure is {self.measure!r}; it must be one of {', '.join(MEASURES)}")
        for name, least in (("m", 1), ("k", 1), ("n", 1), ("cut", 1)):
            if getattr(self, name) < least:
                raise InvalidParameter(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.k > self.m:
            raise InvalidParameter(f"k is {self.k}; no more than all m = {self.m} grades can be revealed")
        if self.measure in BINARY and self.n > 1:
            raise InvalidParameter(f"n is {self.n}; {self.measure} is about two grades only: n must be 1")
        size = len(self.rankings) * len(self.vectors) if self.m < 9 else _MOST + 1
        if size > _MOST:
            raise InvalidParameter(f"m is {self.m} with {self.n + 1} grades; that is too large a game to write down")

    # -- its matrices ----------------------------------------------------------------------------------------------

    @cached_property
    def rankings(self) -> list[tuple[int, ...]]:
        """The rank of each item, 1 is the top."""
        return list(permutations(range(1, self.m + 1)))

    @cached_property
    def vectors(self) -> list[tuple[int, ...]]:
        """The grade of each item."""
        return list(product(range(self.n + 1), repeat=self.m))

    @cached_property
    def losses(self) -> list[Vector]:
        """What each ranking loses under each vector; gains have a minus before them."""
        sign = -1 if self.measure in GAINS else 1
        return [
            tuple(sign * value_of(self.measure, ranks, r, self.cut) for r in self.vectors) for ranks in self.rankings
        ]

    @cached_property
    def feedback(self) -> list[list[tuple[int, ...]]]:
        """What each ranking reveals of each vector: the grades of its first k items."""
        return [[tuple(r[item] for item in self._shown(ranks)) for r in self.vectors] for ranks in self.rankings]

    def signals(self, ranking: int) -> list[Vector]:
        """The signal matrix: a row for each feedback that the ranking can give, 1 where it does."""
        seen = self.feedback[ranking]
        return [tuple(Fraction(found == word) for found in seen) for word in sorted(set(seen))]

    def _shown(self, ranks: Sequence[int]) -> list[int]:
        return sorted(range(self.m), key=lambda item: ranks[item])[: self.k]

    # -- what follows ----------------------------------------------------------------------------------------------

    @cached_property
    def gap(self) -> float:
        """The largest entry of what no feedback tells of any difference of two losses; 0 exactly if all is told."""
        span = _Span(row for ranking in self._tops() for row in self.signals(ranking))
        return max(span.distance(_minus(loss, self.losses[0])) for loss in set(self.losses))

    @property
    def globally_observable(self) -> bool:
        """Whether the difference of any two rankings' losses can be estimated without bias from some feedback."""
        return self.gap == 0.0

    @cached_property
    def neighbors(self) -> list[tuple[Vector, Vector]]:
        """Pairs of loss vectors whose rankings' cells touch in a face."""
        distinct = list(dict.fromkeys(self.losses))
        floats = np.array(distinct, dtype=np.float64)
        pareto = [a for a in range(len(distinct)) if _best_somewhere(floats, a, a, {a})]
        found = []
        for a, b in combinations(pareto, 2):
            between = {c for c, loss in enumerate(distinct) if _lies_between(loss, distinct[a], distinct[b])}
            if _best_somewhere(floats, a, b, between):
                found.append((distinct[a], distinct[b]))
        return found

    @cached_property
    def locally_observable(self) -> bool:
        """Whether the rankings that are best where two neighbors meet tell the two apart."""
        for a, b in self.neighbors:
            near = [i for i, loss in enumerate(self.losses) if _lies_between(loss, a, b)]
            if _Span(row for i in near for row in self.signals(i)).distance(_minus(a, b)) > 0.0:
                return False
        return True

    @property
    def regret(self) -> str:
        """The rate of the best regret possible after T rounds; what is not locally observable is never looked at."""
        if not self.globally_observable:
            return "T"
        if len(set(self.losses)) == 1:
            return "0"
        return "√T" if self.locally_observable else "T^(2/3)"

    def _tops(self) -> list[int]:
        """One ranking for each set of first k items: the order among them tells nothing more."""
        return list({frozenset(self._shown(ranks)): i for i, ranks in enumerate(self.rankings)}.values())


def value_of(measure: str, ranks: Sequence[int], grades: Sequence[int], cut: int = 1) -> Fraction:
    """The value of a ranking (the rank of each item) for a relevance vector, as section 2.2 of the paper defines it.

    >>> value_of("sumloss", (3, 1, 2), (1, 0, 1)), value_of("ap", (1, 2, 3), (0, 1, 1))
    (Fraction(5, 1), Fraction(7, 12))
    """
    m = len(ranks)
    if measure == "sumloss":
        return Fraction(sum(rank * grade for rank, grade in zip(ranks, grades, strict=True)))
    if measure in ("pairwise", "auc"):
        wrong = sum(ranks[i] < ranks[j] and grades[i] < grades[j] for i in range(m) for j in range(m))
        pairs = sum(grades) * (m - sum(grades)) if measure == "auc" else 1
        return Fraction(wrong, pairs) if pairs else Fraction(0)
    if measure == "precision":
        return Fraction(sum(grade for rank, grade in zip(ranks, grades, strict=True) if rank <= cut))
    if measure == "ap":
        places = sorted(rank for rank, grade in zip(ranks, grades, strict=True) if grade)
        hits = sum((Fraction(hit, rank) for hit, rank in enumerate(places, 1)), Fraction(0))
        return hits / len(places) if places else Fraction(1)
    found = _dcg(ranks, grades)
    if measure == "dcg":
        return found
    ideal = _dcg(range(1, m + 1), sorted(grades, reverse=True))
    return found / ideal if ideal else Fraction(1)


def _dcg(ranks: Sequence[int], grades: Sequence[int]) -> Fraction:
    gains = (Fraction(2**grade - 1) / Fraction(log2(1 + rank)) for rank, grade in zip(ranks, grades, strict=True))
    return sum(gains, Fraction(0))


# -- exact linear algebra --------------------------------------------------------------------------------------------


class _Span:
    """The space spanned by rows of fractions, as a reduced basis."""

    def __init__(self, rows: Iterable[Vector]) -> None:
        self._rows: dict[int, Vector] = {}  # by the place of its first entry, which is 1
        for row in rows:
            rest = self._rest(row)
            first = next((i for i, value in enumerate(rest) if value), None)
            if first is not None:
                self._rows[first] = tuple(value / rest[first] for value in rest)

    def distance(self, vector: Vector) -> float:
        """0 exactly if the vector lies in the space, else the largest entry of what is left of it."""
        return float(max(map(abs, self._rest(vector))))

    def _rest(self, vector: Vector) -> Vector:
        rest = vector
        for first in sorted(self._rows):
            if rest[first]:
                factor = rest[first]
                rest = tuple(v - factor * b for v, b in zip(rest, self._rows[first], strict=True))
        return rest


def _minus(a: Vector, b: Vector) -> Vector:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _lies_between(loss: Vector, a: Vector, b: Vector) -> bool:
    """Whether `loss` is x·a + (1 - x)·b for some x from 0 to 1."""
    away = next((i for i, (p, q) in enumerate(zip(a, b, strict=True)) if p != q), None)
    if away is None:
        return loss == a
    x = (loss[away] - b[away]) / (a[away] - b[away])
    return 0 <= x <= 1 and all(v == x * p + (1 - x) * q for v, p, q in zip(loss, a, b, strict=True))


def _best_somewhere(losses: np.ndarray[tuple[int, int], np.dtype[np.float64]], a: int, b: int, equal: set[int]) -> bool:
    """Whether a distribution that has weight on every column makes rows a and b the two best, all but `equal` worse."""
    from scipy.optimize import linprog  # half a second to import, needed only here

    columns = losses.shape[1]
    others = [c for c in range(len(losses)) if c not in equal]
    # variables: the distribution p, then the slack t to be made as large as it can be
    worse = np.hstack([losses[a] - losses[others], np.ones((len(others), 1))])
    spread = np.hstack([-np.eye(columns), np.ones((columns, 1))])
    same = np.vstack([np.append(np.ones(columns), 0.0), np.append(losses[a] - losses[b], 0.0)])
    found = linprog(
        np.append(np.zeros(columns), -1.0),
        A_ub=np.vstack([worse, spread]),
        b_ub=np.zeros(len(others) + columns),
        A_eq=same,
        b_eq=[1.0, 0.0],
        bounds=[(0, 1)] * columns + [(None, 1)],
    )
    return bool(found.status == 0 and -found.fun > _LEAST)


# -- as tables -------------------------------------------------------------------------------------------------------

# the games, and what the paper says of them
GAMES: tuple[tuple[Game, str], ...] = (
    (Game("sumloss", 3), "T^(2/3): Theorems 1 and 4"),
    (Game("sumloss", 4), "T^(2/3) at most: Theorem 1"),
    (Game("pairwise", 3), "T^(2/3): same regret as SumLoss, equation 2"),
    (Game("dcg", 3), "T^(2/3): section 2.7, appendix A"),
    (Game("dcg", 3, n=2), "T^(2/3): section 2.7"),
    (Game("precision", 3, cut=2), "T^(2/3) at most; local observability left open"),
    (Game("precision", 4, cut=2), "T^(2/3) at most; local observability left open"),
    (Game("ndcg", 3), "T: Lemma 12, Theorem 13"),
    (Game("ap", 3), "T: Lemma 12, Theorem 13"),
    (Game("auc", 3), "globally observable: appendix A"),
    (Game("auc", 4), "T: Lemma 12, Theorem 13"),
    (Game("sumloss", 3, k=2), "open question, section 5"),
    (Game("sumloss", 4, k=2), "open question, section 5"),
    (Game("ndcg", 3, k=2), "open question, section 5"),
    (Game("ndcg", 4, k=2), "open question, section 5"),
    (Game("ndcg", 4, k=3), "open question, section 5"),
    (Game("ap", 3, k=2), "open question, section 5"),
    (Game("ap", 4, k=2), "open question, section 5"),
    (Game("ap", 4, k=3), "open question, section 5"),
    (Game("auc", 4, k=2), "open question, section 5"),
    (Game("auc", 4, k=3), "open question, section 5"),
)


def tables() -> list[Table]:
    """Tables 1 and 2 of the paper, and the games."""
    game = Game("sumloss", 3)
    columns = ("ranks of items 1 2 3", *("".join(map(str, grades)) for grades in game.vectors))
    losses = [[str(value) for value in row] for row in game.losses]
    seen = [[str(grades[0]) for grades in row] for row in game.feedback]
    return [
        Table("Table 1: what each ranking loses under each relevance vector (SumLoss)", columns, _rows(game, losses)),
        Table("Table 2: what it reveals, the grade of its first item", columns, _rows(game, seen)),
        learnable(),
    ]


def learnable() -> Table:
    """Each game: whether losses can be told from feedback, everywhere and near the best, and the regret that allows."""
    rows = []
    for game, said in GAMES:
        measure = f"precision@{game.cut}" if game.measure == "precision" else game.measure
        locally = _yes(game.locally_observable) if game.globally_observable else ""
        rows.append(
            (
                measure,
                str(game.m),
                str(game.k),
                str(game.n + 1),
                _yes(game.globally_observable),
                locally,
                game.regret,
                said,
            )
        )
    caption = "What can be learned from the grades of the first k of m items: computed, beside what the paper says"
    columns = ("measure", "m", "k", "grades", "global", "local", "best regret", "the paper")
    return Table(caption, columns, rows, words=len(columns))


def _rows(game: Game, cells: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [("".join(map(str, ranks)), *row) for ranks, row in zip(game.rankings, cells, strict=True)]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
