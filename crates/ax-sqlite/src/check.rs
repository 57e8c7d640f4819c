//! The check of what is kept twice.

use std::collections::BTreeMap;

use ax_model::KeyId;
use rusqlite::Connection;

use crate::flows::{head, head_columns, runs_without_jobs};
use crate::rows::{standing, standing_columns, time};

/// Compares what is kept twice with the rows, and runs SQLite's own check. Reads the whole store.
pub(crate) fn check(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut faults = vec![];
    let mut statement = conn.prepare("PRAGMA integrity_check(10)")?;
    let rows = statement.query_map([], |r| r.get::<_, String>(0))?;
    for line in rows {
        let line = line?;
        if line != "ok" {
            faults.push(format!("SQLite: {line}"));
        }
    }
    let mut real: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    let mut statement =
        conn.prepare(concat!("SELECT ", standing_columns!(), ", claim_at, concurrency_key FROM jobs"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let s = standing(row)?;
        let id = s.id;
        *real.entry((row.get(2)?, s.life.state.code())).or_default() += 1;
        if time(row, crate::rows::STANDING)? != s.life.claim_at() {
            faults.push(format!("job {id}: its claim time does not go with its state {}", s.life.state));
        }
        let key: Option<String> = row.get(crate::rows::STANDING + 1)?;
        if s.key != key.as_deref().map(KeyId::of) {
            faults.push(format!("job {id}: its concurrency key and the key's number do not go together"));
        }
        if s.life.lease.is_some() != s.life.state.is_active() {
            faults.push(format!("job {id}: {} and its lease do not go together", s.life.state));
        }
        if s.life.finished_at.is_some() != s.life.state.is_at_rest() {
            faults.push(format!(
                "job {id}: it is {} and has {} end",
                s.life.state,
                if s.life.finished_at.is_some() { "an" } else { "no" }
            ));
        }
        if s.life.failures + s.life.interruptions > s.life.attempt {
            faults.push(format!("job {id}: it failed more often than it was tried"));
        }
        if s.life.failures > s.policy.max_attempts || s.life.interruptions > s.policy.max_interruptions {
            faults.push(format!("job {id}: more failures or interruptions than its budget"));
        }
    }
    let mut statement = conn.prepare(concat!("SELECT ", head_columns!(), ", state FROM flows"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let head = head(row)?;
        if row.get::<_, i64>("state")? != head.state().code() {
            faults.push(format!("flow {}: what is kept of its state differs from its counts", head.spec.id));
        }
        if head.counts.jobs == 0 && !runs_without_jobs(conn, head.seq)?.is_empty() {
            faults.push(format!("flow {}: no run of it has a job", head.spec.id));
        }
    }
    let mut statement = conn.prepare("SELECT lane, state, n FROM lane_counts WHERE n <> 0")?;
    let rows = statement.query_map([], |r| Ok(((r.get(0)?, r.get(1)?), r.get(2)?)))?;
    let kept: BTreeMap<(i64, i64), i64> = rows.collect::<rusqlite::Result<_>>()?;
    if kept != real {
        faults.push(format!("kept counts {kept:?} differ from the rows {real:?}"));
    }
    for (sql, what) in [
        (
            "SELECT count(*) FROM edges WHERE parent NOT IN (SELECT seq FROM jobs) OR child NOT IN (SELECT seq FROM jobs)",
            "edges of jobs that are gone",
        ),
        (
            // A job that starts a flow ends as the flow does.
            "SELECT count(*) FROM edges JOIN jobs ON jobs.seq = parent WHERE settled IS NULL AND state IN (4, 5, 6, 7)
                 AND NOT (lane IN (SELECT lane FROM lanes WHERE task = 'rea.flow')
                     AND EXISTS (SELECT 1 FROM flows WHERE flows.state = 0 AND root_id = jobs.id))",
            "edges that the end of their parent has not settled",
        ),
        (
            "SELECT count(*) FROM edges JOIN jobs ON jobs.seq = parent WHERE flags & 8 = 0",
            "edges of parents that do not know of them",
        ),
        (
            "SELECT count(*) FROM jobs WHERE state = 0 AND (flags & 4 <> 0) AND NOT EXISTS (
                 SELECT 1 FROM edges WHERE child = jobs.seq AND settled IS NULL)",
            "jobs that wait for others that have all ended",
        ),
        (
            "SELECT count(*) FROM jobs WHERE (flags & 16 <> 0) <> (seq IN (SELECT seq FROM places))",
            "jobs whose mark and place in a flow do not go together",
        ),
        (
            // Deleted jobs are still counted by how they ended.
            "SELECT count(*) FROM flows, (SELECT flow, count(*) AS n, sum(state NOT IN (4, 5, 6, 7)) AS waiting,
                     sum(state = 5) AS died, sum(state = 6) AS stopped FROM places JOIN jobs USING (seq) GROUP BY flow)
                 ON flow = seq WHERE jobs <> n OR open <> waiting OR dead < died OR cancelled < stopped
                 OR (open = 0) <> (finished_at IS NOT NULL)",
            "flows whose counts differ from their jobs",
        ),
        (
            "SELECT count(*) FROM flows WHERE (jobs > 0) <> (seq IN (SELECT flow FROM places))",
            "flows that count jobs which they do not have",
        ),
        ("SELECT count(*) FROM keys WHERE seq NOT IN (SELECT seq FROM jobs)", "keys of jobs that are gone"),
        ("SELECT count(*) FROM tags WHERE seq NOT IN (SELECT seq FROM jobs)", "tags of jobs that are gone"),
        ("SELECT count(*) FROM attempts WHERE seq NOT IN (SELECT seq FROM jobs)", "attempts of jobs that are gone"),
        (
            "SELECT count(*) FROM (SELECT DISTINCT lane, seq >> 10 FROM jobs EXCEPT SELECT lane, block FROM lane_blocks)",
            "stretches of jobs that no listing of their queue or task would find",
        ),
        (
            "SELECT count(*) FROM attempts JOIN jobs USING (seq) WHERE attempts.attempt > jobs.attempt + 1",
            "attempts that their jobs have not had",
        ),
        (
            "SELECT count(*) FROM limits WHERE (rate IS NULL) <> (starts IS NULL)",
            "limits whose rate has no log, or that have one without a rate",
        ),
        ("SELECT count(*) FROM jobs WHERE lane NOT IN (SELECT lane FROM lanes)", "jobs in lanes that are gone"),
        (
            "SELECT count(*) FROM ticks WHERE schedule NOT IN (SELECT name FROM schedules)",
            "ticks of schedules that are gone",
        ),
        (
            "SELECT count(*) FROM removed_schedules WHERE name IN (SELECT name FROM schedules)",
            "schedules that are there and count as removed",
        ),
        (
            "SELECT count(*) FROM ticks WHERE job IS NOT NULL AND job NOT IN (SELECT id FROM jobs)",
            "ticks whose jobs are gone",
        ),
    ] {
        let n: i64 = conn.query_row(sql, [], |r| r.get(0))?;
        if n > 0 {
            faults.push(format!("{n} {what}"));
        }
    }
    faults.extend(crate::schedules::check(conn)?);
    Ok(faults)
}
