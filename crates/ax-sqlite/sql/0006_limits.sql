-- Limits on queues, tasks and concurrency keys; keys that take turns.

-- What a job shares a limit with, as it was given and as a number (KeyId). NULL costs a byte each.
ALTER TABLE jobs ADD COLUMN concurrency_key TEXT;
ALTER TABLE jobs ADD COLUMN ckey INTEGER;

-- Jobs with a key leave the lane's own claim order: a million that their key's limit keeps back cost a claim nothing.
DROP INDEX jobs_claim;
CREATE INDEX jobs_claim ON jobs (lane, priority, claim_at) WHERE claim_at IS NOT NULL AND ckey IS NULL;
-- The claim order of each (lane, key) pair: a strand.
CREATE INDEX jobs_strand ON jobs (lane, ckey, priority, claim_at) WHERE claim_at IS NOT NULL AND ckey IS NOT NULL;
-- The same jobs by time alone, for counts and listings.
CREATE INDEX jobs_claim_keyed ON jobs (lane, priority, claim_at) WHERE claim_at IS NOT NULL AND ckey IS NOT NULL;
-- What is in use of a key's limit.
CREATE INDEX jobs_key_active ON jobs (ckey) WHERE token IS NOT NULL AND ckey IS NOT NULL;

CREATE TABLE limits (
    scope       INTEGER NOT NULL,         -- Scope: 0 queue, 1 task, 2 key
    name        TEXT    NOT NULL,
    concurrency INTEGER,
    per_node    INTEGER,
    rate        INTEGER,                  -- starts in a window
    window_ms   INTEGER,
    fair        INTEGER NOT NULL,         -- of a queue: its keys take turns
    starts      TEXT,                     -- the log of starts (JSON), while there is a rate
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

-- The last declaration in code or a file, word for word: it is applied again only when it has changed.
CREATE TABLE limit_declarations (
    scope INTEGER NOT NULL,
    name  TEXT    NOT NULL,
    text  TEXT    NOT NULL,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

-- A queue's limit stands where all limits stand.
INSERT INTO limits (scope, name, concurrency, fair) SELECT 0, name, concurrency, 0 FROM queues WHERE concurrency IS NOT NULL;
ALTER TABLE queues DROP COLUMN concurrency;
