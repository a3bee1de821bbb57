"""Check and encode what callers pass: candidates, tables of features, events. Works without numpy."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import uuid4

import msgspec

from rankloop.core.errors import InvalidInput
from rankloop.wire.basics import ItemId, Quota
from rankloop.wire.calls import Candidate, FeedbackEvent, RankColumns, RankRequest

T = TypeVar("T")


@runtime_checkable
class ReadyCandidates(Protocol):
    """A `rankloop.Candidates`, as a protocol: the client does not import the library."""

    @property
    def query(self) -> str:
        """What was asked."""

    @property
    def items(self) -> Any:
        """(n,) ids."""

    @property
    def features(self) -> Any:
        """(n, d) numbers, or None."""


def request(
    candidates: ReadyCandidates | Iterable[Candidate | Mapping[str, Any]] | None, ids: Any, features: Any, **head: Any
) -> RankRequest | RankColumns:
    """A request to rank, in the shortest form for what the caller has: a table of numbers travels packed, as exact as
    it is (float32 stays float32, all else is float64), features by name as columns."""
    if (candidates is None) == (ids is None):
        raise InvalidInput("give either candidates, or ids with features")
    if isinstance(candidates, ReadyCandidates):  # checked when it was made
        own = candidates.features
        table = None if own is None else pack_array(own, len(candidates.items))
        return RankColumns(ids=candidates.items.tolist(), features=table, **head)
    if candidates is None:
        listed = _ids(ids)
        return RankColumns(ids=listed, features=encode_table(features, len(listed)) if listed else None, **head)
    if features is not None:
        raise InvalidInput("features were given with candidates, which have their own; give ids with features")
    rows = [_fields(i, candidate) for i, candidate in enumerate(candidates)]
    if not rows:
        return RankColumns(ids=[], **head)
    whole = encode_rows([own for _, own in rows])
    if whole is not None:
        return RankColumns(ids=[item for item, _ in rows], features=whole, **head)
    return RankRequest(candidates=[_candidate(item, own) for item, own in rows], **head)


def _ids(given: Any) -> list[Any]:
    if isinstance(given, str | Mapping):
        raise InvalidInput(f"ids are {given!r:.60}; give a list of ids")
    found = given.tolist() if hasattr(given, "tolist") else [_plain(item) for item in given]
    return found if isinstance(found, list) else [found]


def _fields(i: int, given: Candidate | Mapping[str, Any]) -> tuple[ItemId, Any]:
    """Id and features of a candidate."""
    if isinstance(given, Candidate):
        item, features = given.id, given.features
    elif isinstance(given, Mapping) and "id" in given and given.keys() <= {"id", "features"}:
        item, features = given["id"], given.get("features")
    else:
        has = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise InvalidInput(f"candidate {i} has {has}; give a dict with 'id' and optional 'features', or a Candidate")
    item = _plain(item)
    if not isinstance(item, str | int):
        raise InvalidInput(f"candidate {i} has the id {item!r}; ids must be strings or integers")
    return item, features


def _candidate(item: ItemId, features: Any) -> Candidate:
    if features is None:
        return Candidate(item)
    if isinstance(features, Mapping):
        names = list(map(str, features))
        return Candidate(item, dict(zip(names, _numbers(item, names, features.values()), strict=True)))
    return Candidate(item, _numbers(item, None, features))


def _numbers(item: ItemId, names: list[str] | None, values: Iterable[Any]) -> list[float | None]:
    """The values as floats, None where there is none; the error names the candidate and the feature."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    try:
        numbers: list[float | None] = list(map(float, plain))
        if math.isfinite(sum(numbers)):  # type: ignore[arg-type]  # only a sum that is not finite is looked at closely
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return [
        None if _missing(v) else _finite(v, f"candidate {item!r}: feature {names[j] if names else j!r}")
        for j, v in enumerate(plain)
    ]


def _missing(value: Any) -> bool:
    """None and NaN: there is no value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _finite(value: Any, noun: str) -> float:
    try:
        if math.isfinite(number := float(value)):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{noun} is {value!r}; it must be a finite number: replace it, or leave the item out")


def as_event(given: FeedbackEvent | Mapping[str, Any], noun: str) -> FeedbackEvent:
    """An event as it is sent, with an event_id that stays the same however often that is."""
    fields = msgspec.structs.asdict(given) if isinstance(given, FeedbackEvent) else dict(given)
    fields["event_id"] = fields.get("event_id") or uuid4().hex
    for name in ("clicks", "viewed"):
        if fields.get(name) is not None:
            fields[name] = ids_of(fields[name], name)
    for name, one in (("grades", "grade"), ("rewards", "reward")):
        if fields.get(name) is not None:
            values = fields[name].items()
            fields[name] = {str(item): _finite(value, f"{noun}: the {one} of {item!r}") for item, value in values}
    return converted(fields, FeedbackEvent, noun)


def rules(
    pinned: Mapping[Any, int],
    excluded: Iterable[Any],
    quotas: Iterable[Quota | Mapping[str, Any]],
    groups: Mapping[str, Iterable[Any]],
) -> dict[str, Any]:
    """The rules of a request as they are sent."""
    return {
        "pinned": {str(item): int(position) for item, position in pinned.items()},
        "excluded": ids_of(excluded, "excluded"),
        "quotas": [one if isinstance(one, Quota) else converted(dict(one), Quota, "a quota") for one in quotas],
        "groups": {name: [_plain(value) for value in values] for name, values in groups.items()},
    }


def ids_of(items: Iterable[Any], name: str = "clicks") -> list[Any]:
    """Ids as they are sent; a string is not a list of characters."""
    if isinstance(items, str):
        raise InvalidInput(f"{name} are {items!r}; give a list of ids, as in [{items!r}]")
    return [_plain(item) for item in items]


def _plain(value: Any) -> Any:
    """Numbers and strings of numpy's as Python's."""
    return value.item() if hasattr(value, "item") else value


def converted(fields: dict[str, Any], kind: type[T], noun: str) -> T:
    """Fields as a struct; errors name what the caller passed."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{noun}: {error}; see {kind.__name__} in {kind.__module__}") from None


def encode_rows(rows: list[Any]) -> Any:
    """The features of rows that are all alike, finite numbers and no gaps, as one table; None of any others, which are
    sent row by row, once somebody has looked at each number."""
    first = rows[0]
    try:
        if isinstance(first, Mapping):
            if all(type(name) is str for name in first) and all(row.keys() == first.keys() for row in rows):
                columns = zip(*([row[name] for name in first] for row in rows), strict=True)
                found = {name: array("d", column) for name, column in zip(first, columns, strict=True)}
                if all(math.isfinite(sum(column)) for column in found.values()):
                    return {name: column.tolist() for name, column in found.items()}
        elif all(isinstance(row, list | tuple) or hasattr(row, "dtype") for row in rows):
            lines = [array("d", row) for row in rows]
            if len(set(map(len, lines))) == 1 and all(map(_all_finite, lines)):
                return _bytes(lines)
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    return None


def encode_table(features: Any, n: int) -> Any:
    """The features of `n` candidates: packed, or columns by name of what has names."""
    if features is None:
        return None
    names = _column_names(features)
    if names is not None:
        return {str(name): _column(features[name], name, n) for name in names}
    if hasattr(features, "__array__"):
        return pack_array(features, n)
    return _pack_lists(features, n)


def pack_array(table: Any, n: int) -> bytes:
    """An array, or what can become one; as exact as it is: float32 stays float32, all else is float64."""
    import numpy as np  # whoever has an array has numpy

    try:
        found = np.asarray(table)
        short = found.dtype == np.float32
        found = np.ascontiguousarray(found, dtype="<f4" if short else "<f8")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None
    if np.ndim(table) != 2 or len(found) != n:
        raise InvalidInput(f"features have shape {np.shape(table)}; {_rule(n)}")
    if np.isinf(found).any():
        i, j = (int(v) for v in np.argwhere(np.isinf(found))[0])
        raise _infinite(i, j, found[i, j])
    packed: bytes = found.tobytes()
    return packed


def _pack_lists(rows: Iterable[Iterable[Any]], n: int) -> bytes:
    """A list of rows; None is sent as NaN, which means the same."""
    rows = list(rows)
    if rows and isinstance(rows[0], int | float):
        raise InvalidInput(f"features have shape ({len(rows)},); {_rule(n)}")
    try:
        lines = [_line(row) for row in rows]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"features are not a table of numbers ({error}); give (n, d) floats") from None
    widths = sorted(set(map(len, lines)))
    if len(widths) > 1:
        raise InvalidInput(f"features have rows of {widths[0]} and of {widths[-1]} numbers; {_rule(n)}")
    if len(lines) != n:
        raise InvalidInput(f"features have shape ({len(lines)}, {widths[0] if widths else 0}); {_rule(n)}")
    for i, line in enumerate(lines):
        if not _all_finite(line):
            for j, value in enumerate(line):
                if math.isinf(value):
                    raise _infinite(i, j, value)
    return _bytes(lines)


def _line(row: Iterable[Any]) -> array[float]:
    try:
        return array("d", row)
    except TypeError:
        return array("d", [math.nan if value is None else float(value) for value in row])


def _bytes(lines: list[array[float]]) -> bytes:
    """Numbers as they travel: with the low byte first, whatever the machine."""
    if sys.byteorder == "big":
        for line in lines:
            line.byteswap()
    return b"".join(lines)


def _all_finite(line: array[float]) -> bool:
    """Whether all are; the sum is quick, and where it overflows each one is looked at."""
    return math.isfinite(sum(line)) or all(map(math.isfinite, line))


def _column_names(features: Any) -> list[Any] | None:
    """The names of the columns of a frame (Arrow; pandas and polars), or of a dictionary of columns."""
    for place in ("column_names", "columns"):
        if hasattr(features, place):
            return list(getattr(features, place))
    return list(features) if isinstance(features, Mapping) else None


def _column(column: Any, name: Any, n: int) -> Sequence[float | None]:
    """A column by name; None and NaN, which JSON has not, are sent as null."""
    for listed in ("to_pylist", "to_list", "tolist"):  # Arrow; polars, pandas; numpy
        if hasattr(column, listed):
            column = getattr(column, listed)()
            break
    try:
        values = list(column)
        if len(values) == n:
            plain = _line(values)
            if _all_finite(plain):
                return plain.tolist()
            if not any(map(math.isinf, plain)):
                return [None if math.isnan(value) else value for value in plain]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"column {name!r} does not hold numbers ({error}); name the columns to rank by") from None
    rule = f"give a finite number for each of the {n} ids, NaN where there is none"
    raise InvalidInput(f"feature {name!r} is a column of shape ({len(values)},), or has infinity in it; {rule}")


def _rule(n: int) -> str:
    return f"give (n, d) numbers, a row for each of the {n} ids"


def _infinite(i: int, j: int, value: float) -> InvalidInput:
    return InvalidInput(f"features[{i}, {j}] is {value}; features must be finite numbers, or NaN for none")
