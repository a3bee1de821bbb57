"""Columns of a table for what is no number: strings as codes, lists of strings as stretches of a pool of codes.

Every array has a row more than the table, its last, which is never written to: so the row -1 of an id that nobody knows
reads as missing, without asking.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankloop.core.types import Array
from rankloop.features.vocabulary import Vocabulary


class StringColumn:
    """A string a row: `codes` (rows + 1,) int32 of `vocabulary`, -1 where there is none."""

    def __init__(self, rows: int) -> None:
        self.codes = np.full(rows + 1, -1, np.int32)
        self.vocabulary = Vocabulary()

    def put(self, row: int, word: str | None) -> None:
        """What a row has from now on."""
        old = int(self.codes[row])
        self.codes[row] = -1 if word is None else self.vocabulary.take(word)  # before the old one goes: it may be it
        if old >= 0:
            self.vocabulary.drop(old)

    def get(self, row: int) -> str | None:
        """What a row has."""
        code = self.codes[row]
        return None if code < 0 else self.vocabulary.words[code]

    def grow(self, rows: int) -> None:
        """Room for more rows."""
        self.codes = np.append(self.codes, np.full(rows + 1 - len(self.codes), -1, np.int32))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.codes.nbytes) + self.vocabulary.nbytes


class ListColumn:
    """Strings a row: the codes `pool[starts[row] : starts[row] + lengths[row]]`; a row without any list starts at -1.

    Each string stands once in a list, so `vocabulary.counts` is how many rows have it: the document frequency.
    """

    def __init__(self, rows: int) -> None:
        self.starts = np.full(rows + 1, -1, np.int64)
        self.lengths = np.zeros(rows + 1, np.int32)
        self.pool = np.zeros(64, np.int32)
        self.vocabulary = Vocabulary()
        self._end = 0  # of what is written in the pool
        self._used = 0  # of it by lists that are still there

    def put(self, row: int, words: list[str] | None) -> None:
        """What a row has from now on; no string twice."""
        old = self.codes_of(row)
        codes = [] if words is None else [self.vocabulary.take(word) for word in words]
        for code in old.tolist():
            self.vocabulary.drop(code)
        self._used += len(codes) - len(old)
        if words is None:
            self.starts[row], self.lengths[row] = -1, 0
            return
        if self._end + len(codes) > len(self.pool):
            self.lengths[row] = 0
            self._make_room(len(codes))
        self.pool[self._end : self._end + len(codes)] = codes
        self.starts[row], self.lengths[row] = self._end, len(codes)
        self._end += len(codes)

    def codes_of(self, row: int) -> Array:
        """The codes of a row."""
        start = self.starts[row]
        return self.pool[start : start + self.lengths[row]] if start >= 0 else self.pool[:0]

    def get(self, row: int) -> list[str] | None:
        """What a row has."""
        words = self.vocabulary.words
        return None if self.starts[row] < 0 else [words[code] for code in self.codes_of(row).tolist()]

    def grow(self, rows: int) -> None:
        """Room for more rows."""
        more = rows + 1 - len(self.starts)
        self.starts = np.append(self.starts, np.full(more, -1, np.int64))
        self.lengths = np.append(self.lengths, np.zeros(more, np.int32))

    def _make_room(self, more: int) -> None:
        """A new pool, as large again as what is in use: what replaced lists have left behind is not taken along."""
        lengths = self.lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        kept = int(ends[-1])
        shift = np.repeat(self.starts - (ends - lengths), lengths)
        pool = np.zeros(max(64, 2 * (kept + more)), np.int32)
        pool[:kept] = self.pool[np.arange(kept) + shift]
        self.starts = np.where(self.starts >= 0, ends - lengths, -1)
        self.pool, self._end = pool, kept

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.starts.nbytes + self.lengths.nbytes + self.pool.nbytes) + self.vocabulary.nbytes


class DerivedColumn(ListColumn):
    """Lists that are made of the strings of another field, such as the words of a title, when these are written."""

    def __init__(self, rows: int, source: str, function: Callable[[str], list[str]]) -> None:
        super().__init__(rows)
        self.source, self.function = source, function

    def follow(self, row: int, value: object) -> None:
        """The row's source has this value from now on; a number or a vector has no words, and is as if it were missing:
        which field is declared as a text is up to one who has not seen the values."""
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            self.put(row, list(dict.fromkeys(word for text in texts for word in self.function(text))))
        else:
            self.put(row, None)
