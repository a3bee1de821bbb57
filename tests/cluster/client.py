"""Users of every host, who write down what they were told and nothing else.

`python -m tests.cluster.client TERMS` runs in a namespace of its own until its input says `finish`; then it asks for no
more lists and sends what was not acknowledged until it is. For each host one thread ranks, one reports and one asks
whether it is ready. An event that a host did not acknowledge is sent again, mostly to another host, as a load balancer
would; so is a request with an id.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

PATIENCE = 60.0  # seconds that anybody waits for an answer
LOST = (OSError, http.client.HTTPException)
FEATURES, CANDIDATES = 8, 7
READY_EVERY = 0.1  # seconds between two looks at a host


@dataclass
class Terms:
    """What the client is to do."""

    hosts: dict[str, str]  # name -> address and port
    rankers: list[str]
    key: str
    record: str  # the file that it writes
    seed: int = 0
    pause: float = 0.05  # seconds between two lists of a host
    settle: float = 250.0  # seconds for what is left at the end


@dataclass
class Shared:
    """What the threads share."""

    terms: Terms
    record: IO[str]
    lock: threading.Lock = field(default_factory=threading.Lock)
    events: deque[tuple[float, str | None, dict[str, Any]]] = field(default_factory=deque)  # due, host, event
    requests: deque[tuple[str, dict[str, Any]]] = field(default_factory=deque)  # to be asked again: ranker, body
    finishing: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    sending: int = 0  # events on their way

    def write(self, **said: Any) -> None:
        """A line of the record, which survives this process."""
        line = json.dumps(said)
        with self.lock:
            self.record.write(line + "\n")
            self.record.flush()


class Talk:
    """A connection to one host, opened again whenever it breaks."""

    def __init__(self, terms: Terms, host: str) -> None:
        self._terms, self._host = terms, host
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None, patience: float = PATIENCE) -> tuple[int, Any]:
        """(status, answer); raises one of `LOST`."""
        if self._connection is None:
            address, _, port = self._terms.hosts[self._host].partition(":")
            self._connection = http.client.HTTPConnection(address, int(port), timeout=patience)
        try:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._terms.key}"}
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        except BaseException:
            self._connection.close()
            self._connection = None
            raise


class Ranking(threading.Thread):
    """Asks one host for lists, whatever becomes of it, and plans what the users of these lists will report."""

    def __init__(self, shared: Shared, host: str) -> None:
        super().__init__(name=f"rank-{host}", daemon=True)
        self._shared, self._host = shared, host
        self._talk = Talk(shared.terms, host)
        self._rng = random.Random(f"{shared.terms.seed} rank {host}")
        self._numbers = 0

    def run(self) -> None:
        """Until the end."""
        shared = self._shared
        while not shared.finishing.is_set():
            self._turn()
            time.sleep(shared.terms.pause)

    def _turn(self) -> None:
        shared, rng = self._shared, self._rng
        try:
            ranker, body = shared.requests.popleft() if rng.random() < 0.1 else self._new()
        except IndexError:
            ranker, body = self._new()
        sent = [candidate["id"] for candidate in body["candidates"]]
        told: dict[str, Any] = {"what": "rank", "host": self._host, "ranker": ranker, "sent": sent, "at": time.time()}
        told["request"] = body.get("request_id")
        try:
            told["status"], found = self._talk.ask("POST", f"/v1/rankers/{ranker}/rank", body)
        except LOST as error:
            told |= {"status": 0, "error": repr(error), "until": time.time()}
            shared.write(**told)
            if "request_id" in body:
                shared.requests.append((ranker, body))
            time.sleep(0.05)
            return
        told["until"] = time.time()
        if told["status"] != 200:
            shared.write(**told, error=found)
            return
        shown = [item["id"] for item in found["items"]]
        told |= {name: found[name] for name in ("impression_id", "fallback", "reason")}
        shared.write(**told, shown=shown)
        if "request_id" in body and rng.random() < 0.1:
            shared.requests.append((ranker, body))  # the same again, at whichever host
        if found["impression_id"] is not None:
            self._plan(found["impression_id"], shown)

    def _new(self) -> tuple[str, dict[str, Any]]:
        rng = self._rng
        ids = rng.sample(range(100), CANDIDATES)
        rows = [{"id": f"i{i}", "features": [rng.random() for _ in range(FEATURES)]} for i in ids]
        body: dict[str, Any] = {"candidates": rows, "query": f"q{rng.randrange(20)}"}
        if rng.random() < 0.5:
            body["request_id"] = self._number("r")
        return rng.choice(self._shared.terms.rankers), body

    def _number(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}-{self._host}-{self._numbers}"

    def _plan(self, impression: str, shown: list[str]) -> None:
        """What the user of this list will do: nothing, something and no more, or all at once or in two parts."""
        rng, kind = self._rng, self._rng.random()
        parts = 0 if kind < 0.1 else 2 if kind > 0.7 else 1
        for part in range(parts):
            event: dict[str, Any] = {"event_id": self._number("e"), "impression_id": impression}
            event |= {"clicks": rng.sample(shown, rng.randrange(3))}
            if part == parts - 1 and kind > 0.2:
                event["final"] = True
            self._shared.events.append((time.monotonic() + rng.uniform(0.0, 1.0) + part, self._host, event))


class Reporting(threading.Thread):
    """Sends events, each until some host has acknowledged it."""

    def __init__(self, shared: Shared, host: str) -> None:
        super().__init__(name=f"report-{host}", daemon=True)
        self._shared, self._host = shared, host
        self._talk = Talk(shared.terms, host)
        self._rng = random.Random(f"{shared.terms.seed} report {host}")

    def run(self) -> None:
        """Until the end."""
        while not self._shared.ended.is_set():
            if not self._turn():
                time.sleep(0.02)

    def _turn(self) -> bool:
        """Whether there was something to send."""
        shared = self._shared
        some: list[dict[str, Any]] = []
        with shared.lock:
            for _ in range(min(len(shared.events), 50)):
                due, host, event = shared.events.popleft()
                if len(some) < 3 and due <= time.monotonic() and host in (None, self._host):
                    some.append(event)
                else:
                    shared.events.append((due, host, event))
            shared.sending += len(some)
        if not some:
            return False
        self._send(some)
        with shared.lock:
            shared.sending -= len(some)
        return True

    def _send(self, some: list[dict[str, Any]]) -> None:
        shared = self._shared
        told: dict[str, Any] = {"what": "events", "host": self._host, "events": some, "at": time.time()}
        try:
            told["status"], found = self._talk.ask("POST", "/v1/feedback", some)
        except LOST as error:
            told["status"], found = 0, repr(error)
        told["until"] = time.time()
        if told["status"] == 200:
            results = {one["event_id"]: one["status"] for one in found["results"]}
            shared.write(**told, results=results)
            # Some are sent again though they were acknowledged: a browser that did not hear it.
            again = [event for event in some if self._rng.random() < 0.03]
        else:
            shared.write(**told, error=found)
            again = some
        for event in again:
            host = self._host if self._rng.random() < 0.3 else None
            shared.events.append((time.monotonic() + 0.3, host, event))


class Readiness(threading.Thread):
    """Asks one host whether it is ready, and says on the output when that changes."""

    def __init__(self, shared: Shared, host: str) -> None:
        super().__init__(name=f"ready-{host}", daemon=True)
        self._shared, self._host = shared, host
        self._talk = Talk(shared.terms, host)

    def run(self) -> None:
        """Until the end."""
        before: bool | None = None
        while not self._shared.ended.is_set():
            try:
                ready = self._talk.ask("GET", "/readyz", patience=2.0)[0] == 200
            except LOST:
                ready = False
            if ready is not before:
                before = ready
                say(host=self._host, ready=ready, at=time.time())
            time.sleep(READY_EVERY)


def say(**words: Any) -> None:
    """A line for whoever started this."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Load until told to finish; then whatever is left until it is acknowledged."""
    terms = Terms(**json.loads(sys.argv[1]))
    with Path(terms.record).open("w") as record:
        shared = Shared(terms, record)
        reporting: list[threading.Thread] = [Reporting(shared, host) for host in terms.hosts]
        others: list[threading.Thread] = [Readiness(shared, host) for host in terms.hosts]
        ranking: list[threading.Thread] = [Ranking(shared, host) for host in terms.hosts]
        for line in sys.stdin:
            word = line.split()[0]
            if word == "put":  # a ranker, by any host that is ready
                host, name, spec = line.split(maxsplit=3)[1:]
                answer: Any = None
                with contextlib.suppress(*LOST):
                    answer = Talk(terms, host).ask("PUT", f"/v1/rankers/{name}", json.loads(spec))
                say(put=name, answer=answer)
            elif word == "look":
                for thread in others:
                    thread.start()
            elif word == "load":
                for thread in (*ranking, *reporting):
                    thread.start()
            elif word == "finish":
                break
        shared.finishing.set()
        for thread in ranking:
            thread.join()
        end = time.monotonic() + terms.settle
        while (shared.events or shared.sending) and time.monotonic() < end:
            time.sleep(0.05)
        shared.ended.set()
        for thread in reporting:
            thread.join()
        say(left=len(shared.events))


if __name__ == "__main__":
    main()
