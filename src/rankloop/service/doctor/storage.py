"""What is in the store: whether it can be read, is whole, is of this release, and what its rankers suffer from."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from rankloop.core import codec
from rankloop.core.errors import CodecError, InvalidParameter, RankloopError
from rankloop.service.doctor import machine
from rankloop.service.doctor.finding import Finding
from rankloop.service.ranking.feature_spec import catalog_warnings
from rankloop.service.settings import Settings
from rankloop.service.storage import admin, catalog, event_counts, open_database, states
from rankloop.service.storage.database import Connection, Database, Retryable, without_password
from rankloop.service.storage.migrations import MIGRATIONS
from rankloop.service.storage.schema import steps
from rankloop.service.storage.sqlite import SQLite
from rankloop.wire.calls import RejectedEvent

APART = 2.0  # seconds by which two clocks may differ
LARGE_LOG = 256 * 2**20  # bytes of write-ahead log
CHECKED = 4 * 2**30  # bytes; a larger file takes minutes to look through


def store(chosen: Settings) -> Iterator[Finding]:
    """Everything about the store, as far as it can be looked at without changing it."""
    shown = without_password(chosen.store)
    try:
        database = open_database(chosen.store, hurried=True)
    except InvalidParameter as error:
        yield Finding("store", "trouble", str(error).partition(";")[0], str(error).partition("; ")[2])
        return
    try:
        if isinstance(database, SQLite):
            yield from machine.disk(database.path.parent)
            if not (folder := database.path.parent).is_dir():
                remedy = "create it, or choose another one for --store"
                yield Finding("store", "trouble", f"{folder} is not a folder", remedy)
                return
            if not database.path.exists():
                yield Finding("store", "note", f"{shown} is not there yet", "`rankloop serve` makes it")
                yield from machine.keys(chosen)
                return
            yield from _file(database.path)
        yield from _contents(chosen, database, shown)
    except (RankloopError, Retryable, sqlite3.Error) as error:
        text, _, remedy = str(error).partition("; ")
        yield Finding("store", "trouble", f"{shown}: {text}", remedy or "check --store, and that the database runs")
    finally:
        database.close()


def _file(path: Path) -> Iterator[Finding]:
    """Whether the file is SQLite's, and whole, and its log not forgotten."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        if path.stat().st_size <= CHECKED:
            ((said,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if said != "ok":
                remedy = "stop the service, keep the file, and write what can be read anew: `sqlite3 FILE .recover`"
                yield Finding("store", "trouble", f"{path} is damaged: {said}", remedy)
    finally:
        connection.close()
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG:
        text = f"the write-ahead log is {log.stat().st_size / 2**20:,.0f} MB"
        yield Finding("store", "warning", text, "some program reads the file and does not end: look for it (`lsof`)")


def _contents(chosen: Settings, database: Database, shown: str) -> Iterator[Finding]:
    try:
        added, done = database.read(steps)
    except (sqlite3.Error, RankloopError) as error:
        if "no such table" not in str(error) and "does not exist" not in str(error):
            raise
        remedy = "give what `rankloop serve --store` has; a new database is filled at the first start"
        yield Finding("store", "note", f"{shown} holds nothing of rankloop", remedy)
        return
    if done > len(MIGRATIONS):
        yield Finding(
            "store", "trouble", f"{shown} was written by a later release", "install that release, or a newer one"
        )
        return
    if added < len(MIGRATIONS):
        text = f"{shown} is of an earlier release ({len(MIGRATIONS) - added} steps behind)"
        yield Finding("store", "note", text, "copy it first; the next `rankloop serve` brings it up to date")
        return
    if done < len(MIGRATIONS):
        text = f"{shown} is being upgraded: processes of an earlier release may run on it yet"
        yield Finding("store", "note", text, "stop the last of them; the upgrade ends by itself within seconds")
    counted = "SELECT (SELECT COUNT(*) FROM rankers), (SELECT COUNT(*) FROM keys)"
    ((rankers, keys),) = database.read(lambda connection: connection.rows(counted))
    yield Finding("store", "fine", f"{shown}: {rankers} ranker{'' if rankers == 1 else 's'}")
    yield from machine.keys(chosen, int(keys))
    yield from _clocks(database)
    yield from database.read(lambda connection: list(_rankers(connection)))
    yield from database.read(lambda connection: list(_events(connection, time.time())))
    yield from database.read(lambda connection: list(_catalogs(connection)))


def _clocks(database: Database) -> Iterator[Finding]:
    """Whether this clock and the store's agree: windows close by it."""
    if not isinstance(database, SQLite):
        sql = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"
        before = time.time()
        ((there,),) = database.read(lambda connection: connection.rows(sql))
        yield from apart((before + time.time()) / 2 - float(there), "the database's")
        return
    ((newest,),) = database.read(lambda connection: connection.rows("SELECT MAX(created) FROM impressions"))
    if newest is not None and float(newest) > time.time() + APART:
        yield from apart(time.time() - float(newest), "the newest list's")


def apart(seconds: float, whose: str) -> Iterator[Finding]:
    """Whether two clocks differ by too much."""
    if abs(seconds) > APART:
        text = f"this clock is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} {whose}"
        yield Finding("clock", "warning", text, "set both by the network's time (chrony, systemd-timesyncd)")


def _rankers(connection: Connection) -> Iterator[Finding]:
    """What the rankers suffer from."""
    for name, text in connection.rows("SELECT ranker, text FROM troubles WHERE given_up = 1"):
        remedy = "fix the learner; it is tried again by itself within 10 minutes, or when the ranker changes"
        yield Finding("rankers", "warning", f"{name} is in quarantine: {text}", remedy)
    for one in admin.rankers(connection):
        found = states.snapshot(connection, one.name)
        try:
            if found is None:
                raise CodecError("there is none")
            codec.loads(found.state, "state")
        except CodecError as error:
            remedy = f"`POST /v1/rankers/{one.name}/rollback` to a version, or `rankloop replay` to rebuild it"
            yield Finding("rankers", "trouble", f"the state of {one.name} is damaged: {error}", remedy)
        if one.serving is not None:
            yield from _promoted(connection, one.name, one.serving)
        if not one.learning:
            remedy = f"`POST /v1/rankers/{one.name}/resume` when you want it to"
            yield Finding("rankers", "note", f"{one.name} is paused: feedback is kept and not learned", remedy)


def _events(connection: Connection, now: float) -> Iterator[Finding]:
    """Feedback events that were not accepted in the last days, and impressions that wait for a correction."""
    for name, one in event_counts.read(connection, now).items():
        rejected, late, orphan = (
            sum(getattr(day, kind) for day in one.days) for kind in ("rejected", "late", "orphan")
        )
        of = name or "unknown impressions"
        if rejected or one.needs_attention:
            last = "" if one.last_rejected is None else f"; the last was {_described(one.last_rejected)}"
            text = f"{of}: {rejected:,} events were rejected in the last {event_counts.DAYS} days{last}"
            if one.needs_attention:
                text += f"; {one.needs_attention:,} impressions wait for a correction"
            remedy = "correct what sends them, and send the events again with the same event_id (docs/feedback.md)"
            yield Finding("feedback", "warning", text, remedy)
        if late:
            remedy = "make window_seconds longer, or send final later (docs/feedback.md)"
            yield Finding("feedback", "note", f"{of}: {late:,} events came late in the last days", remedy)
        if orphan:
            remedy = "send the impression_id of the answer; impressions go after the retention"
            yield Finding("feedback", "note", f"{orphan:,} events of the last days name unknown impressions", remedy)


def _described(one: RejectedEvent) -> str:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one.time))
    return f"event {one.event_id!r} on {when}: {one.reason}"


def _catalogs(connection: Connection) -> Iterator[Finding]:
    """Features that cannot be computed from the catalogs they read."""
    rankers = [one for one in admin.rankers(connection) if one.spec.catalog is not None]
    parts = catalog.by_name(connection) if rankers else {}
    for one in rankers:
        for text in catalog_warnings(one.spec, parts):
            finding, _, remedy = text.partition("; ")
            yield Finding("catalogs", "warning", f"{one.name}: {finding}", remedy)


def _promoted(connection: Connection, name: str, version: int) -> Iterator[Finding]:
    """Whether the version that a ranker serves can be read."""
    found = states.version_state(connection, name, version)
    try:
        if found is None:
            raise CodecError("there is none")
        codec.loads(found[1], "state")
    except CodecError as error:
        remedy = (
            f"`POST /v1/rankers/{name}/promote` another version, or `live`; the baseline ranking is shown until then"
        )
        yield Finding("rankers", "trouble", f"v{version}, which {name} serves, is damaged: {error}", remedy)
