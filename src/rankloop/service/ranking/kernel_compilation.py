"""Compile or load kernels before requests need them, in threads: the first time on a machine takes up to a minute."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from rankloop.core import codec
from rankloop.core.types import Candidates, Feedback, SparseRows
from rankloop.kernels.input_checks import entry_counts
from rankloop.kernels.ranking import constrained_order
from rankloop.kernels.scaling import minmax_queries
from rankloop.service.ranking.exposure import Interleaving
from rankloop.service.ranking.feature_spec import is_sparse, width_of
from rankloop.service.ranking.model import PublishedModel, make_learner
from rankloop.service.storage.rankers import Ranker
from rankloop.wire.rankers import Spec

ROUNDS = 6  # of a throw-away learner: enough to meet every kernel, before and after learning
logger = logging.getLogger("rankloop")


class NeedsKernels(Protocol):
    """A ranker in a process that ranks or learns."""

    row: Ranker
    compiled: bool


class KernelCompiler:
    """Compiles the kernels of rankers in threads, one per kind of learner, and marks the rankers as `compiled`."""

    def __init__(self, rankers: Mapping[str, NeedsKernels]) -> None:
        self._rankers = rankers
        self._lock = threading.Lock()
        self._done: set[bytes] = set()
        self._threads: dict[bytes, threading.Thread] = {}

    def begin(self, live: NeedsKernels) -> threading.Thread | None:
        """The thread that compiles the kernels of a ranker, started if necessary; None if they are compiled."""
        key = _kernels(live.row.spec)
        with self._lock:
            if key in self._done:
                live.compiled = True
                return None
            if key not in self._threads:
                arguments = (live.row.name, live.row.spec, key)
                thread = threading.Thread(target=self._compile, args=arguments, name="rankloop-compile", daemon=True)
                self._threads[key] = thread
                thread.start()
            return self._threads[key]

    def _compile(self, name: str, spec: Spec, key: bytes) -> None:
        try:
            compile_kernels(spec)
        except BaseException:  # SystemExit, too: a learner that fails is asked anyway, and the fallbacks say so
            logger.exception("ranker %s: its learner failed while its kernels were compiled", name)
        with self._lock:
            self._done.add(key)
            del self._threads[key]
        for live in list(self._rankers.values()):
            live.compiled = live.compiled or _kernels(live.row.spec) == key
        freeze()


def freeze() -> None:
    """Exempt what exists from garbage collection: numba's million objects would stop requests for 100 ms each time."""
    gc.collect()
    gc.freeze()


def _kernels(spec: Spec) -> bytes:
    """What decides which kernels a ranker needs."""
    return msgspec.json.encode([spec.learner, spec.parameters, bool(spec.features), is_sparse(spec)])


def compile_shared_kernels() -> None:
    """Compile the kernels that any request may need, whatever its ranker, before the event loop starts."""
    one = np.ones(1, np.int64)
    constrained_order(np.zeros(1, np.int64), np.zeros((1, 1), np.int64), one, one, np.zeros((1, 1), np.int64), one - 1)
    minmax_queries(np.zeros((1, 1)), np.array([0, 1]))
    entry_counts(np.frombuffer(b"{}", np.uint8), 1, 3)


def compile_kernels(spec: Spec) -> None:
    """Compile or load every kernel that requests of this spec need, on a throw-away learner."""
    width, sparse, rng = width_of(spec), is_sparse(spec), np.random.default_rng(0)
    n = min(spec.k, 20) + spec.displacement % 20 + 2
    for exposure in ("full", "bounded", "shadow"):
        tried = msgspec.structs.replace(spec, exposure=exposure, timeout_ms=60_000.0)
        model = PublishedModel(make_learner(tried), tried, 0, 0)
        for t in range(ROUNDS):
            rows: Any = None
            if sparse:
                rows = SparseRows(np.arange(n + 1) * 3, rng.integers(0, width, 3 * n), np.ones(3 * n), width)
            elif width:
                rows = rng.random((n, width))
            candidates = Candidates.without_copy("compile", [str(i) for i in range(n)], rows)
            k = min(spec.k, n)
            probabilistic = t % 2 == 0 and exposure == "full"
            rival = Interleaving(
                0, tried.exposure, np.arange(k), rng.random((2, k) if probabilistic else k), probabilistic
            )
            ranked = model.rank(candidates, spec.k, t, tried, None, rival if t > 2 and exposure != "shadow" else None)
            values = np.zeros(len(ranked.choice.impression.order))
            values[min(t % 4, values.size - 1)] = 1.0
            shown = codec.load_impression(ranked.body)
            model.learner.learn(shown, Feedback(model.learner.feedback, values), np.random.default_rng(t))
        make_learner(tried).load(model.learner.state())
