"""From a request to the array a learner ranks: features sent or computed, checked, filled, normalised."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from struct import Struct
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
from rankloop.kernels.ragged import minmax_queries
from rankloop.service.errors import UnknownFeature
from rankloop.service.ranking.catalog_cache import Catalog
from rankloop.service.ranking.declared import are_wide, declarations, listed
from rankloop.service.ranking.parsing import (
    LARGE,
    Parts,
    QuickReader,
    check_counts,
    ids_alone,
    joined_rows,
    plain,
    too_many,
    unpacked,
)
from rankloop.service.ranking.sparse_bodies import SparseReader
from rankloop.service.settings import Settings
from rankloop.wire.calls import Candidate, RankColumns, RankHead, RankRequest
from rankloop.wire.rankers import Spec

LARGE_SPARSE = 32 * 2**10  # bytes; names of hashed features take a hundred times as long to read as numbers
MOST_BESIDE = 16  # values of a candidate beside its features: its id, its groups, …


class RankCall(NamedTuple):
    """A request to rank, read and checked; in whatever form it was sent, it looks like this."""

    query: str
    k: int | None
    request_id: str | None
    user: str | None
    ids: list[Any]
    rows: Rows  # (n, d) in the order of the ranker's features, not normalised, or sparse; None if it has none
    token: bool = False  # whether the answer is to have a token for a browser
    sent: Rows = None  # (n, s), or sparse: those of them that the request brought; for rivals that compute others
    fields: Mapping[str, Any] = {}
    context: FeatureContext | None = None  # what declared features were computed from, of all that were sent
    wishes: RankHead | None = None  # where the request has rules of its own: pins, exclusions, quotas
    chances: bool = False  # whether it is to say how likely each candidate was to stand first
    as_shown: bool = False  # whether the list stands as it is, since it was shown already
    deferred: bool = False  # whether the list may never be shown: nothing is learned from it until an event says so

    def only(self, some: Array, k: int | None) -> RankCall:
        """The same of the candidates `some` (m,), in their order, for a list of k."""
        ids = list(map(self.ids.__getitem__, some.tolist()))
        rows, sent = (taken(table, some) for table in (self.rows, self.sent))
        return self._replace(ids=ids, rows=rows, sent=sent, k=k)


class Schema:
    """The features of a ranker: their names, their order, what stands for a missing one, how they are normalised; and
    for those that are declared, how they are computed from the catalog and the request.

    >>> schema = Schema(Spec(features=["bm25", "price"], normalisation="none", defaults={"price": 5.0}))
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
        catalog: Catalog | None = None,
        clock: Callable[[], float] = time.time,
        before: Schema | None = None,
        counters: Counters | None = None,
    ) -> None:
        declared = declarations(spec)
        self.sent = [one.name for one in declared if isinstance(one, Sent)]  # what requests bring
        self.normalisation = spec.normalisation
        self._clock = clock
        self._refuse = spec.unknown == "refuse"
        self._defaults = spec.defaults
        self._fill = np.array([spec.defaults.get(name, math.nan) for name in self.sent])
        self._quick = QuickReader(self.sent, spec.defaults) if self.sent else None
        self._pack = Struct(f"{len(self.sent)}d").pack
        # itemgetter of one name gives a bare value, of several a tuple
        self._pick: Callable[[Any], Any] = (
            itemgetter(*self.sent) if len(self.sent) > 1 else lambda f: (f[self.sent[0]],)
        )
        self._sparse = SparseReader(spec.width) if spec.width else None
        # Full rows are put together of two tables; sparse ones are made at once, so the pipeline has what is sent, too.
        self._wide = are_wide(declared)
        self.names: Sequence[str] = ColumnNames(declared) if self._wide else list(ColumnNames(declared))
        self._pipeline = FeaturePipeline([one for one in declared if self._wide or not isinstance(one, Sent)])
        self._computes = self._pipeline.width > 0
        if before is not None:
            self._pipeline.unknown, self._pipeline.missing = before.counted()
        self._catalog = catalog or Catalog("")
        self._counters = counters or self._pipeline.counters()
        if self._computes:
            self._warm()
        with self._catalog.changing:
            self._pipeline.prepare(self._catalog.items)
        came = [isinstance(one, Sent) for one in declared for _ in range(0 if self._wide else one.width)]
        self._places, self._computed = np.flatnonzero(came), np.flatnonzero(np.logical_not(came))

    @property
    def most_inline(self) -> int:
        """Bytes of a body that `parse` reads in a few milliseconds; a larger one is for `decode`, in a thread."""
        return LARGE if self._sparse is None else LARGE_SPARSE

    def parse(self, body: bytes, most: int = Settings.max_candidates) -> RankCall:
        """The request in a body of JSON, with at most `most` candidates."""
        return self.call(self.decode(body, most))

    def decode(self, body: bytes, most: int = Settings.max_candidates) -> Parts:
        """The first half of `parse`: what the body says. Any thread may do it."""
        values = most * (len(self.sent) + MOST_BESIDE) + 1000 if self.sent else None
        if len(body) > LARGE:
            check_counts(body, most, values)
        parts = None if self._quick is None else self._quick.read(body, most)
        if parts is None:
            if len(body) <= LARGE:
                check_counts(body, most, values)
            alone = ids_alone(body) if self._computes and self._quick is None and self._sparse is None else None
            parts = self._parts(plain(body)) if alone is None else Parts(alone, alone.ids, None)
        if len(parts.ids) > most:
            raise too_many(most)
        return parts

    def call(self, parts: Parts) -> RankCall:
        """The second half of `parse`: values checked, declared features computed."""
        return self._call(parts.head, parts.ids, parts.rows)

    def read(self, request: RankRequest | RankColumns) -> RankCall:
        """The same of a request that is a struct already."""
        return self.call(self._parts(request))

    def _parts(self, request: RankRequest | RankColumns) -> Parts:
        if self._sparse is not None:
            ids = request.ids if isinstance(request, RankColumns) else [one.id for one in request.candidates]
            return Parts(request, ids, self._sparse.rows(request))
        if isinstance(request, RankColumns):
            return Parts(request, request.ids, self._table(request) if self.sent else None)
        rows = self._rows(request.candidates) if self.sent else None
        return Parts(request, [candidate.id for candidate in request.candidates], rows)

    def counted(self) -> tuple[int, Counter[str]]:
        """Ids that the catalog did not have, and values that its items did not have by feature, since last asked."""
        pipeline = self._pipeline
        found = pipeline.unknown, pipeline.missing
        pipeline.unknown, pipeline.missing = 0, Counter()
        return found

    def candidates(self, call: RankCall) -> Candidates:
        """The candidates as learners take them."""
        return self._made(call, call.rows)

    def candidates_for(self, other: Schema, call: RankCall) -> Candidates:
        """The same candidates as another ranker takes them: what it wants sent must have been sent, all else it
        computes by its own declarations."""
        wide, wanted = (0 if one._sparse is None else one._sparse.width for one in (self, other))
        if wide or wanted:
            if wide != wanted:
                raise UnknownFeature(f"requests carry {wide} hashed columns, but the other ranker has {wanted}")
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
        """What counters will need of the items shown once their list is closed; None if nothing is counted.

        A list with pins has notes by the learner on the slots that it filled: those are in the memo.
        """
        if call.context is None or self._counters is None:
            return None
        places = dict(zip(call.context.request.ids, range(call.context.n), strict=True))
        order = np.fromiter(map(places.get, items, repeat(-1)), np.int64, len(items))
        if "slots" in memo and "shares" in memo:
            shares = np.zeros((len(items), len(items)))
            shares[np.ix_(memo["slots"], memo["slots"])] = memo["shares"]
            memo = {**memo, "shares": shares}
        return codec.dumps(self._pipeline.notes(call.context, order, memo))

    def _warm(self) -> None:
        """Compile or load what features will need, before a request waits for it; nothing of it is kept."""
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
        """(n,) by which candidates with the same value of a feature, or of an item's field in the catalog, are known:
        numbers from 0, -1 where there is no value. None: there is no such field, or it holds lists."""
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
        if rows is not None and self.normalisation == "query-minmax":
            rows = rows.copy()  # a rival of other rows may ask for them, too
            minmax_queries(rows, np.array([0, len(rows)]))
        return Candidates.without_copy(call.query, call.ids, rows)

    def _call(self, head: RankHead, ids: list[Any], rows: Rows) -> RankCall:
        """Put together what was read, once its values are found fine."""
        for text in (head.query, head.user, head.request_id):
            if text and "\0" in text:
                raise InvalidInput("query, user and request_id are text; one has the character NUL in it")
        if type(ids[0]) is str and "\0" in "".join([item for item in ids if type(item) is str]):
            raise InvalidInput("an id has the character NUL in it; ids are text")
        if rows is not None and self._sparse is None:
            numbers = rows.reshape(-1)
            with np.errstate(over="ignore", invalid="ignore"):
                fine = np.dot(numbers, numbers) <= LARGEST**2  # one pass; never true of NaN
            if not fine:
                rows = self._filled(ids, rows)
        whole, context = self._complete(head.query, head.user, head.fields, ids, rows)
        wishes = head if head.pinned or head.excluded or head.quotas else None
        asked = (head.query, head.k, head.request_id, head.user)
        return RankCall(*asked, ids, whole, head.token, rows, head.fields, context, wishes)

    def _complete(
        self, query: str, user: str | None, fields: Mapping[str, Any], ids: list[Any], sent: Array | None
    ) -> tuple[Rows, FeatureContext | None]:
        """(n, d) what was sent and what is computed, in the order of the spec, and what it was computed from."""
        if not self._computes:
            return sent, None
        catalog, pipeline = self._catalog, self._pipeline
        with catalog.lock:
            beside = dict(zip(self.sent, sent.T, strict=True)) if self._wide and sent is not None else {}
            request = Request(ids, query, user, self._clock(), fields, beside)
            context = pipeline.context(request, catalog.items, catalog.users, self._counters)
            made: Rows = pipeline.sparse(context) if self._wide else pipeline.rows(context)
        if context.unknown and self._refuse:
            strange = ids[int(np.argmin(context.known))]  # as it was then: it may be there by now
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
        """Defaults where there are no values; what has none, or is too large, is named."""
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

    # -- the forms, from structs -----------------------------------------------------------------------------------

    def _rows(self, candidates: Sequence[Candidate]) -> Array:
        """(n, d) of candidates that carry their own features, by name or as lists."""
        return joined_rows([self._row(candidate) for candidate in candidates], len(self.sent))

    def _row(self, candidate: Candidate) -> bytes:
        given = candidate.features
        if type(given) is dict:
            if self._defaults and len(given) < len(self.sent):
                given = {**self._defaults, **given}
            if len(given) != len(self.sent):
                raise self._misnamed(candidate)
            try:
                values = self._pick(given)
            except KeyError:
                raise self._misnamed(candidate) from None
        elif type(given) is list:
            if len(given) != len(self.sent):
                raise self._wrong_width(candidate.id, len(given))
            values = given
        else:
            raise InvalidInput(f"candidate {candidate.id!r} has no features; this ranker needs {listed(self.sent)}")
        return self._packed(values)

    def _table(self, request: RankColumns) -> Array:
        """(n, d) of a table for all candidates: rows, columns by name, or packed."""
        ids, given, width = request.ids, request.features, len(self.sent)
        if given is None:
            raise InvalidInput(f"the request has no features; this ranker needs {listed(self.sent)}")
        if isinstance(given, bytes):
            return unpacked(given, len(ids), width)
        if isinstance(given, dict):
            return self._columns(ids, given)
        if len(given) != len(ids):
            raise InvalidInput(f"{len(ids)} ids but {len(given)} rows of features; there must be a row for each id")
        for item, row in zip(ids, given, strict=True):
            if len(row) != width:
                raise self._wrong_width(item, len(row))
        return joined_rows(map(self._packed, given), width)

    def _columns(self, ids: Sequence[Any], given: dict[str, list[float | None]]) -> Array:
        missing = [name for name in self.sent if name not in given and name not in self._defaults]
        unknown = [name for name in given if name not in set(self.sent)]
        if missing or unknown:
            raise UnknownFeature(self._misread("the request", missing, unknown))
        rows = np.full((len(ids), len(self.sent)), math.nan)
        for j, name in enumerate(self.sent):
            if name in given:
                if len(column := given[name]) != len(ids):
                    raise InvalidInput(f"feature {name!r} has {len(column)} values for {len(ids)} ids; send one each")
                rows[:, j] = np.array(column, dtype=np.float64)  # None becomes NaN
        return rows

    def _packed(self, row: Sequence[float | None]) -> bytes:
        return self._pack(*(math.nan if value is None else value for value in row) if None in row else row)

    def _wrong_width(self, item: Any, width: int) -> InvalidInput:
        text = f"candidate {item!r} has {width} features, but {len(self.sent)} are to be sent"
        return InvalidInput(f"{text}: {listed(self.sent, 12)}, in this order, or by name")

    def _misnamed(self, candidate: Candidate) -> UnknownFeature:
        given: Any = candidate.features
        missing = [name for name in self.sent if name not in given and name not in self._defaults]
        unknown = [name for name in given if name not in set(self.sent)]
        return UnknownFeature(self._misread(f"candidate {candidate.id!r}", missing, unknown))

    def _misread(self, who: str, missing: Sequence[str], unknown: Sequence[str]) -> str:
        computed = [one.name for one in self._pipeline.declarations if one.name in unknown]
        parts = [f"lacks feature {listed(missing)}"] if missing else []
        parts += [f"has unknown feature {listed(unknown)}"] if unknown else []
        more = f"; {listed(computed)} is computed here: leave it out" if computed else ""
        return f"{who} {' and '.join(parts)}; the ranker's features are {listed(self.sent, 12)}{more}"


def warm() -> None:
    """Compile or load the kernels that count and scale. Every request may pass them, also where its ranker waits for
    its own, and whoever calls a kernel for the first time while others are compiled waits for them: seconds, with all
    that the event loop has to do."""
    minmax_queries(np.zeros((1, 1)), np.array([0, 1]))
    check_counts(b"{}", 1)
