"""LETOR (SVMlight) text: `grade qid:ID index:value … # comment`, a line per document, plain or gzip.

Text is read in chunks into a memory-mapped file, which the cache keeps until the text changes.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO

import numpy as np

from rankloop.core import codec, files
from rankloop.core.errors import CodecError, DataError, InvalidParameter
from rankloop.core.types import Array
from rankloop.kernels.scaling import minmax_queries
from rankloop.lab.datasets import cache
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.letor_text import MOST_FEATURES, Rows, read_text

Progress = Callable[[int, int], None]  # done, of how many in all

NORMALIZATIONS = ("query-minmax", "stream", "none")
_FORMAT = 1  # of the kept form; raise it when parsing or layout change
_BATCH = 1 << 22  # bytes of rows moved at a time


def read_letor(
    path: str | os.PathLike[str],
    *,
    normalize: str = "query-minmax",
    width: int = 0,
    on_progress: Progress | None = None,
) -> Dataset:
    """One file as one data set, its features memory-mapped.

    Parameters
    ----------
    normalize
        "query-minmax" scales each feature to [0, 1] within each query (constant ones become 0); "none" leaves them;
        "stream" does, too, and lets the learner of a run learn their sizes (`rankloop.standardized`).
    width
        Make the rows at least this wide, for a file that lacks the last features of its set.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tiny.txt").write_text("2 qid:7 1:3 3:0.5\\n0 qid:7 1:1 # the other\\n")
    ...     read_letor(Path(folder, "tiny.txt"), normalize="none").features
    array([[3. , 0. , 0.5],
           [1. , 0. , 0. ]])
    """
    return read_parts([Path(path)], normalize=normalize, width=width, on_progress=on_progress)[0]


def read_parts(
    paths: Sequence[Path],
    shares: Sequence[float] = (1.0,),
    *,
    normalize: str = "query-minmax",
    width: int = 0,
    on_progress: Progress | None = None,
) -> list[Dataset]:
    """The files as if they were one, cut by query into parts of these shares, which sum to 1.

    The cut depends on the query ids alone: queries are ordered by a hash of their id, and each part takes its share of
    that order. Within a part they keep the order of the files.
    """
    if normalize not in NORMALIZATIONS:
        raise InvalidParameter(f"normalize is {normalize!r}; it must be one of {', '.join(NORMALIZATIONS)}")
    if not 0 <= width <= MOST_FEATURES:
        raise InvalidParameter(f"width is {width}; it must be from 0 to {MOST_FEATURES}")
    try:
        sources = [path.resolve(strict=True) for path in paths]
        stamps = [(path.stat().st_size, path.stat().st_mtime_ns, cache.fingerprint(path)) for path in sources]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}; give a LETOR file that can be read") from None
    name = "+".join(_stem(path) for path in sources)
    options = [_FORMAT, normalize, width, list(shares), [str(path) for path in sources]]

    def build(folder: Path) -> None:
        with (folder / "rows").open("wb") as file:
            rows = Rows(file, width)
            total, done = sum(size for size, _, _ in stamps), 0
            for path, (size, _, _) in zip(sources, stamps, strict=True):
                for at in read_text(path, rows):
                    if on_progress:
                        on_progress(done + at, total)
                done += size
        _arrange(rows, folder, name, shares, normalize)

    return cache.stored(
        cache.digest(options), cache.digest(stamps), build, lambda folder: _load(folder, name, normalize)
    )


def write_letor(dataset: Dataset, path: str | os.PathLike[str], on_progress: Progress | None = None) -> None:
    """Write a data set as text, gzip if the name ends in .gz; reading it with `normalize="none"` gives the same bits.

    Zeros are left out, but for the last feature of the first row, which tells the width.
    """
    target = Path(path)
    unfit = [query for query in dataset.queries.tolist() if not query or re.search(r"[\s#]", query)]
    if unfit:
        raise DataError(f"query id {unfit[0]!r} cannot be written; LETOR ids have no blanks and no #")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as raw:
            if target.suffix == ".gz":
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                    _write_lines(dataset, packed, on_progress)  # type: ignore[arg-type]
            else:
                _write_lines(dataset, raw, on_progress)
        unfinished.replace(target)
    except OSError as error:
        raise DataError(f"{target}: {error.strerror}; give a place that can be written") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _write_lines(dataset: Dataset, file: IO[bytes], on_progress: Progress | None) -> None:
    for q, query in enumerate(dataset.queries.tolist()):
        first, last = int(dataset.offsets[q]), int(dataset.offsets[q + 1])
        for row in range(first, last):
            features = np.ascontiguousarray(dataset.features[row])
            written = features.view(np.int64) != 0  # by bits, so that -0.0 is kept
            written[-1] |= row == 0
            indices = np.flatnonzero(written)
            pairs = zip((indices + 1).tolist(), features[indices].tolist(), strict=True)
            cells = "".join(f" {index}:{repr(value).removesuffix('.0')}" for index, value in pairs)
            file.write(f"{dataset.grades[row]} qid:{query}{cells}\n".encode())
        if on_progress:
            on_progress(last, len(dataset.grades))


def _arrange(rows: Rows, folder: Path, name: str, shares: Sequence[float], normalize: str) -> None:
    """Make the kept form of what was read: `features` (raw float64, C order) and `index` (everything else)."""
    if rows.width == 0 or not rows.grades:
        found = "documents, but no features" if rows.grades else "no documents"
        raise DataError(f"{name}: {found} in it; a line is `grade qid:ID index:value … # comment`")
    queries = np.array(list(rows.queries))
    if len(queries) < len(shares):
        raise DataError(
            f"{name}: {len(queries)} queries, too few to cut into {len(shares)} parts; "
            "give a folder with train, vali and test files"
        )
    part = _cut(rows.queries, shares)
    by_part = np.argsort(part, kind="stable")  # queries in their final order
    place = np.empty(len(queries), np.int64)
    place[by_part] = np.arange(len(queries))
    run_query, run_length = np.array(rows.runs).T
    place_of_row = np.repeat(place[run_query], run_length)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place_of_row))])
    order = np.argsort(place_of_row, kind="stable")
    in_place = len(rows.spans) == 1 and bool((np.diff(place_of_row) >= 0).all())

    target = folder / "features"
    if in_place:
        (folder / "rows").replace(target)
    else:
        _rewrite(folder / "rows", rows.spans, order, rows.width, target)
        (folder / "rows").unlink()
    shape = (len(order), rows.width)
    if normalize == "query-minmax":
        mapped = np.memmap(target, np.float64, "r+", shape=shape)
        minmax_queries(np.asarray(mapped), offsets)
        mapped.flush()
    arrays = {
        "grades": np.concatenate(rows.grades)[order],
        "offsets": offsets,
        "queries": queries[by_part],
        "parts": np.concatenate([[0], np.cumsum(np.bincount(part))]),  # which queries are whose
    }
    meta = {"shape": shape, "features": cache.fingerprint(target)}
    (folder / "index").write_bytes(codec.dumps(arrays, meta))


def _cut(queries: Sequence[str] | dict[str, int], shares: Sequence[float]) -> Array:
    """(Q,) the part of each query; every part gets at least one."""
    hashes = [int.from_bytes(blake2b(query.encode(), digest_size=8).digest()) for query in queries]
    count = len(hashes)
    bounds = np.round(np.cumsum(shares) * count).astype(np.int64)
    for i in range(len(shares)):
        bounds[i] = np.clip(bounds[i], bounds[i - 1] + 1 if i else 1, count - (len(shares) - 1 - i))
    part = np.empty(count, np.int64)
    part[np.argsort(np.array(hashes, np.uint64), kind="stable")] = np.searchsorted(
        bounds, np.arange(count), side="right"
    )
    return part


def _rewrite(source: Path, spans: Sequence[tuple[int, int]], order: Array, width: int, target: Path) -> None:
    """Copy rows in this order and all of one width; `spans` says how many rows of which width lie in the source."""
    flat = np.memmap(source, np.float64, "r")
    with target.open("wb") as file:
        step = max(_BATCH // (8 * width), 1)
        for begin in range(0, len(order), step):
            wanted = order[begin : begin + step]
            batch = np.zeros((len(wanted), width))
            row = at = 0
            for count, narrow in spans:
                here = (wanted >= row) & (wanted < row + count)
                if narrow and here.any():
                    batch[here, :narrow] = flat[at : at + count * narrow].reshape(count, narrow)[wanted[here] - row]
                row += count
                at += count * narrow
            file.write(batch.data)


def _load(folder: Path, name: str, normalize: str) -> list[Dataset]:
    arrays, meta = codec.loads(files.read_bytes(folder / "index"), str(folder))
    if cache.fingerprint(folder / "features") != meta["features"]:
        raise CodecError(f"{folder}: its features are damaged")
    features = np.asarray(np.memmap(folder / "features", np.float64, "r", shape=tuple(meta["shape"])))
    grades, offsets, queries = arrays["grades"].astype(np.int64), arrays["offsets"], arrays["queries"]
    parts = []
    for first, last in zip(arrays["parts"][:-1], arrays["parts"][1:], strict=True):
        rows = slice(offsets[first], offsets[last])
        own = offsets[first : last + 1] - offsets[first]
        parts.append(Dataset(name, features[rows], grades[rows], own, queries[first:last], normalize))
    return parts


def _stem(path: Path) -> str:
    """A file's name without .txt, .gz and the like."""
    return path.name.removesuffix(".gz").removesuffix(".txt").removesuffix(".dat") or path.name
