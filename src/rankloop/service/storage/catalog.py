"""Catalogs: what was sent of items and users, as it was sent, and in which order it changed.

A catalog has two parts, its items and its users. A part counts its changes, and each row knows the number of its last
one: so whoever holds a part in memory asks for what is newer than the last number he has seen, and gets every change
once, in order, whoever made it (the part's row is locked until a change is committed). A row that was deleted stays for
a while without a body, to be told of; what has been forgotten of such rows is known by its number, and whoever is
further behind than that begins anew. So does everyone when a part is emptied: it gets another number, and the rows of
the old one, which is nobody's any more, are deleted in batches.
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
TOLD = 3600.0  # seconds that a deleted row is kept, to be told to those who look every second
_COLUMNS = "part, catalogue, kind, seq, forgotten, rows, bytes, fields, created, filled"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_fields = msgspec.json.Decoder(dict[str, FieldType]).decode
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BYTES = {"number": 8, "boolean": 8, "timestamp": 8, "string": 4, "strings": 12, "vector": 0}  # of a row in a table


class Filled(msgspec.Struct, frozen=True):
    """How many rows of a part have each field, of the rows whose last change is number `upto` or an earlier one.

    Every write keeps the counts up to date. `recount` takes in the rest of a part that was filled by a release without
    counts. If such a release has changed the part since (`seq` is not the part's), the counts start again from 0.
    """

    counts: dict[str, int] = {}
    upto: int = 0
    seq: int = 0  # of the part when the counts were written

    def changed(self, old: Sequence[tuple[int, bytes | None]], new: Sequence[bytes], before: int, after: int) -> Filled:
        """The counts after rows were replaced: `old` are their earlier numbers and bodies, `new` the bodies now.
        `before` and `after` are the part's number of the last change."""
        now = self if self.seq == before else Filled()
        counts = dict(now.counts)
        for seq, body in old:
            if body is not None and seq <= now.upto:
                _add(counts, body, -1)
        if now.upto < before:  # the new rows have larger numbers: `recount` comes to them
            return Filled(counts, now.upto, after)
        for body in new:
            _add(counts, body, 1)
        return Filled(counts, after, after)


def _add(counts: dict[str, int], body: bytes, sign: int) -> None:
    for name in _names(body):
        counts[name] = counts.get(name, 0) + sign


_filled = msgspec.json.Decoder(Filled).decode


class Part(NamedTuple):
    """The items, or the users, of a catalog."""

    part: int
    catalog: str
    kind: Kind
    seq: int  # of the last change
    forgotten: int  # deletions up to this one are no longer told
    rows: int
    bytes: int  # of ids, strings and lists, about as much as they take in memory
    fields: dict[str, FieldType]
    created: float
    filled: Filled

    @property
    def counts(self) -> dict[str, int] | None:
        """How many rows have each field; None while they are being counted."""
        if not self.filled.seq == self.filled.upto == self.seq:
            return None
        return {name: self.filled.counts.get(name, 0) for name in self.fields}

    @property
    def memory(self) -> int:
        """About how many bytes it takes in a process that ranks."""
        width = sum(_BYTES[field.kind] + 4 * field.width for field in self.fields.values())
        return self.rows * width + self.bytes


class Change(NamedTuple):
    """A row that is new, other than before, or gone (`body` is None)."""

    id: str
    seq: int
    body: bytes | None


class Bounds(NamedTuple):
    """What a part may grow to."""

    rows: int
    bytes: int


class Line(NamedTuple):
    """An item that was sent: its id and fields."""

    id: str
    values: Mapping[str, Any]


Outcome = tuple[Literal["accepted", "unchanged", "rejected"], str | None]  # and why it was rejected


# -- looking -------------------------------------------------------------------------------------------------------


def _part(row: Sequence[Any]) -> Part:
    number, name, kind, seq, forgotten, rows, size, fields, created, filled = row
    counted = Filled() if filled is None else _filled(filled)
    return Part(number, name, kind, seq, forgotten, rows, size, _fields(fields), created, counted)


def parts(connection: Connection, catalog: str | None = None) -> list[Part]:
    """All parts, or those of one catalog."""
    where, names = ("", ()) if catalog is None else ("WHERE catalogue = ? ", (catalog,))
    return [
        _part(row)
        for row in connection.rows(f"SELECT {_COLUMNS} FROM catalogues {where}ORDER BY catalogue, kind", *names)
    ]


def by_name(connection: Connection) -> dict[str, list[Part]]:
    """All parts, by the name of their catalog."""
    found: dict[str, list[Part]] = {}
    for one in parts(connection):
        found.setdefault(one.catalog, []).append(one)
    return found


def heads(connection: Connection) -> list[tuple[int, str, Kind, int]]:
    """(part, catalog, kind, number of the last change) of every part: what is looked at several times a second."""
    return [(*row,) for row in connection.rows("SELECT part, catalogue, kind, seq FROM catalogues")]


def part(connection: Connection, catalog: str, kind: Kind, lock: bool = False) -> Part | None:
    """One part, if it is there."""
    sql = f"SELECT {_COLUMNS} FROM catalogues WHERE catalogue = ? AND kind = ?"
    row = connection.row(sql + (connection.lock_rows if lock else ""), catalog, kind)
    return None if row is None else _part(row)


def changes(connection: Connection, number: int, after: int, limit: int) -> list[Change]:
    """What has changed in a part after a change, in order."""
    sql = "SELECT id, seq, body FROM catalogue_rows WHERE part = ? AND seq > ? ORDER BY seq LIMIT ?"
    return [Change(row[0], row[1], _bytes(row[2])) for row in connection.rows(sql, number, after, limit)]


def body(connection: Connection, catalog: str, kind: Kind, item: str) -> bytes | None:
    """What is known of one item, as JSON."""
    found = part(connection, catalog, kind)
    if found is None:
        return None
    row = connection.row("SELECT body FROM catalogue_rows WHERE part = ? AND id = ?", found.part, item)
    return None if row is None else _bytes(row[0])


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


# -- changing ------------------------------------------------------------------------------------------------------


def write(
    connection: Connection,
    catalog: str,
    kind: Kind,
    lines: Sequence[Line],
    merge: bool,
    bounds: Bounds,
    now: float,
) -> list[Outcome]:
    """Put items in, in order; what became of each. With `merge` only the fields that are sent change, and null takes
    one away; else an item is replaced as a whole. What is there already, just so, is not written again."""
    found = part(connection, catalog, kind, lock=True) or _made(connection, catalog, kind, now)
    sql = f"SELECT id, size, body, seq FROM catalogue_rows WHERE part = {found.part} AND id"
    there = connection.rows_in(sql, list({one.id for one in lines}))
    before = {row[0]: (row[1], _bytes(row[2])) for row in there}
    fields, rows, size = dict(found.fields), found.rows, found.bytes
    written: dict[str, tuple[int, bytes]] = {}
    outcomes: list[Outcome] = []
    for one in lines:
        old_size, old = written.get(one.id) or before.get(one.id) or (0, None)
        try:
            values = one.values
            if merge and old is not None:
                values = {**_decode(old), **values}
            clean, new = check(values, fields)
            made = msgspec.json.encode({name: values[name] for name in clean}, order="sorted")
            if made == old:
                outcomes.append(("unchanged", None))
                continue
            own = _size(one.id, clean)
            grown = found._replace(
                rows=rows + (old is None), bytes=size + own - (0 if old is None else old_size), fields={**fields, **new}
            )
            _check_bounds(grown, old is None, bounds)
        except InvalidInput as error:
            outcomes.append(("rejected", str(error)))
            continue
        fields, rows, size = grown.fields, grown.rows, grown.bytes
        written[one.id] = (own, made)
        outcomes.append(("accepted", None))
    if written:
        values_ = [
            (found.part, item, number, own, made, now)
            for number, (item, (own, made)) in enumerate(written.items(), found.seq + 1)
        ]
        connection.insert("catalogue_rows", "part, id, seq, size, body, changed", values_, _UPSERT)
        seq = found.seq + len(written)
        old_rows = [(row[3], _bytes(row[2])) for row in there if row[0] in written]
        filled = found.filled.changed(old_rows, [made for _, made in written.values()], found.seq, seq)
        _save(connection, found._replace(seq=seq, rows=rows, bytes=size, fields=fields, filled=filled))
    return outcomes


_UPSERT = (
    "ON CONFLICT (part, id) DO UPDATE SET seq = excluded.seq, size = excluded.size, body = excluded.body, "
    "changed = excluded.changed"
)


def make(connection: Connection, catalog: str, now: float) -> bool:
    """Make an empty catalog; False if there is one of that name."""
    if parts(connection, catalog):
        return False
    _made(connection, catalog, "items", now)
    return True


def delete(connection: Connection, catalog: str, kind: Kind, ids: Sequence[str], now: float) -> list[bool]:
    """Take items out; whether each was there."""
    found = part(connection, catalog, kind, lock=True)
    if found is None:
        return [False] * len(ids)
    sql = f"SELECT id, size, body, seq FROM catalogue_rows WHERE part = {found.part} AND body IS NOT NULL AND id"
    there = {row[0]: row for row in connection.rows_in(sql, list(set(ids)))}
    gone = [item for item in dict.fromkeys(ids) if item in there]
    if gone:
        values = [(found.part, item, number, 0, None, now) for number, item in enumerate(gone, found.seq + 1)]
        connection.insert("catalogue_rows", "part, id, seq, size, body, changed", values, _UPSERT)
        size, seq = found.bytes - sum(there[item][1] for item in gone), found.seq + len(gone)
        filled = found.filled.changed([(there[item][3], _bytes(there[item][2])) for item in gone], [], found.seq, seq)
        _save(connection, found._replace(seq=seq, rows=found.rows - len(gone), bytes=size, filled=filled))
    return [item in there for item in ids]


def empty(connection: Connection, catalog: str, kind: Kind, now: float) -> int | None:
    """Forget all items of a part, and which fields they had; how many there were, None if there is no such part."""
    found = part(connection, catalog, kind, lock=True)
    if found is None:
        return None
    connection.run("DELETE FROM catalogues WHERE part = ?", found.part)
    _made(connection, catalog, kind, now)
    return found.rows


def drop(connection: Connection, catalog: str) -> bool:
    """Forget a catalog; whether it was there. `sweep` deletes its rows."""
    return connection.run("DELETE FROM catalogues WHERE catalogue = ?", catalog) > 0


def forget_user(connection: Connection, user: str, now: float) -> int:
    """Take a user out of every catalog; how many had an entry. The id goes with the next `sweep` after `TOLD`."""
    names = [row[0] for row in connection.rows("SELECT catalogue FROM catalogues WHERE kind = 'users' ORDER BY 1")]
    return sum(sum(delete(connection, name, "users", [user], now)) for name in names)


# The parts that have rows, by one look-up in the primary key each, however many rows they have.
_STRAY = """
    WITH RECURSIVE parts (part) AS (
        SELECT MIN(part) FROM catalogue_rows
        UNION ALL
        SELECT (SELECT MIN(part) FROM catalogue_rows WHERE part > parts.part) FROM parts WHERE parts.part IS NOT NULL
    )
    SELECT part FROM parts WHERE part IS NOT NULL AND part NOT IN (SELECT part FROM catalogues) LIMIT 1
"""


def sweep(connection: Connection, now: float, limit: int) -> int:
    """Delete up to `limit` rows that nobody needs: of parts that are gone, and deletions that everyone was told of."""
    stray = connection.row(_STRAY)
    if stray is not None:
        sql = f"SELECT part, id FROM catalogue_rows WHERE part = ? ORDER BY id LIMIT {limit}"
        return _delete(connection, connection.rows(sql, stray[0]))
    old = f"SELECT part, id, seq FROM catalogue_rows WHERE body IS NULL AND changed < ? ORDER BY changed LIMIT {limit}"
    rows = connection.rows(old, now - TOLD)
    for number in sorted({row[0] for row in rows}):
        last = max(row[2] for row in rows if row[0] == number)
        # Whoever is behind this number must read the part anew: written down before the rows go, in one transaction.
        connection.run("UPDATE catalogues SET forgotten = ? WHERE part = ? AND forgotten < ?", last, number, last)
    return _delete(connection, rows)


def recount(connection: Connection, limit: int) -> int:
    """Count the fields of up to `limit` rows of a part whose counts are not complete; how many rows were counted."""
    for number, name, kind, seq, filled in connection.rows("SELECT part, catalogue, kind, seq, filled FROM catalogues"):
        known = Filled() if filled is None else _filled(filled)
        if known.seq == known.upto == seq:
            continue
        found = part(connection, name, kind, lock=True)
        if found is None or found.part != number:
            continue
        now = found.filled if found.filled.seq == found.seq else Filled()
        rows = changes(connection, number, now.upto, limit)
        counts = dict(now.counts)
        for one in rows:
            if one.body is not None:
                _add(counts, one.body, 1)
        upto = rows[-1].seq if len(rows) == limit else found.seq
        _save(connection, found._replace(filled=Filled(counts, upto, found.seq)))
        return max(len(rows), 1)
    return 0


def _delete(connection: Connection, rows: Sequence[Sequence[Any]]) -> int:
    by_part: dict[int, list[str]] = {}
    for row in rows:
        by_part.setdefault(row[0], []).append(row[1])
    gone = 0
    for number, ids in by_part.items():
        gone += connection.run(f"DELETE FROM catalogue_rows WHERE part = ? AND id IN ({marks(ids)})", number, *ids)
    return gone


def _made(connection: Connection, catalog: str, kind: Kind, now: float) -> Part:
    """A part with nothing in it, locked for whoever makes it."""
    number = int.from_bytes(os.urandom(6))  # any that no other part has had: rows of those may still be there
    values = (number, catalog, kind, 0, 0, 0, 0, b"{}", now, msgspec.json.encode(Filled()))
    connection.insert("catalogues", _COLUMNS, [values], "ON CONFLICT (catalogue, kind) DO NOTHING")
    made = part(connection, catalog, kind, lock=True)  # another may have been quicker
    if made is None:
        raise Contended(f"catalog {catalog!r} is being made by someone else")
    return made


def _save(connection: Connection, one: Part) -> None:
    connection.run(
        "UPDATE catalogues SET seq = ?, rows = ?, bytes = ?, fields = ?, filled = ? WHERE part = ?",
        one.seq,
        one.rows,
        one.bytes,
        msgspec.json.encode(one.fields),
        msgspec.json.encode(one.filled),
        one.part,
    )


def _size(item: str, clean: Mapping[str, Any]) -> int:
    """About how many bytes an item takes in memory beside its row of numbers: ids and strings are Python's objects."""
    size = 200 + len(item)
    for value in clean.values():
        if isinstance(value, str):
            size += 120 + len(value)
        elif isinstance(value, list) and value and isinstance(value[0], str):
            size += sum(124 + len(one) for one in value)
    return size


def _check_bounds(grown: Part, added: bool, bounds: Bounds) -> None:
    if added and grown.rows > bounds.rows:
        raise InvalidInput(
            f"the catalog has {grown.rows - 1:,} {grown.kind}, the limit catalog_items is {bounds.rows:,}; "
            "delete some, or raise the setting"
        )
    if grown.memory > bounds.bytes:
        raise InvalidInput(
            f"the catalog's {grown.kind} would take {grown.memory:,} bytes in memory, the limit catalog_bytes is "
            f"{bounds.bytes:,}; delete some, send fewer fields, or raise the setting"
        )
