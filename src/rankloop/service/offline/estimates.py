"""From tries to figures: what each policy's lists are worth, how sure that is, and what it hangs on."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import numpy as np

from rankloop.clicks import MODELS, SessionLog
from rankloop.clicks.log import LogBuilder
from rankloop.clicks.pbm import PositionBased
from rankloop.core.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.core.types import Array, Impression
from rankloop.evaluation import off_policy
from rankloop.evaluation.off_policy import IntervalEstimate, Statistic
from rankloop.evaluation.off_policy_sums import FEWEST, GROUPS, UnitSums
from rankloop.evaluation.position_bias import Examination, position_bias
from rankloop.kernels import click_models
from rankloop.service.offline.challengers import Tries
from rankloop.service.offline.lists import LOGGED, Lists
from rankloop.service.offline.tally import Forecasts, Tally

SOURCES = ("auto", "swaps", "pairs", "pbm", "1/rank")
FOLDS = 5  # a list's clicks are predicted by a model that was fitted to the other folds
REFITS = FEWEST  # groups of lists where examination is fitted again without each
ASSUMED = "examination is assumed to fall as 1/rank: the log does not tell"
Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


class Pages:
    """Gathers lists for a click model, as `Tries` tells of them; memory grows with them."""

    def __init__(self) -> None:
        self._gathering = LogBuilder()
        self._groups = array("H")

    def __call__(self, impression: Impression, clicks: Array, group: int = 0) -> None:
        """One list more."""
        items = map(str, impression.items.tolist())
        self._gathering.add(str(len(self._groups)), impression.query, items, clicks.tolist())
        self._groups.append(group)

    @property
    def groups(self) -> Array:
        """(N,) for the jackknife."""
        return np.array(self._groups, np.int64)

    def log(self) -> SessionLog:
        """All of them."""
        return self._gathering.log()


class Found(NamedTuple):
    """What a policy's lists are worth, a list."""

    label: str
    value: IntervalEstimate  # by position, the best there is of the estimates below
    difference: IntervalEstimate | None  # to what was logged
    by_position: dict[str, IntervalEstimate]
    by_list: dict[
        str, IntervalEstimate
    ]  # from the lists whose probability is known and that had all candidates; may be empty
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

    def in_unit(self, scale: float) -> Findings:
        """The same figures times `scale`."""

        def times(one: IntervalEstimate) -> IntervalEstimate:
            return one._replace(
                value=one.value * scale, low=one.low * scale, high=one.high * scale, error=one.error * scale
            )

        return self._replace(
            policies=[
                Found(
                    one.label,
                    times(one.value),
                    None if one.difference is None else times(one.difference),
                    {name: times(estimate) for name, estimate in one.by_position.items()},
                    {name: times(estimate) for name, estimate in one.by_list.items()},
                    [value * scale for value in one.curve],
                )
                for one in self.policies
            ]
        )


def find(
    tries: Tries,
    pages: Pages | Callable[[], Pages] | None = None,
    examination: str = "auto",
    model: str | None = None,
    level: float = 0.95,
    clip: float | None = None,
    on_progress: Report | None = None,
) -> Findings:
    """IntervalEstimate every policy's value.

    Parameters
    ----------
    tries
        What was gathered; with a model, it must have kept the lists.
    pages
        The lists for a click model, or what reads them, should examination have to be found by query and item.
    examination
        How often ranks are looked at: "swaps" (from lists that chance could have swapped), "pairs" (the same item of
        the same query at several ranks), "pbm" (a position-based model, fitted), "1/rank", numbers with commas between
        them, or "auto": the first of swaps, pairs and 1/rank that knows all ranks.
    model
        A click model of `rankloop.clicks` for the doubly robust estimates, fitted to other folds of the log.
    level
        Of the intervals.
    clip
        Another one than the tries were asked with; where lists are kept.
    """
    tally = tries.tally()
    if tries.keep:
        tally = copy(tally)
        tally.whole_units, tally.policies, tally.clip = UnitSums(), {}, tally.clip if clip is None else clip
        forecast = None
        if model is not None:
            check_model(model)
            assert pages is not None
            pages = pages if isinstance(pages, Pages) else pages()
            forecast = Forecast(pages.log(), model, on_progress)
        _add_lists(tally, tries.lists(), forecast)
    return figures(tally, tries.idle(), pages, examination, model is not None, level, on_progress)


def _add_lists(tally: Tally, lists: Lists, forecast: Forecast | None) -> None:
    """Lists that were kept, with what a click model says of them."""
    if forecast is None:
        tally.add_policies(lists)
        return
    worth = off_policy.gains(tally.gain, tally.longest)
    shown = forecast.reward(lists.ranks[LOGGED], worth)
    told = {
        label: Forecasts(forecast.attraction, forecast.reward(ranks, worth), shown)
        for label, ranks in lists.ranks.items()
    }
    tally.add_policies(lists, told)


def figures(
    tally: Tally,
    idle: list[str],
    pages: Pages | Callable[[], Pages] | None = None,
    examination: str = "auto",
    modelled: bool = False,
    level: float = 0.95,
    on_progress: Report | None = None,
) -> Findings:
    """What sums over a log say; as `find`, of a log that was read in one piece or in many."""
    tally.check()
    K, clip = tally.longest, tally.clip
    looked, source, warning = _examination(tally, pages, examination, on_progress)
    groups = REFITS if source in ("pairs", "pbm") else GROUPS
    worth = off_policy.gains(tally.gain, K)
    logged: Statistic | None = None
    found = []
    for label, sums in tally.policies.items():
        by_position = off_policy.by_position(tally.moves(label, groups), looked, tally.gain, clip)
        best = by_position["ips" if np.isinf(clip) else "dr" if "dr" in by_position else "snips"]
        best = best._replace(warning=best.warning or warning)
        logged = best if label == LOGGED else logged
        by_list: dict[str, Statistic] = {}
        if tally.whole > 1:
            by_list = off_policy.by_ranking_sums(tally.whole_lists(label, modelled), clip)
        found.append(
            Found(
                label,
                best.estimate(level),
                None if label == LOGGED or logged is None else best.minus(logged).estimate(level),
                {name: one.estimate(level) for name, one in by_position.items()},
                {name: one.estimate(level) for name, one in by_list.items()},
                sums.curve.values(looked.values, worth),
            )
        )
    counts = tally.lists, tally.clicks, tally.drawn, tally.whole
    return Findings(found, *counts, looked.values[:K], source, warning, idle)


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
    return Examination.known(values)


def check_model(name: str) -> None:
    """Refuse a click model that there is not."""
    if name not in MODELS:
        raise UnknownName.among("click model", name, MODELS)


def _examination(
    tally: Tally, pages: Pages | Callable[[], Pages] | None, wanted: str, on_progress: Report | None
) -> tuple[Examination, str, str]:
    given, K = check_examination(wanted), tally.longest
    if given is not None:
        if given.values.size < K:
            raise InvalidParameter(f"examination has {given.values.size} numbers, but lists have {K} ranks; give {K}")
        return given, "given", ""
    if wanted in ("auto", "swaps"):
        found = tally.examination()
        if not np.isnan(found.values).any():
            return found, "swaps", ""
        if wanted == "swaps":
            raise InvalidInput(f"swaps do not tell how often {_ranks(found.values)} looked at; give numbers, or 1/rank")
    if wanted in ("auto", "pairs", "pbm") and pages is not None:
        gathered = pages if isinstance(pages, Pages) else pages()
        found = _fitted(gathered.log(), gathered.groups % REFITS, wanted == "pbm", on_progress)
        if np.isfinite(found.values).all() and (found.values > 0).all():
            return found, "pbm" if wanted == "pbm" else "pairs", ""
        if wanted != "auto":
            raise InvalidInput(
                f"items that stood at several ranks do not tell how often {_ranks(found.values)} looked at; "
                "give numbers, or 1/rank"
            )
    assumed = Examination.known(1.0 / np.arange(1, K + 1))
    return assumed, "1/rank", "" if wanted == "1/rank" else ASSUMED


def _ranks(values: Array) -> str:
    missing = [str(rank) for rank, value in enumerate(values.tolist(), 1) if not value > 0]
    return f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"


def _fitted(log: SessionLog, groups: Array, em: bool, on_progress: Report | None) -> Examination:
    """Examination by query and item, from all lists and without each group of them."""

    def fitted(part: SessionLog) -> Array:
        found = PositionBased().fit(part).examination_ if em else position_bias(part).examination
        whole = np.full(log.ranks, np.nan)
        whole[: found.size] = found / found[0]
        return whole

    values, left_out, there = fitted(log), [], np.unique(groups).tolist()
    for done, g in enumerate(there if len(there) > 1 else [], 1):
        left_out.append(fitted(log.part(groups != g)))
        if on_progress:
            on_progress("examination", done, len(there))
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
            chances, here = fitted.parameters(), self._fold == fold
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
