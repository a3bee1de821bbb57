"""Logs of result pages, as arrays: what was shown and what was clicked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rankloop.core.errors import DataError, InvalidInput, InvalidParameter
from rankloop.core.types import Array, Feedback, Impression


class Page(NamedTuple):
    """One result page: the documents shown, top first, and 1 for each clicked one."""

    session: str
    query: str
    documents: Sequence[object] | Array
    clicks: ArrayLike


@dataclass(frozen=True, eq=False)
class Pairs:
    """Query-document pairs, numbered from 0; names are text.

    Examples
    --------
    >>> pairs = Pairs.of(["shoes", "shoes", "hats"], ["b", "a", "a"])
    >>> len(pairs), pairs.find("shoes", ["a", "b", "c"])  # c is unknown: one more than the last number
    (3, array([1, 2, 3]))
    """

    queries: Array  # (Q,) str, sorted
    documents: Array  # (D,) str, sorted
    keys: Array  # (P,) int64, ascending: query · D + document

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, queries: Sequence[str], documents: Sequence[str]) -> Pairs:
        """Return the different pairs of these queries and documents."""
        query_names, query = np.unique(np.asarray(queries, dtype=np.str_), return_inverse=True)
        document_names, document = np.unique(np.asarray(documents, dtype=np.str_), return_inverse=True)
        return cls(query_names, document_names, np.unique(query * len(document_names) + document))

    def find(self, query: str, documents: ArrayLike) -> Array:
        """Return the number of each pair of this query; `len(self)` for unknown pairs."""
        ids = np.asarray(documents)
        ids = ids if ids.dtype.kind == "U" else ids.astype(np.str_)
        q = _places(self.queries, np.asarray([query]))
        return self._numbers(np.broadcast_to(q, ids.shape), _places(self.documents, ids))

    def numbers_of(self, others: Pairs) -> Array:
        """Return (P',) the number of each pair of `others`; `len(self)` for unknown ones."""
        if others is self:
            return np.arange(len(self))
        query, document = np.divmod(others.keys, max(1, len(others.documents)))
        return self._numbers(
            _places(self.queries, others.queries)[query], _places(self.documents, others.documents)[document]
        )

    def documents_of(self, query: str) -> Array:
        """Return the known documents of a query, sorted."""
        q = _places(self.queries, np.asarray([query]))[0]
        width = len(self.documents)
        here = slice(*np.searchsorted(self.keys, [q * width, (q + 1) * width])) if q < len(self.queries) else slice(0)
        names: Array = self.documents[self.keys[here] % max(1, width)]
        return names

    def names(self) -> tuple[Array, Array]:
        """Return (P,) the query and (P,) the document of each pair."""
        query, document = np.divmod(self.keys, max(1, len(self.documents)))
        return self.queries[query], self.documents[document]

    def kept(self, numbers: Array) -> Pairs:
        """Return only the pairs of these ascending numbers."""
        query, document = np.divmod(self.keys[numbers], max(1, len(self.documents)))
        queries, query = np.unique(query, return_inverse=True)
        documents, document = np.unique(document, return_inverse=True)
        return Pairs(self.queries[queries], self.documents[documents], query * len(documents) + document)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that `from_arrays` restores."""
        return {"queries": self.queries, "documents": self.documents, "keys": self.keys}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Pairs:
        """Restore what `arrays` returned, checked."""
        queries, documents, keys = (arrays.get(name, np.zeros((0, 0))) for name in ("queries", "documents", "keys"))
        fine = all(part.ndim == 1 and part.dtype.kind == "U" for part in (queries, documents))
        fine = fine and keys.ndim == 1 and keys.dtype == np.int64
        fine = fine and all((part[1:] > part[:-1]).all() for part in (queries, documents, keys))
        if not fine or (keys.size and not 0 <= keys[0] <= keys[-1] < len(queries) * len(documents)):
            raise InvalidInput("the file's query-document pairs are not in order; it was not written by rankloop")
        return cls(queries, documents, keys)

    def _numbers(self, query: Array, document: Array) -> Array:
        keys = query * len(self.documents) + document
        at = np.searchsorted(self.keys, keys)
        known = (query < len(self.queries)) & (document < len(self.documents)) & (at < len(self.keys))
        known[known] = self.keys[at[known]] == keys[known]
        return np.where(known, at, len(self.keys))


def _places(names: Array, wanted: Array) -> Array:
    """Return the place of each name among the sorted `names`; `len(names)` if it is not there."""
    at = np.searchsorted(names, wanted)
    found = at < len(names)
    found[found] = names[at[found]] == wanted[found]
    return np.where(found, at, len(names))


@dataclass(frozen=True)
class Finding:
    """How often something occurred in a file, and where first."""

    count: int
    lines: tuple[int, ...]  # the first ten

    def __str__(self) -> str:
        lines = ", ".join(map(str, self.lines)) + (", …" if self.count > len(self.lines) else "")
        return f"{self.count:,} (line {lines})"


@dataclass(frozen=True)
class ReadReport:
    """What a reader found: `skipped` was not used, `noticed` was used but may be surprising."""

    source: str
    format: str
    lines: int
    pages: int
    bytes: int  # of uncompressed text
    seconds: float
    skipped: dict[str, Finding] = field(default_factory=dict)
    noticed: dict[str, Finding] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [f"{self.source}: {self.format}, {self.lines:,} lines, {self.pages:,} pages"]
        rows += [f"skipped: {kind}: {found}" for kind, found in self.skipped.items()]
        rows += [f"noticed: {kind}: {found}" for kind, found in self.noticed.items()]
        return "\n".join(rows)


@dataclass(frozen=True, eq=False)
class SessionLog:
    """Result pages of any lengths, from `read_log`, `from_pages` or `from_impressions`.

    Positions beyond the end of a page hold -1 and no click.

    Examples
    --------
    >>> log = SessionLog.from_pages([
    ...     Page("monday", "shoes", ["a", "b", "c"], [0, 1, 0]),
    ...     Page("tuesday", "shoes", ["b", "a"], [1, 0]),
    ... ])
    >>> len(log), log.ranks, log.lengths.tolist(), log.click_rates().round(2).tolist()
    (2, 3, [3, 2], [0.5, 0.5, 0.0])
    >>> train, test = log.split(0.5, seed=1)
    >>> len(train), len(test)
    (1, 1)
    """

    pairs: Pairs
    shown: Array  # (s, K) int64, numbers of pairs
    clicks: Array  # (s, K) uint8
    lengths: Array  # (s,) int64, at least 1
    sessions: Array  # (s,) int64, numbers into session_names
    session_names: Array  # (S,) str
    report: ReadReport | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def ranks(self) -> int:
        """The length of the longest page; 0 if there is none."""
        return int(self.shown.shape[1])

    @classmethod
    def from_pages(cls, pages: Iterable[Page]) -> SessionLog:
        """Return the log of these pages; clicks are 0 or 1."""
        return _log_of(pages, "page")

    @classmethod
    def from_impressions(cls, events: Iterable[tuple[str, Impression, Feedback]]) -> SessionLog:
        """Return the log of what learners showed; positions without feedback count as not clicked."""

        def pages() -> Iterable[tuple[str, str, Array, ArrayLike]]:
            for session, impression, feedback in events:
                if feedback.kind != "clicks":
                    raise InvalidInput(f"feedback is {feedback.kind!r}; click models learn from clicks only")
                clicks = np.zeros(impression.k)
                clicks[: len(feedback.values)] = np.asarray(feedback.values, np.float64)[: impression.k] > 0
                yield session, impression.query, impression.items, clicks

        return _log_of(pages(), "impression")

    def part(self, chosen: Array) -> SessionLog:
        """Return the pages that `chosen` (flags or numbers) selects, with the pairs that they show."""
        shown, lengths = self.shown[chosen], self.lengths[chosen]
        ranks = int(lengths.max()) if len(lengths) else 0
        shown = shown[:, :ranks]
        inside = shown >= 0
        numbers, shown_now = np.unique(shown[inside], return_inverse=True)
        renumbered = np.full(shown.shape, -1, dtype=np.int64)
        renumbered[inside] = shown_now
        return replace(
            self,
            pairs=self.pairs.kept(numbers),
            shown=renumbered,
            clicks=np.ascontiguousarray(self.clicks[chosen][:, :ranks]),
            lengths=lengths,
            sessions=self.sessions[chosen],
            report=None,
        )

    def split(self, test_share: float, seed: int = 0) -> tuple[SessionLog, SessionLog]:
        """Split the sessions into a part to fit on and a part to test on, by a hash of their names and the seed."""
        if not 0 < test_share < 1:
            raise InvalidParameter(f"test_share is {test_share!r}; it must lie between 0 and 1")
        present = np.unique(self.sessions)
        if len(present) < 2:
            raise DataError(f"the log has {len(present)} sessions; to split it takes at least 2")
        names = self.session_names[present].tolist()
        hashes = [blake2b(f"{seed}/{name}".encode(errors="surrogatepass"), digest_size=8).digest() for name in names]
        order = sorted(range(len(names)), key=hashes.__getitem__)
        count = min(len(names) - 1, max(1, round(test_share * len(names))))
        tested = np.zeros(len(self.session_names), dtype=np.bool_)
        tested[present[order[:count]]] = True
        return self.part(~tested[self.sessions]), self.part(tested[self.sessions])

    def top(self, k: int) -> SessionLog:
        """Return the same pages, cut to their first k ranks."""
        if k < 1:
            raise InvalidParameter(f"k is {k!r}; at least one rank must stay")
        cut = replace(
            self, shown=self.shown[:, :k], clicks=self.clicks[:, :k], lengths=np.minimum(self.lengths, k), report=None
        )
        return cut.part(np.arange(len(self)))

    def shows(self) -> Array:
        """Return (K,) how many pages reach each rank."""
        pages: Array = (self.shown >= 0).sum(axis=0)
        return pages

    def click_rates(self) -> Array:
        """Return (K,) clicks per page that reaches the rank."""
        rates: Array = self.clicks.sum(axis=0) / np.maximum(1, self.shows())
        return rates

    def with_clicks(self, clicks: Array) -> SessionLog:
        """Return the same pages with other clicks, (s, K)."""
        return replace(self, clicks=np.where(self.shown >= 0, clicks, 0).astype(np.uint8), report=None)


class _Codes(dict[str, int]):
    """Numbers names in order of appearance."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class LogBuilder:
    """Collects pages one by one."""

    def __init__(self) -> None:
        self.session_codes, self.query_codes, self.document_codes = _Codes(), _Codes(), _Codes()
        self.sessions: list[int] = []
        self.queries: list[int] = []
        self.ends: list[int] = []
        self.documents: list[int] = []  # of all pages, one after the other
        self.clicks: list[int] = []

    def add(self, session: str, query: str, documents: Iterable[str], clicks: Iterable[int]) -> None:
        """Add a page that the caller has checked."""
        self.sessions.append(self.session_codes[session])
        self.queries.append(self.query_codes[query])
        self.documents += map(self.document_codes.__getitem__, documents)
        self.clicks += clicks
        self.ends.append(len(self.documents))

    def log(self, report: ReadReport | None = None) -> SessionLog:
        """Return the log of all added pages."""
        ends = np.array(self.ends, dtype=np.int64)
        lengths = np.diff(ends, prepend=0)
        ranks = int(lengths.max()) if len(lengths) else 0
        queries, query = _sorted_names(self.query_codes, np.array(self.queries, dtype=np.int64))
        documents, document = _sorted_names(self.document_codes, np.array(self.documents, dtype=np.int64))
        keys, numbers = np.unique(np.repeat(query, lengths) * len(documents) + document, return_inverse=True)
        inside = np.arange(ranks) < lengths[:, None]
        shown = np.full(inside.shape, -1, dtype=np.int64)
        clicks = np.zeros(inside.shape, dtype=np.uint8)
        shown[inside] = numbers
        clicks[inside] = self.clicks
        sessions = np.array(self.sessions, dtype=np.int64)
        names = np.array(list(self.session_codes), dtype=np.str_)
        return SessionLog(Pairs(queries, documents, keys), shown, clicks, lengths, sessions, names, report)


def _sorted_names(codes: dict[str, int], used: Array) -> tuple[Array, Array]:
    """Return the sorted names, and `used` by their places there."""
    names = np.array(list(codes), dtype=np.str_)
    order = np.argsort(names, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    ordered = names[order]
    if (ordered[1:] == ordered[:-1]).any():  # numpy drops zero bytes at the end of a text
        raise DataError("two ids differ only in zero characters at their end; give them other names")
    return ordered, places[used]


def _log_of(pages: Iterable[tuple[str, str, Sequence[object] | Array, ArrayLike]], noun: str) -> SessionLog:
    builder = LogBuilder()
    for number, (session, query, documents, clicks) in enumerate(pages):
        names = documents.tolist() if isinstance(documents, np.ndarray) else list(documents)
        flags = np.asarray(clicks)
        if not names:
            raise InvalidInput(f"{noun} {number} has no documents; show at least one")
        if flags.shape != (len(names),) or not ((flags == 0) | (flags == 1)).all():
            raise InvalidInput(f"{noun} {number} has clicks {flags.tolist()}; give 0 or 1 for each of {len(names)}")
        builder.add(str(session), str(query), map(str, names), flags.astype(int).tolist())
    return builder.log()
