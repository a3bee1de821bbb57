"""A learner taught with logged lists, as if they had been shown in shadow; what is broken off goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rankloop.core import codec, files, registry
from rankloop.core.errors import CodecError, DataError, InvalidParameter
from rankloop.core.learner import Learner, params
from rankloop.core.rng import Rng
from rankloop.core.scaling import unwrapped
from rankloop.core.types import Candidates, Feedback
from rankloop.logs.files import Reading
from rankloop.logs.impressions import Features, LoggedList

EVERY = 10.0  # seconds between two notes of how far it has come
Progress = Callable[[int, int], None]  # bytes done, of how many


class Report(NamedTuple):
    """What came of it."""

    lists: int = 0  # learned
    clicks: int = 0
    skipped: int = 0  # malformed, and so left out
    known: int = 0  # learned by an earlier call
    seconds: float = 0.0


def warm(
    learner: Learner,
    lists: Iterable[LoggedList | tuple[Candidates, Any]],
    *,
    features: Features | None = None,
    seed: int = 0,
    first: int = 0,
) -> Report:
    """Teach a learner with lists that someone else has shown, in this order; each goes through `adopt` and `learn`.

    Parameters
    ----------
    learner
        It goes on from what it has learned so far.
    lists
        Logged lists, or pairs of candidates in the order shown and a click flag for each of the first of them.
    features
        How logged lists become candidates; scaled list by list if not given. Pairs are taken as they are.
    seed, first
        Of the random numbers of learning; list `first` + i has those of event i, so that parts give what a whole does.

    Examples
    --------
    >>> learner = registry.make("pairrank")
    >>> shoes = Candidates("shoes", ["a", "b"], [[0.1], [0.7]])
    >>> warm(learner, [(shoes, [0, 1])] * 20).clicks
    20
    >>> learner.best(shoes, 1)
    array([1])
    """
    began, streams, features = time.perf_counter(), Rng(seed), features or Features()
    count = clicks = 0
    for one in lists:
        made, flags = (features.candidates(one), one.clicks) if isinstance(one, LoggedList) else one
        clicks += _learn(learner, made, flags, streams, first + count)
        count += 1
    return Report(count, clicks, seconds=time.perf_counter() - began)


def _learn(learner: Learner, candidates: Candidates, flags: Any, streams: Rng, number: int) -> int:
    """Learn one list; how many clicks it has."""
    values = np.asarray(flags, np.float64)
    shown = learner.adopt(candidates, np.arange(values.size))
    learner.learn(shown, Feedback.clicks(values), streams.for_event("learn", number))
    return int(np.count_nonzero(values))


def warm_file(
    learner: Learner,
    out: str | Path,
    reading: Reading,
    *,
    features: Features | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Report:
    """Teach a fresh learner with the lists of files and save it as `out`.

    How far it has come is noted beside it, in `out`.part, every ten seconds and when it is broken off: the same call
    goes on from there and gives the same bits. The learner's state is replaced by what is noted.
    """
    if learner.feedback != "clicks":
        raise InvalidParameter(f"{type(learner).__name__} learns from {learner.feedback}; logged lists have clicks")
    part, features = Path(f"{out}.part"), features or Features()
    began = told = time.perf_counter()
    streams = Rng(seed)
    inner = unwrapped(learner)
    about = {"learner": registry.name_of(inner), "params": params(inner), "seed": seed, "scale": features.scale}
    if inner is not learner:
        about["normalisation"] = "stream"
    before = _noted(part, about, learner, features) if part.exists() else None
    done, key, report = (0, "", Report()) if before is None else before
    earlier, count = report.lists, 0
    reading.bad = report.skipped

    def note() -> None:
        found = {"done": count, "key": key, "names": features.names, "width": features.width}
        counts = {"lists": report.lists, "clicks": report.clicks, "skipped": reading.bad, "seconds": report.seconds}
        files.write(part, codec.dumps(learner.state(), {"warm": about, **found, "report": counts}))

    def learned(one: LoggedList) -> int:
        return _learn(learner, features.candidates(one), one.clicks, streams, report.lists)

    try:
        for raw in reading:
            if count < done:
                count += 1
                if count == done and raw.key != key:
                    raise DataError(f"{part} was begun with other logs; give those again, or delete it to begin anew")
                continue
            clicks = reading.parsed(raw, learned)
            count, key = count + 1, raw.key
            if clicks is not None:
                report = report._replace(lists=report.lists + 1, clicks=report.clicks + clicks)
            if time.perf_counter() - told > EVERY:
                told = time.perf_counter()
                note()
            if on_progress is not None and count % 100 == 0:
                on_progress(reading.position, reading.total)
        if count < done:
            raise DataError(f"{part} was begun with longer logs; give those again, or delete it to begin anew")
    except BaseException:  # Ctrl-C above all: what is learned must not be lost
        if count > done:
            note()
        raise
    registry.save(learner, out)
    part.unlink(missing_ok=True)
    return report._replace(skipped=reading.bad, known=earlier, seconds=time.perf_counter() - began)


def _noted(part: Path, about: dict[str, Any], learner: Learner, features: Features) -> tuple[int, str, Report]:
    """How far an earlier call has come; the learner goes on from there."""
    arrays, meta = codec.loads(files.read_bytes(part), str(part))
    if "warm" not in meta:
        raise CodecError(f"{part}: a rankloop file, but not of a warm start that was broken off; delete it")
    for name, value in about.items():
        if meta["warm"].get(name) != value:
            raise InvalidParameter(
                f"{part} was begun with {name} {meta['warm'].get(name)!r}, not {value!r}; delete it to begin anew"
            )
    names, given = meta["names"], features.names
    if given is not None and names != given:
        raise InvalidParameter(f"{part} was begun with other features; delete it to begin anew")
    learner.load(arrays)
    features.names, features.width = names, meta["width"]
    return meta["done"], meta["key"], Report(**meta["report"])
