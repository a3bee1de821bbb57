"""What the status page and load balancers see: readiness, curves, latest impressions, weights, movement. Blocking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import numpy as np

from rankloop import __version__
from rankloop.core import codec
from rankloop.core.capabilities import Explanation, LinearScores, Observable
from rankloop.core.errors import InvalidInput
from rankloop.core.types import Impression
from rankloop.service.errors import Conflict, UnknownRanker
from rankloop.service.ranking import movement as movements
from rankloop.service.ranking.model import BASELINE, PublishedModel, weights_of
from rankloop.service.ranking.placement import SLOTS
from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.storage import events as stored_events
from rankloop.service.storage import impressions as stored_impressions
from rankloop.service.storage import leases
from rankloop.service.storage import metric_history as buckets
from rankloop.service.storage.metric_history import RESOLUTIONS, Bucket
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.worker.hang_supervisor import MOST_HANGING
from rankloop.wire.calls import EventCounts, RankAnswer
from rankloop.wire.monitoring import Doubt, Movement, Point, PositionRate, Series, ShownItem, ShownList, Weight, Weights
from rankloop.wire.service import Reason, ServiceStatus

FRESH = 1.0  # seconds for which an answer is as good as a new one
LONGER = 10  # times as long for one that takes a hundred lists to make: it changes slowly
POINTS = 90  # of a curve, if no step is asked for: as many as can be told apart on a page
STEPS = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
MOST_POINTS = 3000
DOUBTS = 20


class Recent:
    """Answers that were just made: ten pages that watch a ranker cost as much as one."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Any, ...], tuple[float, asyncio.Future[bytes]]] = {}

    async def get(self, make: Callable[..., Any], engine: Engine, *arguments: Any) -> bytes:
        """The JSON of `make(engine, *arguments)`, at most a second old, or ten if it is costly."""
        key, now = (make, *arguments), time.monotonic()
        for old in [key for key, (made, _) in self._answers.items() if now - made > _lasts(key[0])]:
            del self._answers[old]
        if key not in self._answers:
            work = engine.reads.run(lambda: msgspec.json.encode(make(engine, *arguments)))
            self._answers[key] = now, asyncio.ensure_future(work)
        answer = self._answers[key][1]
        try:
            return await asyncio.shield(answer)
        except Exception:
            self._answers.pop(key, None)  # what went wrong may be right in a moment
            raise


def _lasts(view: Callable[..., Any]) -> float:
    return FRESH * LONGER if view is movement else FRESH


def series(engine: Engine, name: str, seconds: int, step: int | None) -> Series:
    """How a ranker fared in the last `seconds`, in steps of about `step`."""
    _live(engine, name)
    now = engine.clock()
    wanted = step or next((s for s in STEPS if s * POINTS >= seconds), STEPS[-1])
    kept = max((s for s in RESOLUTIONS if s <= wanted and RESOLUTIONS[s] >= seconds), default=max(RESOLUTIONS))
    width = max(wanted // kept, 1) * kept
    since = (now - seconds) // width * width
    if seconds / width > MOST_POINTS:
        raise InvalidInput(
            f"{seconds} seconds in steps of {width} are more than {MOST_POINTS} points; take a longer step"
        )
    groups: dict[int, Bucket] = {}
    total = Bucket()
    for start, bucket in engine.database.read(lambda c: list(buckets.between(c, name, kept, since + kept))):
        groups.setdefault(start // width * width, Bucket()).add(bucket)
        total.add(bucket)
    total.clicks.extend([0] * (len(total.shown) - len(total.clicks)))
    counts = zip(total.shown, total.clicks, strict=True)
    return Series(
        ranker=name,
        now=now,
        since=since,
        step=width,
        points=[_point(start, bucket) for start, bucket in groups.items()],
        total=_point(since, total),
        positions=[PositionRate(i, n, clicked) for i, (n, clicked) in enumerate(counts, 1)],
    )


def _point(start: float, bucket: Bucket) -> Point:
    def mean(total: float, count: int) -> float | None:
        return total / count if count else None

    return Point(
        start=start,
        lists=bucket.lists,
        closed_impressions=bucket.outcomes,
        clicks=mean(sum(bucket.clicks), bucket.outcomes),
        reciprocal_rank=mean(bucket.reciprocal, bucket.clicked),
        explored=mean(bucket.explored, bucket.positions),
        uncertain=mean(bucket.uncertain, bucket.pairs),
        fallbacks=mean(bucket.fallbacks, bucket.lists),
        unlearned_impressions=bucket.lag,
        ndcg=mean(bucket.ndcg, bucket.judged),
    )


def impressions(engine: Engine, name: str, limit: int) -> list[ShownList]:
    """The latest lists, the newest first."""
    live = _live(engine, name)
    found = engine.database.read(lambda c: stored_impressions.latest_impressions(c, name, limit))
    return [_shown(live, one) for one in found]


def _shown(live: LiveRanker, one: stored_impressions.ShownImpression) -> ShownList:
    impression = codec.load_impression(one.body)
    answer = msgspec.json.decode(one.answer, type=RankAnswer)
    belief = None if answer.fallback else _belief(live, impression, answer)
    slots = impression.memo.get(SLOTS, np.arange(impression.k)).tolist()  # all but those of pinned items
    places = [None] * impression.k if belief is None else (np.argsort(belief.best) + 1).tolist()
    # Of no pairs nothing is known; and what stands in a mixed list against belief was put there by a rival.
    told = None if belief is None or not belief.pairs or answer.experiment is not None else belief
    # Silence that became an outcome says: nothing was clicked.
    values = one.feedback or [0.0 if one.kind else None] * len(answer.items)
    if one.feedback and live.kind == "clicks":  # whatever was clicked, the others were not
        values = [value or 0.0 for value in one.feedback]
    pairs = told.uncertain.tolist() if told else ()
    doubts = [Doubt(slots[p] + 1, slots[q] + 1, places[p] > places[q]) for p, q in pairs]
    known = dict(zip(slots, zip(impression.order.tolist(), places, strict=True), strict=True))
    doubts.sort(key=lambda doubt: (not doubt.swapped, doubt.lower - doubt.upper, doubt.upper))
    return ShownList(
        impression_id=one.id,
        created=one.created,
        query=impression.query,
        version=answer.version,
        exposure=answer.exposure,
        reason=answer.reason,
        experiment=answer.experiment,
        items=[
            # A pinned item stands where it was to stand.
            ShownItem(
                item.id,
                slot + 1,
                known.get(slot, (slot, None))[0] + 1,
                known.get(slot, (slot, None))[1],
                value,
                one.rewards[slot] if one.rewards else None,
            )
            for slot, (item, value) in enumerate(zip(answer.items, values, strict=True))
        ],
        pairs=told.pairs if told else None,
        uncertain=len(doubts) if told else None,
        doubts=doubts[:DOUBTS],
        outcome=cast(Any, "open" if one.open else one.kind or "ignored"),
        learned=one.learn and (one.open or one.kind is not None),
        seen=one.viewed,
        attention=one.rejected,
    )


def _belief(live: LiveRanker, impression: Impression, answer: RankAnswer) -> Explanation | None:
    """What the learner says of a list, or its scores do; None if nothing is known."""
    if live.model is None:
        return None
    if isinstance(live.model.learner, Observable):
        return live.model.explain(impression)
    scores = [answer.items[slot].score for slot in impression.memo.get(SLOTS, np.arange(impression.k)).tolist()]
    if None in scores:
        return None
    best = np.lexsort((impression.order, -np.array(scores, np.float64)))
    return Explanation(best, np.zeros((0, 2), np.int64), 0)


def weights(engine: Engine, name: str, limit: int) -> Weights:
    """What the model that ranks thinks of each feature."""
    live = _live(engine, name)
    model, names = _model(live, live.serving), live.schema.names
    with model.locked() as learner:
        theta, label = weights_of(learner), model.label
        bounds = learner.half_widths() if isinstance(learner, LinearScores) else None
    found = []
    count = len(names)
    if theta is not None and theta.size in (count, count + 1):  # before that nothing is learned, and all are 0
        count = theta.size
        largest = np.argsort(-np.abs(theta), kind="stable")[:limit].tolist()
        called = [names[j] if j < len(names) else BASELINE for j in largest]
        sure: list[Any] = [None] * len(largest)
        if bounds is not None and bounds.size == theta.size:
            sure = bounds[largest].tolist()
        found = list(map(Weight, called, theta[largest].tolist(), sure))
    return Weights(name, label, theta is not None, count, found)


def movement(engine: Engine, name: str, limit: int) -> Movement:
    """How far what ranks has moved from the caller's order, over the latest lists."""
    live = _live(engine, name)
    bodies = engine.database.read(lambda c: stored_impressions.latest_bodies(c, name, live.row.epoch, limit))
    serving = _model(live, live.serving)
    # A promoted version does not learn; the live model behind it notices what users do.
    return movements.movement(name, serving, bodies, _model(live, live.model))


def _model(live: LiveRanker, model: PublishedModel | None) -> PublishedModel:
    if model is None:
        raise Conflict(f"ranker {live.row.name!r} has no model: {live.load_error or 'its state is being loaded'}")
    return model


def service(engine: Engine) -> ServiceStatus:
    """The service itself, beside its rankers."""
    found, workers = engine.database.size(), engine.database.read(leases.list_workers)
    kind: Any = "sqlite" if isinstance(engine.database, SQLite) else "postgresql"
    events = engine.database.read(lambda c: stored_events.event_counts(c, engine.clock())).get(stored_events.UNKNOWN)
    webhook = bool(engine.settings.webhook)
    return ServiceStatus(__version__, kind, found.used, found.free, len(workers), webhook, events or EventCounts())


def _live(engine: Engine, name: str) -> LiveRanker:
    live = engine.rankers.get(name) or engine.load(name)
    if live is None:
        raise UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    return live


STALE_SECONDS = 60.0  # age of a live model from which on it is reported
SILENT_BEATS, SILENT_SECONDS = 3.0, 5.0  # heartbeats, and seconds at least, that the store may take nothing
WARMING = "kernels are being compiled or loaded"


def obstacles(engine: Engine) -> list[Reason]:
    """Why requests should go to another process; empty if they may come."""
    if engine.draining:
        return [Reason("stopping", "stopping")]
    if not engine.kernels_ready.is_set():
        return [Reason("compiling", f"warming up: {WARMING}")]
    found, silence = [], engine.writer.silence
    if silence > max(SILENT_SECONDS, SILENT_BEATS * engine.settings.beat_seconds):
        found.append(Reason("store", f"the store has not taken a write of this process for {silence:.0f} s"))
    found += [
        Reason("thread", f"thread {name} has ended; restart the process, and report it")
        for name in engine.dead_threads()
    ]
    rankers = dict(engine.rankers)
    if rankers and all(_damaged(live) or _hangs(live) for live in rankers.values()):
        text = "every ranker shows the baseline ranking; their status says why"
        found.append(Reason("rankers", text, len(rankers), sorted(rankers)))
    return found


def degradations(engine: Engine) -> list[Reason]:
    """What some rankers do not do as they should, one reason per kind."""
    now, rankers = engine.clock(), dict(engine.rankers)
    stale = f"the live model does not include outcomes that are more than {STALE_SECONDS:g} s old"
    kinds: dict[str, tuple[str, Callable[[LiveRanker], bool]]] = {
        "compiling": (f"{WARMING}; the baseline ranking is shown", lambda live: not live.compiled),
        "damaged": ("no model could be loaded; the baseline ranking is shown", _damaged),
        "hanging": ("the learner does not answer; the baseline ranking is shown", _hangs),
        "loading": (
            "a state has been loading for long; the model before it is shown, if any",
            lambda one: one.loading_seconds > 0,
        ),
        "load-error": ("the last attempt to load a state failed; it is tried again", lambda one: bool(one.errors)),
        "stale": (stale, lambda live: live.row.serving is None and live.age(now) > STALE_SECONDS),
    }
    found = []
    for code, (text, holds) in kinds.items():
        names = sorted(name for name, live in rankers.items() if holds(live))
        if names:
            found.append(Reason(code, text, len(names), names))  # type: ignore[arg-type]
    return found


def _damaged(live: LiveRanker) -> bool:
    return live.serving is None


def _hangs(live: LiveRanker) -> bool:
    return not live.inline and live.hanging >= MOST_HANGING
