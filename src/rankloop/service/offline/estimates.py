"""From tries to figures: what each policy's lists are worth, how sure that is, and what it hangs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rankloop import offpolicy
from rankloop.clicks import MODELS, SessionLog
from rankloop.clicks.bias import position_bias
from rankloop.clicks.log import Gathering
from rankloop.clicks.pbm import PositionBased
from rankloop.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.examination import Examination, known
from rankloop.kernels import click_models
from rankloop.offpolicy import Gain, Moves
from rankloop.offpolicy.intervals import FEWEST, GROUPS, Estimate, Statistic, Units
from rankloop.service.offline.challengers import LOGGED, Tries
from rankloop.types import Array, Impression

SOURCES = ("auto", "swaps", "pairs", "pbm", "1/rank")
FOLDS = 5  # a list's clicks are predicted by a model that was fitted to the other folds
REFITS = FEWEST  # groups of lists where examination is fitted again without each
CURVE = 24  # points of the curves
ASSUMED = "examination is assumed to fall as 1/rank: the log does not tell"
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


class Pages:
    """Gathers lists for a click model, as `Tries` tells of them."""

    def __init__(self) -> None:
        self._gathering = Gathering()
        self._count = 0

    def __call__(self, impression: Impression, clicks: Array) -> None:
        """One list more."""
        items = map(str, impression.items.tolist())
        self._gathering.add(str(self._count), impression.query, items, clicks.tolist())
        self._count += 1

    def log(self) -> SessionLog:
        """All of them."""
        return self._gathering.log()


class Found(NamedTuple):
    """What a policy's lists are worth, a list."""

    label: str
    value: Estimate  # by position, the best there is of the estimates below
    difference: Estimate | None  # to what was logged
    by_position: dict[str, Estimate]
    by_list: dict[str, Estimate]  # from the lists whose probability is known and that had all candidates; may be empty
    curve: list[float]  # the value along the log, in equal parts


class Findings(NamedTuple):
    """All policies, the logged one first, and what the figures hang on."""

    policies: list[Found]
    lists: int
    clicks: int
    drawn: int  # lists whose probability is known
    whole: int  # those of them that had all candidates: what `by_list` is from
    examination: Array  # (K,)
    source: str  # of the examination
    warning: str
    idle: list[str]  # challengers that learned nothing from these lists


def find(
    tries: Tries,
    pages: Pages | None = None,
    examination: str = "auto",
    model: str | None = None,
    gain: Gain = "clicks",
    clip: float = np.inf,
    level: float = 0.95,
    on_progress: Report | None = None,
) -> Findings:
    """Estimate every policy's value.

    Parameters
    ----------
    tries, pages
        What was gathered; pages where a click model is wanted or examination is to be found by query and item.
    examination
        How often ranks are looked at: "swaps" (from lists that chance could have swapped), "pairs" (the same item of
        the same query at several ranks), "pbm" (a position-based model, fitted), "1/rank", numbers with commas between
        them, or "auto": the first of swaps, pairs and 1/rank that knows all ranks.
    model
        A click model of `rankloop.clicks` for the doubly robust estimates, fitted to other folds of the log.
    gain, clip, level
        As in `rankloop.offpolicy`.
    """
    if model is not None and model not in MODELS:
        raise UnknownName.among("click model", model, MODELS)
    lists = tries.lists()
    N, K = lists.clicks.shape
    log = pages.log() if pages is not None else None
    looked, source, warning = _examination(tries, log, lists.users, examination, K, on_progress)
    groups = GROUPS if looked.left_out is None else len(looked.left_out)
    forecast = None if model is None or log is None else Forecast(log, model, on_progress)
    attraction = None if forecast is None else forecast.attraction
    worth = offpolicy.gains(gain, K)
    logged: Statistic | None = None
    found = []
    for label, ranks in lists.ranks.items():
        moves = Moves.of(lists.clicks, ranks, attraction, groups, lists.users)
        by_position = offpolicy.by_position(moves, looked, gain, clip)
        best = by_position["ips" if np.isinf(clip) else "dr" if "dr" in by_position else "snips"]
        best = best._replace(warning=best.warning or warning)
        logged = best if label == LOGGED else logged
        weights = lists.log_weights[label]
        counted = ~np.isnan(weights)
        by_list: dict[str, Statistic] = {}
        if counted.sum() > 1:
            new = shown = None
            if forecast is not None:
                new, shown = (forecast.reward(one, worth)[counted] for one in (ranks, lists.ranks[LOGGED]))
            rewards = (lists.clicks * worth).sum(axis=1)[counted]
            users = None if lists.users is None else lists.users[counted]
            most = float(worth.sum())
            by_list = offpolicy.by_list(rewards, weights[counted], new, shown, clip, users=users, most=most)
        found.append(
            Found(
                label,
                best.estimate(level),
                None if label == LOGGED or logged is None else best.minus(logged).estimate(level),
                {name: one.estimate(level) for name, one in by_position.items()},
                {name: one.estimate(level) for name, one in by_list.items()},
                _curve(lists.clicks, ranks, looked.values, worth),
            )
        )
    clicks = int(lists.clicks.sum())
    return Findings(found, N, clicks, tries.drawn, tries.whole, looked.values[:K], source, warning, tries.idle())


def _curve(clicks: Array, ranks: Array, looked: Array, worth: Array) -> list[float]:
    there = ranks >= 0
    slot = np.broadcast_to(np.arange(clicks.shape[1]), clicks.shape)
    weight = np.where(slot == ranks, 1.0, looked[ranks] / looked[slot])
    values = np.where(there & (clicks > 0), weight * worth[ranks], 0.0).sum(axis=1)
    return [float(part.mean()) for part in np.array_split(values, min(CURVE, len(values)))]


# -- examination ---------------------------------------------------------------------------------------------------


def check_examination(text: str) -> Examination | None:
    """The examination that `text` spells out; None if it names a source. Refuses everything else."""
    if text in SOURCES:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(
            f"examination is {text!r}; give one of {', '.join(SOURCES)}, or numbers for the ranks: 1,0.6,0.4"
        ) from None
    return known(values)


def _examination(
    tries: Tries, log: SessionLog | None, users: Array | None, wanted: str, K: int, on_progress: Report | None
) -> tuple[Examination, str, str]:
    given = check_examination(wanted)
    if given is not None:
        if given.values.size < K:
            raise InvalidParameter(f"examination has {given.values.size} numbers, but lists have {K} ranks; give {K}")
        return given, "given", ""
    if wanted in ("auto", "swaps"):
        found = tries.examination()
        if not np.isnan(found.values).any():
            return found, "swaps", ""
        if wanted == "swaps":
            raise InvalidInput(f"swaps do not tell how often {_ranks(found.values)} looked at; give numbers, or 1/rank")
    if wanted in ("auto", "pairs", "pbm") and log is not None:
        found = _fitted(log, users, wanted == "pbm", on_progress)
        if np.isfinite(found.values).all() and (found.values > 0).all():
            return found, "pbm" if wanted == "pbm" else "pairs", ""
        if wanted != "auto":
            raise InvalidInput(
                f"items that stood at several ranks do not tell how often {_ranks(found.values)} looked at; "
                "give numbers, or 1/rank"
            )
    assumed = known(1.0 / np.arange(1, K + 1))
    return assumed, "1/rank", "" if wanted == "1/rank" else ASSUMED


def _ranks(values: Array) -> str:
    missing = [str(rank) for rank, value in enumerate(values.tolist(), 1) if not value > 0]
    return f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"


def _fitted(log: SessionLog, users: Array | None, em: bool, on_progress: Report | None) -> Examination:
    """Examination by query and item, from all lists and without each of some groups of them."""

    def fitted(part: SessionLog) -> Array:
        found = PositionBased().fit(part).examination_ if em else position_bias(part).examination
        whole = np.full(log.ranks, np.nan)
        whole[: found.size] = found / found[0]
        return whole

    units = Units.of(len(log), users, REFITS)
    G = units.share.size
    values, left_out = fitted(log), []
    for g in range(G if G > 1 else 0):
        left_out.append(fitted(log.part(units.group != g)))
        if on_progress:
            on_progress("examination", g + 1, G)
    return Examination(values, np.array(left_out) if left_out else None)


# -- click models --------------------------------------------------------------------------------------------------


class Forecast:
    """What a click model says of lists whose clicks it has not seen: fitted to the other folds, one by one."""

    def __init__(self, log: SessionLog, model: str, on_progress: Report | None = None) -> None:
        if len(log) < FOLDS:
            raise InvalidInput(f"a click model is fitted to parts of the log; {len(log)} lists are fewer than {FOLDS}")
        self._fold = np.arange(len(log)) % FOLDS
        self._lengths = log.lengths
        self._models, self._shown = [], np.empty(log.shown.shape, np.int64)
        self.attraction = np.zeros(log.shown.shape)
        for fold in range(FOLDS):
            fitted = MODELS[model]().fit(log.part(self._fold != fold))
            if fitted.ranks is not None and fitted.ranks < log.ranks:
                raise InvalidInput(f"too few lists have {log.ranks} ranks to fit {model} without a part of them")
            chances, here = fitted.chances(), self._fold == fold
            numbers = np.append(fitted.pairs.numbers_of(log.pairs), -1)
            self._shown[here] = numbers[log.shown[here]]
            self.attraction[here] = np.append(chances.attraction, 0.0)[self._shown[here]]
            self._models.append(chances)
            if on_progress:
                on_progress(f"fitting {model}", fold + 1, FOLDS)

    def reward(self, ranks: Array, worth: Array) -> Array:
        """(N,) the expected gain of every list, its items put at `ranks` (N, K)."""
        N, K = ranks.shape
        found, examined, clicked, last = np.zeros(N), np.empty(K), np.empty(K), np.empty(K + 1)
        for t in range(N):
            n = self._lengths[t]
            order = np.empty(n, np.int64)
            order[ranks[t, :n]] = self._shown[t, :n]
            click_models.chances(self._models[self._fold[t]], order, examined[:n], clicked[:n], last)
            found[t] = float(clicked[:n] @ worth[:n])
        return found
