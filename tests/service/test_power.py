"""A power cut: what was acknowledged is there afterwards, as far as `durability` promises it."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.storage import Writer, schema
from rankloop.service.storage.database import open_database
from tests.service import power
from tests.service.running import PATIENCE, wait_for
from tests.service.stores import KINDS, Store, as_new, ev
from tests.service.truths import sent_id

pytestmark = pytest.mark.slow

try:
    power.Disk()
except (AttributeError, OSError) as error:
    pytest.skip(f"this Python hides SQLite's own functions: {error}", allow_module_level=True)


class Users:
    """Threads that show lists and report on them without pause; they know what was acknowledged, and in which order."""

    def __init__(self, store: Store, count: int = 3) -> None:
        self.store = store
        self.lists: list[str] = []
        self.events: list[tuple[str, str]] = []  # (event, its list)
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(number,)) for number in range(count)]
        self._numbers = threading.Lock()

    def _go(self, number: int) -> None:
        rng, made = random.Random(number), 0
        while not self._ending.is_set():
            made += 1
            with self._numbers:  # the numbers of a Store are no threads' business
                new = self.store.new(f"{number}-{made}", body=rng.randbytes(1500))
            self.store.writer.impression(new).future.result(PATIENCE)
            self.lists.append(new.id)
            if rng.random() < 0.5:
                event = ev(f"e-{new.id}", new.id, ["a"], final=rng.random() < 0.7)
                self.store.writer.events([as_new(event)]).future.result(PATIENCE)
                self.events.append((event.event_id, new.id))

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(PATIENCE)


@contextmanager
def at_work(path: Path, everything: bool) -> Iterator[tuple[power.Disk, Users]]:
    with power.powered() as disk:
        store = Store(str(path))
        store.writer.close()
        store.writer = Writer(store.database, KINDS, clock=lambda: store.now, all_durable=everything)
        try:
            store.ranker()
            with Users(store) as users:
                yield disk, users
        finally:
            store.close()


def found_after(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What a service that starts on the file finds; the file must be whole, and so must the log in it."""
    schema.migrate(open_database(str(path)))
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {name: raw.execute(f"SELECT * FROM {name}").fetchall() for name in ("impressions", "events")}
        seqs = [row[0] for row in raw.execute("SELECT seq FROM outcomes ORDER BY seq")]
        ((head,),) = raw.execute("SELECT next_seq FROM log_offsets")
        joined = raw.execute("SELECT COUNT(*) FROM events e JOIN impressions i ON i.id = e.impression_id").fetchone()
    assert seqs == list(range(head))
    assert joined == (len(tables["events"]),)
    assert all(json.loads(row[4])["impression_id"] == row[1] for row in tables["events"])
    return tables


@pytest.mark.parametrize("everything", [False, True], ids=["feedback", "everything"])
def test_what_was_acknowledged_outlives_a_power_cut(
    everything: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log is copied and emptied all the time, so that cuts fall into that, too.
    monkeypatch.setattr("rankloop.service.storage.sqlite.CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr("rankloop.service.storage.sqlite.TRUNCATE_BYTES", 400_000)
    monkeypatch.setattr("rankloop.service.storage.writer.MAINTAIN_EVERY", 0.01)
    rng, lost = random.Random(4), 0
    with at_work(tmp_path / "store.db", everything) as (disk, users):
        for number in range(40):
            enough = len(users.events) + rng.randrange(10)
            wait_for(lambda enough=enough: len(users.events) > enough, "feedback", every=0.001)  # type: ignore[misc]
            time.sleep(rng.random() / 200)
            events, lists = list(users.events), list(users.lists)
            found = found_after(disk.cut(tmp_path / "store.db", tmp_path / f"cut{number}", rng))
            there = {row[0] for row in found["impressions"]}
            assert {event for event, _ in events} <= {sent_id(row[0]) for row in found["events"]}
            assert {about for _, about in events} <= there
            lost += len(set(lists) - there)
    # That something is lost when nobody waits for the disk shows that the power was really cut.
    assert (lost == 0) if everything else (lost > 0)
