"""Start a service: one process, or several that share a port."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from rankloop.errors import InvalidParameter
from rankloop.service.engine import Engine
from rankloop.service.http.app import create_served
from rankloop.service.http.protocol import BoundedProtocol
from rankloop.service.listening import taken
from rankloop.service.operations.rankers import complete
from rankloop.service.ranking.model import fresh_state
from rankloop.service.settings import Settings, is_loopback
from rankloop.service.store import Writer, admin, keys, open_database, schema
from rankloop.service.wire.rankers import Spec

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(process)d %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "rankloop": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


def serve(settings: Settings, sockets: list[socket.socket] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in flight are finished, what was learned is saved.

    `sockets` are those of `listening.taken`, if the port was taken before.
    """
    prepare(settings)
    sockets = sockets or taken(settings)
    options = server_options(settings)
    if settings.workers == 1:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(create_served(engine=Engine(settings)), **options)).run(sockets)
        return
    # Several processes share a socket that their parent makes: give ours back for it.
    options["port"] = sockets[0].getsockname()[1]
    for one in sockets:
        one.close()
    os.environ.update(settings.environment())  # how the workers learn of the settings
    uvicorn.run("rankloop.service.http.app:create_served", factory=True, workers=settings.workers, **options)


def server_options(settings: Settings) -> dict[str, Any]:
    """How the server is set up, whoever starts it."""
    return {
        "host": settings.host,
        "port": settings.port,
        "log_config": LOGGING,
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
    stored = database.read(keys.known).keys
    database.close()
    if not is_loopback(settings.host) and not settings.parsed_keys() and not stored:
        raise InvalidParameter(
            f"host is {settings.host}, which others can reach, and there is no API key; "
            "make one with `rankloop keys create NAME --scopes rank+feedback`, or set RANKLOOP_KEYS"
        )


def prepare_ranker(settings: Settings, name: str, spec: Spec) -> None:
    """Make a ranker in the store if there is none of that name; one that is there stays as it is."""
    full = complete(spec)
    with opened(settings) as writer:
        writer.do(lambda connection: admin.add_ranker(connection, name, full, fresh_state(full), time.time()))


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
