"""Outcomes by the thousand, in columns: lists of one layout are cut into arrays all at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rankloop.core import codec
from rankloop.core.errors import CodecError
from rankloop.core.types import Array, Impression, SparseRows
from rankloop.service.storage import outcomes
from rankloop.service.storage.database import Database

MEMO = "memo/"
LOG_PROPENSITY, CANDIDATES = "log_propensity", "candidates"
PORTION_BYTES = 16 * 2**20  # of the lists in memory; also of a row group
FEWEST, MOST = 16, 16_384  # lists of a portion


class Layout(NamedTuple):
    """Where the arrays of a list are in its bytes."""

    text: str  # JSON, as in the list's own header; with the width behind it if rows are sparse
    arrays: tuple[codec.Described, ...]
    starts: tuple[int, ...]
    size: int  # bytes in all
    width: int | None  # of sparse rows

    @property
    def memo_start(self) -> int:
        """Where the learner's notes begin; they are last."""
        return min((at for one, at in zip(self.arrays, self.starts, strict=True) if one.name.startswith(MEMO)),
                   default=self.size)  # fmt: skip


class Alike(NamedTuple):
    """Lists of one layout."""

    layout: Layout
    rows: Array  # (m,) which lists of the chunk
    arrays: dict[str, Array]  # (m, …) each, by the names in the layout

    @property
    def memo(self) -> dict[str, Array]:
        """What learners noted, by their own names."""
        return {name.removeprefix(MEMO): value for name, value in self.arrays.items() if name.startswith(MEMO)}


class Chunk(NamedTuple):
    """n outcomes in their order."""

    seq: Array  # (n,)
    learn: Array  # (n,) whether the ranker learned from it, unless its learner raised
    epoch: Array  # (n,)
    values: Array  # flat feedback by slot; of list i from ends[i] to ends[i + 1]
    ends: Array  # (n + 1,)
    viewed: list[int | None]
    person: list[str | None]
    query: list[str]
    rewards: list[list[float] | None]  # by slot, in the ranker's unit; None: none was reported
    alike: list[Alike]
    plain: dict[str, Any]  # other columns by name, of chunks that are exported

    def __len__(self) -> int:
        return len(self.seq)

    def feedback(self) -> Iterator[Array]:
        """The feedback of each list."""
        ends = self.ends.tolist()
        return (self.values[a:b] for a, b in pairwise(ends))

    def impressions(self) -> Iterator[Impression]:
        """The lists, bit for bit as they were stored."""
        made: list[Impression | None] = [None] * len(self.seq)
        for one in self.alike:
            arrays, queries = one.arrays, self.query
            memo = one.memo
            order, items, width = arrays["order"], arrays["items"], one.layout.width
            for j, row in enumerate(one.rows.tolist()):
                rows: Any = None
                if width is not None:
                    indptr, indices, values = (arrays[f"features/{part}"][j] for part in SPARSE_PARTS)
                    rows = SparseRows(indptr, indices, values, width)
                elif "features" in arrays:
                    rows = arrays["features"][j]
                notes = {name: value[j] for name, value in memo.items()}
                made[row] = Impression(queries[row], order[j], items[j], rows, notes)
        return iter(made)  # type: ignore[arg-type]


SPARSE_PARTS = ("indptr", "indices", "values")


@lru_cache(4096)
def layout_of(text: str, width: int | None = None, name: str = "these bytes") -> Layout:
    """The layout that a list's header describes."""
    try:
        arrays = codec.layout(text.encode())
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(f"{name}: its arrays are described as {text[:80]!r}, which cannot be read ({error})") from None
    starts = np.cumsum([0, *(one.size for one in arrays)]).tolist()
    names = [one.name for one in arrays]
    memo = [name.startswith(MEMO) for name in names]
    if not {"order", "items"} <= set(names) or memo != sorted(memo):
        raise CodecError(f"{name}: a rankloop file, but not an impression")
    return Layout(text, arrays, tuple(starts[:-1]), starts[-1], width)


def cut(layout: Layout, payload: Array) -> dict[str, Array]:
    """(m, …) aligned copies of each array, of lists whose bytes are the rows of `payload` (m, size)."""
    found = {}
    for one, at in zip(layout.arrays, layout.starts, strict=True):
        part = np.ascontiguousarray(payload[:, at : at + one.size])
        whole = part.view(one.dtype) if one.size else np.empty((len(payload), 0), one.dtype)
        found[one.name] = whole.reshape(len(payload), *one.shape).astype(one.dtype.newbyteorder("="), copy=False)
    return found


@lru_cache(65536)
def _meta(text: bytes) -> tuple[str, int | None]:
    found = msgspec.json.decode(text)
    return found["query"], found.get("width")


def chunk_of(rows: Sequence[Any]) -> Chunk:
    """The chunk of rows of the store (`storage.settled.rows`), at least one."""
    (seq, learn, kind, feedback, viewed, settled, rewards, ids, epoch, number, shown, person, request_id, experiment,
     credit, bodies) = zip(*rows, strict=True)  # fmt: skip
    queries: list[str] = []
    by_layout: dict[tuple[bytes, int | None], tuple[list[int], list[memoryview]]] = defaultdict(lambda: ([], []))
    for row, body in enumerate(bodies):
        meta, text, payload = codec.opened(bytes(body), "a list in the store")
        query, width = _meta(meta)
        queries.append(query)
        places, payloads = by_layout[text, width]
        places.append(row)
        payloads.append(payload)
    alike = []
    for (text, width), (places, payloads) in by_layout.items():
        layout = layout_of(text.decode(), width, f"the list {ids[places[0]]}")
        for row, payload in zip(places, payloads, strict=True):
            if len(payload) != layout.size:
                raise CodecError(f"the list {ids[row]}: {len(payload)} bytes, but its header says {layout.size}")
        under = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), layout.size)
        alike.append(Alike(layout, np.array(places), cut(layout, under)))
    values, ends = _flattened(
        msgspec.json.decode(b"[" + b",".join(map(bytes, feedback)) + b"]", type=list[list[float]])
    )
    plain = {
        "impression_id": ids, "shown_at": np.array(shown), "settled_at": np.array(settled), "kind": kind,
        "number": number, "request_id": request_id, "experiment": experiment, "credit": _decoded(credit),
    }  # fmt: skip
    return Chunk(
        np.array(seq, np.int64), np.array(learn, np.bool_), np.array(epoch, np.int64), values, ends, list(viewed),
        list(person), queries, _decoded(rewards), alike, plain,
    )  # fmt: skip


def _decoded(column: Sequence[bytes | None]) -> list[list[float] | None]:
    return [None if one is None else msgspec.json.decode(bytes(one), type=list[float]) for one in column]


def chunks(database: Database, ranker: str, first: int, end: int) -> Iterator[Chunk]:
    """The outcomes first … end-1, in portions of about `PORTION_BYTES`."""
    many = 256
    while first < end:
        stop = min(first + many, end)
        rows = database.read(lambda c, a=first, b=stop: outcomes.export_outcomes(c, ranker, a, b))  # type: ignore[misc]
        first = stop
        if rows:
            size = sum(len(row[-1]) for row in rows) / len(rows)
            many = int(min(max(PORTION_BYTES / (size + 200), FEWEST), MOST))
            yield chunk_of(rows)


def ragged(n: int, parts: Sequence[tuple[Array, Array]], dtype: Any) -> tuple[Array, Array]:
    """(flat, offsets) of n rows of any length, from (rows (m,), values (m, length)) of those of one length each."""
    lengths = np.zeros(n, np.int64)
    for rows, values in parts:
        lengths[rows] = values.shape[1]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.empty(offsets[-1], dtype)
    for rows, values in parts:
        if len(rows) == n:  # all alike, as nearly always: there is nothing to sort in
            return values.reshape(-1).astype(dtype, copy=False), offsets
        flat[offsets[rows][:, None] + np.arange(values.shape[1])] = values
    return flat, offsets


def _flattened(lists: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    """(flat, offsets) of lists of numbers."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.float64, int(offsets[-1])), offsets
