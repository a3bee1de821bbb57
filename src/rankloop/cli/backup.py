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
from rankloop.cli._store import Json, Store, megabytes, require_file, settings, utc

if TYPE_CHECKING:
    from rankloop.service.offline.backup import Copied, StoreCheck

SECOND = "%F %T UTC"
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


def backup(target: Path, /, *, store: Store = None, quick: bool = False, json: Json = False) -> None:
    """Copy a SQLite store to a file while the service runs, and verify the copy.

    The copy has the state of one moment, the recovery point: every outcome and event that was acknowledged before it is
    in the copy. It is written in small steps, so ranking and feedback continue. TARGET appears when the copy is
    verified and durable. A failed or killed backup leaves no TARGET; run it again.

    Verified are the integrity of the file, the checksum of every stored state, and that replaying the log of each
    ranker reproduces its versions and its snapshot bit for bit. --quick leaves the replay out; `rankloop verify` can do
    it later, on any machine.

    The file contains the digests of keys and the secrets that sign tokens. Keep it as safe as the store.

    For a PostgreSQL store, prints how to use pg_dump or pg_basebackup, and exits with 2.

    Example: rankloop backup /srv/backups/rankloop-2026-08-01.db

    Example: rankloop backup copy.db --store shop.db --quick

    Parameters
    ----------
    target
        The file to write. It must not exist: give each backup a name of its own.
    quick
        Do not replay the log.
    """
    from rankloop.service.offline.backup import back_up

    url = settings(store).store
    _refuse_postgresql(url)
    _out.say_when_compiling()
    os.nice(NICE)
    with _progress() as report:
        made = back_up(url, target, not quick, report)
    if json:
        _out.print_json(_plain(made))
        return
    _print_copied("wrote", made, "Recovery point")


def restore(backup: Path, /, *, store: Store = None, quick: bool = False, json: Json = False) -> None:
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
    quick
        Do not replay the log.
    """
    from rankloop.service.offline import backup as backups

    url = settings(store).store
    _refuse_postgresql(url)
    _out.say_when_compiling()
    with _progress() as report:
        made = backups.restore(backup, url, not quick, report)
    if json:
        _out.print_json(_plain(made))
        return
    _print_copied("restored", made, "Restored up to")


def verify(*, store: Store = None, quick: bool = False, json: Json = False) -> None:
    """Verify that a store or a backup is complete and readable, and that its log reproduces the learned states.

    Works for SQLite and PostgreSQL, and changes nothing; the service may run. Exits with 1 if anything is wrong. SQLite
    files get an integrity check; for PostgreSQL use pg_amcheck.

    Example: rankloop verify --store /srv/backups/rankloop-2026-08-01.db

    Example: rankloop verify --store postgresql://db.example.com/rankloop_restored

    Parameters
    ----------
    quick
        Do not replay the log.
    """
    from rankloop.service.offline import backup as backups
    from rankloop.service.storage import open_database

    _out.say_when_compiling()
    url = settings(store).store
    require_file(url)
    database = open_database(url)
    try:
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


def _print_copied(what: str, made: Copied, title: str) -> None:
    times = f"copied in {made.copy_seconds:.1f} s, verified in {made.check.seconds:.1f} s"
    print(f"{what} {made.path}: {megabytes(made.bytes)}, {times}")
    _print_check(made.check, title)


def _print_check(check: StoreCheck, title: str) -> None:
    for problem in check.problems:
        print(f"problem: {problem}")
    last = "no event yet" if check.last_event is None else f"last event {utc(check.last_event, SECOND)}"
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
        columns = ["ranker", "last outcome", "impressions", "versions", "replayed"]
        _out.print_table(f"{title}: {last}", columns, rows)
    if check.taken is not None:
        print(f"taken at {utc(check.taken, SECOND)}, {_age(time.time() - check.taken)} ago")
    if not check.folded and not check.problems:
        from rankloop.service.storage.schema import CURRENT

        if check.migrations < CURRENT:
            print("the store is of an earlier release: its integrity was checked, its log was not read")
        else:
            print("the log was not replayed; `rankloop verify` does that")


def _bits(one: Any) -> str:
    if one.begun_with is None:
        return "not done"
    equal = f"{len(one.compared)} stored states equal" if one.compared else "no stored state to compare with"
    return f"from {one.begun_with} at {one.begun_at:,}: {equal}"


def _age(seconds: float) -> str:
    """How long ago, in the largest unit that fits.

    >>> _age(20), _age(90), _age(7300), _age(400_000)
    ('20 seconds', '2 minutes', '2 hours', '5 days')
    """
    units = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
    unit, length = next((one for one in units if seconds >= 1.5 * one[1]), units[-1])
    return f"{seconds / length:.0f} {unit}"
