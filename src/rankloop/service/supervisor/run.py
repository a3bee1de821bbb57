"""Start a service: one process, or several that share a port."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from rankloop.core.errors import InvalidParameter
from rankloop.service.api.app import create_served
from rankloop.service.api.protocol import BoundedProtocol
from rankloop.service.control.rankers import complete, made
from rankloop.service.observability import logs
from rankloop.service.ranking.model import fresh_state
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings, is_loopback
from rankloop.service.storage import Writer, audit, keys, open_database, rankers, schema
from rankloop.service.storage.database import Connection
from rankloop.service.supervisor import learning_process
from rankloop.service.supervisor.listening import taken
from rankloop.service.supervisor.processes import Supervisor
from rankloop.service.training.publication import Subscriber
from rankloop.service.worker.process import raise_descriptor_limit
from rankloop.wire.rankers import Spec

logger = logging.getLogger("rankloop")
BEAT = 0.5  # seconds between signs of life to the supervisor
SAME_PRESS = 2.0  # seconds within which two SIGINT are one Ctrl-C: from the terminal, and from the supervisor


def serve(settings: Settings, sockets: list[socket.socket] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; requests in flight are finished, what was learned is saved. The exit code.

    `sockets` are those of `listening.taken`, if the port was taken before.
    """
    prepare(settings)
    raise_descriptor_limit()
    sockets = sockets or taken(settings)
    logging.config.dictConfig(logs.config(settings.log_format))
    if hasattr(os, "fork") and (settings.learn_in == "process" or settings.workers > 1):
        return Supervisor(settings, sockets, rank, learning_process.run).run()
    if settings.workers > 1:
        raise InvalidParameter(f"workers is {settings.workers}, but processes cannot be forked here; give 1")
    with suppress(KeyboardInterrupt):
        _Alone(uvicorn.Config(create_served(engine=Engine(settings)), **server_options(settings))).run(sockets)
    return 0


class _Alone(uvicorn.Server):
    """The server of a service of one process, which logs when it begins to stop and when it has."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info(logs.STOPPING)
        await super().shutdown(sockets)
        logger.info(logs.STOPPED)


class _Supervised(uvicorn.Server):
    """The server of a ranking process. A terminal sends Ctrl-C to all processes, and the supervisor passes it on: it
    counts once. The server would take the second SIGINT as the wish not to wait for requests in flight."""

    _pressed = float("-inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        before, now = self._pressed, time.monotonic()
        if sig == signal.SIGINT:
            self._pressed = now
            if now - before < SAME_PRESS:
                return
        super().handle_exit(sig, frame)


def rank(settings: Settings, sockets: list[socket.socket], end: socket.socket | None, beat: Callable[[], None]) -> None:
    """What a process does that ranks, under a supervisor: serve until SIGTERM, and give signs of life from its loop."""
    inbox = None if end is None else Subscriber(end)
    engine = Engine(settings, inbox=inbox)
    app = create_served(engine=engine, on_loop=partial(_beat_in, beat))
    server = _Supervised(uvicorn.Config(app, **server_options(settings)))
    server.run(sockets)
    if not server.started:
        raise SystemExit(3)


def _beat_in(beat: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    supervisor = os.getppid()

    def again() -> None:
        beat()
        if os.getppid() != supervisor:  # it has gone without a word: nobody else would end this process
            os.kill(os.getpid(), signal.SIGTERM)
        loop.call_later(BEAT, again)

    again()


def server_options(settings: Settings) -> dict[str, Any]:
    """How the server is set up, whoever starts it."""
    return {
        "host": settings.host,
        "port": settings.port,
        "log_config": logs.config(settings.log_format),
        "access_log": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": settings.drain_seconds,
        "timeout_keep_alive": settings.idle_seconds,
        "http": BoundedProtocol,
        "ws": "none",  # there is nothing to be had that way, and nobody watches that door
        "lifespan": "on",
    }


def prepare(settings: Settings) -> None:
    """Refuse what cannot work before anything listens, and bring the store up to date."""
    database = open_database(settings.store)
    schema.migrate(database)
    stored = database.read(keys.load_keys).keys
    database.close()
    if not is_loopback(settings.host) and not settings.parsed_keys() and not stored:
        raise InvalidParameter(
            f"host is {settings.host}, which others can reach, and there is no API key; "
            "make one with `rankloop keys create NAME --scopes rank+feedback`, or set RANKLOOP_KEYS"
        )


def prepare_ranker(settings: Settings, name: str, spec: Spec) -> None:
    """Make a ranker in the store if there is none of that name; one that is there stays as it is."""
    full, now = complete(spec), time.time()

    def make(connection: Connection) -> None:
        if rankers.add_ranker(connection, name, full, fresh_state(full), now):
            audit.add(connection, [audit.Entry(now, audit.COMMAND, "put", name, made(full))])

    with opened(settings) as writer:
        writer.do(make)


@contextmanager
def opened(settings: Settings) -> Iterator[Writer]:
    """The store of a service that need not run."""
    database = open_database(settings.store)
    schema.migrate(database)
    writer = Writer(database, {})
    try:
        yield writer
    finally:
        writer.close()
        database.close()
