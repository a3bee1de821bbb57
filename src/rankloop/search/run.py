"""Page, service, index and simulated people in one process: what makes `rankloop search` one command.

To put the same into production take `index.py` and `app.py`, and let `rankloop serve` be a program of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from rankloop.client import Client
from rankloop.core.errors import InvalidParameter
from rankloop.search.app import Search, application
from rankloop.search.index import Index
from rankloop.search.simulation import People
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.supervisor.embedded import HOST, address, embedded, listening, quiet

OWN, SIMULATED = "search", "simulated"  # what you teach, and what simulated people do: they must not spoil yours
PORT = 8080


class _Ended(Exception):
    """The end came while source was read; what is indexed so far is kept."""


class Site:
    """One `rankloop search`, from `run` to its end.

    Parameters
    ----------
    folder
        Where index and clicks are kept; made if it is not there.
    roots
        The folders whose source is searched.
    port
        0 takes a free one; None 8080, or a free one if that is taken.
    minutes, visits
        When to end: after so many minutes, or so many visits of simulated people. None: at Ctrl-C.
    rate
        Simulated people a second; 0 for none.
    seed
        Of the simulated people, their tastes, queries and clicks.
    tell, told
        Called with what happens, in words; and with how many files of how many are read.
    """

    def __init__(
        self,
        folder: Path,
        roots: list[Path],
        *,
        port: int | None = None,
        minutes: float | None = None,
        visits: int | None = None,
        rate: float = 0.0,
        seed: int = 0,
        tell: Callable[[str], None] = lambda _: None,
        told: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        if minutes is not None and not minutes > 0:
            raise InvalidParameter(f"minutes is {minutes:g}; give a number above 0, or leave it out to go on")
        if visits is not None and visits < 1:
            raise InvalidParameter(f"visits is {visits}; give 1 or more, or leave it out to go on")
        if not 0 <= rate <= 50:
            raise InvalidParameter(f"rate is {rate:g} visits a second; it must be from 0 to 50")
        for root in roots:
            if not root.is_dir():
                raise InvalidParameter(f"{root} is no folder; give one with Python source in it")
        self.folder, self.roots, self.minutes, self.visits = folder, roots, minutes, visits
        self.rate, self.seed, self.tell, self._told = rate, seed, tell, told
        self._socket = listening(PORT if port is None else port, any_free=port is None)
        self.url = address(self._socket)
        self.failures = 0
        self._server: uvicorn.Server | None = None

    def run(self, opened: Callable[[str, str], None]) -> None:
        """Serve until the end; `opened` hears the address of the page and of the service once they answer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        end = None if self.minutes is None else time.monotonic() + 60 * self.minutes
        inner = listening(0)
        pages = [self.url, self.url.replace(HOST, "localhost")]
        # Pages of these origins may report clicks. In production: RANKLOOP_ORIGINS=https://shop.example
        settings = Settings(store=str(self.folder / "clicks.db"), host=HOST, origins=",".join(pages))
        # Simulated people can wait for their lists and receipts; a site keeps the defaults (docs/production.md).
        patience: dict[str, Any] = {"timeout": 30.0} | ({"rank_timeout": 30.0, "queue": 0} if self.rate else {})
        with self._socket, embedded(settings, inner) as engine, Client(address(inner), **patience) as client:
            if self.rate and any(one.name == SIMULATED for one in client.rankers()):
                client.delete_ranker(SIMULATED)  # the same seed is to be the same show
            ranker = SIMULATED if self.rate else OWN
            search = Search(Index(self.folder / "index.db"), client, ranker, self.seed if self.rate else 0)
            app = application(search, [page.removeprefix("http://") for page in pages], address(inner))
            self._server = server = uvicorn.Server(uvicorn.Config(app, **quiet()))
            work = (search, engine, end, lambda: opened(self.url, address(inner)))
            thread = threading.Thread(target=self._accompany, args=work, name="rankloop-search", daemon=True)
            thread.start()
            try:
                server.run(sockets=[self._socket])
            finally:
                server.should_exit = True
                thread.join(timeout=10.0)

    def end(self) -> None:
        """End it, from any thread; if it was never run, give the port back."""
        if self._server is None:
            self._socket.close()
        else:
            self._server.should_exit = True

    def _accompany(self, search: Search, engine: Engine, end: float | None, opened: Callable[[], None]) -> None:
        """Beside the page: read source, let people come, until the end."""
        try:
            while not (self._closing() or (self._server is not None and self._server.started)):
                time.sleep(0.01)
            opened()
            search.index.update(self.roots, search.know, lambda done, of: self._read(search, done, of))
            if self.rate:
                search.client.wait_warm(search.ranker)
                self._simulate(search, engine, end)
            while not (self.rate or self._closing()) and (end is None or time.monotonic() < end):
                time.sleep(0.1)
        except _Ended:
            pass
        except Exception as error:
            if not self._closing():
                self.failures += 1
                self.tell(f"it has stopped: {type(error).__name__}: {error}")
        finally:
            self.end()

    def _read(self, search: Search, done: int, of: int) -> None:
        if self._closing():
            raise _Ended
        search.read = (done, of)
        self._told(done, of)

    def _simulate(self, search: Search, engine: Engine, end: float | None) -> None:
        people = People(search, self.seed)
        start, said = time.monotonic(), 0.0
        while not self._closing() and (end is None or time.monotonic() < end):
            if self.visits is not None and people.visits >= self.visits:
                break
            engine.history.judged(search.ranker, people.visit())
            if time.monotonic() - start >= said:
                said = 60.0 if said == 0.0 else said + 60.0
                self.tell(f"{people.visits:,} visits: {people.summary()}")
            time.sleep(max(0.0, start + people.visits / self.rate - time.monotonic()))
        if not self._closing():
            self.tell(f"{people.visits:,} visits: {people.summary()}")

    def _closing(self) -> bool:
        return self._server is not None and self._server.should_exit
