"""`rankloop serve` and `rankloop doctor`."""

from __future__ import annotations

import logging
import logging.config
import signal
import sys
from collections import Counter
from typing import Annotated

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.cli._store import Json, needs_extra

SIGNS = {"ok": "[green]ok[/green]  ", "note": "[blue]note[/blue]", "warning": "[yellow]warn[/yellow]"}
SIGNS |= {"error": "[red]bad[/red] "}


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(serve)
    app.command(doctor)


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

    Candidates go to `POST /v1/rankers/NAME/rank`, clicks to `POST /v1/feedback`; `/docs` describes the whole API.
    Acknowledged feedback is durable, is learned once, and survives any crash. On Ctrl-C or SIGTERM the service finishes
    the requests in flight and saves what was learned.

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
        --no-learn: rank only; processes elsewhere that share the store learn.
    example
        Create a ranker called `example` and print three lines to try it with.
    """
    with needs_extra("service"):
        from rankloop.service import settings as options
        from rankloop.service.observability import logs
        from rankloop.service.storage.database import without_password
        from rankloop.service.supervisor.example import NAME, SPEC, lines
        from rankloop.service.supervisor.run import bind, prepare, prepare_ranker
        from rankloop.service.supervisor.run import serve as run
        from rankloop.service.supervisor.run import url as url_of

    chosen = options.from_environment(host=host, port=port, store=store, workers=workers, learn=learn)
    prepare(chosen)
    sockets = bind(chosen)
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
        sys.stderr.write(f"\nOnce {url}/readyz answers ready, run in another terminal:\n\n{lines(url)}\n")
    # After it has stopped, the server raises the signal again for the previous handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if code := run(chosen, sockets):
        sys.exit(code)


def doctor(*, store: str | None = None, host: str | None = None, port: int | None = None, json: Json = False) -> None:
    """Check the installation, the machine and the store, and print what to do about each problem.

    Checks Python and packages, compiled kernels, settings of the environment, port, disk, memory, clock, and the store
    with its rankers. Changes nothing. Exit code 1 if something does not work.

    Example: rankloop doctor --store shop.db

    Parameters
    ----------
    store
        The store that `rankloop serve` has or will have; else RANKLOOP_STORE, else rankloop.db.
    host
        Address to listen on; else RANKLOOP_HOST, else 127.0.0.1.
    port
        Port to listen on; else RANKLOOP_PORT, else 8080.
    """
    from rankloop.service.doctor import examine

    findings = []
    for one in examine(store, host, port):
        findings.append(one)
        if not json:
            console = _out.wide()
            console.print(f"{SIGNS[one.state]} [bold]{one.name}[/bold]: ", end="")
            console.print(one.text, markup=False, highlight=False, soft_wrap=True)
            if one.remedy:
                console.print(f"     -> {one.remedy}", markup=False, highlight=False, soft_wrap=True)
    counts = Counter(one.state for one in findings)
    if json:
        _out.print_json([one._asdict() for one in findings])
    else:
        print(f"\n{counts['error']} errors, {counts['warning']} warnings, {counts['ok']} checks passed")
    if counts["error"]:
        sys.exit(1)
