//! Everything that only reads: one job, its history, listings, counts, and the check of what is kept twice.

use std::collections::BTreeMap;

use ax_model::ids::{NodeId, Token};
use ax_model::job::{Cause, Job, State};
use ax_model::store::{Counts, Cursor, DayTotals, Filter, HistoryEntry, Page, Queue, READY_CAP};
use ax_model::{JobId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::counts::ALL_TIME;
use crate::rows::{coded, error, job, job_columns, standing, standing_columns, time};

pub(crate) fn get(conn: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    conn.prepare_cached(concat!("SELECT ", job_columns!(heavy), " FROM jobs WHERE id = ?1"))?
        .query_row([id.0], job)
        .optional()
}

/// A stretch of the index of ids; no row is read.
pub(crate) fn ids(conn: &Connection, first: JobId, last: JobId, limit: usize) -> rusqlite::Result<Vec<JobId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    conn.prepare_cached("SELECT id FROM jobs WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT ?3")?
        .query_map(params![first.0, last.0, limit], |row| row.get(0).map(JobId))?
        .collect()
}

pub(crate) fn history(conn: &Connection, id: JobId) -> rusqlite::Result<Vec<HistoryEntry>> {
    let seq: Option<i64> =
        conn.prepare_cached("SELECT seq FROM jobs WHERE id = ?1")?.query_row([id.0], |r| r.get(0)).optional()?;
    let Some(seq) = seq else { return Ok(vec![]) };
    let mut attempts = conn.prepare_cached(
        "SELECT attempt, token, node, claimed_at, started_at, ended_at, cause, error FROM attempts WHERE seq = ?1",
    )?;
    let attempts = attempts.query_map([seq], |r| {
        Ok(HistoryEntry::Attempt {
            attempt: r.get(0)?,
            token: Token(r.get::<_, i64>(1)?.cast_unsigned()),
            node: NodeId(r.get::<_, i64>(2)?.cast_unsigned()),
            claimed_at: Timestamp(r.get(3)?),
            started_at: time(r, 4)?,
            ended_at: Timestamp(r.get(5)?),
            cause: coded(r, 6, Cause::from_code)?,
            error: error(r, 7)?,
        })
    })?;
    let mut entries: Vec<HistoryEntry> = attempts.collect::<rusqlite::Result<_>>()?;
    let mut actions = conn.prepare_cached("SELECT at, what FROM actions WHERE seq = ?1 ORDER BY at, nr")?;
    let actions =
        actions.query_map([seq], |r| Ok(HistoryEntry::Action { at: Timestamp(r.get(0)?), what: r.get(1)? }))?;
    for action in actions {
        entries.push(action?);
    }
    // Stable: attempts stay in their order, actions in theirs.
    entries.sort_by_key(|e| match e {
        HistoryEntry::Attempt { ended_at, .. } => *ended_at,
        HistoryEntry::Action { at, .. } => *at,
    });
    Ok(entries)
}

pub(crate) fn list(
    conn: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Page> {
    let Some((sql, values)) = list_query(conn, filter, after, limit, now)? else { return Ok(Page::default()) };
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), job)?;
    let mut jobs: Vec<Job> = rows.collect::<rusqlite::Result<_>>()?;
    // One more than asked for was read: it tells whether there is a next page.
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let next = if more { jobs.last().map(|j| Cursor(j.seq)) } else { None };
    Ok(Page { jobs, next })
}

/// The query of one page; `None` when a kept count or a missing lane already says that nothing matches.
fn list_query(
    conn: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Option<(String, Vec<Value>)>> {
    let mut conditions = vec![];
    let mut values: Vec<Value> = vec![];
    let mut bind = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    if let Some(Cursor(seq)) = after {
        conditions.push(format!("seq < {}", bind(seq.into())));
    }
    if !filter.states.is_empty() {
        let counts = counts_by_state(conn)?;
        if filter.states.iter().all(|s| counts[*s as usize] == 0) {
            return Ok(None);
        }
        if !is_trouble(&filter.states) {
            let codes: Vec<String> = filter.states.iter().map(|s| s.code().to_string()).collect();
            conditions.push(format!("state IN ({})", codes.join(", ")));
        }
        if filter.states.iter().all(|s| s.is_active()) {
            conditions.push("token IS NOT NULL".to_owned());
        }
    }
    if filter.ready {
        conditions.push(format!("claim_at IS NOT NULL AND claim_at <= {}", bind(now.0.into())));
    }
    if filter.task.is_some() || filter.queue.is_some() {
        let mut statement = conn
            .prepare_cached("SELECT lane FROM lanes WHERE (?1 IS NULL OR task = ?1) AND (?2 IS NULL OR queue = ?2)")?;
        let lanes = statement.query_map(params![filter.task, filter.queue], |r| r.get::<_, i64>(0))?;
        let lanes: Vec<String> = lanes.map(|l| l.map(|l| l.to_string())).collect::<rusqlite::Result<_>>()?;
        if lanes.is_empty() {
            return Ok(None);
        }
        conditions.push(format!("lane IN ({})", lanes.join(", ")));
    }
    if let Some(tag) = &filter.tag {
        conditions.push(format!("seq IN (SELECT seq FROM tags WHERE tag = {})", bind(tag.clone().into())));
    }
    if let Some(key) = &filter.key {
        conditions.push(format!("key = {}", bind(key.clone().into())));
    }
    if let Some(trace) = &filter.trace_id {
        // The default trace_id is the id without hyphens and is not stored.
        let id = trace.parse::<JobId>().map_or(Value::Null, |id| Value::Blob(id.0.to_vec()));
        conditions.push(format!(
            "(trace_id = {} OR (trace_id IS NULL AND id = {}))",
            bind(trace.clone().into()),
            bind(id)
        ));
    }
    if let Some(root) = filter.root_id {
        let (a, b) = (bind(Value::Blob(root.0.to_vec())), bind(Value::Blob(root.0.to_vec())));
        conditions.push(format!("(root_id = {a} OR id = {b})"));
    }
    let limit = bind(i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX).into());
    if is_trouble(&filter.states) {
        // One walk of `jobs_trouble` a state, each ended by the limit: SQLite uses that index only for a single state.
        let walks: Vec<String> = (filter.states.iter())
            .map(|state| {
                let place = [vec![format!("state = {}", state.code())], conditions.clone()].concat().join(" AND ");
                format!("SELECT seq FROM (SELECT seq FROM jobs WHERE {place} ORDER BY seq DESC LIMIT {limit})")
            })
            .collect();
        conditions = vec![format!("seq IN ({})", walks.join(" UNION ALL "))];
    }
    let place = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let columns = job_columns!(light);
    Ok(Some((format!("SELECT {columns} FROM jobs {place} ORDER BY seq DESC LIMIT {limit}"), values)))
}

/// All of these states are in the index of what a person looks for.
fn is_trouble(states: &[State]) -> bool {
    !states.is_empty() && states.iter().all(|s| matches!(s, State::Failed | State::Dead | State::Held))
}

fn counts_by_state(conn: &Connection) -> rusqlite::Result<[u64; 9]> {
    let mut by_state = [0; 9];
    let mut statement = conn.prepare_cached("SELECT state, sum(n) FROM lane_counts GROUP BY state")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        by_state[coded(row, 0, State::from_code)? as usize] = row.get::<_, i64>(1)?.unsigned_abs();
    }
    Ok(by_state)
}

pub(crate) fn queue_counts(conn: &Connection, queue: &str) -> rusqlite::Result<[u64; 9]> {
    let mut by_state = [0; 9];
    let mut statement = conn.prepare_cached(
        "SELECT state, sum(n) FROM lane_counts JOIN lanes USING (lane) WHERE queue = ?1 GROUP BY state",
    )?;
    let mut rows = statement.query([queue])?;
    while let Some(row) = rows.next()? {
        by_state[coded(row, 0, State::from_code)? as usize] = row.get::<_, i64>(1)?.unsigned_abs();
    }
    Ok(by_state)
}

pub(crate) fn queues(conn: &Connection) -> rusqlite::Result<Vec<Queue>> {
    let mut all: BTreeMap<String, Queue> = BTreeMap::new();
    let named = |name: String| Queue { name, ..Queue::default() };
    let mut statement = conn.prepare_cached("SELECT name, paused, concurrency FROM queues")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let queue = Queue { paused: row.get(1)?, concurrency: row.get(2)?, ..named(name.clone()) };
        all.insert(name, queue);
    }
    // A lane without counts was made for a request that was refused.
    let mut statement =
        conn.prepare_cached("SELECT queue, state, sum(n) FROM lanes JOIN lane_counts USING (lane) GROUP BY 1, 2")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let queue = all.entry(name.clone()).or_insert_with(|| named(name));
        queue.by_state[coded(row, 1, State::from_code)? as usize] = row.get::<_, i64>(2)?.unsigned_abs();
    }
    Ok(all.into_values().collect())
}

pub(crate) fn counts(conn: &Connection, now: Timestamp) -> rusqlite::Result<Counts> {
    let mut counts = Counts { by_state: counts_by_state(conn)?, ..Counts::default() };
    let lanes: Vec<i64> = {
        let mut statement = conn.prepare_cached(
            "SELECT DISTINCT lane FROM lane_counts WHERE n > 0 AND state IN (0, 3)", // pending, failed
        )?;
        let rows = statement.query_map([], |r| r.get(0))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    let mut ready = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_claim
         WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at <= ?3 LIMIT ?4)",
    )?;
    let mut first = conn.prepare_cached(
        "SELECT min(claim_at) FROM jobs INDEXED BY jobs_claim
         WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at > ?3",
    )?;
    let earlier = |a: Option<Timestamp>, b: Option<Timestamp>| a.into_iter().chain(b).min();
    for lane in lanes {
        for priority in 1..=10u8 {
            let oldest: Option<i64> = first.query_row(params![lane, priority, i64::MIN], |r| r.get(0))?;
            let Some(oldest) = oldest.map(Timestamp) else { continue };
            let mut next = Some(oldest);
            if oldest <= now {
                counts.oldest_ready = earlier(counts.oldest_ready, Some(oldest));
                let room = i64::try_from(READY_CAP.saturating_sub(counts.ready)).unwrap_or(0);
                counts.ready +=
                    ready.query_row(params![lane, priority, now.0, room], |r| r.get::<_, i64>(0))?.unsigned_abs();
                next = first.query_row(params![lane, priority, now.0], |r| r.get::<_, Option<i64>>(0))?.map(Timestamp);
            }
            counts.next_due = earlier(counts.next_due, next);
        }
    }
    counts.today = day_totals(conn, now.day())?;
    for totals in day_totals(conn, ALL_TIME)? {
        counts.totals.succeeded += totals.succeeded;
        counts.totals.failed += totals.failed;
        counts.totals.dead += totals.dead;
        counts.totals.run_us += totals.run_us;
        counts.totals.runs += totals.runs;
    }
    Ok(counts)
}

fn day_totals(conn: &Connection, day: i64) -> rusqlite::Result<Vec<DayTotals>> {
    let mut statement = conn.prepare_cached(
        "SELECT task, sum(succeeded), sum(failed), sum(dead), sum(run_us), sum(runs)
         FROM day_totals JOIN lanes USING (lane) WHERE day = ?1 GROUP BY task ORDER BY task",
    )?;
    let number = |r: &rusqlite::Row<'_>, i| r.get::<_, i64>(i).map(i64::unsigned_abs);
    let rows = statement.query_map([day], |r| {
        Ok(DayTotals {
            task: r.get(0)?,
            succeeded: number(r, 1)?,
            failed: number(r, 2)?,
            dead: number(r, 3)?,
            run_us: number(r, 4)?,
            runs: number(r, 5)?,
        })
    })?;
    rows.collect()
}

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
    let mut statement = conn.prepare(concat!("SELECT ", standing_columns!(), ", claim_at FROM jobs"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let s = standing(row)?;
        let id = s.id;
        *real.entry((row.get(2)?, s.life.state.code())).or_default() += 1;
        if time(row, crate::rows::STANDING)? != s.life.claim_at() {
            faults.push(format!("job {id}: its claim time does not go with its state {}", s.life.state));
        }
        if s.life.lease.is_some() != s.life.state.is_active() {
            faults.push(format!("job {id}: {} and its lease do not go together", s.life.state));
        }
        if s.life.failures > s.policy.max_attempts || s.life.interruptions > s.policy.max_interruptions {
            faults.push(format!("job {id}: more failures or interruptions than its budget"));
        }
    }
    let mut statement = conn.prepare("SELECT lane, state, n FROM lane_counts WHERE n <> 0")?;
    let rows = statement.query_map([], |r| Ok(((r.get(0)?, r.get(1)?), r.get(2)?)))?;
    let kept: BTreeMap<(i64, i64), i64> = rows.collect::<rusqlite::Result<_>>()?;
    if kept != real {
        faults.push(format!("kept counts {kept:?} differ from the rows {real:?}"));
    }
    for (sql, what) in [
        ("SELECT count(*) FROM keys WHERE seq NOT IN (SELECT seq FROM jobs)", "keys of jobs that are gone"),
        ("SELECT count(*) FROM tags WHERE seq NOT IN (SELECT seq FROM jobs)", "tags of jobs that are gone"),
        ("SELECT count(*) FROM attempts WHERE seq NOT IN (SELECT seq FROM jobs)", "attempts of jobs that are gone"),
        ("SELECT count(*) FROM jobs WHERE lane NOT IN (SELECT lane FROM lanes)", "jobs in lanes that are gone"),
    ] {
        let n: i64 = conn.query_row(sql, [], |r| r.get(0))?;
        if n > 0 {
            faults.push(format!("{n} {what}"));
        }
    }
    Ok(faults)
}
