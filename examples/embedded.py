"""A service inside another program: on a port of its own, quiet, and stopped with the program."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.service.api.app import create_served
from rankloop.service.observability import logs
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.supervisor.run import prepare, server_options

HOST = "127.0.0.1"


def listen(port: int | None) -> socket.socket:
    """A listening port of this machine; 0 is any free one, None is 8080 or, if that is taken, any free one."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, 8080 if port is None else port))
        found.listen(128)
    except OSError:
        found.close()
        if port is None:
            return listen(0)
        raise InvalidParameter(f"port {port} is taken; give another with --port, or 0 for any free port") from None
    return found


def address(listening: socket.socket) -> str:
    """The URL of a listening port."""
    return f"http://{HOST}:{listening.getsockname()[1]}"


def quiet() -> dict[str, Any]:
    """Server options that log only warnings of the service."""
    levels = {"rankloop": "WARNING", "uvicorn.error": "CRITICAL"}
    config = logs.config()
    config = {**config, "loggers": {name: {**config["loggers"][name], "level": levels[name]} for name in levels}}
    return {"log_config": config, "access_log": False, "timeout_graceful_shutdown": 2}


@contextmanager
def serving(app: Any, listening: socket.socket, **options: Any) -> Iterator[None]:
    """An application on a thread, from the moment it answers until the end of `with`."""
    server = uvicorn.Server(uvicorn.Config(app, **{**options, **quiet()}))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RankloopError("the server did not start; run `rankloop doctor`")
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=10.0)


@contextmanager
def embedded(settings: Settings, listening: socket.socket) -> Iterator[Engine]:
    """A rankloop service on a thread."""
    prepare(settings)  # raises here, not in the thread, if the store cannot be used
    engine = Engine(settings)
    with serving(create_served(engine=engine), listening, **server_options(settings)):
        yield engine


def say(text: str) -> None:
    """Print for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP (a closed terminal) raise KeyboardInterrupt, so that everything is cleaned up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, interrupt)
