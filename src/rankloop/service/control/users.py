"""Export and erasure of what is stored under one user id, for the service and for the command line. Blocking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from rankloop.core import codec
from rankloop.core.errors import CodecError, InvalidParameter
from rankloop.core.sparse import SparseRows
from rankloop.core.types import Array
from rankloop.features.counters import CLICKS, IMPRESSIONS, REWARDS, user_code
from rankloop.service.storage import Writer, catalog, counters, leases, retention
from rankloop.service.storage.database import Connection, Database
from rankloop.service.storage.sqlite import SQLite
from rankloop.service.storage.writer import in_batches
from rankloop.wire.service import (
    Erased,
    Remaining,
    UserCounter,
    UserEntry,
    UserEvent,
    UserExport,
    UserImpression,
    UserOutcome,
)

PAGE = 100  # impressions that are exported at a time
BEATS = 3.0  # seconds in which a process that lives has updated its heartbeat
NOT_LISTED = [
    "learned states (snapshots, versions, what a generation began with): sums over the feedback of all users, from "
    "which the share of one cannot be taken apart",
    "counters of items, queries and brands: sums over all users",
    "impressions that were sent without this user id",
    "files outside the store: Parquet files of `rankloop export-log` or the setting `archive` (column `user`), and "
    "backups",
]


# -- export --------------------------------------------------------------------------------------------------------


def export(database: Database, user: str, after: str = "", limit: int = PAGE) -> UserExport:
    """What is stored under a user id; at most `limit` impressions, those after the one with the id `after`."""
    _check(user)
    return database.read(lambda connection: _export(connection, user, after, limit))


def export_pages(database: Database, user: str) -> Iterator[UserExport]:
    """The same of all impressions, in parts: the first has everything but the impressions of the others."""
    first = export(database, user)
    yield first
    rest = first.next
    ids = [] if rest is None else database.read(lambda c: retention.user_impression_ids(c, user, rest))
    for start in range(0, len(ids), PAGE):
        some = ids[start : start + PAGE]
        found = database.read(lambda c, some=some: retention.user_impressions(c, some))  # type: ignore[misc]
        yield UserExport(user, [_impression(one) for one in found], None, [], [], [])


def _export(connection: Connection, user: str, after: str, limit: int) -> UserExport:
    ids = retention.user_impression_ids(connection, user, after, limit + 1)
    code = _code(user)
    return UserExport(
        user=user,
        impressions=[_impression(one) for one in retention.user_impressions(connection, ids[:limit])],
        next=ids[limit - 1] if len(ids) > limit else None,
        entries=[
            UserEntry(name, at, msgspec.json.decode(body))
            for name, at, body in retention.user_catalog_rows(connection, user)
        ],
        counters=[
            one for ranker, _, state in counters.all_saved(connection) for one in _counted(ranker, bytes(state), code)
        ],
        not_listed=list(NOT_LISTED),
    )


def _events(one: retention.UserImpression) -> list[tuple[float, str, dict[str, Any]]]:
    """When each event came, its status and its body, which has the id that the caller sent."""
    return [(at, status, msgspec.json.decode(body)) for _, at, status, body in one.events]


def _impression(one: retention.UserImpression) -> UserImpression:
    decode = msgspec.json.decode
    made = codec.load_impression(one.body, f"impression {one.id}")
    outcome = None
    if one.outcome is not None:
        seq, kind, learn, feedback, viewed, created = one.outcome
        outcome = UserOutcome(int(seq), kind, bool(learn), decode(feedback), viewed, created)
    return UserImpression(
        impression_id=one.id,
        ranker=one.ranker,
        created=one.created,
        request_id=one.request_id,
        open=one.open,
        query=made.query,
        shown=decode(one.shown),
        features=_features(made.features),
        answer=decode(one.answer),
        feedback=None if one.feedback is None else decode(one.feedback),
        viewed=one.viewed,
        rewards=None if one.rewards is None else decode(one.rewards),
        events=[UserEvent(sent["event_id"], at, status, sent) for at, status, sent in _events(one)],
        outcome=outcome,
    )


def _features(rows: object) -> list[object] | None:
    if rows is None:
        return None
    if isinstance(rows, SparseRows):
        bounds = rows.indptr.tolist()
        columns, values = rows.indices.tolist(), rows.values.tolist()
        return [
            dict(zip(map(str, columns[start:end]), values[start:end], strict=True)) for start, end in pairwise(bounds)
        ]
    found: list[object] = np.asarray(rows).tolist()
    return found


def _code(user: str) -> int:
    """All that counters know a user by."""
    return int(user_code(user)[0])


def _owned(arrays: dict[str, Array], code: int) -> dict[str, Array]:
    """For each part of stored counters that has rows of a user: which rows these are."""
    owners = {name.removesuffix("/owners"): array for name, array in arrays.items() if name.endswith("/owners")}
    found = {part: np.flatnonzero(array == np.uint64(code)) for part, array in owners.items()}
    return {part: rows for part, rows in found.items() if rows.size}


def _counted(ranker: str, state: bytes, code: int) -> list[UserCounter]:
    try:
        arrays, _ = codec.loads(state, f"the counters of {ranker}")
    except CodecError:  # damaged: they are counted again from the log
        return []
    found = []
    for part, rows in _owned(arrays, code).items():
        sums = arrays[f"{part}/sums"][rows].sum(axis=(0, 1)) if f"{part}/sums" in arrays else np.zeros(4)
        times = arrays[f"{part}/times"][rows] if f"{part}/times" in arrays else np.zeros(0)
        when = np.sort(times[times > 0.0]).tolist()
        amounts = (float(sums[IMPRESSIONS]), float(sums[CLICKS]), float(sums[REWARDS]))
        found.append(UserCounter(ranker, part, int(rows.size), *amounts, when))
    return found


# -- erasure -------------------------------------------------------------------------------------------------------


def erase(
    writer: Writer,
    user: str,
    now: float,
    record: Callable[[Connection, str], None],
    archive: str = "",
    vacuum: bool = False,
) -> Erased:
    """Delete what is stored under a user id, and report what was deleted and what remains until when.

    `record` gets the summary for the audit list, in the last transaction.

    With `vacuum` a SQLite file is rewritten, so that no byte of a deleted row is left in unused space of its pages.
    Nobody else can write meanwhile, so it is refused while processes run on the store.

    If it is interrupted, call it again.
    """
    _check(user)
    if vacuum:
        _refuse_beside(writer.database)
    erased = retention.erase_user(writer, user)
    code = _code(user)
    mark = writer.do(lambda connection: counters.add_erasure(connection, f"{code:x}", now))
    erased.counters = _erase_counted(writer, code, mark)

    def last(connection: Connection) -> None:
        erased.entries = catalog.erase_user(connection, user, now)
        record(connection, summary(erased))

    writer.do(last)
    if vacuum:
        _vacuum(writer, now)
    emptied = writer.database.truncate_log()
    erased.remains = list(_remains(writer.database, erased, now, archive, emptied, vacuum))
    return erased


def summary(erased: Erased) -> str:
    """What the audit list says of an erasure: how much, not of whom."""
    said = f"{erased.impressions} impressions, {erased.events} events, {erased.entries} entries of catalogs"
    return f"a user was forgotten: {said}"


def _vacuum(writer: Writer, now: float) -> None:
    # Nobody runs who would have to be informed of a deletion.
    sum(in_batches(writer, lambda c, limit: catalog.delete_unused(c, now + catalog.DELETED_SECONDS + 1.0, limit)))
    writer.do(lambda c: counters.delete_old_erasures(c, now + counters.KEPT + 1.0))
    assert isinstance(writer.database, SQLite)
    writer.database.vacuum()


def _refuse_beside(database: Database) -> None:
    """Refuse to rewrite a store while other processes update their heartbeats in it."""
    if not isinstance(database, SQLite):
        raise InvalidParameter("--vacuum is for SQLite; on PostgreSQL run VACUUM FULL on its tables")
    before = database.read(leases.list_workers)
    if not before:
        return
    time.sleep(BEATS)
    now = database.read(leases.list_workers)
    alive = sorted(name for name in now if name not in before or now[name][1] != before[name][1])
    if alive:
        raise InvalidParameter(f"{len(alive)} processes run on the store ({', '.join(alive[:3])}); stop them first")


def _check(user: str) -> None:
    if not user or "\0" in user:
        raise InvalidParameter("a user is text of at least one character, without the character NUL")


def _erase_counted(writer: Writer, code: int, mark: str) -> int:
    """Delete the rows of a user from stored counters; how many. Processes that run do the same in their memory."""
    gone = 0
    for ranker in [row[0] for row in writer.database.read(counters.all_saved)]:
        for _ in range(5):  # a running process may store newer counters meanwhile
            found = writer.database.read(lambda c, name=ranker: counters.saved(c, name))  # type: ignore[misc]
            changed = None if found is None else _without(found, code, mark)
            if found is None or changed is None:
                break
            rows, state, forgotten = changed
            if writer.do(
                lambda c, name=ranker, at=found.seq, new=(state, forgotten): counters.replace_saved(c, name, at, *new)  # type: ignore[misc]
            ):
                gone += rows
                break
    return gone


def _without(saved: counters.SavedCounters, code: int, mark: str) -> tuple[int, bytes, bytes] | None:
    """Stored counters without a user, and the ids of whom they have forgotten; None if they cannot be read."""
    try:
        arrays, meta = codec.loads(saved.state, "the counters")
    except CodecError:
        return None
    owned = _owned(arrays, code)
    for part, rows in owned.items():
        for name in [name for name in arrays if name.startswith(f"{part}/") and name != f"{part}/totals"]:
            arrays[name] = np.delete(arrays[name], rows, axis=0)
    forgotten = msgspec.json.encode(sorted({*saved.erased, mark}))
    return sum(int(rows.size) for rows in owned.values()), codec.dumps(arrays, meta), forgotten


def _remains(
    database: Database, erased: Erased, now: float, archive: str, emptied: bool, vacuum: bool
) -> Iterator[Remaining]:
    if erased.pending:
        yield Remaining(
            "impressions and outcomes, without user id, request id and events",
            erased.pending,
            "a snapshot of their ranker covers them: seconds, while a process learns",
        )
    if erased.entries and not vacuum:
        hour = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now + catalog.DELETED_SECONDS))
        yield Remaining(
            "catalog_rows: the bare id, so that every process removes it from its memory",
            erased.entries,
            f"the first sweep after {hour}",
        )
    if not vacuum:
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now + counters.KEPT))
        yield Remaining(
            "erased_users: a 64-bit code of the id, by which processes remove the user from their counters",
            1,
            f"the first sweep after {day}",
        )
    if isinstance(database, SQLite):
        if not emptied:
            yield Remaining(f"{database.path}-wal: earlier versions of pages", None, "the log is emptied, in minutes")
        if not vacuum:
            yield Remaining(
                f"{database.path}: unused space of pages may have copies that SQLite made when it moved rows",
                None,
                "it is overwritten, or `rankloop user erase ID --vacuum` while the service is stopped",
            )
    else:
        yield Remaining("dead rows and write-ahead log of PostgreSQL", None, "VACUUM, and the archive of the log ends")
    yield Remaining("learned states: sums over all users, without ids", None, "the ranker is reset")
    if archive:
        yield Remaining(f"Parquet files in {archive}, column `user`", None, "you rewrite or delete them")
    yield Remaining("files of `rankloop export-log` and backups, if you made any", None, "you rewrite or delete them")
