"""From the bytes of a request to rank to ids and one array, in the quickest way for the form it has.

Which way that is was measured (`python -m benchmarks.parsing`, docs/service.md has the table): simdjson for rows and
columns of numbers, which it copies into a buffer without making a Python object of each; msgspec for features by name,
with a type made of the ranker's names, and for packed features, whose base64 it undoes itself. None of these ways
explains anything. What they do not take, for whatever reason, is read again by `plain`, which takes every form and says
what is wrong: so all ways together take exactly what `plain` does, and errors read the same whatever was tried before.

The number of candidates is bounded before any of them is read. The quick ways look at counts that cost next to nothing
and leave a body with too many to `check_counts`, which stops at the first candidate over the limit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from struct import Struct, error
from typing import Any, NamedTuple

import msgspec
import numpy as np
import simdjson
from msgspec import Raw

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Array, Rows
from rankloop.kernels.json_counts import entry_counts
from rankloop.service.errors import OverLimit
from rankloop.wire.basics import ItemId
from rankloop.wire.calls import Candidate, RankColumns, RankHead, RankRequest

MOST_TYPED = 512  # features; a type of more is slower than a dictionary when rows name them in different orders
MOST_ORDERS = 16  # in which callers name features, for which types are kept
MOST_KEPT = 2**20  # bytes; a parser keeps some fourteen times as much memory as the largest body it has read
MOST_BESIDE = 64  # objects, or commas, that a body may have beside its candidates, to be read in a quick way
LARGE = MOST_KEPT  # bytes; a larger body is read in pieces, and in a thread (`engine`)
_FORM = re.compile(rb'"features"\s*:\s*(["\[{])')
_FIRST = re.compile(rb"\{[^{}]*\}")
_BRACKET = ord("[")
_LONGEST = 256  # letters of an id, as `ItemId` says

_request = msgspec.json.Decoder(RankRequest).decode
_columns = msgspec.json.Decoder(RankColumns).decode
_names = msgspec.json.Decoder(dict[str, Raw]).decode


class Parts(NamedTuple):
    """A request, taken apart. Rows are in the order of the ranker's names; NaN is where no value was."""

    head: RankHead
    ids: list[Any]
    rows: Rows


class _Other(Exception):
    """Not for this way."""


class QuickReader:
    """Reads the requests of one ranker, or says that another must."""

    def __init__(self, names: Sequence[str], defaults: dict[str, float]) -> None:
        self.names, self._defaults, self._width = list(names), defaults, len(names)
        self._places = {name: j for j, name in enumerate(names)}
        self._pack = Struct(f"{self._width}d").pack
        self._typed: dict[tuple[int, ...], Callable[[bytes], Any]] = {}
        self._ways: dict[tuple[bool, bytes], Callable[[bytes, int, int], Parts]] = {
            (True, b"["): self._rows,
            (True, b"{"): self._named_rows,
            (False, b"["): self._columns,
            (False, b"{"): self._named_columns,
            (False, b'"'): self._packed,
        }

    def read(self, body: bytes, most: int) -> Parts | None:
        """The parts of a request with at most about `most` candidates; None if another way has to look at it."""
        found = _FORM.search(body)  # a guess, which costs time if a query or an id looks like this, and nothing else
        if found is None:
            return None
        start = found.start()
        way = self._ways.get((body.find(b'"candidates"', 0, start) >= 0, found[1]))
        if way is None:
            return None
        try:
            return way(body, found.start(1), most)
        except (_Other, ValueError, TypeError, LookupError, RuntimeError, error):  # simdjson's, struct's and msgspec's
            return None

    def _rows(self, body: bytes, _: int, most: int) -> Parts:
        _check_few(body, b"{", most)
        document = _parsed(body)
        ids, rows = [], []
        for candidate in document["candidates"]:
            if len(candidate) != 2:
                raise _Other
            ids.append(candidate["id"])
            rows.append(candidate["features"])
        return Parts(_head(document, "candidates"), _checked(ids), _table(body, rows, self._width, len(ids) + 1))

    def _columns(self, body: bytes, _: int, most: int) -> Parts:
        document = _parsed(body)
        ids, table = _few(document["ids"], most), document["features"]
        rows = list(table)
        _check_shape(body, rows, self._width, len(ids) + 2)
        if len(rows) != len(ids):
            raise _Other
        numbers = np.frombuffer(table.as_buffer(of_type="d"))  # a copy, flattened
        return Parts(_head(document, "ids", "features"), ids, numbers.reshape(len(ids), self._width))

    def _named_columns(self, body: bytes, _: int, most: int) -> Parts:
        document = _parsed(body)
        ids, given = _few(document["ids"], most), document["features"]
        if len(given) != self._width:
            raise _Other
        columns = _table(body, [given[name] for name in self.names], len(ids), self._width + 1)
        return Parts(_head(document, "ids", "features"), ids, np.ascontiguousarray(columns.T))

    def _packed(self, body: bytes, _: int, most: int) -> Parts:
        _check_few(body, b",", most)
        request = _columns(body)
        if not isinstance(request.features, bytes):
            raise _Other
        return Parts(request, request.ids, unpacked(request.features, len(request.ids), self._width))

    def _named_rows(self, body: bytes, at: int, most: int) -> Parts:
        _check_few(body, b"{", 2 * most)  # one for a candidate, one for its features
        first = _FIRST.match(body, at)
        if first is None or self._width > MOST_TYPED:
            raise _Other
        order = tuple(map(self._places.__getitem__, _names(first[0])))
        if all(a < b for a, b in pairwise(order)):  # the ranker's, perhaps with gaps
            order = ()
        decode = self._typed.get(order)
        if decode is None:
            if len(self._typed) >= MOST_ORDERS:
                raise _Other
            decode = self._typed[order] = self._decoder(order)
        request = decode(body)
        values = msgspec.structs.astuple
        rows = joined_rows([self._pack(*values(one.features)) for one in request.candidates], self._width)
        if order:
            turned = np.empty_like(rows)
            turned[:, list(order)] = rows
            rows = turned
        return Parts(request, [one.id for one in request.candidates], rows)

    def _decoder(self, order: tuple[int, ...]) -> Callable[[bytes], Any]:
        """Reads requests into a type that has the ranker's features as fields: a row costs half of a dictionary."""
        if order and len(set(order)) != self._width:
            raise _Other
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


def plain(body: bytes) -> RankRequest | RankColumns:
    """A request of any form. What has none is told of in the words of the form it comes nearest to."""
    try:
        fields = _names(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the form's own type says it with the place
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
    """The same as `_request`, candidate by candidate: in between, other threads have their turn."""
    found = _pieces(body)
    if not found.candidates:
        return _request(body)  # it says what is wrong
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
    """The error for a request with more candidates than the limit."""
    return OverLimit(f"more than {most} candidates; the limit max_candidates is {most}: send the best of them")


def ids_alone(body: bytes) -> RankColumns | None:
    """A request that names ids and brings no features; None if it has another form, or something is wrong with it."""
    try:
        request = _columns(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return request if request.features is None else None


def joined_rows(packed: Iterable[Any], width: int) -> Array:
    """(n, width) one array of rows of doubles."""
    return np.frombuffer(bytearray().join(packed)).reshape(-1, width)


def unpacked(packed: bytes, ids: int, width: int) -> Array:
    """(ids, width) the rows of packed features, of four bytes or eight a number: their count tells which."""
    numbers = ids * width
    kind = {numbers * 8: "<f8", numbers * 4: "<f4"}.get(len(packed))
    if kind is None:
        raise InvalidInput(
            f"features are {len(packed):,} bytes; {ids} ids x {width} features are {numbers * 8:,} as float64, "
            f"{numbers * 4:,} as float32: send base64 of little-endian numbers, one row of all features after the other"
        )
    with np.errstate(invalid="ignore"):  # some kinds of NaN make noise when they are converted
        return np.frombuffer(packed, dtype=kind).astype(np.float64).reshape(ids, width)


class _Kept(threading.local):
    """A thread's parser: a new one for each request may cost as much as the parsing, in memory that is mapped and given
    back again. It reads nothing while something that it made is still there; that all goes when `read` returns."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_kept = _Kept()


def _parsed(body: bytes) -> Any:
    if len(body) > MOST_KEPT:
        return simdjson.Parser().parse(body)
    try:
        return _kept.parser.parse(body)
    except RuntimeError:  # too deep; or something of the last request is still there, which must not go on for ever
        _kept.parser = simdjson.Parser()
        raise


def _check_few(body: bytes, sign: bytes, most: int) -> None:
    """Leave a body alone that may have too many candidates: `sign` stands in it once for each, or more often."""
    if body.count(sign) > most + MOST_BESIDE:
        raise _Other


def _few(ids: Any, most: int) -> list[Any]:
    if len(ids) > most:
        raise _Other
    return _checked(ids.as_list())


def _head(document: Any, *others: str) -> RankHead:
    """All but the candidates; a field that stands twice, or is not known, is not for here."""
    fields = {name: document[name] for name in document.keys() if name not in others}  # noqa: SIM118  (not a dictionary)
    if len(fields) + len(others) != len(document):
        raise _Other
    return msgspec.convert(fields, RankHead)


def _checked(ids: list[Any]) -> list[Any]:
    """Ids as `ItemId` wants them: all strings, or all integers."""
    if type(ids[0]) is str:
        "".join(ids)  # not of anything else
        fine = "" not in ids and max(map(len, ids)) <= _LONGEST
    else:
        fine = set(map(type, ids)) == {int} and max(ids) < 2**63  # simdjson reads none below -2**63
    if not fine:
        raise _Other
    return ids


def _check_shape(body: bytes, rows: list[Any], width: int, brackets: int) -> None:
    """Each row is as wide as that, and none has a list in it, which simdjson would flatten: then the body has more
    opening brackets than its form. So it may have in a text; `plain` reads that, too."""
    if set(map(len, rows)) != {width} or np.count_nonzero(np.frombuffer(body, np.uint8) == _BRACKET) != brackets:
        raise _Other


def _table(body: bytes, rows: list[Any], width: int, brackets: int) -> Array:
    """(n, width) the rows as one array."""
    _check_shape(body, rows, width, brackets)
    return joined_rows([row.as_buffer(of_type="d") for row in rows], width)
