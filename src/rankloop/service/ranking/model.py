"""The published model, which ranks; and how learners are made from specs, stored and loaded."""

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
from rankloop.core.capabilities import (
    Explanation,
    LinearScores,
    Observable,
    ScoreTerms,
    StateDeltas,
    first_place_probabilities,
    report_of,
)
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized
from rankloop.core.types import Array, Candidates, Impression, Rows, SparseRows
from rankloop.features.declarations import MOST_DENSE
from rankloop.service.errors import TooSlow
from rankloop.service.ranking import spec_changes
from rankloop.service.ranking.exposure import Choice, Interleaving, adopted, best_order, choose
from rankloop.service.ranking.feature_spec import check_features, is_sparse, width_of
from rankloop.service.ranking.placement import PlacementConstraints, check_rules
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.rankers import current_names
from rankloop.wire.basics import Exposure
from rankloop.wire.calls import Contribution
from rankloop.wire.rankers import Spec

WAIT = 0.2  # seconds that a reader waits for a learner
BASELINE, THIS_QUERY = "baseline", "this query"  # the names of contributions beside those of features
_FREE = nullcontext()


class Ranked(NamedTuple):
    """A choice, ready to be stored and answered."""

    choice: Choice
    body: bytes
    scores: list[float] | None
    contributions: list[dict[str, Contribution]] | None
    version: str  # the label of the model that ranked
    chances: dict[str, float | None] | None = None  # the probability that each candidate is first, if requested


class PublishedModel:
    """A published learner, which does not learn: the live model after `learned` outcomes, or a kept version.

    The learner that learns is another object (`training.fold`), which publishes copies. Only a learner that is
    published by deltas changes while it ranks; a lock guards it while a delta is applied.
    """

    def __init__(self, learner: Learner, spec: Spec, generation: int, learned: int, version: int | None = None) -> None:
        self.learner, self.spec = learner, spec
        self.generation, self.learned, self.version = generation, learned, version
        self._guard = threading.Lock() if isinstance(learner, StateDeltas) else None
        self._local = threading.local()  # the generator is reused, so each thread has its own

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
        rival: Interleaving | None = None,
        constraints: PlacementConstraints | None = None,
    ) -> Ranked:
        """Rank for impression `number`; feature `names` request contributions."""
        try:
            streams: Rng = self._local.streams
        except AttributeError:
            streams = self._local.streams = Rng(self.spec.seed)
        with self._guard or _FREE:
            choice = choose(self.learner, candidates, k, streams.for_event("rank", number), spec, rival)
            if constraints is not None:
                own = rival is None and spec.exposure == "full"
                choice = constraints.applied(choice, self.learner, candidates, own)
            parts, label = score_terms(self.learner, choice.impression), self.label
        scores = contributions = None
        if parts is not None:
            scores = parts.scores().tolist()
            if names:
                rows, weights, offsets = parts
                weights = weights if weights.size else np.zeros(rows.shape[1])
                contributions = _contributions(names, rows, weights, offsets)
        return Ranked(choice, codec.dump_impression(choice.impression), scores, contributions, label)

    def best(self, candidates: Candidates, k: int, exposure: Exposure, displacement: int) -> Array:
        """(k,) the learner's best order, for a ranking of another ranker that is interleaved with it."""
        with self._guard or _FREE:
            return best_order(self.learner, candidates, k, exposure, displacement)

    def chances(self, candidates: Candidates, spec: Spec) -> dict[str, float | None]:
        """The probability that each candidate is first, in the best order; None where it is unknown: for learners that
        do not report it, and where exposure changes what they would show."""
        with self._guard or _FREE:
            order = best_order(self.learner, candidates, candidates.n, "full", 0).tolist()
            known: list[float | None] = [None] * candidates.n
            if spec.exposure == "shadow":
                known = [float(i == 0) for i in range(candidates.n)]
            elif spec.exposure == "full":
                known = first_place_probabilities(self.learner, candidates)
        ids = candidates.items.tolist()
        return {str(ids[i]): known[i] for i in order}

    def adopt(self, candidates: Candidates, k: int, memo: dict[str, Array]) -> bytes:
        """The stored form of a ranking of the first k candidates that someone else showed, with more for its memo."""
        with self._guard or _FREE:
            made = adopted(self.learner, candidates, np.arange(k))
        return codec.dump_impression(made._replace(memo={**made.memo, **memo}))

    def apply_delta(self, delta: Mapping[str, Array], learned: int, patience: float = -1) -> bool:
        """Apply a state delta; False if someone reads the learner for longer than `patience` seconds."""
        assert self._guard is not None
        assert isinstance(self.learner, StateDeltas)
        if not self._guard.acquire(timeout=patience):
            return False
        try:
            self.learner.apply_delta(delta)
            self.learned = learned
        finally:
            self._guard.release()
        return True

    def state(self) -> tuple[int, bytes]:
        """How many outcomes it includes, and its state."""
        with self._guard or _FREE:
            learned, arrays = self.learned, self.learner.state()
        return learned, state_bytes(self.spec, arrays)

    @contextmanager
    def locked(self) -> Iterator[Learner]:
        """The learner, to read it quickly: requests may wait."""
        if self._guard is not None and not self._guard.acquire(timeout=WAIT):
            raise TooSlow("the learner is busy")
        try:
            yield self.learner
        finally:
            if self._guard is not None:
                self._guard.release()

    def explain(self, impression: Impression) -> Explanation | None:
        """The learner's explanation of a ranking; None if it has none, or the ranking is from before a reset, of other
        features or of another learner."""
        try:
            with self.locked() as learner:
                return learner.explain(impression) if isinstance(learner, Observable) else None
        except RankloopError:
            return None


@cache
def _has_score_terms(kind: type[Learner]) -> bool:
    """Cached: checking a protocol takes as long as ranking a short list."""
    return issubclass(kind, LinearScores)


def score_terms(learner: Learner, impression: Impression) -> ScoreTerms | None:
    """The terms of the scores of a ranking, if the learner's scores are sums."""
    if impression.features is None:
        return None
    if _has_score_terms(type(learner)):
        terms: ScoreTerms = learner.score_terms(impression)  # type: ignore[attr-defined]
        return terms
    weights = weights_of(learner)
    if weights is None or weights.size not in (0, impression.features.shape[1]):
        return None
    return ScoreTerms(impression.features, weights)


def _contributions(
    names: Sequence[str], rows: Rows, weights: Array, own: Array | None
) -> list[dict[str, Contribution]]:
    """By item and name: value, weight and product. Sparse rows have only what is not 0."""
    if isinstance(rows, SparseRows):
        columns = [names[j] if j < len(names) else BASELINE for j in rows.indices.tolist()]
        values, used, ends = rows.values, weights[rows.indices], rows.indptr.tolist()
    else:
        assert rows is not None
        n, d = rows.shape
        columns = [*names, BASELINE][:d] * n
        values, used, ends = rows.ravel(), np.tile(weights, n), list(range(0, n * d + 1, d))
    each = zip(values.tolist(), used.tolist(), (values * used).tolist(), strict=True)
    named = list(zip(columns, [Contribution(*one) for one in each], strict=True))
    found = [dict(named[a:b]) for a, b in pairwise(ends)]
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
    return standardized(learner) if spec.normalization == "stream" and learner.contextual else learner


def plain_learner(spec: Spec) -> Learner:
    """A fresh learner of a spec, without the scaler that may precede it."""
    registry.require_allowed(spec.learner)  # a request imports nothing
    learner = registry.make(spec.learner, **spec.parameters)
    if learner.contextual and not spec.features and not spec.width:
        raise InvalidParameter(f"features is empty, but learner {spec.learner!r} ranks by features; name them")
    if learner.contextual and is_sparse(spec) and not report_of(learner).sparse:
        rather = "" if spec.width else f"; or hash into {MOST_DENSE:,} columns in all, for full rows"
        raise InvalidParameter(
            f"the features have {width_of(spec):,} columns, but learner {spec.learner!r} takes no sparse rows; choose "
            f"pairrank or hybrid with parameters {{'confidence': 'diagonal'}}, or squarecb{rather}"
        )
    check_features(spec)
    check_rules(spec)
    return learner


def state_bytes(spec: Spec, arrays: dict[str, Any]) -> bytes:
    """A state with the parts of the spec that it belongs to."""
    return codec.dumps(arrays, _meta(spec))


def state_pieces(spec: Spec, arrays: dict[str, Any], size: int) -> Iterator[bytes]:
    """`state_bytes`, `size` bytes at a time."""
    return codec.pieces(arrays, _meta(spec), size)


def _meta(spec: Spec) -> dict[str, Any]:
    return {"learner": spec.learner, "fixed": msgspec.to_builtins(fixed_part(spec))}


def fresh_state(spec: Spec) -> bytes:
    """The state of a learner that has learned nothing."""
    return state_bytes(spec, make_learner(spec).state())


def fixed_part(spec: Spec) -> dict[str, Any]:
    """The fields of a spec that a learned state depends on."""
    names = ("learner", "parameters", "features", "normalization", "seed")
    wide = ("width",) if spec.width else ()  # states of rankers without a width do not have the field
    return {name: getattr(spec, name) for name in (*names, *wide)}


def stored_part(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fixed part of the spec of a stored state; None if it has none."""
    fixed = meta.get("fixed")
    return current_names(fixed) if isinstance(fixed, dict) else None


def load_learner(spec: Spec, state: bytes, name: str, changes: Sequence[RecordedChange] = ()) -> Learner:
    """A learner that continues from stored bytes, bit for bit. A state with other features or scaling is carried over;
    `changes` of the ranker's spec name the features renamed since."""
    arrays, meta = codec.loads(state, name)
    after, before = msgspec.to_builtins(fixed_part(spec)), stored_part(meta)
    if before != after:
        if before is None or not after.keys() - {"width"} <= before.keys():
            raise InvalidParameter(f"{name} does not name the spec it belongs to; restore an intact copy")
        old = unchecked_learner(before)
        old.load(arrays)
        arrays = spec_changes.carried_state(old, before, after, changes, name)
    learner = unchecked_learner(after)
    learner.load(arrays)
    return learner


def unchecked_learner(fixed: Mapping[str, Any]) -> Learner:
    """A fresh learner of the fixed part of a spec, which was checked when the spec was stored."""
    registry.require_allowed(fixed["learner"])
    learner = registry.make(fixed["learner"], **fixed["parameters"])
    return standardized(learner) if fixed["normalization"] == "stream" and learner.contextual else learner


def carried_bytes(spec: Spec, state: bytes, name: str, changes: Sequence[RecordedChange]) -> bytes:
    """Stored bytes as the state of a learner of this spec; the same bytes if they belong to this spec already, or to
    one from which nothing carries over."""
    meta, after = codec.loads(state, name)[1], msgspec.to_builtins(fixed_part(spec))
    before = stored_part(meta)
    if meta.get("fixed") == after or before is None or spec_changes.differences(before, after):
        return state
    return state_bytes(spec, load_learner(spec, state, name, changes).state())


def load_model(
    spec: Spec,
    generation: int,
    learned: int,
    state: bytes,
    name: str,
    version: int | None = None,
    changes: Sequence[RecordedChange] = (),
) -> PublishedModel:
    """The live model, or a kept version, from stored bytes."""
    return PublishedModel(load_learner(spec, state, name, changes), spec, generation, learned, version)
