-- Listings: no filter walks the whole store to find few of many rows.

-- Which stretches of 1,024 row numbers hold jobs of a lane. One row a stretch and lane, written when the first of them
-- comes: an index of all rows by lane in a thousandth of its size and writes.
CREATE TABLE lane_blocks (
    lane  INTEGER NOT NULL,
    block INTEGER NOT NULL,               -- seq >> 10
    PRIMARY KEY (lane, block)
) WITHOUT ROWID;
INSERT INTO lane_blocks SELECT DISTINCT lane, seq >> 10 FROM jobs;

-- What is neither waiting, running nor done: failed, dead, cancelled, skipped, held. Success is not in it: nearly every
-- job ends there. `IN (…)` instead of the ORs would build a temporary table at each write of a row.
DROP INDEX jobs_trouble;
CREATE INDEX jobs_aside ON jobs (state, lane) WHERE state = 3 OR state = 5 OR state = 6 OR state = 7 OR state = 8;
