"""The Python client while its service is killed, stopped, frozen and slow: latency, fallbacks, lost and late clicks.

A click is lost if the store does not hold its event at the end of the phase, and late if the service received it more
than a second after `click` was called.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.client import Client
from rankloop.wire.calls import RankAnswer

RANKER, CANDIDATES, FEATURES, SHOWN = "shop", 20, 8, 10
THINKS = 2.0  # seconds from a ranking to the click in it
LATE = 1.0  # seconds
THREADS = 32
PATIENCE = 120.0


class Service:
    """`rankloop serve` on one port and one store."""

    def __init__(self, store: Path) -> None:
        self.store = store
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting until it is ready."""
        code = "from rankloop.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", str(self.port), "--store", str(self.store)]
        # In a session of its own, so that a signal reaches all its processes.
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def signal(self, which: signal.Signals) -> None:
        """Send a signal to all its processes; wait for the end if it is one to end them."""
        assert self._process is not None
        if which == signal.SIGTERM:
            self._process.terminate()
        else:
            os.killpg(self._process.pid, which)
        if which in (signal.SIGTERM, signal.SIGKILL):
            self._process.wait(PATIENCE)

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)


class Proxy:
    """Passes bytes on to a port; those of the service after `delay` seconds."""

    def __init__(self, port: int) -> None:
        self.port, self.delay = port, 0.0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(inner,), daemon=True).start()

    def _serve(self, inner: socket.socket) -> None:
        with inner, suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as outer:
            back = threading.Thread(target=self._pass, args=(outer, inner, True), daemon=True)
            back.start()
            self._pass(inner, outer, False)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if slow and self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept nothing more."""
        self._listening.close()


class Load:
    """Calls at a constant rate, each when it is due, from several threads."""

    def __init__(self, client: Client, rate: float) -> None:
        self.client, self.rate = client, rate
        self.took: list[float] = []  # seconds of each `rank`
        self.reasons: Counter[str] = Counter()
        self.clicked: dict[str, float] = {}  # impression_id: when `click` was called
        self._shown: Queue[tuple[float, RankAnswer, int] | None] = Queue()
        self._numbers, self._begin, self._stop = count(), time.monotonic(), threading.Event()
        self._rows = np.random.default_rng(0).random((CANDIDATES, FEATURES))
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
        self.stall = 0.0  # seconds
        self._threads.append(threading.Thread(target=self._sleep, daemon=True))
        self._clicker = threading.Thread(target=self._click, daemon=True)
        for thread in (*self._threads, self._clicker):
            thread.start()

    def stop(self) -> None:
        """End after the calls that run, and the clicks that follow them."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self._shown.put(None)
        self._clicker.join(PATIENCE)

    def _sleep(self) -> None:
        while not self._stop.is_set():
            start = time.perf_counter()
            time.sleep(0.01)
            self.stall = max(self.stall, time.perf_counter() - start - 0.01)

    def _click(self) -> None:
        while (found := self._shown.get()) is not None:
            due, answer, n = found
            time.sleep(max(0.0, due - time.monotonic()))
            self.clicked[str(answer.impression_id)] = time.time()
            self.client.click(answer, [answer.items[n % 3].id])

    def _work(self) -> None:
        for n in self._numbers:
            if self._stop.wait(max(0.0, self._begin + n / self.rate - time.monotonic())):
                return
            start = time.perf_counter()
            answer = self.client.rank(
                RANKER, ids=list(range(CANDIDATES)), features=self._rows, query=f"q{n % 7}", k=SHOWN
            )
            self.took.append(time.perf_counter() - start)
            if answer.fallback:
                self.reasons[str(answer.reason)] += 1
            if answer.impression_id is not None:
                self._shown.put((time.monotonic() + THINKS, answer, n))


def looked_up(store: Path, sql: str) -> dict[str, Any]:
    """A table of two columns."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return dict(connection.execute(sql).fetchall())


def row(phase: str, load: Load, store: Path, known: set[str]) -> dict[str, Any]:
    """A line of the table; `known` has the impressions of earlier phases, and gets those of this one."""
    times = looked_up(store, "SELECT impression_id, min(received) FROM events GROUP BY impression_id")
    stored = looked_up(store, "SELECT id, viewed FROM impressions")
    unshown = stored.keys() - load.clicked.keys() - known
    known.update(stored)
    took = np.array(load.took) * 1e3
    late = [one for one, at in load.clicked.items() if one in times and times[one] - at > LATE]
    assert load.client.queue is not None
    return {
        "phase": phase,
        "rank calls": took.size,
        "longest ms": round(float(took.max()), 1),
        "p99 ms": round(float(np.quantile(took, 0.99)), 1),
        "stall ms": round(load.stall * 1e3, 1),
        "fallbacks": f"{sum(load.reasons.values()) / took.size:.1%}",
        "clicks": len(load.clicked),
        "acknowledged": load.client.queue.delivered,
        "late": len(late),
        "slowest s": round(max((times[one] - at for one, at in load.clicked.items() if one in times), default=0.0), 1),
        "lost": len(load.clicked.keys() - times.keys()),
        "not shown": len(unshown),
        "withdrawn": sum(stored[one] == 0 for one in unshown),
        "reasons": ", ".join(f"{reason} {number}" for reason, number in load.reasons.most_common()),
    }


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """A service with a ranker whose kernels are compiled."""
    service = Service(folder / "store.db")
    service.start()
    try:
        with Client(service.url, timeout=PATIENCE) as client:
            client.wait_ready(PATIENCE)
            names = [f"f{i}" for i in range(FEATURES)]
            client.put_ranker(RANKER, features=names, exposure="full", k=SHOWN, window_seconds=3600.0, wait=True)
        yield service
    finally:
        service.end()


def faults(service: Service, proxy: Proxy, seconds: float) -> dict[str, Callable[[], None]]:
    """Phase: what happens in it. Each returns when the fault is over, or the service is starting again."""

    def killed() -> None:
        service.signal(signal.SIGKILL)
        service.start()

    def restarted() -> None:
        service.signal(signal.SIGTERM)
        service.start()

    def frozen() -> None:
        service.signal(signal.SIGSTOP)
        time.sleep(min(5.0, seconds))
        service.signal(signal.SIGCONT)

    def slow() -> None:
        proxy.delay = 2.0
        time.sleep(seconds)
        proxy.delay = 0.0

    return {"no fault": lambda: None, "killed": killed, "restarted": restarted, "frozen": frozen, "slow": slow}


def run(seconds: float, rate: float, folder: Path) -> list[dict[str, Any]]:
    """All phases, each with `seconds` before and twice as much after the fault."""
    rows: list[dict[str, Any]] = []
    known: set[str] = set()
    with serving(folder) as service:
        proxy = Proxy(service.port)
        for phase, fault in faults(service, proxy, seconds).items():
            with Client(proxy.url if phase == "slow" else service.url) as client:
                load = Load(client, rate)
                try:
                    time.sleep(seconds)
                    fault()
                    time.sleep(2 * seconds)
                finally:
                    load.stop()
                assert client.flush(PATIENCE), "feedback was not delivered"
                rows.append(row(phase, load, service.store, known))
            sys.stderr.write(f"{rows[-1]}\n")
            with Client(service.url) as client:
                client.wait_ready(PATIENCE)
        proxy.close()
    return rows


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks client_faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="before a fault; twice as long after it")
    parser.add_argument("--rate", type=float, default=50.0, help="calls of rank per second")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rankloop-faults-", dir="/var/tmp") as folder:
        rows = run(options.seconds, options.rate, Path(folder))
    print(f"Machine: {machine()}; load before: {load:.1f}; {options.rate:g} calls of rank per second\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
