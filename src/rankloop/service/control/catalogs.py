"""What an operator does with catalogs: upload, look, delete. Blocking: call in a thread.

An upload is many short transactions, after each of which others may write: lists and feedback never wait for it longer
than for a slow disk. What is answered for is on the disk. If a call is cut short, the same call again does the rest: an
item that is there already, just so, is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from rankloop.core.errors import InvalidInput
from rankloop.service.control.actions import Action, Done
from rankloop.service.errors import CatalogInUse, Malformed, OverLimit, UnknownCatalog, UnknownEntry, UnknownRanker
from rankloop.service.ranking import feature_spec
from rankloop.service.ranking.feature_spec import declarations
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import catalog as stored
from rankloop.service.storage import rankers
from rankloop.service.storage.catalog import Kind, Limits, NewRow, Part
from rankloop.service.storage.database import Connection
from rankloop.service.storage.writer import in_batches
from rankloop.wire.catalog import CatalogAnswer, CatalogInfo, Emptied, Entry, FieldInfo, LineReceipt
from rankloop.wire.catalog import PartInfo as Info

LONGEST = 512  # characters of an id: users may have as many
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_id = msgspec.json.Decoder(str | int).decode
T = TypeVar("T")


class _Sent(NamedTuple):
    """A line that could be read."""

    number: int
    line: NewRow


def bounds(engine: Engine) -> Limits:
    """What a part may grow to."""
    return Limits(engine.settings.catalog_items, engine.settings.catalog_bytes)


def put(engine: Engine, name: str, kind: Kind, body: bytes, merge: bool) -> CatalogAnswer:
    """Put in what a body brings, an array or a line each; with `merge` only the fields that are sent change. The
    catalog is made if it does not exist, by an empty array, too."""
    receipts: dict[int, LineReceipt] = {}
    sent: list[_Sent] = []
    for number, raw in _lines(engine, body):
        try:
            sent.append(_Sent(number, _item(engine, raw)))
        except InvalidInput as error:
            receipts[number] = LineReceipt(number, "rejected", None, str(error))
    limits = bounds(engine)
    lines = [one.line for one in sent]
    before = _part(engine, name, kind)

    def write(connection: Connection, part: Sequence[NewRow]) -> list[stored.Written]:
        return stored.write(connection, name, kind, part, merge, limits, engine.clock())

    action = Action(engine, "catalog", None)

    def text(done: Sequence[stored.Written]) -> str | None:
        count = sum(status == "accepted" for status, _ in done)
        return f"catalog {name}: {count} {kind} {'changed' if merge else 'put'}" if count else None

    for one, (status, reason) in zip(sent, _portions(engine, action, lines, write, text), strict=True):
        receipts[one.number] = LineReceipt(one.number, status, one.line.id, reason)
    if before is None and not receipts:
        action.commit(lambda connection: _made(connection, name, engine.clock()))
    answer = _answer(receipts)
    answer.warnings = _misspelled(engine, name, kind, before)
    return answer


def delete(engine: Engine, name: str, kind: Kind, body: bytes) -> CatalogAnswer:
    """Take out those whose ids a body brings, an array or one a line."""
    receipts: dict[int, LineReceipt] = {}
    ids: list[tuple[int, str]] = []
    for number, raw in _lines(engine, body):
        try:
            ids.append((number, _checked_id(_read(_id, raw, "an id, a string or an integer"))))
        except InvalidInput as error:
            receipts[number] = LineReceipt(number, "rejected", None, str(error))

    def write(connection: Connection, part: Sequence[str]) -> list[bool]:
        return stored.delete(connection, name, kind, part, engine.clock())

    def text(done: Sequence[bool]) -> str | None:
        return f"catalog {name}: {sum(done)} {kind} deleted" if any(done) else None

    action = Action(engine, "catalog", None)
    gone = _portions(engine, action, [one for _, one in ids], write, text)
    for (number, one), there in zip(ids, gone, strict=True):
        receipts[number] = LineReceipt(number, "deleted" if there else "unknown", one)
    return _answer(receipts)


def delete_one(engine: Engine, name: str, kind: Kind, item: str) -> None:
    """Take out one."""

    def change(connection: Connection) -> Done | None:
        gone = stored.delete(connection, name, kind, [item], engine.clock())[0]
        return Done(None, f"catalog {name}: one of its {kind} was deleted") if gone else None

    if Action(engine, "catalog", None, "delete-one", name, kind, item).commit(change) is None:
        raise _no_entry(name, kind, item)


def empty(engine: Engine, name: str, kind: Kind) -> Emptied:
    """Take out all, and forget which fields they had. Their rows are deleted behind this."""

    def change(connection: Connection) -> Done | None:
        count = stored.empty(connection, name, kind, engine.clock())
        return None if count is None else Done(count, f"catalog {name}: all {count} {kind} were deleted")

    done = Action(engine, "catalog", None, "empty", name, kind).commit(change)
    if done is None:
        raise _no_catalog(engine, name)
    return Emptied(done.result)


def drop(engine: Engine, name: str, force: bool = False) -> None:
    """Delete a catalog. One that a ranker names is only deleted with `force`."""

    def change(connection: Connection) -> Done | None:
        users = [] if force else [one.name for one in rankers.list_rankers(connection) if one.spec.catalog == name]
        if users and stored.parts(connection, name):
            raise CatalogInUse(
                f"catalog {name!r} is in use by ranker{'s' if len(users) > 1 else ''} {_listed(users)}, whose features "
                "would have no values; name another catalog in their specs first, or delete it with force=true"
            )
        return Done(None, f"catalog {name} was deleted") if stored.drop(connection, name) else None

    if Action(engine, "catalog", None, "drop", name, force).commit(change) is None:
        raise _no_catalog(engine, name)


def entry(engine: Engine, name: str, kind: Kind, item: str) -> Entry:
    """One item."""
    found = engine.database.read(lambda c: stored.body(c, name, kind, item))
    if found is None:
        raise _no_entry(name, kind, item)
    return Entry(item, _object(found))


def info(engine: Engine, name: str) -> CatalogInfo:
    """One catalog."""
    found = engine.database.read(lambda c: stored.parts(c, name))
    if not found:
        raise _no_catalog(engine, name)
    return _info(engine, name, found)


def infos(engine: Engine) -> list[CatalogInfo]:
    """All catalogs."""
    found = engine.database.read(stored.by_name)
    return [_info(engine, name, parts) for name, parts in found.items()]


# -- helpers -------------------------------------------------------------------------------------------------------


def _lines(engine: Engine, body: bytes) -> Iterator[tuple[int, bytes]]:
    """What a body brings, with its number: the places of an array, or the lines that are not empty."""
    text = body.lstrip()
    if text[:1] == b"[":
        try:
            raws: list[Any] = _array(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Malformed(f"the array cannot be read: {error}") from None
        lines = [(number, bytes(raw)) for number, raw in enumerate(raws, 1)]
    else:
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if not lines and text[:1] != b"[":  # an array of none is what a job sends on a day without changes
        raise InvalidInput("the body is empty; send an array of objects, or a JSON object a line")
    if len(lines) > engine.settings.catalog_lines:
        limit = engine.settings.catalog_lines
        raise OverLimit(f"{len(lines)} lines; the limit catalog_lines is {limit}: send several calls")
    return iter(lines)


def _read(decode: Callable[[bytes], T], raw: bytes, what: str) -> T:
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not {what} ({error})") from None


def _item(engine: Engine, raw: bytes) -> NewRow:
    limit = engine.settings.catalog_item_bytes
    if len(raw) > limit:
        raise InvalidInput(f"the item has {len(raw):,} bytes, the limit catalog_item_bytes is {limit:,}; send less")
    values = _read(_object, raw, "a JSON object")
    if "id" not in values:
        raise InvalidInput('the object has no "id"; send {"id": …, and its fields beside it}')
    return NewRow(_checked_id(values.pop("id")), values)


def _checked_id(item: Any) -> str:
    text = str(item) if isinstance(item, str | int) and not isinstance(item, bool) else ""
    if not 0 < len(text) <= LONGEST or "\0" in text:
        raise InvalidInput(f"the id is {item!r:.60}; ids are strings of 1 to {LONGEST} characters, or integers")
    return text


def _portions(
    engine: Engine,
    action: Action,
    lines: Sequence[Any],
    write: Callable[[Connection, Sequence[Any]], list[T]],
    text: Callable[[Sequence[T]], str | None],
) -> list[T]:
    """What `write` returns for all lines, in several transactions. Each of them sets the audit entry of `action` to the
    `text` about all lines so far; None: nothing has changed yet."""
    done: list[T] = []

    def work(connection: Connection, most: int) -> list[T] | None:
        part = lines[len(done) : len(done) + most]
        if not part:
            return None
        found = write(connection, part)
        if text(found) is not None and (said := text([*done, *found])) is not None:
            action.update(connection, said)
        return found

    if lines:
        for some in in_batches(engine.writer, work):
            done += some
        if (said := text(done)) is not None:
            action.log(said)
    return done


def _part(engine: Engine, name: str, kind: Kind) -> Part | None:
    return engine.database.read(lambda connection: stored.part(connection, name, kind))


def _made(connection: Connection, name: str, now: float) -> Done:
    made = stored.create(connection, name, now)
    return Done(None, f"catalog {name} was made" if made else None)


def _misspelled(engine: Engine, name: str, kind: Kind, before: Part | None) -> list[str]:
    """What to say of fields that are new in a part; nothing is looked at if none is."""
    now = _part(engine, name, kind)
    new = [] if now is None else [field for field in now.fields if before is None or field not in before.fields]
    if not new or now is None:
        return []
    live = [one.row.spec for one in list(engine.rankers.values()) if one.row.spec.catalog == name]
    return feature_spec.misspelled_fields(
        new, [read for spec in live for read in feature_spec.catalog_fields(declarations(spec))], kind, now
    )


def _listed(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(one) for one in names[:most]) + more


def _answer(receipts: dict[int, LineReceipt]) -> CatalogAnswer:
    results = [receipts[number] for number in sorted(receipts)]
    return CatalogAnswer(results, dict(Counter(one.status for one in results)))


def _info(engine: Engine, name: str, parts: Sequence[Part]) -> CatalogInfo:
    held = engine.rankers.catalogs.get(name)
    by_kind = {part.kind: part for part in parts}

    def told(kind: Kind) -> Info:
        part = by_kind.get(kind)
        if part is None:
            return Info(0, 0, [], 0, held is not None, 0)
        seen = None if held is None else held.seen[kind]
        behind = part.seq - seen.seq if seen is not None and seen.part == part.part else part.seq
        counts = part.counts or {}
        fields = [FieldInfo(one, field.kind, field.width, counts.get(one)) for one, field in part.fields.items()]
        return Info(part.rows, part.seq, fields, part.memory, held is not None, max(0, behind) if held else 0)

    users = sorted(one.row.name for one in list(engine.rankers.values()) if one.row.spec.catalog == name)
    engine.count_answered()
    counted = engine.metrics.counts("catalog_unknown_total", "ranker")
    unknown = sum(counted.get(one, 0) for one in users)
    memory = 0 if held is None else held.nbytes
    return CatalogInfo(name, told("items"), told("users"), users, memory, unknown)


def _no_catalog(engine: Engine, name: str) -> UnknownRanker:
    names = sorted({part.catalog for part in engine.database.read(stored.parts)})
    error = UnknownCatalog.among("catalog", name, names or ["none yet; make one with PUT"])
    assert isinstance(error, UnknownRanker)
    return error


def _no_entry(name: str, kind: Kind, item: str) -> UnknownRanker:
    return UnknownEntry(f"catalog {name!r} has no {kind.removesuffix('s')} {item!r}")
