"""A service inside another program: on a port of its own, without a word unless something is wrong, gone when it is."""

from __future__ import annotations

import socket
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


def listening(port: int, any_free: bool = False) -> socket.socket:
    """A port of this machine that is ours from now on; with `any_free` another, should that one be taken."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((HOST, port))
        taken.listen(128)  # two that are only bound would both think it is theirs
    except OSError:
        taken.close()
        if any_free:
            return listening(0)
        raise InvalidParameter(f"port {port} is taken; give another with --port, or 0 for any that is free") from None
    return taken


def address(taken: socket.socket) -> str:
    """What to open in a browser."""
    return f"http://{HOST}:{taken.getsockname()[1]}"


def quiet() -> dict[str, Any]:
    """A server's options: the service's own warnings only. Its own tell of requests that Ctrl-C has cut, at length."""
    levels = {"rankloop": "WARNING", "uvicorn.error": "CRITICAL"}
    usual = logs.config()
    told = {**usual, "loggers": {name: {**usual["loggers"][name], "level": levels[name]} for name in levels}}
    return {"log_config": told, "access_log": False, "timeout_graceful_shutdown": 2}


def server(engine: Engine) -> uvicorn.Server:
    """A server for an engine; whoever runs it hands it the socket."""
    return uvicorn.Server(
        uvicorn.Config(create_served(engine=engine), **{**server_options(engine.settings), **quiet()})
    )


@contextmanager
def embedded(settings: Settings, taken: socket.socket) -> Iterator[Engine]:
    """A service on a thread, from the moment that it answers until the end of `with`."""
    prepare(settings)  # what is wrong with the store is told here, and not from within a thread
    engine = Engine(settings)
    serving = server(engine)
    thread = threading.Thread(target=serving.run, args=([taken],), name="rankloop-service", daemon=True)
    thread.start()
    try:
        while not serving.started:
            if not thread.is_alive():
                raise RankloopError(
                    f"the service did not start on {settings.store}; `rankloop doctor` looks for causes"
                )
            time.sleep(0.01)
        yield engine
    finally:
        serving.should_exit = True
        thread.join(timeout=10.0)
