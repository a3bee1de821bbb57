"""Operator actions under load with lost COMMITs: does every acknowledged outcome end in a version or the live state?

After each action the live state, the versions and the counted outcomes are compared with what the clients were told.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

from examples.embedded import address, embedded, listen

from rankloop.client import Client, ServiceError
from rankloop.service.offline.replay import rebuild
from rankloop.service.ranking import model as models
from rankloop.service.serving import engine as engines
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import lineage, outcomes, rankers, snapshots
from rankloop.service.storage.database import Connection, Retryable
from rankloop.service.storage.writer import Write, Writer
from rankloop.wire.calls import FeedbackEvent

NAME = "shop"
SPEC: dict[str, Any] = {"learner": "pairrank", "features": ["a", "b", "c"], "exposure": "full", "guardrail": None}
WEIGHTS = {"keep": 4, "promote": 4, "rollback": 6, "reset": 3, "patch": 3, "delete": 1}
STALLED = 0.15  # share of actions that keep a version and come while nothing is learned
PATIENCE = 120.0  # seconds to wait for anything
COLUMNS = (
    "actions", "refused", "forced", "commits lost", "of actions", "states", "differences", "outcomes", "missing",
    "not once",
)  # fmt: skip


class Load:
    """Two clients that rank and click, and may be asked to rest."""

    def __init__(self, url: str) -> None:
        self._go, self._stop = threading.Event(), threading.Event()
        self._busy = [threading.Lock() for _ in range(2)]
        # Impressions of the present ranker whose final event was accepted, or was accepted or late: if the COMMIT was
        # not acknowledged, the repeated transaction answers "duplicate" for both.
        self.acknowledged: dict[str, str] = {}
        self.total = 0  # of all rankers
        self._go.set()
        self._threads = [threading.Thread(target=self._work, args=(url, n), daemon=True) for n in range(2)]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def resting(self) -> Iterator[None]:
        self._go.clear()
        for lock in self._busy:
            lock.acquire()
        try:
            yield
        finally:
            for lock in self._busy:
                lock.release()
            self._go.set()

    def stop(self) -> None:
        self._stop.set()
        self._go.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _work(self, url: str, number: int) -> None:
        chance = random.Random(number)
        with Client(url, timeout=30.0, rank_timeout=30.0, queue=0) as client:
            while not self._stop.is_set():
                self._go.wait()
                with self._busy[number]:
                    for _ in range(10):
                        self._click(client, chance)
                time.sleep(0.001)

    def _click(self, client: Client, chance: random.Random) -> None:
        candidates = [{"id": i, "features": [chance.random() for _ in range(3)]} for i in range(5)]
        try:
            answer = client.rank(NAME, candidates, query=f"q{chance.randrange(3)}", k=3)
            if answer.impression_id is None:
                return
            clicked = [answer.items[chance.randrange(len(answer.items))].id]
            event = FeedbackEvent(f"e-{answer.impression_id}", answer.impression_id, clicks=clicked, final=True)
            answered = client.feedback(event)
            assert answered is not None, "without a queue there is an answer"
            (receipt,) = answered.results
        except ServiceError:
            return  # deleted just now
        if receipt.status in ("accepted", "duplicate"):
            self.acknowledged[answer.impression_id] = receipt.status
            self.total += 1


class Lossy:
    """Cuts the connection after a share of the transactions that were committed."""

    def __init__(self, share: float, seed: int) -> None:
        self.lost = self.of_actions = 0
        self.share, self._chance, self._real = share, random.Random(seed), Writer._try

    def __enter__(self) -> Lossy:
        lossy, real = self, self._real

        def cut(self: Writer, writes: list[Write[Any]], durable: bool) -> list[Any]:
            results = real(self, writes, durable)
            if lossy._chance.random() < lossy.share:
                lossy.lost += 1
                names = [getattr(write.payload, "__qualname__", "") for write in writes]
                lossy.of_actions += any(name.startswith("Action.commit") for name in names)
                raise Retryable("the connection was cut after COMMIT")
            return results

        Writer._try = cut  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Writer._try = self._real  # type: ignore[method-assign]


class Checked:
    """The store, seen beside the service."""

    def __init__(self, engine: Engine, counts: Counter[str]) -> None:
        self.engine, self.counts = engine, counts
        self.missing: set[str] = set()

    def row(self) -> rankers.Ranker:
        found = self.engine.database.read(lambda c: rankers.get_ranker(c, NAME))
        assert found is not None
        return found

    def steps(self) -> tuple[int, int, int]:
        """What an action adds: versions, generations, audit entries."""

        def read(connection: Connection) -> tuple[int, int, int]:
            ((entries,),) = connection.rows("SELECT COUNT(*) FROM audit")
            kept = len(snapshots.versions(connection, NAME))
            return kept, len(lineage.generations(connection, NAME)), int(entries)

        return self.engine.database.read(read)

    def settle(self) -> None:
        """Wait until all that is logged is learned and ranked with."""

        def settled() -> bool:
            live, head = self.engine.rankers.get(NAME), self.engine.database.read(outcomes.log_offsets).get(NAME, 0)
            known = live is not None and live.model is not None and live.row.revision == self.row().revision
            return known and live is not None and live.model is not None and live.model.learned == head

        wait_for(settled, "everything to be learned")

    def compare(self) -> None:
        """What is served, and the newest version, against a fold of the log."""
        row, live = self.row(), self.engine.rankers[NAME]
        assert live.model is not None
        self._compare(live.model.learner, None, row)
        if row.serving is not None:
            assert live.pinned is not None
            self._compare(live.pinned.learner, row.serving, row)
        kept = self.engine.database.read(lambda c: snapshots.versions(c, NAME))
        if kept:
            found = self.engine.database.read(lambda c: snapshots.version_state(c, NAME, kept[0].version))
            assert found is not None
            learner = models.load_learner(row.spec, found[1], f"v{kept[0].version}")
            self._compare(learner, kept[0].version, row)

    def _compare(self, learner: Any, version: int | None, row: rankers.Ranker) -> None:
        rebuilt = rebuild(self.engine.database, NAME, version=version)
        same = models.state_bytes(row.spec, learner.state()) == models.state_bytes(row.spec, rebuilt.learner.state())
        self.counts["states"] += 1 + len(rebuilt.compared)
        self.counts["differences"] += (not same) + sum(not one.equal for one in rebuilt.compared)

    def look_for(self, load: Load) -> None:
        """Every acknowledged outcome must be in the log, to be learned, and in a version or the live state."""

        def read(connection: Connection) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int]], set[str]]:
            late = {row[0] for row in connection.rows("SELECT impression_id FROM events WHERE status = 'late'")}
            sql = "SELECT impression_id, seq, learn FROM outcomes WHERE ranker = ?"
            logged = {own: (int(seq), int(learn)) for own, seq, learn in connection.rows(sql, NAME)}
            ends = {one.version: one.seq for one in snapshots.versions(connection, NAME)}
            began = lineage.generations(connection, NAME)
            covered = [(one.seq, ends[after.kept]) for one, after in pairwise(began) if after.kept]
            return logged, [*covered, (began[-1].seq, outcomes.log_offsets(connection)[NAME])], late

        logged, covered, late = self.engine.database.read(read)
        for own, status in list(load.acknowledged.items()):
            if status == "duplicate" and own in late:
                del load.acknowledged[own]  # it was answered late at first: after a reset
                load.total -= 1
                continue
            seq, learn = logged.get(own, (-1, 0))
            if not (learn and any(first <= seq < end for first, end in covered)):
                self.missing.add(own)
                print(f"missing: {own} ({status}), outcome {seq}, learn {learn}, covered {covered}", flush=True)
        self.counts["missing"] = len(self.missing)


def wait_for(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE:g} seconds for {what}")
        time.sleep(0.005)


def act(client: Client, action: str, chance: random.Random, force: bool) -> tuple[int, int, int]:
    """Carry an action out; how many versions, generations and audit entries it must have added."""
    kept = [one.version for one in client.versions(NAME)]
    if action == "keep":
        client.keep_version(NAME, force=force)
        return 1, 0, 1
    if action == "promote":
        which: Any = chance.choice([None, None, "live", *kept[:3]])
        client.promote(NAME, which, force=force)
        return int(which is None), 0, 1
    if action == "rollback" and kept:
        client.rollback(NAME, chance.choice([None, *kept[:5]]), force=force)
        return 1, 1, 1
    if action == "reset":
        client.reset(NAME, force=force)
        return 1, 1, 1
    client.patch_ranker(NAME, k=client.ranker(NAME).spec.k % 5 + 1)
    return 0, 0, 1


def replace_ranker(client: Client, load: Load) -> None:
    """Delete the ranker and make it again; what was acknowledged for the old one is gone with it."""
    with load.resting():
        client.delete_ranker(NAME)
        load.acknowledged.clear()

        def made() -> bool:
            try:
                client.put_ranker(NAME, **SPEC, timeout_ms=10_000.0)
            except ServiceError as error:
                if error.error != "conflict":  # rows of the old one are still being deleted
                    raise
                return False
            return True

        wait_for(made, "the ranker to be made again")


@contextmanager
def stalled(engine: Engine) -> Iterator[None]:
    """Nothing is learned, and some outcomes wait."""
    assert engine.learning is not None
    before = engines.CURRENT_SECONDS
    with engine.learning.folds[NAME].in_use:
        engines.CURRENT_SECONDS = 0.1

        def behind() -> bool:
            return engine.database.read(
                lambda c: outcomes.log_offsets(c)[NAME] > (snapshots.snapshot_position(c, NAME) or (0, 0))[1] + 3
            )

        try:
            wait_for(behind, "outcomes that are not learned")
            yield
        finally:
            engines.CURRENT_SECONDS = before


def run(store: str, actions: int, seconds: float, share: float, seed: int, every: int) -> Counter[str]:
    """Random actions on one store, until there were enough or the time is over."""
    chance, counts = random.Random(seed), Counter(dict.fromkeys(COLUMNS, 0))
    settings = Settings(store=store, store_timeout_ms=30_000.0, feedback_timeout_ms=30_000.0, learn_in="thread")
    began = time.monotonic()
    with embedded(settings, taken := listen(0)) as engine, Client(address(taken), timeout=60.0) as client:
        client.wait_ready(PATIENCE)
        client.put_ranker(NAME, **SPEC, timeout_ms=10_000.0, wait=True)
        checked, load = Checked(engine, counts), Load(address(taken))
        try:
            with Lossy(share, seed) as lossy:
                while counts["actions"] < actions and time.monotonic() - began < seconds:
                    one_action(client, engine, checked, load, chance, every)
                counts["commits lost"], counts["of actions"] = lossy.lost, lossy.of_actions
        finally:
            load.stop()
    return counts


def one_action(client: Client, engine: Engine, checked: Checked, load: Load, chance: random.Random, every: int) -> None:
    counts = checked.counts
    (action,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    counts["actions"] += 1
    if action == "delete":
        replace_ranker(client, load)
    else:
        stall = action in ("keep", "rollback", "reset") and chance.random() < STALLED
        force = stall and chance.random() < 0.5
        before = checked.steps()
        with stalled(engine) if stall else nullcontext():
            try:
                grown = act(client, action, chance, force)
                counts["forced"] += force
            except ServiceError as error:
                if error.error != "not-learned":
                    raise
                counts["refused"] += 1
                grown = (0, 0, 0)
        added = tuple(now - then for now, then in zip(checked.steps(), before, strict=True))
        counts["not once"] += added != grown
    if counts["actions"] % every:
        return
    with load.resting():
        checked.settle()
        checked.compare()
        checked.look_for(load)
    counts["outcomes"] = load.total


def main() -> None:
    """Run on SQLite and on PostgreSQL, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each store, at most")
    parser.add_argument("--lost", type=float, default=0.3, help="share of commits whose acknowledgment is lost")
    parser.add_argument("--every", type=int, default=1, help="compare states after so many actions")
    parser.add_argument("--stores", default="sqlite,postgresql")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(" | ".join(["store     ", *COLUMNS, "seconds"]), flush=True)
    for kind in given.stores.split(","):
        folder, server = Path(tempfile.mkdtemp(prefix="rankloop-actions-")), None
        try:
            if kind == "postgresql":
                from tests.service.conftest import Postgres

                server = Postgres(folder)
            store = str(folder / "store.db") if server is None else server.database()
            began = time.monotonic()
            counts = run(store, given.actions, given.seconds, given.lost, given.seed, given.every)
            took = f"{time.monotonic() - began:.0f}"
            cells = [f"{counts[name]:{len(name)}d}" for name in COLUMNS]
            print(" | ".join([f"{kind:10}", *cells, f"{took:>7}"]), flush=True)
        finally:
            if server is not None:
                server.end()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
