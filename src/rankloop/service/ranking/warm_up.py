"""Kernels are compiled where nobody waits for them: in a thread behind the call that made them necessary.

The first time on a machine that takes up to a minute a learner; after that the code is in a cache. A ranker whose
kernels are not there yet is not asked: its answers are the caller's order, and say so.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Mapping
from typing import Protocol

import msgspec

from rankloop.service.ranking import model as models
from rankloop.service.ranking.declared import is_sparse
from rankloop.service.storage.admin import Ranker
from rankloop.wire.rankers import Spec

logger = logging.getLogger("rankloop")


class NeedsKernels(Protocol):
    """A ranker, where it ranks or where it learns."""

    row: Ranker
    warm: bool


class WarmUp:
    """Which kernels are there, and which are on their way.

    Parameters
    ----------
    rankers
        Those of the process; the ones that kernels were compiled for are marked `warm`.
    """

    def __init__(self, rankers: Mapping[str, NeedsKernels]) -> None:
        self._rankers = rankers
        self._lock = threading.Lock()
        self._done: set[bytes] = set()
        self._threads: dict[bytes, threading.Thread] = {}

    def begin(self, live: NeedsKernels) -> threading.Thread | None:
        """See to the kernels of a ranker: the thread that compiles them, None if they are there. A thread, because a
        learner may hang here, too; one for all rankers that need the same, however often it is asked for."""
        key = _kernels(live.row.spec)
        with self._lock:
            if key in self._done:
                live.warm = True
                return None
            if key not in self._threads:
                args = (live.row.name, live.row.spec, key)
                self._threads[key] = threading.Thread(
                    target=self._compile, args=args, name="rankloop-warm", daemon=True
                )
                self._threads[key].start()
            return self._threads[key]

    def _compile(self, name: str, spec: Spec, key: bytes) -> None:
        try:
            models.warm(spec)
        except BaseException:  # a learner that fails gives fallbacks, which say so; the service stands
            logger.exception("ranker %s: its learner failed while warming up", name)
        with self._lock:
            self._done.add(key)
            del self._threads[key]
        for live in list(self._rankers.values()):
            live.warm = live.warm or _kernels(live.row.spec) == key
        freeze()


def freeze() -> None:
    """Numba leaves a million objects behind; looking through them again and again would stop requests for 100 ms."""
    gc.collect()
    gc.freeze()


def _kernels(spec: Spec) -> bytes:
    """What decides which kernels a ranker needs."""
    return msgspec.json.encode([spec.learner, spec.parameters, bool(spec.features), is_sparse(spec)])
