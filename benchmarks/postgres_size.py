"""A PostgreSQL that holds a month of lists beside an empty one: `python -m benchmarks.postgres_size all`.

Two databases of one server, from pip, in a folder that is deleted in the end. One is filled by COPY: a month of
lists of some 240 bytes, a tenth of them with an event and an outcome. Then a service on either gets the
same load in turns, so whatever else the machine does meets both: what ranking and feedback take is a median of the
turns. Last, while the load goes on, the month is past retention, and is dropped.

`fill`, `measure`, `retire` and `clean` do one of it, so that they can be run at different times.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psycopg

from benchmarks.common import machine, print_rows, service
from rankloop.service.control.rankers import complete
from rankloop.service.load_generator import LoadPlan, LoadReport, run
from rankloop.service.load_generator import start as start_load
from rankloop.service.ranking.model import fresh_state
from rankloop.service.storage import admin, partitions, schema
from rankloop.service.storage.database import open_database
from rankloop.service.storage.times import ALPHABET, edge
from rankloop.wire.rankers import Spec

ALPHABET_BYTES = np.frombuffer(ALPHABET.encode(), np.uint8)
CHUNK = 200_000  # rows that are made at a time
AT_ONCE = 2  # days that are filled at a time
TENTH = 10  # every tenth list was clicked
SETTINGS = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "shared_buffers": "512MB",
    "maintenance_work_mem": "512MB",
    "checkpoint_timeout": "15min",
}
COLUMNS = "id, ranker, epoch, number, created, closes, request_id, digest, learn, body, answer, shown, seen, open, seq"
BODY, ANSWER = b"\\\\x" + b"ab" * 40, b"\\\\x" + b"7b" * 30
SHOWN, SEEN = b"\\\\x" + b"[1,2,3,4,5,6]".hex().encode(), b"\\\\x" + b"[1,0,0]".hex().encode()


class Server:
    """A PostgreSQL in a folder, as pip brings it, set up to be filled without writing everything twice."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        from pgserver.postgres_server import get_server

        self._control = importlib.import_module("pgserver._commands").pg_ctl
        self._data = folder / "data"
        new = not self._data.exists()
        self._server = get_server(self._data, cleanup_mode=None)
        if new:
            with (self._data / "postgresql.conf").open("a") as file:
                file.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
            log = str(self._data / "log")
            self._control(["-w", "-l", log, "restart"], pgdata=self._data, user=self._server.system_user)
            for name in ("vacant", "filled"):
                self._server.psql(f"CREATE DATABASE {name};")

    def url(self, name: str) -> str:
        """Of a database."""
        return str(self._server.get_uri(database=name))

    def stop(self) -> None:
        """End it."""
        self._control(["-w", "stop", "-m", "fast"], pgdata=self._data, user=self._server.system_user)


def digits(values: np.ndarray, width: int, base: int = 10) -> np.ndarray:
    """Numbers as fixed-width text, one row of letters each."""
    letters = np.empty((len(values), width), np.uint8)
    rest = values.copy()
    for place in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, base)
        letters[:, place] = ALPHABET_BYTES[digit]
    return letters


def rows(fields: list[np.ndarray | bytes]) -> bytes:
    """Lines as COPY reads them; a field is the same in all, or a matrix of letters."""
    count = next(len(field) for field in fields if isinstance(field, np.ndarray))
    parts = []
    for place, field in enumerate(fields):
        letters = field if isinstance(field, np.ndarray) else np.frombuffer(field, np.uint8)
        end = np.frombuffer(b"\n" if place == len(fields) - 1 else b"\t", np.uint8)
        parts += [np.broadcast_to(letters, (count, letters.shape[-1])), np.broadcast_to(end, (count, 1))]
    return np.concatenate(parts, axis=1).tobytes()


def chunks(first: int, count: int, start: float, end: float) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Lists without feedback, lists with it, their events and their outcomes, as text."""
    rng = np.random.default_rng(first)
    for at in range(first, first + count, CHUNK):
        numbers = np.arange(at, min(at + CHUNK, first + count))
        when = (start + (numbers - first) * ((end - start) / count)) * 1000
        times = when.astype(np.int64)
        ids = np.concatenate(
            [digits(times, 10, 32), ALPHABET_BYTES[rng.integers(0, 32, (len(numbers), 16), np.uint8)]], axis=1
        )
        clicked = numbers % TENTH == 0
        made = []
        for some in (~clicked, clicked):
            own, number, created = ids[some], numbers[some], digits(times[some] // 1000, 10)
            named = np.concatenate([np.full((len(number), 1), ord("r"), np.uint8), digits(number, 10)], axis=1)
            seq: np.ndarray | bytes = digits(number // TENTH, 9) if some is clicked else b"\\N"
            seen = SEEN if some is clicked else b"\\N"
            fields = [own, b"shop", b"1", digits(number, 10), created, created, named, b"\\\\x00", b"1", BODY, ANSWER]
            made.append(rows([*fields, SHOWN, seen, b"0", seq]))
        own, number, created = ids[clicked], numbers[clicked], digits(times[clicked] // 1000, 10)
        named = np.concatenate([digits(rng.integers(0, 10**10, len(number)), 10), digits(number, 10)], axis=1)
        events = rows([named, own, created, b"accepted", SEEN])  # ids as clients choose them: in no order
        outcomes = rows([b"shop", digits(number // TENTH, 9), own, b"final", b"1", SEEN, created])
        yield made[0], made[1], events, outcomes


def fill(server: Server, lists: int, days: int, minutes: float) -> None:
    """A month of lists, a day at a time, as long as there is time."""
    database = open_database(server.url("filled"))
    schema.migrate(database)
    spec = complete(Spec(learner="pairrank", features=[f"f{i}" for i in range(20)]))
    connection = database.connect(hurried=False)
    with connection.transaction():
        admin.add_ranker(connection, "shop", spec, fresh_state(spec), time.time())
        first = partitions.moment(partitions.listed(connection)[0].start)
    began, each = time.monotonic(), lists // days

    def day(number: int) -> int:
        if time.monotonic() - began > minutes * 60:
            return 0
        with psycopg.connect(server.url("filled"), autocommit=True) as raw:
            _fill_day(raw, number * each, each, first - (number + 1) * 86400)
            size = _size(raw) / 2**30
        passed = (time.monotonic() - began) / 60
        print(f"day {number + 1} of {days} after {passed:.1f} minutes, {size:.1f} GB", file=sys.stderr, flush=True)
        return each

    with ThreadPoolExecutor(AT_ONCE) as pool:  # yesterday first: if time runs out, it is the far past that is missing
        done = sum(pool.map(day, range(days)))
    with psycopg.connect(server.url("filled"), autocommit=True) as raw:
        raw.execute("VACUUM (ANALYZE) impressions, events, outcomes")  # else the server does it in the first turns
    with connection.transaction():
        closed = done // TENTH + 1
        connection.run("UPDATE heads SET next_seq = ?, next_number = ? WHERE ranker = 'shop'", closed, done)
        connection.run("UPDATE snapshots SET seq = ? WHERE ranker = 'shop'", closed)
    connection.close()
    database.close()
    print(f"filled with {done:,} lists in {(time.monotonic() - began) / 60:.0f} minutes", file=sys.stderr, flush=True)


def _fill_day(raw: Any, first: int, count: int, start: float) -> None:
    """In one transaction with the making of the tables: so nothing of it has to go through the log."""
    name = time.strftime("%Y%m%d%H", time.gmtime(start))
    columns = {
        "impressions": COLUMNS,
        "events": "event_id, impression_id, received, status, body",
        "outcomes": "ranker, seq, impression_id, kind, learn, feedback, created",
    }
    with raw.transaction(), raw.cursor() as cursor:
        for table in partitions.KEYS:
            cursor.execute(f"CREATE TABLE {table}_{name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE)")
        for silent, clicked, events, outcomes in chunks(first, count, start, start + 86400):
            told = (("impressions", silent), ("impressions", clicked), ("events", events), ("outcomes", outcomes))
            for table, text in told:
                with cursor.copy(f"COPY {table}_{name} ({columns[table]}) FROM STDIN (FREEZE)") as copy:
                    copy.write(text)
        for statement in partitions.attaching(name, f"FOR VALUES FROM ('{edge(start)}') TO ('{edge(start + 86400)}')"):
            cursor.execute(statement)


def _size(raw: Any) -> int:
    return int(raw.execute("SELECT pg_database_size(current_database())").fetchone()[0])


def load(url: str, rate: float, seconds: float) -> LoadReport:
    """One turn: lists of twenty, each clicked."""
    plan = LoadPlan(url=url, candidates=20, features=20, rate=rate, seconds=seconds, clean_up=True)
    return start_load(run(plan))


def serving(store: str) -> Any:
    """A service of this checkout on a store, that keeps all it finds."""
    return service(store, RANKLOOP_RETENTION_DAYS="0")


def busy(url: str) -> dict[int, int]:
    """Nanoseconds of a core that each process of the database has had, which no one else's load changes."""
    with psycopg.connect(url) as raw:
        rows = raw.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    found = {}
    for (pid,) in rows:
        with suppress(OSError):  # it may have ended
            found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return found


def measure(server: Server, rate: float, seconds: float, turns: int) -> list[dict[str, Any]]:
    """Both stores in turns."""
    found: dict[str, list[LoadReport]] = {"vacant": [], "filled": []}
    cores: dict[str, list[float]] = {"vacant": [], "filled": []}
    with serving(server.url("vacant")) as empty, serving(server.url("filled")) as full:
        for one in (empty, full):
            load(one.url, rate, 5)
        for _ in range(turns):
            for name, one in (("vacant", empty), ("filled", full)):
                before = busy(server.url(name))
                report = load(one.url, rate, seconds)
                after = busy(server.url(name))
                spent = sum(after[pid] - before.get(pid, 0) for pid in after)
                cores[name].append(spent / 1e6 / (rate * seconds))
                found[name].append(report)
    return [
        {"store": name, "lists in it": _lists(server.url(name)), "GB": round(_gigabytes(server.url(name)), 1)}
        | {
            f"{what} {which} ms": median(getattr(getattr(report, what), which) for report in reports)
            for what in ("rank", "feedback")
            for which in ("p50", "p99")
        }
        | {"database's ms of a core a list": median(cores[name])}
        | {"errors": sum(sum(report.errors.values()) for report in reports)}
        for name, reports in found.items()
    ]


def _lists(url: str) -> int:
    with psycopg.connect(url) as raw:
        counted = "SELECT COALESCE(SUM(reltuples), 0)::bigint FROM pg_class"
        sql = f"{counted} WHERE relname LIKE 'impressions\\_2%' AND relkind = 'r' AND reltuples > 0"
        return int(raw.execute(sql).fetchone()[0])  # type: ignore[index]


def _gigabytes(url: str) -> float:
    with psycopg.connect(url) as raw:
        return _size(raw) / 2**30


def retire(server: Server, rate: float) -> list[dict[str, Any]]:
    """The month goes, while somebody ranks."""
    lists, before = _lists(server.url("filled")), _gigabytes(server.url("filled"))
    database = open_database(server.url("filled"))
    told: list[tuple[int, float]] = []

    def drop() -> None:
        time.sleep(5)
        start = time.perf_counter()
        told.append((partitions.tend(database, time.time(), 1e-3), time.perf_counter() - start))

    with serving(server.url("filled")) as one:
        load(one.url, rate, 5)
        thread = threading.Thread(target=drop)
        thread.start()
        report = load(one.url, rate, 20)
        thread.join()
    ((dropped, took),) = told
    freed = before - _gigabytes(server.url("filled"))
    return [
        {"lists dropped": lists - _lists(server.url("filled")), "partitions": dropped, "GB freed": round(freed, 1)}
        | {"seconds": took, "rank p99 ms meanwhile": report.rank.p99, "errors": sum(report.errors.values())}
    ]


def main() -> None:
    """Parse, run, print."""
    parser = ArgumentParser("python -m benchmarks.postgres_size", description=__doc__)
    parser.add_argument("what", choices=["all", "fill", "measure", "retire", "clean"])
    parser.add_argument(
        "--folder", type=Path, default=Path("postgres-size"), help="of the server; some 40 GB for 100 M"
    )
    parser.add_argument("--lists", type=int, default=100_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=120.0, help="after which no further day is filled")
    parser.add_argument("--rate", type=float, default=100.0, help="lists a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    _do(options, options.folder.resolve())


def _do(options: Namespace, folder: Path) -> None:
    server = Server(folder)
    steps = ("fill", "measure", "retire", "clean") if options.what == "all" else (options.what,)
    print(f"Machine: {machine()}, load generator on the same machine\n")
    if "fill" in steps:
        fill(server, options.lists, options.days, options.minutes)
    if "measure" in steps:
        print_rows(measure(server, options.rate, options.seconds, options.turns))
    if "retire" in steps:
        print_rows(retire(server, options.rate))
    server.stop()
    if "clean" in steps:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
