"""Catalogs in the memory of a process that ranks, updated from the store several times a second.

Changes are applied a few items at a time under the catalog's lock, so requests wait for a few items at most.
A part that was emptied, or lost more than the store still lists, is read into a new table that replaces the old one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from rankloop.core.errors import RankloopError
from rankloop.features.table import Table
from rankloop.service.storage import catalog as stored
from rankloop.service.storage.catalog import KINDS, Kind, Limits, Part, RowChange
from rankloop.service.storage.database import Database
from rankloop.service.worker.threads import RepeatingThread

LOOK_EVERY = 0.25  # seconds
PORTION = 2000  # rows read at a time
SLICE = 16  # items applied at a time
logger = logging.getLogger("rankloop")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ReadTo(NamedTuple):
    """How far a part of a catalog has been read."""

    part: int = -1
    seq: int = 0


class CachedCatalog:
    """A catalog in memory. Hold `lock` to read the tables, briefly; hold `changing` to change them, or to keep them
    unchanged for longer: requests never wait for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock, self.changing = threading.Lock(), threading.Lock()
        self.tables: dict[Kind, Table] = {kind: Table() for kind in KINDS}
        self.seen: dict[Kind, ReadTo] = {kind: ReadTo() for kind in KINDS}
        self.refused = 0  # rows of the store that could not be read

    @property
    def items(self) -> Table:
        """The items."""
        return self.tables["items"]

    @property
    def users(self) -> Table:
        """The users."""
        return self.tables["users"]

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        with self.lock:
            return sum(table.nbytes for table in self.tables.values())

    def apply(self, table: Table, changes: Iterable[RowChange]) -> None:
        """Apply changes to a table."""
        for one in changes:
            try:
                if one.body is None:
                    table.delete(one.id)
                else:
                    table.upsert(one.id, _decode(one.body))
            except (RankloopError, msgspec.MsgspecError) as error:
                self.refused += 1
                text = str(error).replace(repr(one.id), "it")  # ids of users are not for logs
                logger.error("catalog %s: an entry cannot be read: %s", self.name, text)


class CatalogCache(dict[str, CachedCatalog]):
    """Name -> catalog, of those that rankers name; `bounds` limit the size of each table."""

    def __init__(self, database: Database, bounds: Limits) -> None:
        super().__init__()
        self._database, self._bounds = database, bounds
        self._reading = threading.Lock()
        self._thread: RepeatingThread | None = None

    def want(self, name: str) -> CachedCatalog:
        """A catalog, read from the store if it is not in memory; empty if it does not exist yet."""
        found = self.get(name)
        if found is None:
            with self._reading:
                found = self.get(name)
                if found is None:
                    found = CachedCatalog(name)
                    self._catch_up(found)
                    self[name] = found
                if self._thread is None:
                    self._thread = RepeatingThread("catalog", LOOK_EVERY, self.follow, self._database)
                    self._thread.start()
        return found

    def keep(self, names: Iterable[str | None]) -> list[str]:
        """Drop the catalogs that no ranker names; returns their names."""
        with self._reading:
            gone = sorted(set(self).difference(filter(None, names)))
            for name in gone:
                del self[name]
        return gone

    def follow(self) -> None:
        """Apply what has changed in the store."""
        with self._reading:
            if not self:
                return
            heads = {
                (name, kind): ReadTo(part, seq) for part, name, kind, seq in self._database.read(stored.last_changes)
            }
            for name, one in list(self.items()):
                if any(heads.get((name, kind), ReadTo()) != one.seen[kind] for kind in KINDS):
                    self._catch_up(one)

    def stop(self) -> None:
        """Stop following."""
        if self._thread is not None:
            self._thread.stop()

    def _catch_up(self, one: CachedCatalog) -> None:
        parts = {part.kind: part for part in self._database.read(lambda c: stored.parts(c, one.name))}
        with one.changing:
            for kind in KINDS:
                part, seen = parts.get(kind), one.seen[kind]
                if part is None:
                    if seen != ReadTo():
                        self._replace(one, kind, one.tables[kind].emptied(), ReadTo())
                elif part.part != seen.part or seen.seq < part.forgotten:
                    self._read_all(one, kind, part)
                elif part.seq != seen.seq:
                    self._read_changes(one, kind, part)

    def _read_all(self, one: CachedCatalog, kind: Kind, part: Part) -> None:
        began = time.perf_counter()
        table = one.tables[kind].emptied(part.fields, self._bounds.rows, 2 * self._bounds.bytes)
        table.reserve(part.rows)
        seq = 0
        while found := self._changes(part, seq):
            one.apply(table, found)
            seq = found[-1].seq
        self._replace(one, kind, table, ReadTo(part.part, max(seq, part.seq)))
        if len(table):
            text = "catalog %s: %d %s read in %.1f s"
            logger.info(text, one.name, len(table), kind, time.perf_counter() - began)

    def _read_changes(self, one: CachedCatalog, kind: Kind, part: Part) -> None:
        table, seq = one.tables[kind], one.seen[kind].seq
        with one.lock:
            table.declare(part.fields)
        while found := self._changes(part, seq):
            for first in range(0, len(found), SLICE):
                with one.lock:
                    one.apply(table, found[first : first + SLICE])
            seq = found[-1].seq
            one.seen[kind] = ReadTo(part.part, seq)
        one.seen[kind] = ReadTo(part.part, max(seq, part.seq))

    def _changes(self, part: Part, after: int) -> list[RowChange]:
        return self._database.read(lambda connection: stored.changes(connection, part.part, after, PORTION))

    def _replace(self, one: CachedCatalog, kind: Kind, table: Table, seen: ReadTo) -> None:
        with one.lock:
            one.tables[kind] = table
            one.seen[kind] = seen
