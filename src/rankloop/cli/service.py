"""`rankloop serve`."""

from __future__ import annotations

import logging
import logging.config
import signal
import sys
from typing import Annotated

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter


def add_to(app: App) -> None:
    """Register the command."""
    app.command(serve)


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
        Processes that rank, sharing the port; one more learns.
    learn
        --no-learn: rank only, leave learning to processes elsewhere that share the store.
    example
        Make a ranker called `example` and print three lines to try it with.
    """
    try:
        from rankloop.service import settings as options
        from rankloop.service.observability import logs
        from rankloop.service.storage.database import without_password
        from rankloop.service.supervisor.example import NAME, SPEC, lines
        from rankloop.service.supervisor.listening import taken
        from rankloop.service.supervisor.listening import url as url_of
        from rankloop.service.supervisor.run import prepare, prepare_ranker
        from rankloop.service.supervisor.run import serve as run
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"serving needs {error.name}; pip install 'rankloop[service]'") from None

    chosen = options.from_environment(host=host, port=port, store=store, workers=workers, learn=learn)
    prepare(chosen)
    sockets = taken(chosen)
    url = url_of(chosen, sockets)
    said = f"rankloop serves {url} from {without_password(chosen.store)}; open it to watch, {url}/docs is the API"
    odd = [f"{name} is set, which is no setting; {remedy}" for name, remedy in options.unknown()]
    if chosen.log_format == "json":  # programs read this: nothing but objects
        logging.config.dictConfig(logs.config("json"))
        for text in odd:
            logging.getLogger("rankloop").warning("%s", text)
        logging.getLogger("rankloop").info("%s", said)
    else:
        _out.say_when_compiling()
        for text in (*odd, said):
            _out.people.print(text, highlight=False, soft_wrap=True)
    if example:
        prepare_ranker(chosen, NAME, SPEC)
        sys.stderr.write(f"\nReady when {url}/readyz says so. Then, in another terminal:\n\n{lines(url)}\n")
    # Once all is drained and saved, the server raises the signal again for whoever had it before: a clean end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if code := run(chosen, sockets):
        sys.exit(code)
