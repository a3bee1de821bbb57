"""The tables of a store, and the steps that bring older stores up to date."""

from __future__ import annotations

import time

import msgspec

from rankloop.core.errors import RankloopError
from rankloop.service.errors import StoreUnavailable
from rankloop.service.storage.database import Connection, Database, Retryable
from rankloop.service.storage.partitions import create_partitioned
from rankloop.service.storage.rankers import current_names, set_spec
from rankloop.service.storage.sqlite import SQLiteConnection
from rankloop.wire.rankers import Spec

SCHEMA = [
    # The row of a ranker changes when an operator changes it; counters of its traffic are in `log_offsets`.
    """CREATE TABLE rankers (
        name TEXT PRIMARY KEY,
        spec {bytes} NOT NULL,          -- wire.Spec as JSON
        created {real} NOT NULL,
        epoch {int} NOT NULL,           -- +1 at a reset: feedback to impressions of earlier epochs is late
        generation {int} NOT NULL,      -- +1 when the learned state is replaced (reset, rollback)
        revision {int} NOT NULL,        -- +1 at any change, so that other processes reload it
        learning {int} NOT NULL,        -- 0 while paused
        serving {int},                  -- the promoted version, null: live
        carried {int}                   -- oldest epoch whose impressions are learned; null: the current one
    )""",
    """CREATE TABLE log_offsets (
        ranker TEXT PRIMARY KEY,
        next_seq {int} NOT NULL,        -- of the next outcome; its row lock makes commit order = sequence order
        next_number {int} NOT NULL,     -- of the next block of impressions; seeds their random numbers
        snapshot_requested {int} NOT NULL DEFAULT 0,  -- the outcome up to which a snapshot is waited for
        reward_sketch {bytes}           -- rewards.RewardSketch as JSON; null: no reward yet
    )""",
    """CREATE TABLE impressions (
        id TEXT PRIMARY KEY,
        ranker TEXT NOT NULL,
        epoch {int} NOT NULL,
        number {int} NOT NULL,
        created {real} NOT NULL,
        closes {real} NOT NULL,         -- end of the attribution window
        person TEXT,
        request_id TEXT,
        digest {bytes} NOT NULL,        -- of the request, to detect a request_id used for another one
        learn {int} NOT NULL,           -- 0 for a fallback: the learner did not make it
        body {bytes} NOT NULL,          -- codec.dump_impression
        answer {bytes} NOT NULL,        -- the response, JSON
        shown {bytes} NOT NULL,         -- item ids by position, JSON
        feedback {bytes},               -- so far by position, JSON; null: none
        open {int} NOT NULL,
        seq {int},                      -- of its outcome
        erase {int} NOT NULL DEFAULT 0, -- 1: its user was erased, it is deleted once a snapshot covers it
        experiment {int},               -- the one it was interleaved for
        credit {bytes},                 -- by position, JSON: 1 the ranker's item, -1 the other's
        viewed {int},                   -- positions; null: not reported
        notes {bytes},                  -- inputs of feature counters; null: nothing is counted
        rewards {bytes},                -- so far by position in the unit, JSON; null: none
        rejected {int}                  -- 1: it has `rejected_events`; 2: and a final event
    )""",
    "CREATE UNIQUE INDEX impressions_request ON impressions (ranker, request_id) WHERE request_id IS NOT NULL",
    "CREATE INDEX impressions_open ON impressions (closes, ranker) WHERE open = 1",
    "CREATE INDEX impressions_person ON impressions (person) WHERE person IS NOT NULL",
    "CREATE INDEX impressions_erase ON impressions (id) WHERE erase = 1",
    "CREATE INDEX impressions_latest ON impressions (ranker, created)",
    """CREATE TABLE events (
        event_id TEXT PRIMARY KEY,      -- ranker, unit separator, id of the event
        impression_id TEXT NOT NULL,
        received {real} NOT NULL,
        status TEXT NOT NULL,           -- accepted or late
        body {bytes} NOT NULL
    )""",
    "CREATE INDEX events_impression ON events (impression_id)",
    """CREATE TABLE rejected_events (    -- that have not been corrected
        impression_id TEXT NOT NULL,
        event_id TEXT NOT NULL,
        ranker TEXT NOT NULL,
        time {real} NOT NULL,
        reason TEXT NOT NULL,
        kept {bytes} NOT NULL,          -- its valid fields: wire.FeedbackEvent as JSON
        PRIMARY KEY (impression_id, event_id)
    )""",
    "CREATE INDEX rejected_events_ranker ON rejected_events (ranker, impression_id)",
    """CREATE TABLE event_counts (
        ranker TEXT NOT NULL,           -- empty: of unknown impressions
        day {int} NOT NULL,             -- Unix time of its start; -1: since the ranker was made
        status TEXT NOT NULL,
        count {int} NOT NULL,
        time {real} NOT NULL,           -- of the last one
        event_id TEXT,
        reason TEXT,
        PRIMARY KEY (ranker, day, status)
    )""",
    """CREATE TABLE outcomes (
        ranker TEXT NOT NULL,
        seq {int} NOT NULL,
        impression_id TEXT NOT NULL,
        kind TEXT NOT NULL,             -- final, window, silent or logged
        learn {int} NOT NULL,           -- 0: stored but not learned (paused, fallback, quarantine)
        feedback {bytes} NOT NULL,      -- values by position, JSON
        created {real} NOT NULL,
        viewed {int},                   -- positions; null: not reported
        rewards {bytes},                -- by position in the unit, JSON; null: none
        PRIMARY KEY (ranker, seq)
    )""",
    """CREATE TABLE snapshots (
        ranker TEXT PRIMARY KEY,
        seq {int} NOT NULL,             -- outcomes 0 … seq-1 are in it
        generation {int} NOT NULL,
        state {bytes} NOT NULL,
        created {real} NOT NULL,
        chunks {int} NOT NULL DEFAULT 0 -- in `snapshot_chunks` if the state is large; -1: see `origins`
    )""",
    """CREATE TABLE snapshot_chunks (
        ranker TEXT NOT NULL,
        generation {int} NOT NULL,
        seq {int} NOT NULL,
        chunk {int} NOT NULL,
        state {bytes} NOT NULL,
        PRIMARY KEY (ranker, generation, seq, chunk)
    )""",
    """CREATE TABLE state_deltas (
        ranker TEXT NOT NULL,
        generation {int} NOT NULL,
        seq {int} NOT NULL,             -- outcomes 0 … seq-1 are in the state afterwards
        base {int} NOT NULL,            -- outcomes 0 … base-1 must be in the state before
        state {bytes} NOT NULL,
        PRIMARY KEY (ranker, generation, seq)
    )""",
    """CREATE TABLE versions (
        ranker TEXT NOT NULL,
        version {int} NOT NULL,
        seq {int} NOT NULL,
        state {bytes} NOT NULL,
        created {real} NOT NULL,
        note TEXT NOT NULL,
        automatic {int} NOT NULL,
        generation {int},
        chunks {int} NOT NULL DEFAULT 0, -- as of snapshots
        reward_sketch {bytes},          -- that of `log_offsets` when the version was kept
        PRIMARY KEY (ranker, version)
    )""",
    """CREATE TABLE origins (          -- the state that a generation began with
        ranker TEXT NOT NULL,
        generation {int} NOT NULL,
        epoch {int} NOT NULL,
        seq {int} NOT NULL,             -- outcomes from this one on are folded into the state
        state {bytes} NOT NULL,         -- empty: that of the version in `generations`
        created {real} NOT NULL,
        PRIMARY KEY (ranker, generation)
    )""",
    """CREATE TABLE generations (      -- `origins` without states: read every few seconds
        ranker TEXT NOT NULL,
        generation {int} NOT NULL,
        epoch {int} NOT NULL,
        seq {int} NOT NULL,
        created {real} NOT NULL,
        how TEXT,                       -- made, changed, reset or rollback
        version {int},                  -- that was rolled back to
        kept {int},                     -- the version that holds the state before
        base {int},                     -- outcomes in the state that it began with; null: not known
        change {bytes},                 -- of the spec: before, after and renamed, JSON; null: none
        PRIMARY KEY (ranker, generation)
    )""",
    "CREATE TABLE tombstones (ranker TEXT PRIMARY KEY, since {real} NOT NULL)",  # deleted rankers with rows left
    "CREATE TABLE leases (ranker TEXT PRIMARY KEY, holder TEXT NOT NULL, heartbeat {int} NOT NULL)",
    """CREATE TABLE workers (
        id TEXT PRIMARY KEY, machine TEXT NOT NULL, heartbeat {int} NOT NULL, learns {int} NOT NULL
    )""",
    "CREATE TABLE learning_loads (ranker TEXT PRIMARY KEY, load {real} NOT NULL)",  # share of a core
    """CREATE TABLE quarantine (
        ranker TEXT PRIMARY KEY,
        revision {int} NOT NULL,        -- of the ranker when its learner hung
        failures {int} NOT NULL,        -- since it was changed
        active {int} NOT NULL,          -- 1: in quarantine; 0: an outcome was skipped
        text TEXT NOT NULL,
        created {real} NOT NULL
    )""",
    """CREATE TABLE experiments (
        ranker TEXT NOT NULL,
        id {int} NOT NULL,
        kind TEXT NOT NULL,             -- experiment or guardrail
        terms {bytes} NOT NULL,         -- wire.ExperimentRequest as JSON
        version {int},                  -- the version it compares with, which must stay
        subject {bytes} NOT NULL,       -- the part of the ranker that is tested; a change ends it
        state TEXT NOT NULL,            -- running, stopped or demoted
        reason TEXT,                    -- why it ended
        started {real} NOT NULL,
        ended {real},
        next_seq {int} NOT NULL,        -- outcomes before it are in the tally
        tally {bytes} NOT NULL,         -- experiments.Tally as JSON
        PRIMARY KEY (ranker, id)
    )""",
    """CREATE TABLE webhook_outbox (
        id TEXT PRIMARY KEY,            -- the receiver detects a repetition by it
        ranker TEXT NOT NULL,
        body {bytes} NOT NULL,          -- JSON
        created {real} NOT NULL,
        attempts {int} NOT NULL,
        due {real} NOT NULL             -- of the next attempt
    )""",
    """CREATE TABLE catalogs (         -- the items or the users of a catalog
        part {int} PRIMARY KEY,         -- a new one after it was emptied
        catalog TEXT NOT NULL,
        kind TEXT NOT NULL,             -- items or users
        seq {int} NOT NULL,             -- of the last change
        forgotten {int} NOT NULL,       -- deletions up to this one are no longer reported
        rows {int} NOT NULL,
        bytes {int} NOT NULL,           -- of ids, strings and lists, as they are in memory
        fields {bytes} NOT NULL,        -- name: kind and width, JSON
        created {real} NOT NULL,
        field_counts {bytes},           -- catalog.FieldCounts as JSON; null: nothing is counted yet
        UNIQUE (catalog, kind)
    )""",
    """CREATE TABLE catalog_rows (
        part {int} NOT NULL,
        id TEXT NOT NULL,
        seq {int} NOT NULL,             -- of its last change
        size {int} NOT NULL,            -- its share of bytes
        body {bytes},                   -- fields as JSON; null: deleted
        changed {real} NOT NULL,
        PRIMARY KEY (part, id)
    )""",
    "CREATE INDEX catalog_rows_seq ON catalog_rows (part, seq)",
    "CREATE INDEX catalog_rows_deleted ON catalog_rows (changed) WHERE body IS NULL",
    """CREATE TABLE counters (         -- of features that count feedback
        ranker TEXT PRIMARY KEY,
        seq {int} NOT NULL,             -- outcomes 0 … seq-1 are in it
        state {bytes} NOT NULL,
        erased {bytes} NOT NULL,        -- ids of `erased_users` that are removed from it, JSON
        created {real} NOT NULL
    )""",
    "CREATE TABLE erased_users (id TEXT PRIMARY KEY, code TEXT NOT NULL, created {real} NOT NULL)",
    """CREATE TABLE metric_history (
        ranker TEXT NOT NULL,
        step {int} NOT NULL,            -- seconds per bucket
        start {int} NOT NULL,           -- Unix time
        body {bytes} NOT NULL,          -- metric_history.Bucket as JSON
        PRIMARY KEY (ranker, step, start)
    )""",
    """CREATE TABLE keys (
        digest TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        scopes TEXT NOT NULL,
        created {real} NOT NULL,
        rankers TEXT,                   -- names, each followed by a comma; null: all
        expires {real},
        rate {real},                    -- requests per second; null: unlimited
        concurrency {int},
        catalogs TEXT                   -- names, each followed by a comma; null: none
    )""",
    "CREATE TABLE secrets (id {int} PRIMARY KEY, secret {bytes} NOT NULL, created {real} NOT NULL)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, since {real} NOT NULL)",  # true from then on: the store has had keys
    """CREATE TABLE audit (
        id TEXT PRIMARY KEY,            -- sorts by time
        created {real} NOT NULL,
        who TEXT NOT NULL,              -- the name of the key; empty where none is required
        action TEXT NOT NULL,
        ranker TEXT,
        text TEXT NOT NULL,
        request_id TEXT NOT NULL
    )""",
    "CREATE INDEX audit_ranker ON audit (ranker, id)",
    """CREATE TABLE action_results (   -- of operator actions: a repeated request gets the stored result
        who TEXT NOT NULL,              -- as in audit
        key TEXT NOT NULL,              -- Idempotency-Key of the request, or one that was generated for it
        request {bytes} NOT NULL,       -- digest of the action and its arguments
        result {bytes} NOT NULL,        -- JSON
        created {real} NOT NULL,
        PRIMARY KEY (who, key)
    )""",
]

OLDEST = 17  # steps of the oldest stores that can be opened, those of commit a18f45f
STEPS: list[list[str]] = [  # from there on; never change one, append the next, and change SCHEMA with it
    ["ALTER TABLE keys ADD COLUMN catalogs TEXT"],
    ["CREATE INDEX catalogue_rows_deleted ON catalogue_rows (changed) WHERE body IS NULL"],
    [
        "CREATE TABLE actions (who TEXT NOT NULL, key TEXT NOT NULL, request {bytes} NOT NULL, result {bytes} NOT NULL,"
        " created {real} NOT NULL, PRIMARY KEY (who, key))"
    ],
    [
        "ALTER TABLE impressions ADD COLUMN rewards {bytes}",
        "ALTER TABLE impressions ADD COLUMN attention {int}",
        "ALTER TABLE outcomes ADD COLUMN rewards {bytes}",
        "ALTER TABLE heads ADD COLUMN rewards {bytes}",
        "ALTER TABLE versions ADD COLUMN rewards {bytes}",
        "CREATE TABLE attention (impression_id TEXT NOT NULL, event_id TEXT NOT NULL, ranker TEXT NOT NULL,"
        " time {real} NOT NULL, reason TEXT NOT NULL, kept {bytes} NOT NULL, PRIMARY KEY (impression_id, event_id))",
        "CREATE INDEX attention_ranker ON attention (ranker, impression_id)",
        "CREATE TABLE event_counts (ranker TEXT NOT NULL, day {int} NOT NULL, status TEXT NOT NULL,"
        " count {int} NOT NULL, time {real} NOT NULL, event_id TEXT, reason TEXT, PRIMARY KEY (ranker, day, status))",
    ],
    ["ALTER TABLE rankers ADD COLUMN carried {int}", "ALTER TABLE generations ADD COLUMN change {bytes}"],
    ["ALTER TABLE catalogues ADD COLUMN filled {bytes}"],
    [  # plain names, and event ids that all begin with their ranker
        *(
            f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"
            for table, old, new in (
                ("heads", "wanted", "snapshot_requested"),
                ("heads", "rewards", "reward_sketch"),
                ("impressions", "seen", "feedback"),
                ("impressions", "attention", "rejected"),
                ("snapshots", "parts", "chunks"),
                ("snapshot_parts", "part", "chunk"),
                ("versions", "parts", "chunks"),
                ("versions", "rewards", "reward_sketch"),
                ("leases", "beat", "heartbeat"),
                ("workers", "beat", "heartbeat"),
                ("troubles", "times", "failures"),
                ("troubles", "given_up", "active"),
                ("notices", "tries", "attempts"),
                ("catalogues", "catalogue", "catalog"),
                ("catalogues", "filled", "field_counts"),
                ("counters", "forgotten", "erased"),
            )
        ),
        *(
            f"ALTER TABLE {old} RENAME TO {new}"
            for old, new in (
                ("heads", "log_offsets"),
                ("snapshot_parts", "snapshot_chunks"),
                ("published_parts", "state_deltas"),
                ("graves", "tombstones"),
                ("loads", "learning_loads"),
                ("troubles", "quarantine"),
                ("notices", "webhook_outbox"),
                ("catalogues", "catalogs"),
                ("catalogue_rows", "catalog_rows"),
                ("attention", "rejected_events"),
                ("forgotten", "erased_users"),
                ("series", "metric_history"),
                ("actions", "action_results"),
            )
        ),
        *(f"DROP INDEX {name}" for name in ("catalogue_rows_seq", "catalogue_rows_deleted", "attention_ranker")),
        "CREATE INDEX catalog_rows_seq ON catalog_rows (part, seq)",
        "CREATE INDEX catalog_rows_deleted ON catalog_rows (changed) WHERE body IS NULL",
        "CREATE INDEX rejected_events_ranker ON rejected_events (ranker, impression_id)",
        "ALTER TABLE workers DROP COLUMN report",
        "ALTER TABLE workers DROP COLUMN knows",
        "DROP TABLE IF EXISTS expansions",
        "UPDATE events SET event_id = impressions.ranker || '\x1f' || event_id FROM impressions"
        " WHERE impressions.id = events.impression_id AND LENGTH(REPLACE(event_id, '\x1f', '')) = LENGTH(event_id)",
    ],
]
RENAMED = 24  # steps that include the one with plain names
CURRENT = OLDEST + len(STEPS)
HEARTBEAT_SECONDS = 3.0  # in which every running process writes a heartbeat


class NewerStore(RankloopError):
    """The store was written by a later version."""


class StoreInUse(RankloopError):
    """Processes of an older version run on the store."""


def migrate(database: Database, patience: float = 10.0) -> int:
    """Create the tables, or bring them up to date, all or nothing; return how many steps were applied."""
    start = time.monotonic()
    while True:
        try:
            connection = database.connect(time_limits=False)
            try:
                _refuse_if_in_use(connection)
                with connection.transaction():
                    return _migrate(connection)
            finally:
                connection.close()
        except Retryable as error:  # the database may still be starting, or another process migrates
            if time.monotonic() - start > patience:
                raise StoreUnavailable(
                    f"the store cannot be reached ({error}); check --store and that the database runs"
                ) from None
            time.sleep(0.2)


def require_current(database: Database) -> None:
    """Refuse a store that is not of this version, without changing it."""
    try:
        applied = database.read(applied_steps)
    except Exception as error:
        raise StoreUnavailable(
            f"this is not a store of rankloop, or it cannot be read ({error}); give the value of `rankloop serve "
            "--store`"
        ) from None
    _refuse_newer(applied)
    if applied < CURRENT:
        raise RankloopError(
            f"the store has {applied} migrations, this version needs {CURRENT}; "
            "`rankloop serve` or `rankloop keys list` with this version bring it up to date"
        )


def applied_steps(connection: Connection) -> int:
    """Return how many steps have been applied to a store."""
    applied = len(connection.rows("SELECT id FROM migrations"))
    if 0 < applied < CURRENT and _has_table(connection, "expansions"):  # steps that commit a18f45f had only begun
        applied = max([applied, *(int(row[0]) + 1 for row in connection.rows("SELECT id FROM expansions"))])
    return applied


def _refuse_newer(applied: int) -> None:
    if applied > CURRENT:
        raise NewerStore(
            f"the store has {applied} migrations, this version knows {CURRENT}; serve it with the version that wrote it"
        )


def _has_table(connection: Connection, name: str) -> bool:
    embedded = isinstance(connection, SQLiteConnection)
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?" if embedded else "SELECT 1 WHERE to_regclass(?) IS NOT NULL"
    return connection.row(sql, name) is not None


def _migrate(connection: Connection) -> int:
    embedded = isinstance(connection, SQLiteConnection)
    if not embedded:
        connection.run("SELECT pg_advisory_xact_lock(7265)")  # processes that start together take turns
    connection.run("CREATE TABLE IF NOT EXISTS migrations (id INTEGER PRIMARY KEY)")
    applied = applied_steps(connection)
    _refuse_newer(applied)
    if 0 < applied < OLDEST:
        raise RankloopError(f"the store has {applied} migrations; this version opens stores that have {OLDEST} or more")
    steps = STEPS[applied - OLDEST :] if applied else [SCHEMA]
    types = {"int": "INTEGER", "real": "REAL", "bytes": "BLOB"}
    if not embedded:
        types = {"int": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA"}
    for statement in (statement for step in steps for statement in step):
        connection.run(statement.format(**types))
    if 0 < applied < RENAMED:
        _rename_spec_fields(connection)
    if not applied and not embedded:
        create_partitioned(connection, time.time())
    numbers = [(number,) for number in range(CURRENT)]
    connection.many("INSERT INTO migrations (id) VALUES (?) ON CONFLICT DO NOTHING", numbers)
    return len(steps)


def _rename_spec_fields(connection: Connection) -> None:
    """Store specs with today's names of fields and parameters."""
    for name, spec in connection.rows("SELECT name, spec FROM rankers"):
        set_spec(connection, name, msgspec.convert(current_names(msgspec.json.decode(spec)), Spec))
    sql = "SELECT ranker, generation, change FROM generations WHERE change IS NOT NULL"
    for name, generation, text in connection.rows(sql):
        change = msgspec.json.decode(text)
        change |= {one: current_names(change[one]) for one in ("before", "after")}
        sql = "UPDATE generations SET change = ? WHERE ranker = ? AND generation = ?"
        connection.run(sql, msgspec.json.encode(change), name, generation)


def _refuse_if_in_use(connection: Connection) -> None:
    """Refuse to change tables under processes that use them."""
    with connection.transaction():
        if not _has_table(connection, "migrations"):
            return
        applied = applied_steps(connection)
        if not OLDEST <= applied < CURRENT:
            return
        column = "beat" if applied < RENAMED else "heartbeat"
        before: dict[str, int] = dict(connection.rows(f"SELECT id, {column} FROM workers"))
    if not before:
        return
    time.sleep(HEARTBEAT_SECONDS)
    with connection.transaction():
        now: dict[str, int] = dict(connection.rows(f"SELECT id, {column} FROM workers"))
    running = sorted(name for name, beat in now.items() if before.get(name) != beat)
    if running:
        raise StoreInUse(
            f"{len(running)} processes of an older version run on the store ({', '.join(running[:3])}); stop them, "
            "then start this version"
        )
