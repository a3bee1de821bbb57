"""What a spec says of its features: how they are declared, how many columns they become, and what cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import LARGEST
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
from rankloop.service.ranking import catalog_checks
from rankloop.service.storage.catalog import Part
from rankloop.wire.rankers import Spec


def declarations(spec: Spec) -> list[Declaration]:
    """The features of a spec, as they are declared."""
    return [declaration(one) for one in spec.features]


def counts(spec: Spec) -> bool:
    """Whether some of the features count what was shown and clicked."""
    return any(isinstance(one, Counted | Clicked) for one in declarations(spec))


def column_names(spec: Spec) -> ColumnNames:
    """The names of what learners see, in order: a category becomes several columns.

    >>> brand = {"name": "brand", "kind": "category", "of": "item.brand", "values": ["acme"]}
    >>> list(column_names(Spec(features=["bm25", brand])))
    ['bm25', 'brand=acme']
    """
    return ColumnNames(declarations(spec))


def width_of(spec: Spec) -> int:
    """How many columns learners see, named or not."""
    return spec.width or len(column_names(spec))


def is_sparse(spec: Spec) -> bool:
    """Whether rows are told by what is not 0 in them."""
    return bool(spec.width) or are_wide(declarations(spec))


def are_wide(declared: Sequence[Declaration]) -> bool:
    """Whether features have too many columns for full rows. What is sent does not count: it came as a full row. A
    function of the spec alone, so that every process and every replay has the same rows, whatever its settings.

    >>> brand = {"name": "brand", "kind": "category", "of": "item.brand", "buckets": 3000}
    >>> are_wide([declaration(brand)]), are_wide([declaration({**brand, "name": name}) for name in "ab"])
    (False, True)
    """
    return sum(one.width for one in declared if not isinstance(one, Sent)) > MOST_DENSE


def named(spec: Spec) -> int:
    """How many columns are no buckets of a hash: those that cost work in every list, whatever is in them."""
    return sum(one.width for one in declarations(spec) if not (isinstance(one, Category) and one.buckets))


def check_features(spec: Spec) -> None:
    """Refuse features that cannot be, and defaults that stand for nothing or are no features."""
    if spec.width and (spec.features or spec.defaults or spec.normalisation != "none"):
        raise InvalidParameter(
            f"width is {spec.width}, so candidates send what they have by any name; leave out features and defaults, "
            "and set normalisation to none"
        )
    declared = declarations(spec)
    if are_wide(declared) and spec.normalisation != "none":
        raise InvalidParameter(
            f"the features have {width_of(spec):,} columns, so rows hold only what is not 0, and normalisation is "
            f"{spec.normalisation!r}, by which what is 0 would not stay so; set it to none, and have numbers about as "
            f"large as the flags (`log`, rates), or hash into {MOST_DENSE:,} columns in all"
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
            raise InvalidParameter(f"defaults has {name!r}, which is no feature that is sent; there are {known}")
        if not abs(value) <= LARGEST:
            raise InvalidParameter(
                f"the default of {name!r} is {value}; it must be a finite number within ±{LARGEST:g}"
            )


def catalog_warnings(spec: Spec, parts: Mapping[str, Sequence[Part]]) -> list[str]:
    """What is wrong with the catalog that the features read; `parts` are those of every catalog, by its name."""
    name = spec.catalog
    found = [] if name is None else catalog_checks.problems(name, declarations(spec), parts.get(name, []))
    return [one.text for one in found]


def _check_names(declared: Sequence[Declaration]) -> None:
    """Refuse names that stand twice. Buckets, of which there may be millions, are looked for in the others' names."""
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
        raise InvalidParameter(f"feature {double!r} stands twice in features; names must be unique")


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first of them, in quotes, for messages."""
    text = ", ".join(repr(name) for name in names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text
