"""`rankloop serve` and `rankloop keys`."""

from __future__ import annotations

import re
import signal
import sys
import time
from typing import Annotated

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.errors import InvalidParameter

keys = App(name="keys", help="Make, list and revoke API keys. Only digests are stored.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(serve)
    app.command(keys)


def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    store: str | None = None,
    workers: int | None = None,
    learn: Annotated[bool | None, Parameter(negative="--no-learn")] = None,
    example: bool = False,
) -> None:
    """Rank over HTTP, learn from feedback, keep everything in a store.

    Candidates go to `POST /v1/rankers/NAME/rank`, clicks to `POST /v1/feedback`; `/docs` has the whole API to browse.
    What was acknowledged is on the disk, is learned once, and survives any crash. Ctrl-C or SIGTERM: requests in flight
    are finished and what was learned is saved.

    All settings can come from the environment too (RANKLOOP_STORE, RANKLOOP_PORT, RANKLOOP_KEYS, …); docs/service.md
    lists them.

    Example: rankloop serve --example

    Example: rankloop serve --store postgresql://user@db/rankloop --host 0.0.0.0 --workers 4

    Parameters
    ----------
    host
        Address to listen on, 127.0.0.1 if not given. Any other than loopback needs an API key.
    port
        Port, 8080 if not given.
    store
        A file for SQLite (rankloop.db if not given), or a postgresql:// URL that several machines may share.
    workers
        Processes that rank, sharing the port; one of them learns each ranker.
    learn
        --no-learn: rank only, leave learning to processes elsewhere that share the store.
    example
        Make a ranker called `example` and print three lines to try it with.
    """
    try:
        from rankloop.service import settings as options
        from rankloop.service.example import NAME, SPEC, lines
        from rankloop.service.listening import taken
        from rankloop.service.listening import url as url_of
        from rankloop.service.run import prepare, prepare_ranker
        from rankloop.service.run import serve as run
        from rankloop.service.store.database import without_password
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"serving needs {error.name}; pip install 'rankloop[service]'") from None

    chosen = options.from_environment(host=host, port=port, store=store, workers=workers, learn=learn)
    prepare(chosen)
    sockets = taken(chosen)
    _out.say_when_compiling()
    url = url_of(chosen, sockets)
    _out.people.print(
        f"rankloop serves {url} from {without_password(chosen.store)}; open it to watch, {url}/docs is the API",
        highlight=False,
        soft_wrap=True,
    )
    if example:
        prepare_ranker(chosen, NAME, SPEC)
        sys.stderr.write(f"\nReady when {url}/readyz says so. Then, in another terminal:\n\n{lines(url)}\n")
    # Once all is drained and saved, the server raises the signal again for whoever had it before: a clean end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if code := run(chosen, sockets):
        sys.exit(code)


@keys.command
def create(
    name: str,
    *,
    scopes: str = "rank+feedback",
    rankers: str | None = None,
    days: float | None = None,
    store: str | None = None,
) -> None:
    """Make a key and print it. It is shown this once: only a digest is stored.

    Example: rankloop keys create shop --rankers shop,shop-test --days 90

    Parameters
    ----------
    name
        What you call it.
    scopes
        rank, feedback, read and admin, joined by +; who has admin has read.
    rankers
        The only rankers it is for, separated by commas; all if not given.
    days
        After how many days it ends; never if not given.
    store
        As in `rankloop serve`.
    """
    from rankloop.service.keys import digest, new_token
    from rankloop.service.settings import parse_scopes
    from rankloop.service.store import keys as stored
    from rankloop.service.wire.basics import NAME

    wanted, token, now = "+".join(sorted(parse_scopes(scopes))), new_token(), time.time()
    only = None if rankers is None else frozenset(filter(None, (one.strip() for one in rankers.split(","))))
    if only is not None and (not only or not all(re.match(NAME, one) for one in only)):
        raise InvalidParameter(f"rankers is {rankers!r}; give names of rankers, separated by commas")
    if days is not None and not 0 < days < float("inf"):
        raise InvalidParameter(f"days is {days:g}; give a number above 0, or leave it out for a key that does not end")
    key = stored.StoredKey(digest(token), name, wanted, now, only, None if days is None else now + days * 86400)
    with _store(store) as writer:
        if not writer.do(lambda c: stored.add(c, key)):
            raise InvalidParameter(f"there is a key called {name!r}; revoke it first, or take another name")
    print(token)


@keys.command(name="list")
def list_keys(*, store: str | None = None, json: bool = False) -> None:
    """Show names, scopes, rankers, age and end of the keys in the store.

    Parameters
    ----------
    store
        As in `rankloop serve`.
    json
        Print JSON.
    """
    from rankloop.service.store import keys as stored

    with _store(store) as writer:
        found = writer.database.read(stored.known).keys
    if json:
        _out.print_json(
            [
                {
                    "name": key.name,
                    "scopes": key.scopes,
                    "rankers": None if key.rankers is None else sorted(key.rankers),
                    "created": key.created,
                    "expires": key.expires,
                }
                for key in found
            ]
        )
        return
    rows = []
    for key in found:
        only = "all" if key.rankers is None else ", ".join(sorted(key.rankers))
        end = "never" if key.expires is None else _day(key.expires) + " (ended)" * (key.expires <= time.time())
        rows.append([key.name, key.scopes, only, _day(key.created), end])
    _out.print_table("Keys", ["name", "scopes", "rankers", "created (UTC)", "ends (UTC)"], rows, numbers_from=9)


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
    from rankloop.service.store import keys as stored

    with _store(store) as writer:
        if not writer.do(lambda c: stored.drop(c, name)):
            raise InvalidParameter(f"there is no key called {name!r}; `rankloop keys list` shows which there are")
    _out.people.print(f"revoked {name}")


def _store(store: str | None):  # type: ignore[no-untyped-def]
    from rankloop.service.run import opened
    from rankloop.service.settings import from_environment

    return opened(from_environment(store=store))
