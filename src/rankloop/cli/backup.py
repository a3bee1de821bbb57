"""`rankloop backup`, `rankloop restore` and `rankloop verify`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.offline.backup import Copied, StoreCheck

NICE = 10  # added to the niceness of a backup: the service on the same machine comes first
POSTGRESQL = """\
{url} is a PostgreSQL store. Back it up with the tools of PostgreSQL:

  pg_dump --format=custom --file=rankloop.dump "{url}"
      one consistent dump while the service runs; the recovery point is the time of the dump

  pg_basebackup --pgdata=/srv/base --wal-method=stream   with archive_mode = on and archive_command
      base backup and archived write-ahead log; recovers to any moment, at most archive_timeout ago

Restore into an empty database, with the service stopped, and verify it before you start the service on it:

  createdb rankloop_restored
  pg_restore --dbname=postgresql://HOST/rankloop_restored rankloop.dump
  rankloop verify --store postgresql://HOST/rankloop_restored
"""


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(backup)
    app.command(restore)
    app.command(verify)


def backup(target: Path, /, *, store: str | None = None, quick: bool = False, json: bool = False) -> None:
    """Copy a SQLite store to a file while the service runs, and verify the copy.

    The copy has the state of one moment, the recovery point: every outcome and event that was acknowledged before it is
    in the copy. It is written in small steps, so ranking and feedback go on, under a temporary name that becomes TARGET
    once the copy is verified and on the disk. A failed or killed backup leaves no TARGET; run it again.

    Verified are the integrity of the file, the checksum of every stored state, and that the log of each ranker, learned
    again, gives its versions and its snapshot bit for bit. Learning again takes as long as `rankloop replay`: --quick
    leaves it out, and `rankloop verify` does it later, on any machine.

    The file has the digests of keys and the secrets that sign tokens. Keep it as safe as the store.

    For a PostgreSQL store, prints how to use pg_dump or pg_basebackup, and exits with 2.

    Example: rankloop backup /srv/backups/rankloop-2026-08-01.db

    Example: rankloop backup copy.db --store shop.db --quick

    Parameters
    ----------
    target
        The file to write. It must not exist: give each backup a name of its own.
    store
        As in `rankloop serve`.
    quick
        Do not learn the log again.
    json
        Print JSON.
    """
    from rankloop.service.offline.backup import back_up

    url = _store(store)
    _refuse_postgresql(url)
    _out.say_when_compiling()
    os.nice(NICE)
    with _progress() as report:
        made = back_up(url, target, not quick, report)
    if json:
        _out.print_json(_plain(made))
        return
    print(f"wrote {made.path}: {_megabytes(made.bytes)}, copied in {made.copy_seconds:.1f} s", end="")
    print(f", verified in {made.check.seconds:.1f} s")
    _print_check(made.check, "Recovery point")


def restore(backup: Path, /, *, store: str | None = None, quick: bool = False, json: bool = False) -> None:
    """Make a SQLite store from a backup, at a place where there is none.

    Stop the service first, and move the old store with its -wal and -shm files away: an existing store is never
    overwritten. The backup is copied under a temporary name, brought up to date if an earlier release wrote it,
    verified as by `rankloop backup`, and renamed. Leases and heartbeats of the old machine are removed. Run it as the
    user that runs the service.

    After the backup's recovery point nothing is known: feedback about later impressions is answered `orphan`; feedback
    about earlier ones that is sent again counts once. Keys that were revoked and users that were erased since are back:
    revoke and erase them again.

    Example: rankloop restore /srv/backups/rankloop-2026-08-01.db

    Parameters
    ----------
    backup
        A file that `rankloop backup` wrote, or any other copy of a store.
    store
        The store to make, as in `rankloop serve`.
    quick
        Do not learn the log again.
    json
        Print JSON.
    """
    from rankloop.service.offline import backup as backups

    url = _store(store)
    _refuse_postgresql(url)
    _out.say_when_compiling()
    with _progress() as report:
        made = backups.restore(backup, url, not quick, report)
    if json:
        _out.print_json(_plain(made))
        return
    print(f"restored {made.path}: {_megabytes(made.bytes)}, copied in {made.copy_seconds:.1f} s", end="")
    print(f", verified in {made.check.seconds:.1f} s")
    _print_check(made.check, "Restored up to")


def verify(*, store: str | None = None, quick: bool = False, json: bool = False) -> None:
    """Verify a store or a backup: it is complete, readable, and its log gives what was learned.

    Works for SQLite and PostgreSQL, and changes nothing; the service may run. Exits with 1 if anything is wrong. SQLite
    files get an integrity check; for PostgreSQL use pg_amcheck.

    Example: rankloop verify --store /srv/backups/rankloop-2026-08-01.db

    Example: rankloop verify --store postgresql://db.example.com/rankloop_restored

    Parameters
    ----------
    store
        The store or the backup, as in `rankloop serve`.
    quick
        Do not learn the log again.
    json
        Print JSON.
    """
    from rankloop.service.offline import backup as backups
    from rankloop.service.storage import open_database
    from rankloop.service.storage.sqlite import SQLite

    _out.say_when_compiling()
    database = open_database(_store(store))
    try:
        if isinstance(database, SQLite) and not database.path.is_file():
            raise InvalidParameter(f"there is no store at {database.path}; give a store, or a backup of one")
        with _progress() as report:
            found = backups.verify(database, not quick, report)
    finally:
        database.close()
    if json:
        _out.print_json({"sound": found.sound, **_check(found)})
    else:
        print(f"{found.store}: {'sound' if found.sound else 'NOT SOUND'}, verified in {found.seconds:.1f} s")
        _print_check(found, "Verified up to")
    sys.exit(0 if found.sound else 1)


def _store(store: str | None) -> str:
    try:
        from rankloop.service.settings import from_environment
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"this needs {error.name}; pip install 'rankloop[service]'") from None
    return from_environment(store=store).store


def _refuse_postgresql(url: str) -> None:
    from rankloop.service.storage.database import without_password

    if url.lower().startswith(("postgresql://", "postgres://")):
        print(POSTGRESQL.format(url=without_password(url)), file=sys.stderr)
        sys.exit(2)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    with _out.progress_bars() as bars:
        task = bars.add_task("", total=None)

        def report(what: str, done: int, total: int | None) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield report


def _check(check: StoreCheck) -> dict[str, Any]:
    rankers = [{**asdict(one), "compared": [c._asdict() for c in one.compared]} for one in check.rankers]
    return {**asdict(check), "rankers": rankers}


def _plain(made: Copied) -> dict[str, Any]:
    return {"path": made.path, "bytes": made.bytes, "copy_seconds": made.copy_seconds, "check": _check(made.check)}


def _print_check(check: StoreCheck, title: str) -> None:
    for problem in check.problems:
        print(f"problem: {problem}")
    rows = [
        [
            one.ranker,
            f"{one.outcomes - 1:,}" if one.outcomes else "none",
            f"{one.impressions:,}",
            f"{one.versions:,}",
            _bits(one) if one.problem is None else one.problem,
        ]
        for one in check.rankers
    ]
    if rows:
        columns = ["ranker", "last outcome", "impressions", "versions", "learned again"]
        _out.print_table(f"{title}: {_moment(check)}", columns, rows)
    if check.taken is not None:
        print(f"taken at {_second(check.taken)}, {_age(time.time() - check.taken)} ago")
    if not check.folded and not check.problems:
        from rankloop.service.storage.migrations import MIGRATIONS

        if check.migrations < len(MIGRATIONS):
            print("the store is of an earlier release: its integrity was checked, its log was not read")
        else:
            print("the log was not learned again; `rankloop verify` does that")


def _bits(one: Any) -> str:
    if one.begun_with is None:
        return "not done"
    equal = f"{len(one.compared)} stored states equal" if one.compared else "no stored state to compare with"
    return f"from {one.begun_with} at {one.begun_at:,}: {equal}"


def _moment(check: StoreCheck) -> str:
    return "no event yet" if check.last_event is None else f"last event {_second(check.last_event)}"


def _second(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


def _age(seconds: float) -> str:
    """How long ago, in the largest unit that fits.

    >>> _age(20), _age(90), _age(7300), _age(400_000)
    ('20 seconds', '2 minutes', '2 hours', '5 days')
    """
    units = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
    unit, length = next((one for one in units if seconds >= 1.5 * one[1]), units[-1])
    return f"{seconds / length:.0f} {unit}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
