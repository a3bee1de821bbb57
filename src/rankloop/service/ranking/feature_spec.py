"""The features of a spec: columns, what is invalid about them, and whether the catalog has the fields they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rankloop.core.errors import InvalidParameter, closest
from rankloop.core.types import LARGEST
from rankloop.features import declarations as kinds
from rankloop.features.declarations import (
    MOST_DENSE,
    Category,
    Clicked,
    ColumnNames,
    Counted,
    Declaration,
    Sent,
    declaration,
)
from rankloop.service.storage.catalog import Kind, Part
from rankloop.wire.rankers import Spec


def declarations(spec: Spec) -> list[Declaration]:
    """The declared features of a spec."""
    return [declaration(one) for one in spec.features]


def has_counters(spec: Spec) -> bool:
    """Whether some of the features count impressions and clicks."""
    return any(isinstance(one, Counted | Clicked) for one in declarations(spec))


def column_names(spec: Spec) -> ColumnNames:
    """The names of the learner's columns, in order: a category becomes several columns.

    >>> brand = {"name": "brand", "kind": "category", "of": "item.brand", "values": ["acme"]}
    >>> list(column_names(Spec(features=["bm25", brand])))
    ['bm25', 'brand=acme']
    """
    return ColumnNames(declarations(spec))


def width_of(spec: Spec) -> int:
    """The number of the learner's columns, named or not."""
    return spec.width or len(column_names(spec))


def is_sparse(spec: Spec) -> bool:
    """Whether rows hold only what is not 0."""
    return bool(spec.width) or are_wide(declarations(spec))


def are_wide(declared: Sequence[Declaration]) -> bool:
    """Whether computed features have too many columns for full rows. A function of the spec alone, so that every
    process and every replay has the same rows.

    >>> brand = {"name": "brand", "kind": "category", "of": "item.brand", "buckets": 3000}
    >>> are_wide([declaration(brand)]), are_wide([declaration({**brand, "name": name}) for name in "ab"])
    (False, True)
    """
    return sum(one.width for one in declared if not isinstance(one, Sent)) > MOST_DENSE


def unhashed_columns(spec: Spec) -> int:
    """The number of columns that are not buckets of a hash: they cost work in every request, whatever their values."""
    return sum(one.width for one in declarations(spec) if not (isinstance(one, Category) and one.buckets))


def check_features(spec: Spec) -> None:
    """Raise InvalidParameter for features or defaults that contradict each other or the rest of the spec."""
    if spec.width and (spec.features or spec.defaults or spec.normalization != "none"):
        raise InvalidParameter(
            f"width is {spec.width}, so candidates send features by any name; leave out features and defaults, and "
            "set normalization to none"
        )
    declared = declarations(spec)
    if are_wide(declared) and spec.normalization != "none":
        raise InvalidParameter(
            f"the features have {width_of(spec):,} columns, so rows hold only what is not 0, and normalization is "
            f"{spec.normalization!r}, which would change zeros; set it to none and send numbers about as large as the "
            f"flags (`log`, rates), or hash into {MOST_DENSE:,} columns in all"
        )
    _check_names(declared)
    for one in declared:
        source = next((source for source in one.sources if source.startswith(("item.", "user."))), None)
        if spec.catalog is None and source is not None:
            raise InvalidParameter(
                f"feature {one.name!r} is of {source}, but the spec names no catalog; "
                "set `catalog` to the one that items and users are uploaded to"
            )
    sent = [one.name for one in declared if isinstance(one, Sent)]
    for name, value in spec.defaults.items():
        if name not in sent:
            known = listed(sent, 12) or "none"
            raise InvalidParameter(
                f"defaults has {name!r}, which is not a feature that requests send; those are {known}"
            )
        if not abs(value) <= LARGEST:
            raise InvalidParameter(
                f"the default of {name!r} is {value}; it must be a finite number within ±{LARGEST:g}"
            )


def _check_names(declared: Sequence[Declaration]) -> None:
    """Refuse names that occur twice. Buckets, of which there may be millions, are looked for in the others' names."""
    hashed = {one.name: one.width for one in declared if isinstance(one, Category) and one.buckets}
    others = [one for one in declared if not (isinstance(one, Category) and one.buckets)]
    times = Counter(one.name for one in declared) + Counter(
        column for one in others for column in one.columns if column != one.name
    )
    for column in list(times):
        name, sign, bucket = column.rpartition("#")
        if sign and bucket.isdecimal() and str(int(bucket)) == bucket and int(bucket) < hashed.get(name, 0):
            times[column] += 1
    double = next((name for name, count in times.items() if count > 1), None)
    if double is not None:
        raise InvalidParameter(f"feature {double!r} occurs twice in features; names must be unique")


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first of some names, quoted, for messages."""
    text = ", ".join(repr(name) for name in names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


# -- the fields of a catalog, from the summary in the store: no row is read -----------------------------------------

LOW = 0.5  # share of the rows: a field that fewer rows have is reported
_NUMBERS, _STRINGS = ("number", "boolean", "timestamp"), ("string", "strings", "boolean")
_PLURALS = {kind: f"{kind}s" for kind in ("number", "boolean", "timestamp", "string", "vector")}
_PLURALS["strings"] = "lists of strings"
_PARTS: dict[str, Kind] = {"item": "items", "user": "users"}


class CatalogField(NamedTuple):
    """A field of the catalog that a feature reads."""

    feature: str
    kind: str  # of the declaration
    source: str  # item.FIELD or user.FIELD

    @property
    def part(self) -> Kind:
        """The part of the catalog that has the field."""
        return _PARTS[self.source.partition(".")[0]]

    @property
    def field(self) -> str:
        """Its name there."""
        return self.source.partition(".")[2]


class CatalogProblem(NamedTuple):
    """Something wrong with a catalog, or with a field that a feature reads."""

    text: str
    read: CatalogField | None = None  # None: it concerns the catalog as a whole
    wrong: bool = False  # the feature can have no value, whatever item is ranked


def catalog_fields(declared: Iterable[Declaration]) -> list[CatalogField]:
    """The fields of a catalog that features read."""
    found = [CatalogField(one.name, one.kind, source) for one in declared for source in one.sources]
    return [one for one in found if one.source.partition(".")[0] in _PARTS and "." in one.source]


def catalog_problems(catalog: str, declared: Sequence[Declaration], parts: Sequence[Part]) -> list[CatalogProblem]:
    """What is wrong with a catalog, which has these parts, for these features.

    >>> catalog_problems("shop", [declaration({"name": "price", "kind": "field", "of": "item.price"})], [])[0].text
    "catalog 'shop' does not exist, so no feature that reads it has a value; upload items, or name another catalog"
    """
    if not parts:
        text = f"catalog {catalog!r} does not exist, so no feature that reads it has a value; upload items, or name "
        return [CatalogProblem(text + "another catalog")]
    by_kind = {part.kind: part for part in parts}
    found: list[CatalogProblem] = []
    empty: dict[Kind, list[str]] = {}
    for one in catalog_fields(declared):
        part = by_kind.get(one.part)
        if part is None or not part.rows:
            empty.setdefault(one.part, []).append(one.feature)
        elif (wrong := _unreadable(catalog, one, part)) is not None:
            found.append(CatalogProblem(wrong, one, wrong=True))
        elif part.counts is not None and (count := part.counts.get(one.field, 0)) < LOW * part.rows:
            share = f"{count:,} of {part.rows:,} {part.kind} of catalog {catalog!r} have ({count / part.rows:.0%})"
            text = f"feature {one.feature!r} reads {one.source}, which {share}; for the others the value is missing"
            found.append(CatalogProblem(text, one))
    for kind, names in empty.items():
        text = f"catalog {catalog!r} has no {kind} yet, so features {listed(list(dict.fromkeys(names)))} cannot be "
        found.append(CatalogProblem(f"{text}computed; upload {kind}"))
    return found


def catalog_warnings(spec: Spec, parts: Mapping[str, Sequence[Part]]) -> list[str]:
    """What is wrong with the catalog that the features read; `parts` are those of every catalog, by its name."""
    name = spec.catalog
    found = [] if name is None else catalog_problems(name, declarations(spec), parts.get(name, []))
    return [one.text for one in found]


def misspelled_fields(new: Iterable[str], declared: Iterable[CatalogField], kind: Kind, part: Part) -> list[str]:
    """Warnings about new fields that resemble one that a feature reads and no row has."""
    wanted = sorted({one.field for one in declared if one.part == kind and one.field not in part.fields})
    found = []
    for name in new:
        if (close := closest(name, wanted)) is not None:
            text = f"field {name!r} is new in the {kind}, and no {kind.removesuffix('s')} has {close!r}, which "
            found.append(f"{text}features of rankers read; did you mean {close!r}?")
    return found


def _unreadable(catalog: str, one: CatalogField, part: Part) -> str | None:
    """Why a feature can have no value."""
    noun, field = part.kind.removesuffix("s"), part.fields.get(one.field)
    if field is None:
        close = closest(one.field, list(part.fields))
        hint = "" if close is None else f" did you mean {close!r}?"
        text = f"feature {one.feature!r} reads {one.source}, but no {noun} of catalog {catalog!r} has that field;{hint}"
        return f"{text} upload {part.kind} with the field first, or name another one"
    if one.kind in (kinds.FieldValue.kind, kinds.Age.kind):
        readable: tuple[str, ...] = _NUMBERS
    elif one.kind == kinds.Cosine.kind:
        readable = ("vector",)
    else:
        readable = _STRINGS[:2] if one.kind == kinds.Text.kind else _STRINGS
    if field.kind in readable:
        return None
    takes = " or ".join(dict.fromkeys(_PLURALS[kind] for kind in readable))
    text = f"feature {one.feature!r} ({one.kind}) reads {one.source}, which holds {_PLURALS[field.kind]}"
    return f"{text}; it takes {takes}: declare another kind of feature, or name another field"
