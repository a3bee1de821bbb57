"""Off-policy estimates: the clicks that other rankings would have got, from a log of clicks on the rankings shown.

- By position (`RankMoves`, `by_position`): another order of the shown items, under the position-based model. A click
  moved from rank p to q counts θ_q / θ_p, where θ is how often users examine a rank. Needs no propensities.
- By ranking (`by_ranking`): each ranking counts P_new / P_logged. Right for any user behavior, but needs propensities
  and rankings that the new policy would show.

Errors are a jackknife over groups of impressions or users. With few effective observations, intervals are Bernstein's
(by position) or Hoeffding's (by ranking), with a warning. References: Joachims, Swaminathan, Schnabel, WSDM 2017;
Swaminathan, Joachims, NeurIPS 2015 (self-normalized); Dudík, Langford, Li, ICML 2011 (doubly robust).

>>> from rankloop.evaluation.position_bias import Examination
>>> clicks = np.array([[1, 0], [1, 0], [0, 1], [0, 0]])
>>> swapped = RankMoves.of(clicks, np.array([[1, 0]] * 4))  # the upper item moves down and the lower one up
>>> by_position(swapped, Examination.known(np.array([1.0, 0.5])))["ips"].value
0.75
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import log, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import stdtrit

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Floats, Ints
from rankloop.evaluation.off_policy_sums import (
    FEWEST,
    GROUPS,
    SUMS,
    PolicySums,
    Units,
    UnitSums,
    fold,
    group_count,
    weights_of,
)
from rankloop.evaluation.position_bias import Examination

FEW = 30.0  # effective clicks below which the normal approximation is not used
FEW_LISTS = 100.0  # the same for effective rankings, unless they are half of all
Gain = Literal["clicks", "dcg", "reciprocal"]


class IntervalEstimate(NamedTuple):
    """A mean per impression with its confidence interval."""

    value: float
    low: float
    high: float
    error: float  # standard error
    effective: float  # effective number of clicks (by position) or rankings (by ranking)
    warning: str = ""


class Statistic(NamedTuple):
    """An estimate from all impressions, and without each group of them."""

    value: float
    left_out: Floats  # (G,) without each group
    effective: float
    means: Floats | None = None  # (G,) of a mean: each group's share of it, times G
    least: float = 0.0  # lowest possible share
    largest: float = 0.0  # highest possible share
    warning: str = ""
    units: Units | None = None  # None: groups of equal size
    bounds: tuple[float, float] | None = None  # by ranking: limits of the true value
    off: float = 0.0  # by ranking: possible error because weights do not average 1
    carried: bool = True  # whether there are enough effective observations for Student's interval

    def minus(self, other: Statistic) -> Statistic:
        """Return the difference of two statistics of the same impressions."""
        both = self.means is not None and other.means is not None
        bounds = None
        if self.bounds is not None and other.bounds is not None:
            bounds = self.bounds[0] - other.bounds[1], self.bounds[1] - other.bounds[0]
        return Statistic(
            self.value - other.value,
            self.left_out - other.left_out,
            min(self.effective, other.effective),
            self.means - other.means if both else None,  # type: ignore[operator]
            self.least - other.largest,
            self.largest - other.least,
            self.warning or other.warning,
            self.units,
            bounds,
            self.off + other.off,
            self.carried and other.carried,
        )

    def estimate(self, level: float = 0.95) -> IntervalEstimate:
        """Return it with an interval: Student's, or a finite-sample bound if effective observations are too few."""
        if not 0.0 < level < 1.0:
            raise InvalidParameter(f"level is {level!r}; it is a probability and must lie between 0 and 1")
        G = self.left_out.size
        error, half = self._student(level)
        low, high, warning = -np.inf, np.inf, self.warning
        if not self.carried:
            warning = warning or f"only {self.effective:.1f} effective observations: do not rely on it"
            if self.bounds is not None:
                low, high = self.bounds
                half = max(half, self.off + hoeffding(self.effective, high - low, level))
            elif self.means is not None and G > 1:
                half = max(half, bernstein(self.means, self.largest - self.least, level))
        half = half if np.isfinite(half) else np.inf
        # The true value is bounded; a weighted estimate may be outside and then stays in its own interval.
        low, high = (max(self.value - half, min(low, self.value)), min(self.value + half, max(high, self.value)))
        return IntervalEstimate(self.value, low, high, error, self.effective, warning)

    def _student(self, level: float) -> tuple[float, float]:
        """Return the weighted jackknife's standard error and half of Student's interval."""
        G = self.left_out.size
        if G < 2:
            return np.inf, np.inf
        units = Units.equal(G) if self.units is None else self.units
        keeps = 1.0 - units.share
        spread = self.left_out - (keeps * self.left_out).sum() / (G - 1)
        error = sqrt(float((keeps * spread**2).sum()) / units.bias)
        return error, float(stdtrit(units.df, 0.5 + level / 2)) * error


def bernstein(values: Floats, width: float, level: float) -> float:
    """Return half an empirical Bernstein interval (Maurer and Pontil 2009, theorem 4, two-sided).

    >>> round(bernstein(np.array([0.0, 1.0] * 500), 1.0, 0.95), 4)
    0.0571
    """
    n, logs = values.size, log(4.0 / (1.0 - level))
    return sqrt(2.0 * float(values.var(ddof=1)) * logs / n) + 7.0 * width * logs / (3.0 * (n - 1))


def hoeffding(effective: float, width: float, level: float) -> float:
    """Return half a Hoeffding interval (1963, theorem 2, two-sided) of a weighted mean, by its effective number.

    >>> round(hoeffding(1.0, 1.0, 0.95), 3), round(hoeffding(100.0, 1.0, 0.95), 3)
    (1.358, 0.136)
    """
    return width * sqrt(log(2.0 / (1.0 - level)) / (2.0 * effective)) if effective > 0.0 else np.inf


def gains(kind: Gain, k: int) -> Floats:
    """Return (k,) the value of a click at each rank: 1, 1 / log2(1 + rank) or 1 / rank.

    >>> gains("reciprocal", 3).round(3)
    array([1.   , 0.5  , 0.333])
    """
    if kind not in get_args(Gain):
        raise InvalidParameter(f"gain is {kind!r}; it must be one of {', '.join(get_args(Gain))}")
    rank = np.arange(1.0, k + 1.0)
    found: Floats = {"clicks": np.ones(k), "dcg": 1.0 / np.log2(1.0 + rank), "reciprocal": 1.0 / rank}[kind]
    return found


# -- by position ---------------------------------------------------------------------------------------------------


class RankMoves(NamedTuple):
    """Old and new ranks of the shown items: sums over groups of impressions."""

    old: Ints  # (m,) moves: the old rank, counted from 0
    new: Ints  # (m,) the new rank
    clicked: Floats  # (G, m) clicks on items with this move
    shown: Floats  # (G, m) items with this move
    attraction: Floats | None  # (G, m) sum of their predicted attraction
    lists: Floats  # (G,)
    units: Units
    by_user: bool  # whether units are users

    @classmethod
    def of(
        cls,
        clicks: Floats | Ints,
        ranks: Ints,
        attraction: Floats | None = None,
        groups: int = GROUPS,
        users: Ints | Sequence[Hashable] | None = None,
    ) -> RankMoves:
        """Sum clicks (N, K) by position and the new ranks (N, K) of the items, from 0; below 0 beyond the end.

        `attraction` (N, K) is predicted by a model that has not seen these clicks; `users` (N,) makes users the units.
        """
        clicks, ranks = np.asarray(clicks, np.float64), np.asarray(ranks)
        if clicks.ndim != 2 or clicks.shape != ranks.shape or len(clicks) == 0:
            raise InvalidInput(
                f"clicks have shape {clicks.shape} and ranks {ranks.shape}; give one row of both per impression"
            )
        N, K = clicks.shape
        there = ranks >= 0
        slot = np.broadcast_to(np.arange(K), (N, K))[there]
        moves, move = np.unique(slot * K + ranks[there], return_inverse=True)
        units = Units.of(N, users, min(groups, max(FEWEST, SUMS // moves.size)))
        G = units.share.size
        group = np.broadcast_to(units.group[:, None], (N, K))[there]

        def summed(values: Floats | Ints | None) -> Floats:
            weights = None if values is None else values[there].astype(np.float64)
            total = np.bincount(group * moves.size + move, weights, G * moves.size)
            return total.reshape(G, moves.size).astype(np.float64)

        lists = units.summed(np.ones(N))
        predicted = None if attraction is None else summed(np.asarray(attraction))
        sums = summed(clicks), summed(None), predicted, lists
        return cls(moves // K, moves % K, *sums, units, users is not None)

    @classmethod
    def from_sums(cls, sums: PolicySums, units: UnitSums, groups: int = GROUPS) -> RankMoves:
        """Make moves from sums over a log, in at most so many groups."""
        G = min(group_count(groups, sums.clicked.shape[-1]), len(sums.clicked))
        own, there = units.units(G)
        clicked, shown = (fold(one, G)[there].astype(np.float64) for one in (sums.clicked, sums.shown))
        clicked /= sums.unit
        old, new = np.nonzero(shown.any(axis=0))
        attraction = None if sums.attraction is None else sums.attraction.folded(G).values()[there][:, old, new]
        lists = fold(units.lists, G)[there].astype(np.float64)
        return cls(old, new, clicked[:, old, new], shown[:, old, new], attraction, lists, own, units.by_user)


@np.errstate(invalid="ignore", divide="ignore")  # a mean of no impressions is NaN
def by_position(
    moves: RankMoves, examination: Examination, gain: Gain = "clicks", clip: float = np.inf
) -> dict[str, Statistic]:
    """Estimate the value per impression of another order of the shown items.

    Returns `ips`, `snips` and, with a model, `model` and `dr`. A click is weighted by θ_new / θ_old, at most `clip`.
    Without clipping `ips`, `snips` and `dr` agree. With it, `snips` restores the clipped weight as if items at all
    ranks were alike, and `dr` with the model's predictions; a warning says how much was clipped.
    """
    if not clip > 0.0:
        raise InvalidParameter(f"clip is {clip!r}; it is the largest weight of a click and must be above 0")
    K = int(max(moves.old.max(), moves.new.max())) + 1
    if examination.values.size < K:
        raise InvalidInput(f"examination has {examination.values.size} ranks, but rankings have {K}; give one per rank")
    worth = gains(gain, K)
    G = moves.lists.size
    theta = examination.values[None, :]
    if examination.left_out is not None:
        if len(examination.left_out) != G:
            raise InvalidInput(
                f"examination was estimated without {len(examination.left_out)} groups, but impressions are in {G}"
            )
        theta = np.concatenate([theta, examination.left_out])
    at_new = theta[:, moves.new]
    full = np.where(moves.old == moves.new, 1.0, at_new / theta[:, moves.old])  # 1 even where examination is unknown
    weight = np.minimum(full, clip)
    value = weight * worth[moves.new]

    lists = moves.lists.sum() - np.concatenate([[0.0], moves.lists])
    clicked, shown = _without(moves.clicked), _without(moves.shown)
    counted = np.where(clicked > 0, clicked * value, 0.0)  # unknown weights do not matter without a click
    ips = counted.sum(axis=1) / lists
    share = G / moves.lists.sum()
    effective = _effective(clicked[0], weight[0])
    carried = effective >= FEW
    if moves.by_user:  # clicks of one user are not independent
        by_group = np.where(moves.clicked > 0, moves.clicked * weight[0], 0.0).sum(axis=1)
        effective = min(effective, _effective(np.ones(G), by_group) * moves.units.number / G)
    statistic = Statistic(
        float(ips[0]),
        ips[1:],
        effective,
        np.where(moves.clicked > 0, moves.clicked * value[0], 0.0).sum(axis=1) * share,
        0.0,
        float((moves.shown * value[0]).sum(axis=1).max() * share),
        "" if np.isfinite(ips).all() else "examination is unknown at a rank that clicked items move from or to",
        moves.units,
        carried=carried,
    )
    cut = 1.0 - ips[0] / (np.where(clicked[0] > 0, clicked[0] * full[0] * worth[moves.new], 0.0).sum() / lists[0])
    if cut > 1e-9:
        statistic = statistic._replace(
            warning=f"clipping removed {cut:.1%} of the weight; the interval lacks that bias"
        )
    # Restore the clipped examination of items that come to a rank, in proportion.
    by_rank = np.argsort(moves.new, kind="stable")
    starts = np.unique(moves.new[by_rank], return_index=True)[1]
    left = shown * np.minimum(1.0, clip / full)
    gained, whole, kept = (np.add.reduceat(part[:, by_rank], starts, axis=1) for part in (counted, shown, left))
    snips = np.where(gained > 0, gained * whole / kept, 0.0).sum(axis=1) / lists
    found = {"ips": statistic, "snips": statistic._replace(value=float(snips[0]), left_out=snips[1:], means=None)}
    if moves.attraction is not None:
        # θ is known up to a factor: scale predicted clicks to those of the log.
        attraction = _without(moves.attraction)
        scale = clicked.sum(axis=1) / np.maximum((attraction * theta[:, moves.old]).sum(axis=1), 1e-300)
        predicted = attraction * scale[:, None] * theta[:, moves.old]  # clicks at the old ranks
        model = (predicted * full * worth[moves.new]).sum(axis=1) / lists
        dr = model + ((clicked - predicted) * value).sum(axis=1) / lists
        note = "predicted by a model: its error is not in the interval"
        found["model"] = statistic._replace(value=float(model[0]), left_out=model[1:], means=None, warning=note)
        found["dr"] = statistic._replace(value=float(dr[0]), left_out=dr[1:], means=None)
    return found


def _without(sums: Floats) -> Floats:
    """Return (G + 1, m) the total, and the total without each group."""
    total = sums.sum(axis=0)
    return np.concatenate([total[None], total - sums])


def _effective(counts: Floats, weights: Floats) -> float:
    """Return Kish's effective sample size."""
    counts, weights = counts[counts > 0], weights[counts > 0]
    square = float((counts * weights**2).sum())
    return float((counts * weights).sum()) ** 2 / square if square > 0 else 0.0


# -- by ranking ----------------------------------------------------------------------------------------------------


class RankingSums(NamedTuple):
    """Sums over groups of weighted rankings."""

    lists: Floats  # (G,)
    weight: Floats  # (G,) sums of weights
    reward: Floats  # (G,) sums of weight times reward
    square: float  # total of squared weights
    heaviest: float
    clipped: bool  # whether weights were clipped
    bounds: tuple[float, float]  # limits of rewards
    new: Floats | None  # (G,) sums of predictions for the new rankings
    missed: Floats | None  # (G,) sums of weight times the error of the prediction for the shown ones
    units: Units
    by_user: bool

    @classmethod
    def from_sums(
        cls, sums: PolicySums, units: UnitSums, rewards: tuple[float, float], most: float, clip: float, modeled: bool
    ) -> RankingSums:
        """Make them from sums over a log; `rewards` are the lowest and highest ones."""
        own, there = units.units(GROUPS)
        lists = units.lists[there].astype(np.float64)
        new, missed = (one.values()[there] if modeled else None for one in (sums.new, sums.missed))
        bounds = min(rewards[0], 0.0), max(rewards[1], most)
        totals = sums.weight.values()[there], sums.reward.values()[there], float(sums.square.values()[0])
        clipped = sums.unclipped > clip
        return cls(lists, *totals, sums.heaviest, clipped, bounds, new, missed, own, units.by_user)


def by_ranking(
    rewards: Floats,
    log_weights: Floats,
    predicted_new: Floats | None = None,
    predicted_shown: Floats | None = None,
    clip: float = np.inf,
    groups: int = GROUPS,
    users: Ints | Sequence[Hashable] | None = None,
    most: float | None = None,
) -> dict[str, Statistic]:
    """Estimate the reward per impression of another policy by importance weighting of whole rankings.

    Returns `ips`, `snips` and, with predictions, `model` and `dr`; and `weights`, whose mean is 1 if every ranking of
    the new policy could have been shown.

    Parameters
    ----------
    rewards, log_weights
        (N,) clicks or their gain per impression, and log P_new(ranking) - log P_logged(ranking).
    predicted_new, predicted_shown
        (N,) predictions of a model for the new ranking and the shown one.
    clip, groups
        The largest weight, and the number of groups of the jackknife.
    users
        (N,) users, who then are the units.
    most
        The highest possible reward; the highest that occurred if None.

    Examples
    --------
    >>> found = by_ranking(np.ones(500), np.append(np.full(499, -40.0), -20.0), most=3.0)["ips"].estimate()
    >>> round(found.effective, 3), round(found.low, 3), found.high
    (1.0, 0.0, 3.0)
    """
    rewards, log_weights = np.asarray(rewards, np.float64), np.asarray(log_weights, np.float64)
    if rewards.ndim != 1 or rewards.shape != log_weights.shape or rewards.size == 0:
        raise InvalidInput(
            f"rewards have shape {rewards.shape} and weights {log_weights.shape}; give one of both per impression"
        )
    weights = weights_of(log_weights, clip)
    units = Units.of(rewards.size, users, groups)
    new = missed = None
    if predicted_new is not None and predicted_shown is not None:
        new = units.summed(np.asarray(predicted_new, np.float64))
        missed = units.summed(weights * (rewards - np.asarray(predicted_shown, np.float64)))
    lists, weight, reward = (units.summed(v) for v in (np.ones(rewards.size), weights, weights * rewards))
    bounds = min(float(rewards.min()), 0.0), max(float(rewards.max()), -np.inf if most is None else most)
    square, clipped = float((weights**2).sum()), bool(weights_of(log_weights, np.inf).max() > clip)
    totals = (lists, weight, reward, square, float(weights.max()), clipped, bounds, new, missed, units)
    return by_ranking_sums(RankingSums(*totals, users is not None), clip)


@np.errstate(invalid="ignore", divide="ignore")
def by_ranking_sums(sums: RankingSums, clip: float = np.inf) -> dict[str, Statistic]:
    """Compute the estimates of `by_ranking` from sums."""
    units, G = sums.units, sums.lists.size
    lists, weight, reward = (_without(v[:, None])[:, 0] for v in (sums.lists, sums.weight, sums.reward))
    N = lists[0]
    effective = float(weight[0]) ** 2 / sums.square if sums.square > 0 else 0.0
    carried = effective >= FEW_LISTS or effective >= max(FEW, N / 2)
    if sums.by_user:
        effective = min(effective, _effective(np.ones(G), sums.weight) * units.number / G)
    astray = abs(float(weight[0] / N) - 1.0)
    normalized = float(reward[0] / weight[0]) if weight[0] > 0 else 0.0

    def mean(total: Floats, weighed: float, warning: str) -> Statistic:
        left = _without(total[:, None])[:, 0] / lists
        off = astray * abs(weighed)
        return Statistic(float(left[0]), left[1:], effective, None, 0.0, 0.0, warning, units, sums.bounds, off, carried)

    found = {"weights": mean(sums.weight, 0.0, "")._replace(bounds=(0.0, max(1.0, sums.heaviest)))}
    average = found["weights"].value
    lacking = ""
    if average + found["weights"]._student(0.99)[1] < 1.0 and np.isinf(clip):
        lacking = f"the log lacks rankings that it would show (weights average {average:.2f}, not 1)"
    if sums.clipped:
        lacking = "weights were clipped: the interval does not include that bias"
    found["ips"] = mean(sums.reward, normalized, lacking)
    ratio = np.divide(reward, weight, out=np.full(G + 1, np.nan), where=weight > 0)
    found["snips"] = found["ips"]._replace(value=float(ratio[0]), left_out=ratio[1:], off=0.0)
    if sums.new is not None and sums.missed is not None:
        model = "predicted by a model: its error is not in the interval"
        found["model"] = mean(sums.new, 0.0, model)._replace(effective=float(units.number), carried=units.number >= FEW)
        missed = float(sums.missed.sum()) / max(float(weight[0]), 1e-300)
        found["dr"] = mean(sums.new + sums.missed, missed, lacking)
    return found
