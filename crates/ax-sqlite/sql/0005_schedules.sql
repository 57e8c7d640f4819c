-- Schedules, what became of their ticks, and which jobs they made.

CREATE TABLE schedules (
    name         TEXT    PRIMARY KEY,
    cron         TEXT,                    -- either this with a time zone
    timezone     TEXT,
    every_ms     INTEGER,                 -- or this, with a start of its own or not
    start        INTEGER,
    template     TEXT    NOT NULL,        -- the job that a tick makes, JSON
    catch_up     INTEGER NOT NULL,
    overlap      INTEGER NOT NULL,
    anchor       INTEGER NOT NULL,        -- where an interval begins that names no start
    declared_by  INTEGER,
    declared     TEXT,
    paused_at    INTEGER,
    pause_reason TEXT,
    withdrawn    INTEGER NOT NULL,
    trouble      TEXT,
    handled      INTEGER NOT NULL,        -- every tick up to here is decided
    next         INTEGER,
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
);
CREATE INDEX schedules_next ON schedules (next) WHERE next IS NOT NULL;
-- After the clock was set back these are ahead of it.
CREATE INDEX schedules_handled ON schedules (handled) WHERE paused_at IS NULL AND trouble IS NULL;

-- One row a tick that ran, and one for a run of ticks that did not.
CREATE TABLE ticks (
    schedule TEXT    NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    n        INTEGER NOT NULL,
    at_least INTEGER NOT NULL,
    outcome  INTEGER NOT NULL,
    reason   INTEGER,
    detail   TEXT,
    job      BLOB,
    at       INTEGER NOT NULL,
    PRIMARY KEY (schedule, first)
) WITHOUT ROWID;
CREATE INDEX ticks_without_job ON ticks (at) WHERE job IS NULL;

ALTER TABLE jobs ADD COLUMN schedule TEXT;
ALTER TABLE jobs ADD COLUMN tick INTEGER;
-- A schedule's jobs that have not ended: what overlap asks for.
CREATE INDEX jobs_scheduled ON jobs (schedule) WHERE schedule IS NOT NULL AND (state < 4 OR state = 8);
