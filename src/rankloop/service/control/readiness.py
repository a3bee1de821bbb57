"""Whether a process should get requests, and what it does not do as it should. Never asks the store: it may hang."""

from __future__ import annotations

from collections.abc import Callable

from rankloop.service.serving.engine import Engine
from rankloop.service.serving.live_ranker import LiveRanker
from rankloop.service.worker.hang_supervisor import MOST_HANGING
from rankloop.wire.service import Reason

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
