-- Edges between jobs, and flows.

-- What a job waits for. `settled` is NULL while the edge is open, then 1 = it holds or 0 = it never can.
CREATE TABLE edges (
    parent  INTEGER NOT NULL,             -- jobs.seq
    child   INTEGER NOT NULL,             -- jobs.seq
    kind    INTEGER NOT NULL,             -- 0 success, 1 failure, 2 finished
    settled INTEGER,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
-- What the edges of a child have come to is sought here, whatever their number.
CREATE INDEX edges_child ON edges (child, kind, settled);

CREATE TABLE flows (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry        INTEGER NOT NULL,        -- 0 failed, 1 all
    root_id      BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    retry_of     BLOB,
    next         BLOB,
    cancel_asked INTEGER NOT NULL,
    state        INTEGER NOT NULL,        -- 0 running, 1 success, 2 dead, 3 cancelled: what the counts come to
    finished_at  INTEGER,
    -- Kept counts of its jobs, changed in the transaction that changes the rows.
    jobs         INTEGER NOT NULL,
    open         INTEGER NOT NULL,
    dead         INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL
);
CREATE INDEX flows_name ON flows (name);
CREATE INDEX flows_state ON flows (state);

-- A job's place in a flow. The order of the numbers is the order in which the jobs were made.
CREATE TABLE places (
    seq        INTEGER PRIMARY KEY,       -- jobs.seq
    flow       INTEGER NOT NULL,          -- flows.seq
    node       TEXT    NOT NULL,
    made_by    BLOB,                      -- the id of the map node that made it
    made_index INTEGER
);
CREATE INDEX places_flow ON places (flow);

-- Jobs that wait for others can expire as well; they have no claim_at.
DROP INDEX jobs_expiry;
CREATE INDEX jobs_expiry ON jobs (start_before)
    WHERE start_before IS NOT NULL AND started_at IS NULL AND (state = 0 OR state = 3);
-- What waits for others, for listings: it is in no claim index.
CREATE INDEX jobs_blocked ON jobs (lane) WHERE state = 0 AND claim_at IS NULL;
