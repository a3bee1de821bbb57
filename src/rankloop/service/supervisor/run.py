"""Starts a service: one process, or several that share a port."""

from __future__ import annotations

import asyncio
import errno
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
from rankloop.service.supervisor.processes import Supervisor
from rankloop.service.training.publication import Subscriber
from rankloop.service.worker.process import raise_descriptor_limit
from rankloop.wire.rankers import Spec

logger = logging.getLogger("rankloop")
HEARTBEAT = 0.5  # seconds between heartbeats to the supervisor
SAME_PRESS = 2.0  # seconds within which two SIGINT are one Ctrl-C: from the terminal, and from the supervisor


def serve(settings: Settings, sockets: list[socket.socket] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; requests in flight are finished, what was learned is saved. Returns the exit code.

    `sockets` are those of `bind`, if the port was taken before.
    """
    prepare(settings)
    raise_descriptor_limit()
    sockets = sockets or bind(settings)
    logging.config.dictConfig(logs.config(settings.log_format))
    if hasattr(os, "fork") and (settings.learn_in == "process" or settings.workers > 1):
        return Supervisor(settings, sockets, rank, learning_process.run).run()
    if settings.workers > 1:
        raise InvalidParameter(f"workers is {settings.workers}, but processes cannot be forked here; give 1")
    with suppress(KeyboardInterrupt):
        _SingleProcessServer(uvicorn.Config(create_served(engine=Engine(settings)), **server_options(settings))).run(
            sockets
        )
    return 0


class _SingleProcessServer(uvicorn.Server):
    """The server of a service of one process. It logs when it begins to stop and when it has."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info(logs.STOPPING)
        await super().shutdown(sockets)
        logger.info(logs.STOPPED)


class _SupervisedServer(uvicorn.Server):
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


def rank(
    settings: Settings, sockets: list[socket.socket], end: socket.socket | None, heartbeat: Callable[[], None]
) -> None:
    """Serve as a ranking process until SIGTERM, with heartbeats from the event loop."""
    inbox = None if end is None else Subscriber(end)
    engine = Engine(settings, inbox=inbox)
    app = create_served(engine=engine, on_loop=partial(_send_heartbeats, heartbeat))
    server = _SupervisedServer(uvicorn.Config(app, **server_options(settings)))
    server.run(sockets)
    if not server.started:
        raise SystemExit(3)


def _send_heartbeats(heartbeat: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    supervisor = os.getppid()

    def again() -> None:
        heartbeat()
        if os.getppid() != supervisor:  # the supervisor was killed: nobody else would end this process
            os.kill(os.getpid(), signal.SIGTERM)
        loop.call_later(HEARTBEAT, again)

    again()


def server_options(settings: Settings) -> dict[str, Any]:
    """Options of uvicorn."""
    return {
        "host": settings.host,
        "port": settings.port,
        "log_config": logs.config(settings.log_format),
        "access_log": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": settings.drain_seconds,
        "timeout_keep_alive": settings.idle_seconds,
        "http": BoundedProtocol,
        "ws": "none",
        "lifespan": "on",
    }


def prepare(settings: Settings) -> None:
    """Refuse what cannot work before the port is opened, and bring the store up to date."""
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
    """Make a ranker in the store if there is none of that name."""
    full, now = complete(spec), time.time()

    def make(connection: Connection) -> None:
        if rankers.add_ranker(connection, name, full, fresh_state(full), now):
            audit.add(connection, [audit.Entry(now, audit.COMMAND, "put", name, made(full))])

    with opened(settings) as writer:
        writer.do(make)


@contextmanager
def opened(settings: Settings) -> Iterator[Writer]:
    """Open the store of a service for writing; the service need not run."""
    database = open_database(settings.store)
    schema.migrate(database)
    writer = Writer(database, {})
    try:
        yield writer
    finally:
        writer.close()
        database.close()


def bind(settings: Settings) -> list[socket.socket]:
    """A socket for each address of the host, bound but not listening; refuses a port that is not available."""
    host, port = settings.host, settings.port
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidParameter(f"host is {host!r}, which no address is known of ({error.strerror})") from None
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        made = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere it would let two programs have the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind(address)
        except OSError as error:
            made.close()
            if error.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                continue  # a name of two addresses, on a machine that has one of them
            for other in found:
                other.close()
            raise InvalidParameter(_bind_error(error, host, port)) from None
        found.append(made)
        if port == 0:
            break  # the next address would get another one
    if not found:
        raise InvalidParameter(f"host is {host!r}, and none of its addresses is one of this machine")
    return found


def url(settings: Settings, sockets: list[socket.socket]) -> str:
    """The address of the service."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{sockets[0].getsockname()[1]}"


def _bind_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program; stop it, or give another port with --port"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights; give one of 1024 or more with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host is {host}, which is no address of this machine; give one that is, or 0.0.0.0 for all"
    return f"{host}:{port} cannot be listened on: {error.strerror}; give others with --host and --port"
