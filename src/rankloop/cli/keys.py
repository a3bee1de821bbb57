"""`rankloop keys`, `rankloop audit` and `rankloop user`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli._store import (
    Json,
    Store,
    readable,
    require_file,
    settings,
    split_names,
    utc,
    writable,
)
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.storage.database import Connection
    from rankloop.wire.service import UserExport

keys = App(name="keys", help="Create, list and revoke API keys. Only digests are stored.")
users = App(name="user", help="Export or erase everything that is stored under one user id.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(keys)
    app.command(audit)
    app.command(users)


# -- keys ----------------------------------------------------------------------------------------------------------


@keys.command
def create(
    name: str,
    *,
    scopes: str = "rank+feedback",
    rankers: str | None = None,
    catalogs: str | None = None,
    days: float | None = None,
    rate: float | None = None,
    concurrency: int | None = None,
    store: Store = None,
) -> None:
    """Create a key and print it. It is shown this once: only a digest is stored.

    Example: rankloop keys create shop --rankers shop,shop-test --days 90

    Example: rankloop keys create films --scopes admin+rank --rankers films --catalogs films

    Example: rankloop keys create partner --rate 100 --concurrency 20

    Parameters
    ----------
    name
        A name for it.
    scopes
        rank, feedback, read and admin, joined by +; admin includes read.
    rankers
        The only rankers it is for, separated by commas; all if not given.
    catalogs
        Catalogs that a key for some rankers may use, separated by commas; none if not given. A key for all rankers may
        use all catalogs.
    days
        Days until it expires; it never does if not given.
    rate
        Requests per second that it may send to one process; no limit if not given.
    concurrency
        Requests that one process answers for it at the same time; no limit if not given.
    """
    from rankloop.service.access import digest, new_token
    from rankloop.service.settings import parse_scopes
    from rankloop.service.storage import keys as stored

    wanted, token, now = "+".join(sorted(parse_scopes(scopes))), new_token(), time.time()
    only = None if rankers is None else _names(rankers, "rankers")
    usable = frozenset[str]() if catalogs is None else _names(catalogs, "catalogs")
    if usable and only is None:
        raise InvalidParameter(
            f"catalogs is {catalogs!r} without rankers; a key for all rankers may use all catalogs: give rankers, too"
        )
    if days is not None and not 0 < days < float("inf"):
        raise InvalidParameter(f"days is {days:g}; give a number above 0, or leave it out for a key without end")
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidParameter(f"rate is {rate:g}; give requests per second, above 0, or leave it out for no limit")
    if concurrency is not None and concurrency < 1:
        raise InvalidParameter(f"concurrency is {concurrency}; give at least 1, or leave it out for no limit")
    end = None if days is None else now + days * 86400
    key = stored.StoredKey(digest(token), name, wanted, now, only, end, rate, concurrency, usable)
    with writable(store) as writer:
        if not writer.do(lambda c: stored.add(c, key) and _audited(c, "create-key", f"key {name}: made ({wanted})")):
            raise InvalidParameter(f"there is a key called {name!r}; revoke it first, or choose another name")
    print(token)


@keys.command(name="list")
def list_keys(*, store: Store = None, json: Json = False) -> None:
    """List the keys in the store: scopes, rankers, catalogs, age, end and limits."""
    from rankloop.service.storage import keys as stored

    with writable(store) as writer:
        found = writer.database.read(stored.load_keys).keys
    if json:
        _out.print_json(
            [
                {
                    "name": key.name,
                    "scopes": key.scopes,
                    "rankers": None if key.rankers is None else sorted(key.rankers),
                    "catalogs": None if key.rankers is None else sorted(key.catalogs),
                    "created": key.created,
                    "expires": key.expires,
                    "rate": key.rate,
                    "concurrency": key.concurrency,
                }
                for key in found
            ]
        )
        return
    rows = []
    for key in found:
        only = "all" if key.rankers is None else ", ".join(sorted(key.rankers))
        usable = "all" if key.rankers is None else ", ".join(sorted(key.catalogs)) or "none"
        end = "never" if key.expires is None else utc(key.expires) + " (ended)" * (key.expires <= time.time())
        limits = [] if key.rate is None else [f"{key.rate:g}/s"]
        limits += [] if key.concurrency is None else [f"{key.concurrency} at a time"]
        rows.append([key.name, key.scopes, only, usable, utc(key.created), end, ", ".join(limits) or "none"])
    columns = ["name", "scopes", "rankers", "catalogs", "created (UTC)", "ends (UTC)", "limits"]
    _out.print_table("Keys", columns, rows, numbers_from=9)


@keys.command
def revoke(name: str, *, store: Store = None) -> None:
    """Revoke a key; running services follow within two seconds.

    After the last one is revoked, the store still cannot be served without keys.

    Parameters
    ----------
    name
        Its name.
    """
    from rankloop.service.storage import keys as stored

    with writable(store) as writer:
        if not writer.do(lambda c: stored.delete(c, name) and _audited(c, "revoke-key", f"key {name}: revoked")):
            raise InvalidParameter(f"there is no key called {name!r}; `rankloop keys list` lists them")
    _out.people.print(f"revoked {name}")


@keys.command(name="rotate-tokens")
def rotate_tokens(*, at_once: bool = False, store: Store = None) -> None:
    """Sign the tokens with which browsers report clicks with a new secret. Earlier tokens stay valid until they expire.

    Parameters
    ----------
    at_once
        The secret has leaked: reject what it signed from now on, in running services too.
    """
    from rankloop.service.storage import keys as stored

    def rotate(connection: Connection) -> int:
        kept = stored.rotate_secret(connection, time.time(), at_once)
        _audited(connection, "rotate-tokens", f"tokens: a new secret{', the old ones are gone' * (not kept)}")
        return kept

    with writable(store) as writer:
        kept = writer.do(rotate)
    if kept:
        _out.people.print("a new secret signs in ten seconds; earlier tokens stay valid until they expire")
    else:
        _out.people.print("a new secret signs from now on; earlier tokens are invalid")


def _names(given: str, what: str) -> frozenset[str]:
    from rankloop.wire.basics import NAME

    found = frozenset(split_names(given))
    if not found or not all(re.match(NAME, one) for one in found):
        raise InvalidParameter(f"{what} is {given!r}; give names of {what}, separated by commas")
    return found


def _audited(connection: Connection, action: str, text: str) -> bool:
    """Record what was changed in the audit list."""
    from rankloop.service.storage import audit

    audit.add(connection, [audit.Entry(time.time(), audit.COMMAND, action, None, text)])
    return True


# -- audit list ----------------------------------------------------------------------------------------------------


def audit(*, ranker: str | None = None, limit: int = 50, store: Store = None, json: Json = False) -> None:
    """Show who changed what and when, the newest first.

    Rankers created, changed and deleted, versions, experiments, keys, users erased; with the name of the key and the id
    of the request, which the log of the service has too.

    Example: rankloop audit --ranker shop

    Parameters
    ----------
    ranker
        Only changes of this one.
    limit
        How many.
    """
    if limit < 1:
        raise InvalidParameter(f"limit is {limit}; give at least 1")
    with writable(store) as writer:
        from rankloop.service.storage import audit as stored

        found = writer.database.read(lambda c: stored.entries(c, limit, None if ranker is None else [ranker]))
    if json:
        names = {"who": "key"}
        _out.print_json([{names.get(name, name): value for name, value in one._asdict().items()} for one in found])
        return
    rows = [
        [utc(one.created, "%F %T"), one.who or "no key", one.action, one.ranker or "", one.text, one.request_id]
        for one in found
    ]
    _out.print_table("Changes", ["when (UTC)", "key", "action", "ranker", "what", "request"], rows, numbers_from=9)


# -- one user's data -----------------------------------------------------------------------------------------------


@users.command
def export(user: str, /, *, out: Path | None = None, store: Store = None) -> None:
    """Print everything that is stored under a user id, as JSON.

    Impressions with their answers, features, events and outcomes, rows in catalogs, and counters. `not_listed` names
    what cannot be listed: learned weights, for example, are sums over all users. An unknown user has empty lists.

    Example: rankloop user export ann-4711 --out ann-4711.json

    Parameters
    ----------
    user
        The id that was sent as `user`, or that the user has in a catalog.
    out
        A file to write, readable by you only; standard output if not given.
    """
    if out is not None:
        _out.check_writable(out)
    with readable(store) as database:
        from rankloop.service.control.users import export_pages

        pages = export_pages(database, user)
        if out is None:
            _write(sys.stdout, pages)
            return
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            count = _write(file, pages)
    _out.people.print(f"wrote {count:,} impressions to {out}", highlight=False)


@users.command
def erase(user: str, /, *, vacuum: bool = False, store: Store = None, json: Json = False) -> None:
    """Delete everything that is stored under a user id, and report what was deleted and what remains.

    Deletes impressions, events, outcomes, rows in catalogs and counters. Impressions that learning still needs are
    unlinked from the user at once, and deleted when a snapshot covers them. Learned weights stay: they are sums over
    all users. The service may run. The audit list records that a user was erased, not which.

    SQLite overwrites deleted rows, but may have copies of them in unused space of its pages. --vacuum rewrites the file
    without unused space; stop the service for it. To check: grep -c ID rankloop.db

    Exported files and backups keep what they have: delete or rewrite them. After you restore a backup, erase again the
    users that were erased since it was taken.

    Example: rankloop user erase ann-4711

    Parameters
    ----------
    user
        The id that was sent as `user`, or that the user has in a catalog.
    vacuum
        Also rewrite the SQLite file, while no process runs on the store.
    """
    import msgspec

    chosen = settings(store)
    require_file(chosen.store)
    from rankloop.service.control import users as operations
    from rankloop.service.storage import audit
    from rankloop.service.storage.ids import new_id

    with writable(store) as writer:
        own, now = new_id(), time.time()

        def record(connection: Connection, text: str) -> None:
            audit.update(connection, own, audit.Entry(now, audit.COMMAND, "erase", None, text))

        erased = operations.erase(writer, user, now, record, chosen.archive, vacuum)
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
