"""From the bytes of a rank request to ids and one array of feature values.

`BodyReader.read` tries the fast way for the form of the body (simdjson or a typed msgspec decoder; measured by
`python -m benchmarks parsing`). What they do not accept is read again by `plain`, which
takes every form and says what is wrong. The number of candidates is bounded before any of them is read.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from struct import Struct, error
from typing import Any, NamedTuple

import msgspec
import numpy as np
import simdjson
from msgspec import Raw

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array, Rows, SparseRows
from rankloop.features import hashing
from rankloop.kernels.input_checks import entry_counts
from rankloop.service.errors import OverLimit, UnknownFeature
from rankloop.service.ranking.feature_spec import listed
from rankloop.wire.basics import ItemId
from rankloop.wire.calls import Candidate, RankColumns, RankHead, RankRequest

LARGE = 2**20  # bytes; a larger body is read in pieces and in a thread. A parser keeps 14 times as much memory
LARGE_SPARSE = 32 * 2**10  # bytes; names of hashed features take a hundred times as long to read as numbers
MOST_TYPED = 512  # features; a larger type is slower than a dictionary when rows name them in different orders
MOST_ORDERS = 16  # orders of feature names for which types are kept
MOST_NAMES = 100_000  # hashed names whose columns are remembered
FEW_BESIDE = 64  # objects, or commas, that a body may have beside its candidates, to be read in a fast way
VALUES_BESIDE = 16  # values of a candidate beside its features: its id, its groups, …
SPARSE = ("indptr", "indices", "values")
_FORM = re.compile(rb'"features"\s*:\s*(["\[{])')
_FIRST = re.compile(rb"\{[^{}]*\}")
_BRACKET = ord("[")
_LONGEST = 256  # letters of an id, as in `ItemId`

_request = msgspec.json.Decoder(RankRequest).decode
_columns = msgspec.json.Decoder(RankColumns).decode
_names = msgspec.json.Decoder(dict[str, Raw]).decode


class RequestParts(NamedTuple):
    """A parsed body. Rows are in the order of the ranker's features, with NaN for missing values."""

    head: RankHead
    ids: list[Any]
    rows: Rows


class _Unfit(Exception):
    """The body does not fit a fast way."""


def plain(body: bytes) -> RankRequest | RankColumns:
    """A request of any form; the error for one without a form is that of the most similar form."""
    try:
        fields = _names(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the form's own type names the place
        if len(body) > LARGE:
            raise
        return _request(body) if b'"candidates"' in body else _columns(body)
    if "candidates" in fields and ("ids" in fields or "features" in fields):
        raise msgspec.ValidationError("Object has both `candidates` and `ids` or `features`; send one form")
    if "ids" not in fields and "features" not in fields:
        return _request(body) if len(body) <= LARGE else _request_in_pieces(body)
    return _columns(body)


class _Pieces(RankHead):
    candidates: list[Raw]


_pieces = msgspec.json.Decoder(_Pieces).decode
_candidate = msgspec.json.Decoder(Candidate).decode


def _request_in_pieces(body: bytes) -> RankRequest:
    """`_request`, candidate by candidate, so that other threads run in between."""
    found = _pieces(body)
    if not found.candidates:
        return _request(body)
    candidates = []
    for number, raw in enumerate(found.candidates):
        try:
            candidates.append(_candidate(raw))
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `$")
            raise msgspec.ValidationError(f"{text} - at `$.candidates[{number}]{place.rstrip('`')}`") from None
    head = {name: getattr(found, name) for name in RankHead.__struct_fields__}
    return RankRequest(candidates=candidates, **head)


def check_counts(body: bytes, most: int, values: int | None = None) -> None:
    """Raise `OverLimit` if a body has more than `most` candidates, or more than so many `values` in all.

    >>> check_counts(b'{"candidates": [{"id": 1}, {"id": 2}]}', 2)
    >>> check_counts(b'{"candidates": [{"id": 1}, {"id": 2}, and so on', 1)
    Traceback (most recent call last):
    ...
    rankloop.service.errors.OverLimit: more than 1 candidates; the limit max_candidates is 1: send the best of them
    """
    limit = len(body) + 1 if values is None else values
    entries, found = entry_counts(np.frombuffer(body, np.uint8), most, limit)
    if entries > most:
        raise too_many(most)
    if found > limit:
        raise OverLimit(f"the body has more than {limit:,} values, as many as {most:,} candidates can have; send less")


def too_many(most: int) -> OverLimit:
    """The error for more candidates than the limit."""
    return OverLimit(f"more than {most} candidates; the limit max_candidates is {most}: send the best of them")


def ids_alone(body: bytes) -> RankColumns | None:
    """A valid request with ids and without features, else None."""
    try:
        request = _columns(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return request if request.features is None else None


def joined_rows(packed: Iterable[Any], width: int) -> Array:
    """(n, width) one array of rows of doubles."""
    return np.frombuffer(bytearray().join(packed)).reshape(-1, width)


def unpacked(packed: bytes, ids: int, width: int) -> Array:
    """(ids, width) the rows of packed features, float32 or float64 by their number of bytes."""
    numbers = ids * width
    kind = {numbers * 8: "<f8", numbers * 4: "<f4"}.get(len(packed))
    if kind is None:
        raise InvalidInput(
            f"features are {len(packed):,} bytes; {ids} ids x {width} features are {numbers * 8:,} as float64, "
            f"{numbers * 4:,} as float32: send base64 of little-endian numbers, one row of all features after the other"
        )
    with np.errstate(invalid="ignore"):  # signaling NaN
        return np.frombuffer(packed, dtype=kind).astype(np.float64).reshape(ids, width)


class _Kept(threading.local):
    """A thread's parser: a new one may cost as much as the parsing. It parses only when no result of it exists; those
    end when `read` returns."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_kept = _Kept()


def _parsed(body: bytes) -> Any:
    if len(body) > LARGE:
        return simdjson.Parser().parse(body)
    try:
        return _kept.parser.parse(body)
    except RuntimeError:  # too deep, or a result of the last request still exists
        _kept.parser = simdjson.Parser()
        raise


def _check_few(body: bytes, sign: bytes, most: int) -> None:
    """Refuse a body that may have too many candidates; `sign` occurs at least once for each."""
    if body.count(sign) > most + FEW_BESIDE:
        raise _Unfit


def _few(ids: Any, most: int) -> list[Any]:
    if len(ids) > most:
        raise _Unfit
    return _checked(ids.as_list())


def _head(document: Any, *others: str) -> RankHead:
    """All but the candidates; refuses unknown and repeated fields."""
    fields = {name: document[name] for name in document.keys() if name not in others}  # noqa: SIM118  (not a dictionary)
    if len(fields) + len(others) != len(document):
        raise _Unfit
    return msgspec.convert(fields, RankHead)


def _checked(ids: list[Any]) -> list[Any]:
    """Ids that are valid as `ItemId`: all strings, or all integers."""
    if type(ids[0]) is str:
        "".join(ids)  # fails for anything else
        fine = "" not in ids and max(map(len, ids)) <= _LONGEST
    else:
        fine = set(map(type, ids)) == {int} and max(ids) < 2**63  # simdjson reads none below -2**63
    if not fine:
        raise _Unfit
    return ids


def _check_shape(body: bytes, rows: list[Any], width: int, brackets: int) -> None:
    """Refuse rows of another width, and rows with a list inside, which simdjson would flatten: such a body has more
    opening brackets than its form."""
    if set(map(len, rows)) != {width} or np.count_nonzero(np.frombuffer(body, np.uint8) == _BRACKET) != brackets:
        raise _Unfit


def _table(body: bytes, rows: list[Any], width: int, brackets: int) -> Array:
    """(n, width) the rows as one array."""
    _check_shape(body, rows, width, brackets)
    return joined_rows([row.as_buffer(of_type="d") for row in rows], width)


class SparseReader:
    """Reads rows with `width` hashed columns: by name, or as CSR arrays that the caller hashed.

    A name with "=" is a category and its value (`features.hashing.category_codes`), any other a number.

    >>> reader = SparseReader(1000)
    >>> request = RankRequest(candidates=[Candidate("a", {"brand=acme": 1.0, "price": 0.5})])
    >>> reader.rows(request).indices, reader.rows(request).values
    (array([238, 431], dtype=int32), array([0.5, 1. ]))
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._known: dict[str, int] = {}

    def rows(self, request: RankRequest | RankColumns) -> SparseRows:
        """(n, width) the features of the candidates."""
        if isinstance(request, RankRequest):
            return self._named(request.candidates)
        given: Any = request.features
        if not isinstance(given, dict) or sorted(given) != sorted(SPARSE):
            raise InvalidInput(
                f"this ranker has {self.width:,} columns: send features as an object of indptr, indices and values, or "
                "candidates with features by name"
            )
        numbers = {name: np.array(given[name], dtype=np.float64) for name in SPARSE}  # null becomes nan
        for name in ("indptr", "indices"):
            odd = np.flatnonzero(~(np.floor(numbers[name]) == numbers[name]))
            if odd.size or np.abs(numbers[name]).max(initial=0.0) > 2**53:
                raise InvalidInput(
                    f"{name} has {given[name][odd[0]] if odd.size else 'a huge number'}; give whole numbers"
                )
        indptr, indices = (numbers[name].astype(np.int64) for name in ("indptr", "indices"))
        return SparseRows(indptr, indices, numbers["values"], self.width)

    def _named(self, candidates: Sequence[Candidate]) -> SparseRows:
        starts = [0]
        names: list[str] = []
        values: list[float | None] = []
        for one in candidates:
            given = one.features
            if not isinstance(given, dict):
                raise InvalidInput(
                    f'candidate {one.id!r} has no features by name; send for example {{"brand=acme": 1}}, or {{}} for '
                    "none"
                )
            names += given
            values += given.values()
            starts.append(len(names))
        if None in values:
            at = values.index(None)
            who = candidates[int(np.searchsorted(starts, at, "right")) - 1].id
            raise InvalidInput(f"candidate {who!r}, feature {names[at]!r} has no value; leave it out")
        return SparseRows(np.array(starts), self._columns(names), np.array(values, dtype=np.float64), self.width)

    def _columns(self, names: list[str]) -> Array:
        known = self._known
        new = [name for name in dict.fromkeys(names) if name not in known]
        if new:
            if len(known) + len(new) > MOST_NAMES:
                known = self._known = {}
                new = list(dict.fromkeys(names))
            parts = [name.partition("=") for name in new]
            values: list[str | float] = [value if sign else 1.0 for _, sign, value in parts]
            codes, _ = hashing.codes_of([name for name, _, _ in parts], values)
            known.update(zip(new, hashing.columns(codes, self.width)[0].tolist(), strict=True))
        return np.fromiter(map(known.__getitem__, names), np.int64, len(names))


class BodyReader:
    """Reads the requests of one ranker.

    Parameters
    ----------
    names
        The features that requests send.
    defaults
        Values of features that may be missing.
    width
        Hashed columns; 0: the features have names.
    computed
        Features that the service computes.
    """

    def __init__(
        self, names: Sequence[str], defaults: Mapping[str, float], width: int = 0, computed: Sequence[str] = ()
    ) -> None:
        self.names, self._defaults, self._computed = list(names), dict(defaults), computed
        self._sparse = SparseReader(width) if width else None
        self._width = len(names)
        self._pack = Struct(f"{len(names)}d").pack
        self._places = {name: j for j, name in enumerate(names)}
        self._typed: dict[tuple[int, ...], Callable[[bytes], Any]] = {}
        self._ways: dict[tuple[bool, bytes], Callable[[bytes, int, int], RequestParts]] = {
            (True, b"["): self._fast_rows,
            (True, b"{"): self._fast_named_rows,
            (False, b"["): self._fast_columns,
            (False, b"{"): self._fast_named_columns,
            (False, b'"'): self._fast_packed,
        }

    @property
    def most_inline(self) -> int:
        """Bytes of a body that `read` reads in a few milliseconds; a larger one is read in a thread."""
        return LARGE if self._sparse is None else LARGE_SPARSE

    def read(self, body: bytes, most: int) -> RequestParts:
        """The request in a body of JSON with at most `most` candidates. Safe in any thread."""
        values = most * (len(self.names) + VALUES_BESIDE) + 1000 if self.names else None
        if len(body) > LARGE:
            check_counts(body, most, values)
        parts = self._read_fast(body, most) if self.names else None
        if parts is None:
            if len(body) <= LARGE:
                check_counts(body, most, values)
            alone = ids_alone(body) if self._computed and not self.names and self._sparse is None else None
            parts = self.parts(plain(body)) if alone is None else RequestParts(alone, alone.ids, None)
        if len(parts.ids) > most:
            raise too_many(most)
        return parts

    def parts(self, request: RankRequest | RankColumns) -> RequestParts:
        """The parts of a request that is decoded already."""
        rows: Rows = None
        if self._sparse is not None:
            rows = self._sparse.rows(request)
        elif self.names:
            rows = self._table(request) if isinstance(request, RankColumns) else self._rows(request.candidates)
        ids = request.ids if isinstance(request, RankColumns) else [one.id for one in request.candidates]
        return RequestParts(request, ids, rows)

    def _rows(self, candidates: Sequence[Candidate]) -> Array:
        """(n, d) of candidates that carry their own features, by name or as lists."""
        return joined_rows([self._row(candidate) for candidate in candidates], len(self.names))

    def _row(self, candidate: Candidate) -> bytes:
        given, width = candidate.features, self._width
        if type(given) is dict:
            if self._defaults and len(given) < width:
                given = {**self._defaults, **given}
            try:
                if len(given) != width:
                    raise KeyError
                return self._packed(list(map(given.__getitem__, self.names)))
            except KeyError:
                raise self._misnamed(f"candidate {candidate.id!r}", candidate.features) from None
        if type(given) is list:
            if len(given) != width:
                raise self._wrong_width(candidate.id, len(given))
            return self._packed(given)
        raise InvalidInput(f"candidate {candidate.id!r} has no features; this ranker needs {listed(self.names)}")

    def _table(self, request: RankColumns) -> Array:
        """(n, d) of a table for all candidates: rows, columns by name, or packed."""
        ids, given, width = request.ids, request.features, self._width
        if given is None:
            raise InvalidInput(f"the request has no features; this ranker needs {listed(self.names)}")
        if isinstance(given, bytes):
            return unpacked(given, len(ids), width)
        if isinstance(given, dict):
            if set(self.names) - given.keys() - self._defaults.keys() or given.keys() - set(self.names):
                raise self._misnamed("the request", given)
            rows = np.full((len(ids), width), math.nan)
            for j, name in enumerate(self.names):
                if name in given:
                    if len(column := given[name]) != len(ids):
                        text = f"feature {name!r} has {len(column)} values for {len(ids)} ids; send one each"
                        raise InvalidInput(text)
                    rows[:, j] = np.array(column, dtype=np.float64)  # None becomes NaN
            return rows
        if len(given) != len(ids):
            raise InvalidInput(f"{len(ids)} ids but {len(given)} rows of features; there must be a row for each id")
        for item, row in zip(ids, given, strict=True):
            if len(row) != width:
                raise self._wrong_width(item, len(row))
        return joined_rows(map(self._packed, given), width)

    def _packed(self, row: Sequence[float | None]) -> bytes:
        return self._pack(*(math.nan if value is None else value for value in row) if None in row else row)

    def _wrong_width(self, item: Any, width: int) -> InvalidInput:
        text = f"candidate {item!r} has {width} features, but {len(self.names)} are to be sent"
        return InvalidInput(f"{text}: {listed(self.names, 12)}, in this order, or by name")

    def _misnamed(self, who: str, given: Any) -> UnknownFeature:
        missing = [name for name in self.names if name not in given and name not in self._defaults]
        unknown = [name for name in given if name not in set(self.names)]
        computed = [name for name in self._computed if name in unknown]
        parts = [f"lacks feature {listed(missing)}"] if missing else []
        parts += [f"has unknown feature {listed(unknown)}"] if unknown else []
        more = f"; {listed(computed)} is computed here: leave it out" if computed else ""
        return UnknownFeature(f"{who} {' and '.join(parts)}; the ranker's features are {listed(self.names, 12)}{more}")

    # -- fast ways -------------------------------------------------------------------------------------------------

    def _read_fast(self, body: bytes, most: int) -> RequestParts | None:
        """The parts of a request with at most about `most` candidates; None if `plain` must read it."""
        found = _FORM.search(body)  # a wrong guess, because a query looks like this, only costs time
        if found is None:
            return None
        start = found.start()
        way = self._ways.get((body.find(b'"candidates"', 0, start) >= 0, found[1]))
        if way is None:
            return None
        try:
            return way(body, found.start(1), most)
        except (_Unfit, ValueError, TypeError, LookupError, RuntimeError, error):  # simdjson's, struct's and msgspec's
            return None

    def _fast_rows(self, body: bytes, _: int, most: int) -> RequestParts:
        _check_few(body, b"{", most)
        document = _parsed(body)
        ids, rows = [], []
        for candidate in document["candidates"]:
            if len(candidate) != 2:
                raise _Unfit
            ids.append(candidate["id"])
            rows.append(candidate["features"])
        return RequestParts(_head(document, "candidates"), _checked(ids), _table(body, rows, self._width, len(ids) + 1))

    def _fast_columns(self, body: bytes, _: int, most: int) -> RequestParts:
        document = _parsed(body)
        ids, table = _few(document["ids"], most), document["features"]
        rows = list(table)
        _check_shape(body, rows, self._width, len(ids) + 2)
        if len(rows) != len(ids):
            raise _Unfit
        numbers = np.frombuffer(table.as_buffer(of_type="d"))  # a copy, flattened
        return RequestParts(_head(document, "ids", "features"), ids, numbers.reshape(len(ids), self._width))

    def _fast_named_columns(self, body: bytes, _: int, most: int) -> RequestParts:
        document = _parsed(body)
        ids, given = _few(document["ids"], most), document["features"]
        if len(given) != self._width:
            raise _Unfit
        columns = _table(body, [given[name] for name in self.names], len(ids), self._width + 1)
        return RequestParts(_head(document, "ids", "features"), ids, np.ascontiguousarray(columns.T))

    def _fast_packed(self, body: bytes, _: int, most: int) -> RequestParts:
        _check_few(body, b",", most)
        request = _columns(body)
        if not isinstance(request.features, bytes):
            raise _Unfit
        return RequestParts(request, request.ids, unpacked(request.features, len(request.ids), self._width))

    def _fast_named_rows(self, body: bytes, at: int, most: int) -> RequestParts:
        _check_few(body, b"{", 2 * most)  # one for a candidate, one for its features
        first = _FIRST.match(body, at)
        if first is None or self._width > MOST_TYPED:
            raise _Unfit
        order = tuple(map(self._places.__getitem__, _names(first[0])))
        if all(a < b for a, b in pairwise(order)):  # the ranker's, perhaps with gaps
            order = ()
        decode = self._typed.get(order)
        if decode is None:
            if len(self._typed) >= MOST_ORDERS:
                raise _Unfit
            decode = self._typed[order] = self._decoder(order)
        request = decode(body)
        values = msgspec.structs.astuple
        rows = joined_rows([self._pack(*values(one.features)) for one in request.candidates], self._width)
        if order:
            turned = np.empty_like(rows)
            turned[:, list(order)] = rows
            rows = turned
        return RequestParts(request, [one.id for one in request.candidates], rows)

    def _decoder(self, order: tuple[int, ...]) -> Callable[[bytes], Any]:
        """Decodes into a type with the ranker's features as fields: a row costs half of a dictionary."""
        if order and len(set(order)) != self._width:
            raise _Unfit
        names = [self.names[j] for j in order] if order else self.names
        fields: list[Any] = []
        for j, name in enumerate(names):
            default = self._defaults.get(name)
            fields.append((f"f{j}", float) if default is None else (f"f{j}", float, default))
        how: Any = {"forbid_unknown_fields": True, "gc": False, "kw_only": True}
        rename = {f"f{j}": name for j, name in enumerate(names)}
        features = msgspec.defstruct("Features", fields, rename=rename, **how)
        candidate: Any = msgspec.defstruct("Candidate", [("id", ItemId), ("features", features)], **how)
        request = msgspec.defstruct(
            "Request", [("candidates", list[candidate])], bases=(RankHead,), forbid_unknown_fields=True, kw_only=True
        )
        return msgspec.json.Decoder(request).decode
