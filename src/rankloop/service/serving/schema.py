"""The features of a ranker: from a parsed request to Candidates, with values checked, computed and normalized."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from rankloop.core import codec
from rankloop.core.errors import InvalidInput
from rankloop.core.types import LARGEST, Array, Candidates, Rows, taken
from rankloop.features.context import FeatureContext, Request
from rankloop.features.counters import CountedOutcome, Counters
from rankloop.features.declarations import ColumnNames, Sent
from rankloop.features.pipeline import FeaturePipeline
from rankloop.features.table import Table
from rankloop.kernels.scaling import minmax_queries
from rankloop.service.errors import UnknownFeature
from rankloop.service.ranking.feature_spec import are_wide, declarations, listed
from rankloop.service.ranking.placement import NO_WISHES, PlacementConstraints, constrain
from rankloop.service.serving.catalog_cache import CachedCatalog
from rankloop.service.serving.request_body import BodyReader, RequestParts
from rankloop.service.settings import Settings
from rankloop.wire.calls import RankColumns, RankHead, RankRequest
from rankloop.wire.rankers import Spec


class RankCall(NamedTuple):
    """A request to rank, read and checked, independent of the form in which it was sent."""

    query: str
    k: int | None
    request_id: str | None
    user: str | None
    ids: list[Any]
    rows: Rows  # (n, d) in the order of the ranker's features, not normalized, or sparse; None if it has none
    token: bool = False  # whether the answer includes a token for a browser
    sent: Rows = None  # (n, s), or sparse: the columns that the request sent; a rival may compute others
    fields: Mapping[str, Any] = {}
    context: FeatureContext | None = None  # what declared features were computed from, for all candidates sent
    wishes: RankHead | None = None  # pins, exclusions and quotas of the request, if it has some
    chances: bool = False  # whether the answer includes the probability that each candidate is first
    as_shown: bool = False  # whether the ranking was shown already and stays as it is
    deferred: bool = False  # whether it may never be shown: nothing is learned until an event says that it was

    def only(self, some: Array, k: int | None) -> RankCall:
        """The call with the candidates `some` (m,), in their order, for a ranking of k."""
        ids = list(map(self.ids.__getitem__, some.tolist()))
        rows, sent = (taken(table, some) for table in (self.rows, self.sent))
        return self._replace(ids=ids, rows=rows, sent=sent, k=k)


class Schema:
    """The features of a ranker: their names and order, defaults, normalization, and how declared ones are computed from
    the catalog and the request.

    >>> schema = Schema(Spec(features=["bm25", "price"], normalization="none", defaults={"price": 5.0}))
    >>> schema.parse(b'{"candidates": [{"id": "a", "features": {"price": 2, "bm25": 7.5}}]}').rows
    array([[7.5, 2. ]])
    >>> schema.parse(b'{"ids": ["a", "b"], "features": [[7.5, 2], [3, null]]}').rows
    array([[7.5, 2. ],
           [3. , 5. ]])
    >>> schema.parse(b'{"ids": ["a"], "features": {"price": [2.0]}}')
    Traceback (most recent call last):
    ...
    rankloop.service.errors.UnknownFeature: the request lacks feature 'bm25'; the ranker's features are 'bm25', 'price'
    """

    def __init__(
        self,
        spec: Spec,
        catalog: CachedCatalog | None = None,
        clock: Callable[[], float] = time.time,
        before: Schema | None = None,
        counters: Counters | None = None,
    ) -> None:
        declared = declarations(spec)
        self.sent = [one.name for one in declared if isinstance(one, Sent)]  # what requests bring
        self.normalization = spec.normalization
        self._clock = clock
        self._refuse = spec.unknown == "refuse"
        self._fill = np.array([spec.defaults.get(name, math.nan) for name in self.sent])
        computed = [one.name for one in declared if not isinstance(one, Sent)]
        self.body = BodyReader(self.sent, spec.defaults, spec.width, computed)
        self._width = spec.width  # of hashed columns
        # Full rows are joined from two tables; sparse ones are made at once, so the pipeline includes what is sent.
        self._wide = are_wide(declared)
        self.names: Sequence[str] = ColumnNames(declared) if self._wide else list(ColumnNames(declared))
        self._pipeline = FeaturePipeline([one for one in declared if self._wide or not isinstance(one, Sent)])
        self._computes = self._pipeline.width > 0
        if before is not None:
            self._pipeline.unknown, self._pipeline.missing = before.counted()
        self._catalog = catalog or CachedCatalog("")
        self._counters = counters or self._pipeline.counters()
        if self._computes:
            self._compile()
        with self._catalog.changing:
            self._pipeline.prepare(self._catalog.items)
        came = [isinstance(one, Sent) for one in declared for _ in range(0 if self._wide else one.width)]
        self._places, self._computed = np.flatnonzero(came), np.flatnonzero(np.logical_not(came))

    def parse(self, body: bytes, most: int = Settings.max_candidates) -> RankCall:
        """The request in a body of JSON with at most `most` candidates."""
        return self.call(self.body.read(body, most))

    def read(self, request: RankRequest | RankColumns) -> RankCall:
        """The call for a request that is decoded already."""
        return self.call(self.body.parts(request))

    def call(self, parts: RequestParts) -> RankCall:
        """Check the values of a parsed request and compute its declared features."""
        head, ids, rows = parts
        for text in (head.query, head.user, head.request_id):
            if text and "\0" in text:
                raise InvalidInput("query, user and request_id are text; one has the character NUL in it")
        if type(ids[0]) is str and "\0" in "".join([item for item in ids if type(item) is str]):
            raise InvalidInput("an id has the character NUL in it; ids are text")
        if rows is not None and not self._width:
            numbers = rows.reshape(-1)
            with np.errstate(over="ignore", invalid="ignore"):
                fine = np.dot(numbers, numbers) <= LARGEST**2  # one pass; never true of NaN
            if not fine:
                rows = self._filled(ids, rows)
        complete, context = self._complete(head.query, head.user, head.fields, ids, rows)
        wishes = head if head.pinned or head.excluded or head.quotas else None
        asked = (head.query, head.k, head.request_id, head.user)
        return RankCall(*asked, ids, complete, head.token, rows, head.fields, context, wishes)

    def constrain(self, call: RankCall, spec: Spec) -> tuple[RankCall, PlacementConstraints | None]:
        """The call without what pins, exclusions and quotas decide, and these constraints."""
        signed = call.request_id is not None
        wishes, groups = call.wishes or NO_WISHES, lambda field: self.groups(field, call)
        some, k, constraints = constrain(call.ids, call.k, wishes, spec, groups, signed)
        return call.only(some, k), constraints

    def counted(self) -> tuple[int, Counter[str]]:
        """Ids unknown to the catalog, and missing values by feature, since the last call."""
        pipeline = self._pipeline
        found = pipeline.unknown, pipeline.missing
        pipeline.unknown, pipeline.missing = 0, Counter()
        return found

    def candidates(self, call: RankCall) -> Candidates:
        """The candidates, normalized."""
        return self._made(call, call.rows)

    def candidates_for(self, other: Schema, call: RankCall) -> Candidates:
        """The candidates for another ranker: it computes its own declared features, and the rest must have been
        sent."""
        if self._width or other._width:
            if self._width != other._width:
                raise UnknownFeature(
                    f"requests carry {self._width} hashed columns, but the other ranker has {other._width}"
                )
            return other._made(call, call.rows)
        missing = [name for name in other.sent if name not in self.sent]
        if missing:
            raise UnknownFeature(f"requests carry {listed(self.sent, 12)}, but not {listed(missing)}")
        sent = None
        if other.sent:
            assert call.sent is not None
            sent = np.ascontiguousarray(call.sent[:, [self.sent.index(name) for name in other.sent]])
        return other._made(call, other._complete(call.query, call.user, call.fields, call.ids, sent)[0])

    def notes(self, call: RankCall, items: Sequence[Any], memo: Mapping[str, Array]) -> bytes | None:
        """What counters need of the items shown once the impression is closed; None if nothing is counted."""
        if call.context is None or self._counters is None:
            return None
        places = dict(zip(call.context.request.ids, range(call.context.n), strict=True))
        order = np.fromiter(map(places.get, items, repeat(-1)), np.int64, len(items))
        if "slots" in memo and "shares" in memo:
            shares = np.zeros((len(items), len(items)))
            shares[np.ix_(memo["slots"], memo["slots"])] = memo["shares"]
            memo = {**memo, "shares": shares}
        return codec.dumps(self._pipeline.notes(call.context, order, memo))

    def _compile(self) -> None:
        """Compile or load the kernels of features before a request waits for them, with values that are not kept."""
        pipeline = FeaturePipeline(self._pipeline.declarations)
        counters = pipeline.counters()
        sent = dict.fromkeys(self.sent, np.zeros(1))
        context = pipeline.context(Request(["?"], "?", "?", self._clock(), sent=sent), Table(), None, counters)
        compute = pipeline.sparse if self._wide else pipeline.rows
        compute(context)
        if counters is not None:
            counters.fold(CountedOutcome(0.0, np.ones(1), pipeline.notes(context, np.zeros(1, np.int64), {})))
            compute(context)

    def groups(self, field: str, call: RankCall) -> Array | None:
        """(n,) numbers from 0, equal for candidates with the same value of a feature or catalog field; -1: no value.
        None: there is no such field, or it holds lists."""
        if isinstance(call.rows, np.ndarray) and field in self.names:
            return np.unique(call.rows[:, self.names.index(field)], return_inverse=True)[1].astype(np.int64)
        with self._catalog.lock:
            items = self._catalog.items
            if self._catalog.name and not len(items):  # nothing is uploaded yet, so nobody has a value
                return np.full(len(call.ids), -1, np.int64)
            if field not in items.fields or items.fields[field].kind in ("strings", "vector"):
                return None
            rows = items.rows(call.ids)
            values = items.numbers(field)[rows] if items.place(field) >= 0 else items.strings(field).codes[rows]
        there = (rows >= 0) & (~np.isnan(values) if values.dtype.kind == "f" else values >= 0)
        found = np.full(len(call.ids), -1, np.int64)
        found[there] = np.unique(values[there], return_inverse=True)[1]
        return found

    def _made(self, call: RankCall, rows: Rows) -> Candidates:
        if rows is not None and self.normalization == "query-minmax":
            rows = rows.copy()  # a rival of other rows may ask for them, too
            minmax_queries(rows, np.array([0, len(rows)]))
        return Candidates.without_copy(call.query, call.ids, rows)

    def _complete(
        self, query: str, user: str | None, fields: Mapping[str, Any], ids: list[Any], sent: Array | None
    ) -> tuple[Rows, FeatureContext | None]:
        """(n, d) the values sent and computed, in the order of the spec, and the context they were computed from."""
        if not self._computes:
            return sent, None
        catalog, pipeline = self._catalog, self._pipeline
        with catalog.lock:
            beside = dict(zip(self.sent, sent.T, strict=True)) if self._wide and sent is not None else {}
            request = Request(ids, query, user, self._clock(), fields, beside)
            context = pipeline.context(request, catalog.items, catalog.users, self._counters)
            made: Rows = pipeline.sparse(context) if self._wide else pipeline.rows(context)
        if context.unknown and self._refuse:
            strange = ids[int(np.argmin(context.known))]
            raise InvalidInput(
                f"id {strange!r} is not in catalog {catalog.name!r}, and the ranker's spec says unknown=refuse; "
                "upload it, or leave it out"
            )
        if sent is None or self._wide:
            return made, context
        rows = np.empty((len(ids), len(self.names)))
        rows[:, self._places] = sent
        rows[:, self._computed] = made
        return rows, context

    def _filled(self, ids: Sequence[Any], rows: Array) -> Array:
        """Rows with defaults for missing values; raises for what has none, or is too large."""
        rows = np.where(np.isnan(rows), self._fill, rows)
        if not (fine := np.abs(rows) <= LARGEST).all():
            i, j = (int(v) for v in np.argwhere(~fine)[0])
            who = f"candidate {ids[i]!r}, feature {self.sent[j]!r}"
            if np.isnan(rows[i, j]):
                raise InvalidInput(
                    f"{who} has no value (null, or NaN), and the ranker's spec declares no default "
                    "for it; send a number, or put the feature into `defaults`"
                )
            raise InvalidInput(f"{who} is {rows[i, j]}; features must be finite numbers within ±{LARGEST:g}")
        return rows
