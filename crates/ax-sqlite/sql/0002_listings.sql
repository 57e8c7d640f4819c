-- Listings: no filter walks the whole store to find few of many rows.

-- Which stretches of 1,024 row numbers hold jobs of a lane. One row a stretch and lane, written when the first of them
-- comes: an index of all rows by lane in a thousandth of its size and writes.
CREATE TABLE lane_blocks (
    lane  INTEGER NOT NULL,
    block INTEGER NOT NULL,               -- seq >> 10
    PRIMARY KEY (lane, block)
) WITHOUT ROWID;
INSERT INTO lane_blocks SELECT DISTINCT lane, seq >> 10 FROM jobs;

-- What is neither waiting, running nor done: failed (3), dead, cancelled, skipped, held (5 to 8). Success (4) is not in it:
-- nearly every job ends there. A query that uses it repeats the condition word for word; two comparisons are cheap at
-- each write of a row, where `IN (…)` would build a temporary table.
DROP INDEX jobs_trouble;
CREATE INDEX jobs_aside ON jobs (state, lane) WHERE state = 3 OR state > 4;
