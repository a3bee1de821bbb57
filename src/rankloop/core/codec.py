"""Arrays to bytes and back: no pickle, versioned, checksummed.

Format: 8 bytes of magic, format version and header length (two little-endian uint32), the header as JSON (`meta`, and
name, type and shape of each array), the arrays in C order and little-endian, and a BLAKE2b checksum.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rankloop.core.errors import CodecError, InvalidInput
from rankloop.core.types import Array, Impression, SparseRows

MAGIC = b"RANKLOOP"
VERSION = 1
SPARSE = 2  # impressions with sparse rows, so that older releases refuse them
_HEAD = struct.Struct("<8sII")
_CHECKSUM = 16
_json = json.JSONEncoder(allow_nan=False).encode  # `json.dumps` creates one per call
_KINDS = "biufU"  # numbers, flags and strings; never objects


def dumps(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None, version: int = VERSION) -> bytes:
    """Return the bytes of named arrays and of `meta`, which must be valid JSON.

    >>> arrays, meta = loads(dumps({"theta_": np.array([0.1, -2.0])}, {"learner": "pdgd"}))
    >>> arrays["theta_"], meta
    (array([ 0.1, -2. ]), {'learner': 'pdgd'})
    """
    specs, kept = _plain(arrays)
    head = _head(specs, meta, version)
    body = b"".join([head, *(array.tobytes() for array in kept)])  # in C order
    return body + blake2b(body, digest_size=_CHECKSUM).digest()


def pieces(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None, size: int) -> Iterator[bytes]:
    """Iterate over the bytes of `dumps`, `size` at a time, to save memory.

    >>> b"".join(pieces({"theta_": np.array([0.1, -2.0])}, {}, 7)) == dumps({"theta_": np.array([0.1, -2.0])})
    True
    """
    specs, kept = _plain(arrays)
    waiting, checksum = bytearray(_head(specs, meta, VERSION)), blake2b(digest_size=_CHECKSUM)

    def full() -> Iterator[bytes]:
        while len(waiting) >= size:
            yield bytes(waiting[:size])
            del waiting[:size]

    for array in kept:
        if array.nbytes:
            plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for at in range(0, len(plain), size):
                waiting += plain[at : at + size]
                for piece in full():
                    checksum.update(piece)
                    yield piece
    checksum.update(waiting)
    waiting += checksum.digest()
    yield from full()
    if waiting:
        yield bytes(waiting)


def _plain(arrays: Mapping[str, Array]) -> tuple[list[tuple[str, str, tuple[int, ...]]], list[Array]]:
    """Return name, type and shape of each array, and the arrays as they are written."""
    specs, kept = [], []
    for name, value in arrays.items():
        array = np.asarray(value)
        kind = array.dtype
        if kind.kind not in _KINDS:
            raise CodecError(f"array {name!r} has type {kind}; only numbers, flags and strings can be saved")
        if kind.str[0] == ">":
            array = array.astype(kind.newbyteorder("<"))
        specs.append((name, array.dtype.str, array.shape))
        kept.append(array)
    return specs, kept


def _head(specs: list[tuple[str, str, tuple[int, ...]]], meta: Mapping[str, Any] | None, version: int) -> bytes:
    header = f'{{"meta": {_json(dict(meta or {}))}, "arrays": {_described(*specs)}}}'.encode()
    return _HEAD.pack(MAGIC, version, len(header)) + header


@lru_cache(512)
def _described(*specs: tuple[str, str, tuple[int, ...]]) -> str:
    """Return names, types and shapes as JSON; cached, since those of a ranker's impressions recur."""
    return _json([{"name": name, "dtype": kind, "shape": list(shape)} for name, kind, shape in specs])


def loads(data: bytes, name: str = "these bytes") -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the meta of what `dumps` returned; `name` is the source in errors."""
    try:
        meta, described, body = opened(data, name)
        at, arrays = 0, dict[str, Array]()
        for called, dtype, shape, size in layout(described):
            found: Array = np.ndarray(shape, dtype, body, at)
            arrays[called] = found.copy() if dtype.isnative else found.astype(dtype.newbyteorder("="))
            at += size
        if at != len(body):
            raise CodecError(f"{name}: {len(body) - at} bytes more than its header specifies")
        return arrays, json.loads(meta)
    except (KeyError, TypeError, ValueError) as error:  # valid checksum, invalid header
        if isinstance(error, CodecError):
            raise
        raise CodecError(f"{name}: its header cannot be read ({error})") from None


def opened(data: bytes, name: str = "these bytes") -> tuple[bytes, bytes, memoryview]:
    """Return meta and the description of the arrays, both as JSON, and the arrays' bytes.

    For readers of thousands of impressions with the same description, which is then parsed once (`layout`).

    >>> opened(dumps({"theta_": np.array([0.5])}, {"learner": "pdgd"}))[:2]
    (b'{"learner": "pdgd"}', b'[{"name": "theta_", "dtype": "<f8", "shape": [1]}]')
    """
    at = _checked(data, name)
    body, header = memoryview(data)[at:-_CHECKSUM], data[_HEAD.size : at]
    meta, key, described = header.rpartition(_ARRAYS)
    if key and meta.startswith(_META) and described.endswith(b"]}"):
        return meta[len(_META) :], described[:-1], body
    whole = json.loads(header)
    return _json(whole["meta"]).encode(), _json(whole["arrays"]).encode(), body


_META, _ARRAYS = b'{"meta": ', b', "arrays": '


def _checked(data: bytes, name: str) -> int:
    """Check the bytes and return where the arrays begin."""
    if len(data) < _HEAD.size or data[:8] != MAGIC:
        raise CodecError(f"{name}: not a rankloop file (it does not start with {MAGIC.decode()})")
    _, version, header_length = _HEAD.unpack_from(data)
    if version not in (VERSION, SPARSE):
        raise CodecError(
            f"{name}: format version {version}, but this release reads versions {VERSION} and {SPARSE}; "
            "read it with the release that wrote it"
        )
    if blake2b(memoryview(data)[:-_CHECKSUM], digest_size=_CHECKSUM).digest() != data[-_CHECKSUM:]:
        raise CodecError(f"{name}: damaged or cut short (the checksum does not match); restore it from a copy")
    return _HEAD.size + int(header_length)


class Described(NamedTuple):
    """The description of an array in a header."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int  # bytes


@lru_cache(512)
def layout(described: bytes) -> tuple[Described, ...]:
    """Parse a description of arrays; cached."""
    found = []
    for spec in json.loads(described):
        dtype, shape = np.dtype(spec["dtype"]), tuple(spec["shape"])
        if dtype.kind not in _KINDS:
            raise CodecError(f"array {spec['name']!r} has type {dtype}, which is never saved")
        found.append(Described(spec["name"], dtype, shape, prod(shape) * dtype.itemsize))
    return tuple(found)


def dump_impression(impression: Impression) -> bytes:
    """Return the bytes of an impression."""
    arrays = {"order": impression.order, "items": impression.items}
    meta: dict[str, Any] = {"query": impression.query}
    rows, version = impression.features, VERSION
    if type(rows) is SparseRows:
        arrays |= {f"features/{name}": getattr(rows, name) for name in _ROWS}
        meta["width"], version = rows.width, SPARSE
    elif rows is not None:
        arrays["features"] = rows
    arrays.update({f"memo/{name}": value for name, value in impression.memo.items()})
    return dumps(arrays, meta, version)


_ROWS = ("indptr", "indices", "values")


def load_impression(data: bytes, name: str = "these bytes") -> Impression:
    """Restore what `dump_impression` returned, bit for bit."""
    arrays, meta = loads(data, name)
    if not {"order", "items"} <= arrays.keys() or "query" not in meta:
        raise CodecError(f"{name}: a rankloop file, but not an impression")
    rows: Any = arrays.get("features")
    if "width" in meta:
        try:
            rows = SparseRows(
                arrays["features/indptr"], arrays["features/indices"], arrays["features/values"], meta["width"]
            )
        except (KeyError, InvalidInput) as error:
            raise CodecError(f"{name}: an impression whose sparse rows cannot be read ({error})") from None
    memo = {key.removeprefix("memo/"): value for key, value in arrays.items() if key.startswith("memo/")}
    return Impression(meta["query"], arrays["order"], arrays["items"], rows, memo)
