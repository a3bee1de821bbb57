"""Strings as small numbers: each that is in use has one, its hash is at hand, and how often it is used is counted."""

from __future__ import annotations

from sys import getsizeof

import numpy as np

from rankloop.core.types import Array
from rankloop.features.hashing import text_codes


class Vocabulary:
    """Codes of strings. A code whose string is no longer used by any row is given to the next string that comes, so the
    vocabulary is as large as what is there now; codes mean nothing beyond the table and the moment.

    Equality between two vocabularies (an item's and a user's) is told by `hashes`, which do not depend on codes.

    >>> colours = Vocabulary()
    >>> [colours.take(word) for word in ("red", "blue", "red")]
    [0, 1, 0]
    >>> colours.counts[:2].tolist(), colours.code("blue"), colours.code("pink")
    ([2, 1], 1, -1)
    >>> colours.drop(1)
    >>> colours.take("green"), len(colours)
    (1, 2)
    """

    def __init__(self) -> None:
        self.words: list[str] = []  # by code; of a code that is free ""
        self.counts = np.zeros(0, np.int64)  # (>= codes,) uses; of tokens in texts the number of texts that have it
        self._hashes = np.zeros(0, np.uint64)  # (>= codes,)
        self._unhashed: list[int] = []  # codes; all at once is quicker than one by one, and titles nobody asks for
        self._codes: dict[str, int] = {}
        self._free: list[int] = []
        self._text = 0

    @property
    def hashes(self) -> Array:
        """(>= codes,) uint64: `text_codes` of each string, the same on every machine."""
        if self._unhashed:
            self._hashes[self._unhashed] = text_codes([self.words[code] for code in self._unhashed])
            self._unhashed = []
        return self._hashes

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, word: str) -> int:
        """The code of a string; -1 if no row has it."""
        return self._codes.get(word, -1)

    def codes(self, words: list[str]) -> Array:
        """(n,) int32 codes of strings; -1 of those that no row has."""
        return np.array([self._codes.get(word, -1) for word in words], np.int32)

    def uses(self, codes: Array) -> Array:
        """(n,) how many rows have the strings of these codes; 0 of -1, also while no row has any string at all."""
        found = np.zeros(codes.shape, np.int64)
        found[codes >= 0] = self.counts[codes[codes >= 0]]
        return found

    def take(self, word: str) -> int:
        """The code of a string that a row uses from now on."""
        code = self._codes.get(word)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.words[code] = word
            else:
                code = len(self.words)
                self.words.append(word)
                if code >= len(self.counts):
                    room = max(16, 2 * code) - len(self.counts)
                    self.counts = np.append(self.counts, np.zeros(room, np.int64))
                    self._hashes = np.append(self._hashes, np.zeros(room, np.uint64))
            self._codes[word] = code
            self._unhashed.append(code)
            self._text += getsizeof(word)
        self.counts[code] += 1
        return code

    def drop(self, code: int) -> None:
        """A row uses it no longer."""
        self.counts[code] -= 1
        if self.counts[code] == 0:
            word = self.words[code]
            del self._codes[word]
            self.words[code] = ""
            self._free.append(code)
            self._text -= getsizeof(word)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, with Python's objects."""
        return int(
            self.counts.nbytes + self._hashes.nbytes + self._text + getsizeof(self._codes) + getsizeof(self.words)
        )
