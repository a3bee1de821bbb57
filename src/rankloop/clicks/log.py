"""A log of result pages: what was shown and what was clicked, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rankloop.clicks.pairs import Pairs
from rankloop.core.errors import DataError, InvalidInput, InvalidParameter
from rankloop.core.types import Array, Feedback, Impression


class Page(NamedTuple):
    """One result page: the documents shown, top first, and 1 for each that was clicked."""

    session: str
    query: str
    documents: Sequence[object] | Array
    clicks: ArrayLike


@dataclass(frozen=True)
class Found:
    """How often something was met in a file, and where first."""

    count: int
    lines: tuple[int, ...]  # the first ten

    def __str__(self) -> str:
        lines = ", ".join(map(str, self.lines)) + (", …" if self.count > len(self.lines) else "")
        return f"{self.count:,} (line {lines})"


@dataclass(frozen=True)
class ReadReport:
    """What a reader met: `skipped` was not used, `noticed` was used but may surprise."""

    source: str
    format: str
    lines: int
    pages: int
    bytes: int  # of text, unpacked
    seconds: float
    skipped: dict[str, Found] = field(default_factory=dict)
    noticed: dict[str, Found] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [f"{self.source}: {self.format}, {self.lines:,} lines, {self.pages:,} pages"]
        rows += [f"skipped: {kind}: {found}" for kind, found in self.skipped.items()]
        rows += [f"noticed: {kind}: {found}" for kind, found in self.noticed.items()]
        return "\n".join(rows)


@dataclass(frozen=True, eq=False)
class SessionLog:
    """Result pages, which may have different lengths. Rows beyond a page's end hold -1 and no click.

    `rankloop.clicks.readers.read_log` reads one from a file, `from_pages` and `from_impressions` make one of what a
    program holds.

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
        """The length of the longest page; 0 where there is none."""
        return int(self.shown.shape[1])

    @classmethod
    def from_pages(cls, pages: Iterable[Page]) -> SessionLog:
        """The log of these pages. A page without documents, or with other than 0 and 1 as clicks, is an error."""
        return _gathered(pages, "page")

    @classmethod
    def from_impressions(cls, events: Iterable[tuple[str, Impression, Feedback]]) -> SessionLog:
        """The log of what learners showed: session, impression and the clicks on it.

        Slots that the feedback does not reach count as not clicked.
        """

        def pages() -> Iterable[tuple[str, str, Array, ArrayLike]]:
            for session, impression, feedback in events:
                if feedback.kind != "clicks":
                    raise InvalidInput(f"feedback is {feedback.kind!r}; click models learn from clicks only")
                clicks = np.zeros(impression.k)
                clicks[: len(feedback.values)] = np.asarray(feedback.values)[: impression.k] > 0
                yield session, impression.query, impression.items, clicks

        return _gathered(pages(), "impression")

    def part(self, chosen: Array) -> SessionLog:
        """The pages that `chosen` (flags or numbers) names, and no other pairs than they show."""
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
        """A part to fit on and a part to test on. All pages of a session go to the same part.

        Sessions are ordered by a hash of their name and the seed, and the first `test_share` of them are the test
        part; so the cut depends on names and seed alone, not on the order of the file.
        """
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
        """The same pages, cut to their first k ranks."""
        if k < 1:
            raise InvalidParameter(f"k is {k!r}; at least one rank must stay")
        cut = replace(
            self, shown=self.shown[:, :k], clicks=self.clicks[:, :k], lengths=np.minimum(self.lengths, k), report=None
        )
        return cut.part(np.arange(len(self)))

    def shows(self) -> Array:
        """(K,) how many pages reach each rank."""
        pages: Array = (self.shown >= 0).sum(axis=0)
        return pages

    def click_rates(self) -> Array:
        """(K,) the share of the pages that reach a rank which were clicked there."""
        rates: Array = self.clicks.sum(axis=0) / np.maximum(1, self.shows())
        return rates

    def with_clicks(self, clicks: Array) -> SessionLog:
        """The same pages with other clicks, (s, K)."""
        return replace(self, clicks=np.where(self.shown >= 0, clicks, 0).astype(np.uint8), report=None)


class _Codes(dict[str, int]):
    """Numbers names as they come."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class Gathering:
    """Pages on their way into a log; readers add them one by one."""

    def __init__(self) -> None:
        self.session_codes, self.query_codes, self.document_codes = _Codes(), _Codes(), _Codes()
        self.sessions: list[int] = []
        self.queries: list[int] = []
        self.ends: list[int] = []
        self.documents: list[int] = []  # of all pages, one after the other
        self.clicks: list[int] = []

    def add(self, session: str, query: str, documents: Iterable[str], clicks: Iterable[int]) -> None:
        """One page more. The caller has checked it."""
        self.sessions.append(self.session_codes[session])
        self.queries.append(self.query_codes[query])
        self.documents += map(self.document_codes.__getitem__, documents)
        self.clicks += clicks
        self.ends.append(len(self.documents))

    def log(self, report: ReadReport | None = None) -> SessionLog:
        """All that was added."""
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
    """The names in order, and `used` by their places there."""
    names = np.array(list(codes), dtype=np.str_)
    order = np.argsort(names, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    ordered = names[order]
    if (ordered[1:] == ordered[:-1]).any():  # numpy drops zero bytes at the end of a text
        raise DataError("two ids differ only in zero characters at their end; give them other names")
    return ordered, places[used]


def _gathered(pages: Iterable[tuple[str, str, Sequence[object] | Array, ArrayLike]], noun: str) -> SessionLog:
    gathering = Gathering()
    for number, (session, query, documents, clicks) in enumerate(pages):
        names = documents.tolist() if isinstance(documents, np.ndarray) else list(documents)
        flags = np.asarray(clicks)
        if not names:
            raise InvalidInput(f"{noun} {number} has no documents; show at least one")
        if flags.shape != (len(names),) or not ((flags == 0) | (flags == 1)).all():
            raise InvalidInput(f"{noun} {number} has clicks {flags.tolist()}; give 0 or 1 for each of {len(names)}")
        gathering.add(str(session), str(query), map(str, names), flags.astype(int).tolist())
    return gathering.log()
