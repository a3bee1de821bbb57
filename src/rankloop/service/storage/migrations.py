"""The tables, as a list of migrations. Never change one that has been released: append the next."""

from __future__ import annotations

MIGRATIONS: list[list[str]] = [
    [
        # A ranker's row changes when someone changes it; what changes with traffic is in `heads`.
        """CREATE TABLE rankers (
            name TEXT PRIMARY KEY,
            spec {bytes} NOT NULL,          -- wire.Spec as JSON
            created {real} NOT NULL,
            epoch {int} NOT NULL,           -- +1 at a reset: feedback to lists shown before comes too late
            generation {int} NOT NULL,      -- +1 when the learned state is replaced (reset, rollback)
            revision {int} NOT NULL,        -- +1 at any change, so that other processes look again
            learning {int} NOT NULL,        -- 0 while paused
            serving {int}                   -- the promoted version, null for live
        )""",
        """CREATE TABLE heads (
            ranker TEXT PRIMARY KEY,
            next_seq {int} NOT NULL,        -- of the next outcome; its row lock makes commit order = sequence order
            next_number {int} NOT NULL      -- of the next block of impressions: their random numbers hang on it
        )""",
        """CREATE TABLE impressions (
            id TEXT PRIMARY KEY,
            ranker TEXT NOT NULL,
            epoch {int} NOT NULL,
            number {int} NOT NULL,
            created {real} NOT NULL,
            closes {real} NOT NULL,
            person TEXT,
            request_id TEXT,
            digest {bytes} NOT NULL,        -- of the request, to notice a request_id used for something else
            learn {int} NOT NULL,           -- 0 for a fallback: the learner did not make it
            body {bytes} NOT NULL,          -- codec.dump_impression
            answer {bytes} NOT NULL,        -- what was answered, JSON
            shown {bytes} NOT NULL,         -- ids by slot, JSON
            seen {bytes},                   -- feedback so far by slot, JSON; null: none
            open {int} NOT NULL,
            seq {int},                      -- of its outcome
            erase {int} NOT NULL DEFAULT 0  -- its user asked to be forgotten: goes once a snapshot covers it
        )""",
        "CREATE UNIQUE INDEX impressions_request ON impressions (ranker, request_id) WHERE request_id IS NOT NULL",
        "CREATE INDEX impressions_open ON impressions (closes, ranker) WHERE open = 1",
        "CREATE INDEX impressions_person ON impressions (person) WHERE person IS NOT NULL",
        "CREATE INDEX impressions_erase ON impressions (id) WHERE erase = 1",
        "CREATE INDEX impressions_created ON impressions (created)",
        """CREATE TABLE events (
            event_id TEXT PRIMARY KEY,
            impression_id TEXT NOT NULL,
            received {real} NOT NULL,
            status TEXT NOT NULL,           -- accepted or late
            body {bytes} NOT NULL
        )""",
        "CREATE INDEX events_impression ON events (impression_id)",
        """CREATE TABLE outcomes (
            ranker TEXT NOT NULL,
            seq {int} NOT NULL,
            impression_id TEXT NOT NULL,
            kind TEXT NOT NULL,             -- final, window or silent
            learn {int} NOT NULL,           -- 0: kept but not learned (paused, fallback)
            feedback {bytes} NOT NULL,      -- values by slot, JSON
            created {real} NOT NULL,
            PRIMARY KEY (ranker, seq)
        )""",
        """CREATE TABLE snapshots (
            ranker TEXT PRIMARY KEY,
            seq {int} NOT NULL,             -- outcomes 0 … seq-1 are in it
            generation {int} NOT NULL,
            state {bytes} NOT NULL,
            created {real} NOT NULL
        )""",
        """CREATE TABLE versions (
            ranker TEXT NOT NULL,
            version {int} NOT NULL,
            seq {int} NOT NULL,
            state {bytes} NOT NULL,
            created {real} NOT NULL,
            note TEXT NOT NULL,
            automatic {int} NOT NULL,
            PRIMARY KEY (ranker, version)
        )""",
        "CREATE TABLE leases (ranker TEXT PRIMARY KEY, holder TEXT NOT NULL, beat {int} NOT NULL)",
        "CREATE TABLE workers (id TEXT PRIMARY KEY, machine TEXT NOT NULL, beat {int} NOT NULL, learns {int} NOT NULL,"
        " report {bytes} NOT NULL)",
        "CREATE TABLE keys (digest TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, scopes TEXT NOT NULL,"
        " created {real} NOT NULL)",
    ],
    [  # curves, and the latest lists of a ranker; what deletes old ones goes ranker by ranker, so one index does both
        """CREATE TABLE series (
            ranker TEXT NOT NULL,
            step {int} NOT NULL,            -- seconds that a bucket holds
            start {int} NOT NULL,           -- Unix time
            body {bytes} NOT NULL,          -- series.Bucket as JSON
            PRIMARY KEY (ranker, step, start)
        )""",
        "CREATE INDEX impressions_latest ON impressions (ranker, created)",
        "DROP INDEX impressions_created",
    ],
    [  # comparisons on live traffic: who put what there is kept with the list, what it came to with the experiment
        "ALTER TABLE impressions ADD COLUMN experiment {int}",  # the one the list was mixed for
        "ALTER TABLE impressions ADD COLUMN credit {bytes}",  # by slot, JSON: 1 the ranker's item, -1 the other's
        """CREATE TABLE experiments (
            ranker TEXT NOT NULL,
            id {int} NOT NULL,
            kind TEXT NOT NULL,             -- experiment or guardrail
            terms {bytes} NOT NULL,         -- wire.ExperimentRequest as JSON
            version {int},                  -- the version it is against, if it is one: that must stay
            subject {bytes} NOT NULL,       -- what of the ranker is tried; another one ends it
            state TEXT NOT NULL,            -- running, stopped or demoted
            reason TEXT,                    -- why it ended
            started {real} NOT NULL,
            ended {real},
            next_seq {int} NOT NULL,        -- outcomes before it are in the tally
            tally {bytes} NOT NULL,         -- trials.Tally as JSON
            PRIMARY KEY (ranker, id)
        )""",
    ],
    [  # what replay needs to rebuild any version: where each fold began
        """CREATE TABLE origins (
            ranker TEXT NOT NULL,
            generation {int} NOT NULL,
            epoch {int} NOT NULL,
            seq {int} NOT NULL,             -- outcomes from this one on are folded into the state
            state {bytes} NOT NULL,         -- fresh, or the version that was rolled back to
            created {real} NOT NULL,
            PRIMARY KEY (ranker, generation)
        )""",
        "ALTER TABLE versions ADD COLUMN generation {int}",  # which fold it is a state of; null in older stores
    ],
    [  # what is true of a store from some time on: that it has had keys
        "CREATE TABLE facts (name TEXT PRIMARY KEY, since {real} NOT NULL)",
        "INSERT INTO facts (name, since) SELECT 'keyed', MIN(created) FROM keys HAVING COUNT(*) > 0",
    ],
    [  # keys that are for some rankers only, or that end
        "ALTER TABLE keys ADD COLUMN rankers TEXT",  # names, each followed by a comma; null: all
        "ALTER TABLE keys ADD COLUMN expires {real}",
    ],
    [  # between those who rank and the one who learns: a snapshot that is waited for, a learner that hung
        "ALTER TABLE heads ADD COLUMN wanted {int} NOT NULL DEFAULT 0",
        """CREATE TABLE troubles (
            ranker TEXT PRIMARY KEY,
            revision {int} NOT NULL,        -- of the ranker when it hung
            times {int} NOT NULL,           -- how often since it was changed
            given_up {int} NOT NULL,        -- 1: not learned until it is changed
            text TEXT NOT NULL,
            created {real} NOT NULL
        )""",
    ],
    [  # rankers that were deleted and of which rows may be left
        "CREATE TABLE graves (ranker TEXT PRIMARY KEY, since {real} NOT NULL)",
    ],
    [  # limits of keys; what lists are signed with for browsers; who changed what
        "ALTER TABLE keys ADD COLUMN rate {real}",  # requests a second; null: any number
        "ALTER TABLE keys ADD COLUMN concurrency {int}",
        "CREATE TABLE secrets (id {int} PRIMARY KEY, secret {bytes} NOT NULL, created {real} NOT NULL)",
        """CREATE TABLE audit (
            id TEXT PRIMARY KEY,            -- sorts by time
            created {real} NOT NULL,
            who TEXT NOT NULL,              -- the name of the key; empty where none is asked for
            action TEXT NOT NULL,
            ranker TEXT,
            text TEXT NOT NULL,
            request_id TEXT NOT NULL
        )""",
        "CREATE INDEX audit_ranker ON audit (ranker, id)",
    ],
    [  # where what is known comes from, and what is to be told to whoever runs it
        # Beside `origins`, whose rows are as long as a state: these are read every few seconds.
        """CREATE TABLE generations (
            ranker TEXT NOT NULL,
            generation {int} NOT NULL,
            epoch {int} NOT NULL,
            seq {int} NOT NULL,             -- outcomes from this one on are learned in it
            created {real} NOT NULL,
            how TEXT,                       -- made, changed, reset or rollback; null: an earlier release did not say
            version {int},                  -- that was gone back to
            kept {int},                     -- the version that holds what was known until then
            base {int},                     -- outcomes in the state that it began with; null: not known
            PRIMARY KEY (ranker, generation)
        )""",
        "INSERT INTO generations (ranker, generation, epoch, seq, created)"
        " SELECT ranker, generation, epoch, seq, created FROM origins",
        "INSERT INTO generations (ranker, generation, epoch, seq, created)"
        " SELECT name, generation, epoch, 0, created FROM rankers WHERE name NOT IN (SELECT ranker FROM origins)",
        """CREATE TABLE notices (
            id TEXT PRIMARY KEY,            -- whoever is told twice knows it by this
            ranker TEXT NOT NULL,
            body {bytes} NOT NULL,          -- as it is sent, each time the same: JSON
            created {real} NOT NULL,
            tries {int} NOT NULL,
            due {real} NOT NULL             -- of the next try
        )""",
    ],
    [  # large states in parts, so that nobody waits for a hundred megabytes to be written
        "ALTER TABLE snapshots ADD COLUMN parts {int} NOT NULL DEFAULT 0",
        """CREATE TABLE snapshot_parts (
            ranker TEXT NOT NULL,
            generation {int} NOT NULL,
            seq {int} NOT NULL,
            part {int} NOT NULL,
            state {bytes} NOT NULL,
            PRIMARY KEY (ranker, generation, seq, part)
        )""",
    ],
    [  # catalogues: items and users with fields, from which features are computed
        """CREATE TABLE catalogues (
            part {int} PRIMARY KEY,         -- another one after it was emptied
            catalogue TEXT NOT NULL,
            kind TEXT NOT NULL,             -- items or users
            seq {int} NOT NULL,             -- of the last change
            forgotten {int} NOT NULL,       -- deletions up to this one are no longer told
            rows {int} NOT NULL,
            bytes {int} NOT NULL,           -- of ids, strings and lists, as they are in memory
            fields {bytes} NOT NULL,        -- name: kind and width, JSON
            created {real} NOT NULL,
            UNIQUE (catalogue, kind)
        )""",
        """CREATE TABLE catalogue_rows (
            part {int} NOT NULL,
            id TEXT NOT NULL,
            seq {int} NOT NULL,             -- of its last change
            size {int} NOT NULL,            -- its share of bytes
            body {bytes},                   -- fields as JSON; null: deleted
            changed {real} NOT NULL,
            PRIMARY KEY (part, id)
        )""",
        "CREATE INDEX catalogue_rows_seq ON catalogue_rows (part, seq)",
    ],
    [  # how far down lists were seen
        "ALTER TABLE impressions ADD COLUMN viewed {int}",  # positions; null: not reported
        "ALTER TABLE outcomes ADD COLUMN viewed {int}",
    ],
    [  # counters of declared features: what a list leaves for them, how far they are, who is to be forgotten
        "ALTER TABLE impressions ADD COLUMN notes {bytes}",  # codec.dumps of Program.notes; null: nothing is counted
        """CREATE TABLE counters (
            ranker TEXT PRIMARY KEY,
            seq {int} NOT NULL,             -- outcomes 0 … seq-1 are in it
            state {bytes} NOT NULL,         -- Counters.dumps
            forgotten {bytes} NOT NULL,     -- ids of `forgotten` that are taken into account, JSON
            created {real} NOT NULL
        )""",
        "CREATE TABLE forgotten (id TEXT PRIMARY KEY, code TEXT NOT NULL, created {real} NOT NULL)",
    ],
    [  # how many steps of this list a process knows: what takes away from the store waits for those who know fewer
        "ALTER TABLE workers ADD COLUMN knows {int}",  # null: of a release that did not say
    ],
    [  # several machines: who learns is decided by load; large states reach the others by what has changed in them
        "CREATE TABLE loads (ranker TEXT PRIMARY KEY, load {real} NOT NULL)",  # of a core, that learning takes
        """CREATE TABLE published_parts (
            ranker TEXT NOT NULL,
            generation {int} NOT NULL,
            seq {int} NOT NULL,             -- whoever takes it knows outcomes 0 … seq-1
            base {int} NOT NULL,            -- and must have known 0 … base-1, or more
            state {bytes} NOT NULL,
            PRIMARY KEY (ranker, generation, seq)
        )""",
        "ALTER TABLE versions ADD COLUMN parts {int} NOT NULL DEFAULT 0",  # its state is that of snapshot_parts
    ],
    [],  # rows may point to states that lie elsewhere (`states`): no new column, but earlier releases cannot read it
    [  # catalogs that a key for some rankers may use
        "ALTER TABLE keys ADD COLUMN catalogs TEXT",  # names, each followed by a comma; null: none
    ],
    [  # deleted rows of catalogs, so that what deletes them for good does not read the others
        "CREATE INDEX catalogue_rows_deleted ON catalogue_rows (changed) WHERE body IS NULL",
    ],
    [  # operator actions that were carried out: a repeated request gets the stored result
        """CREATE TABLE actions (
            who TEXT NOT NULL,              -- as in audit
            key TEXT NOT NULL,              -- Idempotency-Key of the request, or one that was generated for it
            request {bytes} NOT NULL,       -- digest of the action and its arguments
            result {bytes} NOT NULL,        -- JSON
            created {real} NOT NULL,
            PRIMARY KEY (who, key)
        )""",
    ],
    [  # rewards in a unit, events that were rejected, counts of events that were not accepted
        "ALTER TABLE impressions ADD COLUMN rewards {bytes}",  # rewards so far by slot in the unit, JSON; null: none
        "ALTER TABLE impressions ADD COLUMN attention {int}",  # 1: it has rows in `attention`; 2: and a final event
        "ALTER TABLE outcomes ADD COLUMN rewards {bytes}",  # rewards by slot in the unit, JSON; null: none
        "ALTER TABLE heads ADD COLUMN rewards {bytes}",  # rewards.RewardSketch as JSON; null: no reward yet
        "ALTER TABLE versions ADD COLUMN rewards {bytes}",  # that of `heads` when the version was kept
        """CREATE TABLE attention (
            impression_id TEXT NOT NULL,
            event_id TEXT NOT NULL,         -- of a rejected event, which has not been corrected
            ranker TEXT NOT NULL,
            time {real} NOT NULL,
            reason TEXT NOT NULL,
            kept {bytes} NOT NULL,          -- its valid parts: wire.FeedbackEvent as JSON
            PRIMARY KEY (impression_id, event_id)
        )""",
        "CREATE INDEX attention_ranker ON attention (ranker, impression_id)",
        """CREATE TABLE event_counts (
            ranker TEXT NOT NULL,           -- empty: events whose impression is not known
            day {int} NOT NULL,             -- Unix time of its start; -1: since the ranker was made
            status TEXT NOT NULL,
            count {int} NOT NULL,
            time {real} NOT NULL,           -- of the last one
            event_id TEXT,
            reason TEXT,
            PRIMARY KEY (ranker, day, status)
        )""",
    ],
    [  # specs whose features change: what was learned, and impressions shown before, carry over
        "ALTER TABLE rankers ADD COLUMN carried {int}",  # oldest epoch whose impressions are learned; null: the present
        "ALTER TABLE generations ADD COLUMN change {bytes}",  # of the spec: before, after and renamed, JSON; null: none
    ],
    [  # how many items of a catalog have each field
        "ALTER TABLE catalogues ADD COLUMN filled {bytes}",  # JSON of `catalogue.Filled`; null: nothing is counted yet
    ],
]
SETTLED = 14  # migrations that were made in one go; those after it only add, so that an earlier release may run beside
