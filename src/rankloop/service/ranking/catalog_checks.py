"""What is wrong between a ranker's declared features and the fields that its catalog has.

Everything here works on the summary that the store keeps of a catalog (`store.catalog.Part`): the fields with their
kinds and how many rows have each. No row is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankloop.core.errors import closest
from rankloop.features import declarations as kinds
from rankloop.features.declarations import Declaration
from rankloop.service.storage.catalog import Kind, Part

LOW = 0.5  # share of the rows: a field that fewer rows have is reported
_NUMBERS, _STRINGS = ("number", "boolean", "timestamp"), ("string", "strings", "boolean")
_HOLDS = {
    "number": "numbers",
    "boolean": "booleans",
    "timestamp": "timestamps",
    "string": "strings",
    "strings": "lists of strings",
    "vector": "vectors",
}
_PARTS: dict[str, Kind] = {"item": "items", "user": "users"}


class Read(NamedTuple):
    """A field of the catalog that a feature reads."""

    feature: str
    kind: str  # of the declaration
    source: str  # item.FIELD or user.FIELD

    @property
    def part(self) -> Kind:
        """Where it is read."""
        return _PARTS[self.source.partition(".")[0]]

    @property
    def field(self) -> str:
        """What is read there."""
        return self.source.partition(".")[2]


class Problem(NamedTuple):
    """Something that is wrong with a catalog, or with what a feature reads of it."""

    text: str
    read: Read | None = None  # None: it is about the catalog as a whole
    wrong: bool = False  # the feature can have no value at all, whatever item is ranked


def reads(declared: Iterable[Declaration]) -> list[Read]:
    """What features read of a catalog."""
    found = [Read(one.name, one.kind, source) for one in declared for source in one.sources]
    return [one for one in found if one.source.partition(".")[0] in _PARTS and "." in one.source]


def problems(catalog: str, declared: Sequence[Declaration], parts: Sequence[Part]) -> list[Problem]:
    """What is wrong, of a catalog of which these are the parts.

    >>> from rankloop.features.declarations import declaration
    >>> problems("shop", [declaration({"name": "price", "kind": "field", "of": "item.price"})], [])[0].text
    "catalog 'shop' does not exist, so no feature that reads it has a value; upload items, or name another catalog"
    """
    if not parts:
        text = f"catalog {catalog!r} does not exist, so no feature that reads it has a value; upload items, or name "
        return [Problem(text + "another catalog")]
    by_kind = {part.kind: part for part in parts}
    found: list[Problem] = []
    empty: dict[Kind, list[str]] = {}
    for one in reads(declared):
        part = by_kind.get(one.part)
        if part is None or not part.rows:
            empty.setdefault(one.part, []).append(one.feature)
        elif (wrong := _wrong(catalog, one, part)) is not None:
            found.append(Problem(wrong, one, wrong=True))
        elif (thin := _thin(catalog, one, part)) is not None:
            found.append(Problem(thin, one))
    for kind, names in empty.items():
        text = f"catalog {catalog!r} has no {kind} yet, so {_listed(names)} cannot be computed"
        found.append(Problem(f"{text}; upload {kind}"))
    return found


def misspelled(new: Iterable[str], declared: Iterable[Read], kind: Kind, part: Part) -> list[str]:
    """What to say of fields that no earlier row had and that look like one that a feature reads and no row has."""
    wanted = sorted({one.field for one in declared if one.part == kind and one.field not in part.fields})
    found = []
    for name in new:
        if (close := closest(name, wanted)) is not None:
            text = f"field {name!r} is new in the {kind}, and no {kind.removesuffix('s')} has {close!r}, which "
            found.append(f"{text}features of rankers read; did you mean {close!r}?")
    return found


def _wrong(catalog: str, one: Read, part: Part) -> str | None:
    """Why a feature can have no value."""
    noun, field = part.kind.removesuffix("s"), part.fields.get(one.field)
    if field is None:
        close = closest(one.field, list(part.fields))
        hint = "" if close is None else f" did you mean {close!r}?"
        text = f"feature {one.feature!r} reads {one.source}, but no {noun} of catalog {catalog!r} has that field;{hint}"
        return f"{text} upload {part.kind} with the field first, or name another one"
    if field.kind not in _readable(one):
        takes = " or ".join(dict.fromkeys(_HOLDS[kind] for kind in _readable(one)))
        text = f"feature {one.feature!r} ({one.kind}) reads {one.source}, which holds {_HOLDS[field.kind]}"
        return f"{text}; it takes {takes}: declare another kind of feature, or name another field"
    return None


def _thin(catalog: str, one: Read, part: Part) -> str | None:
    """Why a feature has few values."""
    if part.counts is None or (count := part.counts.get(one.field, 0)) >= LOW * part.rows:
        return None
    share = f"{count:,} of {part.rows:,} {part.kind} of catalog {catalog!r} have ({count / part.rows:.0%})"
    return f"feature {one.feature!r} reads {one.source}, which {share}; for the others the value is missing"


def _readable(one: Read) -> tuple[str, ...]:
    """The kinds of fields that a feature can be computed from."""
    if one.kind in (kinds.FieldValue.kind, kinds.Age.kind):
        return _NUMBERS
    if one.kind == kinds.Cosine.kind:
        return ("vector",)
    return _STRINGS[:2] if one.kind == kinds.Text.kind else _STRINGS


def _listed(names: Sequence[str], most: int = 5) -> str:
    text = ", ".join(repr(name) for name in dict.fromkeys(names[:most]))
    return f"features {text}{f' and {len(names) - most} more' if len(names) > most else ''}"
