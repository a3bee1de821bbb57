"""`rankloop user`: export and erase what is stored under one user id."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.wire.users import UserExport

users = App(name="user", help="Export or erase everything that is stored under one user id.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(users)


@users.command
def export(user: str, /, *, out: Path | None = None, store: str | None = None) -> None:
    """Print everything that is stored under a user id, as JSON.

    Impressions with their answers, features, events and outcomes, rows in catalogs, and counters. What cannot be listed
    is named under `not_listed`: learned weights, for example, are sums over all users. Reads the store; the service may
    run. A user that is not known has empty lists.

    Example: rankloop user export ann-4711 --out ann-4711.json

    Parameters
    ----------
    user
        The id that was sent as `user`, or under which a catalog has the user.
    out
        A file to write, readable by you only; standard output if not given.
    store
        As in `rankloop serve`.
    """
    from rankloop.service.control.users import export_pages
    from rankloop.service.offline.replay import open_store

    if out is not None:
        _out.check_writable(out)
    with open_store(_settings(store).store) as database:
        pages = export_pages(database, user)
        if out is None:
            _write(sys.stdout, pages)
            return
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            count = _write(file, pages)
    _out.people.print(f"wrote {count:,} impressions to {out}", highlight=False)


@users.command
def erase(user: str, /, *, vacuum: bool = False, store: str | None = None, json: bool = False) -> None:
    """Delete everything that is stored under a user id, and report what was deleted and what remains.

    Deletes impressions, events, outcomes, rows in catalogs and counters. Impressions that learning still needs are
    unlinked from the user at once, and deleted when a snapshot covers them. Learned weights stay: they are sums over
    all users. Works in the store; the service may run. The audit list says that a user was erased, not who.

    SQLite overwrites deleted rows, but may have copies of them in unused space of its pages. --vacuum rewrites the file
    without unused space; stop the service for it. To see for yourself: grep -c ID rankloop.db

    Outside the store, exported files and backups keep what they have: delete or rewrite them. After you restore a
    backup, erase again whoever was erased since it was taken.

    Example: rankloop user erase ann-4711

    Parameters
    ----------
    user
        The id that was sent as `user`, or under which a catalog has the user.
    vacuum
        Also rewrite the SQLite file, while no process runs on the store.
    store
        As in `rankloop serve`.
    json
        Print JSON.
    """
    import msgspec

    from rankloop.service.control import users as operations
    from rankloop.service.storage import audit
    from rankloop.service.storage.database import Connection
    from rankloop.service.storage.log import new_id
    from rankloop.service.supervisor.run import opened

    settings = _settings(store)
    _require_store(settings.store)
    with opened(settings) as writer:
        own, now = new_id(), time.time()

        def record(connection: Connection, text: str) -> None:
            audit.update(connection, own, audit.Entry(now, audit.COMMAND, "erase", None, text))

        erased = operations.erase(writer, user, now, record, settings.archive, vacuum)
    if json:
        _out.print_json(msgspec.to_builtins(erased))
        return
    removed = {
        "impressions": erased.impressions,
        "events": erased.events,
        "outcomes": erased.outcomes,
        "rows in catalogs": erased.entries,
        "keys of counters": erased.counters,
    }
    _out.print_table("Deleted", ["", "rows"], [[name, f"{count:,}"] for name, count in removed.items()])
    rows = [[one.place, "" if one.rows is None else f"{one.rows:,}", one.until] for one in erased.remains]
    _out.print_table("Remains", ["what", "rows", "until"], rows, numbers_from=9)


def _settings(store: str | None) -> Any:
    try:
        from rankloop.service.settings import from_environment
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"this needs {error.name}; pip install 'rankloop[service]'") from None
    return from_environment(store=store)


def _require_store(url: str) -> None:
    """Refuse a file that is not there: opening it would make an empty store."""
    from rankloop.service.storage import open_database
    from rankloop.service.storage.sqlite import SQLite

    database = open_database(url)
    database.close()
    if isinstance(database, SQLite) and not database.path.is_file():
        raise InvalidParameter(f"there is no store at {database.path}; give the file or URL that `rankloop serve` has")


def _write(file: TextIO, pages: Iterable[UserExport]) -> int:
    """Write one JSON document, an impression per line, page by page: a user may have more than fits into memory."""
    import msgspec

    count = 0
    for number, page in enumerate(pages):
        if number == 0:
            parts = {name: getattr(page, name) for name in ("user", "not_listed", "entries", "counters")}
            for name, value in parts.items():
                file.write(f'{"{" if name == "user" else " "}"{name}": {msgspec.json.encode(value).decode()},\n')
            file.write(' "impressions": [')
        for one in page.impressions:
            file.write(f"{',' if count else ''}\n  {msgspec.json.encode(one).decode()}")
            count += 1
    file.write("]}\n")
    return count
