"""Catalogs in the memory of a process that ranks: read from the store, and kept up with it.

Only those that a ranker names are held. A thread looks several times a second whether there are changes, reads what is
new, and puts it in a few items at a time, under the catalog's lock: whoever ranks takes it for the moment in which
rows are computed, and so sees each item as it was or as it is, and waits for a few items at most. A part that was
emptied, or one from which more was deleted than is still told, is read into a new table beside the old one, which takes
its place when it is whole.
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
from rankloop.service.storage.catalog import KINDS, Bounds, Change, Kind, Part
from rankloop.service.storage.database import Database
from rankloop.service.worker.threads import RepeatingThread

LOOK_EVERY = 0.25  # seconds: a change is to be seen within one
PORTION = 2000  # rows that are read at a time
SLICE = 16  # items that are put in before whoever ranks gets a turn
logger = logging.getLogger("rankloop")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Seen(NamedTuple):
    """How far a part has been read."""

    part: int = -1
    seq: int = 0


class Catalog:
    """What this process knows of a catalog.

    Take `lock` to read the tables; whoever changes them has it for a few items at a time. `changing` is for those who
    change them, or need them to stay as they are for longer (a column that is derived from a million items): nobody who
    ranks waits for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock, self.changing = threading.Lock(), threading.Lock()
        self.tables: dict[Kind, Table] = {kind: Table() for kind in KINDS}
        self.seen: dict[Kind, Seen] = {kind: Seen() for kind in KINDS}
        self.refused = 0  # rows of the store that did not fit: a later release may know more

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
        """Memory that it takes."""
        with self.lock:
            return sum(table.nbytes for table in self.tables.values())

    def take(self, table: Table, changes: Iterable[Change]) -> None:
        """Put changes into a table."""
        for one in changes:
            try:
                if one.body is None:
                    table.delete(one.id)
                else:
                    table.upsert(one.id, _decode(one.body))
            except (RankloopError, msgspec.MsgspecError) as error:
                self.refused += 1
                text = str(error).replace(repr(one.id), "it")  # ids of users are not for logs
                logger.error("catalog %s: an entry cannot be held: %s", self.name, text)


class Catalogs(dict[str, Catalog]):
    """Name -> catalog.

    Parameters
    ----------
    database
        Where they are stored.
    bounds
        What a table may grow to; the store refuses what would be more.
    """

    def __init__(self, database: Database, bounds: Bounds) -> None:
        super().__init__()
        self._database, self._bounds = database, bounds
        self._reading = threading.Lock()
        self._thread: RepeatingThread | None = None

    def want(self, name: str) -> Catalog:
        """A catalog, read whole if it is not held yet; one that is not stored yet is empty until it is."""
        found = self.get(name)
        if found is None:
            with self._reading:
                found = self.get(name)
                if found is None:
                    found = Catalog(name)
                    self._catch_up(found, {part.kind: part for part in self._parts(name)})
                    self[name] = found
                if self._thread is None:
                    self._thread = RepeatingThread("catalog", LOOK_EVERY, self.follow, self._database)
                    self._thread.start()
        return found

    def keep(self, names: Iterable[str | None]) -> list[str]:
        """Let go of those that no ranker names any more; which they were."""
        with self._reading:
            gone = sorted(set(self).difference(filter(None, names)))
            for name in gone:
                del self[name]
        return gone

    def follow(self) -> None:
        """Take in what has changed."""
        with self._reading:
            if not self:
                return
            heads = {(name, kind): Seen(part, seq) for part, name, kind, seq in self._database.read(stored.heads)}
            for name, one in list(self.items()):
                if any(heads.get((name, kind), Seen()) != one.seen[kind] for kind in KINDS):
                    self._catch_up(one, {part.kind: part for part in self._parts(name)})

    def stop(self) -> None:
        """Follow no longer."""
        if self._thread is not None:
            self._thread.stop()

    def _parts(self, name: str) -> list[Part]:
        return self._database.read(lambda connection: stored.parts(connection, name))

    def _catch_up(self, one: Catalog, parts: dict[Kind, Part]) -> None:
        with one.changing:
            self._take_in(one, parts)

    def _take_in(self, one: Catalog, parts: dict[Kind, Part]) -> None:
        for kind in KINDS:
            part, seen = parts.get(kind), one.seen[kind]
            if part is None:
                if seen != Seen():
                    self._replace(one, kind, one.tables[kind].emptied(), Seen())
            elif part.part != seen.part or seen.seq < part.forgotten:
                self._read_anew(one, kind, part)
            elif part.seq != seen.seq:
                self._read_on(one, kind, part)

    def _read_anew(self, one: Catalog, kind: Kind, part: Part) -> None:
        began = time.perf_counter()
        table = one.tables[kind].emptied(part.fields, self._bounds.rows, 2 * self._bounds.bytes)
        table.reserve(part.rows)
        seq = 0
        while found := self._changes(part, seq):
            one.take(table, found)
            seq = found[-1].seq
        self._replace(one, kind, table, Seen(part.part, max(seq, part.seq)))
        if len(table):
            text = "catalog %s: %d %s read in %.1f s"
            logger.info(text, one.name, len(table), kind, time.perf_counter() - began)

    def _read_on(self, one: Catalog, kind: Kind, part: Part) -> None:
        table, seq = one.tables[kind], one.seen[kind].seq
        with one.lock:
            table.declare(part.fields)
        while found := self._changes(part, seq):
            for first in range(0, len(found), SLICE):
                with one.lock:
                    one.take(table, found[first : first + SLICE])
            seq = found[-1].seq
            one.seen[kind] = Seen(part.part, seq)
        one.seen[kind] = Seen(part.part, max(seq, part.seq))  # the last one may be a deletion that has been forgotten

    def _changes(self, part: Part, after: int) -> list[Change]:
        return self._database.read(lambda connection: stored.changes(connection, part.part, after, PORTION))

    def _replace(self, one: Catalog, kind: Kind, table: Table, seen: Seen) -> None:
        with one.lock:
            one.tables[kind] = table
            one.seen[kind] = seen
