"""A process that keeps a service busy: `python -m rankloop.service.capacity.measure.sender JSON`, started by `runs`.

So many connections, each with one request under way (a closed loop): rank, and for a share of the lists what a
simulated user says of them. It is a process of its own so that what it takes of the machine can be told from what the
service takes. It warms up, says so in a line, waits for a line, sends for the time that was asked, and prints one JSON
object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from rankloop.service.load_test.connections import Failed, parse
from rankloop.service.load_test.traffic import Traffic

MARK, END = b'"impression_id":"', b'"'
QUANTILES = (np.arange(50) + 0.5) / 50
ITEM = b'"id":"'


class Loop(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._data = bytearray()
        self._n, self._begun, self._event = 0, 0.0, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._rank()

    def _rank(self) -> None:
        sending = self._sending
        if sending.over or self._transport is None:
            sending.stopped(self)
            return
        self._n, self._event = sending.next(), b""
        parts = sending.traffic.request(self._n, f"{sending.name}-{self._n}")
        self._begun = time.perf_counter()
        self._transport.write(b"".join((sending.head("rank", sum(map(len, parts))), *parts)))

    def data_received(self, data: bytes) -> None:
        """A whole answer is counted, and the next request sent."""
        self._data += data
        try:
            answer = parse(self._data)
        except Failed:
            answer = None
            self._sending.errors += 1
        if answer is None:
            return
        sending, took = self._sending, time.perf_counter() - self._begun
        sending.received += len(self._data)
        self._data.clear()
        sending.errors += answer.status != 200
        if self._event:
            sending.events.append(took)
            self._rank()
            return
        sending.lists.append(took)
        self._event = sending.report(self._n, answer.body)
        if not self._event or self._transport is None:
            self._rank()
            return
        self._begun = time.perf_counter()
        self._transport.write(sending.head("feedback", len(self._event)) + self._event)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Someone has closed it."""
        self._transport = None
        self._sending.errors += not self._sending.over
        self._sending.stopped(self)

    def close(self) -> None:
        """Enough."""
        if self._transport is not None:
            self._transport.abort()


class Sending:
    """What is sent, and what came of it."""

    def __init__(self, asked: dict[str, Any]) -> None:
        where = urlsplit(asked["url"])
        self.host, self.port, self.name = where.hostname or "", where.port or 80, asked["name"]
        self.connections, self.share, self.seconds = asked["connections"], asked["feedback"], asked["seconds"]
        self.traffic = Traffic(candidates=asked["candidates"], features=asked["features"], k=asked["k"])
        paths = {"rank": f"/v1/rankers/{asked['ranker']}/rank", "feedback": "/v1/feedback"}
        fields = f"Host: {where.netloc}\r\nContent-Type: application/json\r\nContent-Length: "
        self._heads = {what: f"POST {path} HTTP/1.1\r\n{fields}".encode() for what, path in paths.items()}
        self._numbers = 0
        self._owed = 0.0
        self._busy: set[Loop] = set()
        self._idle = asyncio.Event()
        self.begin(over=True)

    def begin(self, over: bool = False) -> None:
        """Count from nothing."""
        self.lists: list[float] = []
        self.events: list[float] = []
        self.received = self.reported = self.errors = 0
        self.over = over

    def next(self) -> int:
        """A number for a request."""
        self._numbers += 1
        return self._numbers

    def head(self, what: str, length: int) -> bytes:
        """The lines above a body."""
        return b"%b%d\r\n\r\n" % (self._heads[what], length)

    def report(self, n: int, body: bytes) -> bytes:
        """What the user says of the list in an answer; nothing for the share that never says anything."""
        self._owed += self.share
        at = body.find(MARK)
        if self._owed < 1 or at < 0:
            return b""
        self._owed -= 1
        impression = body[at + len(MARK) : body.index(END, at + len(MARK))].decode()
        shown = [part[: part.index(END)].decode() for part in body.split(ITEM)[1:]]
        event = {"event_id": f"{self.name}-{n}", "impression_id": impression, "clicks": self.traffic.clicks(n, shown)}
        body = json.dumps(event | {"final": True}).encode()
        self.reported += len(self.head("feedback", 0)) + len(body)
        return body

    def stopped(self, one: Loop) -> None:
        """A connection that sends no more."""
        self._busy.discard(one)
        if not self._busy:
            self._idle.set()

    async def run(self, seconds: float) -> dict[str, Any]:
        """Send for so long, and wait for what is under way."""
        self.begin()
        self._idle.clear()
        begun, spent = time.perf_counter(), time.process_time()
        loop = asyncio.get_running_loop()
        self._busy = {Loop(self) for _ in range(self.connections)}
        made = list(self._busy)
        for one in made:
            await loop.create_connection(lambda one=one: one, self.host, self.port)
        await asyncio.sleep(seconds)
        took = time.perf_counter() - begun
        counted = len(self.lists), len(self.events)
        self.over = True
        await asyncio.wait_for(self._idle.wait(), 30)
        for one in made:
            one.close()
        await asyncio.sleep(0)
        p50, p99 = np.percentile(self.lists or [0.0], [50, 99])
        return {
            "lists": len(self.lists),
            "events": len(self.events),
            "errors": self.errors,
            "rate": counted[0] / took,
            "events_rate": counted[1] / took,
            "cpu": time.process_time() - spent,
            "p50": float(p50),
            "p99": float(p99),
            "quantiles": np.quantile(self.lists or [0.0], QUANTILES).tolist(),
            "events_p50": float(np.percentile(self.events or [0.0], 50)),
            "request": len(self.head("rank", 0)) + sum(map(len, self.traffic.request(1, f"{self.name}-{1}"))),
            "received": self.received,
            "reported": self.reported,
        }


async def _main(asked: dict[str, Any]) -> None:
    sending = Sending(asked)
    await sending.run(asked["warm"])
    _say({"warm": True})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    _say(await sending.run(sending.seconds))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        _factory = import_module("uvloop").new_event_loop
    except ImportError:
        _factory = None
    with asyncio.Runner(loop_factory=_factory) as _runner:
        _runner.run(_main(json.loads(sys.argv[1])))
