"""A learner in service: its place in the log, the lock that one thread at a time ranks or learns under, its bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rankloop import codec, registry
from rankloop.errors import InvalidParameter, RankloopError
from rankloop.learner import Learner
from rankloop.service.errors import TooSlow
from rankloop.service.ranking.exposure import Choice, Mix, adopted, best_order, choose
from rankloop.service.ranking.features import Schema, check_defaults
from rankloop.service.store.log import Outcome
from rankloop.service.wire.basics import Exposure
from rankloop.service.wire.calls import Contribution, RankColumns
from rankloop.service.wire.rankers import Spec
from rankloop.streams import Streams
from rankloop.telling import Explains, Explanation, Parts, ScoresByParts
from rankloop.types import Array, Candidates, Feedback, Impression

WAIT = 0.2  # seconds between looks whether the lock one waits for was abandoned
WARM_ROUNDS = 6  # of a throw-away learner: enough to meet every kernel, cold and after learning


class Ranked(NamedTuple):
    """A choice, ready to be stored and answered."""

    choice: Choice
    body: bytes
    scores: list[float] | None
    contributions: list[dict[str, Contribution]] | None
    learned: int


class Model:
    """A learner and how far in the log it has come.

    The lock, not copying, keeps a list from being ranked with half-learned arrays: learning takes a fraction of a
    millisecond, copying a state of a million queries would not.
    """

    def __init__(self, learner: Learner, spec: Spec, generation: int, learned: int) -> None:
        self.learner, self.spec = learner, spec
        self.generation, self.learned = generation, learned
        self.lock = threading.Lock()
        self._ranking: object = None  # the impression for which a ranking thread holds the lock
        self._rank_streams, self._learn_streams = Streams(spec.seed), Streams(spec.seed)

    def rank(
        self,
        candidates: Candidates,
        k: int,
        number: int,
        spec: Spec,
        names: list[str] | None,
        mix: Mix | None = None,
    ) -> Ranked:
        """Rank for impression `number`; `names` of features asks for contributions."""
        lock, streams = self.lock, self._rank_streams
        if not lock.acquire(timeout=spec.timeout_ms / 1e3):
            raise TooSlow("the learner is busy")
        self._ranking = number
        try:
            choice = choose(self.learner, candidates, k, streams.at("rank", number), spec, mix)
            parts, learned = parts_of(self.learner, choice.impression), self.learned
        finally:
            if lock is self.lock:
                self._ranking = None
            lock.release()
        scores = contributions = None
        if parts is not None:
            rows, weights, own = parts
            weights = weights if weights.size else np.zeros(rows.shape[1])
            products = rows * weights
            total = products.sum(axis=1)
            scores = (total if own is None else total + own).tolist()
            if names:
                contributions = _contributions(names, rows, weights, products, own)
        return Ranked(choice, codec.dump_impression(choice.impression), scores, contributions, learned)

    def best(
        self, candidates: Candidates, k: int, exposure: Exposure, displacement: int, asked: object, patience: float
    ) -> Array:
        """(k,) what the learner believes best, for a list of another ranker that is mixed with it; `asked` is what
        `abandon` calls that list, `patience` in seconds."""
        lock = self.lock
        if not lock.acquire(timeout=patience):
            raise TooSlow("the learner is busy")
        self._ranking = asked
        try:
            return best_order(self.learner, candidates, k, exposure, displacement)
        finally:
            if lock is self.lock:
                self._ranking = None
            lock.release()

    def adopt(self, candidates: Candidates, k: int, told: dict[str, Array]) -> bytes:
        """A list of the first k candidates that was shown without us, as it is stored; `told` joins its memo."""
        with self._locked():
            made = adopted(self.learner, candidates, np.arange(k))
        return codec.dump_impression(made._replace(memo={**made.memo, **told}))

    def abandon(self, number: object) -> None:
        """If the thread that ranks for impression `number` hangs and holds the lock: ranking changes nothing, so the
        others go on without it."""
        if self._ranking != number:
            return
        self._ranking = None
        self.lock = threading.Lock()
        self._rank_streams = Streams(self.spec.seed)

    def learn(self, outcome: Outcome, epoch: int) -> bool:
        """The next step of the fold; whether something was learned. An outcome that cannot be learned is passed over,
        now as in any replay: `learn` is all or nothing."""
        if outcome.seq != self.learned:
            raise RankloopError(f"outcome {outcome.seq} came where {self.learned} was due; the log has a gap")
        # Place and state move under one lock: a snapshot taken in between would learn this outcome again after a crash.
        due = outcome.seq + 1
        with self._locked():
            try:
                if not outcome.learn or outcome.body is None or outcome.epoch != epoch:
                    return False
                impression = codec.load_impression(outcome.body)
                feedback = Feedback(self.learner.feedback, np.array(outcome.values, dtype=np.float64))
                self.learner.learn(impression, feedback, self._learn_streams.at("learn", outcome.seq))
                return True
            except MemoryError:
                due = outcome.seq  # not the outcome's fault: it will be tried again
                raise
            finally:
                self.learned = due

    def state(self) -> tuple[int, bytes]:
        """How far it has come, and its bytes there."""
        with self._locked():
            learned, arrays = self.learned, self.learner.state()
        return learned, state_bytes(self.spec, arrays)

    @contextmanager
    def looked_at(self) -> Iterator[Learner]:
        """The learner, for someone who only looks: quickly, and never waiting long for one that hangs."""
        lock = self.lock
        if not lock.acquire(timeout=WAIT):
            raise TooSlow("the learner is busy")
        try:
            yield self.learner
        finally:
            lock.release()

    def explain(self, impression: Impression) -> Explanation | None:
        """What a learner that explains itself says of a list; None for one it cannot tell of: of before a reset, of
        other features, of another learner."""
        try:
            with self.looked_at() as learner:
                return learner.explain(impression) if isinstance(learner, Explains) else None
        except RankloopError:
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; one that is abandoned while this thread waits for it may never be free."""
        while True:
            lock = self.lock
            if lock.acquire(timeout=WAIT):
                if lock is self.lock:
                    break
                lock.release()
        try:
            yield
        finally:
            lock.release()


BASE_ORDER, THIS_QUERY = "your order", "this query"  # what contributions beside those of the features are called


def parts_of(learner: Learner, impression: Impression) -> Parts | None:
    """What the scores of a list are made of, if the learner has scores that are sums."""
    if impression.features is None:
        return None
    if isinstance(learner, ScoresByParts):
        return learner.parts(impression)
    weights = weights_of(learner)
    if weights is None or weights.size not in (0, impression.features.shape[1]):
        return None
    return Parts(impression.features, weights)


def _contributions(
    names: list[str], rows: Array, weights: Array, products: Array, own: Array | None
) -> list[dict[str, Contribution]]:
    """By item and name: value, weight and what they come to; of what is remembered, how much of 1 that is."""
    if rows.shape[1] == len(names) + 1:
        names = [*names, BASE_ORDER]
    found = [
        {n: Contribution(*v) for n, *v in zip(names, row.tolist(), weights.tolist(), part.tolist(), strict=True)}
        for row, part in zip(rows, products, strict=True)
    ]
    if own is not None:
        for one, part in zip(found, own.tolist(), strict=True):
            one[THIS_QUERY] = Contribution(1.0, part, part)
    return found


def weights_of(learner: Learner) -> Any:
    """(d,) weights of a linear learner (empty while nothing is learned), else None."""
    return getattr(learner, "theta_", None) if learner.contextual else None


def make_learner(spec: Spec) -> Learner:
    """A fresh learner of a spec; errors name what is wrong with it."""
    registry.require_allowed(spec.learner)  # a request imports nothing
    learner = registry.make(spec.learner, **spec.parameters)
    if learner.contextual and not spec.features:
        raise InvalidParameter(f"features is empty, but learner {spec.learner!r} ranks by features; name them")
    if len(set(spec.features)) != len(spec.features):
        double = next(name for name in spec.features if spec.features.count(name) > 1)
        raise InvalidParameter(f"feature {double!r} stands twice in features; names must be unique")
    check_defaults(spec)
    return learner


def state_bytes(spec: Spec, arrays: dict[str, Any]) -> bytes:
    """A state with the parts of the spec it is a state of."""
    return codec.dumps(arrays, {"learner": spec.learner, "fixed": msgspec.to_builtins(fixed_part(spec))})


def fresh_state(spec: Spec) -> bytes:
    """The state of a learner that has learned nothing."""
    return state_bytes(spec, make_learner(spec).state())


def fixed_part(spec: Spec) -> dict[str, Any]:
    """What a learned state hangs on: change it and the state means nothing."""
    return {name: getattr(spec, name) for name in ("learner", "parameters", "features", "normalisation", "seed")}


def load_model(spec: Spec, generation: int, learned: int, state: bytes, name: str) -> Model:
    """A model that goes on from stored bytes, bit for bit."""
    arrays, meta = codec.loads(state, name)
    if meta.get("fixed") != msgspec.to_builtins(fixed_part(spec)):
        raise InvalidParameter(f"{name} belongs to another spec (learner, parameters, features, normalisation or seed)")
    learner = make_learner(spec)
    learner.load(arrays)
    return Model(learner, spec, generation, learned)


def warm(spec: Spec) -> None:
    """Compile or load every kernel that requests of this spec will need, on a throw-away learner."""
    schema, rng = Schema(spec), np.random.default_rng(0)
    n = min(spec.k, 20) + spec.displacement % 20 + 2
    for exposure in ("full", "bounded", "shadow"):
        tried = msgspec.structs.replace(spec, exposure=exposure, timeout_ms=60_000.0)
        model = Model(make_learner(tried), tried, 0, 0)
        for t in range(WARM_ROUNDS):
            rows = rng.random((n, len(spec.features))).tolist() if spec.features else None
            call = schema.read(RankColumns(ids=[str(i) for i in range(n)], features=rows, query="warm"))
            candidates = schema.candidates(call)
            k = min(spec.k, n)
            odds = t % 2 == 0 and exposure == "full"
            mixed = Mix(0, tried.exposure, np.arange(k), rng.random((2, k) if odds else k), odds)
            ranked = model.rank(candidates, spec.k, t, tried, None, mixed if t > 2 and exposure != "shadow" else None)
            values = [0.0] * len(ranked.choice.impression.order)
            values[min(t % 4, len(values) - 1)] = 1.0
            model.learn(Outcome(t, True, 0, ranked.body, values), 0)
        model.state()
