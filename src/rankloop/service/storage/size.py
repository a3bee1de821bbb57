"""How much room the store takes, and how much there is: a full disk is the one trouble that can be seen coming."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import NamedTuple

from rankloop.service.storage.database import Database
from rankloop.service.storage.sqlite import SQLite


class Size(NamedTuple):
    """In bytes; `free` is None where the disk is another machine's."""

    used: int
    free: int | None


def size(database: Database) -> Size:
    """Of SQLite the file with its write-ahead log, and what its file system has left; of PostgreSQL the database."""
    if not isinstance(database, SQLite):
        ((used,),) = database.read(lambda connection: connection.rows("SELECT pg_database_size(current_database())"))
        return Size(int(used), None)
    used = 0
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):  # the log comes and goes
            used += database.path.with_name(database.path.name + end).stat().st_size
    return Size(used, shutil.disk_usage(database.path.parent).free)
