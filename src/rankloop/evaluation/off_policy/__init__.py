"""Off-policy estimates: how many clicks other lists would have got, from a log of clicks on the lists that were shown.

Two ways, with different wants:

- **by position** (`Moves`, `by_position`): another order of the items that were shown. A click on an item that stood at
  rank p and would stand at rank q counts θ_q / θ_p, θ being how often users look at a rank (*examination*). Right if
  clicks follow the position-based model: P(click) = θ of the rank x attraction of the item. Nothing need be known of
  how the lists were made.
- **by list** (`by_list`): each list counts P_new(list) / P_logged(list). Right whatever users do, but the probability
  of the logged lists must be known, and lists that the other policy would show must come up.

Both come as inverse propensity (`ips`), self-normalised (`snips`) and doubly robust (`dr`, with clicks that a model
predicts), and each with an interval. Every list is one unit, or every user (`users`: lists of one user go together, so
they are never split). Units are put into groups, an estimate is made without each group in turn (jackknife), and its
spread is the error. That holds for ratios, and for an examination that was itself estimated from the log
(`rankloop.evaluation.position_bias`). Long logs are summed up first (`rankloop.evaluation.off_policy.sums`), in
parts if need be, with the same
bits. Where few clicks or lists carry all the weight, spread says nothing: intervals are then
Bernstein's (by position) or Hoeffding's (by list), which hold for any number, and a warning says so.

>>> from rankloop.evaluation.position_bias import Examination
>>> clicks = np.array([[1, 0], [1, 0], [0, 1], [0, 0]])
>>> swapped = Moves.of(clicks, np.array([[1, 0]] * 4))  # what stood on top goes down, and the other way round
>>> by_position(swapped, Examination.known(np.array([1.0, 0.5])))["ips"].value
0.75

References: Joachims, Swaminathan, Schnabel, Unbiased learning-to-rank with biased feedback, WSDM 2017 (by position);
Swaminathan, Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015; Dudík, Langford, Li,
Doubly robust policy evaluation and learning, ICML 2011; Maurer, Pontil, Empirical Bernstein bounds, COLT 2009;
Hoeffding, Probability inequalities for sums of bounded random variables, JASA 1963, theorem 2 (for a weighted mean the
number of values in it is Kish's effective one).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array
from rankloop.evaluation.off_policy.exact import fold
from rankloop.evaluation.off_policy.intervals import FEW, FEW_LISTS, FEWEST, GROUPS, SUMS, Statistic, Units
from rankloop.evaluation.off_policy.sums import PolicySums, UnitSums, divided, weights_of
from rankloop.evaluation.position_bias import Examination

Gain = Literal["clicks", "dcg", "reciprocal"]


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
    units: Units
    by_user: bool  # whether units are users, of several lists each

    @classmethod
    def of(
        cls,
        clicks: Array,
        ranks: Array,
        attraction: Array | None = None,
        groups: int = GROUPS,
        users: Array | Sequence[Hashable] | None = None,
    ) -> Moves:
        """From clicks (N, K) by slot, and the rank (N, K), counted from 0, at which the policy puts each slot's item.

        A rank below 0: there is no such slot, the list is shorter. `attraction` (N, K) of the items, as a model
        predicts it without having seen these clicks. `users` (N,) whose lists they are; None: each another's.
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
        units = Units.of(N, users, min(groups, max(FEWEST, SUMS // moves.size)))
        G = units.share.size
        group = np.broadcast_to(units.group[:, None], (N, K))[there]

        def summed(values: Array | None) -> Array:
            weights = None if values is None else values[there].astype(np.float64)
            total = np.bincount(group * moves.size + move, weights, G * moves.size)
            return total.reshape(G, moves.size).astype(np.float64)

        lists = units.summed(np.ones(N))
        predicted = None if attraction is None else summed(np.asarray(attraction))
        sums = summed(clicks), summed(None), predicted, lists
        return cls(moves // K, moves % K, *sums, units, users is not None)

    @classmethod
    def from_sums(cls, sums: PolicySums, units: UnitSums, groups: int = GROUPS) -> Moves:
        """From what was summed up over a log (`offpolicy.sums`), in at most so many groups."""
        G = min(divided(groups, sums.clicked.shape[-1]), len(sums.clicked))
        own, there = units.units(G)
        clicked, shown = (fold(one, G)[there].astype(np.float64) for one in (sums.clicked, sums.shown))
        clicked /= sums.unit
        old, new = np.nonzero(shown.any(axis=0))
        attraction = None if sums.attraction is None else sums.attraction.folded(G).values()[there][:, old, new]
        lists = fold(units.lists, G)[there].astype(np.float64)
        return cls(old, new, clicked[:, old, new], shown[:, old, new], attraction, lists, own, units.by_user)


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
    effective = _effective(clicked[0], weight[0])
    carried = effective >= FEW
    if moves.by_user:  # clicks of one user are not so many witnesses
        by_group = np.where(moves.clicked > 0, moves.clicked * weight[0], 0.0).sum(axis=1)
        effective = min(effective, _effective(np.ones(G), by_group) * moves.units.number / G)
    statistic = Statistic(
        float(ips[0]),
        ips[1:],
        effective,
        np.where(moves.clicked > 0, moves.clicked * value[0], 0.0).sum(axis=1) * share,
        0.0,
        float((moves.shown * value[0]).sum(axis=1).max() * share),
        "" if np.isfinite(ips).all() else "examination is not known at every rank that clicked items move from or to",
        moves.units,
        carried=carried,
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


class WholeLists(NamedTuple):
    """Lists that are weighed as a whole: sums over groups of them."""

    lists: Array  # (G,)
    weight: Array  # (G,) of their weights
    reward: Array  # (G,) of weight times reward
    square: float  # of squared weights, over all
    heaviest: float
    clipped: bool  # whether some weighed more than they may
    bounds: tuple[float, float]  # of rewards
    new: Array | None  # (G,) of what a model says of the new policy's lists …
    missed: Array | None  # … and of weight times what it was wrong by on those that were shown
    units: Units
    by_user: bool

    @classmethod
    def from_sums(
        cls, sums: PolicySums, units: UnitSums, rewards: tuple[float, float], most: float, clip: float, modelled: bool
    ) -> WholeLists:
        """From what was summed up over a log; `rewards` are the lowest and the highest that there were."""
        own, there = units.units(GROUPS)
        lists = units.lists[there].astype(np.float64)
        new, missed = (one.values()[there] if modelled else None for one in (sums.new, sums.missed))
        bounds = min(rewards[0], 0.0), max(rewards[1], most)
        totals = sums.weight.values()[there], sums.reward.values()[there], float(sums.square.values()[0])
        clipped = sums.unclipped > clip
        return cls(lists, *totals, sums.heaviest, clipped, bounds, new, missed, own, units.by_user)


def by_list(
    rewards: Array,
    log_weights: Array,
    predicted_new: Array | None = None,
    predicted_shown: Array | None = None,
    clip: float = np.inf,
    groups: int = GROUPS,
    users: Array | Sequence[Hashable] | None = None,
    most: float | None = None,
) -> dict[str, Statistic]:
    """The same from whole lists: `ips`, `snips` and, with a model's predictions, `model` and `dr`.

    `rewards` (N,) are clicks (or their gain) a list, `log_weights` (N,) log P_new(list) - log P_logged(list);
    `predicted_new` (N,) what the model says of the list that the new policy shows, `predicted_shown` of the one that
    was shown. `users` (N,) whose lists they are, None: each another's; `most` is the highest reward that a list can
    have (None: the highest that one had), and the lowest is 0 or the lowest that one had. `weights` in the answer is
    their mean, 1 if every list that the new policy shows could come up in the log; if it is not, the estimates say
    nothing of the lists that could not, and a warning says so.

    A log of lists that the new policy would hardly show says nothing, however alike its numbers are:

    >>> found = by_list(np.ones(500), np.append(np.full(499, -40.0), -20.0), most=3.0)["ips"].estimate()
    >>> round(found.effective, 3), round(found.low, 3), found.high
    (1.0, 0.0, 3.0)
    """
    rewards, log_weights = np.asarray(rewards, np.float64), np.asarray(log_weights, np.float64)
    if rewards.ndim != 1 or rewards.shape != log_weights.shape or rewards.size == 0:
        raise InvalidInput(
            f"rewards have shape {rewards.shape} and weights {log_weights.shape}; give one a list of both"
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
    sums = (lists, weight, reward, square, float(weights.max()), clipped, bounds, new, missed, units)
    return by_whole_list(WholeLists(*sums, users is not None), clip)


@np.errstate(invalid="ignore", divide="ignore")
def by_whole_list(told: WholeLists, clip: float = np.inf) -> dict[str, Statistic]:
    """What `by_list` says, from sums."""
    units, G = told.units, told.lists.size
    lists, weight, reward = (_without(v[:, None])[:, 0] for v in (told.lists, told.weight, told.reward))
    N = lists[0]
    effective = float(weight[0]) ** 2 / told.square if told.square > 0 else 0.0
    carried = effective >= FEW_LISTS or effective >= max(FEW, N / 2)
    if told.by_user:
        effective = min(effective, _effective(np.ones(G), told.weight) * units.number / G)
    astray = abs(float(weight[0] / N) - 1.0)
    normalised = float(reward[0] / weight[0]) if weight[0] > 0 else 0.0

    def mean(total: Array, weighed: float, warning: str) -> Statistic:
        left = _without(total[:, None])[:, 0] / lists
        off = astray * abs(weighed)
        return Statistic(float(left[0]), left[1:], effective, None, 0.0, 0.0, warning, units, told.bounds, off, carried)

    found = {"weights": mean(told.weight, 0.0, "")._replace(bounds=(0.0, max(1.0, told.heaviest)))}
    average = found["weights"].value
    lacking = ""
    if average + found["weights"]._student(0.99)[1] < 1.0 and np.isinf(clip):
        lacking = f"lists that it would show are lacking in the log (weights average {average:.2f}, not 1)"
    if told.clipped:
        lacking = "weights were clipped: the interval misses that bias"
    found["ips"] = mean(told.reward, normalised, lacking)
    ratio = np.divide(reward, weight, out=np.full(G + 1, np.nan), where=weight > 0)
    found["snips"] = found["ips"]._replace(value=float(ratio[0]), left_out=ratio[1:], off=0.0)
    if told.new is not None and told.missed is not None:
        model = "what the model says: its own error is not in the interval"
        found["model"] = mean(told.new, 0.0, model)._replace(effective=float(units.number), carried=units.number >= FEW)
        missed = float(told.missed.sum()) / max(float(weight[0]), 1e-300)
        found["dr"] = mean(told.new + told.missed, missed, lacking)
    return found
