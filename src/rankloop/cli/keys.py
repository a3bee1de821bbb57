"""`rankloop keys`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.storage.database import Connection

keys = App(name="keys", help="Make, list and revoke API keys. Only digests are stored.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(keys)


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
    store: str | None = None,
) -> None:
    """Make a key and print it. It is shown this once: only a digest is stored.

    Example: rankloop keys create shop --rankers shop,shop-test --days 90

    Example: rankloop keys create films --scopes admin+rank --rankers films --catalogs films

    Example: rankloop keys create partner --rate 100 --concurrency 20

    Parameters
    ----------
    name
        What you call it.
    scopes
        rank, feedback, read and admin, joined by +; who has admin has read.
    rankers
        The only rankers it is for, separated by commas; all if not given.
    catalogs
        Catalogs that a key for some rankers may use, separated by commas; none if not given. A key for all rankers may
        use all catalogs.
    days
        After how many days it ends; never if not given.
    rate
        Requests a second that it may send to one process; any number if not given.
    concurrency
        Requests that one process answers for it at a time; any number if not given.
    store
        As in `rankloop serve`.
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
        raise InvalidParameter(f"days is {days:g}; give a number above 0, or leave it out for a key that does not end")
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidParameter(f"rate is {rate:g}; give requests a second, above 0, or leave it out for no limit")
    if concurrency is not None and concurrency < 1:
        raise InvalidParameter(f"concurrency is {concurrency}; give at least 1, or leave it out for no limit")
    end = None if days is None else now + days * 86400
    key = stored.StoredKey(digest(token), name, wanted, now, only, end, rate, concurrency, usable)
    with _store(store) as writer:
        if not writer.do(lambda c: stored.add(c, key) and _noted(c, "create-key", f"key {name}: made ({wanted})")):
            raise InvalidParameter(f"there is a key called {name!r}; revoke it first, or take another name")
    print(token)


@keys.command(name="list")
def list_keys(*, store: str | None = None, json: bool = False) -> None:
    """Show names, scopes, rankers, catalogs, age, end and limits of the keys in the store.

    Parameters
    ----------
    store
        As in `rankloop serve`.
    json
        Print JSON.
    """
    from rankloop.service.storage import keys as stored

    with _store(store) as writer:
        found = writer.database.read(stored.known).keys
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
        end = "never" if key.expires is None else _day(key.expires) + " (ended)" * (key.expires <= time.time())
        limits = [] if key.rate is None else [f"{key.rate:g}/s"]
        limits += [] if key.concurrency is None else [f"{key.concurrency} at a time"]
        rows.append([key.name, key.scopes, only, usable, _day(key.created), end, ", ".join(limits) or "none"])
    columns = ["name", "scopes", "rankers", "catalogs", "created (UTC)", "ends (UTC)", "limits"]
    _out.print_table("Keys", columns, rows, numbers_from=9)


def _names(given: str, what: str) -> frozenset[str]:
    from rankloop.wire.basics import NAME

    found = frozenset(filter(None, (one.strip() for one in given.split(","))))
    if not found or not all(re.match(NAME, one) for one in found):
        raise InvalidParameter(f"{what} is {given!r}; give names of {what}, separated by commas")
    return found


def _day(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(when))


@keys.command
def revoke(name: str, *, store: str | None = None) -> None:
    """Revoke a key; running services notice within a second or two.

    The last one, too: a store that has had keys is not served without them again.

    Parameters
    ----------
    name
        Its name.
    store
        As in `rankloop serve`.
    """
    from rankloop.service.storage import keys as stored

    with _store(store) as writer:
        if not writer.do(lambda c: stored.drop(c, name) and _noted(c, "revoke-key", f"key {name}: revoked")):
            raise InvalidParameter(f"there is no key called {name!r}; `rankloop keys list` shows which there are")
    _out.people.print(f"revoked {name}")


@keys.command(name="rotate-tokens")
def rotate_tokens(*, at_once: bool = False, store: str | None = None) -> None:
    """Sign the tokens of lists, with which browsers report clicks, with a new secret.

    Tokens that are out stay good until they end, unless they must not: --at-once.

    Parameters
    ----------
    at_once
        The secret has got into the wrong hands: what it signed is refused from now on, in running services too.
    store
        As in `rankloop serve`.
    """
    with _store(store) as writer:
        kept = writer.do(lambda c: _rotated(c, at_once))
    if kept:
        _out.people.print("a new secret signs in ten seconds; tokens that are out stay good until they end")
    else:
        _out.people.print("a new secret signs from now on; tokens that are out are no longer good")


def _rotated(connection: Connection, at_once: bool) -> int:
    from rankloop.service.storage import keys as stored

    kept = stored.rotate_secret(connection, time.time(), at_once)
    _noted(connection, "rotate-tokens", f"tokens: a new secret{', the old ones are gone' * (not kept)}")
    return kept


def _noted(connection: Connection, action: str, text: str) -> bool:
    """Into the audit list, with what was changed."""
    from rankloop.service.storage import audit

    audit.add(connection, [audit.Entry(time.time(), audit.COMMAND, action, None, text)])
    return True


def _store(store: str | None):  # type: ignore[no-untyped-def]
    from rankloop.service.settings import from_environment
    from rankloop.service.supervisor.run import opened

    return opened(from_environment(store=store))
