"""Back up a SQLite store while it is in use, restore it, and verify that a store is complete.

A backup is one file. It is copied in small steps inside one read transaction, so it has the state of one moment, and
writers do not wait for it: SQLite keeps what they write in the write-ahead log meanwhile. The copy has a temporary name
until it is verified and on the disk.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rankloop.core import codec
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.offline.replay import Compared, rebuild
from rankloop.service.storage import audit, open_database, schema, snapshots
from rankloop.service.storage import outcomes as stored_outcomes
from rankloop.service.storage import rankers as stored_rankers
from rankloop.service.storage.database import Connection, Database, Retryable, without_password
from rankloop.service.storage.sqlite import SQLite

STEP_PAGES = 256  # a MB per step; after each step the disk belongs to others for as long as the step took
PROBLEMS = 10  # of the integrity check that are reported
TAKEN = "backup"  # row of `facts` in a backup: when it was taken
Progress = Callable[[str, int, int | None], None]  # what is done, how much of it, of how much (None: not known)


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


@dataclass
class RankerCheck:
    """What verification found about one ranker."""

    ranker: str
    outcomes: int  # numbered 0 … outcomes - 1; the last of them is the recovery point
    impressions: int
    versions: int
    begun_with: str | None = None  # the stored state that folding began with; None: the log was not folded
    begun_at: int | None = None
    compared: list[Compared] = field(default_factory=list)
    problem: str | None = None


@dataclass
class StoreCheck:
    """What verification found in a store."""

    store: str
    migrations: int
    integrity: bool | None  # whether SQLite's integrity check passed; None: not applicable
    folded: bool  # whether the log of each ranker was folded and compared with the stored states
    last_event: float | None  # time of the last event that was acknowledged
    rankers: list[RankerCheck]
    problems: list[str]
    taken: float | None  # when the backup was taken; None: the store is not a backup
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems and all(one.problem is None for one in self.rankers)

    def raise_if_damaged(self, what: str) -> None:
        """Refuse to use a store in which anything is wrong."""
        if not self.sound:
            found = [*self.problems, *(f"ranker {one.ranker!r}: {one.problem}" for one in self.rankers if one.problem)]
            raise RankloopError(f"{what} is damaged: {'; '.join(found[:3])}. Take another backup")


@dataclass
class Copied:
    """A backup that was made, or a store that was restored."""

    path: str
    bytes: int
    copy_seconds: float  # of the copy alone; `check.seconds` is the verification
    check: StoreCheck


# -- copying -------------------------------------------------------------------------------------------------------


def back_up(store: str, target: Path, fold: bool = True, on_progress: Progress = _silent) -> Copied:
    """Copy a SQLite store that may be in use to `target`, which must not exist, and verify the copy."""
    source = _sqlite(store)
    if not source.path.is_file():
        raise InvalidParameter(f"there is no store at {source.path}; give the file that `rankloop serve` has")
    with _becoming(target, "backup") as partial:
        began, taken = time.perf_counter(), time.time()
        _copy(source.path, partial, on_progress)
        seconds = time.perf_counter() - began
        with _opened(partial) as database:
            _write(database, lambda c: _mark_taken(c, taken))
            check = verify(database, fold, on_progress)
        check.raise_if_damaged(f"the copy of {source.path}")
    return Copied(str(target), target.stat().st_size, seconds, check)


def restore(backup: Path, store: str, fold: bool = True, on_progress: Progress = _silent) -> Copied:
    """Make a store of a backup, at a place where none is; leases and heartbeats of the old machine are removed."""
    target = _sqlite(store).path
    if not backup.is_file():
        raise InvalidParameter(f"there is no backup at {backup}; give a file that `rankloop backup` wrote")
    with _becoming(target, "store") as partial:
        began = time.perf_counter()
        _copy(backup, partial, on_progress)
        seconds = time.perf_counter() - began
        with _opened(partial) as database:
            _write(database, _clear_processes)
            schema.migrate(database)
            check = verify(database, fold, on_progress)
            check.raise_if_damaged(f"the backup {backup}")
            _write(database, lambda c: _mark_restored(c, check.taken))
    return Copied(str(target), target.stat().st_size, seconds, check)


def _sqlite(url: str) -> SQLite:
    database = open_database(url)
    if not isinstance(database, SQLite):
        database.close()
        raise InvalidParameter(f"{without_password(url)} is not a SQLite store; use the tools of PostgreSQL")
    return database


@contextmanager
def _becoming(target: Path, what: str) -> Iterator[Path]:
    """A temporary file beside `target` that gets its name if all goes well, and is deleted if not.

    One that a killed process left behind is overwritten by the next run.
    """
    for path in (target, *_beside(target)):
        if path.exists():
            raise InvalidParameter(f"{path} exists and is not overwritten; move it away, or give another {what}")
    if not target.absolute().parent.is_dir():
        raise InvalidParameter(f"there is no folder {target.absolute().parent}; make it, or give another {what}")
    partial = target.with_name(f".{target.name}.partial")
    # Readable by its owner only: a store has digests of keys, and secrets that sign tokens.
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidParameter(f"another process writes {target} at this moment; wait until it is done") from None
        try:
            os.ftruncate(descriptor, 0)
            for path in _beside(partial):
                path.unlink(missing_ok=True)
            yield partial
            os.fsync(descriptor)
            if target.exists():
                raise InvalidParameter(f"{target} was made by another process meanwhile; it is not overwritten")
            partial.rename(target)
            _sync_folder(target.absolute().parent)
        except BaseException:
            for path in (partial, *_beside(partial)):
                path.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)


def _beside(path: Path) -> list[Path]:
    """The files that SQLite has beside a database. One that is left over would be applied to another database."""
    return [path.with_name(f"{path.name}-{suffix}") for suffix in ("wal", "shm", "journal")]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(source: Path, target: Path, on_progress: Progress) -> None:
    """Copy a database in small steps, with pauses. All steps read in one transaction: without it each commit of
    another process would make SQLite begin again, and under load the copy would never end."""
    last = time.perf_counter()

    def pause(_: int, remaining: int, total: int) -> None:
        nonlocal last
        on_progress("copying pages", total - remaining, total)
        time.sleep(time.perf_counter() - last)
        last = time.perf_counter()

    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=rw", uri=True, isolation_level=None)) as reading,
            closing(sqlite3.connect(target, isolation_level=None)) as writing,
        ):
            reading.execute("BEGIN")
            reading.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # the moment whose state is copied
            writing.execute("PRAGMA synchronous = OFF")  # it is synced once, when all of it is there
            writing.execute("PRAGMA journal_mode = OFF")
            reading.backup(writing, pages=STEP_PAGES, progress=pause)
    except sqlite3.Error as error:
        raise RankloopError(f"{source} cannot be copied to {target.parent}: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[SQLite]:
    database = SQLite(path)
    try:
        yield database
    finally:
        database.close()


def _write(database: Database, work: Callable[[Connection], None]) -> None:
    connection = database.connect(time_limits=False)
    try:
        with connection.transaction():
            work(connection)
    finally:
        connection.close()


def _mark_taken(connection: Connection, taken: float) -> None:
    """Write into a copy when it was taken. A store of the first releases has no place for it."""
    with suppress(sqlite3.OperationalError):
        connection.run("DELETE FROM facts WHERE name = ?", TAKEN)
        connection.insert("facts", "name, since", [(TAKEN, taken)])


def _clear_processes(connection: Connection) -> None:
    """Remove what belongs to the processes that ran on the store: their leases and heartbeats."""
    connection.run("DELETE FROM leases")
    connection.run("DELETE FROM workers")


def _mark_restored(connection: Connection, taken: float | None) -> None:
    connection.run("DELETE FROM facts WHERE name = ?", TAKEN)
    when = "" if taken is None else f" taken at {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(taken))}"
    audit.add(connection, [audit.Entry(time.time(), audit.COMMAND, "restore", None, f"restored from a backup{when}")])


# -- verifying -----------------------------------------------------------------------------------------------------


def verify(database: Database, fold: bool = True, on_progress: Progress = _silent) -> StoreCheck:
    """Read a whole store: integrity (SQLite), migrations, the checksum of every stored state, and, with `fold`, what is
    learned from the log of each ranker, compared bit by bit with its versions and snapshot. Changes nothing."""
    began = time.perf_counter()
    store, integrity, problems = "PostgreSQL", None, list[str]()
    if isinstance(database, SQLite):
        store = str(database.path)
        on_progress("checking integrity", 0, None)
        problems += _integrity(database.path)
        integrity = not problems
    if problems:
        return StoreCheck(store, 0, integrity, False, None, [], problems, None, time.perf_counter() - began)
    migrations = _migrations(database)
    if migrations < schema.CURRENT:  # its tables are not those that this release reads
        return StoreCheck(store, migrations, integrity, False, None, [], [], None, time.perf_counter() - began)
    taken, last, rows = database.read(lambda c: (_taken(c), _last_event(c), stored_rankers.list_rankers(c)))
    rankers = []
    for done, row in enumerate(rows):
        on_progress(f"counting {row.name}", done, len(rows))
        one = database.read(lambda c, name=row.name: _counts(c, name))  # type: ignore[misc]
        rankers.append(one)
        try:
            _check_states(database, row.name)
            if fold:
                _fold(database, one, on_progress)
        except RankloopError as error:
            one.problem = str(error)
    return StoreCheck(store, migrations, integrity, fold, last, rankers, [], taken, time.perf_counter() - began)


def _migrations(database: Database) -> int:
    """How many migrations a store has; refuses a file that is not a store, and a store of a later release."""
    with suppress(StoreUnavailable, Retryable):
        applied = database.read(schema.applied_steps)
        if schema.OLDEST <= applied <= schema.CURRENT:
            return applied
    schema.require_current(database)
    raise AssertionError("unreachable")


def _integrity(path: Path) -> list[str]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({PROBLEMS})").fetchall()
    except sqlite3.Error as error:
        return [f"{path}: {error}"]
    return [] if rows == [("ok",)] else [str(row[0]) for row in rows]


def _taken(connection: Connection) -> float | None:
    row = connection.row("SELECT since FROM facts WHERE name = ?", TAKEN)
    return None if row is None else float(row[0])


def _last_event(connection: Connection) -> float | None:
    last: float | None = connection.rows("SELECT MAX(received) FROM events")[0][0]
    return last


def _counts(connection: Connection, name: str) -> RankerCheck:
    def one(sql: str) -> int:
        return int(connection.rows(sql, name)[0][0])

    return RankerCheck(
        name,
        stored_outcomes.log_offsets(connection).get(name, 0),
        one("SELECT COUNT(*) FROM impressions WHERE ranker = ?"),
        one("SELECT COUNT(*) FROM versions WHERE ranker = ?"),
    )


def _check_states(database: Database, name: str) -> None:
    """Read every stored state of a ranker, one at a time; codecs compare their checksums."""
    for one in database.read(lambda c: snapshots.stored_states(c, name)):
        state = database.read(lambda c, one=one: snapshots.load_state(c, name, one))  # type: ignore[misc]
        if state is None:  # replaced meanwhile, in a store that is in use
            continue
        codec.loads(state, f"the {one.kind} of outcome {one.seq:,}")


def _fold(database: Database, one: RankerCheck, on_progress: Progress) -> None:
    what = f"learning {one.ranker} again"
    on_progress(what, 0, None)
    found = rebuild(database, one.ranker, on_progress=lambda done, total: on_progress(what, done, total))
    one.begun_with, one.begun_at, one.compared = found.start, found.start_seq, found.compared
    other = [compared.name for compared in found.compared if not compared.equal]
    if other:
        one.problem = f"the log gives another state than the stored {', '.join(other)}"
