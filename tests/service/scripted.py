"""A small real HTTP server for tests: it answers as a function says, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Said(NamedTuple):
    status: int = 200
    body: Any = None  # bytes as they are, everything else as JSON
    headers: Sequence[tuple[str, str]] = ()
    seconds: float = 0.0  # before it is said


DROP = Said(0)  # closes the connection without a word

Answer = Callable[[Asked], Said]


def script(*answers: Said) -> Answer:
    """The answers one after the other; the last one again and again."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class Server:
    def __init__(self, answer: Answer) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = 10

            def setup(self) -> None:
                super().setup()
                server.connections += 1

            def log_message(self, format: str, *_: Any) -> None:  # noqa: A002
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = Asked(self.command, self.path, dict(self.headers), body)
                server.asked.append(asked)
                said = answer(asked)
                time.sleep(said.seconds)
                if said.status == 0:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
                fields = [("Content-Length", str(len(data))), *said.headers]
                head = f"HTTP/1.1 {said.status} -\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields)
                try:
                    self.wfile.write(head.encode() + b"\r\n" + data)
                except OSError:  # who asked has gone
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
