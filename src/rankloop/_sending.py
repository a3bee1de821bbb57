"""From what callers of the clients have to what is sent: candidates, events and specs, checked before they travel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from rankloop.errors import InvalidInput
from rankloop.service.wire.basics import ItemId
from rankloop.service.wire.calls import Candidate, FeedbackEvent
from rankloop.types import Candidates

T = TypeVar("T")


def listed(candidates: Candidates | Iterable[Candidate | Mapping[str, Any]]) -> list[Candidate]:
    """Candidates as they are sent. JSON has no NaN: msgspec would send null, so such a number is refused here."""
    if isinstance(candidates, Candidates):  # checked when it was made
        rows = [None] * candidates.n if candidates.features is None else candidates.features.tolist()
        return [Candidate(item, row) for item, row in zip(candidates.items.tolist(), rows, strict=True)]
    listed = [_candidate(i, candidate) for i, candidate in enumerate(candidates)]
    if not listed:
        raise InvalidInput("there are no candidates; give at least one")
    return listed


def _candidate(i: int, given: Candidate | Mapping[str, Any]) -> Candidate:
    fields = msgspec.structs.asdict(given) if isinstance(given, Candidate) else given
    if not (isinstance(fields, Mapping) and "id" in fields and fields.keys() <= {"id", "features"}):
        has = sorted(map(str, fields)) if isinstance(fields, Mapping) else type(given).__name__
        raise InvalidInput(f"candidate {i} has {has}; give a dict with 'id' and perhaps 'features', or a Candidate")
    item, features = _plain(fields["id"]), fields.get("features")
    if not isinstance(item, str | int):
        raise InvalidInput(f"candidate {i} has the id {item!r}; ids must be strings or integers")
    if features is None:
        return Candidate(item)
    if isinstance(features, Mapping):
        names = list(map(str, features))
        return Candidate(item, dict(zip(names, _numbers(item, names, features.values()), strict=True)))
    return Candidate(item, _numbers(item, None, features))


def _numbers(item: ItemId, names: list[str] | None, values: Iterable[Any]) -> list[float]:
    """The values as finite floats; the error names the candidate and the feature."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    try:
        numbers = list(map(float, plain))
        if math.isfinite(sum(numbers)):  # the fast way; only a sum that is not finite is looked at closely
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return [_finite(v, f"candidate {item!r}: feature {names[j] if names else j!r}") for j, v in enumerate(plain)]


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
    if fields.get("clicks") is not None:
        fields["clicks"] = ids(fields["clicks"])
    if fields.get("grades") is not None:
        grades = fields["grades"].items()
        fields["grades"] = {str(item): _finite(value, f"{noun}: the grade of {item!r}") for item, value in grades}
    return converted(fields, FeedbackEvent, noun)


def ids(items: Iterable[Any]) -> list[Any]:
    """Ids as they are sent; one word is not a list of letters."""
    if isinstance(items, str):
        raise InvalidInput(f"clicks are {items!r}; give a list of ids, as in [{items!r}]")
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
