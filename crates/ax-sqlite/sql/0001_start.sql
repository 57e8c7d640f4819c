-- Jobs, what they wait in, and what is kept about them. Times are microseconds since 1970 (UTC), spans are milliseconds.

-- A lane is a (queue, task) pair: what a claim opens or leaves shut as a whole.
CREATE TABLE lanes (
    lane  INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    task  TEXT NOT NULL,
    UNIQUE (queue, task)
);

CREATE TABLE jobs (
    seq               INTEGER PRIMARY KEY,
    id                BLOB    NOT NULL UNIQUE,
    lane              INTEGER NOT NULL,
    priority          INTEGER NOT NULL,
    -- Life: written only with what lifecycle::decide gave.
    state             INTEGER NOT NULL,
    claim_at          INTEGER,            -- Life::claim_at(): set only while the row may be claimed
    run_at            INTEGER NOT NULL,
    attempt           INTEGER NOT NULL,
    failures          INTEGER NOT NULL,
    interruptions     INTEGER NOT NULL,
    node              INTEGER,
    token             INTEGER,
    flags             INTEGER NOT NULL,   -- 1 careful, 2 cancel requested
    last_cause        INTEGER,
    claimed_at        INTEGER,
    started_at        INTEGER,
    finished_at       INTEGER,
    updated_at        INTEGER NOT NULL,
    start_before      INTEGER,
    -- Spec: fixed at enqueue.
    created_at        INTEGER NOT NULL,
    timeout_ms        INTEGER,
    max_attempts      INTEGER NOT NULL,
    max_interruptions INTEGER NOT NULL,
    retry_base_ms     INTEGER NOT NULL,
    retry_cap_ms      INTEGER NOT NULL,
    on_crash          INTEGER NOT NULL,
    unique_for_ms     INTEGER NOT NULL,
    trace_id          TEXT,               -- NULL = the id's 32 digits
    root_id           BLOB,               -- NULL = the job itself
    key               TEXT,
    tags              TEXT,               -- JSON array, NULL = none
    progress          TEXT,
    last_error        TEXT,
    args              TEXT    NOT NULL,
    kwargs            TEXT    NOT NULL,
    result            TEXT
);

-- The claim order of each lane. A million future, finished or shut-out rows cost a claim nothing.
CREATE INDEX jobs_claim ON jobs (lane, priority, claim_at) WHERE claim_at IS NOT NULL;
-- What is in use: recovery, listings of running jobs, and queue limits read it.
CREATE INDEX jobs_active ON jobs (lane) WHERE token IS NOT NULL;
CREATE INDEX jobs_expiry ON jobs (start_before)
    WHERE start_before IS NOT NULL AND claim_at IS NOT NULL AND started_at IS NULL;
-- Failed, dead, held: what a person looks for. `state IN (3, 5, 8)` would build a temporary table at each write of a row.
CREATE INDEX jobs_trouble ON jobs (state) WHERE state = 3 OR state = 5 OR state = 8;
CREATE INDEX jobs_trace ON jobs (trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX jobs_root ON jobs (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;

-- The newest holder of each idempotency key.
CREATE TABLE keys (
    task   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    digest BLOB    NOT NULL,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

CREATE TABLE tags (
    tag TEXT    NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (tag, seq)
) WITHOUT ROWID;

-- One row for every attempt that did not end `ok`, written once, when it ends.
CREATE TABLE attempts (
    seq        INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    node       INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    cause      INTEGER NOT NULL,
    error      TEXT,
    PRIMARY KEY (seq, attempt)
) WITHOUT ROWID;

-- What people did to a job.
CREATE TABLE actions (
    seq  INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    nr   INTEGER NOT NULL,
    what TEXT    NOT NULL,
    PRIMARY KEY (seq, at, nr)
) WITHOUT ROWID;

CREATE TABLE queues (
    name        TEXT PRIMARY KEY,
    paused      INTEGER NOT NULL,
    concurrency INTEGER
) WITHOUT ROWID;

CREATE TABLE tasks (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL
) WITHOUT ROWID;

-- Kept counts, changed in the transaction that changes the rows.
CREATE TABLE lane_counts (
    lane  INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (lane, state)
) WITHOUT ROWID;

-- Sums by UTC day (days since 1970) and lane; day -1 holds the sums over all time.
CREATE TABLE day_totals (
    day       INTEGER NOT NULL,
    lane      INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    dead      INTEGER NOT NULL,
    run_us    INTEGER NOT NULL,
    runs      INTEGER NOT NULL,
    PRIMARY KEY (day, lane)
) WITHOUT ROWID;

-- The highest row number that was ever deleted: numbers are not used again.
CREATE TABLE deleted_to (
    seq INTEGER NOT NULL
);
INSERT INTO deleted_to VALUES (0);
