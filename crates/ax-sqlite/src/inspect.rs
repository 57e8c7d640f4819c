//! What only reads: one job, its history, and counts.

use std::collections::BTreeMap;

use ax_model::ids::{NodeId, Token};
use ax_model::job::{Cause, Job, State};
use ax_model::store::{AtRest, Counts, DayTotals, HistoryEntry, LaneStats, Queue, READY_CAP};
use ax_model::{JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::counts::ALL_TIME;
use crate::rows::{coded, error, job, job_columns, time};

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

pub(crate) fn at_rest(conn: &Connection, ids: &[JobId], bytes: usize) -> rusqlite::Result<AtRest> {
    // Most of those asked about still wait: their state alone is read first.
    let mut state = conn.prepare_cached("SELECT state FROM jobs WHERE id = ?1")?;
    let mut whole = conn.prepare_cached(concat!("SELECT ", job_columns!(ended), " FROM jobs WHERE id = ?1"))?;
    let (mut found, mut left) = (AtRest::default(), bytes);
    for id in ids {
        let Some(state) = state.query_row([id.0], |r| coded(r, 0, State::from_code)).optional()? else {
            found.missing.push(*id);
            continue;
        };
        if !state.is_at_rest() {
            continue;
        }
        let ended = whole.query_row([id.0], job)?;
        let size = ended.result.as_ref().map_or(0, String::len);
        if size > left && !found.jobs.is_empty() {
            break;
        }
        left = left.saturating_sub(size);
        found.jobs.push(ended);
    }
    Ok(found)
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

pub(crate) fn counts_by_state(conn: &Connection) -> rusqlite::Result<[u64; 9]> {
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
    let mut statement = conn.prepare_cached(concat!("SELECT ", crate::queues::queue_columns!()))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let queue = crate::queues::row(row)?;
        all.insert(queue.name.clone(), queue);
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
    for lane in lanes {
        let times = due_times(conn, lane, READY_CAP.saturating_sub(counts.ready), now)?;
        counts.ready += times.ready;
        counts.oldest_ready = counts.oldest_ready.into_iter().chain(times.oldest_ready).min();
        counts.next_due = counts.next_due.into_iter().chain(times.next_due).min();
    }
    counts.today = day_totals(conn, now.day())?;
    for totals in day_totals(conn, ALL_TIME)? {
        counts.totals.add(&totals);
    }
    Ok(counts)
}

/// What waits in a lane, by time.
#[derive(Default)]
pub(crate) struct DueTimes {
    /// How many are due; counted up to what was asked for.
    pub(crate) ready: u64,
    pub(crate) oldest_ready: Option<Timestamp>,
    pub(crate) next_due: Option<Timestamp>,
}

/// A statement on waiting jobs, for those without a concurrency key and for those with one: each has its claim index.
macro_rules! of_both_claim_indexes {
    ($select:literal, $rest:literal) => {
        [
            concat!($select, " FROM jobs INDEXED BY jobs_claim WHERE claim_at IS NOT NULL AND ckey IS NULL ", $rest),
            concat!(
                $select,
                " FROM jobs INDEXED BY jobs_claim_keyed WHERE claim_at IS NOT NULL AND ckey IS NOT NULL ",
                $rest
            ),
        ]
    };
}
pub(crate) use of_both_claim_indexes;

const COUNT_DUE: [&str; 2] = of_both_claim_indexes!(
    "SELECT count(*) FROM (SELECT 1",
    "AND lane = ?1 AND priority = ?2 AND claim_at <= ?3 LIMIT ?4)"
);
const FIRST_AFTER: [&str; 2] =
    of_both_claim_indexes!("SELECT min(claim_at)", "AND lane = ?1 AND priority = ?2 AND claim_at > ?3");

/// A few seeks in the claim indexes for each priority.
pub(crate) fn due_times(conn: &Connection, lane: i64, most: u64, now: Timestamp) -> rusqlite::Result<DueTimes> {
    let earlier = |a: Option<Timestamp>, b: Option<Timestamp>| a.into_iter().chain(b).min();
    let mut times = DueTimes::default();
    for (count, first) in COUNT_DUE.iter().zip(FIRST_AFTER) {
        let (mut ready, mut first) = (conn.prepare_cached(count)?, conn.prepare_cached(first)?);
        for priority in 1..=10u8 {
            let oldest: Option<i64> = first.query_row(params![lane, priority, i64::MIN], |r| r.get(0))?;
            let Some(oldest) = oldest.map(Timestamp) else { continue };
            let mut next = Some(oldest);
            if oldest <= now {
                times.oldest_ready = earlier(times.oldest_ready, Some(oldest));
                let room = i64::try_from(most.saturating_sub(times.ready)).unwrap_or(i64::MAX);
                times.ready +=
                    ready.query_row(params![lane, priority, now.0, room], |r| r.get::<_, i64>(0))?.unsigned_abs();
                next = first.query_row(params![lane, priority, now.0], |r| r.get::<_, Option<i64>>(0))?.map(Timestamp);
            }
            times.next_due = earlier(times.next_due, next);
        }
    }
    Ok(times)
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

/// Kept counts and sums of each lane that has ever had a job.
pub(crate) fn lanes(conn: &Connection, now: Timestamp) -> rusqlite::Result<Vec<LaneStats>> {
    let mut all: BTreeMap<i64, LaneStats> = BTreeMap::new();
    // A lane without counts was made for a request that was refused.
    let mut statement =
        conn.prepare_cached("SELECT lane, queue, task, state, n FROM lane_counts JOIN lanes USING (lane)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let lane = all.entry(row.get(0)?).or_default();
        if lane.task.is_empty() {
            (lane.queue, lane.task) = (row.get(1)?, row.get(2)?);
        }
        lane.by_state[coded(row, 3, State::from_code)? as usize] = row.get::<_, i64>(4)?.unsigned_abs();
    }
    let mut statement =
        conn.prepare_cached("SELECT lane, succeeded, failed, dead, run_us, runs FROM day_totals WHERE day = ?1")?;
    let mut rows = statement.query([ALL_TIME])?;
    while let Some(row) = rows.next()? {
        let number = |i| row.get::<_, i64>(i).map(i64::unsigned_abs);
        let (succeeded, failed, dead) = (number(1)?, number(2)?, number(3)?);
        let (run_us, runs) = (number(4)?, number(5)?);
        let totals = DayTotals { task: String::new(), succeeded, failed, dead, run_us, runs };
        if let Some(lane) = all.get_mut(&row.get(0)?) {
            lane.totals = totals;
        }
    }
    for (number, lane) in &mut all {
        if State::ALL.iter().any(|s| s.is_waiting() && lane.by_state[*s as usize] > 0) {
            lane.oldest_ready = oldest_of_lane(conn, *number)?.filter(|at| *at <= now);
        }
    }
    Ok(all.into_values().collect())
}

const NEXT_PRIORITY: [&str; 2] = of_both_claim_indexes!(
    "SELECT priority, claim_at",
    "AND lane = ?1 AND priority > ?2 ORDER BY priority, claim_at LIMIT 1"
);

/// Due time of the lane's first claimable job: a seek in the claim indexes for each priority that it has.
fn oldest_of_lane(conn: &Connection, lane: i64) -> rusqlite::Result<Option<Timestamp>> {
    let mut oldest: Option<i64> = None;
    for sql in NEXT_PRIORITY {
        let mut next = conn.prepare_cached(sql)?;
        let mut priority = 0;
        while let Some((next_priority, due)) =
            next.query_row([lane, priority], |r| Ok((r.get(0)?, r.get::<_, i64>(1)?))).optional()?
        {
            priority = next_priority;
            oldest = Some(oldest.map_or(due, |oldest| oldest.min(due)));
        }
    }
    Ok(oldest.map(Timestamp))
}
