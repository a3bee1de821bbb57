"""A small HTTP/1.1 client for load tests: keep-alive connections, little work a request, nothing else.

It shares two cores with the service it measures, so it parses no more than it must. Plain http only.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

from rankloop.core.errors import InvalidParameter


class Response(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    keep: bool  # the connection may be used again


class Failed(Exception):
    """A request without an answer. `kind` is connect, closed, timeout or protocol."""

    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(f"{kind}: {why}" if why else kind)
        self.kind = kind


def parse(data: bytes | bytearray, ended: bool = False) -> Response | None:
    r"""The answer in `data`, or None while it is not whole; `ended`: the other side has closed, no more will come.

    >>> parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    Response(status=200, body=b'ok', keep=True)
    >>> parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").body
    b'ok'
    """
    begin = data.find(b"\r\n\r\n") + 4
    if begin < 4:
        return None
    line, *fields = bytes(data[: begin - 4]).split(b"\r\n")
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise Failed("protocol", f"an answer begins with {line[:60]!r}")
    status = int(words[1])
    if 100 <= status < 200:
        return parse(data[begin:], ended)
    headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(b":") for field in fields)}
    connection = headers.get(b"connection", b"").lower()
    keep = connection != b"close" and (words[0] != b"HTTP/1.0" or connection == b"keep-alive")
    if status in (204, 304):
        return Response(status, b"", keep)
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = _unchunked(data, begin)
        return None if body is None else Response(status, body, keep)
    if b"content-length" not in headers:  # until the connection closes
        return Response(status, bytes(data[begin:]), False) if ended else None
    if not headers[b"content-length"].isdigit():
        raise Failed("protocol", f"Content-Length is {headers[b'content-length']!r}")
    end = begin + int(headers[b"content-length"])
    return Response(status, bytes(data[begin:end]), keep) if len(data) >= end else None


def _unchunked(data: bytes | bytearray, at: int) -> bytes | None:
    parts: list[bytes] = []
    while (line_end := data.find(b"\r\n", at)) >= 0:
        try:
            size = int(bytes(data[at:line_end]).partition(b";")[0], 16)
        except ValueError:
            raise Failed("protocol", f"a chunk begins with {bytes(data[at : at + 20])!r}") from None
        at = line_end + 2
        if size == 0:
            whole = data.startswith(b"\r\n", at) or data.find(b"\r\n\r\n", at) >= 0  # trailers are not read
            return b"".join(parts) if whole else None
        if len(data) < at + size + 2:
            return None
        parts.append(bytes(data[at : at + size]))
        at += size + 2
    return None


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._waiter: asyncio.Future[Response] | None = None
        self.answered = 0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Nothing of an answer has come."""
        return not self._data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # nobody asked
            return
        self._data += data
        self._settle()

    def eof_received(self) -> bool:
        self._settle(ended=True)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Failed("closed", str(exc or "the service closed the connection")))

    def _settle(self, ended: bool = False) -> None:
        if self._waiter is None or self._waiter.done():
            return
        try:
            response = parse(self._data, ended)
        except Failed as error:
            self._waiter.set_exception(error)
            return
        if response is not None:
            self.answered += 1
            self._waiter.set_result(response)

    async def exchange(self, *parts: bytes) -> Response:
        """Send a request, wait for its answer."""
        if self._transport is None:
            raise Failed("closed", "the connection was closed before it was used")
        self._data.clear()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(parts))
        response = await self._waiter
        if not response.keep:
            self.abort()
        return response

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Up to `connections` requests at a time to one service; further ones wait in line.

    async with Pool("http://127.0.0.1:8080", connections=8) as pool:
        response = await pool.request("GET", "/healthz", seconds=1.0)
    """

    def __init__(self, url: str, connections: int, key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError:  # a port that is no number
            parts, port = urlsplit(""), 0
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidParameter(f"url is {url!r}; load tests speak plain http: give one like http://127.0.0.1:8080")
        self.host, self.port, self.prefix = parts.hostname, port, parts.path.rstrip("/")
        self._fields = f"Host: {parts.netloc.rpartition('@')[2]}\r\nContent-Type: application/json\r\n"
        if key is not None:
            self._fields += f"Authorization: Bearer {key}\r\n"
        self._slots = asyncio.Semaphore(connections)
        self._free: list[_Connection] = []  # the last used first: the others may fall asleep
        self._all: set[_Connection] = set()

    def head(self, method: str, path: str, length: int) -> bytes:
        """The lines above the body."""
        return f"{method} {self.prefix}{path} HTTP/1.1\r\n{self._fields}Content-Length: {length}\r\n\r\n".encode(
            "latin-1"
        )

    async def request(self, method: str, path: str, *body: bytes, seconds: float = 10.0) -> Response:
        """Send and wait at most `seconds`, the time in line included; raises `Failed`."""
        head = self.head(method, path, sum(map(len, body)))
        try:
            async with asyncio.timeout(seconds), self._slots:
                return await self._exchange(head, *body)
        except TimeoutError:
            raise Failed("timeout", f"no answer within {seconds:g} s") from None

    async def _exchange(self, *parts: bytes) -> Response:
        while True:
            connection = await self._connection()
            used = connection.answered > 0
            try:
                response = await connection.exchange(*parts)
            except BaseException as error:  # cancelled too: a late answer must not be taken for the next request's
                connection.abort()
                self._all.discard(connection)
                if isinstance(error, Failed) and error.kind == "closed" and used and connection.silent:
                    continue  # it was closed for being idle when we wrote: not a failure of the request
                raise
            if connection.open:
                self._free.append(connection)
            else:
                self._all.discard(connection)
            return response

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if connection.open:
                return connection
            self._all.discard(connection)
        try:
            loop = asyncio.get_running_loop()
            _, made = await loop.create_connection(_Connection, self.host, self.port)
        except OSError as error:
            raise Failed("connect", str(error)) from None
        self._all.add(made)
        return made

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._all:
            connection.abort()
        self._all.clear()
        self._free.clear()
        await asyncio.sleep(0)  # transports close when the loop turns

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
