"""Run page, service, index and, if asked for, simulated people in one process."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import webbrowser
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from examples.embedded import HOST, address, embedded, interrupt_on_signals, listen, say, serving
from examples.search.app import Search, application
from examples.search.index import Index, folders
from examples.search.simulation import People
from rankloop.client import Client
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.service.settings import Settings

TEXT = """
A search engine over your own Python that learns from your clicks.

  {page}

Search, open what you were looking for, close it, and see it move. On the right is the engine's own order, which never
learns; below the box one sentence reports which of the two clicks prefer.

  {service}   what the ranker has learned, and why (the service's status page)
  {folder}   index and clicks; delete it to start again

Ctrl-C stops it; what was learned is kept.
"""


class _Stopped(Exception):
    """Stopped while source was read; what is indexed so far is kept."""


def run(
    folder: Path,
    roots: list[Path],
    *,
    port: int | None = None,
    seconds: float = float("inf"),
    rate: float = 0.0,
    stop: threading.Event,
    opened: Callable[[str, str], None],
) -> None:
    """Read all source, then serve for `seconds` or until `stop` is set.

    Parameters
    ----------
    folder, roots
        Where index and clicks are kept, and the folders whose source is searched.
    rate
        Simulated people per second. They teach a ranker of their own, which starts again each time, and never yours.
    opened
        Called with the addresses of the page and of the service once they answer.
    """
    for root in roots:
        if not root.is_dir():
            raise InvalidParameter(f"{root} is not a folder; give one with Python source in it")
    folder.mkdir(parents=True, exist_ok=True)
    with listen(port) as outer, listen(0) as inner:
        pages = [address(outer), address(outer).replace(HOST, "localhost")]
        # Pages of these origins may report clicks. In production: RANKLOOP_ORIGINS=https://shop.example
        settings = Settings(store=str(folder / "clicks.db"), host=HOST, origins=",".join(pages))
        # Simulated people can wait; a site keeps the default time-outs (docs/production.md).
        patience: dict[str, Any] = {"timeout": 30.0} | ({"rank_timeout": 30.0, "queue": 0} if rate else {})
        with embedded(settings, inner) as engine, Client(address(inner), **patience) as client:
            ranker = "simulated" if rate else "search"
            if rate and any(one.name == ranker for one in client.rankers()):
                client.delete_ranker(ranker)
            search = Search(Index(folder / "index.db"), client, ranker)
            app = application(search, [page.removeprefix("http://") for page in pages], address(inner))
            with serving(app, outer), suppress(_Stopped):
                opened(address(outer), address(inner))

                def progress(done: int, total: int) -> None:
                    if stop.is_set():
                        raise _Stopped
                    search.read = (done, total)
                    say(f"read {done:,} of {total:,} files")

                search.index.update(roots, search.know, progress)
                if rate:
                    client.wait_compiled(ranker)
                    _simulate(search, engine.history.judged, rate, time.monotonic() + seconds, stop)
                else:
                    stop.wait(min(seconds, threading.TIMEOUT_MAX))


def _simulate(
    search: Search, judged: Callable[[str, float], None], rate: float, end: float, stop: threading.Event
) -> None:
    people = People(search, seed=0)
    start, reported = time.monotonic(), 0.0
    while time.monotonic() < end and not stop.is_set():
        judged(search.ranker, people.visit())
        if time.monotonic() - start >= reported:
            reported += 60.0
            say(f"{people.visits:,} visits: {people.summary()}")
        stop.wait(max(0.0, start + people.visits / rate - time.monotonic()))
    say(f"{people.visits:,} visits: {people.summary()}")


def _folder(roots: list[Path] | None) -> Path:
    """One folder for what is installed, one for each other set of folders."""
    cache = Path(os.environ.get("RANKLOOP_CACHE") or Path.home() / ".cache" / "rankloop")
    return cache / ("search" if not roots else f"search-{hashlib.sha256(repr(roots).encode()).hexdigest()[:12]}")


def main() -> None:
    """Parse and run."""
    parser = ArgumentParser("python -m examples.search", description=__doc__)
    parser.add_argument("--path", type=Path, action="append", help="a folder to search instead of what is installed")
    parser.add_argument("--port", type=int, help="0 takes any free port; default: 8080, or a free port if it is taken")
    parser.add_argument("--reindex", action="store_true", help="read everything again; what was learned stays")
    parser.add_argument("--simulate", action="store_true", help="simulated people search, on a ranker of their own")
    parser.add_argument("--rate", type=float, default=5.0, help="simulated people per second")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    options = parser.parse_args()
    if not 0 < options.rate <= 50:
        parser.error(f"rate is {options.rate:g}; give more than 0 and at most 50")
    roots = [path.resolve() for path in options.path] if options.path else folders()
    folder = _folder(roots if options.path else None)
    for old in folder.glob("index.db*") if options.reindex else ():
        old.unlink()

    def opened(page: str, service: str) -> None:
        say(TEXT.format(page=page, service=service, folder=folder))
        if not options.no_browser:
            webbrowser.open(page)

    interrupt_on_signals()
    try:
        with suppress(KeyboardInterrupt):
            run(
                folder,
                roots,
                port=options.port,
                seconds=60 * options.minutes,
                rate=options.rate if options.simulate else 0.0,
                stop=threading.Event(),
                opened=opened,
            )
    except RankloopError as error:
        parser.exit(2, f"{error}\n")
    say("stopped; what was learned is kept")


if __name__ == "__main__":
    main()
