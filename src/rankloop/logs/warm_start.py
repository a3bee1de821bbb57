"""Warm start: teach a learner with logged impressions, resumably."""

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
from rankloop.logs.files import LogReader
from rankloop.logs.impressions import CandidateBuilder, LoggedImpression

EVERY = 10.0  # seconds between two checkpoints
Progress = Callable[[int, int], None]  # bytes done, of how many


class WarmStartReport(NamedTuple):
    """What a warm start has learned."""

    lists: int = 0  # learned
    clicks: int = 0
    skipped: int = 0  # malformed
    known: int = 0  # learned by an earlier call
    seconds: float = 0.0


def warm_start(
    learner: Learner,
    lists: Iterable[LoggedImpression | tuple[Candidates, Any]],
    *,
    features: CandidateBuilder | None = None,
    seed: int = 0,
    first: int = 0,
) -> WarmStartReport:
    """Teach a learner with impressions of another ranker, in order, by `adopt` and `learn`.

    Parameters
    ----------
    learner
        It continues from its state.
    lists
        Logged impressions, or pairs of candidates in the order shown and click flags.
    features
        How logged impressions become candidates. Pairs are taken as they are.
    seed, first
        For the random numbers of learning; `first` is the number of the first event.

    Examples
    --------
    >>> learner = registry.make("pairrank")
    >>> shoes = Candidates("shoes", ["a", "b"], [[0.1], [0.7]])
    >>> warm_start(learner, [(shoes, [0, 1])] * 20).clicks
    20
    >>> learner.best(shoes, 1)
    array([1])
    """
    began, streams, features = time.perf_counter(), Rng(seed), features or CandidateBuilder()
    count = clicks = 0
    for one in lists:
        made, flags = (features.candidates(one), one.clicks) if isinstance(one, LoggedImpression) else one
        clicks += _learn(learner, made, flags, streams, first + count)
        count += 1
    return WarmStartReport(count, clicks, seconds=time.perf_counter() - began)


def _learn(learner: Learner, candidates: Candidates, flags: Any, streams: Rng, number: int) -> int:
    """Learn one impression and return its number of clicks."""
    values = np.asarray(flags, np.float64)
    shown = learner.adopt(candidates, np.arange(values.size))
    learner.learn(shown, Feedback.clicks(values), streams.for_event("learn", number))
    return int(np.count_nonzero(values))


def warm_start_file(
    learner: Learner,
    out: str | Path,
    reading: LogReader,
    *,
    features: CandidateBuilder | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> WarmStartReport:
    """Teach a fresh learner with the impressions of files and save it as `out`.

    A checkpoint `out`.part is written every ten seconds and on interruption; the same call then continues bit for bit.
    """
    if learner.feedback != "clicks":
        raise InvalidParameter(f"{type(learner).__name__} learns from {learner.feedback}; logs have clicks")
    part, features = Path(f"{out}.part"), features or CandidateBuilder()
    began = told = time.perf_counter()
    streams = Rng(seed)
    inner = unwrapped(learner)
    about = {"learner": registry.name_of(inner), "params": params(inner), "seed": seed, "scale": features.scale}
    if inner is not learner:
        about["normalization"] = "stream"
    before = _load_checkpoint(part, about, learner, features) if part.exists() else None
    done, key, report = (0, "", WarmStartReport()) if before is None else before
    earlier, count = report.lists, 0
    reading.bad = report.skipped

    def checkpoint() -> None:
        found = {"done": count, "key": key, "names": features.names, "width": features.width}
        counts = {"lists": report.lists, "clicks": report.clicks, "skipped": reading.bad, "seconds": report.seconds}
        files.write(part, codec.dumps(learner.state(), {"warm": about, **found, "report": counts}))

    def learned(one: LoggedImpression) -> int:
        return _learn(learner, features.candidates(one), one.clicks, streams, report.lists)

    try:
        for raw in reading:
            if count < done:
                count += 1
                if count == done and raw.key != key:
                    raise DataError(f"{part} was started with other logs; give those, or delete it to start again")
                continue
            clicks = reading.parsed(raw, learned)
            count, key = count + 1, raw.key
            if clicks is not None:
                report = report._replace(lists=report.lists + 1, clicks=report.clicks + clicks)
            if time.perf_counter() - told > EVERY:
                told = time.perf_counter()
                checkpoint()
            if on_progress is not None and count % 100 == 0:
                on_progress(reading.position, reading.total)
        if count < done:
            raise DataError(f"{part} was started with longer logs; give those, or delete it to start again")
    except BaseException:  # such as Ctrl-C
        if count > done:
            checkpoint()
        raise
    registry.save(learner, out)
    part.unlink(missing_ok=True)
    return report._replace(skipped=reading.bad, known=earlier, seconds=time.perf_counter() - began)


def _load_checkpoint(
    part: Path, about: dict[str, Any], learner: Learner, features: CandidateBuilder
) -> tuple[int, str, WarmStartReport]:
    """Load the checkpoint of an earlier call into the learner."""
    arrays, meta = codec.loads(files.read_bytes(part), str(part))
    if "warm" not in meta:
        raise CodecError(f"{part}: a rankloop file, but not the checkpoint of a warm start; delete it")
    for name, value in about.items():
        if meta["warm"].get(name) != value:
            raise InvalidParameter(
                f"{part} was started with {name} {meta['warm'].get(name)!r}, not {value!r}; delete it to start again"
            )
    names, given = meta["names"], features.names
    if given is not None and names != given:
        raise InvalidParameter(f"{part} was started with other features; delete it to start again")
    learner.load(arrays)
    features.names, features.width = names, meta["width"]
    return meta["done"], meta["key"], WarmStartReport(**meta["report"])
