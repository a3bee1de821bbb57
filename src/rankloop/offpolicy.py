"""Off-policy estimates: how many clicks other lists would have got, from a log of clicks on the lists that were shown.

Two ways, with different wants:

- **by position** (`Moves`, `by_position`): another order of the items that were shown. A click on an item that stood at
  rank p and would stand at rank q counts θ_q / θ_p, θ being how often users look at a rank (*examination*). Right if
  clicks follow the position-based model: P(click) = θ of the rank x attraction of the item. Nothing need be known of
  how the lists were made.
- **by list** (`by_list`): each list counts P_new(list) / P_logged(list). Right whatever users do, but the probability
  of the logged lists must be known, and lists that the other policy would show must come up.

Both come as inverse propensity (`ips`), self-normalised (`snips`) and doubly robust (`dr`, with clicks that a model
predicts), and each with an interval. Every list is one unit: lists are split into groups, an estimate is made without
each group in turn (jackknife), and its spread is the error. That holds for ratios, and for an examination that was
itself estimated from the log (`rankloop.examination`).

>>> from rankloop.examination import known
>>> clicks = np.array([[1, 0], [1, 0], [0, 1], [0, 0]])
>>> swapped = Moves.of(clicks, np.array([[1, 0]] * 4))  # what stood on top goes down, and the other way round
>>> by_position(swapped, known(np.array([1.0, 0.5])))["ips"].value  # two clicks count half, one double: 3 of 4 lists
0.75

References: Joachims, Swaminathan, Schnabel, Unbiased learning-to-rank with biased feedback, WSDM 2017 (by position);
Swaminathan, Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015; Dudík, Langford, Li,
Doubly robust policy evaluation and learning, ICML 2011; Maurer, Pontil, Empirical Bernstein bounds, COLT 2009.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import stdtrit

from rankloop.errors import InvalidInput, InvalidParameter
from rankloop.examination import Examination
from rankloop.types import Array

Gain = Literal["clicks", "dcg", "reciprocal"]
GROUPS = 200  # of lists, for the jackknife: its error is then known to 5 %
FEW = 30.0  # effective clicks or lists below which the normal approximation is not to be trusted
SUMS = 2_000_000  # numbers that the sums over groups may be, so that very long lists make fewer groups …
FEWEST = 20  # … but not below this, as many as there are where examination is fitted again and again


# -- estimates and their intervals ---------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A mean over lists, and where it lies with the probability asked for."""

    value: float
    low: float
    high: float
    error: float  # standard error
    effective: float  # how many equally weighted clicks (by position) or lists (by list) would say as much
    warning: str = ""


class Statistic(NamedTuple):
    """An estimate before its interval: with all lists, and without each group of them."""

    value: float
    left_out: Array  # (G,) without each group
    effective: float
    means: Array | None = None  # (G,) for a mean over lists: each group's share of it, times G
    least: float = 0.0  # no share can be below
    largest: float = 0.0  # or above
    warning: str = ""

    def minus(self, other: Statistic) -> Statistic:
        """The difference, of which the error is known exactly where the two share their lists."""
        both = self.means is not None and other.means is not None
        return Statistic(
            self.value - other.value,
            self.left_out - other.left_out,
            min(self.effective, other.effective),
            self.means - other.means if both else None,  # type: ignore[operator]
            self.least - other.largest,
            self.largest - other.least,
            self.warning or other.warning,
        )

    def estimate(self, level: float = 0.95) -> Estimate:
        """With its interval: Student's, or empirical Bernstein's where too few clicks would carry that."""
        if not 0.0 < level < 1.0:
            raise InvalidParameter(f"level is {level!r}; it is a probability and must lie between 0 and 1")
        G = self.left_out.size
        error = sqrt((G - 1) / G * float(((self.left_out - self.left_out.mean()) ** 2).sum())) if G > 1 else np.inf
        half = float(stdtrit(max(G - 1, 1), 0.5 + level / 2)) * error
        warning = self.warning
        if self.effective < FEW:
            warning = warning or f"only {self.effective:.1f} effective observations: do not rely on it"
            if self.means is not None and G > 1:
                half = max(half, bernstein(self.means, self.largest - self.least, level))
        half = half if np.isfinite(half) else np.inf
        return Estimate(self.value, self.value - half, self.value + half, error, self.effective, warning)


def bernstein(values: Array, width: float, level: float) -> float:
    """Half an interval for the mean of independent values in a range of `width`; holds for any number of them.

    Maurer and Pontil 2009, theorem 4, on both sides.

    >>> round(bernstein(np.array([0.0, 1.0] * 500), 1.0, 0.95), 4)
    0.0571
    """
    n, logs = values.size, log(4.0 / (1.0 - level))
    return sqrt(2.0 * float(values.var(ddof=1)) * logs / n) + 7.0 * width * logs / (3.0 * (n - 1))


def gains(kind: Gain, k: int) -> Array:
    """(k,) what a click at a rank is worth: 1, 1 / log2(1 + rank) or 1 / rank.

    >>> gains("reciprocal", 3).round(3)
    array([1.   , 0.5  , 0.333])
    """
    if kind not in get_args(Gain):
        raise InvalidParameter(f"gain is {kind!r}; it must be one of {', '.join(get_args(Gain))}")
    rank = np.arange(1.0, k + 1.0)
    found: Array = {"clicks": np.ones(k), "dcg": 1.0 / np.log2(1.0 + rank), "reciprocal": 1.0 / rank}[kind]
    return found


# -- by position ---------------------------------------------------------------------------------------------------


class Moves(NamedTuple):
    """Where a policy puts the items that were shown, against where they stood: sums over groups of lists."""

    old: Array  # (m,) the moves there are: from this rank
    new: Array  # (m,) to this one, counted from 0
    clicked: Array  # (G, m) clicks on items that make the move
    shown: Array  # (G, m) items that make it
    attraction: Array | None  # (G, m) what a model says these items attract, summed
    lists: Array  # (G,)

    @classmethod
    def of(cls, clicks: Array, ranks: Array, attraction: Array | None = None, groups: int = GROUPS) -> Moves:
        """From clicks (N, K) by slot, and the rank (N, K), counted from 0, at which the policy puts each slot's item.

        A rank below 0: there is no such slot, the list is shorter. `attraction` (N, K) of the items, as a model
        predicts it without having seen these clicks.
        """
        clicks, ranks = np.asarray(clicks), np.asarray(ranks)
        if clicks.ndim != 2 or clicks.shape != ranks.shape or len(clicks) == 0:
            raise InvalidInput(
                f"clicks have shape {clicks.shape} and ranks {ranks.shape}; give a row a list of both, at least one"
            )
        N, K = clicks.shape
        there = ranks >= 0
        slot = np.broadcast_to(np.arange(K), (N, K))[there]
        moves, move = np.unique(slot * K + ranks[there], return_inverse=True)
        G = min(groups, N, max(FEWEST, SUMS // moves.size))
        group = np.broadcast_to(np.arange(N)[:, None] % G, (N, K))[there]

        def summed(values: Array | None) -> Array:
            weights = None if values is None else values[there].astype(np.float64)
            total = np.bincount(group * moves.size + move, weights, G * moves.size)
            return total.reshape(G, moves.size).astype(np.float64)

        lists = np.bincount(np.arange(N) % G, minlength=G).astype(np.float64)
        predicted = None if attraction is None else summed(np.asarray(attraction))
        return cls(moves // K, moves % K, summed(clicks), summed(None), predicted, lists)


@np.errstate(invalid="ignore", divide="ignore")  # without its only list a mean is not a number
def by_position(
    moves: Moves, examination: Examination, gain: Gain = "clicks", clip: float = np.inf
) -> dict[str, Statistic]:
    """What a policy's lists are worth, in clicks a list: `ips`, `snips` and, with a model's attractions, `model`, `dr`.

    No click counts more than `clip`. Without clipping `snips` and `dr` are `ips` itself, exactly: an item's weight is
    fixed by where it stood, so there is no chance in the weights that could be normalised or corrected. With it,
    `ips` loses what is clipped, `snips` makes up for it as if items at all ranks were alike, and `dr` with what the
    model predicts for the very items. Intervals do not know of what bias is left, so a warning says how much was cut.
    """
    if not clip > 0.0:
        raise InvalidParameter(f"clip is {clip!r}; it is the largest weight of a click and must be above 0")
    K = int(max(moves.old.max(), moves.new.max())) + 1
    if examination.values.size < K:
        raise InvalidInput(f"examination knows {examination.values.size} ranks, but lists have {K}; give one a rank")
    worth = gains(gain, K)
    G = moves.lists.size
    theta = examination.values[None, :]
    if examination.left_out is not None:
        if len(examination.left_out) != G:
            raise InvalidInput(f"examination was estimated without {len(examination.left_out)} groups, lists have {G}")
        theta = np.concatenate([theta, examination.left_out])
    at_new = theta[:, moves.new]
    full = np.where(moves.old == moves.new, 1.0, at_new / theta[:, moves.old])  # 1 even where nothing is known
    weight = np.minimum(full, clip)
    value = weight * worth[moves.new]

    lists = moves.lists.sum() - np.concatenate([[0.0], moves.lists])
    clicked, shown = _without(moves.clicked), _without(moves.shown)
    counted = np.where(clicked > 0, clicked * value, 0.0)  # without a click a weight that is not known does not matter
    ips = counted.sum(axis=1) / lists
    share = G / moves.lists.sum()
    statistic = Statistic(
        float(ips[0]),
        ips[1:],
        _effective(clicked[0], weight[0]),
        np.where(moves.clicked > 0, moves.clicked * value[0], 0.0).sum(axis=1) * share,
        0.0,
        float((moves.shown * value[0]).sum(axis=1).max() * share),
        "" if np.isfinite(ips).all() else "examination is not known at every rank that clicked items move from or to",
    )
    cut = 1.0 - ips[0] / (np.where(clicked[0] > 0, clicked[0] * full[0] * worth[moves.new], 0.0).sum() / lists[0])
    if cut > 1e-9:
        statistic = statistic._replace(warning=f"clipping took {cut:.1%} of the weight: the interval misses that bias")
    # What clipping took from the examination of the items that come to a rank is given back in proportion.
    by_rank = np.argsort(moves.new, kind="stable")
    starts = np.unique(moves.new[by_rank], return_index=True)[1]
    left = shown * np.minimum(1.0, clip / full)
    gained, whole, kept = (np.add.reduceat(part[:, by_rank], starts, axis=1) for part in (counted, shown, left))
    snips = np.where(gained > 0, gained * whole / kept, 0.0).sum(axis=1) / lists
    found = {"ips": statistic, "snips": statistic._replace(value=float(snips[0]), left_out=snips[1:], means=None)}
    if moves.attraction is not None:
        # θ is known up to a factor, attraction is a probability: the model's clicks must fit those of the log.
        attraction = _without(moves.attraction)
        scale = clicked.sum(axis=1) / np.maximum((attraction * theta[:, moves.old]).sum(axis=1), 1e-300)
        predicted = attraction * scale[:, None] * theta[:, moves.old]  # clicks where the items stood
        model = (predicted * full * worth[moves.new]).sum(axis=1) / lists
        dr = model + ((clicked - predicted) * value).sum(axis=1) / lists
        told = "what the model says: its own error is not in the interval"
        found["model"] = statistic._replace(value=float(model[0]), left_out=model[1:], means=None, warning=told)
        found["dr"] = statistic._replace(value=float(dr[0]), left_out=dr[1:], means=None)
    return found


def _without(sums: Array) -> Array:
    """(G + 1, m) the total, and the total without each group."""
    total = sums.sum(axis=0)
    return np.concatenate([total[None], total - sums])


def _effective(counts: Array, weights: Array) -> float:
    """Kish's effective sample size of so many observations of each weight."""
    counts, weights = counts[counts > 0], weights[counts > 0]
    square = float((counts * weights**2).sum())
    return float((counts * weights).sum()) ** 2 / square if square > 0 else 0.0


# -- by list -------------------------------------------------------------------------------------------------------


@np.errstate(invalid="ignore", divide="ignore")
def by_list(
    rewards: Array,
    log_weights: Array,
    predicted_new: Array | None = None,
    predicted_shown: Array | None = None,
    clip: float = np.inf,
    groups: int = GROUPS,
) -> dict[str, Statistic]:
    """The same from whole lists: `ips`, `snips` and, with a model's predictions, `model` and `dr`.

    `rewards` (N,) are clicks (or their gain) a list, `log_weights` (N,) log P_new(list) - log P_logged(list);
    `predicted_new` (N,) what the model says of the list that the new policy shows, `predicted_shown` of the one that
    was shown. `weights` in the answer is their mean, 1 if every list that the new policy shows could come up in the
    log; if it is not, the estimates say nothing of the lists that could not, and a warning says so.
    """
    rewards, weights = np.asarray(rewards, np.float64), np.minimum(np.exp(np.asarray(log_weights)), clip)
    if rewards.ndim != 1 or rewards.shape != weights.shape or rewards.size == 0:
        raise InvalidInput(f"rewards have shape {rewards.shape} and weights {weights.shape}; give one a list of both")
    N = rewards.size
    G = max(1, min(groups, N))
    group = np.arange(N) % G

    def grouped(values: Array) -> Array:
        return np.bincount(group, values, G)

    lists, weight, reward = (_without(grouped(v)[:, None])[:, 0] for v in (np.ones(N), weights, weights * rewards))
    effective = _effective(np.ones(N), weights)

    def mean(values: Array) -> Statistic:
        means = _without(grouped(values)[:, None])[:, 0] / lists
        return Statistic(float(means[0]), means[1:], effective)

    found = {"weights": mean(weights)}
    sure = found["weights"].estimate(0.99)
    lacking = ""
    if sure.high < 1.0 and np.isinf(clip):
        lacking = f"lists that it would show are lacking in the log (weights average {sure.value:.2f}, not 1)"
    if np.exp(np.asarray(log_weights)).max() > clip:
        lacking = "weights were clipped: the interval misses that bias"
    found["ips"] = mean(weights * rewards)._replace(warning=lacking)
    ratio = np.divide(reward, weight, out=np.full(G + 1, np.nan), where=weight > 0)
    found["snips"] = Statistic(float(ratio[0]), ratio[1:], effective, warning=lacking)
    if predicted_new is not None and predicted_shown is not None:
        new, shown = np.asarray(predicted_new, np.float64), np.asarray(predicted_shown, np.float64)
        told = "what the model says: its own error is not in the interval"
        found["model"] = mean(new)._replace(warning=told)
        found["dr"] = mean(new + weights * (rewards - shown))._replace(warning=lacking)
    return found
