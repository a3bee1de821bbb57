"""The published model: what ranks. And how learners are made of specs, stored and warmed up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rankloop.core import codec, registry
from rankloop.core.capabilities import Explains, Explanation, InParts, Parts, ScoresByParts, TellsChances, takes_sparse
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized
from rankloop.core.types import Array, Candidates, Feedback, Impression, SparseRows
from rankloop.features.declarations import MOST_DENSE
from rankloop.service.errors import TooSlow
from rankloop.service.ranking import carrying, rules
from rankloop.service.ranking.declared import check_features, is_sparse, width_of
from rankloop.service.ranking.exposure import Choice, Mix, adopted, best_order, choose
from rankloop.service.storage.lineage import Change
from rankloop.wire.basics import Exposure
from rankloop.wire.calls import Contribution
from rankloop.wire.rankers import Spec

WAIT = 0.2  # seconds that one who only looks waits for a learner
WARM_ROUNDS = 6  # of a throw-away learner: enough to meet every kernel, cold and after learning


class Ranked(NamedTuple):
    """A choice, ready to be stored and answered."""

    choice: Choice
    body: bytes
    scores: list[float] | None
    contributions: list[dict[str, Contribution]] | None
    version: str  # the label of the model that ranked
    chances: dict[str, float | None] | None = None  # of each candidate, to stand first; if asked for


class Model:
    """A learner that does not learn, and how far in the log it had come when it was published: the live model, or the
    kept version of that number.

    What ranks is never what learns: the fold has a learner of its own (`learning.fold`) and publishes copies, so that
    nobody waits here for a list to be learned from. Only a learner that is published in parts (`telling.InParts`)
    changes under those who rank; a lock, held for as long as a part is put in, keeps it whole.
    """

    def __init__(self, learner: Learner, spec: Spec, generation: int, learned: int, version: int | None = None) -> None:
        self.learner, self.spec = learner, spec
        self.generation, self.learned, self.version = generation, learned, version
        self._guard = threading.Lock() if isinstance(learner, InParts) else None
        self._local = threading.local()  # the generator that draws is reused, so each thread has its own

    @property
    def label(self) -> str:
        """How answers name this model: `live@` and the outcomes it includes, or `v` and the number of the version."""
        return f"live@{self.learned}" if self.version is None else f"v{self.version}"

    def rank(
        self,
        candidates: Candidates,
        k: int,
        number: int,
        spec: Spec,
        names: Sequence[str] | None,
        mix: Mix | None = None,
        frame: rules.Frame | None = None,
    ) -> Ranked:
        """Rank for impression `number`; `names` of features asks for contributions."""
        try:
            streams: Rng = self._local.streams
        except AttributeError:
            streams = self._local.streams = Rng(self.spec.seed)
        with self._guard or _FREE:
            choice = choose(self.learner, candidates, k, streams.for_event("rank", number), spec, mix)
            if frame is not None:
                own = mix is None and spec.exposure == "full"
                choice = frame.applied(choice, self.learner, candidates, own)
            parts, label = parts_of(self.learner, choice.impression), self.label
        scores = contributions = None
        if parts is not None:
            rows, weights, offsets = parts
            weights = weights if weights.size else np.zeros(rows.shape[1])
            if names and isinstance(rows, SparseRows):
                contributions, scores = _sparse_contributions(names, rows, weights, offsets), parts.scores().tolist()
            elif names:
                products = rows * weights
                contributions = _contributions(names, rows, weights, products, offsets)
                total = products.sum(axis=1)
                scores = (total if offsets is None else total + offsets).tolist()
            else:
                scores = parts.scores().tolist()
        return Ranked(choice, codec.dump_impression(choice.impression), scores, contributions, label)

    def best(self, candidates: Candidates, k: int, exposure: Exposure, displacement: int) -> Array:
        """(k,) what the learner believes best, for a list of another ranker that is mixed with it."""
        with self._guard or _FREE:
            return best_order(self.learner, candidates, k, exposure, displacement)

    def chances(self, candidates: Candidates, spec: Spec) -> dict[str, float | None]:
        """How likely each candidate was to stand first in a list that was not mixed, in the order believed best; None
        where that is not known: of learners that do not say, and where exposure bends what they would show."""
        with self._guard or _FREE:
            order = best_order(self.learner, candidates, candidates.n, "full", 0).tolist()
            known: list[float | None] = [None] * candidates.n
            if spec.exposure == "shadow":
                known = [float(i == 0) for i in range(candidates.n)]
            elif spec.exposure == "full" and isinstance(self.learner, TellsChances):
                known = self.learner.chances(candidates).tolist()
        ids = candidates.items.tolist()
        return {str(ids[i]): known[i] for i in order}

    def adopt(self, candidates: Candidates, k: int, told: dict[str, Array]) -> bytes:
        """A list of the first k candidates that was shown without us, as it is stored; `told` joins its memo."""
        with self._guard or _FREE:
            made = adopted(self.learner, candidates, np.arange(k))
        return codec.dump_impression(made._replace(memo={**made.memo, **told}))

    def take(self, part: Mapping[str, Array], learned: int, patience: float = -1) -> bool:
        """Put in what has been learned since; False if someone looks at the learner for longer than `patience`."""
        assert self._guard is not None
        assert isinstance(self.learner, InParts)
        if not self._guard.acquire(timeout=patience):
            return False
        try:
            self.learner.take(part)
            self.learned = learned
        finally:
            self._guard.release()
        return True

    def state(self) -> tuple[int, bytes]:
        """How far it had come, and its bytes there."""
        with self._guard or _FREE:
            learned, arrays = self.learned, self.learner.state()
        return learned, state_bytes(self.spec, arrays)

    @contextmanager
    def looked_at(self) -> Iterator[Learner]:
        """The learner, for someone who only looks, and quickly: who ranks may wait for it."""
        if self._guard is not None and not self._guard.acquire(timeout=WAIT):
            raise TooSlow("the learner is busy")
        try:
            yield self.learner
        finally:
            if self._guard is not None:
                self._guard.release()

    def explain(self, impression: Impression) -> Explanation | None:
        """What a learner that explains itself says of a list; None for one it cannot tell of: of before a reset, of
        other features, of another learner."""
        try:
            with self.looked_at() as learner:
                return learner.explain(impression) if isinstance(learner, Explains) else None
        except RankloopError:
            return None


_FREE = nullcontext()

BASE_ORDER, THIS_QUERY = "your order", "this query"  # what contributions beside those of the features are called


@cache
def _scores_by_parts(kind: type[Learner]) -> bool:
    """Remembered: to look through a protocol takes as long as to rank a short list."""
    return issubclass(kind, ScoresByParts)


def parts_of(learner: Learner, impression: Impression) -> Parts | None:
    """What the scores of a list are made of, if the learner has scores that are sums."""
    if impression.features is None:
        return None
    if _scores_by_parts(type(learner)):
        parts: Parts = learner.parts(impression)  # type: ignore[attr-defined]
        return parts
    weights = weights_of(learner)
    if weights is None or weights.size not in (0, impression.features.shape[1]):
        return None
    return Parts(impression.features, weights)


def _contributions(
    names: Sequence[str], rows: Array, weights: Array, products: Array, own: Array | None
) -> list[dict[str, Contribution]]:
    """By item and name: value, weight and what they come to; of what is remembered, how much of 1 that is."""
    if rows.shape[1] == len(names) + 1:
        names = [*names, BASE_ORDER]
    found = [
        {n: Contribution(*v) for n, *v in zip(names, row.tolist(), weights.tolist(), part.tolist(), strict=True)}
        for row, part in zip(rows, products, strict=True)
    ]
    return _with_own(found, own)


def _sparse_contributions(
    names: Sequence[str], rows: SparseRows, weights: Array, own: Array | None
) -> list[dict[str, Contribution]]:
    """The same of what is not 0 in a row: of a hundred thousand columns an item has thirty."""
    known = weights[rows.indices]
    parts = zip(
        rows.indices.tolist(), rows.values.tolist(), known.tolist(), (rows.values * known).tolist(), strict=True
    )
    told = [(names[j] if j < len(names) else BASE_ORDER, Contribution(*rest)) for j, *rest in parts]
    starts = rows.indptr.tolist()
    return _with_own([dict(told[a:b]) for a, b in pairwise(starts)], own)


def _with_own(found: list[dict[str, Contribution]], own: Array | None) -> list[dict[str, Contribution]]:
    if own is not None:
        for one, part in zip(found, own.tolist(), strict=True):
            one[THIS_QUERY] = Contribution(1.0, part, part)
    return found


def weights_of(learner: Learner) -> Any:
    """(d,) weights of a linear learner (empty while nothing is learned), else None."""
    return getattr(learner, "theta_", None) if learner.contextual else None


def make_learner(spec: Spec) -> Learner:
    """A fresh learner of a spec; errors name what is wrong with it."""
    learner = plain_learner(spec)
    return standardized(learner) if spec.normalisation == "stream" and learner.contextual else learner


def plain_learner(spec: Spec) -> Learner:
    """The same without the scaler that may stand before it."""
    registry.require_allowed(spec.learner)  # a request imports nothing
    learner = registry.make(spec.learner, **spec.parameters)
    if learner.contextual and not spec.features and not spec.width:
        raise InvalidParameter(f"features is empty, but learner {spec.learner!r} ranks by features; name them")
    if learner.contextual and is_sparse(spec) and not takes_sparse(learner):
        rather = "" if spec.width else f"; or hash into {MOST_DENSE:,} columns in all, for full rows"
        raise InvalidParameter(
            f"the features have {width_of(spec):,} columns, but learner {spec.learner!r} takes no sparse rows; choose "
            f"pairrank or hybrid with parameters {{'confidence': 'diagonal'}}, or squarecb{rather}"
        )
    check_features(spec)
    rules.check(spec)
    return learner


def state_bytes(spec: Spec, arrays: dict[str, Any]) -> bytes:
    """A state with the parts of the spec it is a state of."""
    return codec.dumps(arrays, _meta(spec))


def state_pieces(spec: Spec, arrays: dict[str, Any], size: int) -> Iterator[bytes]:
    """The same, `size` bytes at a time."""
    return codec.pieces(arrays, _meta(spec), size)


def _meta(spec: Spec) -> dict[str, Any]:
    return {"learner": spec.learner, "fixed": msgspec.to_builtins(fixed_part(spec))}


def fresh_state(spec: Spec) -> bytes:
    """The state of a learner that has learned nothing."""
    return state_bytes(spec, make_learner(spec).state())


def fixed_part(spec: Spec) -> dict[str, Any]:
    """What a learned state hangs on: change it and the state means nothing."""
    names = ("learner", "parameters", "features", "normalisation", "seed")
    wide = ("width",) if spec.width else ()  # states of before there was any say nothing of it
    return {name: getattr(spec, name) for name in (*names, *wide)}


def load_learner(spec: Spec, state: bytes, name: str, changes: Sequence[Change] = ()) -> Learner:
    """A learner that goes on from stored bytes, bit for bit. A state with other features or scaling is carried over;
    `changes` of the ranker's spec say which features were renamed since."""
    arrays, meta = codec.loads(state, name)
    after, before = msgspec.to_builtins(fixed_part(spec)), meta.get("fixed")
    if before != after:
        if not isinstance(before, dict) or not after.keys() - {"width"} <= before.keys():
            raise InvalidParameter(f"{name} does not say which spec it belongs to")
        old = _unchecked(before)
        old.load(arrays)
        arrays = carrying.carried_state(old, before, after, changes, name)
    learner = _unchecked(after)
    learner.load(arrays)
    return learner


def _unchecked(fixed: Mapping[str, Any]) -> Learner:
    """A fresh learner of the fixed part of a spec, which was checked when the spec was stored."""
    registry.require_allowed(fixed["learner"])
    learner = registry.make(fixed["learner"], **fixed["parameters"])
    return standardized(learner) if fixed["normalisation"] == "stream" and learner.contextual else learner


def carried_bytes(spec: Spec, state: bytes, name: str, changes: Sequence[Change]) -> bytes:
    """Stored bytes as the state of a learner of this spec; the same bytes if they are of this spec already, or of one
    that nothing carries over from."""
    before, after = codec.loads(state, name)[1].get("fixed"), msgspec.to_builtins(fixed_part(spec))
    if before == after or not isinstance(before, dict) or carrying.refusal(before, after):
        return state
    return state_bytes(spec, load_learner(spec, state, name, changes).state())


def load_model(
    spec: Spec,
    generation: int,
    learned: int,
    state: bytes,
    name: str,
    version: int | None = None,
    changes: Sequence[Change] = (),
) -> Model:
    """The same to rank with: the live model, or the kept version of that number."""
    return Model(load_learner(spec, state, name, changes), spec, generation, learned, version)


def warm(spec: Spec) -> None:
    """Compile or load every kernel that requests of this spec will need, on a throw-away learner."""
    width, sparse, rng = width_of(spec), is_sparse(spec), np.random.default_rng(0)
    n = min(spec.k, 20) + spec.displacement % 20 + 2
    for exposure in ("full", "bounded", "shadow"):
        tried = msgspec.structs.replace(spec, exposure=exposure, timeout_ms=60_000.0)
        model = Model(make_learner(tried), tried, 0, 0)
        for t in range(WARM_ROUNDS):
            rows: Any = None
            if sparse:
                rows = SparseRows(np.arange(n + 1) * 3, rng.integers(0, width, 3 * n), np.ones(3 * n), width)
            elif width:
                rows = rng.random((n, width))
            candidates = Candidates.without_copy("warm", [str(i) for i in range(n)], rows)
            k = min(spec.k, n)
            odds = t % 2 == 0 and exposure == "full"
            mixed = Mix(0, tried.exposure, np.arange(k), rng.random((2, k) if odds else k), odds)
            ranked = model.rank(candidates, spec.k, t, tried, None, mixed if t > 2 and exposure != "shadow" else None)
            values = np.zeros(len(ranked.choice.impression.order))
            values[min(t % 4, values.size - 1)] = 1.0
            shown = codec.load_impression(ranked.body)
            model.learner.learn(shown, Feedback(model.learner.feedback, values), np.random.default_rng(t))
        make_learner(tried).load(model.learner.state())
