"""Words of texts, as items and queries are compared by."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text in lower case and one spelling of each letter, whatever the way it was typed; no stemming.

    >>> words("Läufer-Schuhe, Größe 42")
    ['läufer', 'schuhe', 'grösse', '42']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def same_query(query: str) -> str:
    """A query as counts know it: case, punctuation and spaces do not make another one.

    >>> same_query("  Red  SHOES!")
    'red shoes'
    """
    return " ".join(words(query))
