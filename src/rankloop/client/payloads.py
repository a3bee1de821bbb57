"""From what callers of the clients have to what is sent: candidates, events and specs, checked before they travel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import uuid4

import msgspec

from rankloop.client import tables
from rankloop.core.errors import InvalidInput
from rankloop.wire.basics import ItemId
from rankloop.wire.calls import Candidate, FeedbackEvent, RankColumns, RankRequest
from rankloop.wire.rules import Quota

T = TypeVar("T")


@runtime_checkable
class ReadyCandidates(Protocol):
    """A `rankloop.Candidates`, known by its shape: the client works where the library is not installed."""

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
        raise InvalidInput("give either candidates, or ids with features; not both, and not neither")
    if isinstance(candidates, ReadyCandidates):  # checked when it was made
        own = candidates.features
        table = None if own is None else tables.packed_array(own, len(candidates.items))
        return RankColumns(ids=candidates.items.tolist(), features=table, **head)
    if candidates is None:
        listed = _ids(ids)
        return RankColumns(ids=listed, features=tables.sent(features, len(listed)) if listed else None, **head)
    if features is not None:
        raise InvalidInput("features were given beside candidates, which carry their own; give ids with features")
    rows = [_fields(i, candidate) for i, candidate in enumerate(candidates)]
    if not rows:
        return RankColumns(ids=[], **head)
    whole = tables.of_rows([own for _, own in rows])
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
        raise InvalidInput(f"candidate {i} has {has}; give a dict with 'id' and perhaps 'features', or a Candidate")
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
    """Ids as they are sent; one word is not a list of letters."""
    if isinstance(items, str):
        raise InvalidInput(f"{name} are {items!r}; give a list of ids, as in [{items!r}]")
    return [_plain(item) for item in items]


def _plain(value: Any) -> Any:
    """Numbers and strings of numpy's as Python's."""
    return value.item() if hasattr(value, "item") else value


def converted(fields: dict[str, Any], kind: type[T], noun: str) -> T:
    """Fields as a struct; what does not fit is told in the caller's words."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{noun}: {error}; see {kind.__name__} in {kind.__module__}") from None
