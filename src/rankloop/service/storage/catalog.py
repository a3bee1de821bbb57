"""Catalogs: the fields of items and users, and the order of their changes.

A catalog has two parts, items and users. Each change has a number, so processes that cache a part read only newer
changes. A deleted row stays for a while without a body; a process that has missed its deletion reads the part again. An
emptied part gets another id, and its old rows are deleted in batches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from rankloop.core.errors import InvalidInput
from rankloop.features.field_types import FieldType, check
from rankloop.service.storage.database import Connection, Contended, marks

Kind = Literal["items", "users"]
KINDS: tuple[Kind, ...] = ("items", "users")
DELETED_SECONDS = 3600.0  # for which a deleted row is kept; caches look for changes every second
_COLUMNS = "part, catalog, kind, seq, forgotten, rows, bytes, fields, created, field_counts"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_fields = msgspec.json.Decoder(dict[str, FieldType]).decode
_decode_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BYTES = {"number": 8, "boolean": 8, "timestamp": 8, "string": 4, "strings": 12, "vector": 0}  # of a row in a table


class FieldCounts(msgspec.Struct, frozen=True):
    """How many rows of a part have each field, of rows whose last change is at most `upto`.

    Writes update the counts; `recount` counts the rest of a part that an older version filled.
    """

    counts: dict[str, int] = {}
    upto: int = 0
    seq: int = 0  # of the part when the counts were written

    def changed(
        self, old: Sequence[tuple[int, bytes | None]], new: Sequence[bytes], before: int, after: int
    ) -> FieldCounts:
        """Return the counts after rows were replaced: `old` are their earlier numbers and bodies, `new` the new bodies,
        `before` and `after` the number of the part's last change."""
        now = self if self.seq == before else FieldCounts()
        counts = dict(now.counts)
        for seq, body in old:
            if body is not None and seq <= now.upto:
                _add(counts, body, -1)
        if now.upto < before:  # `recount` will count the new rows, whose numbers are larger
            return FieldCounts(counts, now.upto, after)
        for body in new:
            _add(counts, body, 1)
        return FieldCounts(counts, after, after)


def _add(counts: dict[str, int], body: bytes, sign: int) -> None:
    for name in _decode_names(body):
        counts[name] = counts.get(name, 0) + sign


_decode_counts = msgspec.json.Decoder(FieldCounts).decode


class Part(NamedTuple):
    """The items or the users of a catalog."""

    part: int
    catalog: str
    kind: Kind
    seq: int  # of the last change
    forgotten: int  # deletions up to this one are no longer reported
    rows: int
    bytes: int  # of ids, strings and lists, about as much as they take in memory
    fields: dict[str, FieldType]
    created: float
    field_counts: FieldCounts

    @property
    def counts(self) -> dict[str, int] | None:
        """The number of rows with each field; None while they are being counted."""
        if not self.field_counts.seq == self.field_counts.upto == self.seq:
            return None
        return {name: self.field_counts.counts.get(name, 0) for name in self.fields}

    @property
    def memory(self) -> int:
        """About how many bytes it takes in a ranking worker."""
        width = sum(_BYTES[field.kind] + 4 * field.width for field in self.fields.values())
        return self.rows * width + self.bytes


class RowChange(NamedTuple):
    """A new, changed or deleted row (`body` is None)."""

    id: str
    seq: int
    body: bytes | None


class Limits(NamedTuple):
    """The maximum size of a part."""

    rows: int
    bytes: int


class NewRow(NamedTuple):
    """An item to write: its id and fields."""

    id: str
    values: Mapping[str, Any]


Written = tuple[Literal["accepted", "unchanged", "rejected"], str | None]  # and why it was rejected


# -- reading -------------------------------------------------------------------------------------------------------


def _part(row: Sequence[Any]) -> Part:
    number, name, kind, seq, forgotten, rows, size, fields, created, filled = row
    counts = FieldCounts() if filled is None else _decode_counts(filled)
    return Part(number, name, kind, seq, forgotten, rows, size, _decode_fields(fields), created, counts)


def parts(connection: Connection, catalog: str | None = None) -> list[Part]:
    """Return all parts, or those of one catalog."""
    where, names = ("", ()) if catalog is None else ("WHERE catalog = ? ", (catalog,))
    return [
        _part(row) for row in connection.rows(f"SELECT {_COLUMNS} FROM catalogs {where}ORDER BY catalog, kind", *names)
    ]


def by_name(connection: Connection) -> dict[str, list[Part]]:
    """Return all parts by the name of their catalog."""
    found: dict[str, list[Part]] = {}
    for one in parts(connection):
        found.setdefault(one.catalog, []).append(one)
    return found


def last_changes(connection: Connection) -> list[tuple[int, str, Kind, int]]:
    """Return (part, catalog, kind, number of the last change) of every part; read several times per second."""
    return [(*row,) for row in connection.rows("SELECT part, catalog, kind, seq FROM catalogs")]


def part(connection: Connection, catalog: str, kind: Kind, lock: bool = False) -> Part | None:
    """Return one part, if it exists."""
    sql = f"SELECT {_COLUMNS} FROM catalogs WHERE catalog = ? AND kind = ?"
    row = connection.row(sql + (connection.lock_rows if lock else ""), catalog, kind)
    return None if row is None else _part(row)


def changes(connection: Connection, number: int, after: int, limit: int) -> list[RowChange]:
    """Return the changes of a part after a number, in order."""
    sql = "SELECT id, seq, body FROM catalog_rows WHERE part = ? AND seq > ? ORDER BY seq LIMIT ?"
    return [RowChange(row[0], row[1], _bytes(row[2])) for row in connection.rows(sql, number, after, limit)]


def body(connection: Connection, catalog: str, kind: Kind, item: str) -> bytes | None:
    """Return the fields of one item as JSON."""
    found = part(connection, catalog, kind)
    if found is None:
        return None
    row = connection.row("SELECT body FROM catalog_rows WHERE part = ? AND id = ?", found.part, item)
    return None if row is None else _bytes(row[0])


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


# -- changing ------------------------------------------------------------------------------------------------------


def write(
    connection: Connection,
    catalog: str,
    kind: Kind,
    rows_: Sequence[NewRow],
    merge: bool,
    limits: Limits,
    now: float,
) -> list[Written]:
    """Write rows in order; return the result of each. With `merge` only the given fields change, and null removes one;
    otherwise the row is replaced. Rows without a change are not written."""
    found = part(connection, catalog, kind, lock=True) or _create_part(connection, catalog, kind, now)
    sql = f"SELECT id, size, body, seq FROM catalog_rows WHERE part = {found.part} AND id"
    there = connection.rows_in(sql, list({one.id for one in rows_}))
    before = {row[0]: (row[1], _bytes(row[2])) for row in there}
    fields, rows, size = dict(found.fields), found.rows, found.bytes
    written: dict[str, tuple[int, bytes]] = {}
    results: list[Written] = []
    for one in rows_:
        old_size, old = written.get(one.id) or before.get(one.id) or (0, None)
        try:
            values = one.values
            if merge and old is not None:
                values = {**_decode(old), **values}
            clean, new = check(values, fields)
            made = msgspec.json.encode({name: values[name] for name in clean}, order="sorted")
            if made == old:
                results.append(("unchanged", None))
                continue
            own = _size(one.id, clean)
            grown = found._replace(
                rows=rows + (old is None), bytes=size + own - (0 if old is None else old_size), fields={**fields, **new}
            )
            _check_limits(grown, old is None, limits)
        except InvalidInput as error:
            results.append(("rejected", str(error)))
            continue
        fields, rows, size = grown.fields, grown.rows, grown.bytes
        written[one.id] = (own, made)
        results.append(("accepted", None))
    if written:
        values_ = [
            (found.part, item, number, own, made, now)
            for number, (item, (own, made)) in enumerate(written.items(), found.seq + 1)
        ]
        connection.insert("catalog_rows", "part, id, seq, size, body, changed", values_, _UPSERT)
        seq = found.seq + len(written)
        old_rows = [(row[3], _bytes(row[2])) for row in there if row[0] in written]
        counts = found.field_counts.changed(old_rows, [made for _, made in written.values()], found.seq, seq)
        _save(connection, found._replace(seq=seq, rows=rows, bytes=size, fields=fields, field_counts=counts))
    return results


_UPSERT = (
    "ON CONFLICT (part, id) DO UPDATE SET seq = excluded.seq, size = excluded.size, body = excluded.body, "
    "changed = excluded.changed"
)


def create(connection: Connection, catalog: str, now: float) -> bool:
    """Create an empty catalog; False if there is one of that name."""
    if parts(connection, catalog):
        return False
    _create_part(connection, catalog, "items", now)
    return True


def delete(connection: Connection, catalog: str, kind: Kind, ids: Sequence[str], now: float) -> list[bool]:
    """Delete rows; return whether each was there."""
    found = part(connection, catalog, kind, lock=True)
    if found is None:
        return [False] * len(ids)
    sql = f"SELECT id, size, body, seq FROM catalog_rows WHERE part = {found.part} AND body IS NOT NULL AND id"
    there = {row[0]: row for row in connection.rows_in(sql, list(set(ids)))}
    gone = [item for item in dict.fromkeys(ids) if item in there]
    if gone:
        values = [(found.part, item, number, 0, None, now) for number, item in enumerate(gone, found.seq + 1)]
        connection.insert("catalog_rows", "part, id, seq, size, body, changed", values, _UPSERT)
        size, seq = found.bytes - sum(there[item][1] for item in gone), found.seq + len(gone)
        counts = found.field_counts.changed(
            [(there[item][3], _bytes(there[item][2])) for item in gone], [], found.seq, seq
        )
        _save(connection, found._replace(seq=seq, rows=found.rows - len(gone), bytes=size, field_counts=counts))
    return [item in there for item in ids]


def empty(connection: Connection, catalog: str, kind: Kind, now: float) -> int | None:
    """Delete all rows and fields of a part; return how many rows there were, None if there is no such part."""
    found = part(connection, catalog, kind, lock=True)
    if found is None:
        return None
    connection.run("DELETE FROM catalogs WHERE part = ?", found.part)
    _create_part(connection, catalog, kind, now)
    return found.rows


def drop(connection: Connection, catalog: str) -> bool:
    """Delete a catalog; return whether it was there. `delete_unused` deletes its rows."""
    return connection.run("DELETE FROM catalogs WHERE catalog = ?", catalog) > 0


def erase_user(connection: Connection, user: str, now: float) -> int:
    """Delete a user from every catalog; return how many had them. `delete_unused` deletes the id later."""
    names = [row[0] for row in connection.rows("SELECT catalog FROM catalogs WHERE kind = 'users' ORDER BY 1")]
    return sum(sum(delete(connection, name, "users", [user], now)) for name in names)


# The parts that have rows, by one index look-up each.
_STRAY = """
    WITH RECURSIVE parts (part) AS (
        SELECT MIN(part) FROM catalog_rows
        UNION ALL
        SELECT (SELECT MIN(part) FROM catalog_rows WHERE part > parts.part) FROM parts WHERE parts.part IS NOT NULL
    )
    SELECT part FROM parts WHERE part IS NOT NULL AND part NOT IN (SELECT part FROM catalogs) LIMIT 1
"""


def delete_unused(connection: Connection, now: float, limit: int) -> int:
    """Delete up to `limit` rows of deleted parts, and of old deletions."""
    stray = connection.row(_STRAY)
    if stray is not None:
        sql = f"SELECT part, id FROM catalog_rows WHERE part = ? ORDER BY id LIMIT {limit}"
        return _delete(connection, connection.rows(sql, stray[0]))
    old = f"SELECT part, id, seq FROM catalog_rows WHERE body IS NULL AND changed < ? ORDER BY changed LIMIT {limit}"
    rows = connection.rows(old, now - DELETED_SECONDS)
    for number in sorted({row[0] for row in rows}):
        last = max(row[2] for row in rows if row[0] == number)
        # A process behind this number must read the part again.
        connection.run("UPDATE catalogs SET forgotten = ? WHERE part = ? AND forgotten < ?", last, number, last)
    return _delete(connection, rows)


def recount(connection: Connection, limit: int) -> int:
    """Count the fields of up to `limit` rows of a part without complete counts; return how many rows were counted."""
    for number, name, kind, seq, filled in connection.rows(
        "SELECT part, catalog, kind, seq, field_counts FROM catalogs"
    ):
        known = FieldCounts() if filled is None else _decode_counts(filled)
        if known.seq == known.upto == seq:
            continue
        found = part(connection, name, kind, lock=True)
        if found is None or found.part != number:
            continue
        now = found.field_counts if found.field_counts.seq == found.seq else FieldCounts()
        rows = changes(connection, number, now.upto, limit)
        counts = dict(now.counts)
        for one in rows:
            if one.body is not None:
                _add(counts, one.body, 1)
        upto = rows[-1].seq if len(rows) == limit else found.seq
        _save(connection, found._replace(field_counts=FieldCounts(counts, upto, found.seq)))
        return max(len(rows), 1)
    return 0


def _delete(connection: Connection, rows: Sequence[Sequence[Any]]) -> int:
    by_part: dict[int, list[str]] = {}
    for row in rows:
        by_part.setdefault(row[0], []).append(row[1])
    gone = 0
    for number, ids in by_part.items():
        gone += connection.run(f"DELETE FROM catalog_rows WHERE part = ? AND id IN ({marks(ids)})", number, *ids)
    return gone


def _create_part(connection: Connection, catalog: str, kind: Kind, now: float) -> Part:
    """Create an empty part, and lock it."""
    number = int.from_bytes(os.urandom(6))  # unused: rows of deleted parts may still be there
    values = (number, catalog, kind, 0, 0, 0, 0, b"{}", now, msgspec.json.encode(FieldCounts()))
    connection.insert("catalogs", _COLUMNS, [values], "ON CONFLICT (catalog, kind) DO NOTHING")
    made = part(connection, catalog, kind, lock=True)  # another process may have been faster
    if made is None:
        raise Contended(f"catalog {catalog!r} is being created by another process")
    return made


def _save(connection: Connection, one: Part) -> None:
    connection.run(
        "UPDATE catalogs SET seq = ?, rows = ?, bytes = ?, fields = ?, field_counts = ? WHERE part = ?",
        one.seq,
        one.rows,
        one.bytes,
        msgspec.json.encode(one.fields),
        msgspec.json.encode(one.field_counts),
        one.part,
    )


def _size(item: str, clean: Mapping[str, Any]) -> int:
    """Return about how many bytes the id and strings of an item take in memory."""
    size = 200 + len(item)
    for value in clean.values():
        if isinstance(value, str):
            size += 120 + len(value)
        elif isinstance(value, list) and value and isinstance(value[0], str):
            size += sum(124 + len(one) for one in value)
    return size


def _check_limits(grown: Part, added: bool, limits: Limits) -> None:
    if added and grown.rows > limits.rows:
        raise InvalidInput(
            f"the catalog has {grown.rows - 1:,} {grown.kind}, the limit catalog_items is {limits.rows:,}; "
            "delete some, or raise the setting"
        )
    if grown.memory > limits.bytes:
        raise InvalidInput(
            f"the catalog's {grown.kind} would take {grown.memory:,} bytes in memory, the limit catalog_bytes is "
            f"{limits.bytes:,}; delete some, send fewer fields, or raise the setting"
        )
