"""`rankloop serve` and `rankloop keys`."""

from __future__ import annotations

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
    run(chosen, sockets)


@keys.command
def create(name: str, *, scopes: str = "rank+feedback", store: str | None = None) -> None:
    """Make a key and print it. It is shown this once: only a digest is stored.

    Parameters
    ----------
    name
        What you call it.
    scopes
        rank, feedback and admin, joined by +.
    store
        As in `rankloop serve`.
    """
    from rankloop.service.keys import digest, new_token
    from rankloop.service.settings import parse_scopes
    from rankloop.service.store import keys as stored

    wanted, token = "+".join(sorted(parse_scopes(scopes))), new_token()
    with _store(store) as writer:
        if not writer.do(lambda c: stored.add(c, digest(token), name, wanted, time.time())):
            raise InvalidParameter(f"there is a key called {name!r}; revoke it first, or take another name")
    print(token)


@keys.command(name="list")
def list_keys(*, store: str | None = None, json: bool = False) -> None:
    """Show names, scopes and age of the keys in the store.

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
    listed = [{"name": name, "scopes": scopes, "created": created} for _, name, scopes, created in found]
    if json:
        _out.print_json(listed)
        return
    rows = [
        [str(key["name"]), str(key["scopes"]), time.strftime("%Y-%m-%d %H:%M", time.gmtime(float(str(key["created"]))))]
        for key in listed
    ]
    _out.print_table("Keys", ["name", "scopes", "created (UTC)"], rows, numbers_from=9)


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
